"""A connection to PostgreSQL on which many statements travel at once, and the pool that keeps such connections."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise

import psycopg
import pytest
from psycopg.errors import AdminShutdown, DivisionByZero, IdleInTransactionSessionTimeout, InFailedSqlTransaction

from crewhall.store.pipeline import Ask, Pipeline
from crewhall.store.pool import NoConnection, Pool
from tests.conftest import eventually
from tests.postgres import free_port

pytestmark = pytest.mark.slow

NUMBER = "SELECT CAST(%(n)s AS bigint) AS n"
PID = Ask("SELECT pg_backend_pid() AS pid")


@pytest.fixture
def link(postgres_url: str) -> Iterator[Pipeline]:
    with closing(Pipeline(postgres_url, 20)) as link:
        yield link


def number(link: Pipeline, n: int = 1) -> int:
    return int(link.run([Ask(NUMBER, {"n": n})])[0].rows[0]["n"])


def pid_of(link: Pipeline) -> int:
    return int(link.run([PID])[0].rows[0]["pid"])


def terminate(url: str, link: Pipeline) -> None:
    """The server ends a connection's process, and the connection has heard of it."""
    pid = pid_of(link)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


def test_statements_are_done_in_their_order_and_each_has_its_result(link: Pipeline) -> None:
    table, first, both, row, none = link.run(
        [
            Ask("CREATE TEMPORARY TABLE thing (id bigint, name text, is_new boolean)"),
            Ask("INSERT INTO thing VALUES (%(id)s, %(name)s, true)", {"id": 1, "name": "50%% of 'ü'"}),
            Ask("UPDATE thing SET id = id + 1 RETURNING id"),
            Ask(
                "SELECT id, name, is_new, NULL AS none, sum(id) OVER () AS total FROM thing WHERE id = %(id)s",
                {"id": 2},
            ),
            Ask("SELECT id FROM thing WHERE id = %(id)s", {"id": 1}),
        ]
    )
    assert (table.rows, first.count, both.rows, none.rows) == ([], 1, [{"id": 2}], [])
    assert row.rows == [{"id": 2, "name": "50%% of 'ü'", "is_new": True, "none": None, "total": 2}]


def test_the_first_error_is_raised_and_nothing_after_it_is_done(link: Pipeline) -> None:
    link.run([Ask("CREATE TEMPORARY TABLE thing (id bigint)")])
    insert, bad = Ask("INSERT INTO thing VALUES (1)"), Ask("SELECT 1 / %(n)s AS n", {"n": 0})
    for _ in range(2):  # as new statements, and as known ones
        with pytest.raises(DivisionByZero):
            link.run([Ask("BEGIN"), insert, bad, insert])
        with pytest.raises(InFailedSqlTransaction):
            number(link)
        link.finish(Ask("ROLLBACK"))
        assert link.run([Ask("SELECT count(*) AS n FROM thing")])[0].rows == [{"n": 0}]


def test_what_ends_in_between_is_kept_when_a_later_statement_fails(link: Pipeline) -> None:
    link.run([Ask("CREATE TEMPORARY TABLE thing (id bigint)")])
    with pytest.raises(DivisionByZero):
        link.run([Ask("INSERT INTO thing VALUES (1)", ends=True), Ask("SELECT 1 / 0")])
    assert link.run([Ask("SELECT count(*) AS n FROM thing")])[0].rows == [{"n": 1}]


def test_a_text_with_nul_is_refused_before_anything_is_sent(link: Pipeline) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        link.run([Ask("SELECT 1"), Ask("SELECT CAST(%(text)s AS text)", {"text": "a\0b"})])
    assert number(link, 7) == 7


def test_a_message_larger_than_all_buffers_comes_through(link: Pipeline) -> None:
    text = "y" * 50_000
    results = link.run([Ask("SELECT CAST(%(text)s AS text) AS text", {"text": text})] * 500)
    assert {row["text"] for one in results for row in one.rows} == {text} and len(results) == 500


LONG = "z" * 20_000
LONG_TEXT = Ask("SELECT CAST(%(text)s AS text) AS text, CAST(%(n)s AS bigint) + 1 AS n", {"text": LONG, "n": 4})


def test_large_statements_do_what_small_ones_do(link: Pipeline) -> None:
    link.run([Ask("CREATE TEMPORARY TABLE thing (id bigint)")])
    insert = Ask("INSERT INTO thing SELECT %(n)s WHERE '100%%' <> %(text)s", {"n": 1, "text": LONG})
    begun, inserted, large = link.run([Ask("BEGIN"), insert, LONG_TEXT])
    assert (begun.rows, inserted.count, large.rows) == ([], 1, [{"text": LONG, "n": 5}])
    with pytest.raises(DivisionByZero):
        link.run([insert, Ask("SELECT 1 / 0"), LONG_TEXT])
    link.finish(Ask("ROLLBACK"))
    assert link.run([LONG_TEXT, Ask("SELECT count(*) AS n FROM thing")])[1].rows == [{"n": 0}]
    assert number(link, 3) == 3
    known = "SELECT count(*) AS n FROM pg_prepared_statements WHERE statement LIKE 'SELECT CAST($1 AS text)%%'"
    assert link.run([Ask(known)])[0].rows == [{"n": 0}], "each came as one message, and none in pieces"


