"""
What should be on this node, compared with what is: each difference has a name, a sentence and an action.

    rows of the hall ──┐
                       ├──▶ find_differences ──▶ [Difference] ──▶ instance_check shows, instance_repair fixes
    tmux, git, /proc ──┘

The world is looked at before the rows: whatever the hall made has its row first, so what has none is a stray. Only what
the hall made counts: sessions of its own tmux server that run its launcher, run directories below its home, processes
with its mark. An instance with an operation under way is skipped; the journal sees to it.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from crewhall.config import Settings
from crewhall.errors import Failure
from crewhall.families.crew.model import DifferenceName, InstanceRow
from crewhall.families.crew.rules import ID_PATTERN, LIVE
from crewhall.families.crew.run_directory import directories_below, run_directory
from crewhall.families.crew.site import has_session, is_cleared, is_running, leader_of, left_program, tmux_of
from crewhall.outside.git import open_repository
from crewhall.outside.launch_spec import LAUNCHER
from crewhall.outside.processes import Marked, ProcessId, boot_id, is_alive, marked_by, trees
from crewhall.outside.tmux import Pane
from crewhall.stop import Stop
from crewhall.store.transaction import Row, Store

OVER = ("terminated", "abandoned", "pr_merged")  # statuses in which an instance has no session
FIX = "crewhall doctor --fix"
SLOW_MS = 60_000  # an operation that takes longer is shown


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it should be. `target` is what a fix acts on: a path, a pane, a row."""

    name: DifferenceName
    instance_id: str | None
    about: str
    action: str
    is_fixable: bool = False
    hint: str = ""
    target: Any = None
    since: int | None = None
    is_known: bool = False  # the hall has a row for the instance


@dataclass(frozen=True)
class World:
    """What is on this machine, seen at one time."""

    panes: dict[str, Pane]
    directories: list[Path]
    marked: dict[str, list[Marked]]


def look_around(settings: Settings) -> World:
    """What the hall may have made on this machine. Raises Failure when tmux does not answer."""
    named = [one for one in directories_below(settings) if ID_PATTERN.fullmatch(one.name) and not one.is_symlink()]
    panes = {name: pane for name, pane in tmux_of(settings).panes().items() if ID_PATTERN.fullmatch(name)}
    return World(panes, named, marked_by("CREWHALL_INSTANCE", f"CREWHALL_HOME={settings.home}"))


def find_differences(settings: Settings, store: Store, now: int, stop: Stop | None = None) -> list[Difference]:
    """All differences on this node, those of instances first. It changes nothing."""
    world = look_around(settings)
    with store.read() as look:
        rows: list[InstanceRow] = look.all("instances_on_node", node=settings.node)
        operations = look.all("operations_at", place=settings.node)
        tokens = look.all("instances_with_tokens", node=settings.node)
    busy = {one["subject"] for one in operations}

    def row_of(instance_id: str) -> Row | None:
        return store.one("instance_get", id=instance_id)

    quiet = [row for row in rows if row["id"] not in busy]
    found = [*_of_processes(settings, world, quiet), *_of_repositories(settings, quiet, stop)]
    found += [_stale(row) for row in quiet if row["status"] == "abandoned" and row["problem"]]
    found += [_live_token(row) for row in tokens if row["id"] not in busy]
    found += _stray_sessions(settings, world, busy, row_of)
    found += _stray_directories(settings, world, busy, row_of)
    found += _detached_processes(settings, world, busy, row_of)
    return [*found, *(_unfinished_operation(one, now) for one in operations if now - one["created_at"] > SLOW_MS)]


# Processes and sessions of instances that should run


def _of_processes(settings: Settings, world: World, rows: list[InstanceRow]) -> Iterator[Difference]:
    for row in rows:
        if row["pid"] is None:
            continue
        if program := left_program(settings, row):
            yield _launcher_lost(row, program)
            continue
        if row["status"] not in LIVE:
            continue
        is_there = row["session"] in world.panes or has_session(settings, row)
        if is_running(row) and not is_there:
            yield _session_lost(row)
        elif not is_running(row):
            yield _process_gone(row) if is_there else _interruption(row)


def _session_lost(row: InstanceRow) -> Difference:
    about = f"process {row['pid']} lives, and its tmux session {row['session']} is gone"
    action = "end what is left of its processes; it can then be restarted"
    return Difference("session_lost", row["id"], about, action, True, FIX, row)


def _launcher_lost(row: InstanceRow, program: ProcessId) -> Difference:
    about = f"it is {row['status']}, its launcher was killed, and its program {program.pid} lives on without a terminal"
    action = "end the program and all below it; it can then be restarted"
    return Difference("launcher_lost", row["id"], about, action, True, FIX, program)


def _process_gone(row: InstanceRow) -> Difference:
    how = row["ended_how"] or "the hall notes how within seconds"
    about = f"it is {row['status']}, and its process has ended: {how}"
    return Difference("process_gone", row["id"], about, "restart or stop it", hint=_restart(row))


def _interruption(row: InstanceRow) -> Difference:
    boot, _, _ = (row["process_started"] or "").rpartition(":")
    cause = "the machine was restarted" if boot and boot != boot_id() else "its tmux session was ended from outside"
    about = f"it is {row['status']}, and its process and session are gone: {cause}"
    return Difference("interrupted", row["id"], about, "restart it", hint=_restart(row))


