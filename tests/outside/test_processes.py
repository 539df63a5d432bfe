"""Processes are known by pid and start time, and ended with all that they started."""

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crewhall.errors import Cancelled
from crewhall.outside import processes
from crewhall.outside.processes import (
    Marked,
    ProcessId,
    ancestors,
    boot_id,
    carries,
    end_tree,
    identify,
    is_alive,
    marked_processes,
    trees,
)
from crewhall.stop import Stop
from tests.conftest import eventually
from tests.outside.written import written

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
# A shell, a child in a session of its own, and a grandchild.
FAMILY = "setsid sh -c 'sleep 3600 & echo $! > grandchild; wait' & echo ready > ready; wait"
Started = subprocess.Popen[bytes]


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Started]:
    yield from run_script(tmp_path, FAMILY)


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[Started]:
    yield from run_script(tmp_path, f"trap '' TERM; {FAMILY}")


@contextmanager
def running(words: list[str], **more: Any) -> Iterator[Started]:
    """A child that is killed at the end, however the test ends."""
    with subprocess.Popen(words, **more) as child:
        try:
            yield child
        finally:
            child.kill()


def tree(root: ProcessId) -> list[ProcessId]:
    return trees([root])[root]


def run_script(tmp_path: Path, script: str) -> Iterator[Started]:
    mark = f"TEST_{secrets.token_hex(6)}"
    with running(["sh", "-c", script], cwd=tmp_path, env={**os.environ, mark: "1"}) as child:
        eventually(lambda: written(tmp_path / "grandchild").strip())
        yield child
        for one in marked_processes(mark, "1"):
            os.kill(one.process.pid, signal.SIGKILL)


def known(pid: int) -> ProcessId:
    found = identify(pid)
    assert found is not None
    return found


def test_a_process_is_itself_until_it_ends(family: Started) -> None:
    one = known(family.pid)
    assert one == known(family.pid) and is_alive(one) and one.pid == family.pid
    assert not is_alive(ProcessId(one.pid, one.started + "0"))
    family.kill()
    eventually(lambda: identify(family.pid) is None)  # a zombie: nobody has waited for it
    assert Path(f"/proc/{family.pid}").exists() and not is_alive(one)


def test_two_processes_differ_in_their_start() -> None:
    assert known(os.getpid()).started != known(os.getppid()).started
    assert identify(2**22 + 1) is None


def test_a_boot_has_one_name() -> None:
    assert boot_id() and boot_id() == boot_id() and boot_id() in known(os.getpid()).started


def test_ancestors_lead_up_to_the_first_process(family: Started) -> None:
    line = ancestors(family.pid)
    assert line[:3] == [family.pid, os.getpid(), os.getppid()] and line[-1] == 1
    assert ancestors(2**22 + 1) == []


def test_a_tree_has_children_in_other_sessions(family: Started, tmp_path: Path) -> None:
    eventually(lambda: len(tree(known(family.pid))) == 3)
    pids = [one.pid for one in tree(known(family.pid))]
    assert pids[0] == family.pid and int((tmp_path / "grandchild").read_text()) in pids
    assert tree(ProcessId(family.pid, "another start")) == []
    ours, theirs = trees([known(os.getpid()), known(family.pid)]).values()
    assert ours[0].pid == os.getpid() and set(theirs) <= set(ours) and len(theirs) == 3


def test_a_tree_ends_as_a_whole(family: Started) -> None:
    root = known(family.pid)
    all_of_it = tree(root)
    assert end_tree(root) == len(all_of_it) == 3
    assert not any(map(is_alive, all_of_it)) and family.wait(10) == -signal.SIGTERM
    assert end_tree(root) == 0


# In a tree that it ends: it starts a child, ends the tree from its root down, and waits.
INSIDER = """
import os, subprocess, time
from crewhall.outside.processes import end_tree, identify
child = subprocess.Popen(["sleep", "3602"])
ended = end_tree(identify(os.getppid()))
with open("part", "w") as file:
    file.write(f"{ended} {os.getpid()} {child.pid}")
os.replace("part", "told")
time.sleep(600)
"""


def test_who_ends_its_own_tree_spares_itself_and_its_children(tmp_path: Path) -> None:
    with running(["sh", "-c", '"$@"; true', "sh", sys.executable, "-c", INSIDER], cwd=tmp_path) as root:
        ended, own, child = map(int, eventually(lambda: written(tmp_path / "told")).split())
        try:
            assert ended == 1 and root.wait(10) == -signal.SIGTERM
            assert identify(own) and identify(child)
        finally:
            os.kill(own, signal.SIGKILL)
            os.kill(child, signal.SIGKILL)


