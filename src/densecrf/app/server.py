"""The web server, on a loopback address: one page, one WebSocket, images in, exports out."""

import asyncio
import io
import ipaddress
import json
import socket
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from densecrf import __version__
from densecrf.app.boxed import object_in
from densecrf.app.dataset import FORMATS
from densecrf.app.exports import KINDS, NEED_RESULT
from densecrf.app.gallery import Gallery
from densecrf.app.live import frame
from densecrf.app.rooms import Connection, Room, Rooms
from densecrf.app.security import LOOPBACK, Guard, bracketed, new_token
from densecrf.app.store import MAX_UPLOAD, ImageFolder
from densecrf.app.strokes import MAX_LABELS
from densecrf.model.parameters import Parameters
from densecrf.model.presets import PRESETS

__all__ = ["check_host", "make_app", "serve"]

STATIC = Path(__file__).with_name("static")
LONGEST_NAME = 1000
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
        try:
            listening.bind((host, PORT if port is None else port))
        except OSError:
            if port is not None:
                raise
            listening.bind((host, 0))
        address, chosen = listening.getsockname()[:2]
        assert ipaddress.ip_address(address).is_loopback
        listening.listen(64)
        token = new_token()
        url = f"http://{bracketed(address)}:{chosen}/{token}/"
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


def make_app(store: ImageFolder, token: str, port: int, file: Parameters | None = None) -> Guard:
    """Return the application behind its guard: every path begins with the token."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.rooms = Rooms(store, file)
        app.state.gallery = Gallery(store, app.state.rooms)
        app.state.finding = asyncio.Lock()
        yield
        await app.state.rooms.close()

    routes = [
        Route("/config", _config),
        Route("/images", _images),
        Route("/image", _image),
        Route("/object", _object),
        Route("/thumbnail", _thumbnail),
        Route("/upload", _upload, methods=["POST"]),
        Route("/mask", _mask, methods=["POST"]),
        Route("/drop", _drop, methods=["POST"]),
        Route("/copy", _copy, methods=["POST"]),
        Route("/dataset/{kind}", _dataset),
        Route("/export/{kind}", _export),
        WebSocketRoute("/live", _live),
        Mount("/", StaticFiles(directory=STATIC, html=True)),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={ValueError: _answer_error, OSError: _answer_error},
    )
    app.state.store, app.state.file = store, file
    return Guard(app, token, port)


class _Ascii(JSONResponse):
    """JSON in ASCII alone: UTF-8 cannot encode every path."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


async def _answer_error(_: Request, error: Exception) -> JSONResponse:
    status = 413 if isinstance(error, _TooLargeError) else 422
    return _Ascii({"error": str(error)}, status_code=status)


async def _config(request: Request) -> JSONResponse:
    presets = {name: model.about for name, model in PRESETS.items()}
    if request.app.state.file is not None:
        presets["file"] = "the model given at the start"
    store: ImageFolder = request.app.state.store
    return _Ascii(
        {
            "version": __version__,
            "presets": presets,
            "max_labels": MAX_LABELS,
            "max_upload": MAX_UPLOAD,
            "folder": str(store.root),
            "network": store.scores is not None,
        }
    )


async def _images(request: Request) -> JSONResponse:
    return _Ascii(await asyncio.to_thread(request.app.state.gallery.listing))


def _named(request: Request, parameter: str) -> str:
    name = request.query_params.get(parameter, "")
    if not 0 < len(name) <= LONGEST_NAME or "\0" in name:
        raise ValueError(f"{parameter}: give a name")
    return name


async def _room(request: Request) -> Room:
    rooms: Rooms = request.app.state.rooms
    return await rooms.get(_named(request, "name"))


async def _image(request: Request) -> Response:
    shown = await _shown(request)
    return Response(await asyncio.to_thread(_png, shown), media_type="image/png")


async def _shown(request: Request) -> Any:
    """Return the pixels of an image, or of a plane of a volume."""
    picture = (await _room(request)).picture
    axis = _index(request, "axis", 1 if picture.depth is None else 3)
    at = _index(request, "slice", 1 if picture.depth is None else picture.shape[axis])
    return picture.shown(at, axis)


async def _object(request: Request) -> Response:
    """Return the pixels of the object in a box: a mask, as label maps are sent."""
    sides = request.query_params.get("box", "").split(",")
    try:
        box = tuple(float(side) for side in sides)
    except ValueError:
        raise ValueError(f"box: {sides} are not four numbers") from None
    async with request.app.state.finding:  # one at a time: each takes a solve's memory
        mask = await asyncio.to_thread(object_in, await _shown(request), box)
    return Response(frame({"planes": 1}, mask), media_type="application/octet-stream")


def _index(request: Request, name: str, count: int) -> int:
    text = request.query_params.get(name, "0")
    at = int(text) if text.isdecimal() and len(text) < 9 else -1
    if not 0 <= at < count:
        raise ValueError(f"{name}: {text[:20]!r} is not between 0 and {count - 1}")
    return at


