"""
A server's process: messages over its stdin and stdout, the last lines of its stderr, and its end.

It leads a process group. However it ends, by itself, by our closing it or by kill -9, the rest of the group ends too.
"""

import asyncio
import math
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from crewhall.client.servers import Command

STAY, TERM, KILL = 2.0, 1.0, 0.5  # seconds to end by itself once stdin is closed, and after each signal
LAST_WORDS = 0.5  # seconds for what outlives the process to let go of its pipes
LINES, LINE_CHARACTERS = 8, 300  # of stderr that are kept
MOST_BYTES = 64 << 20  # of one message
LOOK = 0.01

Incoming = SessionMessage | Exception


class Child(asyncio.SubprocessProtocol):
    """A running server, seen from the event loop; it is also the stream that the SDK writes to.

    `lost` is called once, when nothing more can come from it.
    """

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._heard, self.incoming = anyio.create_memory_object_stream[Incoming](math.inf)
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._notes: deque[str] = deque(maxlen=LINES)
        self._note = b""
        self._over = asyncio.Event()  # the process has ended, and its pipes
        self._exited = asyncio.Event()
        self._is_ending = self._was_cut = False
        self._fate: str | None = None  # how it ended by itself

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._process = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._hear(data)
        else:
            *lines, self._note = (self._note + data).split(b"\n")
            self._notes.extend(_readable(line) for line in lines if line.strip())
            self._note = self._note[-LINE_CHARACTERS:]

    def _hear(self, data: bytes) -> None:
        """Pass on each line that is whole; parts of one are put together once, at its end."""
        first, *others = data.split(b"\n")
        self._line.append(first)
        self._line_bytes += len(first)
        if self._line_bytes > MOST_BYTES and not self._was_cut:
            self._notes.append(f"(it sent a message of over {MOST_BYTES} bytes)")
            self._cut()
        for other in others:
            self._pass_on(b"".join(self._line))
            self._line, self._line_bytes = [other], len(other)

    def _pass_on(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._notes.append(_readable(line))  # prints that do not belong on stdout help to see what is wrong
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._heard.send_nowait(message)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._end_of_messages()
        elif fd == 0 and not self._is_ending:
            self._fade()

    def process_exited(self) -> None:
        self._exited.set()
        if not self._is_ending:
            self._fate = _how(self._process.get_returncode() or 0)
        self._fade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over.set()

    def _fade(self) -> None:
        """The end has come: what it wrote before is still read, what it started is told to end."""
        self.signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(LAST_WORDS, self._cut)

    def _cut(self) -> None:
        """Wait for nothing more; `end` ends what is left."""
        self._was_cut = True
        self._end_of_messages()

    def _end_of_messages(self) -> None:
        if self._fate is None and not self._is_ending:
            self._fate = "it closed its output"
        self._heard.close()
        self._lost()

    def signal(self, number: int) -> bool:
        """Signal the process and all that it started; whether there was anything left."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.get_pid(), number)
            return True
        return False

    async def end(self) -> None:
        """Close its stdin, and end what does not end by itself."""
        if self._fate is not None:
            await _within(LAST_WORDS, self._exited)  # a dead process closes its pipes first
        self._is_ending = True
        self._stdin.close()
        for number, seconds in ((0, STAY), (signal.SIGTERM, TERM)):
            if self.signal(number):
                await self._until(seconds, lambda: self._was_cut or not self.signal(0))
        if self.signal(signal.SIGKILL):
            await self._until(KILL, lambda: not self.signal(0))
        await _within(LAST_WORDS, self._over)
        self._process.close()
        self._heard.close()
        self.incoming.close()

    async def _until(self, seconds: float, is_so: Callable[[], bool]) -> None:
        until = asyncio.get_running_loop().time() + seconds
        while not is_so() and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(LOOK)

    @property
    def _stdin(self) -> asyncio.WriteTransport:
        pipe = self._process.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        return pipe

    def last_words(self, why: str) -> str:
        """How it ended by itself, or else why it was ended, and what it wrote to stderr before."""
        notes = [*self._notes, *([_readable(self._note)] if self._note.strip() else [])]
        how = self._fate or why
        return f"{how}, and had said: {' | '.join(notes)}" if notes else how

    # What the SDK writes to.

    async def send(self, item: SessionMessage, /) -> None:
        if self._stdin.is_closing():
            raise anyio.BrokenResourceError
        self._stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async def aclose(self) -> None:
        """Nothing: the process is ended by `end`."""

    async def __aenter__(self) -> "Child":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _within(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def _how(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    names = {one.value: one.name for one in signal.Signals}
    return f"it was ended by {names.get(-code, f'signal {-code}')}"


def _readable(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()[-LINE_CHARACTERS:]


async def start_child(command: Command, lost: Callable[[], None]) -> Child:
    """Start the server's process. Raises OSError when it cannot be started."""
    _, child = await asyncio.get_running_loop().subprocess_exec(
        lambda: Child(lost), *command.argv, cwd=command.cwd, env=os.environ | command.env, start_new_session=True
    )
    return child


@asynccontextmanager
async def streams(child: Child) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Any], Child]]:
    """The pair of streams that the SDK talks over; the process ends with the block."""
    try:
        yield child.incoming, child
    finally:
        await child.end()
