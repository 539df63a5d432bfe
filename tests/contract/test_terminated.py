"""Writers whose connections the server ends at any moment: what each is told of its write is true, and none hangs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from crewhall.errors import Unavailable
from crewhall.store.open import open_store
from crewhall.store.sql import Queries
from crewhall.store.transaction import Store, Work
from tests.sizes import size

pytestmark = pytest.mark.slow

WRITERS, WRITES = 4, size(25, 500)
END_ALL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@contextmanager
def ends_of_connections(url: str) -> Iterator[None]:
    """All connections but one end every few milliseconds."""
    is_over = threading.Event()

    def end_them() -> None:
        with psycopg.connect(url, autocommit=True) as other:
            while not is_over.wait(0.007):
                other.execute(END_ALL)

    thread = threading.Thread(target=end_them)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(20)


def write(store: Store, key: str, text: str) -> str:
    """How a write ended: ok, certain (nothing was kept) or unknown."""
    try:
        with store.write(Work("operator", None, now=1)) as tx:
            tx.one("hall_get", key="id")
            tx.run("hall_set", key=key, value=text)
            tx.event("hall.set", key)
    except Unavailable as failure:
        return "certain" if "Nothing of this call was kept" in failure.hint else "unknown"
    return "ok"


@pytest.mark.parametrize("letters", [5, 10_000])
def test_what_is_said_of_a_write_whose_connection_ended_is_true(postgres_url: str, letters: int) -> None:
    store = open_store(postgres_url, Queries([]))
    ends: dict[str, str] = {}

    def write_all(writer: int) -> None:
        for number in range(WRITES):
            key = f"{writer}-{number}"
            ends[key] = write(store, key, "x" * letters)

    writers = [threading.Thread(target=write_all, args=(number,), daemon=True) for number in range(WRITERS)]
    with ends_of_connections(postgres_url):
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(size(30, 400))
            assert not writer.is_alive(), "a writer hangs"
    store.close()
    with psycopg.connect(postgres_url) as connection:
        kept = {key for (key,) in connection.execute("SELECT key FROM hall")}
    assert {key for key, end in ends.items() if end == "ok"} <= kept
    assert not {key for key, end in ends.items() if end == "certain"} & kept
    assert "certain" in ends.values() and "ok" in ends.values()
