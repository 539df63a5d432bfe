"""
The PostgreSQL store: many hubs, one hall.

    BEGIN and what the handler looks at first ─▶ … ─▶ changes ─▶ one message: what is left, call log, events, COMMIT

Events get their numbers from a sequence, so a larger number may be committed before a smaller one. No lock puts them
in order: whoever is about to draw a number holds, to its commit, a lock that everyone shares and whose key is the next
number. A reader looks at the sequence, then at these keys, and takes no event from the least of them on.
"""

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import psycopg
from psycopg.errors import LockNotAvailable

from crewhall.errors import Unavailable
from crewhall.store.pipeline import Ask, Pipeline
from crewhall.store.pool import NoConnection, Pool
from crewhall.store.sql import POSTGRES, Queries
from crewhall.store.transaction import QueuedStatement, Row, Rows, Store, Tx, Work

CONNECT_SECONDS = 10.0  # for a connection, and for each answer of the server: longer than any time of SESSION
LOCK_SECONDS = 7.0
PATIENT_SECONDS = 3600.0
TROUBLE = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
CRASH = "57P02"  # another process of the server crashed, at whatever moment of this one
SESSION = {
    "synchronous_commit": "on",
    # What a hub that stands still holds is free after 2.5 s. By then it waits for nothing any more: others ask for the
    # locks that their first statements need again and again, up to LOCK_SECONDS.
    "idle_in_transaction_session_timeout": "2500ms",
    "lock_timeout": "1500ms",
    "statement_timeout": "9s",
    # The server notices a hub that vanished without a word, as the hub does a server (ALIVE).
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
CLOCK_MS = 60_000
CLOSE_SECONDS = 3.0  # for the last hint to other hubs
NUMBERS = count()
HINT_SECONDS = 0.2  # between two notifications of a hub
PROBE_SECONDS = 10.0  # after which a quiet listener finds out whether its server is still there
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


@dataclass
class Traffic:
    """How often a store waited for its server, how many statements it sent, and how many transactions it ended."""

    trips: int = 0
    statements: int = 0
    commits: int = 0


class RemoteStatements:
    """The statements of one transaction. It begins with the first message; `looks` are run before it does."""

    is_remote: ClassVar[bool] = True

    def __init__(self, store: "PostgresStore", begin: Sequence[str], looks: Sequence[str] = (), patient: bool = False):
        self._store = store
        self._looks = [Ask(store.texts[name], ends=True) for name in looks]
        self._begin = [Ask(store.texts[name]) for name in begin]
        self._seconds = PATIENT_SECONDS if patient else CONNECT_SECONDS
        self._link: Pipeline | None = None
        self._through: int | None = None
        self._next = [Ask(store.texts["wait_for_locks"])]  # comes before the second message

    @property
    def through(self) -> int:
        """The number up to which events can be read: every smaller one that will ever be there is there."""
        if self._link is None:
            self.send([])
        assert self._through is not None, "a transaction that reads events says so: read(of_events=True)"
        return self._through

    def run(self, steps: Sequence[QueuedStatement]) -> list[Rows]:
        return self.send([Ask(self._store.texts[step.name], step.params) for step in steps])

    def send(self, asks: Sequence[Ask], *, is_last: bool = False) -> list[Rows]:
        """Run statements; the first ones begin the transaction, on another connection if the one taken was broken."""
        if self._link is not None:
            first, self._next = self._next, []
            return self._store.exchange(self._link, [*first, *asks], self._seconds)[len(first) :]
        first = [*self._looks, *self._begin]
        self._link, results = self._first([*first, *asks], is_last=is_last)
        if self._looks:
            self._through = min(results[0].rows[0]["next"], results[1].rows[0]["floor"]) - 1
        return results[len(first) :]

    def _first(self, asks: Sequence[Ask], *, is_last: bool) -> tuple[Pipeline, list[Rows]]:
        """Run the first statements, again and again while they wait for a lock: a stopped hub leaves the queue."""
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                return self._store.exchange_first(asks, self._seconds, can_repeat=not is_last)
            except LockNotAvailable:
                if time.monotonic() > end:
                    raise

    def chunks(self, name: str, size: int) -> Iterator[list[Row]]:
        cursor = f"chunks_{next(NUMBERS)}"  # a statement that is known by its text has the same columns every time
        self.send([Ask(f"DECLARE {cursor} NO SCROLL CURSOR FOR {self._store.texts[name]}")])
        while rows := self.send([Ask(f"FETCH {size} FROM {cursor}")])[0].rows:
            yield rows
        self.send([Ask(f"CLOSE {cursor}")])

    def commit(self, asks: Sequence[Ask]) -> None:
        """Send what is left together with the commit: the server needs no more of this hub to finish it."""
        last = [*asks, Ask(self._store.texts["commit"])]
        try:
            self.send(last, is_last=True)
        except TROUBLE as error:
            raise _unavailable(error, is_certain=error.sqlstate not in (None, CRASH)) from error
        link, self._link = self._link, None
        assert link is not None
        self._store.pool.give(link)

    def end(self) -> None:
        """Let go of the connection; what is not committed is taken back, and nobody waits for that."""
        link, self._link = self._link, None
        if link is not None:
            self._store.give_back(link)


class PostgresStore(Store):
    poll_seconds = 2.0
    is_local = False

    def __init__(self, url: str, queries: Queries, pool: int = 8) -> None:
        super().__init__(POSTGRES, queries)
        self.url = url
        self.traffic = Traffic()
        self.pool = Pool(self._connect, pool)
        self._clock: ServerClock | None = None
        self._clock_due = 0  # when it may be read again after that failed
        self._listener: threading.Thread | None = None
        self._closed = threading.Event()
        self._woken, self._wake = socket.socketpair()  # wakes the listener: to tell others, or to end
        self._wake.setblocking(False)
        self._has_news = self._is_watched = False
        _knock(url)

    def _connect(self, seconds: float) -> Pipeline:
        link = Pipeline(self.url, seconds, **ALIVE)
        configure = "SELECT set_config(%(name)s, %(value)s, false)"
        link.run([Ask(configure, {"name": name, "value": value}) for name, value in SESSION.items()])
        link.seconds = CONNECT_SECONDS
        return link

    def now(self) -> int:
        """The server's clock, so that leases agree between hubs; this machine's counts on from it for a minute."""
        if self._clock is None:
            self._clock = self._read_clock()
        elif self._clock.age_ms > CLOCK_MS and running_ms() >= self._clock_due:
            self._clock_due = running_ms() + CLOCK_MS // 10
            with suppress(Unavailable):  # the last reading is good enough until the server is back
                self._clock = self._read_clock()
        return self._clock.now

    def _read_clock(self) -> "ServerClock":
        self.ask([QueuedStatement("clock", {})])  # a connection may have to be made first
        asked = running_ms()
        theirs = self.ask([QueuedStatement("clock", {})])[0].rows[0]["now"]
        return ServerClock(theirs, (asked + running_ms()) // 2)

    # Messages

    def exchange(self, link: Pipeline, asks: Sequence[Ask], seconds: float) -> list[Rows]:
        """What the statements gave, on a connection that is in use."""
        self.traffic.trips += 1
        self.traffic.statements += len(asks)
        return link.run(asks, seconds)

    def exchange_first(
        self, asks: Sequence[Ask], seconds: float, *, can_repeat: bool = True
    ) -> tuple[Pipeline, list[Rows]]:
        """A connection, and what the statements gave on it. If it was broken, others are tried, unless they commit."""
        end = time.monotonic() + CONNECT_SECONDS
        while True:
            link = self._take(end)
            try:
                return link, self.exchange(link, asks, seconds)
            except BaseException as error:
                is_broken = not link.is_open
                self.give_back(link)
                if not (is_broken and can_repeat and isinstance(error, TROUBLE) and time.monotonic() < end - 1):
                    raise
            self.pool.forget_idle()

    def _take(self, end: float) -> Pipeline:
        try:
            return self.pool.take(max(0.0, end - time.monotonic()))
        except NoConnection as error:
            raise _no_answer(str(error)) from None

    def give_back(self, link: Pipeline) -> None:
        """Take back a connection, and whatever its transaction did; nobody waits for that."""
        if link.is_open:
            with suppress(psycopg.Error):
                link.finish(Ask(self.texts["rollback"]))
        self.pool.give(link)

    @contextmanager
    def _transaction(self, statements: RemoteStatements) -> Iterator[RemoteStatements]:
        """Statements of a transaction, which is over at the end: what is not committed then is taken back."""
        if self._closed.is_set():
            raise _no_answer("the hall is closed")
        try:
            yield statements
        except TROUBLE as error:
            raise _unavailable(error) from error
        finally:
            statements.end()
            self.traffic.commits += 1

    def ask(self, steps: Sequence[QueuedStatement]) -> list[Rows]:
        asks = [Ask(self.texts[step.name], step.params) for step in steps]
        try:
            link, results = self.exchange_first(asks, CONNECT_SECONDS)
        except TROUBLE as error:
            raise _unavailable(error) from error
        self.pool.give(link)
        self.traffic.commits += 1
        return results

    @contextmanager
    def read(self, *, of_events: bool = False) -> Iterator[Tx]:
        looks = ("events_next", "events_floor") if of_events else ()
        with self._transaction(RemoteStatements(self, ["begin_read"], looks)) as statements:
            tx = Tx(statements, recordings=self.recordings)
            yield tx
            tx.end_reading()

    def newest_event(self) -> int:
        queries = ("events_next", "events_floor", "event_newest")
        following, floor, newest = (done.rows[0] for done in self.ask([QueuedStatement(name, {}) for name in queries]))
        return int(min(newest["seq"], following["next"] - 1, floor["floor"] - 1))

    @contextmanager
    def write(self, work: Work) -> Iterator[Tx]:
        begin = ["begin_write", "take_time"] if work.is_patient else ["begin_write"]
        with self._transaction(RemoteStatements(self, begin, patient=work.is_patient)) as statements:
            tx = Tx(statements, work, self.recordings)
            yield tx
            calls = tx.finish()
            work.before_commit()
            statements.commit(self._last(tx.waiting, calls, tx.pending))
        if tx.pending:
            self.announce()
            self._tell_others()

    def _last(self, steps: Sequence[QueuedStatement], calls: list[Row], events: list[Row]) -> list[Ask]:
        """What is written last, together with the commit."""
        last = [Ask(self.texts[step.name], step.params) for step in steps]
        if calls:
            last.append(Ask(self.texts["call_log_put"], {"rows": json.dumps(calls)}))
        if events:
            last += [Ask(self.texts["events_hold"]), Ask(self.texts["events_insert"], {"events": json.dumps(events)})]
        return last

    @contextmanager
    def reshape(self) -> Iterator[tuple[Tx, Callable[[str], Any]]]:
        begin = ["begin_write", "take_time", "schema_lock"]
        with self._transaction(RemoteStatements(self, begin, patient=True)) as statements:
            statements.send([])  # whoever comes later waits for the lock, whatever comes first here
            tx = Tx(statements)

            def execute(text: str) -> None:
                tx.flush()
                statements.send([Ask(text)])

            yield tx, execute
            tx.flush()
            statements.commit([])

    # Telling other hubs

    def watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._start_listener()

    def _tell_others(self) -> None:
        self._has_news = True
        self._start_listener()

    def _start_listener(self) -> None:
        with self.changed:
            if self._listener is None and not self._closed.is_set():
                self._listener = threading.Thread(target=self._listen, name="crewhall-listen", daemon=True)
                self._listener.start()
        self._wake_listener()

    def _wake_listener(self) -> None:
        with suppress(OSError):  # it is woken already, or the store is closed
            self._wake.send(b"!")

    def _listen(self) -> None:
        """Turn the server's notifications into wake-ups, and notify other hubs; readers poll as well."""
        while not self._closed.is_set():
            try:
                with closing(self._connect(CONNECT_SECONDS)) as link:
                    link.run([Ask("SET synchronous_commit = off")])
                    self._exchange_hints(link)
            except psycopg.Error:
                self._closed.wait(0.5)

    def _exchange_hints(self, link: Pipeline) -> None:
        """Until the store is closed: tell others at once, though not often, and wake readers when others tell.

        A hub in which nobody waits doesn't listen: each notification is a transaction of each session that does.
        """
        is_listening = False
        while True:
            self._pass_news_on(link)
            if self._closed.is_set():
                return
            if self._is_watched and not is_listening:
                is_listening = True
                link.run([Ask("LISTEN crewhall_events")])
                self.announce()  # for what was missed until now
            readable = select.select([link.fileno(), self._woken.fileno()], [], [], PROBE_SECONDS)[0]
            if self._woken.fileno() in readable:
                self._woken.recv(4096)
            elif not readable:
                link.run([Ask(self.texts["clock"])])
            if link.heard_others():
                self.announce()

    def _pass_news_on(self, link: Pipeline) -> None:
        if self._has_news:
            self._has_news = False
            link.run([Ask(self.texts["events_announce"])])
            self._closed.wait(HINT_SECONDS)

    def close(self) -> None:
        self._closed.set()
        self._wake_listener()
        if self._listener is not None:
            self._listener.join(CLOSE_SECONDS)
        self._wake.close()
        self.pool.close()


def _knock(url: str) -> None:
    """One connection, to say at once why there is none; the pool would try again and again first."""
    try:
        psycopg.connect(url, connect_timeout=round(CONNECT_SECONDS)).close()
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
