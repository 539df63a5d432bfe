"""
The PostgreSQL store: many hubs, one hall.

Events are inserted last, under an advisory lock that is held to the commit: their numbers are in commit order, and
a reader that has seen number n will never be shown a smaller one later.
"""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from crewhall.errors import Failure, Unavailable
from crewhall.store.sql import POSTGRES, Queries
from crewhall.store.transaction import Row, Store, Tx, Work

CONNECT_SECONDS = 10
CLOCK_SECONDS = 60
# A server that vanished without a word is noticed within half a minute.
ALIVE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


class PostgresStore(Store):
    poll_seconds = 2.0
    is_local = False

    def __init__(self, url: str, queries: Queries, pool: int = 8) -> None:
        super().__init__(POSTGRES, queries)
        self.url = url
        _knock(url)
        self._pool = ConnectionPool(
            url,
            min_size=1,
            max_size=pool,
            timeout=CONNECT_SECONDS,
            reconnect_timeout=5,  # longer, and it sleeps on after the server is back
            kwargs={"row_factory": dict_row, "autocommit": True, **ALIVE},
            configure=_configure,
            check=ConnectionPool.check_connection,
            open=False,
        )
        try:
            self._pool.open(wait=True, timeout=CONNECT_SECONDS)
        except PoolTimeout:
            self._pool.close()
            raise _no_answer("it did not let us in within 10 s") from None
        self._offset_ms = 0
        self._offset_until = 0.0
        self._listener: threading.Thread | None = None
        self._closed = threading.Event()
        self._woken, self._wake = socket.socketpair()  # ends the listener's wait at once

    def now(self) -> int:
        """The server's clock, so that leases agree between nodes; its offset to ours is measured every minute."""
        if time.monotonic() >= self._offset_until:
            self._measure_clock()
        return super().now() + self._offset_ms

    def _measure_clock(self) -> None:
        self._offset_until = time.monotonic() + CLOCK_SECONDS
        with self.read() as tx:
            asked = super().now()
            theirs = tx.value("clock")
            self._offset_ms = theirs - (asked + super().now()) // 2

    def _tx(self, connection: "psycopg.Connection[Any]", work: Work | None = None) -> Tx:
        def execute(name: str, params: Mapping[str, Any]) -> Any:
            return connection.execute(self.texts[name], params)

        def executemany(name: str, rows: Sequence[Mapping[str, Any]]) -> Any:
            connection.cursor().executemany(self.texts[name], rows)

        def stream(name: str) -> Any:
            return connection.cursor(f"crewhall_{id(connection)}").execute(self.texts[name])

        return Tx(execute, executemany, stream, work, self.recordings)

    @contextmanager
    def _connection(self) -> Iterator["psycopg.Connection[Any]"]:
        try:
            with self._pool.connection() as connection:
                yield connection
        except Failure:
            raise
        except PoolTimeout:
            raise _no_answer("no connection was free") from None
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
            raise _no_answer(str(error).splitlines()[0] if str(error) else "the connection broke") from error

    @contextmanager
    def read(self) -> Iterator[Tx]:
        with self._connection() as connection:
            connection.read_only, connection.isolation_level = True, IsolationLevel.REPEATABLE_READ
            with connection.transaction(force_rollback=True):
                yield self._tx(connection)

    def one(self, name: str, /, **params: Any) -> Row | None:
        with self._connection() as connection:
            return self._tx(connection).one(name, **params)

    @contextmanager
    def write(self, work: Work) -> Iterator[Tx]:
        with self._connection() as connection:
            connection.read_only, connection.isolation_level = False, IsolationLevel.READ_COMMITTED
            with connection.transaction():
                tx = self._tx(connection, work)
                yield tx
                tx.finish()
                work.before_commit()
        if tx.pending:
            self.announce()

    @contextmanager
    def reshape(self) -> Iterator[tuple[Tx, Callable[[str], Any]]]:
        with self._connection() as connection:
            connection.read_only, connection.isolation_level = False, IsolationLevel.READ_COMMITTED
            with connection.transaction():
                tx = self._tx(connection)
                tx.run("schema_lock")
                yield tx, connection.execute

    def watch(self) -> None:
        with self.changed:
            if self._listener is None:
                self._listener = threading.Thread(target=self._listen, name="crewhall-listen", daemon=True)
                self._listener.start()

    def _listen(self) -> None:
        """Turn the server's notifications into wake-ups; readers poll as well, so a lost one costs a moment."""
        while not self._closed.is_set():
            with suppress(psycopg.Error), psycopg.connect(self.url, autocommit=True, **ALIVE) as connection:
                connection.execute("LISTEN crewhall_events")
                self.announce()  # for what was missed until now
                while self._hears(connection):
                    if list(connection.notifies(timeout=0)):
                        self.announce()
            self._closed.wait(0.5)

    def _hears(self, connection: "psycopg.Connection[Any]") -> bool:
        """Wait until the server sends something; False once the store is closed."""
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            selector.select()
        return not self._closed.is_set()

    def close(self) -> None:
        self._closed.set()
        self._wake.close()
        if self._listener is not None:
            self._listener.join()
        self._woken.close()
        self._pool.close()


def _configure(connection: "psycopg.Connection[Any]") -> None:
    connection.execute("SET synchronous_commit = on")
    connection.execute("SET idle_in_transaction_session_timeout = '60s'")


def _knock(url: str) -> None:
    """One connection, to say at once why there is none; the pool would try again and again first."""
    try:
        psycopg.connect(url, connect_timeout=CONNECT_SECONDS).close()
    except psycopg.OperationalError as error:
        raise _no_answer((str(error) or "no reason was given").splitlines()[0]) from None
    except psycopg.ProgrammingError:
        raise _no_answer("its URL cannot be read") from None  # the driver's own words may hold the password


def _no_answer(reason: str) -> Unavailable:
    return Unavailable(
        f"the hall's PostgreSQL does not answer: {reason}",
        hint="It may have happened: look before you repeat it. See that the server runs and that "
        "CREWHALL_DATABASE_URL is right.",
    )
