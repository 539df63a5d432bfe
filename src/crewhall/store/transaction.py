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
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
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
    is_patient: bool = False  # its statements may take longer than a caller would wait


class Look(Protocol):
    """What can answer one query: a transaction, or a store on its own.

    Rows are dicts. They are typed Any, so that a reader can name their columns: `row: TaskRow | None = tx.one(…)`.
    """

    def one(self, name: str, /, **params: Any) -> Any | None: ...


@dataclass(frozen=True)
class Rows:
    """What a statement gave: its rows, and how many rows it returned or changed."""

    rows: list[Row]
    count: int


@dataclass(frozen=True)
class QueuedStatement:
    """A statement on its way to the database; `then` sees what it gave. A hint is a query that may be left out."""

    name: str
    params: Mapping[str, Any]
    then: Callable[[Rows], None] | None = None
    is_hint: bool = False


class Statements(Protocol):
    """How a transaction's statements reach its database."""

    @property
    def is_remote(self) -> bool:
        """Whether a trip costs more than a statement, so that statements travel together."""

    @property
    def through(self) -> int:
        """The number up to which events can be read: no smaller one will come later."""

    def run(self, steps: Sequence[QueuedStatement]) -> list[Rows]:
        """Run the statements in their order; what each gave."""
        ...

    def chunks(self, name: str, size: int) -> Iterator[list[Row]]:
        """The rows of a query, so many at a time."""
        ...


