"""
The PostgreSQL store: many hubs, one hall.

    BEGIN ─▶ the block's statements ─▶ one message: call log, lock, events, COMMIT, flush, notify

The event lock makes numbers follow the order of commits: a reader that has seen number n will never be shown a smaller
one later. The server has the whole message before it takes the lock, and the commit under it doesn't wait for the
disk: no hub that stands still, and no disk, makes others wait for the lock. The flush after it does: what is
acknowledged is on disk, and a reader of events has the disk catch up before it shows them.
"""

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.errors import IdleInTransactionSessionTimeout
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from crewhall.errors import Unavailable
from crewhall.store.sql import POSTGRES, Queries
from crewhall.store.transaction import Row, Store, Tx, Work

CONNECT_SECONDS = 10
TROUBLE = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
SESSION = {
    "synchronous_commit": "on",
    # What a hub that stands still holds is free after 5 s; others wait longer than that for a row, and not for ever.
    "idle_in_transaction_session_timeout": "5s",
    "lock_timeout": "8s",
}
CLOCK_MS = 60_000
# A server that vanished without a word is noticed within half a minute.
ALIVE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


def running_ms() -> int:
    """Milliseconds that nobody can set; on Linux they count while the machine sleeps."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000


@dataclass(frozen=True)
class ServerClock:
    """The server's time when it was read, and when that was."""

    at: int
    read_at: int

    @property
    def age_ms(self) -> int:
        return running_ms() - self.read_at

    @property
    def now(self) -> int:
        return self.at + self.age_ms


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
            open=False,
        )
        try:
            self._pool.open(wait=True, timeout=CONNECT_SECONDS)
        except PoolTimeout:
            self._pool.close()
            raise _no_answer("it did not let us in within 10 s") from None
        self._clock: ServerClock | None = None
        self._listener: threading.Thread | None = None
        self._closed = threading.Event()
        self._woken, self._wake = socket.socketpair()  # ends the listener's wait at once

    def now(self) -> int:
        """The server's clock, so that leases agree between hubs; this machine's counts on from it for a minute."""
        if self._clock is None or self._clock.age_ms > CLOCK_MS:
            self._clock = self._read_clock()
        return self._clock.now

    def _read_clock(self) -> "ServerClock":
        with self.read() as tx:
            asked = running_ms()
            theirs = tx.value("clock")
            return ServerClock(theirs, (asked + running_ms()) // 2)

    def _tx(self, connection: "psycopg.Connection[Any]", work: Work | None = None, names: set[str] | None = None) -> Tx:
        """A transaction on the connection; the names of the statements that it runs go into `names`."""
        ran = set() if names is None else names

        def execute(name: str, params: Mapping[str, Any]) -> Any:
            ran.add(name)
            return connection.execute(self.texts[name], params)

        def executemany(name: str, rows: Sequence[Mapping[str, Any]]) -> Any:
            connection.cursor().executemany(self.texts[name], rows)

        def stream(name: str) -> Any:
            return connection.cursor(f"crewhall_{id(connection)}").execute(self.texts[name])

        return Tx(execute, executemany, stream, work, self.recordings)

    @contextmanager
    def _connection(self, first: str, params: Mapping[str, Any] | None = None) -> Iterator["psycopg.Cursor[Any]"]:
        """What the statement `first` gave, on a connection of its own; one that broke while it was idle is replaced."""
        try:
            cursor = self._run_first(first, params)
        except PoolTimeout:
            raise _no_answer("no connection was free") from None
        except PoolClosed as error:
            raise _unavailable(error) from None
        try:
            yield cursor
        finally:
            self._pool.putconn(cursor.connection)

    def _run_first(self, first: str, params: Mapping[str, Any] | None) -> "psycopg.Cursor[Any]":
        for _ in range(self._pool.max_size + 1):
            connection = self._pool.getconn()
            try:
                return connection.execute(self.texts[first], params)
            except BaseException as error:
                is_broken = connection.closed
                self._pool.putconn(connection)
                if isinstance(error, TROUBLE) and not is_broken:
                    raise _unavailable(error) from error
                if not isinstance(error, TROUBLE):
                    raise
        raise _no_answer("it closes every connection")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator["psycopg.Connection[Any]"]:
        """A connection in a transaction, which is over at the end: what is not committed then is taken back."""
        with self._connection(begin) as cursor:
            connection = cursor.connection
            try:
                yield connection
            except TROUBLE as error:
                raise _unavailable(error) from error
            finally:
                if connection.info.transaction_status != TransactionStatus.IDLE:
                    with suppress(psycopg.Error):  # a connection that broke has taken it back
                        connection.execute(self.texts["rollback"])

    @contextmanager
    def read(self) -> Iterator[Tx]:
        names: set[str] = set()
        with self._transaction("begin_read") as connection:
            yield self._tx(connection, names=names)
        if "events_after" in names:  # a crash of the server must not take back what was shown
            with self._connection("flush_what_was_read"):
                pass

    def one(self, name: str, /, **params: Any) -> Row | None:
        with self._connection(name, params) as cursor:
            row: Row | None = cursor.fetchone()
            return row

    @contextmanager
    def write(self, work: Work) -> Iterator[Tx]:
        with self._transaction("begin_write") as connection:
            tx = self._tx(connection, work)
            yield tx
            calls = tx.finish()
            work.before_commit()
            self._commit(connection, calls, tx.pending)
        if tx.pending:
            self.announce()

    def _commit(self, connection: "psycopg.Connection[Any]", calls: list[Row], events: list[Row]) -> None:
        """Send what is written last together with the commit: the server needs no more of this hub to finish it."""
        last: list[tuple[str, Mapping[str, Any]]] = [("flush_later", {}), ("commit", {}), ("flush", {})]
        if events:
            insert = ("events_insert", {"events": json.dumps(events)})
            last = [("events_lock", {}), insert, *last, ("events_announce", {})]
        if calls:
            last = [("call_log_put", {"rows": json.dumps(calls)}), *last]
        bind = psycopg.ClientCursor(connection).mogrify
        message = ";".join(bind(self.texts[name], params) for name, params in last)
        try:
            connection.execute(message)
        except TROUBLE as error:
            was_too_late = isinstance(error, IdleInTransactionSessionTimeout)
            raise _unavailable(error, is_certain=was_too_late or not connection.closed) from error

    @contextmanager
    def reshape(self) -> Iterator[tuple[Tx, Callable[[str], Any]]]:
        with self._transaction("begin_write") as connection:
            tx = self._tx(connection)
            tx.run("schema_lock")
            yield tx, connection.execute
            tx.run("commit")

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
    for name, value in SESSION.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, value))


def _knock(url: str) -> None:
    """One connection, to say at once why there is none; the pool would try again and again first."""
    try:
        psycopg.connect(url, connect_timeout=CONNECT_SECONDS).close()
    except psycopg.OperationalError as error:
        raise _no_answer((str(error) or "no reason was given").splitlines()[0]) from None
    except psycopg.ProgrammingError:
        raise _no_answer("its URL cannot be read") from None  # the driver's own words may hold the password


def _unavailable(error: psycopg.Error, *, is_certain: bool = True) -> Unavailable:
    return _no_answer(str(error).splitlines()[0] if str(error) else "the connection broke", is_certain=is_certain)


def _no_answer(reason: str, *, is_certain: bool = True) -> Unavailable:
    """Only a commit without an answer leaves in doubt whether it took effect."""
    kept = "Nothing of this call was kept." if is_certain else "It may have happened: look before you repeat it."
    return Unavailable(
        f"the hall's PostgreSQL does not answer: {reason}",
        hint=f"{kept} See that the server runs and that CREWHALL_DATABASE_URL is right.",
    )
