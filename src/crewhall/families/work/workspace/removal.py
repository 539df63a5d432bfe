"""
How workspaces end: what is the hall's own is removed from the disk, at once or by a chore, and what was found stays.

The row says first that the workspace is over; whoever is killed after that leaves the rest to the chore.
"""

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from crewhall.app import Call, Tick
from crewhall.errors import Failure, TimedOut, Unavailable
from crewhall.families.work.family import work
from crewhall.families.work.lookup import locked
from crewhall.outside.git import Repository, opened
from crewhall.outside.removal import remove_worktree
from crewhall.outside.worktrees import at
from crewhall.serving import close_of_workspace
from crewhall.stop import Part, Stop
from crewhall.store.transaction import Look, Row, Tx

TO_REMOVE = ("wanted", "made")  # worktrees that are the hall's own, and there or half made
HALF_MADE_MS = 15 * 60_000  # after which a worktree that nobody finished is given up
AGAIN_MS = 30_000  # between two tries to remove one
REMOVED_AT_ONCE = 2  # in one run of the chore: other chores wait for it
CHORE_SECONDS = 45.0  # for git in one run
log = logging.getLogger(__name__)


def end(call: Call, row: Row) -> Row:
    """Remove an ended workspace's worktree if that can be done now; the row as it is then."""
    if row["worktree"] not in TO_REMOVE:
        return row
    changed = _removed(row, call.hub.store, Part(call.stop))
    with call.begin() as tx:
        _note(tx, row, changed, call.now)
    if call.hub.servers is not None:
        call.hub.servers.nudge()
    return row | changed


def _removed(row: Row, look: Look, stop: Stop) -> Row:
    """What is new about a workspace after its worktree was removed, or was not."""
    other = look.one("workspace_beside", id=row["id"], path=row["path"])
    if other is not None:
        return _hindered(f"{row['path']} is that of workspace {other['id']} too, which is active")
    try:
        kept = _saved_refs(opened(row["repository_path"], stop), row)
    except TimedOut:
        return _hindered(f"{row['path']} could not be removed in time")
    except Failure as failure:
        return _hindered(failure.message)
    except OSError as error:
        return _hindered(f"{row['path']} can't be removed: {error.strerror or error}")
    return {"worktree": "removed", "saved_refs": json.dumps(kept), "problem": None}


def _hindered(why: str) -> Row:
    return {"problem": why.encode("utf-8", "replace").decode()[:500]}  # a path in it may be no text


def _saved_refs(repo: Repository, row: Row) -> list[str]:
    """Remove the worktree; the refs that keep its work, also those of an earlier try that was killed before it told.

    Where git never ran, the row only says what was meant, and a branch of that name may be a person's.
    """
    ref = f"refs/crewhall/{row['id']}"
    is_made = row["worktree"] == "made" or at(repo, row["path"]) is not None
    removed = remove_worktree(repo, row["path"], row["branch"], is_made and bool(row["has_made_branch"]), ref)
    if removed.was_there and not is_made:  # it came while this call waited for others in the repository
        remove_worktree(repo, row["path"], row["branch"], bool(row["has_made_branch"]), ref)
    return repo.text("for-each-ref", "--format=%(refname)", ref, f"{ref}-*").split()


def _note(tx: Tx, row: Row, changed: Row, now: int) -> None:
    if changed["problem"] is not None:
        tx.run("workspace_problem", id=row["id"], problem=changed["problem"], now=now)
        return
    close_of_workspace(tx, row["id"])
    if tx.run("workspace_removed", id=row["id"], saved_refs=changed["saved_refs"], now=now):
        told = json.dumps({"saved_refs": json.loads(changed["saved_refs"])[:5]})
        tx.event("workspace.removed", row["id"], data=told)


def refuse_elsewhere(row: Row, node: str) -> None:
    """Raise Unavailable when the workspace's directory is the hall's own and on another machine."""
    if row["node"] != node and row["worktree"] in TO_REMOVE:
        raise Unavailable(
            f"workspace {row['id']} is on node {row['node']}, and this hub is on {node}",
            hint="Ask a hub on that node.",
        )


@work.chore("workspaces", seconds=30.0, everywhere=True)
def remove_ended(tick: Tick) -> None:
    """Remove the worktrees on this node whose workspaces have ended, and give up those that nobody finished.

    What there is no time for goes on at the next run.
    """
    node, stop = tick.settings.node, Stop(_seconds(tick))
    with tick.hub.store.read() as look:
        half = look.all("workspaces_half_made", node=node, before=tick.now - HALF_MADE_MS, limit=REMOVED_AT_ONCE)
        over = look.all("workspaces_over", node=node, before=tick.now - AGAIN_MS, limit=REMOVED_AT_ONCE)
    for row in half:
        _on_its_own(tick, row, partial(_give_up, tick, row))
    for row in over:
        if stop.seconds_left:
            _on_its_own(tick, row, partial(_remove, tick, row, stop))


def _seconds(tick: Tick) -> float:
    """How long git may take: signs of life are noted by another chore, well before an agent is missed."""
    missed = tick.settings["agent.heartbeat"] * tick.settings["agent.missed_beats"]
    return min(CHORE_SECONDS, float(missed) / 2)


def _on_its_own(tick: Tick, row: Row, step: Callable[[], None]) -> None:
    """Do a step of one workspace; one that fails is noted, and keeps no other back."""
    try:
        step()
    except Exception as error:
        log.exception("a workspace could not be tidied up", extra={"workspace": row["id"]})
        with suppress(Exception):  # it is in the log
            _tell(tick, row, _hindered(f"{type(error).__name__}: {error}"))


def _remove(tick: Tick, row: Row, stop: Stop) -> None:
    _tell(tick, row, _removed(row, tick.hub.store, stop))


def _tell(tick: Tick, row: Row, changed: Row) -> None:
    with tick.begin() as tx:
        _note(tx, row, changed, tick.now)


def _give_up(tick: Tick, row: Row) -> None:
    with tick.begin() as tx:
        locked(tx, "workflow", row["workflow_id"])
        if tx.run("workspace_give_up", id=row["id"], now=tick.now):
            tx.event("workspace.updated", row["id"], before="active", after="abandoned")
