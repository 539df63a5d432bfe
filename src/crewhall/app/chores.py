"""Chores: what hubs do by themselves every so many seconds."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crewhall.config import Settings
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
    """What a chore may use of the world: the hub, the time, and since when this hub has been awake without a gap."""

    hub: "Hub"
    now: int
    awake_since: int

    @property
    def settings(self) -> Settings:
        return self.hub.settings

    @contextmanager
    def begin(self) -> Iterator[Tx]:
        """A short transaction of the hall itself."""
        with self.hub.store.write(Work("hall", None, self.now)) as tx:
            yield tx


class Chores:
    """A hub's chores: which are due, and which of them this hub holds."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._chores = [Chore("prune", PRUNE_SECONDS, prune_old), *hub.registry.chores]
        self._due: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._ticked_at: int | None = None
        self._awake_since = 0

    @property
    def tick_seconds(self) -> float:
        """How long a hub waits between two ticks: well below the time after which an agent is missed."""
        beat, lease = float(self._hub.settings["agent.heartbeat"]), float(self._hub.settings["agent.lease"])
        return min(TICK_SECONDS, beat / 3, lease / 3)

    def tick(self) -> None:
        """Run the chores that are due, each on its own; one that fails is logged and keeps no other back."""
        now = self._hub.clock()
        if self._ticked_at is None or not 0 <= now - self._ticked_at <= self.tick_seconds * 1000 * GAP_TICKS:
            self._awake_since, self._due, self._held = now, {}, {}  # it was away, or its clock was set
        for chore in self._chores:
            if now < self._due.get(chore.name, 0):
                continue
            self._due[chore.name] = now + int(chore.seconds * 1000)
            try:
                if chore.everywhere or self._take(chore, now):
                    chore.run(Tick(self._hub, now, self._awake_since))
            except Exception:
                log.exception("a chore failed", extra={"chore": chore.name})
        self._ticked_at = self._hub.clock()  # what the chores themselves take is no gap

    def _take(self, chore: Chore, now: int) -> bool:
        """Whether this hub holds the chore; it renews its row when half of the time is over."""
        span = int(max(chore.seconds * 2, TICK_SECONDS * 6) * 1000)
        if self._held.get(chore.name, 0) - now > span // 2:
            return True
        with self._hub.own_work() as tx:
            has_it = bool(tx.run("chore_take", name=chore.name, holder=self._hub.id, until=now + span, now=now))
        self._held[chore.name] = now + span if has_it else 0
        return has_it


def prune_old(tick: Tick) -> None:
    """Forget what is old."""
    keep = tick.settings
    with tick.hub.own_work() as tx:
        gone = prune(tx, tick.now, keep["events.keep_days"], keep["calls.keep_days"])
        tx.run("tokens_expired_prune", now=tick.now)
        tx.run("answers_prune", now=tick.now)
    log.debug("pruned", extra=gone)
