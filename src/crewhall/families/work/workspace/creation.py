"""
Workspaces in the hall and on the disk: first a row that says what is wanted, then git, then a row that says it is so.

    wanted ── git worktree add ──▶ made ── merged | abandoned ──▶ removed      its work saved under a ref if need be
                                   found  one that a person made: it is used, and never removed

Whatever is killed in between, the row tells what is left to do: the next call with the same words finishes a worktree,
and a chore removes what has ended. Nothing waits for git inside a transaction.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from crewhall.app import Call
from crewhall.errors import (
    Cancelled,
    Conflict,
    Failure,
    InvalidInput,
    InvalidState,
    LimitExceeded,
    TimedOut,
    Unavailable,
)
from crewhall.families.project.open_worktrees import LISTENER, open_worktree
from crewhall.families.work.claim.rules import stale_claim
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get, get_locked
from crewhall.families.work.repository.rules import repository_path
from crewhall.families.work.task.model import FINISHED, TaskRow
from crewhall.families.work.workflow.model import WorkflowState
from crewhall.families.work.workspace.model import TaskWorkspace, WorkspaceRow
from crewhall.families.work.workspace.removal import refuse_elsewhere
from crewhall.families.work.workspace.rules import (
    branch_for,
    refuse_gone,
    refuse_other_branch,
    refuse_place,
    refuse_undecodable,
)
from crewhall.identity import new_id
from crewhall.outside.git import GitRepository, open_repository
from crewhall.outside.repository_paths import is_directory
from crewhall.outside.worktree_place import safe_place, true_path
from crewhall.outside.worktrees import Added, add_worktree, at, worktrees
from crewhall.stop import Part
from crewhall.store.transaction import Row, Tx

OVER = ("completed", "abandoned")  # workflows in which nothing is done any more
MOST = 200  # live workspaces of one workflow
# Claims that make a worktree at once: git can be slow, and half of the threads stay free for short calls.
SLOTS = work.state(lambda settings: threading.BoundedSemaphore(max(1, settings["tool.threads"] // 2)))


@dataclass(frozen=True)
class WorkspaceRequest:
    """A workspace to create."""

    branch: str
    path: str | None = None
    base_branch: str | None = None
    task_ids: Sequence[str] = ()


def worktrees_directory(root: str) -> str:
    """The directory in which the hall puts the worktrees of a repository."""
    return f"{root}-worktrees"


def worktree_path(root: str, name: str) -> str:
    """Where a new worktree of that name goes. The directory may be a link, such as to a larger disk.

    Raises Forbidden when another user made that link, or could change where it leads.
    """
    return safe_place(root, os.path.join(worktrees_directory(root), name))


def create(call: Call, workflow_id: str, request: WorkspaceRequest) -> WorkspaceRow:
    """A workspace with its worktree on the disk; the same request again gives the same one.

    Raises Conflict when the path or the branch is taken, InvalidInput for a bad branch, base or task, InvalidState
    when the workflow is over or has no repository, Forbidden for a path that an agent may not choose, StaleClaim for
    another agent's task, LimitExceeded when the workflow has too many.
    """
    with call.look() as tx:
        workflow = get(tx, "workflow", workflow_id)
    repo = _repository(call, workflow)
    wanted = _requested_row(call, repo, workflow_id, request)
    with call.begin() as tx:
        _refuse_over(get_locked(tx, "workflow", workflow_id))
        for task_id in request.task_ids:
            refuse_task(call, get(tx, "task", task_id), workflow_id)
        row, is_new = _register(call, tx, wanted)
    if row["worktree"] != "wanted" and wanted["worktree"] == "wanted":
        there = at(repo, row["path"])  # another call may have made it just now
        refuse_gone(row, is_there=there is not None and not there.is_prunable)
    return _finish(call, repo, row, request.task_ids, is_new=is_new)


def _requested_row(call: Call, repo: GitRepository, workflow_id: str, request: WorkspaceRequest) -> Row:
    """The row of a requested workspace. Raises as `create` does."""
    repo.refuse_bad_branch(request.branch)
    default = os.path.join(worktrees_directory(repo.root), request.branch.replace("/", "-"))
    given = repository_path(request.path or default)
    path = true_path(given)
    base = request.base_branch or repo.current_branch()
    refuse_undecodable(repo.root, path, base)
    if repo.commit_of(base) is None:
        raise InvalidInput(f"{repo.root} has no branch or commit '{base}'", hint="Name one that `git branch` shows.")
    trees = worktrees(repo)
    there = next((tree for tree in trees if tree.path == path), None)
    is_found = there is not None and not there.is_half_made and not there.is_prunable
    if there is not None and is_found:
        refuse_other_branch(path, there.branch, request.branch)
    else:
        path = safe_place(repo.root, given)
        # Another user's link would make any place one of the repository's, for an agent.
        usual = worktree_path(repo.root, "any") if call.actor.kind == "agent" else true_path(default)
        home = os.path.dirname(usual)
        refuse_place(call.actor, path, home, repo.git_dir, [tree.path for tree in trees if not tree.is_main])
    return {
        "workflow_id": workflow_id,
        "node": call.settings.node,
        "repository_path": repo.root,
        "path": path,
        "branch": request.branch,
        "base_branch": base,
        "worktree": "found" if is_found else "wanted",
        "has_made_branch": int(not repo.branch_exists(request.branch)),  # until git has run, and knows
    }


def _refuse_over(workflow: WorkflowState) -> None:
    if workflow["status"] in OVER:
        raise InvalidState(f"workflow {workflow['id']} is {workflow['status']}", hint="A new one is for new work.")


def _repository(call: Call, workflow: WorkflowState) -> GitRepository:
    _refuse_over(workflow)
    if workflow["repository_path"] is None:
        raise InvalidState(
            f"workflow {workflow['id']} has no repository",
            hint="Give workflow_create a repository_path; workspaces are git worktrees of it.",
        )
    return open_repository(workflow["repository_path"], call.stop)


def _register(call: Call, tx: Tx, row: Mapping[str, Any]) -> tuple[WorkspaceRow, bool]:
    """Insert the row of a workspace unless it exists; the row, and whether it is new.

    Raises Conflict when its path is another's, or not free yet, LimitExceeded when the workflow has too many.
    """
    mine = {**row, "id": new_id("ws")}
    is_new = bool(tx.count("workspace_insert", **mine, now=call.now))
    if is_new:
        _refuse_many(tx, row["workflow_id"])
    if is_new and row["worktree"] == "found":
        _log_created(tx, mine)
    there = tx.one("workspace_at", node=row["node"], path=row["path"])
    leaving = tx.one("workspace_leaving", node=row["node"], path=row["path"])
    if there is None or leaving is not None:
        raise Conflict(
            f"{row['path']} is still that of workspace {leaving['id'] if leaving else 'that ended just now'}",
            hint="It is about to be removed; workspace_list tells what hinders. Try again then, or elsewhere.",
        )
    if (there["workflow_id"], there["branch"]) != (row["workflow_id"], row["branch"]):
        raise Conflict(
            f"{row['path']} is workspace {there['id']} already, on {there['branch']}",
            hint="Choose another path, or end that workspace with workspace_update.",
        )
    return there, is_new


def _refuse_many(tx: Tx, workflow_id: str) -> None:
    if tx.value("workspaces_count", workflow_id=workflow_id, statuses='["active"]') > MOST:
        raise LimitExceeded(
            f"workflow {workflow_id} has {MOST} active workspaces", hint="End some of them with workspace_update."
        )


def _log_created(tx: Tx, row: Mapping[str, Any]) -> None:
    tx.event("workspace.created", row["id"], after="active", data=json.dumps({"branch": row["branch"]}))


def refuse_task(call: Call, task: TaskRow, workflow_id: str) -> None:
    """Raise InvalidInput, InvalidState, StaleClaim when the caller can't place it in the workflow's workspaces."""
    if task["workflow_id"] != workflow_id:
        raise InvalidInput(
            f"task {task['id']} belongs to workflow {task['workflow_id']}, and the workspace to {workflow_id}",
            hint="workspace_list shows the workspaces of the task's own workflow.",
        )
    if task["status"] in FINISHED:
        raise InvalidState(f"task {task['id']} is {task['status']}", hint="Only a task that is open needs a place.")
    if call.actor.kind == "agent" and task["claimed_by"] not in (None, call.actor.id):
        raise stale_claim(task)


def put_task(call: Call, tx: Tx, task: TaskRow, workspace: WorkspaceRow) -> None:
    """A task is done in a workspace from now on. Raises InvalidInput, InvalidState, StaleClaim when it cannot be."""
    refuse_task(call, task, workspace["workflow_id"])
    if task["workspace_id"] != workspace["id"]:
        tx.run("task_place", id=task["id"], workspace_id=workspace["id"], now=call.now)
        tx.event("task.placed", task["id"], data=json.dumps({"workspace_id": workspace["id"]}))


def _finish(
    call: Call, repo: GitRepository, row: WorkspaceRow, task_ids: Sequence[str], *, is_new: bool
) -> WorkspaceRow:
    """Make the worktree and put the tasks in it; the row. If git refuses, there is no new workspace."""
    added = _make_worktree(call, repo, row, is_new=is_new) if row["worktree"] == "wanted" else None
    with call.begin() as tx:
        get_locked(tx, "workflow", row["workflow_id"])
        if tx.one("workspace_get", id=row["id"]) is None:  # a call like this one failed meanwhile, and forgot it
            row, _ = _register(call, tx, row)
        if added is not None:
            _note_made(call, tx, row, added)
        row = get(tx, "workspace", row["id"])
        if row["status"] == "active":
            for task_id in task_ids:
                put_task(call, tx, get(tx, "task", task_id), row)
    if row["status"] != "active":
        raise InvalidState(
            f"workspace {row['id']} was {row['status']} while its worktree was made",
            hint="The hall removes it again; ask for a new one if it is wanted.",
        )
    if added is not None:
        call.state(LISTENER).nudge()
    return row


def _note_made(call: Call, tx: Tx, row: WorkspaceRow, added: Added) -> None:
    if not added.was_there:
        tx.run("workspace_branch_set", id=row["id"], has_made_branch=int(added.branch_is_new))
    if tx.count("workspace_ready", id=row["id"], now=call.now):
        _log_created(tx, row)
        if call.settings["workspace.serve"]:
            open_worktree(tx, row["node"], row["path"], call.now, row["id"])


def _make_worktree(call: Call, repo: GitRepository, row: WorkspaceRow, *, is_new: bool) -> Added:
    """Make the worktree. If that fails, a workspace that is new with this call is forgotten.

    An older one stays: its worktree may be there, and the next call or the chore sees to it.
    """
    try:
        return add_worktree(repo, row["path"], row["branch"], row["base_branch"], may_be_ours=not is_new)
    except BaseException as error:
        if is_new:
            with call.hub.own_work() as tx:  # the call's own time may be over
                tx.run("workspace_leave", id=row["id"])
                tx.run("workspace_forget", id=row["id"])
        if isinstance(error, OSError):
            raise InvalidState(
                f"{row['path']} can't be made: {error.strerror}", hint="Choose a path whose parent can be written to."
            ) from None
        raise


def workspace_for(call: Call, workflow: WorkflowState, task: TaskRow) -> tuple[TaskWorkspace | None, str | None]:
    """The workspace of a claimed task, or why it has none; the claim stands in any case.

    A task keeps the workspace it was assigned. Otherwise it gets a new one if the workflow creates workspaces. That
    takes no more than a part of the call's time.
    """
    try:
        return _find_or_create(replace(call, stop=Part(call.stop)), workflow, task), None
    except (Cancelled, TimedOut):
        return None, "there was no time to make your worktree. Call task_claim again for it."
    except Failure as failure:
        return None, f"{failure.message}. {failure.hint}"
    except OSError as error:
        return None, f"no worktree can be made: {error.strerror or error}. Call task_claim again when that is mended."


def _find_or_create(call: Call, workflow: WorkflowState, task: TaskRow) -> TaskWorkspace | None:
    if not workflow["auto_create_workspaces"] and task["workspace_id"] is None:
        return None
    with call.look() as tx:
        row = None if task["workspace_id"] is None else tx.one("workspace_get", id=task["workspace_id"])
        before = sorted(one["branch"] for one in tx.all("branches_before", id=task["id"]))
    is_live = row is not None and row["status"] == "active"
    if not workflow["auto_create_workspaces"] and not is_live:
        return None
    if row is not None and is_live:
        row = _make_ready(call, workflow, row)
    else:
        with _slot(call):
            row = create(call, workflow["id"], WorkspaceRequest(branch_for(task), task_ids=[task["id"]]))
    fields = {name: row[name] for name in ("id", "path", "branch", "base_branch")}
    return TaskWorkspace(**fields, merge_first=[branch for branch in before if branch != row["branch"]])


def _make_ready(call: Call, workflow: WorkflowState, row: WorkspaceRow) -> WorkspaceRow:
    """Finish an active workspace if need be, so that work can start. Raises Unavailable, Conflict, git's errors."""
    refuse_elsewhere(row, call.settings.node)
    if row["worktree"] == "wanted":
        with _slot(call):
            return _finish(call, _repository(call, workflow), row, (), is_new=False)
    refuse_gone(row, is_there=is_directory(row["path"], "."))
    return row


@contextmanager
def _slot(call: Call) -> Iterator[None]:
    """Hold a slot for making a worktree: git may be slow, and heartbeats need threads. Raises Unavailable."""
    if not call.state(SLOTS).acquire(blocking=False):
        raise Unavailable("other worktrees are being made just now", hint="Call task_claim again for yours.")
    try:
        yield
    finally:
        call.state(SLOTS).release()
