"""
Which rows the event log can replay, and the statements that report how they change such rows.

    INSERT INTO task …                        the same; its values are the new row
    UPDATE task SET status = … WHERE id = …   also returns `was_status` and `now_status`, with the row's key
    DELETE FROM task …                        also returns the row as `was_…`

A handler can't forget to record a change: the statement reports it. A statement on a recorded table must have one of
these forms; another one fails when a store opens.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any


@dataclass(frozen=True)
class RecordedTable:
    """A table whose rows can be replayed: their noun, their key, and the columns that are recorded.

    `columns` has the value of each column that an INSERT omits. `owners` are columns with ids that can be the subject
    of an event about the row.
    """

    noun: str
    key: tuple[str, ...]
    columns: Mapping[str, object]
    owners: tuple[str, ...] = ()


def _columns(names: str, **defaults: object) -> Mapping[str, object]:
    return dict.fromkeys(names.split()) | defaults


# Not recorded: long texts, columns that follow from others (`waits_for`, counts), and signs of life (`lease_until`).
RECORDED = {
    "workflow": RecordedTable(
        "workflow",
        ("id",),
        _columns(
            "name status status_reason halted_by hall_pause paused_from source_type source_ref repository_path "
            "max_parallel_tasks auto_create_workspaces started_at finished_at archived_at created_at",
            reviewer="instance",
        ),
    ),
    "task": RecordedTable(
        "task",
        ("id",),
        _columns(
            "workflow_id name status sequence place parallel_group estimated_complexity claimed_by claimed_at "
            "workspace_id started_at finished_at created_at",
            claim_epoch=0,
        ),
        owners=("workflow_id",),
    ),
    "task_dependency": RecordedTable("dependency", ("task_id", "depends_on_id"), {}, owners=("task_id",)),
    "claim": RecordedTable(
        "claim", ("task_id", "epoch"), _columns("agent_id claimed_at ended_at ended_how status_then"), ("task_id",)
    ),
    "agent": RecordedTable(
        "agent",
        ("id",),
        _columns("name runtime role type status current_task_id disconnected_since archived_at created_at"),
    ),
    "instance": RecordedTable(
        "instance",
        ("id",),
        _columns(
            "agent_id type status runtime repository_path worktree branch base_branch tier issue_number pull_number "
            "pull_url parent ended_how ended_at created_at"
        ),
    ),
    "instance_relationships": RecordedTable(
        "review",
        ("parent_instance", "child_instance"),
        _columns("relationship_type review_iteration forked_from outcome converged report_id created_at ended_at"),
        owners=("parent_instance", "child_instance"),
    ),
    "review_feedback": RecordedTable(
        "feedback",
        ("id",),
        _columns("reviewer coder review_iteration feedback_type priority git_commit merge_commit created_at"),
        owners=("coder",),
    ),
    "review_item": RecordedTable(
        "item",
        ("id",),
        _columns("coder feedback_id position file line rule is_blocking state claim created_at", times=1),
        owners=("coder",),
    ),
}

_HEAD = re.compile(r"(INSERT INTO|UPDATE|DELETE FROM) +(\w+)\b\s*(.*)", re.DOTALL)
_INSERT = re.compile(r"\(([^()]*)\)\s+VALUES\s+\((.*)\)", re.DOTALL)
_VALUE = re.compile(r":\w+|'[^']*'|\d+|NULL")
_CLAUSE = re.compile(r"\b(SET|WHERE|RETURNING)\b")


@dataclass(frozen=True)
class Recording:
    """How one statement changes a recorded table.

    `columns` are the recorded columns that it writes. `values` has the SQL of each value of an INSERT. `before` is the
    text of a query for the rows as they were, where the statement itself can't return that.
    """

    table: RecordedTable
    verb: str
    columns: tuple[str, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    before: str | None = None

    @cached_property
    def result_columns(self) -> tuple[str, ...]:
        """The columns that an UPDATE or DELETE returns of each row: its key, its owners, and what is recorded."""
        return tuple(dict.fromkeys((*self.table.key, *self.table.owners, *self.columns)))

    def key_of(self, row: Mapping[str, Any], prefix: str) -> tuple[Any, ...]:
        """The key of a row that the statement, or the query before it, returned."""
        return tuple([row[f"{prefix}_{column}"] for column in self.table.key])

    def new_row(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The row that an INSERT makes, with these parameters."""
        return self._constants | {column: params[name] for column, name in self._parameters.items()}

    @cached_property
    def _constants(self) -> dict[str, Any]:
        literals = {column: _literal(sql) for column, sql in self.values.items() if sql[0] != ":"}
        return {**self.table.columns, **literals}

    @cached_property
    def _parameters(self) -> dict[str, str]:
        return {column: sql[1:] for column, sql in self.values.items() if sql[0] == ":"}


