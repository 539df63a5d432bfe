"""A person's own tmux server, worktrees and branches beside the hall's stay as they are, whatever the hall does."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crewhall.families.crew.site import tmux_of
from crewhall.token_file import read_operator_token
from tests.conftest import eventually
from tests.edges.claude import asking
from tests.edges.program import Program
from tests.outside.repos import commit, git, make_repository

NAMES = ("work-trial-a1", "work-trial-a2", "mine")  # the second is what the instance's session is called too
# Settings that would change how sessions start, are counted and end, and that leave a trace where they are in force.
HOSTILE = """
set -g default-command "echo $TMUX >> {mark}; exec sleep 600"
set -g default-shell /bin/false
set -g base-index 1
setw -g pane-base-index 1
set -g remain-on-exit off
set -s exit-empty off
set-hook -g session-created "run-shell 'echo #{{socket_path}} >> {mark}'"
set-hook -g pane-died "kill-server"
set-hook -g session-closed "run-shell 'echo #{{socket_path}} >> {mark}'"
"""
CONFIG = """
[crew.runtimes.custom]
command = ["sh", "-c", "echo ready; exec sleep 600"]
"""
SHOWN = (
    ["list-sessions", "-F", "#{session_id} #{session_name} #{session_created} #{session_windows} #{session_activity}"],
    ["list-panes", "-a", "-F", "#{session_name} #{window_index} #{pane_index} #{pane_pid} #{pane_dead} #{pane_title}"],
    *(["show-options", "-g"], ["show-options", "-s"], ["show-options", "-gw"], ["show-hooks", "-g"]),
    *(["show-environment", "-g"], ["list-buffers"], ["list-clients"], ["display-message", "-p", "#{pid}"]),
    *(["capture-pane", "-p", "-t", f"={name}:"] for name in NAMES),
)


class Person:
    """Somebody who uses tmux and git here: a server on the default socket, and worktrees named like instances."""

    def __init__(self, directory: Path, sockets: str) -> None:
        self.home, self.mark = directory / "person", directory / "mark"
        self.home.mkdir()
        (self.home / ".tmux.conf").write_text(HOSTILE.format(mark=self.mark))
        self.around = {"HOME": str(self.home), "TMUX_TMPDIR": sockets, "PATH": os.environ["PATH"]}
        for name in NAMES:
            self.tmux("new-session", "-d", "-s", name, "sh", "-c", f"echo this is {name}; exec sleep 600")
        self.tmux("set-buffer", "copied")
        self.root = Path(make_repository(directory / "shop").root)
        self.trees = [self.root, *(self._worktree(name) for name in ("work-trial-a1", "mine"))]
        (self.root / "file-0").write_text("not committed\n")
        (self.root / "new").write_text("not added\n")
        self.inside = self.around | {
            "TMUX": f"{sockets}/tmux-{os.getuid()}/default,{self.tmux_pid},0",
            "TMUX_PANE": "%0",
        }

    def _worktree(self, name: str) -> Path:
        """One beside those of instances, with a commit and with work that is not committed."""
        path = Path(f"{self.root}-worktrees", name)
        git(self.root, "worktree", "add", "-q", "-b", name, str(path))
        (path / "own").write_text(name)
        commit(path, f"of {name}")
        (path / "own").write_text(f"{name} and more")
        (path / "staged").write_text("staged")
        git(path, "add", "staged")
        return path

    def tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", *words], env=self.around, capture_output=True, text=True, check=True, timeout=20)
        return done.stdout

    @property
    def tmux_pid(self) -> int:
        return int(self.tmux("display-message", "-p", "#{pid}"))

    def things(self, instance: str | None = None) -> dict[str, Any]:
        """All that is theirs: the terminals, each file with its bytes and times, the refs, git's own files for them."""
        listed = git(self.root, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        own = [self.root / ".git" / name for name in ("config", "HEAD", "index", "logs/HEAD", "logs/refs/heads/main")]
        own += [
            self.root / ".git/worktrees" / tree.name / name for tree in self.trees[1:] for name in ("HEAD", "index")
        ]
        files = [path for tree in self.trees for path in tree.rglob("*") if ".git" not in path.parts]
        return {
            "tmux": {" ".join(words): self.tmux(*words) for words in SHOWN},
            "refs": {name: line for line in listed if (name := line.split()[0]) != f"refs/heads/{instance}"},
            "files": {str(path): _facts(path) for path in sorted({*files, *own})},
        }

    def has_kept(self, before: dict[str, Any], instance: str | None = None) -> bool:
        """Whether all that is theirs is as before; the instance's own branch does not count."""
        now = self.things(instance)
        changed = [
            (name, before[kind].get(name), now[kind].get(name))
            for kind in before
            for name in {*before[kind], *now[kind]}
            if before[kind].get(name) != now[kind].get(name)
        ]
        assert changed == []
        return True

    def close(self) -> None:
        self.tmux("kill-server")


def _facts(path: Path) -> tuple[int, int, bytes]:
    """Mode, time and content; git may write a file of its own again with the same content."""
    facts = path.lstat()
    at = 0 if ".git" in path.parts else facts.st_mtime_ns
    return facts.st_mode, at, path.read_bytes() if path.is_file() else b""


@contextmanager
def a_person(directory: Path) -> Iterator[Person]:
    sockets = tempfile.mkdtemp(prefix="person-", dir="/tmp")
    person = Person(directory, sockets)
    try:
        yield person
    finally:
        person.close()
        shutil.rmtree(sockets)


@pytest.mark.timeout(90)
def test_what_is_a_persons_own_stays_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "hall"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG)
    with a_person(tmp_path) as person:
        program = Program(home, person.inside)  # as a hub that is started inside the person's tmux
        tmux = tmux_of(program.settings)
        eventually(lambda: all(f"this is {name}" in person.tmux("capture-pane", "-p", "-t", name) for name in NAMES))
        before = person.things()

        with program.up() as up:
            ask = asking(up, read_operator_token(home))

            def do(tool: str, **arguments: Any) -> dict[str, Any]:
                """Do something to the instance, after which the person's things are as before."""
                found = ask(tool, **arguments)
                assert person.has_kept(before, "work-trial-a2"), tool
                return found

            def fix() -> None:
                assert program.run("doctor", "--fix").code in (0, 1)
                assert person.has_kept(before, "work-trial-a2")

            try:
                where = {"repository_path": str(person.root), "runtime": "custom"}
                made = do("instance_start", prompt="x", title="trial", **where)
                name = made["instance_id"]
                assert name == "work-trial-a2"
                eventually(lambda: "ready" in tmux.capture(name, 10))
                assert_plain(tmux.name)
                do("instance_stop", id=name)
                do("instance_restart", id=name)
                fix()
                os.kill(server_pid(tmux.name), signal.SIGKILL)
                eventually(lambda: ask("instance_get", id=name)["state"]["name"] == "ended")
                fix()
                do("instance_restart", id=name)
                eventually(lambda: "ready" in tmux.capture(name, 10))
                do("instance_abandon", id=name)
                fix()
                assert person.has_kept(before)
            finally:
                for session in tmux.panes():
                    tmux.kill(session)
        assert tmux.name not in person.mark.read_text() and "default" in person.mark.read_text()


def hall_tmux(name: str, *words: str) -> str:
    return subprocess.run(["tmux", "-L", name, *words], capture_output=True, text=True, check=True, timeout=20).stdout


def server_pid(name: str) -> int:
    return int(hall_tmux(name, "display-message", "-p", "#{pid}"))


def assert_plain(name: str) -> None:
    """The hall's server has nothing of the person's settings."""
    shown = hall_tmux(name, "show-options", "-g") + hall_tmux(name, "show-hooks", "-g")
    assert "base-index 0" in shown and "/bin/false" not in shown and "sleep 600" not in shown
    assert "kill-server" not in shown and "run-shell" not in shown
