"""
How workspaces end: what is the hall's own is removed from the disk, at once or by a chore, and what was found stays.

The row says first that the workspace is over; whoever is killed after that leaves the rest to the chore.
"""

import json
import logging
from typing import cast

from crewhall.app import Call
from crewhall.errors import Failure, TimedOut, Unavailable
from crewhall.families.project.open_worktrees import LISTENER, close_of_workspace
from crewhall.families.work.workspace.model import WorkspaceRow
from crewhall.outside.git import GitRepository, open_repository
from crewhall.outside.removal import remove_worktree
from crewhall.outside.worktrees import at
from crewhall.stop import Part, Stop
from crewhall.store.transaction import Look, Row, Tx

TO_REMOVE = ("wanted", "made")  # worktrees that are the hall's own, and there or half made
AGAIN_MS = 30_000  # between two tries to remove one
log = logging.getLogger(__name__)


def end(call: Call, row: WorkspaceRow) -> WorkspaceRow:
    """Remove an ended workspace's worktree if that can be done now; the row as it is then."""
    if row["worktree"] not in TO_REMOVE:
        return row
    changed = try_removal(row, call.hub.store, Part(call.stop))
    with call.begin() as tx:
        note_removed(tx, row, changed, call.now)
    call.state(LISTENER).nudge()
    return cast(WorkspaceRow, {**row, **changed})


def try_removal(row: WorkspaceRow, look: Look, stop: Stop) -> Row:
    """What is new about a workspace after its worktree was removed, or was not."""
    other = look.one("workspace_beside", id=row["id"], path=row["path"])
    if other is not None:
        return problem_row(f"{row['path']} is that of workspace {other['id']} too, which is active")
    try:
        kept = _saved_refs(open_repository(row["repository_path"], stop), row)
    except TimedOut:
        return problem_row(f"{row['path']} could not be removed in time")
    except Failure as failure:
        return problem_row(failure.message)
    except OSError as error:
        return problem_row(f"{row['path']} can't be removed: {error.strerror or error}")
    return {"worktree": "removed", "saved_refs": json.dumps(kept), "problem": None}


def problem_row(why: str) -> Row:
    return {"problem": why.encode("utf-8", "replace").decode()[:500]}  # a path in it may be no text


def _saved_refs(repo: GitRepository, row: WorkspaceRow) -> list[str]:
    """Remove the worktree; the refs that keep its work, also those of an earlier try that was killed before it told.

    Where git never ran, the row only says what was meant, and a branch of that name may be a person's.
    """
    ref = f"refs/crewhall/{row['id']}"
    is_made = row["worktree"] == "made" or at(repo, row["path"]) is not None
    removed = remove_worktree(repo, row["path"], row["branch"], is_made and bool(row["has_made_branch"]), ref)
    if removed.was_there and not is_made:  # it came while this call waited for others in the repository
        remove_worktree(repo, row["path"], row["branch"], bool(row["has_made_branch"]), ref)
    return repo.text("for-each-ref", "--format=%(refname)", ref, f"{ref}-*").split()


def note_removed(tx: Tx, row: WorkspaceRow, changed: Row, now: int) -> None:
    if changed["problem"] is not None:
        tx.run("workspace_problem", id=row["id"], problem=changed["problem"], now=now)
        return
    close_of_workspace(tx, row["id"])
    if tx.count("workspace_removed", id=row["id"], saved_refs=changed["saved_refs"], now=now):
        data = json.dumps({"saved_refs": json.loads(changed["saved_refs"])[:5]})
        tx.event("workspace.removed", row["id"], data=data)


def refuse_elsewhere(row: WorkspaceRow, node: str) -> None:
    """Raise Unavailable when the workspace's directory is the hall's own and on another machine."""
    if row["node"] != node and row["worktree"] in TO_REMOVE:
        raise Unavailable(
            f"workspace {row['id']} is on node {row['node']}, and this hub is on {node}",
            hint="Ask a hub on that node.",
        )
