"""Who may talk to the app: this machine, a page of its own origin, with the token of this run.

Every request, WebSockets included, passes `Guard`. It refuses

- a ``Host`` that is not the loopback address served on (DNS rebinding),
- an ``Origin`` other than the app's own, and WebSockets and changes without one,
- a path that does not begin with the run's random token,

and adds headers to every answer: a content security policy without inline code, no framing, no
referrer (the token is in the address), no sniffing, no caching.
"""

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["LOOPBACK", "Guard", "bracketed", "new_token"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SAFE_METHODS = ("GET", "HEAD")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def new_token() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


class Guard:
    """An ASGI application in front of another, which sees paths without the token."""

    def __init__(self, app: Application, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{bracketed(host)}:{port}" for host in LOOPBACK}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that is allowed, and refuse every other."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = _single(scope["headers"])
        host = headers.get("host", "")
        reason = self._refusal(scope, headers, host)
        if reason is not None:
            await _refuse(scope, receive, send, reason)
            return
        prefix = f"/{self.token}"
        inner = {**scope, "path": scope["path"].removeprefix(prefix), "raw_path": None}
        await self.app(inner, receive, _with_headers(send, host))

    def _refusal(self, scope: Scope, headers: dict[str, str], host: str) -> str | None:
        if host not in self.hosts:
            return "This address is not served here."
        _, _, rest = scope["path"].partition("/")  # "*", for one, has no slash
        begin = rest.partition("/")[0]
        if not secrets.compare_digest(begin.encode(), self.token.encode()):
            return "Open the address that densecrf printed: it carries the key of this run."
        changing = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        origin = headers.get("origin")
        if origin != f"http://{host}" and (changing or origin is not None):
            return "Other pages may not talk to the app."
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "Other pages may not talk to the app."
        return None


def bracketed(host: str) -> str:
    """Return a host as it is in an address."""
    return f"[{host}]" if ":" in host else host


def _single(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers; one that comes twice is refused by having no value that is allowed."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1").lower()
        headers[key] = value.decode("latin-1") if key not in headers else "twice"
    return headers


def _with_headers(send: Send, host: str) -> Send:
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        f"connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    added = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            extra = [(name.encode(), value.encode()) for name, value in added.items()]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sending


async def _refuse(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": reason})
        return
    head = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 403, "headers": head})
    await send({"type": "http.response.body", "body": reason.encode()})
