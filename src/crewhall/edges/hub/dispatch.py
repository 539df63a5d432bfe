"""
From an edge to `Hub.call` and back: a worker thread for the call, a body and perhaps a failure for the result.

An edge awaits `Dispatcher.answer`. If its client goes away, the dispatcher tells the call to stop and waits for its
thread: what the call had not committed is undone, and nothing runs on behind a client's back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from crewhall.app import NOWHERE, Hub, Origin
from crewhall.edges.hub.threads import Job, ThreadPerJob, Threads
from crewhall.errors import Failure, Internal, TimedOut, Unavailable
from crewhall.identity import Actor, Credentials
from crewhall.meter import Unknown
from crewhall.stop import Stop
from crewhall.tool import Tool

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")
STUCK_SECONDS = 3.0
FLAT = 20  # arguments without parts, which take no time to look at
Report = Callable[[float, float | None, str | None], Awaitable[None]]


@dataclass(frozen=True)
class CallResult:
    """A call's result, as every edge sends it: the body, and the failure that it describes, if any."""

    body: dict[str, Any]
    failure: Failure | None = None


def call(hub: Hub, name: str, arguments: Mapping[str, Any], actor: Actor, **more: Any) -> CallResult:
    """Call a tool. A failure becomes its body; a bug becomes INTERNAL, with a traceback in the log."""
    try:
        return CallResult(hub.call(name, arguments, actor, **more))
    except Failure as failure:
        return CallResult(failure.body(name), failure)
    except BaseException:  # a handler that exits must not take the hub with it
        log.exception("a bug in a tool", extra={"tool": name})
        internal = Internal(
            f"{name} failed because of a fault in Crewhall itself",
            hint="It may have happened: look before you repeat it. The hub's log has the details; please report them.",
        )
        return CallResult(internal.body(name), internal)


def _is_flat(arguments: Mapping[str, Any]) -> bool:
    return len(arguments) <= FLAT and not any(isinstance(one, list | dict) for one in arguments.values())


def _stuck() -> TimedOut:
    return TimedOut(
        "the call's time is over, and it could not be stopped",
        hint="It may still happen. Something holds the database up, such as a process stopped in mid-write.",
    )


class Dispatcher:
    """Runs the calls of all edges in threads. Short and long calls have their own, so neither waits for the other."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._short = Threads(hub.settings["tool.threads"], "crewhall-call")
        self._long = Threads(hub.settings["tool.long_threads"], "crewhall-long")
        self._apart = ThreadPerJob("crewhall-unhurried")
        self._running: dict[Stop, Job[CallResult]] = {}
        self._worktrees: dict[Stop, str | None] = {}  # of the running calls
        self.is_stopping = False

    async def answer(
        self,
        name: str,
        arguments: Mapping[str, Any],
        actor: Actor,
        edge: str,
        report: Report | None = None,
        origin: Origin = NOWHERE,
        tool: Tool | None = None,
    ) -> CallResult:
        """The tool's answer; progress goes to `report` while it runs. Raises NotFound for a tool there is not."""
        if self.is_stopping:
            leaving = Unavailable("this hub is stopping", hint="Try again in a moment.")
            return CallResult(leaving.body(name), leaving)
        tool = tool or self.hub.registry.find(name)
        if tool.pace == "quick" and self.hub.store.is_local and _is_flat(arguments):
            return call(self.hub, name, arguments, actor, edge=edge, origin=origin, tool=tool)
        seconds = self.hub.seconds_for(tool)
        stop = Stop(seconds)
        relay = ProgressRelay(report, self.hub.settings["tool.progress"]) if report else None
        threads = self._apart if tool.pace == "own" else self._long if tool.pace == "long" else self._short
        job = threads.start(
            lambda: call(
                self.hub, name, arguments, actor, edge=edge, stop=stop, progress=relay, origin=origin, tool=tool
            )
        )
        self._running[stop] = job
        self._worktrees[stop] = origin.worktree
        too_late = seconds and asyncio.get_running_loop().call_later(seconds + STUCK_SECONDS, job.abandon, _stuck())
        try:
            answer = await job.result()
            if relay is not None:
                await relay.flush()
            return answer
        except TimedOut as failure:
            self._lose(tool, "stuck")
            return CallResult(failure.body(name), failure)
        except asyncio.CancelledError:
            stop.cancel()
            self._lose(tool, "client_gone")
            await job.wait_for_end()
            raise
        finally:
            if too_late:
                too_late.cancel()
            del self._running[stop], self._worktrees[stop]
            if relay is not None:
                relay.end()

    def _lose(self, tool: Tool, reason: Unknown) -> None:
        if tool.changes:
            self.hub.meter.lose(reason)

    def cancel(self, worktree: str | None = None) -> None:
        """Tell all calls to stop, or those that came by a worktree's server; each still gets an answer that says so."""
        for stop, root in self._worktrees.items():
            if worktree in (None, root):
                stop.cancel()

    async def actor(self, credentials: Credentials) -> Actor:
        """The actor behind a request. Raises Unauthorized."""
        if credentials.needs_no_look or (self.hub.store.is_local and self.hub.knows_sender(credentials)):
            return self.hub.identify(credentials)
        return await self.thread(lambda: self.hub.identify(credentials))

    async def thread(self, function: Callable[[], ResultT]) -> ResultT:
        """Run something short in a worker thread."""
        return await self._short.start(function).result()

    async def close(self, seconds: float) -> bool:
        """Let running calls finish; what is not done after `seconds` is told to stop.

        Whether all threads have ended: one that waits for a stuck database cannot be told anything.
        """
        self.is_stopping = True
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._running and loop.time() < end:
            await asyncio.sleep(0.02)
        for stop in self._running:
            stop.cancel("the hub was stopped during this call")
        every = (self._short, self._long, self._apart)
        ended = [await loop.run_in_executor(None, threads.close, STUCK_SECONDS) for threads in every]
        for job in self._running.values():
            job.abandon(_stuck())
        return all(ended)


class ProgressRelay:
    """Passes progress from a call's thread to its client, and says "still running" when there is none for long."""

    def __init__(self, report: Report, every: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._report = report
        self._every = every
        self._done = 0.0
        self._on_the_way: list[Future[None]] = []
        self._has_ended = False
        self._beat = self._loop.call_later(every, self._still_running)

    def __call__(self, done: float, total: float | None, message: str | None) -> None:
        """In the call's thread: pass it on."""
        self._on_the_way = [sending for sending in self._on_the_way if not sending.done()]
        self._on_the_way.append(asyncio.run_coroutine_threadsafe(self._send(done, total, message), self._loop))

    def _still_running(self) -> None:
        """Clients drop a call that is silent for long."""
        self._sign = self._loop.create_task(self._send(self._done + 1e-3, None, "still running"))

    async def _send(self, done: float, total: float | None, message: str | None) -> None:
        self._done = max(done, self._done)
        self._beat.cancel()
        with suppress(Exception):  # a client that does not hear it is told in the end
            await self._report(done, total, message)
        if not self._has_ended:
            self._beat.cancel()
            self._beat = self._loop.call_later(self._every, self._still_running)

    async def flush(self) -> None:
        """Let what the call reported last arrive before its result."""
        for sending in self._on_the_way:
            await asyncio.wrap_future(sending)

    def end(self) -> None:
        self._has_ended = True
        self._beat.cancel()