@dataclass
class Tx:
    """One transaction: named queries in, rows out. Events are kept back and written last, with what was changed.

    What a handler need not wait for travels with the next statement whose rows it reads, or with the commit.
    """

    _statements: Statements
    work: Work | None = None
    recordings: Mapping[str, Recording] = field(default_factory=dict)
    pending: list[Row] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)
    waiting: list[QueuedStatement] = field(default_factory=list)
    _early: dict[Any, Rows | None] = field(default_factory=dict)  # of hints; None until they have been sent

    @property
    def now(self) -> int:
        """The time of what is written here."""
        assert self.work is not None, "only writing transactions have a time"
        return self.work.now

    @property
    def through(self) -> int:
        """The number up to which events can be read in this snapshot."""
        return self._statements.through

    def one(self, name: str, /, **params: Any) -> Any | None:
        """The query's row, or None."""
        return next(iter(self._rows(name, params).rows), None)

    def all(self, name: str, /, **params: Any) -> list[Any]:
        """The query's rows."""
        return self._rows(name, params).rows

    def value(self, name: str, /, **params: Any) -> Any:
        """The first column of the query's row, or None."""
        row = self.one(name, **params)
        return None if row is None else next(iter(row.values()))

    def count(self, name: str, /, **params: Any) -> int:
        """How many rows the statement changed."""
        self._early.clear()
        return self._rows(name, params).count

    def run(self, name: str, /, **params: Any) -> None:
        """Run a statement whose result nobody reads."""
        self.many(name, [params])

    def many(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """The statement, once for each row."""
        recording = self.recordings.get(name)
        if recording is not None and recording.before is not None:
            for row in rows:
                self._record(name, recording, row)
        elif recording is None:
            self._put(*[QueuedStatement(name, row) for row in rows])
        else:
            self._put(*[QueuedStatement(name, row, partial(self._note, recording, row)) for row in rows])

    def ahead(self, name: str, /, **params: Any) -> None:
        """Let a query that will be asked next travel with the others that are.

        A change (`run`, `many`, `count`) makes it be asked again. It costs nothing where there is nothing to gain.
        """
        if self._statements.is_remote and (key := _key(name, params)) not in self._early:
            self._early[key] = None
            self.waiting.append(QueuedStatement(name, params, partial(self._keep_early, key), is_hint=True))

    def guard(self, name: str, /, check: Callable[[Rows], None], **params: Any) -> None:
        """Let `check` see what a query gives, and raise, before anything that comes after it is returned or kept."""
        self._put(QueuedStatement(name, params, check))

    def flush(self) -> None:
        """Run what is waiting."""
        if self.waiting:
            self._send()

    def end_reading(self) -> None:
        """Run what is waiting, though no result is read: a change would be refused."""
        self._drop_hints()
        self.flush()

    def _drop_hints(self) -> None:
        self.waiting = [step for step in self.waiting if not step.is_hint]

    def drop(self, name: str) -> bool:
        """Forget what is waiting; whether a statement of that name is among it."""
        was_waiting = any(step.name == name for step in self.waiting)
        self.waiting.clear()
        self._early.clear()
        return was_waiting

    def _put(self, *steps: QueuedStatement) -> None:
        self._early.clear()
        self.waiting += steps
        if self.waiting and not self._statements.is_remote:
            self._send()

    def _keep_early(self, key: Any, done: Rows) -> None:
        if key in self._early:  # nothing was changed since it was asked for
            self._early[key] = done

    def _rows(self, name: str, params: Mapping[str, Any]) -> Rows:
        """What a statement gives, after all that is waiting."""
        recording = self.recordings.get(name)
        if recording is not None:
            return self._record(name, recording, params)
        if self._early and (key := _key(name, params)) in self._early:
            if self._early[key] is None:
                self._send()
            early = self._early.pop(key, None)
            if early is not None:  # else a check that came before it has changed something
                return early
        return self._send(QueuedStatement(name, params))

    def _send(self, *steps: QueuedStatement) -> Rows:
        """Run what is waiting, then the steps; what the last one gave."""
        batch, self.waiting = [*self.waiting, *steps], []
        results = self._statements.run(batch) if batch else [Rows([], 0)]
        for step, done in zip(batch, results, strict=False):
            if step.then is not None:
                step.then(done)
        return results[-1]

    def _record(self, name: str, recording: Recording, params: Mapping[str, Any]) -> Rows:
        """Run a statement that changes recorded rows, and note how it changed them."""
        self._early.clear()
        if recording.before is not None:
            return self._record_with_query(name, recording, params)
        done = self._send(QueuedStatement(name, params))
        self._note(recording, params, done)
        return _without_notes(done)

    def _record_with_query(self, name: str, recording: Recording, params: Mapping[str, Any]) -> Rows:
        """The same where the database can't return what a row was."""
        before = self._send(QueuedStatement(f"{name} before", params)).rows
        were = {recording.key_of(row, "was"): row for row in before}
        done = self._send(QueuedStatement(name, params))
        if were:
            done = Rows([row | were[recording.key_of(row, "now")] for row in done.rows], done.count)
        self._note(recording, params, done)
        return _without_notes(done)

    def _note(self, recording: Recording, params: Mapping[str, Any], done: Rows) -> None:
        if recording.verb == "insert":
            self.changes.note_insert(recording, params)
        else:
            self.changes.note_rows(recording, done.rows)

    def chunks(self, name: str, size: int) -> Iterator[list[Row]]:
        """The query's rows, some at a time, so that a large table is never in memory as a whole."""
        yield from self._statements.chunks(name, size)

    def event(
        self,
        what: str,
        subject: str,
        *,
        before: str | None = None,
        after: str | None = None,
        commit: str | None = None,
        data: str | None = None,
        actor: str | None = None,
    ) -> None:
        """Note a fact about `subject`, which was at a git `commit`; it is numbered when the transaction commits.

        The actor is whoever writes, unless that became known by the writing itself.
        """
        assert self.work is not None, "events belong to writing transactions"
        self.pending.append(
            {
                "at": self.work.now,
                "actor": actor or self.work.actor,
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
        if self.waiting:
            self._drop_hints()
            if any(step.then is not None for step in self.waiting):
                self.flush()
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


def _key(name: str, params: Mapping[str, Any]) -> Any:
    return name, tuple(sorted(params.items()))


def _without_notes(done: Rows) -> Rows:
    """The rows without what is recorded of them."""
    rows = [{name: value for name, value in row.items() if name[:4] not in ("was_", "now_")} for row in done.rows]
    return Rows(rows, done.count)


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
    def read(self, *, of_events: bool = False) -> AbstractContextManager[Tx]:
        """A snapshot to read from; whoever reads the event log in it says so."""

    @abstractmethod
    def ask(self, steps: Sequence[QueuedStatement]) -> list[Rows]:
        """What some queries give, without the cost of a transaction: each is its own snapshot."""

    def one(self, name: str, /, **params: Any) -> Any | None:
        """The row of one query, in the same way."""
        return next(iter(self.ask([QueuedStatement(name, params)])[0].rows), None)

    @abstractmethod
    def newest_event(self) -> int:
        """The number of the newest event that can be read; 0 if there is none."""

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
