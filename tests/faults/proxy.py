"""
A hub's network to its database: a proxy that forwards, says nothing either way, or cuts every connection.

    hub ──▶ proxy ──▶ PostgreSQL        stalled, it keeps connections, takes more and forwards nothing
"""

import asyncio
import threading
from contextlib import suppress
from typing import TypeAlias

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


class Proxy:
    """One at a port of its own, in a thread of its own."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: set[Writer] = set()
        self._is_cut = False
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self) -> asyncio.Server:
        self._flowing.set()
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        """One connection of the hub, to its end."""
        ends = {writer}
        self._writers.add(writer)
        try:
            await self._flowing.wait()
            if self._is_cut:
                return
            theirs, to_them = await asyncio.open_connection("127.0.0.1", self._target)
            ends.add(to_them)
            self._writers.add(to_them)
            await asyncio.wait(
                [asyncio.create_task(self._pump(*pair)) for pair in ((reader, to_them), (theirs, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        except OSError:
            pass  # the server is away: so is its proxy
        finally:
            self._writers -= ends
            for one in ends:
                one.close()

    async def _pump(self, reader: Reader, writer: Writer) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()

    def stall(self) -> None:
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def heal(self) -> None:
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._flowing.set)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        self._cut()
        self._flowing.set()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=5)
