"""Rows by their ids, locked or not; NotFound with a hint where to look when there is none."""

from collections.abc import Mapping
from typing import Any, Literal, overload

from crewhall.errors import NotFound
from crewhall.families.work.agent.model import AgentLocked, AgentRow
from crewhall.families.work.message.model import MessageRow
from crewhall.families.work.task.model import TaskRow
from crewhall.families.work.template.model import TemplateRow
from crewhall.families.work.workflow.model import WorkflowLocked, WorkflowRow
from crewhall.families.work.workspace.model import WorkspaceRow
from crewhall.store.transaction import Look, Tx

Kind = Literal["agent", "message", "task", "template", "workflow", "workspace"]
HINTS: dict[Kind, str] = {
    "agent": "agent_list shows the agents; agent_register makes one.",
    "message": "message_list shows the messages of an inbox.",
    "task": "task_list and workflow_next_tasks show a workflow's tasks.",
    "template": "template_list shows the templates; template_create makes one.",
    "workspace": "workspace_list shows the workspaces of a workflow; workspace_create makes one.",
    "workflow": "workflow_list shows the workflows; workflow_create makes one.",
}


@overload
def get(look: Look, kind: Literal["agent"], thing_id: str) -> AgentRow: ...
@overload
def get(look: Look, kind: Literal["task"], thing_id: str) -> TaskRow: ...
@overload
def get(look: Look, kind: Literal["template"], thing_id: str) -> TemplateRow: ...
@overload
def get(look: Look, kind: Literal["workflow"], thing_id: str) -> WorkflowRow: ...
@overload
def get(look: Look, kind: Literal["workspace"], thing_id: str) -> WorkspaceRow: ...
@overload
def get(look: Look, kind: Literal["message"], thing_id: str) -> MessageRow: ...
def get(look: Look, kind: Kind, thing_id: str) -> Any:
    """The row of a thing. Raises NotFound."""
    return _refuse_missing(look.one(f"{kind}_get", id=thing_id), kind, thing_id)


@overload
def get_locked(tx: Tx, kind: Literal["agent"], thing_id: str) -> AgentLocked: ...
@overload
def get_locked(tx: Tx, kind: Literal["workflow"], thing_id: str) -> WorkflowLocked: ...
def get_locked(tx: Tx, kind: Literal["agent", "workflow"], thing_id: str) -> Any:
    """The columns of a thing that change, locked until commit. Raises NotFound."""
    return _refuse_missing(tx.one(f"{kind}_lock", id=thing_id), kind, thing_id)


def hint_get(tx: Tx, kind: Kind, thing_id: str | None) -> None:
    """Let the row that `get` gives, if one is named, travel with what is asked next."""
    if thing_id is not None:
        tx.ahead(f"{kind}_get", id=thing_id)


def hint_get_locked(tx: Tx, kind: Literal["agent", "workflow"], thing_id: str) -> None:
    """The same for `get_locked`. What is locked before it must have been asked for before it."""
    tx.ahead(f"{kind}_lock", id=thing_id)


def hint_all(tx: Tx, queries: Mapping[str, Mapping[str, Any]]) -> None:
    """Let queries, each with its parameters, travel with what is asked next."""
    for name, params in queries.items():
        tx.ahead(name, **params)


def _refuse_missing(row: Any | None, kind: Kind, thing_id: str) -> Any:
    if row is None:
        raise no_such(kind, thing_id)
    return row


def no_such(kind: Kind, thing_id: str) -> NotFound:
    return NotFound(f"there is no {kind} '{thing_id}'", hint=HINTS[kind])