@cache
def record(text: str, *, joins: bool) -> tuple[str, Recording | None]:
    """The text as it is run, and its recording; None for a statement that changes nothing that is recorded.

    `joins`: the database can return what a row was, by a join of the table with itself.
    Raises ValueError for a statement on a recorded table whose form is not known.
    """
    head = _HEAD.match(text)
    if head is None or head[2] not in RECORDED:
        return text, None
    table = RECORDED[head[2]]
    if head[1] == "INSERT INTO":
        return text, _insert(text, table, head[3])
    clauses = _clauses(head[3])
    if "WHERE" not in clauses or (head[1] == "UPDATE") != ("SET" in clauses):
        raise ValueError(f"these clauses are not read: {text}")
    if head[1] == "DELETE FROM":
        return _delete(text, table)
    return _update(text, head[2], clauses, joins=joins)


def _insert(text: str, table: RecordedTable, rest: str) -> Recording:
    form = _INSERT.fullmatch(rest)
    names, values = (_parts(form[1]), _parts(form[2])) if form else ([], [])
    if not names or len(names) != len(values) or not all(map(_VALUE.fullmatch, values)):
        raise ValueError(f"these values are not read: {text}")
    return Recording(table, "insert", tuple(table.columns), dict(zip(names, values, strict=True)))


def _delete(text: str, table: RecordedTable) -> tuple[str, Recording]:
    recording = Recording(table, "delete", tuple(table.columns))
    return f"{text} RETURNING {_aliases('was', recording.result_columns)}", recording


def _update(text: str, name: str, clauses: Mapping[str, str], *, joins: bool) -> tuple[str, Recording | None]:
    table = RECORDED[name]
    written = {part.partition("=")[0].strip() for part in _parts(clauses["SET"])}
    columns = tuple(column for column in table.columns if column in written)
    if not columns:
        return text, None
    recording = Recording(table, "update", columns)
    returned = ([clauses["RETURNING"]] if "RETURNING" in clauses else []) + [
        _aliases("now", recording.result_columns, name)
    ]
    before = f"SELECT {_aliases('was', recording.result_columns)} FROM {name} WHERE {clauses['WHERE']}"  # noqa: S608
    update = f"UPDATE {name} SET {clauses['SET']}"  # noqa: S608 - all of it is from the house's own statements
    if not joins:
        run = f"{update} WHERE {clauses['WHERE']} RETURNING {', '.join(returned)}"
        return run, Recording(table, "update", columns, before=before)
    same = " AND ".join(f"{name}.{column} = was.was_{column}" for column in table.key)
    returned += [f"was_{column}" for column in recording.result_columns]
    return f"{update} FROM ({before} {{for_update}}) AS was WHERE {same} RETURNING {', '.join(returned)}", recording


def _aliases(prefix: str, columns: tuple[str, ...], table: str = "") -> str:
    qualifier = f"{table}." if table else ""
    return ", ".join(f"{qualifier}{column} AS {prefix}_{column}" for column in columns)


def _clauses(text: str) -> dict[str, str]:
    """What follows each of SET, WHERE and RETURNING, outside brackets."""
    places = list(_CLAUSE.finditer(_without_brackets(text)))
    ends = [place.start() for place in places[1:]] + [len(text)]
    return {place[1]: text[place.end() : end].strip() for place, end in zip(places, ends, strict=bool(places))}


def _parts(text: str) -> list[str]:
    """What the commas outside brackets divide."""
    commas = [place for place, character in enumerate(_without_brackets(text)) if character == ","]
    starts, ends = [0, *(place + 1 for place in commas)], [*commas, len(text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _without_brackets(text: str) -> str:
    """The text with everything in brackets replaced by blanks."""
    return "".join(_outside(text))


def _outside(text: str) -> Iterator[str]:
    depth = 0
    for character in text:
        depth -= character == ")"
        yield character if depth == 0 else " "
        depth += character == "("


def _literal(sql: str) -> Any:
    return sql[1:-1] if sql[0] == "'" else json.loads(sql.lower())


def record_all(
    statements: Mapping[str, str], render: Callable[[str], str], *, joins: bool
) -> tuple[dict[str, str], dict[str, Recording]]:
    """The statements as the database takes them, and the recordings of those that have one, by name.

    The query for the rows as they were is among the statements, as `<name> before`.
    """
    texts: dict[str, str] = {}
    recordings: dict[str, Recording] = {}
    for name, statement in statements.items():
        text, recording = record(statement, joins=joins)
        texts[name] = render(text)
        if recording is not None:
            recordings[name] = recording
            if recording.before is not None:
                texts[f"{name} before"] = render(recording.before)
    return texts, recordings
