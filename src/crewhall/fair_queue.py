"""
A queue in which calls wait for their turn: a fixed number runs at once, first in, first out.

    with queue.turn("what it is about", stop, report): …    report("2 reviews before yours", 12.0) while it waits

Of two calls that ask the same, the second waits for the first.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from crewhall.errors import LimitExceeded
from crewhall.stop import Stop

LONGEST = 100  # calls that may wait; the next one would wait for hours
TICK = 0.05
Report = Callable[[str, float], None]  # gets the call's place in the queue, and the seconds it has waited


@dataclass(eq=False)
class Ticket:
    question: str
    came_at: float = field(default_factory=time.monotonic)


class FairQueue:
    def __init__(self, at_once: int, what: str) -> None:
        self._at_once, self._what = at_once, what
        self._lock = threading.Lock()
        self._waiting: list[Ticket] = []
        self._running: list[Ticket] = []

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of calls that run and that wait."""
        with self._lock:
            return len(self._running), len(self._waiting)

    @contextmanager
    def turn(self, question: str, stop: Stop, report: Report) -> Iterator[bool]:
        """Wait for a turn and hold it during the block; yields whether the call had to wait.

        Raises LimitExceeded when the queue is full, and what `stop` raises.
        """
        ticket = Ticket(question)
        with self._lock:
            if len(self._waiting) >= LONGEST:
                raise LimitExceeded(f"{LONGEST} {self._what}s wait already", hint="Ask again when some are done.")
            self._waiting.append(ticket)
        try:
            yield self._wait(ticket, stop, report)
        finally:
            with self._lock:
                (self._running if ticket in self._running else self._waiting).remove(ticket)

    def _wait(self, ticket: Ticket, stop: Stop, report: Report) -> bool:
        reported = None
        while (place := self._try_turn(ticket)) is not None:
            if place != reported:
                report(place, time.monotonic() - ticket.came_at)
                reported = place
            stop.wait(TICK)
        return reported is not None

    def _try_turn(self, ticket: Ticket) -> str | None:
        """Take the turn if it has come, and return None; otherwise the place in the queue, in words."""
        with self._lock:
            running = [one.question for one in self._running]
            if ticket.question in running:
                return f"the same {self._what} is running: yours gets its answer"
            ahead = self._waiting[: self._waiting.index(ticket)]
            free = self._at_once - len(running)
            if len([one for one in ahead if one.question not in running]) < free:
                self._waiting.remove(ticket)
                self._running.append(ticket)
                return None
            place = f"{len(ahead)} before yours in line" if ahead else "yours is next in line"
            return f"{place}, {len(running)} running"
