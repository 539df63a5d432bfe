"""Chores of workspaces: worktrees whose workspace has ended are removed."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from crewhall.app import Tick
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get_locked
from crewhall.families.work.workspace.model import WorkspaceRow
from crewhall.families.work.workspace.removal import AGAIN_MS, log, note_removed, problem_row, try_removal
from crewhall.outages import log_failure
from crewhall.store.transaction import Row

HALF_MADE_MS = 15 * 60_000  # after which a worktree that nobody finished is given up
REMOVED_AT_ONCE = 20  # in one run of the chore


@work.chore("workspaces", seconds=30.0, everywhere=True, limit_seconds=45.0)
def remove_ended(tick: Tick) -> None:
    """Remove the worktrees on this node whose workspaces have ended, and give up those that nobody finished.

    What there is no time for goes on at the next run.
    """
    node = tick.settings.node
    with tick.look() as look:
        half = look.all("workspaces_half_made", node=node, before=tick.now - HALF_MADE_MS, limit=REMOVED_AT_ONCE)
        over = look.all("workspaces_over", node=node, before=tick.now - AGAIN_MS, limit=REMOVED_AT_ONCE)
    for row in half:
        _run_isolated(tick, row, partial(_give_up, tick, row))
    for row in over:
        if tick.stop.seconds_left != 0:
            _run_isolated(tick, row, partial(_remove, tick, row))


def _run_isolated(tick: Tick, row: WorkspaceRow, step: Callable[[], None]) -> None:
    """Run a step for one workspace. If it fails, the failure is noted, and the others still run."""
    try:
        step()
    except Exception as error:
        log_failure(log, "a workspace could not be tidied up", error, workspace=row["id"])
        with suppress(Exception):  # it is in the log
            _note_result(tick, row, problem_row(f"{type(error).__name__}: {error}"))


def _remove(tick: Tick, row: WorkspaceRow) -> None:
    changed = try_removal(row, tick.hub.store, tick.stop)
    if not tick.stop.is_cancelled:  # a hub that stops leaves it to the next one
        _note_result(tick, row, changed)


def _note_result(tick: Tick, row: WorkspaceRow, changed: Row) -> None:
    with tick.begin() as tx:
        note_removed(tx, row, changed, tick.now)


def _give_up(tick: Tick, row: WorkspaceRow) -> None:
    with tick.begin() as tx:
        get_locked(tx, "workflow", row["workflow_id"])
        if tx.count("workspace_give_up", id=row["id"], now=tick.now):
            tx.event("workspace.updated", row["id"], before="active", after="abandoned")
