"""
The operations on an instance: their steps, how each is done, and how it is undone.

    start    worktree ─▶ files ─▶ session ─▶ program      once the session is recorded, the start is finished
    restart  worktree ─▶ files ─▶ session ─▶ program
    stop     session ends                                 finished once it has begun: its program may be ending
    abandon  session ends ─▶ worktree goes ─▶ files go
    end      the same, left to a chore: the instance's own call is answered first

The launcher in a new session waits until its process is recorded: no program runs that the hall doesn't know.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

from crewhall.app import Tick
from crewhall.config import Settings
from crewhall.errors import Failure, InvalidState
from crewhall.families.crew.family import crew
from crewhall.families.crew.instance_rows import (
    note_gone,
    note_over,
    note_process,
    note_restarted,
    note_saved,
    note_started,
    note_stopped,
    note_token,
    note_unstarted,
    revoke_tokens,
)
from crewhall.families.crew.launch import write_files
from crewhall.families.crew.model import InstanceRow, Status
from crewhall.families.crew.own_prompt import own_prompt
from crewhall.families.crew.run_directory import run_directory
from crewhall.families.crew.site import end_processes, end_session, is_running, tmux_of
from crewhall.identity import new_id
from crewhall.journal import BEGUN, Happened, Journal, Operation, Step
from crewhall.outside.git import GitRepository, open_repository
from crewhall.outside.launch_spec import launcher_words
from crewhall.outside.processes import identify, is_dead, own_name
from crewhall.outside.removal import remove_worktree
from crewhall.outside.saving import git_dir_of
from crewhall.outside.worktree_files import copy_included, save_included
from crewhall.outside.worktrees import add_worktree, at, forget
from crewhall.stop import Stop
from crewhall.store.transaction import Row, Tx

ANSWER_MS = 2_000  # for an answer to reach the instance that is ended after it
END_SECONDS = 3.0  # how often a hub looks for instances to end


@dataclass(frozen=True)
class NodeWorld:
    """This machine, as steps act on it."""

    settings: Settings
    stop: Stop | None = None


Change = Operation[NodeWorld]


def instance_row(operation: Change) -> InstanceRow:
    """The row of the instance that an operation is about."""
    row = operation.journal.store.one("instance_get", id=operation.subject)
    assert row is not None, "the instance's row is there as long as its operation"
    return cast(InstanceRow, row)


# Starting


def _make_worktree(world: NodeWorld, operation: Change) -> None:
    row = instance_row(operation)
    repo, base = open_repository(row["repository_path"], world.stop), operation.data.get("base", row["base_branch"])
    add_worktree(repo, row["worktree"], row["branch"], base, may_be_ours=True)


def _clear_worktree(world: NodeWorld, operation: Change) -> None:
    """A worktree for a restart: nothing of the run before works in it, and it is there, as its own and no link."""
    row = instance_row(operation)
    end_processes(world.settings, row, world.stop)
    if not os.path.isdir(row["worktree"]):
        bring_back_worktree(row, world.stop)
    git_dir_of(open_repository(row["repository_path"], world.stop), row["worktree"])


def bring_back_worktree(row: InstanceRow, stop: Stop | None = None) -> None:
    """Make an instance's worktree again, from its branch, after somebody has removed the directory."""
    repo = open_repository(row["repository_path"], stop)
    there = at(repo, row["worktree"])
    if there is not None and not os.path.lexists(there.path):
        forget(repo, there.path)
    add_worktree(repo, row["worktree"], row["branch"], row["base_branch"], may_be_ours=True)


def _remove_new_worktree(world: NodeWorld, operation: Change) -> None:
    """Remove the worktree and the branch that were made for this start; nobody has worked in it yet."""
    row = instance_row(operation)
    repo = open_repository(row["repository_path"])
    there = at(repo, row["worktree"])
    is_ours = there.branch == row["branch"] or there.is_half_made if there else not os.path.lexists(row["worktree"])
    if not is_ours:
        return  # the path was taken, and nothing was made
    is_new = _is_in_base(repo, row)
    removed = remove_worktree(repo, row["worktree"], row["branch"], is_new, saved_ref(row["id"]))
    for ref in removed.saved_refs if is_new else ():
        repo.delete_ref(ref)


def _write_files(world: NodeWorld, operation: Change) -> Row:
    row = instance_row(operation)
    repo, store = open_repository(row["repository_path"], world.stop), operation.journal.store
    copy_included(repo, row["worktree"])
    coder = cast(InstanceRow | None, store.one("instance_get", id=row["parent"]) if row["type"] == "review" else None)
    template = own_prompt(repo, row, coder)
    return {"token_hash": write_files(world.settings, row, template, resumes=operation.kind is RESTARTING)}


def _remove_files(world: NodeWorld, operation: Change) -> None:
    run_directory(world.settings, operation.subject).remove()


def _start_session(world: NodeWorld, operation: Change) -> Row:
    row = instance_row(operation)
    spec = str(run_directory(world.settings, row["id"]).spec)
    tmux = tmux_of(world.settings)
    tmux.kill(row["session"])  # a dead one of an earlier run, whose last screen is shown no more
    process = identify(tmux.start(row["session"], launcher_words(spec), row["worktree"]))
    if process is None:
        raise InvalidState(
            f"the session of {row['id']} ended at once",
            hint="`crewhall doctor` shows whether Python and tmux run here.",
            instance_id=row["id"],
        )
    return {"pid": process.pid, "process_started": process.started}