def _restart(row: InstanceRow) -> str:
    return f"crewhall instance restart {row['id']}"


# Worktrees, branches and tokens


def _of_repositories(settings: Settings, rows: list[InstanceRow], stop: Stop | None) -> Iterator[Difference]:
    """Worktrees and branches that are gone; each repository is opened once."""
    wanted = [row for row in rows if row["pid"] is not None and not is_cleared(settings, row)]
    for path in sorted({row["repository_path"] for row in wanted}):
        own = [row for row in wanted if row["repository_path"] == path]
        try:
            listed = open_repository(path, stop).text("for-each-ref", "--format=%(refname)", "refs/heads").split("\n")
        except Failure as failure:
            for row in own:
                yield Difference(
                    "repository_gone", row["id"], failure.message, "bring the repository back", hint=failure.hint
                )
            continue
        for row in own:
            if not os.path.isdir(row["worktree"]):
                yield _worktree_gone(row)
            elif f"refs/heads/{row['branch']}" not in listed:
                yield _branch_gone(row)


def _worktree_gone(row: InstanceRow) -> Difference:
    about = f"{row['worktree']} is gone"
    action = f"make it again from {row['branch']}"
    if is_running(row):
        about += ", and its program still runs in it"
        action += "; then stop and restart the instance"
    return Difference("worktree_gone", row["id"], about, action, True, FIX, row)


def _branch_gone(row: InstanceRow) -> Difference:
    about = f"{row['repository_path']} has no branch {row['branch']}, which {row['worktree']} is on"
    return Difference("branch_gone", row["id"], about, "make it again at its last commit", True, FIX, row)


def _stale(row: InstanceRow) -> Difference:
    about = f"it is abandoned, and {row['worktree']} is still there: {row['problem']}"
    return Difference("stale_worktree", row["id"], about, "save and remove it", True, FIX, row)


def _live_token(row: Row) -> Difference:
    about = f"it is {row['status']}, and its token still opens the hall"
    return Difference("live_token", row["id"], about, "revoke the token", True, FIX, row)


# Strays


def _stray_sessions(
    settings: Settings, world: World, busy: set[str], row_of: Callable[[str], Row | None]
) -> Iterator[Difference]:
    for name, pane in world.panes.items():
        row = row_of(name)
        if name in busy or (row is not None and (row["node"] != settings.node or row["status"] not in OVER)):
            continue
        facts = tmux_of(settings).origin(name)
        if facts is None:
            continue  # it ended just now
        created, command = facts
        is_ours = LAUNCHER in command and str(run_directory(settings, name).spec) in command
        about = f"tmux session {name} is there, and " + (
            f"its instance is {row['status']}" if row else "the hall has no such instance"
        )
        if is_ours:
            yield Difference("stray_session", name, about, "end it", True, FIX, pane, created, row is not None)
        else:
            hint = f"tmux -L {tmux_of(settings).name} kill-session -t ={name}"
            yield Difference("stray_session", name, f"{about}; the hall did not make it", "leave it", hint=hint)


def _stray_directories(
    settings: Settings, world: World, busy: set[str], row_of: Callable[[str], Row | None]
) -> Iterator[Difference]:
    """Run directories of nobody. One whose session or process lives is left until those are over."""
    for path in world.directories:
        row = row_of(path.name)
        is_used = path.name in busy or path.name in world.panes or path.name in world.marked
        if is_used or (row is not None and row["status"] != "abandoned"):
            continue
        whose = "an abandoned instance" if row else "no instance of the hall"
        about, since = f"{path} is the run directory of {whose}", _changed_at(path)
        yield Difference("stray_directory", path.name, about, "remove it", True, FIX, path, since)


def _changed_at(path: Path) -> int | None:
    try:
        return int(path.stat().st_mtime * 1000)
    except OSError:
        return None


def _detached_processes(
    settings: Settings, world: World, busy: set[str], row_of: Callable[[str], Row | None]
) -> Iterator[Difference]:
    """Processes that an instance started and that are below neither its session's leader nor its program.

    They are listed, never ended.
    """
    rows = {instance_id: cast(InstanceRow | None, row_of(instance_id)) for instance_id in world.marked}
    leaders = {instance_id: leader_of(row) if row else None for instance_id, row in rows.items()}
    programs = {instance_id: left_program(settings, row) if row else None for instance_id, row in rows.items()}
    below = trees(root for root in (*leaders.values(), *programs.values()) if root)
    for instance_id, marked in world.marked.items():
        leader, pane = leaders[instance_id], world.panes.get(instance_id)
        own = {one.pid for root in (leader, programs[instance_id]) if root for one in below[root]}
        if instance_id in busy or (leader is None and pane is not None and not pane.is_dead):
            continue
        for one in marked:
            if one.process.pid in own or one.process.pid == os.getpid() or not is_alive(one.process):
                continue
            about = f"process {one.process.pid} has left its session: {one.words}"
            yield Difference(
                "detached", instance_id, about, "leave it", hint=f"If it is of no use: kill {one.process.pid}"
            )


def _unfinished_operation(operation: Row, now: int) -> Difference:
    seconds = (now - operation["created_at"]) // 1000
    kind, step = operation["kind"].replace("_", " "), operation["step"] or "no step"
    about = f"{kind} has been under way for {seconds} s, after {step}"
    hint = "If it stays, see the hub's log."
    return Difference("unfinished", operation["subject"], about, "wait: a hub finishes or undoes it", hint=hint)
