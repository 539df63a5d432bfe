"""
The SQLite store: one file, several processes, one writer at a time.

In a process all writers share one connection and one commit: a handler's block is a savepoint, and whoever finds
nobody waiting commits for all who came before. While that commit reaches the disk the next ones gather.

    take turn ─▶ [first: stand in line, BEGIN IMMEDIATE] ─▶ savepoint, block ─▶ someone waits? ─ yes ─▶ give turn, wait
                                                                                     └─ no ──▶ COMMIT, wake all
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pysqlite3.dbapi2 as sqlite3

from crewhall.errors import Unavailable
from crewhall.hall_directory import database_files, unwritable_hint
from crewhall.ownership import make_private
from crewhall.store.sql import SQLITE, Queries
from crewhall.store.transaction import QueuedStatement, Row, Rows, Store, Tx, Work
from crewhall.store.turns import FairLock, ProcessLine

BATCH_MEMBERS = 64
BATCH_SECONDS = 0.05
BUSY_MS = 10_000
# What SQLite says when the file or the disk is the trouble, and not our statement.
TROUBLE = (
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_CORRUPT",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_NOTADB",
    "SQLITE_READONLY",
)
DAMAGE = (sqlite3.Error, UnicodeDecodeError)  # what a damaged file raises; the driver decodes messages strictly


class Batch:
    """The blocks that share one commit."""

    def __init__(self) -> None:
        self.members = 0
        self.opened_at = time.monotonic()
        self.failure: BaseException | None = None
        self.done = threading.Event()

    @property
    def has_room(self) -> bool:
        return (
            self.failure is None and self.members < BATCH_MEMBERS and time.monotonic() - self.opened_at < BATCH_SECONDS
        )

    def wait(self) -> None:
        self.done.wait()
        if self.failure is not None:
            raise Unavailable(
                f"the database could not be written: {self.failure}",
                hint="Nothing of this call was kept. Check the disk's free space, then try again.",
            ) from self.failure


@dataclass(frozen=True)
class LocalStatements:
    """Statements on a connection of this process."""

    connection: Any
    texts: Mapping[str, str]
    is_remote: ClassVar[bool] = False
    through: ClassVar[int] = sys.maxsize  # one writer at a time: numbers are in commit order

    def run(self, steps: Sequence[QueuedStatement]) -> list[Rows]:
        return [self.rows(step.name, step.params) for step in steps]

    def rows(self, name: str, params: Mapping[str, Any]) -> Rows:
        cursor = self.connection.execute(self.texts[name], params)
        return Rows(cursor.fetchall(), cursor.rowcount)

    def chunks(self, name: str, size: int) -> Iterator[list[Row]]:
        with closing(self.connection.execute(self.texts[name])) as cursor:
            while rows := cursor.fetchmany(size):
                yield rows


class LocalTx(Tx):
    """A transaction whose statements wait for no trip: each is run at once, by the shortest way."""

    _statements: LocalStatements

    def _execute(self, name: str, params: Mapping[str, Any]) -> Any:
        return self._statements.connection.execute(self._statements.texts[name], params)

    def ahead(self, name: str, /, **params: Any) -> None:
        pass

    def one(self, name: str, /, **params: Any) -> Any | None:
        return super().one(name, **params) if name in self.recordings else self._execute(name, params).fetchone()

    def all(self, name: str, /, **params: Any) -> list[Any]:
        if name in self.recordings:
            return super().all(name, **params)
        rows: list[Any] = self._execute(name, params).fetchall()
        return rows

    def run(self, name: str, /, **params: Any) -> None:
        if name in self.recordings:
            super().run(name, **params)
        else:
            self._execute(name, params)

    def many(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        recording = self.recordings.get(name)
        if recording is not None and recording.verb != "insert":
            super().many(name, rows)
            return
        if not rows:
            return
        self._statements.connection.executemany(self._statements.texts[name], rows)
        if recording is not None:
            for row in rows:
                self.changes.note_insert(recording, row)

    def _send(self, *steps: QueuedStatement) -> Rows:
        done = Rows([], 0)
        for step in (*self.waiting, *steps):
            done = self._statements.rows(step.name, step.params)
            if step.then is not None:
                step.then(done)
        self.waiting.clear()
        return done


class SqliteStore(Store):
    poll_seconds = 0.05
    is_local = True

    def __init__(self, path: Path, queries: Queries) -> None:
        super().__init__(SQLITE, queries)
        self.path = path
        self._line_path = path.with_name(path.name + ".line")
        self._fair_lock = FairLock()
        try:
            make_private(str(path.parent))
            self._writer = self._connect()
            path.chmod(path.stat().st_mode & 0o600)  # its owner may have taken the right to write it away
            self._process_line = ProcessLine(self._line_path)
        except OSError as error:
            raise self._unfit(error) from None
        self._closed = False
        self._batch: Batch | None = None
        self._readers: list[Any] = []
        self._mine = threading.local()

    def _connect(self) -> Any:
        try:
            connection = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, cached_statements=512
            )
            connection.row_factory = _as_dict
            connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
            if connection.execute("PRAGMA journal_mode").fetchone()["journal_mode"] != "wal":
                self._make_wal(connection)
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")
        except DAMAGE as error:
            raise self._unfit(error) from None
        return connection

    def _make_wal(self, connection: Any) -> None:
        """Turn a new file to WAL: one process at a time, because SQLite does not wait here but says 'locked'."""
        process_line = ProcessLine(self._line_path)
        process_line.enter()
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        finally:
            process_line.leave()
            process_line.close()

    def _unfit(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"{self.path} cannot be opened as a hall's database: {error}",
            hint=unwritable_hint(database_files(self.path))
            or "Give the path of a hall's file. For a backup, move this one away and run `crewhall restore`.",
        )

    def _caller_error(self, error: BaseException) -> BaseException:
        """The error that a caller gets: Unavailable for trouble with the file or disk, otherwise the error itself."""
        if not str(getattr(error, "sqlite_errorname", "")).startswith(TROUBLE):
            return error
        why = unwritable_hint(database_files(self.path)) or (
            "See that no other program holds the file and that the disk has room; `crewhall doctor` says more."
        )
        return Unavailable(
            f"the hall's database {self.path} cannot be used: {error}", hint=f"Nothing of this call was kept. {why}"
        )

    def _tx(self, connection: Any, work: Work | None = None) -> Tx:
        return LocalTx(LocalStatements(connection, self.texts), work, self.recordings)

    def _reader(self) -> Any:
        """A connection to read with; it goes back to `_readers`."""
        self._refuse_when_closed()
        try:
            return self._readers.pop()
        except IndexError:
            connection = self._connect()
            connection.execute("PRAGMA query_only=ON")
            return connection

    @contextmanager
    def read(self, *, of_events: bool = False) -> Iterator[Tx]:
        connection = self._reader()
        try:
            connection.execute("BEGIN")
            yield self._tx(connection)
        except sqlite3.Error as error:
            raise self._caller_error(error) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._readers.append(connection)

    def ask(self, steps: Sequence[QueuedStatement]) -> list[Rows]:
        connection = self._reader()
        try:
            return LocalStatements(connection, self.texts).run(steps)
        except sqlite3.Error as error:
            raise self._caller_error(error) from error
        finally:
            self._readers.append(connection)

    def one(self, name: str, /, **params: Any) -> Any | None:
        connection = self._reader()
        try:
            rows = connection.execute(self.texts[name], params).fetchall()
        except sqlite3.Error as error:
            raise self._caller_error(error) from error
        finally:
            self._readers.append(connection)
        return rows[0] if rows else None

    def newest_event(self) -> int:
        return int(self.ask([QueuedStatement("event_newest", {})])[0].rows[0]["seq"])

    @contextmanager
    def write(self, work: Work) -> Iterator[Tx]:
        assert not getattr(self._mine, "writing", False), "a transaction inside a transaction would wait for itself"
        batch = self._join()
        self._mine.writing = True
        failure: BaseException | None = None
        try:
            self._writer.execute("SAVEPOINT block")
            tx = self._tx(self._writer, work)
            yield tx
            if calls := tx.finish():
                tx.log_calls(calls)
            tx.many("event_insert", tx.pending)
            work.before_commit()
            self._writer.execute("RELEASE block")
        except BaseException as error:
            failure = error
            self._undo(batch, error)
        finally:
            self._mine.writing = False
            self._leave(batch)
        # A refused block waits too: it may have refused because of a neighbour's write ("ag_1 holds the task"). If the
        # commit fails, that write never was, and the caller must get Unavailable instead of the refusal.
        batch.wait()
        if failure is not None:
            raise self._caller_error(failure)
        if tx.pending:
            self.announce()

    def _join(self) -> Batch:
        """Our turn at the writer: in the batch that is open, or in a new one."""
        self._fair_lock.take()
        if self._batch is not None:
            return self._batch
        try:
            self._refuse_when_closed()
            self._process_line.enter()
            try:
                self._writer.execute("BEGIN IMMEDIATE")
            except BaseException:
                self._process_line.leave()
                raise
        except BaseException as error:
            self._fair_lock.give()
            raise self._caller_error(error) from error
        self._batch = Batch()
        return self._batch

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise Unavailable("the hall is closed", hint="The hub has stopped: start it, then try again.")

    def _undo(self, batch: Batch, reason: BaseException) -> None:
        """Take back one block; where SQLite already took back everything, the whole batch has failed."""
        try:
            self._writer.execute("ROLLBACK TO block")
            self._writer.execute("RELEASE block")
        except sqlite3.Error:
            batch.failure = reason

    def _leave(self, batch: Batch) -> None:
        """Hand the open batch to the next in turn, or commit it for all its members."""
        batch.members += 1
        if not (self._fair_lock.waiting and batch.has_room):
            self._batch = None
            self._finish(batch)
        self._fair_lock.give()

    def _finish(self, batch: Batch) -> None:
        try:
            self._commit(batch)
        finally:
            batch.done.set()

    def _commit(self, batch: Batch) -> None:
        """Put the batch on disk; `batch.failure` says why it is not there."""
        try:
            if batch.failure is None:
                self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            batch.failure = error
        finally:
            with suppress(sqlite3.Error):
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
            self._process_line.leave()

    @contextmanager
    def reshape(self) -> Iterator[tuple[Tx, Callable[[str], Any]]]:
        with self.write(Work(actor="operator", tool=None, now=self.now())) as tx:
            yield tx, self._writer.execute

    def check(self) -> str | None:
        try:
            with self.read() as tx:
                found = str(tx.value("quick_check"))
        except DAMAGE as error:
            found = str(error)
        return None if found == "ok" else found

    def copy_to(self, path: Path) -> None:
        """Make an exact copy of the file while others go on writing."""
        source, target = self._connect(), sqlite3.connect(path)
        try:
            source.backup(target)
        finally:
            source.close()
            target.close()

    def close(self) -> None:
        """A write that comes later is refused; one that waits for its commit gets it."""
        self._fair_lock.take()
        if self._batch is not None:  # its last member handed it on, to us
            batch, self._batch = self._batch, None
            self._finish(batch)
        if not self._closed:
            self._closed = True
            self._writer.close()
            while self._readers:
                self._readers.pop().close()
            self._process_line.close()
        self._fair_lock.give()


def _as_dict(cursor: Any, values: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, values, strict=True)}