def _end_new_session(world: NodeWorld, operation: Change) -> None:
    row = instance_row(operation)
    fresh = {key: operation.data.get(key) for key in ("pid", "process_started")}
    end_session(world.settings, cast(InstanceRow, {**row, **fresh}))


def _release(world: NodeWorld, operation: Change) -> None:
    run_directory(world.settings, operation.subject).release()


def _undo_nothing(world: NodeWorld, operation: Change) -> None:
    """Nothing: an earlier step's undoing ends it, or it may stay."""


# Ending


def _end_session(world: NodeWorld, operation: Change) -> None:
    end_session(world.settings, instance_row(operation), world.stop)


def _refuse_resurrection(world: NodeWorld, operation: Change) -> None:
    """A program that has ended can't be brought back, so the rest of its end is done, its dead session's too."""
    row = instance_row(operation)
    if not is_running(row):
        end_session(world.settings, row, world.stop)
        raise Happened({})


def _remove_worktree(world: NodeWorld, operation: Change) -> Row:
    return remove_instance_worktree(instance_row(operation), world.stop)


def remove_instance_worktree(row: InstanceRow, stop: Stop | None = None) -> Row:
    """Remove an instance's worktree after saving its work: the refs that keep it, or the problem that hindered.

    A branch with commits that its base lacks stays, for a person to look at; of a reviewer's only the saved ref does.
    """
    ref = saved_ref(row["id"])
    try:
        repo = open_repository(row["repository_path"], stop)
        save_included(repo, row["worktree"], f"{ref}-ignored")
        goes = row["type"] == "review" or _is_in_base(repo, row)
        remove_worktree(repo, row["worktree"], row["branch"], goes, ref)
        saved = repo.text("for-each-ref", "--format=%(refname)", ref, f"{ref}-*").split()
        return {"saved_refs": saved, "problem": None}
    except Failure as failure:
        return {"saved_refs": json.loads(row["saved_refs"]), "problem": failure.message[:500]}


def _is_in_base(repo: GitRepository, row: InstanceRow) -> bool:
    """Whether the base has all commits of the instance's branch, wherever the base is by now."""
    base = repo.base_of(row["base_branch"])
    words = ("merge-base", "--is-ancestor", "--end-of-options", f"refs/heads/{row['branch']}", base)
    return repo.git(*words).code == 0


def saved_ref(instance_id: str) -> str:
    """Where the uncommitted work of an instance is kept."""
    return f"refs/crewhall/saved/{instance_id}"


# The kinds


def _settler() -> str:
    """A name of its own for each time that this process settles something."""
    return f"{own_name()} {new_id('se')}"


def _reach(tick: Tick) -> Iterator[tuple[str, AbstractContextManager[NodeWorld]]]:
    yield tick.settings.node, nullcontext(NodeWorld(tick.settings, tick.stop))


def start_steps(note: Callable[[Tx, Operation[Any]], None]) -> tuple[Step[NodeWorld], ...]:
    """The steps that start an instance; `note` writes what the hall knows of it once its program may run."""
    return (
        Step("worktree", _make_worktree, _remove_new_worktree),
        Step("files", _write_files, _remove_files, note_token),
        Step("session", _start_session, _end_new_session, note_process),
        Step("program", _release, _undo_nothing, note),
    )


COMMON: dict[str, Any] = {"noun": "instance", "look": "instance_get", "reach": _reach}
COMMON |= {"is_orphan": is_dead, "holder": _settler}

STARTING = crew.operation(
    "instance_start",
    steps=start_steps(note_started),
    keeps="session",
    on_undone=note_unstarted,
    **COMMON,
)
RESTARTING = crew.operation(
    "instance_restart",
    steps=(
        Step("worktree", _clear_worktree, _undo_nothing),
        Step("files", _write_files, _undo_nothing, note_token),
        Step("session", _start_session, _end_new_session, note_process),
        Step("program", _release, _undo_nothing, note_restarted),
    ),
    keeps="session",
    on_undone=revoke_tokens,
    **COMMON,
)
STOPPING = crew.operation(
    "instance_stop", steps=(Step("session", _end_session, _undo_nothing, note_stopped),), keeps=BEGUN, **COMMON
)
_END_STEPS = (
    Step("session", _end_session, _refuse_resurrection, note_gone),
    Step("worktree", _remove_worktree, _undo_nothing, note_saved),
    Step("files", _remove_files, _undo_nothing, note_over),
)
ABANDONING = crew.operation("instance_abandon", steps=_END_STEPS, keeps="session", **COMMON)
ENDING = crew.operation("instance_end", steps=_END_STEPS, keeps=BEGUN, settle_seconds=END_SECONDS, **COMMON)


def end_later(journal: Journal, tx: Tx, row: InstanceRow, status: Status) -> None:
    """Let a chore end an instance, and give it this status, once the answer to its own call has left the hub."""
    data = {"status": status, "how": "done"}
    journal.begin(tx, ENDING, row["id"], place=row["node"], data=data, holder="a chore", lease_ms=ANSWER_MS)