def test_a_large_message_of_which_a_part_came_holds_nothing_for_long(link: Pipeline, postgres_url: str) -> None:
    """A hub that is stopped while it sends: what it holds is free after it has stood still for so long."""
    link.run([Ask("CREATE TABLE thing (id bigint)"), Ask("SET idle_in_transaction_session_timeout = 300")])
    link.run([Ask("BEGIN"), Ask("LOCK TABLE thing")])
    beginning = b"Q" + (200_000).to_bytes(4, "big") + b"SELECT 'z"  # of a message of 200 kB
    os.write(link.fileno(), beginning)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SET lock_timeout = '20s'")
        other.execute("INSERT INTO thing VALUES (1)")


def test_a_server_that_says_nothing_is_given_up(link: Pipeline) -> None:
    with pytest.raises(psycopg.OperationalError, match="no answer came in time"):
        link.run([Ask("SELECT pg_sleep(30)")], seconds=0.2)
    assert not link.is_open


def test_why_the_server_ended_a_connection_is_told(link: Pipeline, postgres_url: str) -> None:
    link.run([Ask("BEGIN")])
    terminate(postgres_url, link)
    with pytest.raises(AdminShutdown):
        number(link)
    assert not link.is_open


def test_a_transaction_that_stood_still_is_told_so(link: Pipeline) -> None:
    link.run([Ask("SET idle_in_transaction_session_timeout = 100")])
    link.run([Ask("BEGIN")])
    eventually(lambda: not link.is_alive())
    with pytest.raises(IdleInTransactionSessionTimeout):
        number(link)


# The pool


@pytest.fixture
def make_pool(postgres_url: str) -> Iterator[Callable[[int], Pool]]:
    pools: list[Pool] = []

    def make(size: int) -> Pool:
        pools.append(Pool(partial(Pipeline, postgres_url), size))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def test_a_connection_is_used_again_and_one_that_was_closed_is_not(
    make_pool: Callable[[int], Pool], postgres_url: str
) -> None:
    pool = make_pool(2)
    first = pool.take(10)
    pool.give(first)
    assert pool.take(10) is first
    pool.give(first)
    terminate(postgres_url, first)
    second = pool.take(10)
    assert second is not first and number(second, 3) == 3
    pool.give(second)


def test_who_finds_none_waits_for_one_and_not_for_ever(make_pool: Callable[[int], Pool]) -> None:
    pool = make_pool(1)
    link = pool.take(10)
    with pytest.raises(NoConnection, match="no connection was free"):
        pool.take(0.05)
    taken: list[Pipeline] = []
    waiting = threading.Thread(target=lambda: taken.append(pool.take(10)))
    waiting.start()
    pool.give(link)
    waiting.join(10)
    assert taken == [link]
    pool.give(link)


def test_a_closed_pool_refuses_who_waits_and_who_comes(make_pool: Callable[[int], Pool]) -> None:
    pool = make_pool(1)
    link = pool.take(10)
    refused: list[str] = []

    def wait() -> None:
        try:
            pool.take(20)
        except NoConnection as error:
            refused.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    pool.close()
    waiting.join(10)
    wait()
    assert refused == ["the hall is closed"] * 2
    pool.give(link)
    assert not link.is_open


def test_a_server_that_is_back_is_found_at_once(postgres_url: str) -> None:
    """Nothing backs off: after a long outage the next try is a moment away."""
    tries: list[float] = []
    is_back = threading.Event()

    def connect(seconds: float) -> Pipeline:
        tries.append(time.monotonic())
        if len(tries) == 20:
            is_back.set()
        place = postgres_url if is_back.is_set() else f"postgresql://hall@127.0.0.1:{free_port()}/none"
        return Pipeline(place, seconds)

    with closing(Pool(connect, 1)) as pool:
        pool.give(pool.take(30))
    assert len(tries) == 20 and max(later - sooner for sooner, later in pairwise(tries)) < 5


def test_none_in_time_says_why() -> None:
    with closing(Pool(partial(Pipeline, f"postgresql://hall@127.0.0.1:{free_port()}/none"), 1)) as pool:
        for _ in range(2):  # the place is free again
            with pytest.raises(NoConnection, match="refused"):
                pool.take(0.3)
