"""
From an edge through the door and back: a worker thread for the call, a body and a status for the answer.

An edge awaits `Door.answer`. When its client goes away, the call is told to stop and its thread is still waited for:
what it had not committed is undone, and nothing runs on behind a client's back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from crewhall.app import Hub, Stop
from crewhall.errors import Failure, Internal, NotFound, Unavailable
from crewhall.identity import Actor, Credentials

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")
Report = Callable[[float, float | None, str | None], Awaitable[None]]


@dataclass(frozen=True)
class Answer:
    """What leaves by every edge: the body, and the failure it tells of, if it does."""

    body: dict[str, Any]
    failure: Failure | None = None


def call(hub: Hub, name: str, arguments: Mapping[str, Any], actor: Actor, **more: Any) -> Answer:
    """Call through the door; a failure becomes its body, a bug becomes INTERNAL and a traceback in the log."""
    try:
        return Answer(hub.call(name, arguments, actor, **more))
    except Failure as failure:
        return Answer(failure.body(name), failure)
    except Exception:
        log.exception("a bug in a tool", extra={"tool": name})
        internal = Internal(
            f"{name} failed because of a fault in Crewhall itself",
            hint="Nothing of the call was kept. The hub's log has the details; please report them.",
        )
        return Answer(internal.body(name), internal)


class Door:
    """The threads of a hub's edges: short calls and long ones do not wait for each other."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._short = ThreadPoolExecutor(hub.settings["tool.threads"], "crewhall-call")
        self._long = ThreadPoolExecutor(hub.settings["tool.long_threads"], "crewhall-long")
        self._running: set[Stop] = set()
        self._closing = False

    async def answer(
        self, name: str, arguments: Mapping[str, Any], actor: Actor, edge: str, report: Report | None = None
    ) -> Answer:
        """The tool's answer; progress goes to `report` while it runs."""
        if self._closing:
            leaving = Unavailable("this hub is stopping", hint="Try again in a moment.")
            return Answer(leaving.body(name), leaving)
        stop = Stop(self.hub.settings["tool.timeout"])
        told = Told(asyncio.get_running_loop(), report) if report else None
        self._running.add(stop)
        try:
            future = asyncio.get_running_loop().run_in_executor(
                self._threads(name),
                lambda: call(self.hub, name, arguments, actor, edge=edge, stop=stop, progress=told),
            )
            return await self._wait(future, stop, told)
        finally:
            self._running.discard(stop)

    def _threads(self, name: str) -> ThreadPoolExecutor:
        try:
            return self._long if self.hub.registry.find(name).long else self._short
        except NotFound:
            return self._short

    async def _wait(self, future: "asyncio.Future[Answer]", stop: Stop, told: "Told | None") -> Answer:
        every = self.hub.settings["tool.progress"]
        try:
            while True:
                done, _ = await asyncio.wait((future,), timeout=every)
                if done:
                    return future.result()
                if told is not None:
                    await told.still_running(every)
        except asyncio.CancelledError:
            stop.cancel()
            await _settled(future)
            raise

    async def actor(self, credentials: Credentials) -> Actor:
        """The actor behind a request. Raises Unauthorized."""
        if credentials.needs_no_look:
            return self.hub.identify(credentials)
        return await self.thread(lambda: self.hub.identify(credentials))

    async def thread(self, function: Callable[[], ResultT]) -> ResultT:
        """Run something short in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._short, function)

    async def close(self, seconds: float) -> None:
        """Let running calls finish; what is not done after `seconds` is told to stop and waited for."""
        self._closing = True
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._running and loop.time() < end:
            await asyncio.sleep(0.02)
        for stop in list(self._running):
            stop.cancel()
        await loop.run_in_executor(None, self._short.shutdown)
        await loop.run_in_executor(None, self._long.shutdown)


async def _settled(future: "asyncio.Future[Answer]") -> None:
    """Wait for a thread to end, however often the waiting itself is cancelled."""
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError:
            continue


class Told:
    """Progress on its way from a call's thread to its client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Report) -> None:
        self._loop = loop
        self._report = report
        self._last = loop.time()
        self._done = 0.0

    def __call__(self, done: float, total: float | None, message: str | None) -> None:
        asyncio.run_coroutine_threadsafe(self._send(done, total, message), self._loop)

    async def still_running(self, every: float) -> None:
        """A sign of life from a call that said nothing for a while: clients drop a silent one."""
        if self._loop.time() - self._last >= every * 0.9:
            await self._send(self._done + 1e-3, None, "still running")

    async def _send(self, done: float, total: float | None, message: str | None) -> None:
        self._last, self._done = self._loop.time(), max(done, self._done)
        await self._report(done, total, message)
