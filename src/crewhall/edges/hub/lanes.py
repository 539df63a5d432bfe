"""
The ways of calls into threads, on which no one who calls holds up the others.

    calls ─▶ a line for each party ─▶ in turns, while the party is below its share ─▶ threads

All of it happens on the event loop.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol, TypeVar

from crewhall.edges.hub.threads import Job
from crewhall.errors import LimitExceeded
from crewhall.fair_queue import Party

ResultT = TypeVar("ResultT")
MOST_WAITING = 256  # calls of one party
MOST_STREAMS, OWNER_STREAMS = 50, 2_000  # open streams of one party


class Workers(Protocol):
    """What runs jobs in threads."""

    def start(self, job: Job[Any]) -> None:
        """Run it, now or when a thread is free."""

    def close(self, seconds: float) -> bool:
        """Let the threads finish; whether all of them did in that time."""


class Lane:
    """A number of places for jobs; a party has a share of them, and what it sends besides waits in its line."""

    def __init__(self, places: int, workers: Workers) -> None:
        self._places, self._workers = places, workers
        self._running: Counter[Party] = Counter()
        self._lines: dict[Party, deque[Job[Any]]] = {}  # the party whose turn is next comes first

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of jobs that run and that wait."""
        return self._running.total(), sum(map(len, self._lines.values()))

    def start(self, function: Callable[[], ResultT], party: Party) -> Job[ResultT]:
        """Run it in a thread when its turn comes. Raises LimitExceeded when the party has too many waiting."""
        waiting = len(self._lines.get(party, ()))
        if waiting >= MOST_WAITING:
            raise LimitExceeded(
                f"{waiting} calls of yours wait already, and {self._running[party]} run",
                hint="Nothing of this one was done. Wait for answers before you send more.",
            )
        job = Job(function, lambda: self._leave(party))
        self._lines.setdefault(party, deque()).append(job)
        self._go_on()
        return job

    def withdraw(self, job: Job[Any], party: Party) -> bool:
        """Take a job out of its line; whether it was still there."""
        line = self._lines.get(party, deque())
        if job not in line:
            return False
        line.remove(job)
        if not line:
            del self._lines[party]
        return True

    def dismiss(self, error: Exception) -> None:
        """Answer all that wait with this error, and run none of them."""
        for line in self._lines.values():
            for job in line:
                job.abandon(error)
        self._lines.clear()

    def _leave(self, party: Party) -> None:
        self._running[party] -= 1
        if not self._running[party]:
            del self._running[party]
        self._go_on()

    def _go_on(self) -> None:
        """Start what may start: one of each party, in turns."""
        while self._running.total() < self._places and (party := self._next()) is not None:
            line = self._lines.pop(party)
            self._running[party] += 1
            self._workers.start(line.popleft())
            if line:
                self._lines[party] = line  # behind all others

    def _next(self) -> Party | None:
        return next((one for one in self._lines if self._running[one] < one.share(self._places)), None)

    def close(self, seconds: float) -> bool:
        """Let the threads finish; whether all of them did in that time."""
        return self._workers.close(seconds)


class Pacer:
    """Lets one request of each party begin in each round of the event loop; the others wait, first come, first served.

    To read a request takes the loop a millisecond, and a party may send hundreds at the same time.
    """

    def __init__(self) -> None:
        self._lines: dict[Party, deque[asyncio.Future[None]]] = {}

    async def wait(self, party: Party) -> None:
        """Wait for a round in which no other request of the party begins."""
        line = self._lines.get(party)
        loop = asyncio.get_running_loop()
        if line is None:
            self._lines[party] = deque()
            loop.call_soon(self._let_next, party)
            return
        line.append(loop.create_future())
        await line[-1]

    def _let_next(self, party: Party) -> None:
        line = self._lines[party]
        while line and line[0].done():  # whoever waited has gone
            line.popleft()
        if not line:
            del self._lines[party]
            return
        line.popleft().set_result(None)
        asyncio.get_running_loop().call_soon(self._let_next, party)


class Streams:
    """How many streams each party has open: of events, of messages, of what it listens to."""

    def __init__(self) -> None:
        self._open: Counter[Party] = Counter()

    @contextmanager
    def hold(self, party: Party) -> Iterator[None]:
        """One more during the block. Raises LimitExceeded."""
        most = OWNER_STREAMS if party.is_owner else MOST_STREAMS
        if self._open[party] >= most:
            raise LimitExceeded(
                f"you have {self._open[party]} streams open, and {most} are allowed",
                hint="Close those that you don't read; one stream can tell of all events.",
            )
        self._open[party] += 1
        try:
            yield
        finally:
            self._open[party] -= 1
            if not self._open[party]:
                del self._open[party]


class Turnstile:
    """Lets so many of each party through at a time; the others wait outside, first come, first served."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._inside: dict[Party, tuple[asyncio.Semaphore, int]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._inside

    @asynccontextmanager
    async def turn(self, party: Party) -> AsyncIterator[None]:
        """Wait for a place and hold it during the block."""
        places, users = self._inside.get(party, (asyncio.Semaphore(party.share(self._places)), 0))
        self._inside[party] = places, users + 1
        try:
            async with places:
                yield
        finally:
            users = self._inside[party][1] - 1
            self._inside[party] = places, users
            if not users:
                del self._inside[party]
