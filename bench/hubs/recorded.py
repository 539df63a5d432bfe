"""
The statements that a hub runs for a call, from the server's own log, so that they can be run again for other rows.
What ends a look (ROLLBACK) becomes a COMMIT: psycopg forgets all its prepared statements at each ROLLBACK.

A call is made some times; the run with the fewest statements counts, for no chore is among them. In its texts and
parameters the ids of the call's agent, task and so on become slots, and so do the ids that it made up.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from crewhall.identity import new_id

ID = re.compile(r"\b[a-z]+_[0-9a-z]{12}\b(?:\.\d+)?")  # a call's id is its hub's and a number
PARAMETER = re.compile(r"\$(\d+) = (NULL|'(?:[^']|'')*')")
PIECE = re.compile(r"'(?:[^']|'')*'|;")
MARK = "SELECT 'the next call'"
END = {"ROLLBACK": "COMMIT"}
MESSAGE, DETAIL = 13, 14  # columns of the server's csvlog


@dataclass(frozen=True)
class Statement:
    """A text with $1, $2 … and its parameters, or with the values in it; `ends` says that its message ended with it."""

    text: str
    parameters: tuple[str | None, ...] = ()
    ends: bool = True


Recording = list[Statement]


def statements(rows: list[list[str]]) -> Recording:
    """The statements in rows of the log; a message of several is taken apart."""
    found = []
    for row in rows:
        kind, _, text = row[MESSAGE].partition(": ")
        if kind == "statement":
            texts = [END.get(one, one) for one in _apart(text) if not one.startswith("DEALLOCATE")]
            found += [Statement(one, ends=place == len(texts)) for place, one in enumerate(texts, 1)]
        elif kind.startswith("execute"):
            found.append(Statement(END.get(text, text), _parameters(row[DETAIL])))
    return found


def _apart(message: str) -> Iterator[str]:
    begin = 0
    for piece in PIECE.finditer(message):
        if piece.group() == ";":
            yield message[begin : piece.start()].strip()
            begin = piece.end()
    if rest := message[begin:].strip():
        yield rest


def _parameters(detail: str) -> tuple[str | None, ...]:
    values = (value for _, value in PARAMETER.findall(detail))
    return tuple(None if value == "NULL" else value[1:-1].replace("''", "'") for value in values)


def split(rows: list[list[str]]) -> list[list[list[str]]]:
    """The rows between marks, which are statements of their own."""
    parts: list[list[list[str]]] = [[]]
    for row in rows:
        if row[MESSAGE].endswith(f": {MARK}"):
            parts.append([])
        else:
            parts[-1].append(row)
    return parts


def ids_in(recording: Recording) -> set[str]:
    return {one for statement in recording for text in (statement.text, *statement.parameters) for one in _ids(text)}


def _ids(text: str | None) -> list[str]:
    return ID.findall(text or "")


@dataclass(frozen=True)
class Replay:
    """A recording that can be run for others: texts that were given have names, ids that were made up are new."""

    recording: Recording
    given: Mapping[str, str]  # a text of the recorded call, and its name
    made: list[str]

    @cached_property
    def _slots(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(one) for one in (*self.given, *self.made)))

    def fill(self, values: Mapping[str, str]) -> Iterator[Statement]:
        """The statements, for other values of what has a name."""
        now = {old: values[name] for old, name in self.given.items()}
        now |= {old: f"{new_id(old.partition('_')[0])}.1" for old in self.made}
        for one in self.recording:
            filled = (value and self._slots.sub(lambda found: now[found[0]], value) for value in one.parameters)
            yield Statement(self._slots.sub(lambda found: now[found[0]], one.text), tuple(filled), one.ends)


def replay_of(recordings: list[tuple[Recording, Mapping[str, str]]]) -> Replay:
    """The shortest of some recordings of one tool, each with its given texts and their names."""
    known = set.intersection(*(ids_in(recording) for recording, _ in recordings))
    recording, given = min(recordings, key=lambda one: len(one[0]))
    return Replay(recording, given, sorted(ids_in(recording) - known - given.keys()))
