"""Typed rows: each has the columns of its queries, with the types that the schema of a fresh hall gives them."""

import re
import sys
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import psycopg
import pysqlite3.dbapi2 as sqlite3
import pytest

from crewhall.app import Hub
from crewhall.families.crew.model import InstanceMessageRow, InstanceRow
from crewhall.families.pulls.pull_rows import StoredPull
from crewhall.families.review.model import FeedbackRow, IssueRow, ItemRow, MentionRow, RoundRow, TaskUnderReview
from crewhall.families.work.agent.model import (
    AgentFound,
    AgentIntroduced,
    AgentLapsed,
    AgentLocked,
    AgentNamed,
    AgentPresence,
    AgentRow,
)
from crewhall.families.work.checkpoint.model import CheckpointRow
from crewhall.families.work.claim.model import ClaimRow
from crewhall.families.work.message.model import MessageRow
from crewhall.families.work.repository.model import RepositoryRow
from crewhall.families.work.reservation.model import ReservationHeld, ReservationRow
from crewhall.families.work.task.model import TaskAround, TaskDependency, TaskFree, TaskHeld, TaskNamed, TaskRow
from crewhall.families.work.template.model import TemplateListed, TemplateRow
from crewhall.families.work.workflow.model import WorkflowListed, WorkflowLocked, WorkflowRow, WorkflowState
from crewhall.families.work.workspace.model import WorkspaceRow
from crewhall.journal import OperationRow
from tests.families.work.claims import rows

Column = tuple[type, bool]  # its Python type, and whether it can be NULL


@dataclass(frozen=True)
class Held:
    """A row's type, the table it is of, its queries, and where columns come from that are not the table's own.

    Such a column is named `table.column`, with `?` when a join may find none, or is the type of an expression.
    """

    row: type
    table: str
    queries: tuple[str, ...]
    others: dict[str, str | type] = field(default_factory=dict)


LEASE: dict[str, str | type] = {"lease_expires_at": "agent.lease_until?"}
ROWS = [
    Held(InstanceRow, "instance", ("instance_get", "instance_lock", "instances", "instances_on_node")),
    Held(InstanceMessageRow, "instance_message", ("instance_messages_open", "instance_message_get")),
    Held(RoundRow, "instance_relationships", ("review_open", "review_by", "reviews_open", "reviews_last")),
    Held(FeedbackRow, "review_feedback", ("feedback_get", "feedback_pending")),
    Held(ItemRow, "review_item", ("items_of_coder", "items_open", "item_lock")),
    Held(MentionRow, "review_mention", ("mentions_of_coder",)),
    Held(TaskUnderReview, "task", ("task_under_review",), {"reviewer": "workflow.reviewer"}),
    Held(IssueRow, "instance_issue", ("issue_find", "issue_get")),
    Held(TaskNamed, "task", ("lower_open", "chain")),
    Held(TaskDependency, "task", ("dependencies",)),
    Held(TaskFree, "task", ("tasks_free",)),
    Held(
        TaskAround,
        "task",
        ("repository_tasks",),
        {
            "workflow_name": "workflow.name",
            "workflow_status": "workflow.status",
            "agent_id": "agent.id?",
            "agent_name": "agent.name?",
            "workspace_path": "workspace.path?",
            "total": int,
        },
    ),
    Held(TaskRow, "task", ("task_get", "task_lock", "tasks", "tasks_available"), LEASE),
    Held(ClaimRow, "claim", ("claim_of", "claim_at")),
    Held(TaskHeld, "task", ("workflow_held", "workspace_held")),
    Held(WorkflowState, "workflow", ("workflow_state",)),
    Held(
        WorkflowLocked,
        "workflow",
        ("workflow_lock", "workflow_lock_of_task", "workflow_share_of_task"),
        {"has_plan": int},
    ),
    Held(WorkflowRow, "workflow", ("workflow_get",)),
    Held(WorkflowListed, "workflow", ("workflows",)),
    Held(CheckpointRow, "checkpoint", ("checkpoint_get", "checkpoints", "checkpoints_newest", "context_checkpoints")),
    Held(RepositoryRow, "repository", ("repository_get", "repositories")),
    Held(TemplateListed, "template", ("templates",)),
    Held(TemplateRow, "template", ("template_get",)),
    Held(WorkspaceRow, "workspace", ("workspace_get", "workspace_at", "workspaces")),
    Held(
        MessageRow,
        "message",
        ("message_get",),
        {"form": "message_text.form", "body": "message_text.body", "letters": int},
    ),
    Held(ReservationHeld, "file_reservation", ("reservations_of_others",), {"agent_name": "agent.name"}),
    Held(
        ReservationRow,
        "file_reservation",
        ("reservations",),
        {"agent_name": "agent.name", "repository_path": "file_area.repository_path"},
    ),
    Held(OperationRow, "operation", ("operations_take",)),
    Held(StoredPull, "pull", ("pull_get",)),
    Held(AgentFound, "agent", ("agents_lock",), {"holds_tasks": int}),
    Held(AgentPresence, "agent", ("names_doubled",)),
    Held(AgentLocked, "agent", ("agent_lock",)),
    Held(AgentNamed, "agent", ("agents_named",), {"is_reserved": int}),
    Held(AgentLapsed, "agent", ("agents_lapsed",)),
    Held(AgentRow, "agent", ("agent_get", "agents"), LEASE),
    Held(AgentIntroduced, "agent", ("agent_introduce",)),
]
each_row = pytest.mark.parametrize("held", ROWS, ids=lambda held: held.row.__name__)
TYPES = {"text": str, "integer": int, "bigint": int}


