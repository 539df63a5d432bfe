"""
Chores: what a hub does by itself every so many seconds, each chore in a thread of its own.

    tick ──▶ due, and not still running? ──▶ a thread: does this hub hold the chore? ──▶ run ──▶ its record

One that hangs delays no other. How each last ended is in its record, which /metrics, REST and `crewhall doctor` show.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from crewhall.app.chore_leases import RENEW_SECONDS, ChoreLeases
from crewhall.config import Settings
from crewhall.errors import Failure, Unavailable
from crewhall.outages import log_failure
from crewhall.stop import Stop
from crewhall.store.events import prune
from crewhall.store.transaction import Tx, Work
from crewhall.tool import Chore

if TYPE_CHECKING:
    from crewhall.app.hub import Hub

PRUNE_SECONDS = 600.0
TICK_SECONDS = 10.0  # how often a hub looks whether a chore is due
GAP_TICKS = 3  # a hub that was away for longer knows nothing of what happened meanwhile

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tick:
    """What a chore may use of the world: the hub, the time, since when the hub has been awake, and when to stop."""

    hub: "Hub"
    now: int
    awake_since: int
    stop: Stop = field(default_factory=Stop)

    @property
    def settings(self) -> Settings:
        return self.hub.settings

    @contextmanager
    def look(self) -> Iterator[Tx]:
        """A snapshot to read from."""
        with self.hub.store.read() as tx:
            yield tx

    @contextmanager
    def begin(self) -> Iterator[Tx]:
        """A short transaction of the hall itself."""
        with self.hub.store.write(Work("hall", None, self.now)) as tx:
            yield tx


@dataclass
class ChoreRecord:
    """How a chore went in this hub: when it last ran, for how long, and what went wrong, if anything did."""

    name: str
    every_seconds: float
    limit_seconds: float
    started_at: int | None = None
    ended_at: int | None = None
    duration_ms: int | None = None
    error: str | None = None
    runs: int = 0
    failures: int = 0

    @property
    def is_running(self) -> bool:
        return self.started_at is not None and self.ended_at is None

    def is_stuck(self, now: int) -> bool:
        """Whether it has run for longer than it may."""
        return self.is_running and now - (self.started_at or 0) > self.limit_seconds * 1000

    def body(self, now: int) -> dict[str, Any]:
        """The record as REST shows it."""
        return {**asdict(self), "is_running": self.is_running, "is_stuck": self.is_stuck(now)}

    def begin(self, now: int) -> None:
        self.started_at, self.ended_at = now, None

    def end(self, duration_ms: int, error: str | None) -> None:
        self.runs, self.failures = self.runs + 1, self.failures + (error is not None)
        self.error, self.duration_ms = error, duration_ms
        self.ended_at = (self.started_at or 0) + duration_ms


class Chores:
    """A hub's chores: which are due, which of them this hub holds, and how each went."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        own = [
            Chore("prune", PRUNE_SECONDS, prune_old),
            Chore("chore_leases", RENEW_SECONDS, self._renew, everywhere=True),
        ]
        self._chores = [*own, *hub.registry.chores]
        self.records = {one.name: ChoreRecord(one.name, one.seconds, one.limit_seconds) for one in self._chores}
        self._due: dict[str, int] = {}
        self._leases = ChoreLeases(hub)
        self._ticked_at: int | None = None
        self._awake_since = 0
        self._lock = threading.Lock()  # a chore is started, or the hub closes
        self._is_closed = False
        self._stops: dict[str, Stop] = {}
        self._threads: dict[str, threading.Thread] = {}

    @property
    def tick_seconds(self) -> float:
        """How long a hub waits between two ticks: well below the time after which an agent is missed."""
        beat, lease = float(self._hub.settings["agent.heartbeat"]), float(self._hub.settings["agent.lease"])
        return min(TICK_SECONDS, beat / 3, lease / 3)

    @property
    def pause_seconds(self) -> float:
        """How long a hub waits before it looks again: some chores run more often than at every tick."""
        return min((self.tick_seconds, *(one.seconds for one in self._chores if one.seconds)))

    def tick(self) -> None:
        """Start the chores that are due, each in a thread of its own; one that still runs is not started again."""
        for chore, tick in self._take_due(self.tick_seconds):
            thread = threading.Thread(target=self._run, args=(chore, tick), name=f"chore-{chore.name}", daemon=True)
            with self._lock:
                if self._is_closed:
                    return
                self._stops[chore.name], self._threads[chore.name] = tick.stop, thread
                thread.start()

    def run_due(self) -> None:
        """Run the chores that are due one after the other, in this thread: for tests."""
        for chore, tick in self._take_due():
            self._run(chore, tick)
        self._ticked_at = self._hub.clock()  # what the chores themselves take is no gap

    def run_one(self, name: str) -> None:
        """Run one chore now, in this thread, due or not and whichever hub holds it."""
        chore = next(one for one in self._chores if one.name == name)
        now = self._hub.clock()
        self._run(replace(chore, everywhere=True), Tick(self._hub, now, self._awake_since, Stop(chore.limit_seconds)))

    def _take_due(self, tick_seconds: float = 0.0) -> list[tuple[Chore, Tick]]:
        """The chores that are due; those of every tick are due again in `tick_seconds`, and always without."""
        now = self._hub.clock()
        if self._ticked_at is None or not 0 <= now - self._ticked_at <= self.tick_seconds * 1000 * GAP_TICKS:
            self._awake_since, self._due = now, {}  # it was away, or its clock was set
            self._leases.forget()
        self._ticked_at = now
        reached = [
            one for one in self._chores if now >= self._due.get(one.name, 0) or not (one.seconds or tick_seconds)
        ]
        due = [one for one in reached if not self._is_running(one)]
        self._due |= {one.name: now + int((one.seconds or tick_seconds) * 1000) for one in due}
        return [(one, Tick(self._hub, now, self._awake_since, Stop(one.limit_seconds))) for one in due]

    def _is_running(self, chore: Chore) -> bool:
        thread = self._threads.get(chore.name)
        return thread is not None and thread.is_alive()

    def _run(self, chore: Chore, tick: Tick) -> None:
        """Run a chore if this hub holds it. What fails is logged, and in the record."""
        error, record, began = None, self.records[chore.name], time.monotonic()
        try:
            if chore.everywhere or self._leases.take(chore.name):
                record.begin(tick.now)
                chore.run(tick)
            self._hub.outages.clear(chore.name)
        except Exception as failure:
            record.begin(tick.now)
            error = failure.message if isinstance(failure, Failure) else f"{type(failure).__name__}: {failure}"
            self._tell(chore, failure)
        finally:
            if record.is_running:
                record.end(round((time.monotonic() - began) * 1000), error)

    def _tell(self, chore: Chore, failure: Exception) -> None:
        """Log why a chore failed; what is away for now, once for all that need it."""
        if isinstance(failure, Unavailable):
            self._hub.outages.note(chore.name, failure)
        else:
            log_failure(log, "a chore failed", failure, chore=chore.name)

    def _renew(self, tick: Tick) -> None:
        """Keep the chores that this hub holds, except those that are stuck."""
        self._leases.renew(name for name, record in self.records.items() if not record.is_stuck(tick.now))

    def close(self, seconds: float) -> bool:
        """Tell the chores that run to stop; whether all of them did in that time."""
        with self._lock:
            self._is_closed = True
        for stop in self._stops.values():
            stop.cancel("the hub stops")
        end = time.monotonic() + seconds
        for thread in self._threads.values():
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads.values())


def prune_old(tick: Tick) -> None:
    """Forget what is old."""
    keep = tick.settings
    with tick.hub.own_work() as tx:
        gone = prune(tx, tick.now, keep["events.keep_days"], keep["calls.keep_days"])
        tx.run("tokens_expired_prune", now=tick.now)
        tx.run("answers_prune", now=tick.now)
    log.debug("pruned", extra=gone)
