"""Chores of workspaces: worktrees whose workspace has ended are removed."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from crewhall.app import Tick
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get_locked
from crewhall.families.work.workspace.removal import AGAIN_MS, log, note_removed, problem_row, try_removal
from crewhall.stop import Stop
from crewhall.store.transaction import Row

HALF_MADE_MS = 15 * 60_000  # after which a worktree that nobody finished is given up
REMOVED_AT_ONCE = 2  # in one run of the chore: other chores wait for it
CHORE_SECONDS = 45.0  # for git in one run


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
        _run_isolated(tick, row, partial(_give_up, tick, row))
    for row in over:
        if stop.seconds_left:
            _run_isolated(tick, row, partial(_remove, tick, row, stop))


def _seconds(tick: Tick) -> float:
    """How long git may take: signs of life are noted by another chore, well before an agent is missed."""
    missed = tick.settings["agent.heartbeat"] * tick.settings["agent.missed_beats"]
    return min(CHORE_SECONDS, float(missed) / 2)


def _run_isolated(tick: Tick, row: Row, step: Callable[[], None]) -> None:
    """Run a step for one workspace. If it fails, the failure is noted, and the others still run."""
    try:
        step()
    except Exception as error:
        log.exception("a workspace could not be tidied up", extra={"workspace": row["id"]})
        with suppress(Exception):  # it is in the log
            _note_result(tick, row, problem_row(f"{type(error).__name__}: {error}"))


def _remove(tick: Tick, row: Row, stop: Stop) -> None:
    _note_result(tick, row, try_removal(row, tick.hub.store, stop))


def _note_result(tick: Tick, row: Row, changed: Row) -> None:
    with tick.begin() as tx:
        note_removed(tx, row, changed, tick.now)


def _give_up(tick: Tick, row: Row) -> None:
    with tick.begin() as tx:
        get_locked(tx, "workflow", row["workflow_id"])
        if tx.run("workspace_give_up", id=row["id"], now=tick.now):
            tx.event("workspace.updated", row["id"], before="active", after="abandoned")
