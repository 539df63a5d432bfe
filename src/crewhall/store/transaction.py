"""
What a handler sees of a database: a transaction that runs named queries and collects events.

Both stores offer `read()` and `write()`. Leaving a `write()` block without an exception means that the change, its
events and its row of the call log are on disk; leaving it with one means that none of them is.
"""

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from crewhall.store.sql import Dialect, Queries, text_of

Row = dict[str, Any]


@dataclass
class Work:
    """Who writes and through which tool; `log` makes the call-log row that goes with the change.

    `before_commit` runs when all is written and nothing committed; a test may stop the world there.
    """

    actor: str
    tool: str | None
    now: int
    log: Callable[[], Row] | None = None
    before_commit: Callable[[], None] = lambda: None


class Look(Protocol):
    """What can answer one query: a transaction, or a store on its own.

    Rows are dicts. They are typed Any, so that a reader can name their columns: `row: TaskRow | None = tx.one(…)`.
    """

    def one(self, name: str, /, **params: Any) -> Any | None: ...


@dataclass
class Tx:
    """One transaction: named queries in, rows out. Events are kept back and written last."""

    _execute: Callable[[str, Mapping[str, Any]], Any]
    _executemany: Callable[[str, Sequence[Mapping[str, Any]]], Any]
    _stream: Callable[[str], Any]
    work: Work | None = None
    pending: list[Row] = field(default_factory=list)

    @property
    def now(self) -> int:
        """The time of what is written here."""
        assert self.work is not None, "only writing transactions have a time"
        return self.work.now

    def one(self, name: str, /, **params: Any) -> Any | None:
        """The query's row, or None."""
        row: Row | None = self._execute(name, params).fetchone()
        return row

    def all(self, name: str, /, **params: Any) -> list[Any]:
        """The query's rows."""
        rows: list[Row] = self._execute(name, params).fetchall()
        return rows

    def value(self, name: str, /, **params: Any) -> Any:
        """The first column of the query's row, or None."""
        row = self.one(name, **params)
        return None if row is None else next(iter(row.values()))

    def run(self, name: str, /, **params: Any) -> int:
        """How many rows the statement changed."""
        count: int = self._execute(name, params).rowcount
        return count

    def many(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """The statement, once for each row."""
        if rows:
            self._executemany(name, rows)

    def chunks(self, name: str, size: int) -> Iterator[list[Row]]:
        """The query's rows, some at a time, so that a large table is never in memory as a whole."""
        with closing(self._stream(name)) as cursor:
            while rows := cursor.fetchmany(size):
                yield rows

    def event(
        self,
        what: str,
        subject: str,
        *,
        before: str | None = None,
        after: str | None = None,
        commit: str | None = None,
        data: str | None = None,
    ) -> None:
        """Note a fact about `subject`, which was at a git `commit`; it is numbered when the transaction commits."""
        assert self.work is not None, "events belong to writing transactions"
        self.pending.append(
            {
                "at": self.work.now,
                "actor": self.work.actor,
                "what": what,
                "subject": subject,
                "before_status": before,
                "after_status": after,
                "tool": self.work.tool,
                "git_commit": commit,
                "data": data,
            }
        )

    def log_calls(self, rows: Sequence[Row]) -> None:
        """Put calls into the call log."""
        self.run("call_log_put", rows=json.dumps(rows))

    def finish(self) -> None:
        """Write what was kept back. Events come last, so that their numbers are in commit order."""
        assert self.work is not None
        if self.work.log is not None:
            self.log_calls([self.work.log()])
        if self.pending:
            self.run("events_lock")
            self.many("event_insert", self.pending)
            self.run("events_announce")


class Store(ABC):
    """One hall's database."""

    poll_seconds: float
    is_local: bool  # a read never waits for a network or a writer

    def __init__(self, dialect: Dialect, queries: Queries) -> None:
        own = Queries([text_of("crewhall.store", "queries.sql"), text_of("crewhall.store", f"{dialect.name}.sql")])
        self.dialect = dialect
        self.texts = own.render(dialect) | queries.render(dialect)
        self.changed = threading.Condition()
        self.announced = 0  # how often; a waiter looks again when it has grown

    @abstractmethod
    def read(self) -> AbstractContextManager[Tx]:
        """A snapshot to read from."""

    @abstractmethod
    def one(self, name: str, /, **params: Any) -> Any | None:
        """The row of one query, without the cost of a transaction: a single statement is its own snapshot."""

    @abstractmethod
    def write(self, work: Work) -> AbstractContextManager[Tx]:
        """A transaction that is on disk when its block has been left."""

    @abstractmethod
    def reshape(self) -> AbstractContextManager[tuple[Tx, Callable[[str], Any]]]:
        """A transaction and a way to run schema statements in it; one process at a time."""

    def tables(self) -> list[str]:
        """The names of the tables that this hall has."""
        with self.read() as tx:
            return [row["name"] for row in tx.all("tables")]

    def check(self) -> str | None:
        """What is damaged in the database, or None; PostgreSQL looks after itself."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Let go of every connection and thread."""

    def now(self) -> int:
        """The hall's clock, UTC milliseconds."""
        return time.time_ns() // 1_000_000

    def announce(self) -> None:
        """Wake whoever waits for events in this process."""
        with self.changed:
            self.announced += 1
            self.changed.notify_all()

    def watch(self) -> None:
        """Begin to notice other processes' commits; called by the first who waits."""
