"""
What a transaction changes in recorded rows: one change for each row, however many statements it took.

    statements ──▶ Changes ──▶ the events of the transaction carry them: noun, id, before, after
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crewhall.store.recording import Recording

TEXT_BYTES = 1_000  # of a text in a change; the rest is cut off. Names are shorter

Row = dict[str, Any]
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class Change:
    """What changed in one row. `before` is None if the row is new, `after` is None if it was deleted.

    A new or deleted row has its values that are not null, a changed one those that differ.
    """

    noun: str
    id: str
    before: Row | None
    after: Row | None

    def as_json(self) -> str:
        fields = {"noun": self.noun, "id": self.id, "before": self.before, "after": self.after}
        return _ENCODE(fields)


@dataclass
class RowDiff:
    """A recorded row as it was before the transaction and as it is now; None where it isn't there."""

    subjects: tuple[str, ...]  # ids that an event about it can have: its own, then its owners'
    before: Row | None
    after: Row | None

    def change(self, noun: str, id: str) -> Change | None:
        """What is to be recorded, or None if nothing changed."""
        if self.before is None or self.after is None:
            whole = Change(noun, id, _not_null(self.before), _not_null(self.after))
            return None if self.before is self.after else whole
        columns = [column for column, value in self.after.items() if value != self.before[column]]
        before, after = ({column: side[column] for column in columns} for side in (self.before, self.after))
        return Change(noun, id, before, after) if columns else None


class Changes:
    """The changes of one transaction. A copy is what a savepoint goes back to."""

    def __init__(self, rows: Mapping[tuple[str, str], RowDiff] | None = None) -> None:
        self._rows = dict(rows or {})

    def copy(self) -> "Changes":
        return Changes(self._rows)

    def note_insert(self, recording: Recording, params: Mapping[str, Any]) -> None:
        """A row was inserted with these parameters."""
        row = recording.new_row(params)
        self._note(recording, row, None, _recorded_values(recording, row))

    def note_rows(self, recording: Recording, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows were updated or deleted; they are as the recording's statement returns them."""
        for row in rows:
            was = {column: row[f"was_{column}"] for column in recording.result_columns}
            now = None
            if recording.verb == "update":
                now = {column: row[f"now_{column}"] for column in recording.result_columns}
            self._note(recording, was, _recorded_values(recording, was), now and _recorded_values(recording, now))

    def _note(self, recording: Recording, row: Row, before: Row | None, after: Row | None) -> None:
        table = recording.table
        row_id = "/".join(str(row[column]) for column in table.key)
        known = self._rows.pop((table.noun, row_id), None)
        if known is not None:  # what it was at first, with the columns that were not written until now
            before = None if known.before is None else (before or {}) | known.before
            after = after and (known.after or {}) | after
        subjects = (row_id, *(row[column] for column in table.owners))
        self._rows[table.noun, row_id] = RowDiff(subjects, before, after)

    def by_subject(self, subjects: Iterable[str]) -> dict[int, list[Change]]:
        """The changes by the place of their event: the last about the row, else about an owner of it, else the last."""
        places = {subject: place for place, subject in enumerate(subjects)}
        last = max(places.values(), default=0)
        found: dict[int, list[Change]] = {}
        for (noun, row_id), row in self._rows.items():
            change = row.change(noun, row_id)
            if change is not None:
                place = next((places[one] for one in row.subjects if one in places), last)
                found.setdefault(place, []).append(change)
        return found


def pages(changes: Iterable[Change], size: int) -> Iterator[str]:
    """The changes as JSON lists of at most so many bytes each; one that is larger is a list of its own."""
    page: list[str] = []
    left = size
    for text in (change.as_json() for change in changes):
        need = len(text.encode()) + 1
        if page and need > left:
            yield f"[{','.join(page)}]"
            page, left = [], size
        page.append(text)
        left -= need
    if page:
        yield f"[{','.join(page)}]"


def _recorded_values(recording: Recording, row: Row) -> Row:
    return {column: _cut(row[column]) for column in recording.columns}


def _cut(value: Any) -> Any:
    if not isinstance(value, str) or 4 * len(value) <= TEXT_BYTES:
        return value
    return value.encode()[:TEXT_BYTES].decode(errors="ignore")


def _not_null(row: Row | None) -> Row | None:
    return row and {column: value for column, value in row.items() if value is not None}
