"""
The hub as a process: one port for MCP, REST and the pages, started and stopped in order.

    open the hall ─▶ bind ─▶ tell where (hub-<pid>.json) ─▶ serve ─▶ SIGTERM: no new calls, running ones finish ─▶ close
"""

import asyncio
import errno
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import uvicorn
from sse_starlette.sse import AppStatus
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from crewhall import __version__
from crewhall.app import Hub
from crewhall.config import Settings
from crewhall.edges.bridge.address_files import AddressFile, running_hubs
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.edges.http.connection import Connection
from crewhall.edges.http.errors import HANDLERS
from crewhall.edges.http.guard import Guard, credentials
from crewhall.edges.http.metrics import Metrics
from crewhall.edges.http.rest import PREFIX, RestEdge
from crewhall.edges.http.waiting_room import raise_open_files
from crewhall.edges.http.watcher_connection import WatcherConnection
from crewhall.edges.http.websocket import LiveEdge
from crewhall.edges.hub.services import HubServices
from crewhall.edges.web.pages import Pages, make_link, url_of
from crewhall.errors import Unavailable
from crewhall.families.work.hall.pause import read_pause
from crewhall.families.work.message import inbox
from crewhall.families.work.message.hints import hint_counts
from crewhall.families.work.message.model import OPERATOR_INBOX
from crewhall.families.work.message.rules import unread_count
from crewhall.hall_directory import refuse_read_only_home
from crewhall.identity import operator_token
from crewhall.tool import Registry

log = logging.getLogger(__name__)
TAKE_OVER_SECONDS = 15.0
HEARD_BYTES = 64 * 1024  # a WebSocket's message to the hub, which ignores it
CUT_SECONDS = 3  # in which a call that was told to stop has answered


def web_app(services: HubServices) -> Starlette:
    """The hub's HTTP application."""
    hub, dispatcher = services.hub, services.dispatcher

    async def about(request: Request) -> JSONResponse:
        await dispatcher.actor(credentials(request.scope, hub.settings))
        return JSONResponse(await dispatcher.thread(lambda: hub_facts(hub)))

    async def chores(request: Request) -> JSONResponse:
        await dispatcher.actor(credentials(request.scope, hub.settings))
        return JSONResponse(await dispatcher.thread(lambda: chore_records(hub)))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with services.serve():
            yield

    live = LiveEdge(dispatcher, services.feed)
    connections = services.connections | {"websocket": lambda: live.watchers}
    routes = [
        Route("/mcp", services.mcp),
        Route("/mcp/{families}", services.mcp),
        *services.sse.routes(),
        Route(f"{PREFIX}/hub", about),
        Route(f"{PREFIX}/chores", chores),
        *live.routes(),
        *Metrics(dispatcher, connections, services.feed.newest_sent).routes(),
        *RestEdge(dispatcher).routes(),
        *Pages(dispatcher).routes(),
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, settings=hub.settings)],
        exception_handlers=HANDLERS,
    )


def hub_facts(hub: Hub) -> dict[str, object]:
    """What a person wants to know about a running hub."""
    now = hub.clock()
    with hub.store.read() as tx:
        hint_counts(tx, OPERATOR_INBOX, now)
        hall, newest, pause = tx.value("hall_get", key="id"), tx.value("event_newest"), read_pause(tx)
        counts = inbox.counts(tx, OPERATOR_INBOX, now)
    return {
        "version": __version__,
        "hall": hall,
        "hub": hub.id,
        "pid": os.getpid(),
        "database": hub.store.dialect.name,
        "newest_event": newest,
        "paused": pause and {"since": pause.since, "by": pause.by, "reason": pause.reason},
        "tools": len(hub.registry.tools),
        "calls_not_logged": hub.calls.dropped,
        "unread_messages": unread_count(counts).model_dump(),
    }


def chore_records(hub: Hub) -> dict[str, object]:
    """How the chores of this hub went; one that another hub holds has not run here."""
    now = hub.clock()
    return {"hub": hub.id, "chores": [record.body(now) for record in hub.chores.records.values()]}


def bind(settings: Settings, *, or_any: bool = False) -> socket.socket:
    """The hub's listening socket, perhaps on any port if its own is taken. Raises Unavailable when it is."""
    host, port = settings["server.host"], settings["server.port"]
    try:
        return _listener(host, port)
    except OSError as error:
        if or_any and error.errno == errno.EADDRINUSE:
            return _listener(host, 0)
        raise PortTaken(error, settings) from None


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except OSError:
        listener.close()
        raise
    return listener