def columns(database: str, table: str) -> dict[str, Column]:
    """The columns of a table, as the database itself tells them."""
    if "://" in database:
        text = "SELECT column_name AS name, data_type AS type, is_nullable = 'YES' AS nullable"
        found = rows(database, f"{text} FROM information_schema.columns WHERE table_name = '{table}'")
    else:
        text = 'SELECT name, type, "notnull" = 0 AND pk = 0 AS nullable'
        found = rows(database, f"{text} FROM pragma_table_info('{table}')")
    return {row["name"]: (TYPES[row["type"].lower()], bool(row["nullable"])) for row in found}


def column(database: str, held: Held, name: str) -> Column:
    """What a row's column holds by the schema."""
    source = held.others.get(name, f"{held.table}.{name}")
    if isinstance(source, type):
        return source, False
    table, _, origin = source.partition(".")
    kind, nullable = columns(database, table)[origin.removesuffix("?")]
    return kind, nullable or origin.endswith("?")


def told_by(hint: Any) -> Column:
    """What a row's column holds by its type."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    [kind] = {str if get_origin(part) is Literal else part for part in parts if part is not NoneType}
    return kind, NoneType in parts


def words_of(hint: Any) -> set[str] | None:
    """The words that a column's type allows, or None when it is any text."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return next((set(get_args(part)) for part in parts if get_origin(part) is Literal), None)


@each_row
def test_a_rows_columns_have_the_types_of_the_schema(database: str, held: Held) -> None:
    hints = get_type_hints(held.row)
    assert {name: told_by(hint) for name, hint in hints.items()} == {
        name: column(database, held, name) for name in hints
    }


@each_row
def test_a_row_has_the_columns_of_its_queries(database: str, hub: Hub, held: Held) -> None:
    given: dict[str, int | None] = defaultdict(lambda: None, limit=1, offset=0)
    connect = psycopg.connect if "://" in database else sqlite3.connect
    with closing(connect(database)) as connection:
        for query in held.queries:
            cursor = connection.execute(hub.store.texts[query], given)
            names = [found[0] for found in cursor.description or () if not found[0].startswith(("was_", "now_"))]
            assert sorted(names) == sorted(get_type_hints(held.row)), query


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # one text makes the tables of both
@each_row
def test_a_row_knows_the_words_that_its_table_allows(database: str, held: Held) -> None:
    [made] = rows(database, f"SELECT sql FROM sqlite_master WHERE type = 'table' AND name = '{held.table}'")
    checked = dict(re.findall(r"CHECK \((\w+) IN \(([^)]*)\)\)", made["sql"]))
    hints = {name: hint for name, hint in get_type_hints(held.row).items() if name not in held.others}
    assert {name: words for name, hint in hints.items() if (words := words_of(hint))} == {
        name: set(re.findall(r"'(\w+)'", checked[name])) for name in hints if name in checked
    }


def is_held(row: Any) -> bool:
    """Whether a row is held itself, or is a part of one that is."""
    hints = get_type_hints(row)
    return any(all(get_type_hints(held.row).get(name) == hint for name, hint in hints.items()) for held in ROWS)


def test_every_typed_row_is_held_against_the_schema() -> None:
    typed = {
        value
        for name, module in list(sys.modules.items())
        if name.startswith("crewhall.")
        for value in vars(module).values()
        if is_typeddict(value) and value.__module__ == name
    }
    missing = sorted(f"{one.__module__}.{one.__name__}" for one in typed if not is_held(one))
    assert not missing, f"{', '.join(missing)}: add a Held to ROWS in tests/contract/test_rows.py, with its queries"