def test_what_ignores_the_request_is_killed(stubborn: Started) -> None:
    root = known(stubborn.pid)
    all_of_it = tree(root)
    assert end_tree(root, grace_seconds=0.1) == 3
    assert not any(map(is_alive, all_of_it)) and stubborn.wait(10) == -signal.SIGKILL


def test_what_starts_during_the_end_is_ended_too(tmp_path: Path) -> None:
    script = "trap 'sleep 3601 & echo $! > late' TERM; touch ready; while :; do sleep 0.05; done"
    with running(["sh", "-c", script], cwd=tmp_path) as child:
        eventually((tmp_path / "ready").exists)
        assert end_tree(known(child.pid), grace_seconds=0.5) >= 3  # the shell, its sleeper, the late one
        late = int(eventually(lambda: written(tmp_path / "late").strip()))
        eventually(lambda: identify(late) is None)


def test_a_reused_pid_is_never_signalled(family: Started) -> None:
    one = known(family.pid)
    assert end_tree(ProcessId(one.pid, one.started + "0"), grace_seconds=0) == 0
    assert not processes._signal(ProcessId(one.pid, one.started + "0"), signal.SIGKILL)
    assert is_alive(one)


def test_our_own_process_is_spared() -> None:
    script = (
        "import os, subprocess; from crewhall.outside.processes import *; "
        "child = subprocess.Popen(['sleep', '3600']); print(end_tree(identify(os.getpid()), 0.1), child.wait())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "1 -15\n")


def test_a_caller_that_gives_up_is_heard(stubborn: Started) -> None:
    stop = Stop()
    threading.Timer(0.2, stop.cancel).start()
    with pytest.raises(Cancelled):
        end_tree(known(stubborn.pid), grace_seconds=30, stop=stop)
    assert is_alive(known(stubborn.pid))


@linux_only
def test_marked_processes_are_found_wherever_they_went() -> None:
    name, long = f"TEST_{secrets.token_hex(6)}", "x" * 400
    environment = {**os.environ, name: "one"}
    command = ["setsid", "sh", "-c", "exec sleep 3600 || :", long]
    with running(command, env=environment) as child:
        found = eventually(lambda: marked_processes(name, "one"))
        assert [one.process for one in found] == [known(child.pid)]
        eventually(lambda: marked_processes(name, "one") == [Marked(known(child.pid), "sleep 3600")])
        one = known(child.pid)
        assert carries(one, {name: "one"}) and carries(one, {name: "one", "PATH": os.environ["PATH"]})
        assert not carries(one, {name: "on"}) and not carries(one, {name: "one", "PATH": "/nowhere"})
        assert not carries(ProcessId(one.pid, f"{one.started}0"), {name: "one"})
        assert marked_processes(name, "on") == marked_processes(name, "one2") == marked_processes(name[1:], "one") == []
        child.kill()
        child.wait()
        assert marked_processes(name, "one") == []


@linux_only
def test_a_long_command_line_is_cut() -> None:
    name = f"TEST_{secrets.token_hex(6)}"
    with running(["sh", "-c", "read line; :", "x" * 400], env={name: "1"}, stdin=subprocess.PIPE):
        words = eventually(lambda: [one.words for one in marked_processes(name, "1") if one.words.startswith("sh")])[0]
        assert words == ("sh -c read line; : " + "x" * 400)[:200]


@pytest.mark.skipif(os.getuid() != 0, reason="only root sees other users' environments")
@linux_only
def test_another_users_process_is_not_ours() -> None:
    name = f"TEST_{secrets.token_hex(6)}"
    with running(["sleep", "3600"], env={**os.environ, name: "1"}, user=65534) as child:
        eventually(lambda: Path(f"/proc/{child.pid}/cmdline").read_bytes().startswith(b"sleep"))
        assert marked_processes(name, "1") == []


def test_without_proc_ps_tells_the_same(family: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = [one.pid for one in tree(known(family.pid))]
    monkeypatch.setattr(processes, "IS_LINUX", False)
    root = known(family.pid)
    assert is_alive(root) and [one.pid for one in tree(root)] == pids and ancestors(family.pid)[-1] == 1
    assert root.started[:3] in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    assert end_tree(root) == 3 and identify(family.pid) is None
