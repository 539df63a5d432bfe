"""Where an instance is on this machine: the hall's own tmux server, its session's process, its files."""

import hashlib
import os
import shlex
from functools import cached_property

from crewhall.config import Settings
from crewhall.errors import Failure, InvalidState, Unavailable
from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.run_directory import run_directory
from crewhall.outside.processes import ProcessId, carries, end_tree, identify, is_alive
from crewhall.outside.tmux import Pane, Tmux
from crewhall.stop import Stop

MOST_PID = 1 << 22  # Linux gives no higher one


def tmux_of(settings: Settings) -> Tmux:
    """The hall's own tmux server; another hall of this machine has another."""
    digest = hashlib.sha256(os.fsencode(str(settings.home.resolve()))).hexdigest()
    return Tmux(f"crewhall-{digest[:10]}")


class Terminals:
    """The sessions of the hall's tmux server, listed once, and only if somebody asks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def panes(self) -> dict[str, Pane]:
        """The pane of each session; none if tmux does not answer."""
        try:
            return tmux_of(self.settings).panes()
        except Failure:
            return {}


def attach_command(settings: Settings, row: InstanceRow) -> str:
    """What a person types to see the instance's terminal."""
    return shlex.join(tmux_of(settings).attach_words(row["session"]))


def leader_of(row: InstanceRow) -> ProcessId | None:
    """The process that leads the instance's session, as it was recorded."""
    if row["pid"] is None or row["process_started"] is None:
        return None
    return ProcessId(row["pid"], row["process_started"])


def is_running(row: InstanceRow) -> bool:
    """Whether the process that leads its session lives."""
    leader = leader_of(row)
    return leader is not None and is_alive(leader)


def program_of(settings: Settings, row: InstanceRow) -> ProcessId | None:
    """The program that the launcher started, if it lives, with the launcher or without; on Linux only.

    The record is the instance's own word: what it names must be that very process, and carry the instance's mark.
    """
    record = run_directory(settings, row["id"]).read("started.json")
    pid, started = record.get("pid"), record.get("started")
    if type(pid) is not int or not isinstance(started, str) or not 1 < pid < MOST_PID or pid == os.getpid():
        return None
    program = ProcessId(pid, started)
    marks = {"CREWHALL_INSTANCE": row["id"], "CREWHALL_HOME": str(settings.home)}
    return program if carries(program, marks) else None


def left_program(settings: Settings, row: InstanceRow) -> ProcessId | None:
    """The program of an instance, if it lives and its launcher does not."""
    return None if is_running(row) else program_of(settings, row)


def end_processes(settings: Settings, row: InstanceRow, stop: Stop | None = None) -> None:
    """End all processes below the session's leader, and below the program if the leader was killed before.

    What has detached itself from the session is left.
    """
    leader = leader_of(row)
    if leader is None:  # a hub died before it could note the process
        pane = tmux_of(settings).panes().get(row["session"])
        leader = None if pane is None or pane.is_dead else identify(pane.pid)
    if leader is not None:
        end_tree(leader, stop=stop)
    program = program_of(settings, row)
    if program is not None:
        end_tree(program, stop=stop)


def end_session(settings: Settings, row: InstanceRow, stop: Stop | None = None) -> None:
    """End the session with its processes; what has detached itself from it is left."""
    end_processes(settings, row, stop)
    tmux_of(settings).kill(row["session"])


def has_session(settings: Settings, row: InstanceRow) -> bool:
    """Whether the hall's tmux server has the instance's session, its process dead or not."""
    return row["session"] in tmux_of(settings).panes()


def is_cleared(settings: Settings, row: InstanceRow) -> bool:
    """Whether it has no worktree any more: it is over, or it is a terminated one that the hall ended, as reviewers are.

    What the hall ends loses its run directory last; what a person stops keeps it.
    """
    if row["status"] == "terminated":
        return not run_directory(settings, row["id"]).path.exists()
    return row["status"] in ("abandoned", "pr_merged")


def refuse_done(settings: Settings, row: InstanceRow) -> None:
    """Raise InvalidState when the hall has ended the instance since its work was done, and cleared it away."""
    if row["status"] == "terminated" and is_cleared(settings, row):
        raise InvalidState(
            f"instance {row['id']} is done: its session, worktree and files are gone",
            hint="Start another one: `crewhall review request` for a review, `crewhall instance start` for other work.",
            instance_id=row["id"],
            status=row["status"],
        )


def refuse_elsewhere(settings: Settings, row: InstanceRow) -> None:
    """Raise Unavailable when the instance is on another machine."""
    if row["node"] != settings.node:
        raise Unavailable(
            f"instance {row['id']} is on node {row['node']}, and this hub is on {settings.node}",
            hint="Call a hub on that node.",
            instance_id=row["id"],
        )
