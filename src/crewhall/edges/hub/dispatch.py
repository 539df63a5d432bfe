"""
From an edge to `Hub.call` and back: a worker thread for the call, a body and perhaps a failure for the result.

An edge awaits `Dispatcher.answer`. If its client goes away, the dispatcher tells the call to stop and waits for its
thread: what the call had not committed is undone, and nothing runs on behind a client's back.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.datastructures import Headers

from crewhall.app import NOWHERE, Hub, Origin, party_of
from crewhall.edges.hub.doorkeeper import Doorkeeper
from crewhall.edges.hub.lanes import Lane, Pacer, Streams, Turnstile
from crewhall.edges.hub.threads import Job, ThreadPerJob, Threads
from crewhall.errors import Failure, Internal, TimedOut, Unavailable
from crewhall.fair_queue import Party
from crewhall.identity import Actor, Credentials
from crewhall.meter import Unknown
from crewhall.stop import Stop
from crewhall.tool import Tool

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")
STUCK_SECONDS = 3.0
HUB = Party("hub", is_owner=True)
OWN = 128  # places for calls that wait in a queue of their own
ASKING = 8  # threads for the hub's own questions
LARGE_BYTES = 64 * 1024  # a larger body is a large one
LARGE_BODIES = 4  # places for such requests
NAME = 100  # letters of an agent's id
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
        failure.__traceback__ = failure.__context__ = None  # they hold the arguments, in a circle
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


def _agent_in(tool: Tool, arguments: Mapping[str, Any]) -> str | None:
    """The agent for which a client says that it speaks."""
    name = arguments.get(tool.acting) if tool.acting else None
    return name[:NAME] if isinstance(name, str) else None


def _late() -> TimedOut:
    return TimedOut("the call's time was over before it had its turn", hint="Nothing was done. Send fewer at once.")


class Stuck(TimedOut):
    """The call's time is over, and its thread cannot be told so: nobody knows what becomes of it."""


def _stuck() -> Stuck:
    return Stuck(
        "the call's time is over, and it could not be stopped",
        hint="It may still happen. Something holds the database up, such as a process stopped in mid-write.",
    )


