"""What the backends of a database wait for, looked at again and again while a block runs."""

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg

EVERY = 0.02
BACKENDS = """
SELECT state, wait_event_type, wait_event, count(*) FROM pg_stat_activity
 WHERE datname = %s AND pid <> pg_backend_pid() AND backend_type = 'client backend' GROUP BY 1, 2, 3
"""
# What is held by one at a time: the event log's lock, and that of the queue of notifications, of the whole server.
# A row's holder isn't in this table; whoever waits for it is.
LOCKS = """
SELECT DISTINCT CASE WHEN locktype = 'advisory' THEN 'events'
                     WHEN locktype = 'object' THEN 'notify' ELSE 'row' END
  FROM pg_locks
 WHERE (locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'
        AND database = (SELECT oid FROM pg_database WHERE datname = %s))
    OR (locktype = 'object' AND granted AND classid = 1262 AND objid = 0 AND mode = 'AccessExclusiveLock')
    OR (locktype IN ('transactionid', 'tuple') AND NOT granted)
"""
KINDS = {
    ("Lock", "advisory"): "lock: events",
    ("Lock", "object"): "lock: notify",
    ("Lock", "transactionid"): "lock: row",
    ("Lock", "tuple"): "lock: row",
    ("LWLock", "WALWrite"): "disk",
    ("IO", "WALSync"): "disk",
    ("IO", "WALWrite"): "disk",
}


@dataclass
class Waits:
    """Counts over all samples: backends by what they do, and samples in which a lock was held."""

    samples: int = 0
    backends: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Waits") -> None:
        self.samples += other.samples
        self.backends.update(other.backends)
        self.held.update(other.held)

    @property
    def busy(self) -> float:
        """How many backends are in a transaction or a statement, on average."""
        return sum(self.backends.values()) / max(1, self.samples)

    def share(self, kind: str) -> float:
        """The part of busy backends that do this."""
        return self.backends[kind] / max(1, sum(self.backends.values()))

    def is_held(self, lock: str) -> float:
        """The part of the time in which someone holds the lock; of a row, in which someone waits for one."""
        return self.held[lock] / max(1, self.samples)


class Sampler:
    """A thread with a connection of its own, whose backend is not counted."""

    def __init__(self, url: str, every: float = EVERY) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self.pid = self._connection.info.backend_pid
        self._every = every
        self._stop = threading.Event()

    def start(self, database: str, alone: set[str]) -> None:
        """Look until `stop`. The locks in `alone` are those that one in the hall can have at a time."""
        self._alone = alone
        self._stop.clear()
        self.waits = Waits()
        self._thread = threading.Thread(target=self._run, args=(database,), daemon=True)
        self._thread.start()

    def stop(self) -> Waits:
        self._stop.set()
        self._thread.join()
        return self.waits

    def _run(self, database: str) -> None:
        while not self._stop.wait(self._every):
            with self._connection.pipeline():
                backends = self._connection.execute(BACKENDS, (database,))
                locks = self._connection.execute(LOCKS, (database,))
            self.waits.samples += 1
            held = {row[0] for row in locks.fetchall()}
            self.waits.held.update(held | ({"any"} if held & self._alone else set()))
            for row in backends.fetchall():
                self._count(*row)

    def _count(self, state: str | None, kind: str | None, what: str | None, count: int) -> None:
        if state in ("idle", None):
            return
        self.waits.backends[kind_of(state, kind, what)] += count

    def close(self) -> None:
        self._connection.close()


def kind_of(state: Any, kind: str | None, what: str | None) -> str:
    if kind is None:
        return "running"
    if kind == "Client":
        return "hub's turn"
    return KINDS.get((kind, what or ""), kind)
