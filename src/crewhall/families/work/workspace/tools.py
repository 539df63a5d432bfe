"""Workspaces: git worktrees in which tasks are done side by side (seed 003), and which would conflict (ours)."""

import json
from collections import defaultdict
from typing import Annotated, Any

from pydantic import Field

from crewhall.app import Call
from crewhall.bounded import AnyOf, Limit, Offset, page, rows_and_total
from crewhall.errors import InvalidInput, NotFound
from crewhall.families.work.claim.leases import hint_task, task_to_write
from crewhall.families.work.claim.model import Epoch
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get, get_locked, hint_get, hint_get_locked
from crewhall.families.work.model import Done, Path, TaskId, WorkflowId
from crewhall.families.work.workspace.creation import WorkspaceRequest, create, put_task
from crewhall.families.work.workspace.forecast import forecast_of
from crewhall.families.work.workspace.model import (
    Branch,
    Commit,
    Workspace,
    WorkspaceForecast,
    WorkspaceId,
    WorkspaceMade,
    WorkspaceRow,
    Workspaces,
    WorkspaceStatus,
    WorkspaceUpdated,
)
from crewhall.families.work.workspace.removal import end, refuse_elsewhere
from crewhall.families.work.workspace.rules import refuse_end, refuse_others_place
from crewhall.store.transaction import Tx

NAMED = 20  # tasks of one workspace


@work.tool("workspace_create", changes=True, idempotent=True, pace="long", profiles=("coordinator",))
def workspace_create(
    call: Call,
    workflow_id: WorkflowId,
    branch: Branch,
    path: Annotated[Path, Field(description="Left out: beside the repository, in <repo>-worktrees.")] | None = None,
    base_branch: Annotated[Branch, Field(description="Left out: what the repository has checked out.")] | None = None,
    task_ids: Annotated[list[TaskId], Field(max_length=100)] | None = None,
) -> WorkspaceMade:
    """Make a git worktree of the workflow's repository on a branch of its own, to do tasks in.

    A worktree that is there already on that branch is used, and never removed. The same call again changes nothing.
    """
    row = create(call, workflow_id, WorkspaceRequest(branch, path, base_branch, task_ids or ()))
    made: dict[str, Any] = {name: value for name, value in row.items() if name in WorkspaceMade.model_fields}
    return WorkspaceMade(**made)


@work.tool("workspace_update", changes=True, idempotent=True, destructive=True, pace="long", profiles=("coordinator",))
def workspace_update(
    call: Call,
    id: WorkspaceId,
    status: WorkspaceStatus | None = None,
    merge_commit: Annotated[Commit, Field(description="merged needs it; taken as given, not looked up.")] | None = None,
) -> WorkspaceUpdated:
    """End a workspace: merged or abandoned. Its worktree and branch are removed if the hall made them.

    Uncommitted and unmerged work is saved under a git ref first.
    """
    if status is None:
        raise InvalidInput("status is missing", hint="Say merged, with merge_commit, or abandoned.")
    with call.begin() as tx:
        row = _get_locked(tx, id)
        refuse_end(row, status, merge_commit)
        refuse_others_place(f"workspace {id}", tx.one("workspace_held", id=id, agent_id=call.actor.id), call.actor)
        refuse_elsewhere(row, call.settings.node)
        if row["status"] != status:
            tx.run("workspace_status_set", id=id, status=status, merge_commit=merge_commit, now=call.now)
            tx.event("workspace.updated", id, before=row["status"], after=status)
    if status != "active":
        row = end(call, row)
    fields = {"worktree": row["worktree"], "saved_refs": json.loads(row["saved_refs"]), "problem": row["problem"]}
    return WorkspaceUpdated(success=True, **fields)


def _get_locked(tx: Tx, workspace_id: str) -> WorkspaceRow:
    """A workspace, locked until commit. Raises NotFound."""
    workflow_id = get(tx, "workspace", workspace_id)["workflow_id"]
    hint_get_locked(tx, "workflow", workflow_id)
    hint_get(tx, "workspace", workspace_id)
    get_locked(tx, "workflow", workflow_id)
    return get(tx, "workspace", workspace_id)


@work.tool(
    "workspace_list", profiles=("coordinator", "reviewer"), resources=("crewhall://workflows/{workflow_id}/workspaces",)
)
def workspace_list(
    call: Call,
    workflow_id: WorkflowId,
    status: AnyOf[WorkspaceStatus] | None = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Workspaces:
    """The workspaces of a workflow, the oldest first: where each is, on which branch, and for which tasks."""
    chosen = {"workflow_id": workflow_id, "statuses": json.dumps(status) if status else None}
    with call.begin() as tx:
        hint_get(tx, "workflow", workflow_id)
        rows, total = rows_and_total(tx, "workspaces", chosen, limit=limit, offset=offset)
        get(tx, "workflow", workflow_id)
        tasks = rows and tx.all("workspace_tasks", ids=json.dumps([row["id"] for row in rows]), limit=NAMED * 500)
    inside: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        inside[task["workspace_id"]].append(task["id"])
    listed = (Workspace.from_row(row, inside[row["id"]][:NAMED]) for row in rows)
    items, following = page(listed, total, offset)
    return Workspaces(workspaces=items, total=total, next_offset=following)


@work.tool("task_assign_workspace", changes=True, idempotent=True, profiles=("coordinator",))
def task_assign_workspace(
    call: Call, task_id: TaskId, workspace_id: WorkspaceId, claim_epoch: Epoch | None = None
) -> Done:
    """Say in which workspace a task is done."""
    with call.begin() as tx:
        hint_task(tx, task_id)
        hint_get(tx, "workspace", workspace_id)  # after the lock
        _, task = task_to_write(call, tx, task_id, claim_epoch, notes_only=True)
        workspace = get(tx, "workspace", workspace_id)
        if workspace["status"] != "active":
            raise NotFound(
                f"workspace {workspace_id} is {workspace['status']}", hint="workspace_list shows the active ones."
            )
        put_task(call, tx, task, workspace)
    return Done(success=True)


@work.tool("workspace_forecast", ours=True, pace="long", profiles=("coordinator", "reviewer"))
def workspace_forecast(call: Call, workflow_id: WorkflowId) -> WorkspaceForecast:
    """Which live workspaces would conflict if they were merged now, and in which files; uncommitted work counts.

    Those of other workflows in the same repository are compared too. Nothing in the repository changes.
    """
    with call.begin() as tx:
        get(tx, "workflow", workflow_id)
    return forecast_of(call, workflow_id)
