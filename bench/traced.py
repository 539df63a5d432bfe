"""
The git and tmux commands that a piece of work runs: recorded by stand-ins in PATH, then run again without it.

    with recorded(directory) as commands:      hub.call("instance_start", …)
    replay(commands, {"/traced/": "/floor/", "work-it-a1": "work-it-a7"}) -> what each wrote

Texts in words, directories, variables and input are replaced. What the work does between two commands that later ones
need is done as well: a temporary index is copied, a worktree is moved aside.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from crewhall.outside.worktrees import TRASH

# Records how it was called, then runs the real program, with the same input and to the same end.
STAND_IN = """#!{python} -IS
import json, os, subprocess, sys
name = os.path.basename(sys.argv[0])
given = sys.stdin.buffer.read()
own = {{key: value for key, value in os.environ.items() if key.startswith("GIT_") or key.startswith("LC_")}}
line = {{"words": [name, *sys.argv[1:]], "cwd": os.getcwd(), "env": own, "stdin": given.decode("latin-1")}}
ended = subprocess.run([{real}[name], *sys.argv[1:]], input=given, capture_output=True, close_fds=False)
with open({log!r}, "a") as file:
    file.write(json.dumps({{**line, "code": ended.returncode}}) + "\\n")
sys.stdout.buffer.write(ended.stdout)
sys.stderr.buffer.write(ended.stderr)
sys.exit(ended.returncode)
"""
PROGRAMS = ("git", "tmux")
TRIES, PAUSE = 10, 0.02
refusals: list[str] = []  # commands that had to be repeated


@dataclass(frozen=True)
class Command:
    """One command as it was run."""

    words: list[str]
    cwd: str
    env: dict[str, str]
    stdin: str
    code: int

    def replaced(self, texts: Mapping[str, str]) -> "Command":
        """The same command with other texts."""
        text = json.dumps(asdict(self))
        for old, new in texts.items():
            text = text.replace(old, new)
        return Command(**json.loads(text))

    @property
    def is_version(self) -> bool:
        """Whether it is the look at git's version, which a hub takes once in its life."""
        return self.words[-1] == "version"


@contextmanager
def recorded(directory: Path) -> Iterator[list[Command]]:
    """In the block, what this process runs is recorded; the list is filled at its end. Temporary files go below."""
    places = {name: directory / name for name in ("bin", "tmp")}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    log = directory / "log.jsonl"
    log.unlink(missing_ok=True)
    real = {name: shutil.which(name) for name in PROGRAMS}
    for name in PROGRAMS:
        (places["bin"] / name).write_text(STAND_IN.format(python=sys.executable, real=real, log=str(log)))
        (places["bin"] / name).chmod(0o755)
    commands: list[Command] = []
    path, before = os.environ["PATH"], tempfile.tempdir
    os.environ["PATH"], tempfile.tempdir = f"{places['bin']}:{path}", str(places["tmp"])
    try:
        yield commands
    finally:
        os.environ["PATH"], tempfile.tempdir = path, before
    found = [Command(**json.loads(line)) for line in log.read_text().splitlines()]
    commands += [one for one in found if not one.is_version]


def replay(commands: list[Command], texts: Mapping[str, str]) -> list[str]:
    """Run the commands one after the other; what each wrote."""
    return [_run(command.replaced(texts)) for command in commands]


def _run(command: Command) -> str:
    """What a command writes, once it ends as it did when it was recorded: git and tmux refuse some of many at once."""
    _prepare(command)
    env, given = {**os.environ, **command.env}, command.stdin.encode("latin-1")
    for _ in range(TRIES):
        ended = subprocess.run(command.words, cwd=command.cwd, env=env, input=given, capture_output=True, check=False)
        if ended.returncode == command.code:
            return ended.stdout.decode()
        refusals.append(" ".join(command.words))
        time.sleep(PAUSE)
        _undo(command)
    raise RuntimeError(f"{command.words} ended with {ended.returncode}: {ended.stderr!r}")


def _prepare(command: Command) -> None:
    """Do what the work did before this command."""
    if not os.path.isdir(command.cwd) and command.cwd.endswith(TRASH):
        parent, name = os.path.split(command.cwd)
        os.rename(os.path.join(parent, name[1 : -len(TRASH)]), command.cwd)
    index = command.env.get("GIT_INDEX_FILE")
    if index is not None and not os.path.exists(index):
        os.makedirs(os.path.dirname(index), exist_ok=True)
        shutil.copy2(os.path.join(command.env["GIT_DIR"], "index"), index)


def _undo(command: Command) -> None:
    """`git worktree add` may fail over another one that is half made, and leaves its branch then."""
    if {"worktree", "add", "-b"} <= set(command.words):
        words = ["git", "branch", "--quiet", "-D", command.words[command.words.index("-b") + 1]]
        subprocess.run(words, cwd=command.cwd, capture_output=True, check=False)
