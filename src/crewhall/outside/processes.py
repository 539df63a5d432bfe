"""
Processes known by pid and start time, so that a reused pid is never taken for the process that had it before.

    identify(pid) -> ProcessId | None       is_alive(one)       ancestors(pid) -> [pid, parent, …, 1]
    lineage(pid) -> its ancestors and the leader of its session
    trees([root]) -> {root: [root, child]}  end_tree(root) -> how many ended
    marked_processes("CREWHALL_RUN", "r_1") -> [Marked(process, command line)]
    carries(one, {"CREWHALL_RUN": "r_1"}) -> whether it was started with that
    boot_id() -> str                        another one after each boot of the machine

A process that has ended and was not reaped (a zombie) counts as gone. Linux shows all of this in /proc; elsewhere `ps`
is run, start times are in seconds, and no environment can be read. A process whose parent has ended is in no tree
anymore: what a program started and left behind is found by a mark in its environment.
"""

import contextlib
import functools
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crewhall.outside.environment import program_environment
from crewhall.outside.leftovers import process_ids, read_process
from crewhall.outside.run import run
from crewhall.stop import Stop

IS_LINUX = sys.platform == "linux"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
GONE = ("Z", "X")  # the states of a process that has ended
TICK = 0.02  # seconds between two looks at a tree that is ending
AFTER_KILL = 2.0  # seconds in which what was killed should be gone
SHOWN = 200  # characters of a command line
COLUMNS = "pid=,ppid=,stat=,lstart="


@dataclass(frozen=True)
class ProcessId:
    """One process of all that ever had its pid: `started` is never the same for two of them."""

    pid: int
    started: str


@dataclass(frozen=True)
class Marked:
    """A process with a mark in its environment, and its command line, cut to 200 characters."""

    process: ProcessId
    words: str


class _Fact(NamedTuple):
    process: ProcessId
    parent: int


@functools.cache
def boot_id() -> str:
    """What names this boot of the machine; empty where it can't be read."""
    if IS_LINUX:
        return BOOT_ID.read_text("ascii").strip() if BOOT_ID.exists() else ""
    return _output("sysctl", "-n", "kern.bootsessionuuid")


def identify(pid: int) -> ProcessId | None:
    """The process that has this pid now, or None when there is none or it has ended."""
    fact = _fact(pid)
    return fact.process if fact else None


def is_alive(one: ProcessId) -> bool:
    """Whether this very process still runs."""
    return identify(one.pid) == one


def own_name() -> str:
    """This process in words, so that another on this machine can tell whether it still lives."""
    own = name_of(os.getpid())
    assert own is not None
    return own


def name_of(pid: int) -> str | None:
    """The same of another process; None when there is none with this pid."""
    found = identify(pid)
    return None if found is None else f"{found.pid} {found.started}"


def is_dead(name: str) -> bool:
    """Whether the process of this name is dead. What follows the name counts for nothing; other words are not dead."""
    pid, _, rest = name.partition(" ")
    return pid.isdigit() and not is_alive(ProcessId(int(pid), rest.partition(" ")[0]))


def ancestors(pid: int) -> list[int]:
    """The pid itself, its parent and so on up to 1; empty when there is no such process."""
    found: list[int] = []
    while pid > 0 and pid not in found and (fact := _fact(pid)):
        found.append(pid)
        pid = fact.parent
    return found


def lineage(pid: int) -> list[int]:
    """Its ancestors, and the leader of its session: a process whose parent has ended is still in that."""
    try:
        return [*ancestors(pid), os.getsid(pid)] if pid > 0 else []
    except OSError:
        return []


def trees(roots: Iterable[ProcessId]) -> dict[ProcessId, list[ProcessId]]:
    """Each process and all its living descendants, parents first; empty for one that has ended."""
    table = _facts()
    return {root: _descendants([root], table) for root in roots}


def end_tree(root: ProcessId, grace_seconds: float = 2.0, stop: Stop | None = None) -> int:
    """End a process and its descendants: SIGTERM first, SIGKILL to those left after the grace. How many ended.

    Our own process and pid 1 are spared, and all below ours unless that is the root. A child whose parent ends before
    it is seen escapes. Raises what `stop` does, and then nothing is killed.
    """
    known: dict[ProcessId, None] = {root: None} if is_alive(root) else {}
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, AFTER_KILL)):
        if not known or _end_all(known, number, time.monotonic() + seconds, stop):
            break
    return sum(not is_alive(one) for one in known)


def _end_all(known: dict[ProcessId, None], number: signal.Signals, deadline: float, stop: Stop | None) -> bool:
    """Send the signal once to each process of the tree, also to new ones, until none lives or the time is over.

    Whether none lives. Each look at a tree reads the whole process table.
    """
    sent: set[ProcessId] = set()
    while True:
        spared = (1, os.getpid())
        living = [one for one in _descendants(known, spared=spared) if one.pid not in spared]
        known.update(dict.fromkeys(living))
        is_news = False
        for one in living:
            is_news |= one not in sent and _signal(one, number)
            sent.add(one)
        if not living or (not is_news and time.monotonic() > deadline):
            return not living
        if not is_news:
            _pause(stop)


