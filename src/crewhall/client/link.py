"""
One server: connected, kept connected, and called.

    trying ── it answers ──▶ connected ── it dies ──▶ down ── a pause, or a call ──▶ trying
       └────── it does not, within the limit ────────▶ ┘

A task of its own keeps each link, so that a dead server holds up nobody who does not ask for it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx2
import mcp_types as types
from mcp.client.client import Client as Connection
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from crewhall import __version__
from crewhall.client import child
from crewhall.client.answers import ToolFailed, failure_of, refusal_of, value_of
from crewhall.client.servers import Address, Command, Server, hide_secrets
from crewhall.client.tools import ServerTool, tools_of
from crewhall.errors import Failure, TimedOut, Unavailable

LEAST_PAUSE, MOST_PAUSE = 0.1, 30.0  # seconds between two tries; a call shortens them to the least
STEADY = 10.0  # seconds after which a connection counts as a good one, and the pauses begin small again
LIST_SECONDS = 10.0
OPENING = 10.0  # seconds for a TCP connection
LOST = ("Connection closed", "SSE stream")  # how the SDK's messages begin when no answer can come
SELF = types.Implementation(name="crewhall-client", version=__version__)

Progress = tuple[float, float | None, str | None]  # how far, of how much, and a word about it
Heard = Callable[[Progress], None]


@dataclass(frozen=True)
class ServerStatus:
    """Whether a server is connected, since when it is as it is, and if not, why."""

    server: str
    connected: bool
    since: datetime
    why: str | None
    tools: int


class Link:
    def __init__(self, name: str, server: Server, limit: float) -> None:
        self.name, self.server = name, server
        self.tools: dict[str, ServerTool] = {}  # the last that it told; they stay while it is down
        self.was_tried = asyncio.Event()
        self._limit = limit
        self._connection: Connection | None = None
        self._since, self._why = datetime.now(UTC), "it is being connected"
        self._outcome = asyncio.Event()  # of the try that goes on, or else of the next one
        self._wanted = asyncio.Event()
        self._lost = asyncio.Event()
        self._child: child.Child | None = None
        self._http_status: str | None = None
        self._is_forgotten = False  # by a server of the last era, which does not know the session any more

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._lost.is_set()

    def status(self) -> ServerStatus:
        return ServerStatus(
            self.name, self.is_connected, self._since, None if self.is_connected else self._why, len(self.tools)
        )

    # Keeping it

    async def keep(self) -> None:
        """Connect, and connect again, until this is cancelled."""
        pause = LEAST_PAUSE
        while True:
            began = time.monotonic()
            why = await self._until_lost()
            pause = LEAST_PAUSE if time.monotonic() - began > STEADY else min(pause * 2, MOST_PAUSE)
            self._why = hide_secrets(self.server, why)
            self._change(None)
            await asyncio.sleep(LEAST_PAUSE)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), pause)
            self._wanted.clear()

    def _change(self, connection: Connection | None) -> None:
        """It is connected now, or it is not; who waits for that is told."""
        if (connection is None) != (self._connection is None):
            self._since = datetime.now(UTC)
        self._connection = connection
        self.was_tried.set()
        self._outcome.set()
        self._outcome = asyncio.Event()

    async def _until_lost(self) -> str:
        """Connect, and stay until the connection is lost; why it was, or why there was none."""
        self._lost, self._child, self._http_status, self._is_forgotten = asyncio.Event(), None, None, False
        try:
            async with asyncio.timeout(self._limit) as limit, self._connect() as connection:
                self.tools = await tools_of(self.name, connection)
                limit.reschedule(None)
                self._change(connection)
                await self._lost.wait()
            return self._last_words("the connection broke")
        except TimeoutError:
            return self._last_words(f"it did not answer within {self._limit:g} s")
        except Exception as error:  # the SDK gives up with whatever broke it, often a group of those
            return self._last_words(_reason(error))

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Connection]:
        if isinstance(self.server, Command):
            self._child = await child.start_child(self.server, self._lost.set)
            async with Connection(child.streams(self._child), client_info=SELF, cache=None) as connection:
                yield connection
        else:
            async with self._http(self.server) as http:
                way = streamable_http_client(self.server.url, http_client=http, max_sse_event_size=child.MOST_BYTES)
                async with Connection(way, client_info=SELF, cache=None) as connection:
                    yield connection

    def _http(self, server: Address) -> httpx2.AsyncClient:
        """No limit to silence: a call has its own."""

        async def note(response: httpx2.Response) -> None:
            code, sent = response.status_code, response.request
            self._http_status = f"HTTP {code} {response.reason_phrase}".strip() if code >= 400 else None
            if code == 404 and sent.method == "POST" and "mcp-session-id" in sent.headers:
                self._is_forgotten = True

        timeout = httpx2.Timeout(OPENING, read=None)
        return httpx2.AsyncClient(headers=server.headers, timeout=timeout, event_hooks={"response": [note]})

    def _last_words(self, why: str) -> str:
        if self._child is not None:
            return self._child.last_words(why)
        return f"{why} ({self._http_status})" if self._http_status else why

    async def ready(self) -> Connection:
        """The connection; where there is none, one is tried for. Raises Unavailable with the reason."""
        if self._connection is not None and self._lost.is_set():
            await self._outcome.wait()  # it is being given up
        if self._connection is None:
            self._wanted.set()
            await self._outcome.wait()
        if self._connection is None:
            raise Unavailable(
                f"the server {self.name} is not connected: {self._why}",
                hint="Put that right; the next call tries again, and so does the client itself, now and then.",
            )
        return self._connection

    # Using it

    async def refresh_tools(self) -> None:
        """List the server's tools again. Raises Failure."""
        connection = await self.ready()
        try:
            async with asyncio.timeout(LIST_SECONDS):
                self.tools = await tools_of(self.name, connection)
        except TimeoutError:
            raise TimedOut(f"{self.name} did not list its tools", hint="See servers().") from None
        except MCPError as error:
            raise await self._failure(error, connection, "tools/list") from None
        except (RuntimeError, ValueError) as error:
            raise self._nonsense("tools/list", error) from None

    async def call(self, tool: str, arguments: dict[str, Any], silence: float | None, heard: Heard) -> Any:
        """A tool's answer. Raises the failure that it tells of; Unavailable when the server dies meanwhile."""
        for is_last in (False, True):
            connection = await self.ready()
            try:
                result = await self._result(connection, tool, arguments, silence, heard)
                break
            except MCPError as error:
                if is_last or not self._is_forgotten or self._means_lost(error):
                    raise await self._failure(error, connection, tool) from None
                await self._lose(connection)  # the server was started anew: it did nothing, and is asked again
        if result.is_error:
            raise failure_of(result, f"{tool} of {self.name}", self._clean)
        return value_of(result)

    async def _result(
        self, connection: Connection, tool: str, arguments: dict[str, Any], silence: float | None, heard: Heard
    ) -> types.CallToolResult:
        clock = asyncio.get_running_loop().time

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            with suppress(RuntimeError):  # the limit is over, or so is the call
                limit.reschedule(None if silence is None else clock() + silence)
            heard((progress, total, message))

        try:
            async with asyncio.timeout(silence) as limit:
                return await connection.call_tool(tool, arguments, progress_callback=hear)
        except TimeoutError:
            raise TimedOut(
                f"{tool} of {self.name} was silent for {silence} s and was cancelled",
                hint="It may have happened: look before you call again, with a longer timeout or with none.",
            ) from None
        except (RuntimeError, ValueError) as error:
            raise self._nonsense(tool, error) from None

    def _nonsense(self, doing: str, error: Exception) -> ToolFailed:
        """What the SDK says of an answer that breaks a schema, as a failure."""
        told = self._clean(str(error))[:500]
        return ToolFailed(
            f"{doing} of {self.name} gave an answer that is none: {told}",
            hint="It may have happened. The server needs mending.",
        )

    async def _failure(self, error: MCPError, connection: Connection, doing: str) -> Failure:
        """What a protocol error means; when it means that the connection is gone, that is so for all from here on."""
        if not self._means_lost(error):
            return refusal_of(error, f"{doing} of {self.name}", self._clean)
        await self._lose(connection)
        return Unavailable(
            f"the server {self.name} died during {doing}: {self._why}; it may have happened",
            hint="Look whether it did before you call again; the next call reconnects.",
        )

    def _means_lost(self, error: MCPError) -> bool:
        """Whether an error is the SDK's word for a lost connection; servers use its code for what they like."""
        return error.code == types.CONNECTION_CLOSED and (self._lost.is_set() or error.message.startswith(LOST))

    async def _lose(self, connection: Connection) -> None:
        """The connection is given up, unless that was done before."""
        if self._connection is connection:
            self._lost.set()
            await self._outcome.wait()

    def _clean(self, text: str) -> str:
        return hide_secrets(self.server, text)


def _reason(error: BaseException) -> str:
    """The first cause, in a few words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)[:500] or type(error).__name__
