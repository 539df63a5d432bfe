"""The event log on both databases: numbers in commit order, cursors, waiting, forgetting."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from crewhall.errors import CursorExpired
from crewhall.store.events import DAY_MS, events_after, prune, wait_for_event
from crewhall.store.open import open_store
from crewhall.store.sql import Queries
from crewhall.store.transaction import Store, Work
from tests.conftest import eventually
from tests.contract import writer
from tests.contract.writer import PATIENCE, SERVER

NOW = 100 * DAY_MS
QUERIES = """
-- name: calls
-- The ids of all calls.
SELECT id FROM call_log;
"""


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    store = open_store(database, Queries([QUERIES]))
    yield store
    store.close()


def note(store: Store, *subjects: str, days_old: int = 0, actor: str = "operator", call: bool = False) -> None:
    """Events about the subjects, in one transaction."""
    with store.write(Work(actor, None, now=NOW - days_old * DAY_MS)) as tx:
        for subject in subjects:
            tx.event(f"{subject}.noted", subject)
            if call:
                about = {"tool": "t", "actor": "operator", "edge": "python", "success": 1, "error": None}
                tx.log_calls([about | {"id": subject, "at": NOW - days_old * DAY_MS, "duration_ms": 1}])


def after(store: Store, cursor: int, limit: int = 100, **which: str) -> list[tuple[int, str]]:
    with store.read(of_events=True) as tx:
        return [(event["seq"], event["subject"]) for event in events_after(tx, cursor, limit, **which)]


def forget(store: Store, events_days: int, calls_days: int = 0) -> dict[str, int]:
    with store.write(Work("operator", None, now=NOW)) as tx:
        gone: dict[str, int] = prune(tx, NOW, events_days, calls_days)
        return gone


def test_events_are_read_after_a_cursor_oldest_first(store: Store) -> None:
    note(store, "a", "b")
    note(store, "c")
    assert after(store, 0) == [(1, "a"), (2, "b"), (3, "c")]
    assert after(store, 1, limit=1) == [(2, "b")]
    assert after(store, 3) == []


def test_events_are_chosen_by_topic_subject_and_actor(store: Store) -> None:
    note(store, "task", "taskforce")
    note(store, "task", actor="ag_1")
    assert after(store, 0, topic="task") == [(1, "task"), (3, "task")]
    assert after(store, 0, topic="taskforce.noted") == [(2, "taskforce")]
    assert after(store, 0, subject="task", actor="ag_1") == [(3, "task")]


def test_numbers_are_in_the_order_of_the_commits_and_not_of_the_beginnings(postgres_url: str) -> None:
    """SQLite has one writer: nobody begins there before another has committed."""
    store = open_store(postgres_url, Queries([]))
    with store.write(Work("operator", None, now=NOW)) as tx:
        tx.event("first.noted", "began first")
        note(store, "committed first")
    assert after(store, 0) == [(1, "committed first"), (2, "began first")]
    store.close()


def test_a_wait_ends_at_once_when_there_is_an_event_and_in_vain_when_none_comes(store: Store) -> None:
    note(store, "a")
    assert wait_for_event(store, 0, timeout=0)
    assert not wait_for_event(store, 1, timeout=0)
    assert not wait_for_event(store, 1, timeout=0.1)


def test_a_wait_ends_with_a_commit_of_the_same_process(store: Store) -> None:
    store.poll_seconds = 20  # so that it is the commit that wakes, and not a look from time to time
    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(wait_for_event, store, 0, 20) for _ in range(3)]
        began_at = time.monotonic()
        note(store, "a")
        assert [wait.result(PATIENCE) for wait in waits] == [True] * 3
    assert time.monotonic() - began_at < 10


@pytest.mark.slow
def test_a_wait_ends_with_a_commit_of_another_process_within_two_seconds(database: str, store: Store) -> None:
    if "://" in database:
        store.poll_seconds = 20  # so that it is the notification that wakes
        store.watch()
        eventually(lambda: listens(database))
    woken_at: list[float] = []

    def wait() -> None:
        assert wait_for_event(store, 0, 20)
        woken_at.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    together, told = SERVER.Barrier(1), SERVER.Queue()
    process = writer.start(database, "w", 1, together, told, None)
    (write,) = told.get(timeout=PATIENCE)
    thread.join(PATIENCE)
    process.join(PATIENCE)
    assert not isinstance(write, str), write
    assert woken_at and woken_at[0] - write.ended_at < 2


def listens(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        query = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"
        return connection.execute(query).fetchone() is not None


def test_forgetting_takes_what_is_older_than_its_days(store: Store) -> None:
    note(store, "old", days_old=31, call=True)
    note(store, "young", days_old=29, call=True)
    assert forget(store, events_days=30, calls_days=30) == {"events": 1, "calls": 1}
    assert after(store, 0) == [(2, "young")]
    with store.read() as tx:
        assert [row["id"] for row in tx.all("calls")] == ["young"]
    assert forget(store, events_days=30, calls_days=30) == {"events": 0, "calls": 0}


def test_zero_days_keep_everything(store: Store) -> None:
    note(store, "old", days_old=99, call=True)
    assert forget(store, events_days=0, calls_days=0) == {"events": 0, "calls": 0}
    assert after(store, 0) == [(1, "old")]


def test_a_cursor_before_what_was_forgotten_has_expired_and_zero_never_does(store: Store) -> None:
    note(store, "a", "b", "c", days_old=40)
    note(store, "d")
    forget(store, events_days=30)
    for cursor in (1, 2):
        with pytest.raises(CursorExpired) as expired:
            after(store, cursor)
        assert expired.value.fields == {"oldest_cursor": 3}
    assert after(store, 3) == after(store, 0) == [(4, "d")]


def test_numbers_go_on_after_everything_was_forgotten(store: Store) -> None:
    note(store, "a", "b", days_old=40)
    forget(store, events_days=30)
    assert after(store, 0) == after(store, 2) == []
    assert not wait_for_event(store, 2, timeout=0)
    note(store, "c")
    assert wait_for_event(store, 2, timeout=0)
    assert after(store, 0) == after(store, 2) == [(3, "c")]
    with pytest.raises(CursorExpired):
        after(store, 1)
