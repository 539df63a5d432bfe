"""The event log, replayed: the rows that its changes make, forwards from nothing or backwards from the tables."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from crewhall.app import Hub
from crewhall.identity import OPERATOR
from crewhall.store.transaction import Row
from tests.families.work.workflows import sql

State = dict[str, dict[str, Row]]  # by noun and id, what is not null
Change = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Where rows of a noun are, and what a replay must give of them."""

    name: str
    key: str
    columns: str = ""

    def rows(self, hub: Hub) -> dict[str, Row]:
        rows = sql(hub, f"SELECT {', '.join([f'{self.key} AS key', *self.columns.split()])} FROM {self.name}")
        return {row.pop("key"): {name: value for name, value in row.items() if value is not None} for row in rows}


# In words of this test: a column that the log forgets is missed here.
TABLES = {
    "workflow": Table(
        "workflow",
        "id",
        "name status status_reason halted_by hall_pause paused_from repository_path max_parallel_tasks reviewer "
        "created_at started_at finished_at archived_at",
    ),
    "task": Table(
        "task",
        "id",
        "workflow_id name status sequence parallel_group claimed_by claim_epoch claimed_at workspace_id created_at "
        "started_at finished_at",
    ),
    "dependency": Table("task_dependency", "task_id || '/' || depends_on_id"),
    "claim": Table("claim", "task_id || '/' || CAST(epoch AS text)", "agent_id claimed_at ended_at ended_how"),
    "agent": Table(
        "agent", "id", "name runtime role type status current_task_id disconnected_since archived_at created_at"
    ),
    "instance": Table(
        "instance",
        "id",
        "agent_id type status runtime repository_path worktree branch base_branch tier issue_number pull_number "
        "pull_url parent ended_how ended_at created_at",
    ),
    "review": Table(
        "instance_relationships",
        "parent_instance || '/' || child_instance",
        "relationship_type review_iteration outcome converged created_at ended_at",
    ),
    "feedback": Table(
        "review_feedback",
        "id",
        "reviewer coder review_iteration feedback_type priority git_commit merge_commit created_at",
    ),
    "item": Table("review_item", "id", "coder feedback_id position file is_blocking state claim times created_at"),
}


def stored(hub: Hub) -> State:
    """What the tables hold."""
    return {noun: table.rows(hub) for noun, table in TABLES.items()}


def events_after(hub: Hub, cursor: int) -> Iterator[dict[str, Any]]:
    """The events as event_list gives them, page by page."""
    while True:
        page = hub.call("event_list", {"after": cursor, "limit": 500}, OPERATOR)
        yield from page["events"]
        if page["cursor"] >= page["newest"]:
            return
        cursor = page["cursor"]


def changes_in(events: Iterable[dict[str, Any]]) -> list[Change]:
    return [change for event in events for change in event["changes"]]


def reverse(changes: list[Change]) -> list[Change]:
    """The changes that undo these, the last first."""
    return [change | {"before": change["after"], "after": change["before"]} for change in reversed(changes)]


class Replay:
    """Rows that follow the changes; each change must begin where the last one of its row ended."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        self.cursor = 0

    def follow(self, hub: Hub) -> None:
        """Take in what is new in the log."""
        for event in events_after(hub, self.cursor):
            self.apply(event["changes"])
            self.cursor = event["seq"]

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            key, before, after = (change["noun"], change["id"]), change["before"], change["after"]
            row = self.rows.pop(key, None)
            assert (row is None) == (before is None), f"made twice, or changed and never made: {change}"
            held = None if row is None or before is None else {name: row.get(name) for name in before}
            assert held == before, f"{key} is {held} before {change}"
            if after is None:
                assert row == before, f"a deleted row is given whole: {row}, {change}"
            else:
                self.rows[key] = {name: value for name, value in ((row or {}) | after).items() if value is not None}

    @property
    def state(self) -> State:
        """Its rows, with the columns that are compared."""
        found: State = {noun: {} for noun in TABLES}
        for (noun, row_id), row in self.rows.items():
            compared = TABLES[noun].columns.split()
            found[noun][row_id] = {name: value for name, value in row.items() if name in compared}
        return found


def assert_replayed(hub: Hub) -> None:
    """The whole log gives what the tables hold, and undone from there, nothing."""
    changes = changes_in(events_after(hub, 0))
    replay = Replay()
    replay.apply(changes)
    assert replay.state == stored(hub)
    replay.apply(reverse(changes))
    assert not replay.rows