def _png(pixels: Any) -> bytes:
    packed = io.BytesIO()
    Image.fromarray(pixels).save(packed, "PNG", compress_level=1)
    return packed.getvalue()


async def _thumbnail(request: Request) -> Response:
    gallery: Gallery = request.app.state.gallery
    return Response(await gallery.thumbnail(_named(request, "name")), media_type="image/jpeg")


async def _body(request: Request) -> bytes:
    """Return the file that is sent, or raise ValueError where it is too large."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_UPLOAD:
            name = _named(request, "name")
            raise _TooLargeError(f"{name}: more than {MAX_UPLOAD >> 20} MiB; shrink it first")
    return bytes(data)


class _TooLargeError(ValueError):
    """A file is larger than `MAX_UPLOAD`."""


async def _upload(request: Request) -> JSONResponse:
    name, data = _named(request, "name"), await _body(request)
    store: ImageFolder = request.app.state.store
    return _Ascii({"name": await asyncio.to_thread(store.upload, name, data)})


async def _mask(request: Request) -> JSONResponse:
    name, data = _named(request, "name"), await _body(request)
    return _Ascii({"name": await request.app.state.gallery.import_mask(name, data)})


async def _drop(request: Request) -> JSONResponse:
    name, file_name, data = _named(request, "name"), _named(request, "file"), await _body(request)
    await request.app.state.rooms.drop(name, file_name, data)
    return _Ascii({"name": name})


async def _copy(request: Request) -> JSONResponse:
    source, target = _named(request, "from"), _named(request, "name")
    await request.app.state.gallery.copy_labels(source, target)
    return _Ascii({"name": target})


async def _export(request: Request) -> Response:
    kind = request.path_params["kind"]
    if kind not in KINDS:
        raise ValueError(f"export {kind!r} is none of {', '.join(KINDS)}")
    room = await _room(request)
    reduced = request.query_params.get("size") == "reduced"
    name, data = await room.export(kind, kind in NEED_RESULT, reduced)
    return Response(data, media_type=KINDS[kind][1], headers=_attached(name))


def _attached(name: str) -> dict[str, str]:
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}


async def _dataset(request: Request) -> Response:
    kind, only_done = request.path_params["kind"], request.query_params.get("only") == "done"
    store: ImageFolder = request.app.state.store
    folder = TemporaryDirectory()
    try:
        path = Path(folder.name) / "dataset"
        await request.app.state.gallery.write_dataset(path, kind, only_done)
    except BaseException:
        folder.cleanup()
        raise
    end, media = FORMATS[kind]
    name = f"{store.root.name or 'labels'}.{end}"
    ended = BackgroundTask(folder.cleanup)
    return FileResponse(path, media_type=media, headers=_attached(name), background=ended)


async def _live(tab: WebSocket) -> None:
    """Serve one tab: it opens an image, sends edits, and gets all changes of the image.

    An edit of kind "settings" may hold ``min_area``, a whole number of pixels; 0, the default, is
    off. Islands and holes below it go, and the heads of answers say under ``islands`` what energy
    that cost; it is part of their energy and gap.
    """
    await tab.accept()
    connection = Connection()
    sender = asyncio.create_task(_sending(tab, connection))
    room: Room | None = None
    try:
        while True:
            room = await _heard(tab, connection, room, await tab.receive_json())
    except (WebSocketDisconnect, RuntimeError, KeyError):
        pass
    except ValueError:  # not JSON
        await tab.close(1003)
    finally:
        if room is not None:
            room.connections.discard(connection)
        sender.cancel()


async def _heard(
    tab: WebSocket, connection: Connection, room: Room | None, message: Any
) -> Room | None:
    kind = message.get("type") if isinstance(message, dict) else None
    if kind == "open" and isinstance(message.get("image"), str):
        if room is not None:
            room.connections.discard(connection)
            await room.keep_labels()
        try:
            room = await tab.app.state.rooms.get(message["image"])
        except (ValueError, OSError) as error:
            connection.put({"type": "message", "level": "error", "text": str(error)})
            return None
        room.join(connection)
    elif kind == "edit" and room is not None:
        edit = message.get("edit")
        if isinstance(edit, dict) and edit.get("kind") == "labels":
            await tab.app.state.rooms.relabel(connection, edit)
        else:
            room.edit(connection, edit)
    elif kind == "reading" and room is not None:
        try:
            await tab.app.state.rooms.reread(room.name, message.get("reading"))
        except (ValueError, OSError) as error:
            connection.put({"type": "message", "level": "error", "text": str(error)})
    elif kind == "sync" and room is not None:
        room.send_document(connection)
    elif room is not None:
        connection.put({"type": "message", "level": "error", "text": f"unknown message {kind!r}"})
    return room


async def _sending(tab: WebSocket, connection: Connection) -> None:
    while True:
        message = await connection.get()
        if isinstance(message, bytes):
            await tab.send_bytes(message)
        else:
            await tab.send_text(message)
