"""Pure rules of workspaces: names of branches, where one may be, how one may end, and who may end it."""

import re
from collections.abc import Iterable

from crewhall.errors import Conflict, Forbidden, InvalidInput, InvalidTransition
from crewhall.families.work.task.model import TaskHeld, TaskNamed
from crewhall.families.work.workspace.model import WorkspaceRow
from crewhall.identity import Actor
from crewhall.paths import is_below

SLUG = 40  # letters of a task's name in its branch


def branch_for(task: TaskNamed) -> str:
    """The branch of a task's own workspace: its name in plain letters, and the end of its id."""
    words = re.findall(r"[a-z0-9]+", task["name"].lower())
    slug = "-".join(words)[:SLUG].strip("-") or "task"
    return f"{slug}-{task['id'][-6:]}"


def refuse_undecodable(*names: str) -> None:
    """Raise InvalidInput for a name on the disk whose bytes are no text, which neither a row nor an answer can hold."""
    for name in names:
        if name != name.encode("utf-8", "replace").decode():
            raise InvalidInput(f"{name!a} is no UTF-8 text", hint="Give a path and a base_branch that are.")


def refuse_place(actor: Actor, path: str, home: str, git_dir: str, others: Iterable[str]) -> None:
    """Raise InvalidInput, Conflict, Forbidden where a new worktree cannot be, or its maker may not put it.

    `others` are the repository's linked worktrees. An agent's goes into `home`, where all of them are.
    """
    if is_below(path, git_dir):
        raise InvalidInput(f"{path} is inside git's own directory", hint=f"Choose a path in {home}.")
    around = next((other for other in others if path != other and is_below(path, other)), None)
    if around is not None:
        raise Conflict(f"{path} is inside the worktree {around}", hint=f"Choose a path in {home}.")
    if actor.kind == "agent" and path.rpartition("/")[0] != home:
        raise Forbidden(
            f"an agent's new worktree goes right into {home}, and {path} is elsewhere",
            hint="Leave path out, or choose one in there. The operator may choose any.",
        )


def refuse_other_branch(path: str, there: str | None, branch: str) -> None:
    """Raise Conflict when the worktree at a path is on another branch."""
    if there != branch:
        raise Conflict(
            f"{path} is a worktree on {there or 'no branch'}, not on {branch}",
            hint="Name the branch that is checked out there, or choose another path.",
        )


def refuse_gone(workspace: WorkspaceRow, *, is_there: bool) -> None:
    """Raise Conflict when a workspace's worktree was taken away by another hand."""
    if not is_there:
        raise Conflict(
            f"the worktree of workspace {workspace['id']} at {workspace['path']} is gone",
            hint="End that workspace with workspace_update, and create it anew.",
        )


def refuse_end(workspace: WorkspaceRow, status: str, merge_commit: str | None) -> None:
    """Raise InvalidInput when a merge names no commit, InvalidTransition for what has ended otherwise already."""
    if status == "merged" and merge_commit is None:
        raise InvalidInput("merged needs merge_commit", hint="Give the commit that brought the branch in.")
    if status != "merged" and merge_commit is not None:
        raise InvalidInput(f"merge_commit goes with status merged, not {status}", hint="Leave one of the two out.")
    if workspace["status"] not in ("active", status):
        raise InvalidTransition(
            f"workspace {workspace['id']} is {workspace['status']}, and stays so",
            hint="workspace_create makes a new one.",
        )


def refuse_others_place(place: str, held: TaskHeld | None, actor: Actor) -> None:
    """Raise Forbidden when a worker would end a place, a workspace or a workflow, in which another agent is at a task.

    `held` is a task in it that another agent holds.
    """
    if actor.kind == "agent" and actor.role != "coordinator" and held is not None:
        raise Forbidden(
            f"{held['claimed_by']} is at task {held['id']} in {place}",
            hint="Ask that agent, a coordinator or the operator.",
        )