class Dispatcher:
    """Runs the calls of all edges in threads.

    Short and long calls and those that wait in a queue of their own have their lanes, so none waits for the others. The
    hub's own questions, such as who it is that calls, wait for no call.
    """

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        short, long = hub.settings["tool.threads"], hub.settings["tool.long_threads"]
        self.lanes = {
            "short": Lane(short, Threads(short, "crewhall-call")),
            "long": Lane(long, Threads(long, "crewhall-long")),
            "own": Lane(OWN, ThreadPerJob("crewhall-unhurried")),
        }
        self._asking = Threads(ASKING, "crewhall-hub")
        self._pacer = Pacer()
        self._large_bodies = Turnstile(LARGE_BODIES)
        self._streams = Streams()
        self.doorkeeper = Doorkeeper(hub, self.thread)
        self._running: dict[Stop, Job[CallResult]] = {}
        self._worktrees: dict[Stop, str | None] = {}  # of the running calls
        self._noting: set[asyncio.Task[None]] = set()
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
        told: list[str] | None = None,
    ) -> CallResult:
        """The tool's answer; progress goes to `report` while it runs. Raises NotFound for a tool there is not."""
        if self.is_stopping:
            leaving = Unavailable("this hub is stopping", hint="Try again in a moment.")
            return CallResult(leaving.body(name), leaving)
        tool = tool or self.hub.registry.find(name)
        if tool.pace == "quick" and self.hub.store.is_local and _is_flat(arguments):
            return call(self.hub, name, arguments, actor, edge=edge, origin=origin, tool=tool, told=told)
        stop = Stop(self.hub.seconds_for(tool))
        more: dict[str, Any] = {"edge": edge, "stop": stop, "origin": origin, "tool": tool, "told": told}
        relay = ProgressRelay(report, self.hub.settings["tool.progress"]) if report else None
        lane = self.lanes["short" if tool.pace == "quick" else tool.pace]
        try:
            answer = await self._in_turn(
                tool,
                lane,
                party_of(actor, origin, _agent_in(tool, arguments)),
                lambda: call(self.hub, name, arguments, actor, progress=relay, **more),
                stop,
                origin.worktree,
            )
            if relay is not None:
                await relay.flush()
            return answer
        except Failure as failure:
            if isinstance(failure, Stuck):
                self._lose(tool, "stuck")
            return CallResult(failure.body(name), failure)
        finally:
            if relay is not None:
                relay.end()

    async def _in_turn(
        self, tool: Tool, lane: Lane, party: Party, function: Callable[[], CallResult], stop: Stop, worktree: str | None
    ) -> CallResult:
        """What the function gives, when its turn has come. Raises LimitExceeded, TimedOut and Unavailable."""
        job = lane.start(function, party)

        def give_up() -> None:
            job.abandon(_late() if lane.withdraw(job, party) else _stuck())

        self._running[stop] = job
        self._worktrees[stop] = worktree
        seconds = stop.seconds_left
        too_late = seconds and asyncio.get_running_loop().call_later(seconds + STUCK_SECONDS, give_up)
        try:
            return await job.result()
        except asyncio.CancelledError:
            stop.cancel()
            if not lane.withdraw(job, party):
                self._lose(tool, "client_gone")
                await job.wait_for_end()
            raise
        finally:
            if too_late:
                too_late.cancel()
            del self._running[stop], self._worktrees[stop]

    def _lose(self, tool: Tool, reason: Unknown) -> None:
        if tool.changes:
            self.hub.meter.lose(reason)

    def cancel(self, worktree: str | None = None) -> None:
        """Tell all calls to stop, or those that came by a worktree's server; each still gets an answer that says so."""
        for stop, root in self._worktrees.items():
            if worktree in (None, root):
                stop.cancel()

    @asynccontextmanager
    async def place(self, headers: Headers, actor: Actor, origin: Origin = NOWHERE) -> AsyncIterator[None]:
        """Wait until it is the turn of an HTTP request, whose body is not read yet; the block ends with its answer.

        To read one takes the loop's time, and of large ones memory: of those one who calls has few at once.
        """
        party = party_of(actor, origin)
        await self._pacer.wait(party)
        length = headers.get("content-length", "0")
        is_small = "transfer-encoding" not in headers and length.isdigit() and int(length) <= LARGE_BYTES
        async with nullcontext() if is_small else self._large_bodies.turn(party):
            yield

    def stream(self, actor: Actor, origin: Origin = NOWHERE) -> AbstractContextManager[None]:
        """Count a stream of this client while it is open. Raises LimitExceeded."""
        return self._streams.hold(party_of(actor, origin))

    async def caller(self, credentials: Credentials) -> Actor:
        """The actor behind a call of a tool; it may be a guess, which the call proves. Raises Unauthorized."""
        return self.hub.guess(credentials) or await self.actor(credentials)

    async def actor(self, credentials: Credentials) -> Actor:
        """The actor behind a request. Raises Unauthorized."""
        if credentials.needs_no_look or (self.hub.store.is_local and self.hub.knows_sender(credentials)):
            return self.hub.identify(credentials)
        return await self.thread(lambda: self.hub.identify(credentials))

    async def note_told(self, ids: list[str]) -> None:
        """The answer that told these notices is sent."""
        if ids:
            await self.thread(lambda: self.hub.teller.note_sent(ids))

    def note_told_soon(self, ids: list[str]) -> None:
        """The same, for whoever has more to send."""
        if ids:
            noting = asyncio.create_task(self.note_told(ids))
            self._noting.add(noting)
            noting.add_done_callback(self._noting.discard)

    async def thread(self, function: Callable[[], ResultT]) -> ResultT:
        """Run something short of the hub's own in a thread."""
        job = Job(function)
        self._asking.start(job)
        return await job.result()

    async def like_a_call(self, function: Callable[[], ResultT]) -> ResultT:
        """Run it where short calls run, when its turn comes."""
        return await self.lanes["short"].start(function, HUB).result()

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
        for lane in self.lanes.values():
            lane.dismiss(Unavailable("the hub was stopped before this call's turn", hint="Try again in a moment."))
        every: list[Lane | Threads] = [*self.lanes.values(), self._asking]
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
