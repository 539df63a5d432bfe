"""
Fair waiting: no one who calls takes more than a share of what is scarce, and all wait in turns.

    with queue.turn("what it is about", stop, report, party): …    report("2 reviews before yours", 12.0) while it waits

A fixed number runs at once. Of those who wait, the first of each party comes before the second of any; of two calls
that ask the same, the second waits for the first.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from crewhall.errors import LimitExceeded
from crewhall.stop import Stop

LONGEST = 100  # calls that may wait; the next one would wait for hours
TICK = 0.05
Report = Callable[[str, float], None]  # gets the call's place in the queue, and the seconds it has waited


@dataclass(frozen=True)
class Party:
    """Who takes turns with others: an agent, or one client of the operator's.

    The `owner` is the operator by a client that names no one else, such as the command line: nobody is kept from it.
    """

    name: str
    is_owner: bool = False

    def share(self, places: int) -> int:
        """How many of so many places it may hold: a quarter, the owner half; one at least."""
        return max(1, places // (2 if self.is_owner else 4))


@dataclass(eq=False)
class Ticket:
    question: str
    party: Party
    came_at: float = field(default_factory=time.monotonic)


class FairQueue:
    """A queue for so few places that a party may hold half of them, the owner all."""

    def __init__(self, at_once: int, what: str) -> None:
        self._at_once, self._what = at_once, what
        self._lock = threading.Lock()
        self._waiting: list[Ticket] = []
        self._running: list[Ticket] = []
        self._turns: dict[Party, int] = {}  # when each had its last turn, of those who wait for another
        self._turn = 0

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of calls that run and that wait."""
        with self._lock:
            return len(self._running), len(self._waiting)

    @contextmanager
    def turn(self, question: str, stop: Stop, report: Report, party: Party) -> Iterator[bool]:
        """Wait for a turn and hold it during the block; yields whether the call had to wait.

        Raises LimitExceeded when the queue or the party's share of it is full, and what `stop` raises.
        """
        ticket = Ticket(question, party)
        with self._lock:
            self._refuse_more(party)
            self._waiting.append(ticket)
        try:
            yield self._wait(ticket, stop, report)
        finally:
            with self._lock:
                (self._running if ticket in self._running else self._waiting).remove(ticket)

    def _refuse_more(self, party: Party) -> None:
        own = sum(one.party == party for one in self._waiting)
        if len(self._waiting) >= LONGEST:
            raise LimitExceeded(f"{LONGEST} {self._what}s wait already", hint="Ask again when some are done.")
        if own >= party.share(LONGEST):
            raise LimitExceeded(f"{own} {self._what}s of yours wait already", hint="Ask again when some are done.")

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
            if ticket.question in (one.question for one in self._running):
                return f"the same {self._what} is running: yours gets its answer"
            order = self._in_order()
            if ticket in self._next(order):
                self._waiting.remove(ticket)
                self._running.append(ticket)
                self._note_turn(ticket.party)
                return None
            ahead = order.index(ticket)
            place = f"{ahead} before yours in line" if ahead else "yours is next in line"
            return f"{place}, {len(self._running)} running"

    def _in_order(self) -> list[Ticket]:
        """Who waits, the next first: the first of each party, the second of each, and so on, what runs counted."""
        seen = Counter(one.party for one in self._running)
        rounds: list[tuple[int, int, int]] = []
        for number, one in enumerate(self._waiting):
            rounds.append((seen[one.party], self._turns.get(one.party, 0), number))
            seen[one.party] += 1
        return [self._waiting[number] for _, _, number in sorted(rounds)]

    def _note_turn(self, party: Party) -> None:
        self._turn += 1
        waiting = {one.party for one in self._waiting}
        self._turns = {one: turn for one, turn in (self._turns | {party: self._turn}).items() if one in waiting}

    def _next(self, order: list[Ticket]) -> list[Ticket]:
        """Those of them who have a place now."""
        questions = {one.question for one in self._running}
        held = Counter(one.party for one in self._running)
        found: list[Ticket] = []
        for one in order:
            if len(found) + len(self._running) == self._at_once:
                break
            if one.question not in questions and held[one.party] < one.party.share(2 * self._at_once):
                found.append(one)
                questions.add(one.question)
                held[one.party] += 1
        return found
