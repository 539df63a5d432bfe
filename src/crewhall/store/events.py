"""
The event log: every change of state, numbered in commit order.

    handler ── tx.event(…) ──▶ written last in its transaction ──▶ read after a cursor, waited for, pruned by age
"""

import threading
import time
from typing import Any

from crewhall.errors import CursorExpired
from crewhall.store.transaction import Row, Store, Tx

PRUNED = "events_pruned_through"
DAY_MS = 86_400_000


def events_after(
    tx: Tx,
    after: int,
    limit: int,
    *,
    topic: str | None = None,
    subject: str | None = None,
    actor: str | None = None,
) -> list[Row]:
    """At most `limit` events after the cursor, oldest first. Cursor 0 is the oldest kept.

    Raises CursorExpired when events after the cursor were pruned.
    """
    tx.ahead("hall_get", key=PRUNED)
    tx.ahead("events_after", after=after, limit=limit, topic=topic, subject=subject, actor=actor)
    pruned = pruned_through(tx)
    if 0 < after < pruned:
        raise CursorExpired(
            f"events up to {pruned} were pruned, so those after {after} are no longer whole",
            hint="Read the current state, then follow from cursor 0, the oldest event kept.",
            oldest_cursor=pruned,
        )
    return events_kept_after(tx, after, limit, topic=topic, subject=subject, actor=actor)


def events_kept_after(
    tx: Tx, after: int, limit: int, *, topic: str | None = None, subject: str | None = None, actor: str | None = None
) -> list[Row]:
    """The same, without those that were pruned: for who has seen them."""
    rows = tx.all("events_after", after=after, limit=limit, topic=topic, subject=subject, actor=actor)
    return [row for row in rows if row["seq"] <= tx.through]


def newest_seen(store: Store) -> int:
    """The number of the newest event that can be read, though it may be pruned by now."""
    with store.read(of_events=True) as tx:
        return newest_event(tx)


def newest_event(tx: Tx) -> int:
    """The number of the newest event that can be read, though it may be pruned by now."""
    bounds = tx.one("event_bounds")
    assert bounds is not None
    return max(min(int(bounds["newest"]), tx.through), int(bounds["pruned"]))


def pruned_through(tx: Tx) -> int:
    """The number of the last event that was pruned; 0 when none was."""
    return int(tx.value("hall_get", key=PRUNED) or 0)


def wait_for_event(store: Store, after: int, timeout: float, stop: threading.Event | None = None) -> bool:
    """Whether an event after the cursor was there, or came within `timeout` seconds, from any process.

    Who sets `stop` announces it, and the wait ends.
    """
    store.watch()
    deadline = time.monotonic() + timeout
    while True:
        seen = store.announced
        if store.newest_event() > after:  # asked outside the condition, which every committer needs
            return True
        left = deadline - time.monotonic()
        if left <= 0 or (stop is not None and stop.is_set()):
            return False
        with store.changed:
            if store.announced == seen:  # else something came while the database was queried
                store.changed.wait(min(left, store.poll_seconds))


def prune(tx: Tx, now: int, events_days: int, calls_days: int) -> dict[str, Any]:
    """Forget what is older than its days; 0 days keeps it. How many rows went."""
    gone = {"events": 0, "calls": 0}
    if events_days:
        before = now - events_days * DAY_MS
        through = tx.value("events_prunable", before=before)
        if through:
            gone["events"] = tx.count("events_prune", through=through)
            tx.run("hall_set", key=PRUNED, value=str(through))
    if calls_days:
        gone["calls"] = tx.count("call_log_prune", before=now - calls_days * DAY_MS)
    return gone
