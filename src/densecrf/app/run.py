"""Start the server on a loopback address and open the browser."""

import ipaddress
import socket
import webbrowser
from collections.abc import Callable

import uvicorn

from densecrf.app.security import LOOPBACK, new_token
from densecrf.app.server import make_app
from densecrf.app.store import ImageFolder
from densecrf.model.parameters import Parameters

__all__ = ["check_host", "serve"]

PORT = 8650  # the same in each run: a browser keeps the data of a page by its port
LARGEST_MESSAGE = 4 * 2**20  # bytes from the page: a stroke of many points


def check_host(host: str) -> str:
    """Return a loopback host; ValueError for every other, which other machines could reach."""
    if host not in LOOPBACK:
        raise ValueError(
            f"host {host!r}: the app serves this machine alone; give one of {', '.join(LOOPBACK)}"
        )
    return host


def serve(
    store: ImageFolder,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    file: Parameters | None = None,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve until Ctrl-C.

    Parameters
    ----------
    store : ImageFolder
        The images.
    host, port
        A loopback address; without a port, `PORT`, or one that is free.
    browser : bool
        Whether to open the page.
    file : Parameters, optional
        A further model to choose.
    announce : callable
        Prints the address.
    """
    check_host(host)
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(listening, host, port)
        address, chosen = listening.getsockname()[:2]
        assert ipaddress.ip_address(address).is_loopback
        listening.listen(64)
        token = new_token()
        name = f"[{address}]" if ":" in address else address
        url = f"http://{name}:{chosen}/{token}/"
        config = uvicorn.Config(
            make_app(store, token, chosen, file),
            log_level="warning",
            ws_max_size=LARGEST_MESSAGE,
            server_header=False,
            access_log=False,  # the token is in every path
            timeout_graceful_shutdown=3,
        )
        announce(url)
        if browser:
            webbrowser.open(url)
        uvicorn.Server(config).run(sockets=[listening])


def _bind(listening: socket.socket, host: str, port: int | None) -> None:
    try:
        listening.bind((host, PORT if port is None else port))
    except OSError:
        if port is not None:
            raise
        listening.bind((host, 0))
