"""The client that a script uses: as it is, in a `with`, or in an `async with`."""

import asyncio
import inspect
import queue
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from crewhall.client.fleet import Fleet
from crewhall.client.link import Heard, ServerStatus
from crewhall.client.loop_thread import LoopThread
from crewhall.client.servers import Entry, parse_servers, read_file
from crewhall.client.tools import ServerTool
from crewhall.errors import Cancelled, InvalidInput

CONNECT_SECONDS = 30.0

T = TypeVar("T")
FleetCall = Callable[[Fleet, Heard], Coroutine[Any, Any, T]]
OnProgress = Callable[[float, float | None, str | None], Any]


class Client:
    """Many MCP servers at once, by stdio and by Streamable HTTP; may be used from any thread, by many at once.

    It connects at its first use, or at the beginning of a `with`, and reconnects by itself. Every failure is one of
    `crewhall.errors`. Its processes end with the block, with `close`, or at the end of the script however that comes.
    `timeout` is how many seconds a call may be silent; one that reports progress is not silent.
    """

    def __init__(
        self,
        servers: Mapping[str, Entry],
        *,
        timeout: float | None = None,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> None:
        self._servers = parse_servers(servers)
        self._timeout = _seconds("timeout", timeout)
        make = partial(Fleet, self._servers, _seconds("connect_timeout", connect_timeout) or CONNECT_SECONDS)
        self._loop_thread = LoopThread(make)
        self._end = weakref.finalize(self, self._loop_thread.close)

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> "Client":
        """The servers that a client's file names, such as .mcp.json; the options are those of the constructor."""
        return cls(read_file(Path(path)), **options)

    def __repr__(self) -> str:
        return f"Client({', '.join(f'{name}={server!r}' for name, server in self._servers.items())})"

    def list_tools(self) -> list[ServerTool]:
        """The tools of every server that is connected, asked for anew; `servers` tells of those that are not."""
        return self._ask(lambda fleet, _: fleet.list_tools())

    def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        server: str | None = None,
        timeout: float | None = None,
        progress: OnProgress | None = None,
    ) -> Any:
        """What a tool answers: its structured content, or else its text. Raises the failure that it answers with.

        A name that two servers have needs `server`, or is written "server.tool". `progress` is called in this thread.
        An interrupt, and an exception in `progress`, cancels the call at its server too.
        """
        return self._ask(self._call(name, arguments, server, timeout), progress)

    def servers(self) -> dict[str, ServerStatus]:
        """How each server stands: whether it is connected, since when, and why not."""
        return self._ask(lambda fleet, _: fleet.statuses())

    def close(self) -> None:
        """End every connection and every process that was started; calls that go on are cancelled."""
        self._end()

    def _call(
        self, name: str, arguments: dict[str, Any] | None, server: str | None, timeout: float | None
    ) -> FleetCall[Any]:
        silence = self._timeout if timeout is None else _seconds("timeout", timeout)
        return lambda fleet, heard: fleet.call(name, arguments, server, silence, heard)

    def _ask(self, asked: FleetCall[T], progress: OnProgress | None = None) -> T:
        """Wait for an answer, and meanwhile pass on what is heard, in the caller's own thread."""
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        future = self._loop_thread.submit(lambda fleet: asked(fleet, inbox.put if progress else _drop_progress))
        future.add_done_callback(lambda _: inbox.put(None))
        try:
            while (told := inbox.get()) and progress:
                progress(*told)
        except BaseException:
            future.cancel()
            raise
        return _outcome(future)

    def __enter__(self) -> "Client":
        self._loop_thread.submit(_do_nothing)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> "AsyncClient":
        self._loop_thread.submit(_do_nothing)
        return AsyncClient(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


class AsyncClient:
    """The same for `async` functions of asyncio: `async with Client({…}) as client: await client.call_tool(…)`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"Async{self._client!r}"

    async def list_tools(self) -> list[ServerTool]:
        """As `Client.list_tools`."""
        return await self._ask(lambda fleet, _: fleet.list_tools())

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        server: str | None = None,
        timeout: float | None = None,
        progress: OnProgress | None = None,
    ) -> Any:
        """As `Client.call_tool`; `progress` may be async. Cancelling the task cancels the call at its server too."""
        return await self._ask(self._client._call(name, arguments, server, timeout), progress)

    async def servers(self) -> dict[str, ServerStatus]:
        """As `Client.servers`."""
        return await self._ask(lambda fleet, _: fleet.statuses())

    async def _ask(self, asked: FleetCall[T], progress: OnProgress | None = None) -> T:
        inbox: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(told: Any) -> None:
            with suppress(RuntimeError):  # the caller's loop has ended
                loop.call_soon_threadsafe(inbox.put_nowait, told)

        future = self._client._loop_thread.submit(lambda fleet: asked(fleet, put if progress else _drop_progress))
        future.add_done_callback(lambda _: put(None))
        try:
            while (told := await inbox.get()) and progress:
                said = progress(*told)
                if inspect.isawaitable(said):
                    await said
        except BaseException:
            future.cancel()
            raise
        return _outcome(future)


async def _do_nothing(_: Fleet) -> None:
    """Do nothing: submitting it starts the loop thread."""


def _drop_progress(_: Any) -> None:
    """Drop progress that the caller did not ask for; it still renews the timeout."""


def _outcome(future: "Future[T]") -> T:
    if future.cancelled():
        raise Cancelled("the client was closed during the call", hint="It may have happened. Make another client.")
    return future.result()


def _seconds(what: str, value: float | None) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise InvalidInput(f"{what} is {value!r}", hint="Give seconds above 0, or None for no limit.")
    return value
