"""
The meter: how many calls each tool has had, how they ended, how long they took, and how many run now.

    Hub.call ── measure ──▶ running + 1 ─▶ the call ─▶ running - 1; its outcome, its seconds, its bucket

It stands on the path of every call and must cost next to nothing there. So it is ours: with Prometheus's own client a
call pays almost four times as much, for one more package.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import Literal

from crewhall.errors import Failure, Internal

OK = "ok"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass
class Tally:
    """A tool's calls that have ended: how many by outcome, how many by time, and their seconds in all.

    `buckets[n]` has the calls of at most `BUCKETS[n]` seconds that are in no bucket before it; the last has the rest.
    """

    outcomes: dict[str, int] = field(default_factory=lambda: {OK: 0})
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0


# Why a client cannot know whether its call happened: it went, the hub died (its bridge says so), or nothing stops it.
UNKNOWN = ("client_gone", "hub_died", "stuck")
Unknown = Literal["client_gone", "hub_died", "stuck"]


class Meter:
    """The tallies of a fixed set of tools, right under any number of threads. No caller's word becomes a name in it."""

    def __init__(self, tools: Iterable[str]) -> None:
        self.started_at = time.time()
        self.running = 0
        self.unknown: dict[str, int] = dict.fromkeys(UNKNOWN, 0)
        self._tallies = {tool: Tally() for tool in tools}
        self._lock = Lock()  # held for a few additions, never while a call runs

    def measure(self, tool: str) -> "Measurement":
        """A context manager that counts its block as one call of the tool, however it ends."""
        return Measurement(self, self._tallies[tool])

    def tallies(self) -> dict[str, Tally]:
        """A copy of all tallies, of one moment."""
        with self._lock:
            return {
                tool: Tally(dict(tally.outcomes), list(tally.buckets), tally.seconds)
                for tool, tally in self._tallies.items()
            }

    def lose(self, reason: Unknown, calls: int = 1) -> None:
        """Count calls of which nobody can tell the client whether they happened."""
        with self._lock:
            self.unknown[reason] += calls

    def begin(self) -> None:
        with self._lock:
            self.running += 1

    def end(self, tally: Tally, outcome: str, seconds: float) -> None:
        with self._lock:
            self.running -= 1
            tally.outcomes[outcome] = tally.outcomes.get(outcome, 0) + 1
            tally.buckets[bisect_left(BUCKETS, seconds)] += 1
            tally.seconds += seconds


class Measurement:
    """One running call. A class, not a generator: that saves a microsecond per call."""

    __slots__ = ("_began", "_meter", "_tally")

    def __init__(self, meter: Meter, tally: Tally) -> None:
        self._meter = meter
        self._tally = tally

    def __enter__(self) -> None:
        self._meter.begin()
        self._began = time.perf_counter()

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._meter.end(self._tally, _outcome(error), time.perf_counter() - self._began)


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return OK
    return error.code if isinstance(error, Failure) else Internal.code
