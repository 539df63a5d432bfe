"""
A connection to PostgreSQL on which many statements travel at once: one message there, their results back.

    run([a, b, c]) ──▶ prepare what is new, bind, execute … sync ──▶ the server ──▶ three results, one wait

It stands on psycopg's own binding of libpq, `psycopg.pq` (docs/why.md says why). Values travel as
text, and the server takes their types from the statement.
"""

import re
import select
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from crewhall.store.transaction import Row, Rows

_PARAMETER = re.compile(r"%%|%\((\w+)\)s")
_BOOL, _WHOLE, _REAL = (16,), (20, 21, 23, 26), (700, 701, 1700)  # ids of types
WHOLE_BYTES = 4_000  # of values; libpq sends what is larger than 8 kB in pieces
WHOLE_MOST = 500  # statements; a plan of thousands of tasks is not one message
OK = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY)

Reader = Callable[[bytes], Any]


class ServerText(NamedTuple):
    """A statement as the server takes it: `$1` for its first parameter, and their names in that order."""

    sql: bytes
    parameters: tuple[str, ...]


@cache
def compile_text(text: str) -> ServerText:
    """The text of a statement with `%(name)s` for its parameters, as the server takes it."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return "%" if match[1] is None else f"${names.setdefault(match[1], len(names) + 1)}"

    return ServerText(_PARAMETER.sub(number, text).encode(), tuple(names))


class Ask(NamedTuple):
    """A statement to run: its text and its parameters. Where `ends` is true, the server commits what needs no BEGIN."""

    text: str
    params: Mapping[str, Any] = {}
    ends: bool = False


class Shape:
    """The columns of a statement's rows, and how each is read."""

    def __init__(self, result: Any) -> None:
        columns = range(result.nfields)
        self.names = [result.fname(column).decode() for column in columns]
        self.readers = [_reader(result.ftype(column)) for column in columns]

    def rows(self, result: Any) -> list[Row]:
        columns = list(enumerate(zip(self.names, self.readers, strict=True)))
        return [
            {
                name: None if (value := result.get_value(row, column)) is None else read(value)
                for column, (name, read) in columns
            }
            for row in range(result.ntuples)
        ]


def _reader(type_id: int) -> Reader:
    if type_id in _WHOLE:
        return int
    if type_id in _BOOL:
        return lambda value: value == b"t"
    if type_id in _REAL:
        return _number
    return lambda value: value.decode()


def _number(value: bytes) -> int | float:
    return int(value) if value.lstrip(b"-").isdigit() else float(value)


def _as_text(value: Any) -> bytes | None:
    if value is None:
        return None
    text = value.encode() if isinstance(value, str) else str(value).encode()
    if b"\0" in text:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text


def _ends_connection(result: Any) -> bool:
    return result.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED) in (b"FATAL", b"PANIC", None)


