"""PostgreSQL numbers events before they are committed: readers see no gap that is filled later."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from crewhall.store.events import events_after, newest_seen, wait_for_event
from crewhall.store.open import open_store
from crewhall.store.sql import Queries
from crewhall.store.transaction import Store, Work
from tests.conftest import eventually
from tests.postgres import Cluster

pytestmark = pytest.mark.slow

EVENT = '[{"at": 1, "actor": "a", "what": "hall.set", "subject": "slow"}]'


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    store = open_store(postgres_url, Queries([]))
    yield store
    store.close()


@contextmanager
def slow_writer(store: Store, url: str) -> Iterator["psycopg.Connection[Any]"]:
    """A transaction that has drawn an event's number, and is not over."""
    with psycopg.connect(url) as connection:
        connection.execute(store.texts["events_hold"])
        connection.execute(store.texts["events_insert"], {"events": EVENT})
        yield connection


def put(store: Store, subject: str) -> None:
    with store.write(Work("operator", None, now=1)) as tx:
        tx.event("hall.set", subject)


def seen(store: Store, after: int = 0) -> list[tuple[int, str]]:
    with store.read(of_events=True) as tx:
        return [(row["seq"], row["subject"]) for row in events_after(tx, after, 100)]


def test_what_is_newer_than_an_event_under_way_is_shown_after_it(store: Store, postgres_url: str) -> None:
    put(store, "before")
    with slow_writer(store, postgres_url) as writer:
        put(store, "after")
        assert seen(store) == [(1, "before")] and newest_seen(store) == store.newest_event() == 1
        assert not wait_for_event(store, 1, 0.1)
        writer.commit()
        assert seen(store, 1) == [(2, "slow"), (3, "after")] and newest_seen(store) == store.newest_event() == 3


def test_an_event_that_is_taken_back_leaves_a_gap_and_holds_up_nothing(store: Store, postgres_url: str) -> None:
    with slow_writer(store, postgres_url) as writer:
        put(store, "after")
        assert seen(store) == []
        writer.rollback()
        assert seen(store) == [(2, "after")] and store.newest_event() == 2


def test_a_transaction_without_events_holds_up_no_reader(store: Store, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as other:
        other.execute("UPDATE hall SET value = value")
        other.execute("SELECT pg_advisory_xact_lock(7264001)")
        put(store, "after")
        assert seen(store) == [(1, "after")]


def test_a_hall_in_another_database_holds_up_no_reader(store: Store, cluster: Cluster) -> None:
    url = cluster.create()
    other = open_store(url, Queries([]))
    try:
        with slow_writer(other, url):
            for name in ("a", "b"):
                put(store, name)
            assert [subject for _, subject in seen(store)] == ["a", "b"]
    finally:
        other.close()
        cluster.drop(url)


def test_the_key_of_a_very_large_number_is_read_as_it_was_written(store: Store, postgres_url: str) -> None:
    """A key has 40 bits for the number, in two parts; more than 32 of them are used here."""
    far = 2**33 + 5
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT setval('event_seq_seq', %s)", (far,))
    put(store, "before")
    with slow_writer(store, postgres_url) as writer:
        put(store, "after")
        assert seen(store) == [(far + 1, "before")]
        writer.commit()
    assert [number for number, _ in seen(store)] == [far + 1, far + 2, far + 3]


def test_what_a_store_is_writing_is_waited_for(store: Store, postgres_url: str) -> None:
    """The first writer has drawn number 1, and can't commit while another connection has an event of that number."""
    number_one = (
        "INSERT INTO event (seq, at, actor, what, subject) OVERRIDING SYSTEM VALUE VALUES (1, 1, 'a', 'b', 'c')"
    )
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid' AND datname = current_database()"
    with psycopg.connect(postgres_url) as other, psycopg.connect(postgres_url, autocommit=True) as watcher:
        other.execute(number_one)
        writing = threading.Thread(target=put, args=(store, "slow"))
        writing.start()
        eventually(lambda: watcher.execute(waits).fetchone() == (1,))
        put(store, "after")
        assert seen(store) == [] and store.newest_event() == 0
        other.rollback()
        writing.join(20)
    assert seen(store) == [(1, "slow"), (2, "after")]
