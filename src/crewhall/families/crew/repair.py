"""
The fixes for differences that reconcile.py finds. Each looks again before it acts, and raises Failure.

    session_lost     end the tree of the recorded process         stray_session    end its tree, then the session
    launcher_lost    end the program's tree
    stale_worktree   save and remove the worktree                 stray_directory  delete it
    worktree_gone    make it again from its branch                branch_gone      make it at the worktree's last commit
    live_token       revoke it                                    others           for a person, or for nobody
"""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import cast

from crewhall.config import Settings
from crewhall.errors import InvalidState
from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.reconcile import OVER, Difference
from crewhall.families.crew.run_directory import run_directory
from crewhall.families.crew.site import leader_of, left_program, tmux_of
from crewhall.families.crew.steps import bring_back_worktree, remove_instance_worktree
from crewhall.outside.git import open_repository
from crewhall.outside.processes import end_tree, identify
from crewhall.outside.worktrees import last_head
from crewhall.stop import Stop
from crewhall.store.transaction import Tx

YOUNG_MS = 600_000  # what has been there for a shorter time may be somebody's who is still at it


@dataclass(frozen=True)
class Repair:
    """What a fix needs: the settings, a transaction when it writes, when to stop."""

    settings: Settings
    begin: Callable[[], AbstractContextManager[Tx]]
    stop: Stop

    def fix(self, one: Difference) -> None:
        """Do what the difference's action says. Raises InvalidState when it has changed since."""
        FIXES[one.name](self, one)


def is_safe_alone(one: Difference, now: int) -> bool:
    """Whether the hall does it by itself, without a person.

    Always: the token of an instance that is over. After 10 minutes: a session of an instance that is over, a dead
    session of an instance that this hall doesn't know, and a run directory that nothing can use. A living session that
    the hall doesn't know may belong to another database with the same home, or to rows that a restored backup lacks.
    What else there is ends living programs or touches repositories, which takes a person.
    """
    if one.name == "live_token":
        return True
    if one.since is None or now - one.since < YOUNG_MS or not one.is_fixable:
        return False
    return one.name == "stray_directory" or (one.name == "stray_session" and (one.is_known or one.target.is_dead))


def _end_lost(repair: Repair, one: Difference) -> None:
    leader = leader_of(cast(InstanceRow, one.target))
    with repair.begin() as tx:
        _idle_row(tx, one)
    if leader is not None:
        end_tree(leader, stop=repair.stop)  # this very process: a restart's new one is another


def _end_program(repair: Repair, one: Difference) -> None:
    with repair.begin() as tx:
        row = _idle_row(tx, one)
    if row is None or left_program(repair.settings, row) != one.target:  # it has ended, or was restarted
        raise _change_failure(one)
    end_tree(one.target, stop=repair.stop)


def _end_stray(repair: Repair, one: Difference) -> None:
    assert one.instance_id is not None
    tmux = tmux_of(repair.settings)
    with repair.begin() as tx:
        row = _idle_row(tx, one)
    now_there = tmux.panes().get(one.instance_id)
    if now_there is None:
        return
    if now_there.pid != one.target.pid or (row is not None and row["status"] not in OVER):
        raise _change_failure(one)
    leader = None if now_there.is_dead else identify(now_there.pid)
    if leader is not None:
        end_tree(leader, stop=repair.stop)
    tmux.kill(one.instance_id)


def _remove_directory(repair: Repair, one: Difference) -> None:
    assert one.instance_id is not None
    with repair.begin() as tx:
        row = _idle_row(tx, one)
    if row is not None and row["status"] != "abandoned":
        raise _change_failure(one)
    run_directory(repair.settings, one.instance_id).remove()


def _remove_worktree(repair: Repair, one: Difference) -> None:
    row = cast(InstanceRow, one.target)
    changed = remove_instance_worktree(row, repair.stop)
    with repair.begin() as tx:
        tx.run("instance_saved_set", id=row["id"], saved_refs=json.dumps(changed["saved_refs"]), now=tx.now)
        tx.run("instance_problem_set", id=row["id"], problem=changed["problem"], now=tx.now)
    if changed["problem"] is not None:
        raise InvalidState(
            changed["problem"], hint="Remove what hinders, then run `crewhall doctor --fix`.", instance_id=row["id"]
        )


def _bring_back_worktree(repair: Repair, one: Difference) -> None:
    with repair.begin() as tx:
        _idle_row(tx, one)
    bring_back_worktree(cast(InstanceRow, one.target), repair.stop)


def _bring_back_branch(repair: Repair, one: Difference) -> None:
    row = cast(InstanceRow, one.target)
    repo = open_repository(row["repository_path"], repair.stop)
    commit = repo.commit_of(last_head(repo, row["worktree"]))
    if commit is None:
        raise InvalidState(
            f"the last commit of {row['branch']} is not known",
            hint=f"Name one: `git branch {row['branch']} COMMIT`, in {row['repository_path']}.",
            instance_id=row["id"],
        )
    ref = f"refs/heads/{row['branch']}"
    repo.text("update-ref", "--no-deref", ref, commit, "0" * len(commit))  # unless it is back already


def _revoke(repair: Repair, one: Difference) -> None:
    with repair.begin() as tx:
        row = _idle_row(tx, one)
        if row is None or row["status"] not in OVER:
            raise _change_failure(one)
        tx.run("tokens_revoke", agent_id=row["agent_id"], now=tx.now)


def _idle_row(tx: Tx, one: Difference) -> InstanceRow | None:
    """The row, if there is one, held until commit. Raises InvalidState when an operation on it has begun."""
    row = tx.one("instance_lock", id=one.instance_id)
    if tx.all("operations_on", subject=one.instance_id):
        raise _change_failure(one)
    return cast(InstanceRow | None, row)


def _change_failure(one: Difference) -> InvalidState:
    return InvalidState(
        f"{one.instance_id} has changed since it was looked at",
        hint="Run `crewhall doctor` again.",
        instance_id=one.instance_id,
    )


FIXES: dict[str, Callable[[Repair, Difference], None]] = {
    "session_lost": _end_lost,
    "launcher_lost": _end_program,
    "stray_session": _end_stray,
    "stray_directory": _remove_directory,
    "stale_worktree": _remove_worktree,
    "worktree_gone": _bring_back_worktree,
    "branch_gone": _bring_back_branch,
    "live_token": _revoke,
}
