"""
Who does a chore that one hub of the hall does: the one that has its row.

    free, lapsed, or its holder is dead ── take ──▶ held ── its hub lives, and it is not stuck ──▶ renewed every 5 s
                                                     └─ not renewed for 15 s ──▶ lapsed

A row names its hub and that hub's process. Hubs on the same machine see that the process is dead; others wait for the
lease. All times are the hall's clock: on PostgreSQL its server's.
"""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crewhall.app.hub import Hub

LEASE_MS = 15_000
RENEW_SECONDS = 5.0


class ChoreLeases:
    """The chores that this hub holds."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._process = hub.process
        self._until: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Whether this hub holds the chore, perhaps from now on."""
        now = self._hub.clock()
        if self._until.get(name, 0) > now:
            return True
        row = self._hub.store.one("chore_holder", name=name)
        dead = row["holder"] if row is not None and self._process.is_dead(row["holder"]) else None
        if row is not None and dead is None and row["holder"] != self._process.name and row["held_until"] > now:
            return False
        with self._hub.own_work() as tx:
            own = {"holder": self._process.name, "until": now + LEASE_MS, "now": now}
            has_it = bool(tx.count("chore_take", name=name, dead=dead, **own))
        self._until[name] = now + LEASE_MS if has_it else 0
        return has_it

    def renew(self, names: Iterable[str]) -> None:
        """Prolong the leases of those of these chores that this hub holds."""
        held = sorted(name for name in names if self._until.get(name))
        if not held:
            return
        until = self._hub.clock() + LEASE_MS
        with self._hub.own_work() as tx:
            rows = tx.all("chores_renew", names=json.dumps(held), holder=self._process.name, until=until)
        self._until |= dict.fromkeys(held, 0) | {row["name"]: until for row in rows}

    def forget(self) -> None:
        """Look again who has what: this hub was away."""
        self._until.clear()
