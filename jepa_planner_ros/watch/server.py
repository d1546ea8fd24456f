"""The page's server: a handful of files, pictures, and a stream of what is known.

Everything is read with GET and nothing can be changed. On the loopback interface only requests that
name this computer are answered: a page from elsewhere whose name was made to point here (DNS
rebinding) is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from jepa_planner_ros.watch.pictures import Album, Source

PERIOD = 0.25
"""Time between two snapshots on the stream, s."""

_PATIENCE_AT_END = 0.5
"""How long streams may take to end, s."""
_BACKLOG = 16

_PAGE, _REPORT = "jepa_planner_ros.watch", "jepa_planner_ros.report"
_FILES = {
    "/": (_PAGE, "page/index.html", "text/html"),
    "/style.css": (_REPORT, "style.css", "text/css"),
    "/page.css": (_PAGE, "page/page.css", "text/css"),
    "/icon.svg": (_PAGE, "page/icon.svg", "image/svg+xml"),
    **{
        f"/{name}.js": (_PAGE, f"page/{name}.js", "text/javascript")
        for name in ("page", "pictures", "charts", "format", "dom")
    },
}

_HEADERS = {
    # Even if something from a message became part of the page as HTML, no script of it would run.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Known(Protocol):
    """What is served; may be read by any thread."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """Pictures by name."""

    def snapshot(self) -> Mapping[str, Any]:
        """Plain values that JSON can hold."""


def application(known: Known, host: str) -> web.Application:
    """The page's server.

    Args:
        known: what is served.
        host: name or address that is listened on; decides which requests are answered.
    """
    app = web.Application(middlewares=[_guard(host)])
    server = _Server(known)
    for path, (package, name, kind) in _FILES.items():
        content = files(package).joinpath(name).read_bytes()
        app.router.add_get(path, _file(content, kind))
    app.router.add_get("/snapshot.json", server.snapshot)
    app.router.add_get("/events", server.events)
    app.router.add_get("/pictures/{name}.jpg", server.picture)
    app.on_shutdown.append(server.end)
    return app


def listen(host: str, port: int) -> socket.socket:
    """A socket to serve from. Raises OSError when the address cannot be had."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def address(host: str, listening: socket.socket) -> str:
    """Where a browser finds the page."""
    port = listening.getsockname()[1]
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


async def serve(known: Known, host: str, listening: socket.socket, ended: asyncio.Event) -> None:
    """Serve the page until `ended` is set."""
    runner = web.AppRunner(
        application(known, host), access_log=None, shutdown_timeout=_PATIENCE_AT_END
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        await ended.wait()
    finally:
        await runner.cleanup()


def is_loopback(host: str) -> bool:
    """Whether only this computer can reach what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Server:
    """Answers what depends on the moment."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._album = Album()
        self._drawing = asyncio.Lock()
        self._ended = asyncio.Event()

    async def snapshot(self, _request: web.Request) -> web.Response:
        return web.Response(text=self._told(), content_type="application/json")

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events, each a snapshot."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **_HEADERS})
        await response.prepare(request)
        with suppress(ConnectionError):
            while not self._ended.is_set():
                await response.write(f"data: {self._told()}\n\n".encode())
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), PERIOD)
        return response

    async def picture(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        try:
            async with self._drawing:
                content = await asyncio.to_thread(self._album.get, name, self._known.sources)
        except ValueError as error:
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        if content is None:
            raise web.HTTPNotFound(text=f"There is no picture {name!r} yet.")
        return web.Response(body=content, content_type="image/jpeg")

    async def end(self, _app: web.Application) -> None:
        """Let the streams end."""
        self._ended.set()

    def _told(self) -> str:
        return json.dumps(self._known.snapshot(), allow_nan=False, separators=(",", ":"))


def _file(content: bytes, kind: str) -> Handler:
    async def give(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=content, content_type=kind, charset="utf-8")

    return give


def _guard(host: str) -> Any:
    """Refuses what is not addressed to this computer, and gives every answer its headers."""
    names = {"localhost", "127.0.0.1", "::1", host} if is_loopback(host) else None

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if names is not None and _host_name(request) not in names:
            response: web.StreamResponse = web.Response(
                status=403, text=f"This page is served for {host} alone; open it by that name."
            )
        else:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = web.Response(status=error.status, text=error.text)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    return guarded


def _host_name(request: web.Request) -> str | None:
    try:
        return urlsplit(f"//{request.host}").hostname
    except ValueError:
        return None
