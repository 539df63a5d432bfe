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

from crewhall.store.changes import Changes, pages
from crewhall.store.recording import Recording, record_all
from crewhall.store.sql import Dialect, Queries, text_of

Row = dict[str, Any]
EVENT_BYTES = 12_000  # of an event as it is stored, so that it stays under 16 kB however it is printed


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


@dataclass(frozen=True)
class Rows:
    """The rows of a statement whose changes have been recorded, to be read like a cursor."""

    rows: list[Row]

    @property
    def rowcount(self) -> int:
        return len(self.rows)

    def fetchone(self) -> Row | None:
        return next(iter(self.rows), None)

    def fetchall(self) -> list[Row]:
        return self.rows


@dataclass
class Tx:
    """One transaction: named queries in, rows out. Events are kept back and written last, with what was changed."""

    _execute: Callable[[str, Mapping[str, Any]], Any]
    _executemany: Callable[[str, Sequence[Mapping[str, Any]]], Any]
    _stream: Callable[[str], Any]
    work: Work | None = None
    recordings: Mapping[str, Recording] = field(default_factory=dict)
    pending: list[Row] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)

    @property
    def now(self) -> int:
        """The time of what is written here."""
        assert self.work is not None, "only writing transactions have a time"
        return self.work.now

    def one(self, name: str, /, **params: Any) -> Any | None:
        """The query's row, or None."""
        row: Row | None = self._do(name, params).fetchone()
        return row

    def all(self, name: str, /, **params: Any) -> list[Any]:
        """The query's rows."""
        rows: list[Row] = self._do(name, params).fetchall()
        return rows

    def value(self, name: str, /, **params: Any) -> Any:
        """The first column of the query's row, or None."""
        row = self.one(name, **params)
        return None if row is None else next(iter(row.values()))

    def run(self, name: str, /, **params: Any) -> int:
        """How many rows the statement changed."""
        count: int = self._do(name, params).rowcount
        return count

    def many(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """The statement, once for each row."""
        recording = self.recordings.get(name)
        if recording is not None and recording.verb != "insert":
            for row in rows:
                self._record(name, recording, row)
        elif rows:
            self._executemany(name, rows)
            if recording is not None:
                for row in rows:
                    self.changes.note_insert(recording, row)

    def _do(self, name: str, params: Mapping[str, Any]) -> Any:
        recording = self.recordings.get(name)
        return self._execute(name, params) if recording is None else self._record(name, recording, params)

    def _record(self, name: str, recording: Recording, params: Mapping[str, Any]) -> Any:
        """Run a statement that changes recorded rows, and note how it changed them."""
        if recording.verb == "insert":
            done = self._execute(name, params)
            self.changes.note_insert(recording, params)
            return done
        were = {} if recording.before is None else self._rows_before(recording, f"{name} before", params)
        rows = self._execute(name, params).fetchall()
        if were:
            rows = [row | were[recording.key_of(row, "now")] for row in rows]
        self.changes.note_rows(recording, rows)
        return Rows([{name: value for name, value in row.items() if name[:4] not in ("was_", "now_")} for row in rows])

    def _rows_before(self, recording: Recording, name: str, params: Mapping[str, Any]) -> dict[tuple[Any, ...], Row]:
        return {recording.key_of(row, "was"): row for row in self._execute(name, params).fetchall()}

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
                "changes": None,
            }
        )

    def log_calls(self, rows: Sequence[Row]) -> None:
        """Put calls into the call log."""
        self.run("call_log_put", rows=json.dumps(rows))

    def finish(self) -> list[Row]:
        """Give the pending events what was changed. The call's row for the call log, which is written with them."""
        assert self.work is not None
        self._add_changes()
        return [] if self.work.log is None else [self.work.log()]

    def _add_changes(self) -> None:
        """Give each event the changes of its subject; what doesn't fit into it goes into events before it."""
        found = self.changes.by_subject([event["subject"] for event in self.pending])
        if found and not self.pending:
            _tell_changes(self, found[0][0].id)
        events, self.pending = self.pending, []
        for place, event in enumerate(events):
            texts = list(pages(found.get(place, ()), EVENT_BYTES - _size(event)))
            for changes in texts[:-1]:
                _tell_changes(self, event["subject"])
                self.pending[-1]["changes"] = changes
            self.pending.append(event | {"changes": texts[-1] if texts else None})


def _tell_changes(tx: Tx, subject: str) -> None:
    tx.event("hall.changed", subject)


def _size(event: Row) -> int:
    return len(json.dumps(event, ensure_ascii=False).encode())


class Store(ABC):
    """One hall's database."""

    poll_seconds: float
    is_local: bool  # a read never waits for a network or a writer

    def __init__(self, dialect: Dialect, queries: Queries) -> None:
        own = Queries([text_of("crewhall.store", "queries.sql"), text_of("crewhall.store", f"{dialect.name}.sql")])
        self.dialect = dialect
        statements = own.statements | queries.statements
        self.texts, self.recordings = record_all(statements, dialect.query, joins=dialect.updates_join)
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