def _signal(one: ProcessId, number: signal.Signals) -> bool:
    """Signal this very process; False when it has ended or is not ours to signal."""
    try:
        with contextlib.ExitStack() as stack:
            held = _hold(one.pid, stack)
            if not is_alive(one):
                return False
            if held is None:
                os.kill(one.pid, number)
            else:
                signal.pidfd_send_signal(held, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _hold(pid: int, stack: contextlib.ExitStack) -> int | None:
    """A descriptor that never means a later process with the same pid; None where there is no such thing."""
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):  # macOS; a kernel or a container that does not let us
        return None
    stack.callback(os.close, held)
    return held


def _pause(stop: Stop | None) -> None:
    if stop is not None:
        stop.wait(TICK)
    else:
        time.sleep(TICK)


def marked_processes(name: str, value: str) -> list[Marked]:
    """The processes of our user that were started with NAME=VALUE; on Linux only, elsewhere none.

    One that is just becoming another program may be missed: look twice.
    """
    wanted = f"{name}={value}".encode()
    found = []
    for pid in process_ids():
        if wanted in read_process(pid, "environ").split(b"\0") and _is_ours(pid) and (process := identify(pid)):
            found.append(Marked(process, _command_line(pid)))
    return found


def marked_by(name: str, beside: str) -> dict[str, list[Marked]]:
    """The processes of our user that were started with NAME=… and the variable `beside`, by the value of NAME.

    On Linux only, elsewhere none; as `marked_processes`, it may miss one.
    """
    prefix, wanted = f"{name}=".encode(), os.fsencode(beside)
    found: dict[str, list[Marked]] = defaultdict(list)
    for pid in process_ids():
        variables = read_process(pid, "environ").split(b"\0")
        value = next((one[len(prefix) :] for one in variables if one.startswith(prefix)), None)
        if value and wanted in variables and _is_ours(pid) and (process := identify(pid)):
            found[value.decode("utf-8", "replace")].append(Marked(process, _command_line(pid)))
    return dict(found)


def carries(one: ProcessId, marks: Mapping[str, str]) -> bool:
    """Whether this very process lives, is our user's and was started with all these; on Linux only, elsewhere never."""
    variables = read_process(one.pid, "environ").split(b"\0")
    has_all = all(os.fsencode(f"{name}={value}") in variables for name, value in marks.items())
    return has_all and _is_ours(one.pid) and is_alive(one)


def _is_ours(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def _command_line(pid: int) -> str:
    words = read_process(pid, "cmdline").rstrip(b"\0").split(b"\0")
    return " ".join(word.decode("utf-8", "replace") for word in words)[:SHOWN]


def _descendants(
    roots: Iterable[ProcessId], table: dict[int, _Fact] | None = None, spared: tuple[int, ...] = ()
) -> list[ProcessId]:
    """Those of the roots that live, and all below them; `table` is what `_facts` gave.

    What is spared below a root is left out with all below it.
    """
    table = _facts() if table is None else table
    children: dict[int, list[int]] = defaultdict(list)
    for pid, fact in table.items():
        children[fact.parent].append(pid)
    found = {one.pid: one for one in roots if one.pid in table and table[one.pid].process == one}
    queue = list(found)
    for pid in queue:  # which grows
        for child in children[pid]:
            if child not in found and child not in spared:
                found[child] = table[child].process
                queue.append(child)
    return list(found.values())


def _facts() -> dict[int, _Fact]:
    """All processes that live now."""
    if IS_LINUX:
        facts = [fact for pid in process_ids() if (fact := _fact(pid))]
    else:
        facts = [fact for line in _output("ps", "-axo", COLUMNS).splitlines() if (fact := _read_line(line))]
    return {fact.process.pid: fact for fact in facts}


def _fact(pid: int) -> _Fact | None:
    if not IS_LINUX:
        return _read_line(_output("ps", "-o", COLUMNS, "-p", str(pid)))
    # The name in brackets may hold brackets and spaces; the state comes after the last one.
    fields = read_process(pid, "stat").rpartition(b")")[2].decode("ascii", "replace").split()
    if len(fields) < 20 or fields[0] in GONE:
        return None
    return _Fact(ProcessId(pid, f"{boot_id()}:{fields[19]}"), int(fields[1]))


def _read_line(line: str) -> _Fact | None:
    fields = line.split(None, 3)
    if len(fields) < 4 or fields[2].startswith(GONE):
        return None
    return _Fact(ProcessId(int(fields[0]), " ".join(fields[3].split())), int(fields[1]))


def _output(*words: str) -> str:
    environment = {
        **program_environment(os.environ),
        "LC_ALL": "C",
        "TZ": "UTC",
    }  # a start time must read the same to every hub
    return run(words, cwd="/", env=environment, seconds=10, most_bytes=4 << 20).out.decode("utf-8", "replace").strip()
