"""
The server of one worktree: a listener, the connections that came by it, and how they end.

A port is free for anyone only when no closed connection of ours lingers on it (TIME_WAIT), and it lingers with the side
that hangs up first. So the client is given a moment to do that; one that does not is cut off.
"""

import asyncio
import socket
import struct
import time
from collections import deque
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.server import ServerState

from crewhall.edges.http.connection import Connection
from crewhall.edges.http.errors import HANDLERS
from crewhall.edges.http.guard import Guard, WrongMethod, refusal
from crewhall.edges.http.waiting_room import WaitingRoom
from crewhall.edges.mcp.caller import WORKTREE
from crewhall.edges.mcp.server import McpEdge
from crewhall.edges.mcp.sse import SseEdge
from crewhall.errors import NotFound
from crewhall.store.transaction import Row

PATIENCE = 1.0  # seconds in which a client may hang up first
GRACE = 2.0  # seconds in which running calls may finish when a worktree is closed
MINUTE = 60.0
KEEP_ALIVE = 75  # longer than that, so that a client that comes now and then keeps its connection
NOW = struct.pack("ii", 1, 0)


class WorktreeServer:
    def __init__(self, row: Row, port: int, identity: tuple[int, int], edge: McpEdge, room: WaitingRoom) -> None:
        self.root, self.port, self.identity = row["path"], port, identity
        self.is_persons = row["workspace_id"] is None
        self._edge, self._room = edge, room
        self._streams = SseEdge(edge, "/mcp", audience=self)
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []
        self._open: set[object] = set()  # connections and 2024's streams on which something was asked
        self._before_close: deque[tuple[float, int]] = deque(maxlen=10_000)  # when one closed, and how many there were
        self._config = uvicorn.Config(
            self._app(),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            headers=[("Keep-Alive", f"timeout={KEEP_ALIVE}")],
            timeout_keep_alive=KEEP_ALIVE,
        )
        self._config.load()
        self._state.default_headers = self._config.encoded_headers

    def _app(self) -> ASGIApp:
        inner = Starlette(
            routes=[
                Route("/mcp", self._post, methods=["POST"]),
                Route("/mcp", self._get, methods=["GET"]),
                Route("/mcp/{stream}", self._streams.post, methods=["POST"]),
            ],
            middleware=[Middleware(Guard, settings=self._edge.dispatcher.hub.settings)],
            exception_handlers=HANDLERS | {HTTPException: _elsewhere},
        )

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_noted(message: Message) -> None:
                self._note_answered(scope, message)
                await send(message)

            await inner({**scope, WORKTREE: (self.root, self.identity)}, receive, send_noted)

        return app

    def _note_answered(self, scope: Scope, message: Message) -> None:
        """A client whose question is answered is one; its standing streams are further connections of the same.

        A client of 2024 is its stream, which notes it: it may send each message on a connection of its own.
        """
        is_answered = message["type"] == "http.response.start" and message["status"] < 400
        is_standing = (b"mcp-method", b"subscriptions/listen") in scope["headers"]
        if is_answered and scope["method"] == "POST" and scope["path"] == "/mcp" and not is_standing:
            self.note(scope["state"]["peer"])

    async def start(self, listeners: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for listener in listeners:
            self._servers.append(await loop.create_server(self._connection, sock=listener))

    def _connection(self) -> "WorktreeConnection":
        given = {"config": self._config, "server_state": self._state, "app_state": {"worktree_server": self}}
        return WorktreeConnection(self._room, **given)

    async def _post(self, request: Request) -> Response:
        return AppResponse(self._edge)

    async def _get(self, request: Request) -> Response:
        """A stream for who wants one; who only looks what is here, such as Codex, would wait for its end."""
        if "text/event-stream" not in request.headers.get("accept", ""):
            raise HTTPException(405)
        return await self._streams.open(request)

    @property
    def connections(self) -> int:
        return len(self._state.connections)

    @property
    def clients(self) -> int:
        """The most clients there were at once in the last minute, told apart by their connections or streams."""
        since = time.monotonic() - MINUTE
        return max([len(self._open), *(number for at, number in self._before_close if at > since)])

    def note(self, client: object) -> None:
        """Count a connection, or a stream's name, on which something was asked."""
        self._open.add(client)

    def forget(self, client: object) -> None:
        """Drop one that has ended."""
        if client in self._open:
            self._before_close.append((time.monotonic(), len(self._open)))
            self._open.discard(client)

    async def stop(self, seconds: float = GRACE) -> None:
        """Take no more clients, let running calls finish, and tell those that go on after `seconds` to stop."""
        for server in self._servers:
            server.close()
        self._streams.close()
        for connection in list(self._state.connections):
            connection.shutdown()  # one with nothing to do ends now
        await self._wait_for_connections(seconds)
        self._edge.dispatcher.cancel(self.root)
        await self._wait_for_connections(GRACE)
        for task in list(self._state.tasks):
            task.cancel()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=GRACE)
        for connection in list(self._state.connections):
            assert isinstance(connection, WorktreeConnection)
            connection.patient.end()
        await self._wait_for_connections(PATIENCE)

    async def _wait_for_connections(self, seconds: float) -> None:
        """Wait until no connection is left, at most so many seconds."""
        end = time.monotonic() + seconds
        while (self._state.connections or self._state.tasks) and time.monotonic() < end:
            await asyncio.sleep(0.01)


async def _elsewhere(_: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        return refusal(WrongMethod("this method is not for this path", hint="Send each message by POST to /mcp."))
    return refusal(NotFound("there is nothing at this path", hint="This server speaks MCP at /mcp, and that alone."))


class AppResponse(Response):
    """A response that an ASGI application sends itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class WorktreeConnection(Connection):
    """A connection that lets its client hang up first."""

    def connection_made(self, transport: Any) -> None:
        self.patient = PatientTransport(transport)
        super().connection_made(self.patient)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app_state["worktree_server"].forget(self.app_state["peer"])

    def shutdown(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.patient.end()
        else:
            self.cycle.keep_alive = False


class PatientTransport:
    """A transport that waits for the other side's end before its own."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._ending: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._ending is not None or self._transport.is_closing()

    def close(self) -> None:
        if not self.is_closing():
            self._ending = asyncio.get_running_loop().call_later(PATIENCE, self.end)

    def end(self) -> None:
        """Cut the connection; what was written before has been on its way for a while, or nothing was."""
        if not self._transport.is_closing():
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOW)
            self._transport.abort()
