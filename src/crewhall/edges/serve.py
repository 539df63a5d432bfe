"""
The hub as a process: one port for MCP, REST and the pages, started and stopped in order.

    open the hall ─▶ bind ─▶ tell where (hub-<pid>.json) ─▶ serve ─▶ SIGTERM: no new calls, running ones finish ─▶ close
"""

import asyncio
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from crewhall import __version__
from crewhall.app import CHORE_SECONDS, Hub
from crewhall.config import Settings
from crewhall.edges.door import Door
from crewhall.edges.guard import Connection, Guard, WrongMethod, credentials, refusal
from crewhall.edges.mcp import McpEdge
from crewhall.edges.pages import Pages, make_link, url_of
from crewhall.edges.rest import PREFIX, RestEdge
from crewhall.errors import Failure, Internal, NotFound, Unavailable
from crewhall.identity import operator_token
from crewhall.tool import Registry

log = logging.getLogger(__name__)


def web_app(hub: Hub) -> Starlette:
    """The hub's HTTP application."""
    door = Door(hub)
    mcp = McpEdge(door)

    async def about(request: Request) -> JSONResponse:
        await door.actor(credentials(request.scope, hub.settings))
        return JSONResponse(await door.thread(lambda: hub_facts(hub)))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        chores = asyncio.create_task(_chores(door))
        async with mcp.manager.run():
            yield
        chores.cancel()
        app.state.is_stuck = not await door.close(hub.settings["server.shutdown_seconds"])

    routes = [
        Route("/mcp", mcp),
        Route("/mcp/{families}", mcp),
        Route(f"{PREFIX}/hub", about),
        *RestEdge(door).routes(),
        *Pages(door).routes(),
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, settings=hub.settings)],
        exception_handlers={HTTPException: _http_error, Failure: _failure, Exception: _bug},  # type: ignore[dict-item]
    )


async def _http_error(_: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        return refusal(WrongMethod("this method is not for this path", hint="/api/openapi.json lists the routes."))
    return refusal(NotFound("there is nothing at this path", hint="/api/openapi.json lists the routes."))


async def _bug(_: Request, error: Exception) -> Response:
    """A fault in an edge itself: the traceback goes to the log, the caller gets our usual body."""
    return refusal(Internal("this request met a fault in Crewhall itself", hint="The hub's log has the details."))


async def _failure(_: Request, failure: Failure) -> Response:
    return refusal(failure)


def hub_facts(hub: Hub) -> dict[str, object]:
    """What a person wants to know about a running hub."""
    with hub.store.read() as tx:
        hall, newest = tx.value("hall_get", key="id"), tx.value("event_newest")
    return {
        "version": __version__,
        "hall": hall,
        "hub": hub.id,
        "pid": os.getpid(),
        "database": hub.store.dialect.name,
        "newest_event": newest,
        "tools": len(hub.registry.tools),
        "calls_not_logged": hub.calls.dropped,
    }


async def _chores(door: Door) -> None:
    while True:
        try:
            await door.thread(door.hub.do_chores)
        except Exception:
            log.exception("a chore failed")
        await asyncio.sleep(CHORE_SECONDS)


def bind(settings: Settings) -> socket.socket:
    """The hub's listening socket. Raises Unavailable when the port is taken."""
    host, port = settings["server.host"], settings["server.port"]
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint="A hub may run already (`crewhall status`); another port: `crewhall up --port 0` or MCP_SERVER_PORT.",
        ) from None
    return listener


class Server(uvicorn.Server):
    """uvicorn, which tells when it is ready."""

    def __init__(self, hub: Hub, listener: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
        self.app = web_app(hub)
        config = uvicorn.Config(
            self.app,
            http=Connection,
            ws="websockets-sansio",
            loop="uvloop",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, int(hub.settings["server.shutdown_seconds"])),
        )
        super().__init__(config)
        self.listener = listener
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM. uvicorn would raise them again at its end, before the hall is closed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    def serve_forever(self) -> None:
        self.run(sockets=[self.listener])


def up(settings: Settings, registry: Registry, say: Callable[[str], object]) -> None:
    """Serve a hall until the process is told to stop."""
    hub = Hub(settings, registry)
    server: Server | None = None
    try:
        listener = bind(settings)
        url = url_of(settings, listener.getsockname()[1])
        with hub.own_work() as tx:
            operator_token(tx, settings.home, hub.clock())
            link = make_link(tx, url, hub.clock())
        place = Place(settings.home)

        def ready() -> None:
            place.tell(url)
            say(GREETING.format(url=url, link=link, hall=settings.home))
            log.info("hub is up", extra={"url": url, "hub": hub.id, "version": __version__})

        try:
            server = Server(hub, listener, ready)
            server.serve_forever()
        finally:
            place.forget()
            log.info("hub is down", extra={"hub": hub.id})
    finally:
        if server is not None and getattr(server.app.state, "is_stuck", False):
            log.error("calls that wait for the database could not be ended; leaving without them")
        else:
            hub.close()


GREETING = """\
Crewhall is up at {url}

  dashboard   {link}
              (the link works once, for 15 minutes; `crewhall link` makes another)
  MCP         {url}/mcp
  REST        {url}/api/docs
  hall        {hall}

Stop it with Ctrl-C."""


class Place:
    """`hub-<pid>.json` in the hall's directory: where this hub listens. Each hub of the hall has its own."""

    def __init__(self, home: Path) -> None:
        self.path = home / f"hub-{os.getpid()}.json"

    def tell(self, url: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for notice in self.path.parent.glob("hub-*.json"):
            if not _lives(notice):
                notice.unlink(missing_ok=True)  # of a hub that was killed
        part = self.path.with_suffix(".part")
        part.touch(0o600)
        part.write_text(json.dumps({"url": url, "pid": os.getpid(), "version": __version__}) + "\n", "utf-8")
        part.rename(self.path)

    def forget(self) -> None:
        with suppress(OSError):
            self.path.unlink()


def _lives(notice: Path) -> bool:
    """Whether the process that a notice is named after runs, whoever's it is."""
    try:
        os.kill(int(notice.stem.partition("-")[2]), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True
