"""Rows by their ids, locked or not; NotFound with a hint where to look when there is none."""

from typing import Literal

from crewhall.errors import NotFound
from crewhall.store.transaction import Look, Row, Tx

Kind = Literal["agent", "message", "task", "template", "workflow", "workspace"]
HINTS: dict[Kind, str] = {
    "agent": "agent_list shows the agents; agent_register makes one.",
    "message": "message_list shows the messages of an inbox.",
    "task": "task_list and workflow_next_tasks show a workflow's tasks.",
    "template": "template_list shows the templates; template_create makes one.",
    "workspace": "workspace_list shows the workspaces of a workflow; workspace_create makes one.",
    "workflow": "workflow_list shows the workflows; workflow_create makes one.",
}


def get(look: Look, kind: Kind, thing_id: str) -> Row:
    """The row of a thing. Raises NotFound."""
    return _refuse_missing(look.one(f"{kind}_get", id=thing_id), kind, thing_id)


def get_locked(tx: Tx, kind: Literal["agent", "workflow"], thing_id: str) -> Row:
    """The columns of a thing that change, locked until commit. Raises NotFound."""
    return _refuse_missing(tx.one(f"{kind}_lock", id=thing_id), kind, thing_id)


def _refuse_missing(row: Row | None, kind: Kind, thing_id: str) -> Row:
    if row is None:
        raise no_such(kind, thing_id)
    return row


def no_such(kind: Kind, thing_id: str) -> NotFound:
    return NotFound(f"there is no {kind} '{thing_id}'", hint=HINTS[kind])