class HubServer(uvicorn.Server):
    """uvicorn with a hub's services. It calls `ready` once it listens, and `leave` before it does not any more."""

    def __init__(
        self,
        hub: Hub,
        listener: socket.socket,
        ready: Callable[[], None] = lambda: None,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self.services = HubServices(hub, self.stop)
        self.services.bridges.port = listener.getsockname()[1]
        self.services.connections["http"] = lambda: len(self.server_state.connections)
        config = uvicorn.Config(
            web_app(self.services),
            http=partial(Connection, self.services.room),  # type: ignore[arg-type]
            ws=WatcherConnection,
            ws_per_message_deflate=False,
            ws_max_size=HEARD_BYTES,
            loop="uvloop",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, int(hub.settings["server.shutdown_seconds"])) + CUT_SECONDS,
        )
        super().__init__(config)
        # A running call's answer may be a stream, and is finished like any other; `leave` ends those that stand.
        AppStatus.enable_automatic_graceful_drain = False
        self.listener = listener
        self._ready, self._leave = ready, leave
        self._used_at = time.monotonic()

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

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to stop. A hub that a bridge started stops when nobody has used it for long."""
        bridges, worktrees = self.services.bridges, self.services.worktrees
        if counter % 10 == 0:
            self.services.room.sweep()
        is_used = bridges.connections or self.server_state.connections or worktrees.connections or worktrees.is_wanted
        is_used = is_used or self.services.hub.presence.instances
        if not bridges.is_for_bridges or is_used:
            self._used_at = time.monotonic()
        elif time.monotonic() - self._used_at > self.services.hub.settings["server.idle"]:
            log.info("nobody uses this hub; a bridge will start another")
            return True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running calls finish; those that go on are told to stop, and answer so before uvicorn cuts them off."""
        self._leave()
        seconds = self.services.hub.settings["server.shutdown_seconds"]
        enough = asyncio.get_running_loop().call_later(seconds, self.services.dispatcher.cancel)
        try:
            await self.services.leave()  # uvicorn would wait for streams that do not end by themselves
            await super().shutdown(sockets)
        finally:
            enough.cancel()

    def stop(self) -> None:
        self.should_exit = True

    def serve_forever(self) -> None:
        self.run(sockets=[self.listener])


def up(settings: Settings, registry: Registry, say: Callable[[str], object], lock: int | None = None) -> None:
    """Serve a hall until the process is told to stop. A bridge that starts a hub gives it the hall's lock."""
    raise_open_files()
    refuse_read_only_home(settings.home)
    by_bridge = lock is not None
    if lock is None:
        listener, lock = take_place(settings)
    else:
        listener = bind(settings, or_any=True)
    hub = Hub(settings, registry)
    server: HubServer | None = None
    try:
        url = url_of(settings, listener.getsockname()[1])
        with hub.own_work() as tx:
            operator_token(tx, settings.home, hub.clock())
            link = make_link(tx, url, hub.clock()) if not by_bridge else ""
        address_file = AddressFile(settings)

        def ready() -> None:
            address_file.write(url)
            if not by_bridge:
                say(GREETING.format(url=url, link=link, hall=settings.home))
            log.info("hub is up", extra={"url": url, "hub": hub.id, "version": __version__})

        try:
            server = HubServer(hub, listener, ready, address_file.remove)
            if lock is not None:
                server.services.bridges.hold(lock, for_bridges=by_bridge)
            server.serve_forever()
        finally:
            address_file.remove()
            log.info("hub is down", extra={"hub": hub.id})
    finally:
        if server is not None and server.services.is_stuck:
            log.error("calls that wait for the database could not be ended; leaving without them")
        else:
            hub.close()


class PortTaken(Unavailable):
    """The hub's own address cannot be had."""

    def __init__(self, error: OSError, settings: Settings) -> None:
        host, port = settings["server.host"], settings["server.port"]
        super().__init__(f"cannot listen on {host}:{port}: {error.strerror}", hint=self._hint(error, settings))

    @staticmethod
    def _hint(error: OSError, settings: Settings) -> str:
        if error.errno != errno.EADDRINUSE:
            return "server.host (--host) is to be an address of this machine, and a port under 1024 is root's."
        ours = [url for url in running_hubs(settings) if url.endswith(f":{settings['server.port']}")]
        if ours:
            return f"This hall is served there already: {ours[0]}. `crewhall link` opens its page."
        return "Another program has it. Take another port: `crewhall up --port 3002`, or CREWHALL_SERVER_PORT."


def take_place(settings: Settings) -> tuple[socket.socket, int | None]:
    """The hub's listening socket, and the hall's lock if a hub that a bridge started has made way for this one.

    No hub has to go for one that cannot come: if the port is another program's, Unavailable is raised first.
    """
    hub_socket = HubSocket(settings)
    try:
        listener = bind(settings)
    except PortTaken:
        lock = take_over(hub_socket, settings["server.port"])  # unless it is that very hub who has the port
        if lock is None:
            raise
        return bind(settings), lock
    return listener, take_over(hub_socket)


def take_over(hub_socket: HubSocket, port: int | None = None) -> int | None:
    """The hall's lock from a hub that a bridge started, which makes way for one that a person starts.

    None when there is none such, or none that listens on this port; a hub that keeps its place is left alone.
    """
    hello = {"crewhall": __version__, "replaces": True, "port": port}
    try:
        with hub_socket.connect() as connection, connection.makefile("rwb") as lines:
            connection.settimeout(TAKE_OVER_SECONDS)
            lines.write(json.dumps(hello).encode() + b"\n")
            lines.flush()
            if not json.loads(lines.readline()).get("leaving"):
                return None
    except (OSError, ValueError):
        return None
    end = time.monotonic() + TAKE_OVER_SECONDS
    while (lock := hub_socket.try_lock()) is None and time.monotonic() < end:
        time.sleep(0.02)
    return lock


GREETING = """\
Crewhall is up at {url}

  dashboard   {link}
              (the link works once, for 15 minutes; `crewhall link` makes another)
  MCP         {url}/mcp
  REST        {url}/api/docs
  hall        {hall}

Stop it with Ctrl-C."""