class Pipeline:
    """A connection; one thread uses it at a time.

    A server that says nothing for `seconds` is taken for gone: the connection is closed, and OperationalError raised.
    """

    def __init__(self, url: str, seconds: float, **options: Any) -> None:
        self.connection = psycopg.connect(url, autocommit=True, connect_timeout=max(2, round(seconds)), **options)
        self.seconds = seconds
        self._patience = seconds
        self._pq = self.connection.pgconn
        self._pq.nonblocking = 1
        self._pq.enter_pipeline_mode()
        self._names = count(1)
        self._prepared: dict[str, bytes] = {}
        self._shapes: dict[str, Shape] = {}
        self._owed = 0  # ends of messages whose results nobody has read yet
        self._poll = select.poll()
        self._events = select.POLLIN
        self._poll.register(self._pq.socket, self._events)

    @property
    def is_open(self) -> bool:
        return not self.connection.closed and self._pq.status == pq.ConnStatus.OK

    def is_alive(self) -> bool:
        """Whether the server has said nothing while it was idle: what it says then is that it closes the connection."""
        return self.is_open and (self._owed > 0 or not self._poll.poll(0))

    def close(self) -> None:
        self.connection.close()

    def run(self, asks: Sequence[Ask], seconds: float | None = None) -> list[Rows]:
        """What each statement gave. Raises the first error; the server has done none of those after it."""
        self._patience = seconds or self.seconds
        bound = [[_as_text(ask.params[name]) for name in compile_text(ask.text).parameters] for ask in asks]
        if sum(len(value) for values in bound for value in values if value) > WHOLE_BYTES and len(asks) <= WHOLE_MOST:
            return self._run_whole(asks)
        owed = self._owed
        new = self._send_all(asks, bound)
        for _ in range(owed):
            self._skip()
        results, error = [], None
        for place, ask in enumerate(asks):
            refusal = self._prepare_result(ask, new[place]) if place in new else None
            result = self._result()
            error = error or refusal
            if result.status in OK and error is None:
                results.append(self._rows_of(ask.text, result))
            elif error is None:
                error = error_from_result(result)
            if ask.ends and place < len(asks) - 1:
                self._skip()
        self._skip_end(is_done=error is None)
        if error is not None:
            raise error
        return results

    def _skip_end(self, *, is_done: bool) -> None:
        """Read on to the end of the last message. A server that goes away now has done what it gave results of."""
        try:
            self._skip()
        except psycopg.OperationalError:
            if not is_done:
                raise

    def _run_whole(self, asks: Sequence[Ask]) -> list[Rows]:
        """The same for large statements: a message that the server does nothing of until it has all of it.

        The others reach it in pieces if they are large. It would wait for the next piece with its locks, for ever if
        this process is stopped in between.
        """
        assert not any(ask.ends for ask in asks), "what ends in between is small"
        while self._owed:
            self._skip()
        self._pq.exit_pipeline_mode()
        bind = psycopg.ClientCursor(self.connection).mogrify
        self._pq.send_query(";".join(bind(ask.text, dict(ask.params)) for ask in asks).encode())
        results: list[Rows] = []
        error = None
        try:
            while (result := self._next()) is not None:
                if result.status in OK:
                    results.append(self._rows_of(asks[len(results)].text, result))
                else:
                    error = error_from_result(result)
            self._pq.enter_pipeline_mode()
        except psycopg.OperationalError:
            if len(results) < len(asks):
                raise
        if error is not None:
            raise error
        return results

    def finish(self, ask: Ask) -> None:
        """Send a statement whose result nobody waits for: the next run reads it."""
        self._patience = self.seconds
        self._send_all([ask], [[]])
        while self._pq.flush():
            self._wait(select.POLLOUT)

    # Sending

    def _send_all(self, asks: Sequence[Ask], bound: Sequence[Sequence[bytes | None]]) -> dict[int, bytes]:
        """Put the statements and their values into one message; of those that are new, their places and names."""
        new: dict[int, bytes] = {}
        names: dict[str, bytes] = {}
        for place, (ask, values) in enumerate(zip(asks, bound, strict=True)):
            name = self._prepared.get(ask.text) or names.get(ask.text)
            if name is None:
                name = new[place] = names[ask.text] = b"s%d" % next(self._names)
                self._pq.send_prepare(name, compile_text(ask.text).sql)
            self._pq.send_query_prepared(name, values)
            if ask.ends or place == len(asks) - 1:
                self._pq.pipeline_sync()
                self._owed += 1
        return new

    def _prepare_result(self, ask: Ask, name: bytes) -> psycopg.Error | None:
        result = self._result()
        if result.status in OK:
            self._prepared[ask.text] = name
            return None
        return None if result.status == pq.ExecStatus.PIPELINE_ABORTED else error_from_result(result)

    # Receiving

    def _rows_of(self, text: str, result: Any) -> Rows:
        if result.status != pq.ExecStatus.TUPLES_OK:
            return Rows([], result.command_tuples or 0)
        shape = self._shapes.get(text)
        if shape is None or len(shape.names) != result.nfields:
            shape = self._shapes[text] = Shape(result)
        return Rows(shape.rows(result), result.ntuples)

    def _result(self) -> Any:
        """The next statement's result."""
        while (result := self._next()) is None:
            pass  # what parts one statement's results from the next one's
        return result

    def _skip(self) -> None:
        """Read on to the end of a message."""
        while self._result().status != pq.ExecStatus.PIPELINE_SYNC:
            pass
        self._owed -= 1

    def _next(self) -> Any:
        try:
            if self._pq.is_busy():
                self._read_more()
            result = self._pq.get_result()
        except psycopg.OperationalError:
            self.close()
            raise
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR and _ends_connection(result):
            self.close()
            raise error_from_result(result)
        if result is None and self._pq.status != pq.ConnStatus.OK:
            self.close()
            raise psycopg.OperationalError("the connection broke")
        return result

    def _read_more(self) -> None:
        unsent = self._pq.flush()
        while self._pq.is_busy():
            self._wait(select.POLLIN | (select.POLLOUT if unsent else 0))
            self._pq.consume_input()
            unsent = unsent and self._pq.flush()

    def _wait(self, events: int) -> None:
        if events != self._events:
            self._poll.modify(self._pq.socket, events)
            self._events = events
        if not self._poll.poll(self._patience * 1000):
            self.close()
            raise psycopg.OperationalError("no answer came in time")

    # What other sessions announce

    def heard_others(self) -> bool:
        """Whether another session has notified this one since it was last asked."""
        self._pq.consume_input()
        heard = False
        while (notice := self._pq.notifies()) is not None:
            heard = heard or notice.be_pid != self._pq.backend_pid
        return heard

    def fileno(self) -> int:
        return self._pq.socket
