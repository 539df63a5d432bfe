"""
What the context of a worktree costs, against `git status` and `git log -20` run one after the other.

A repository of 20,000 files in 200 directories, all sides in turns; a ratio is the median over the rounds.

    cold            a hub that was never asked about it: nothing is kept, and no text of it was counted
    warm            asked again, nothing has changed
    after an edit   asked again, one more file has changed

`python -m bench.project_context` runs it, and tells what the first answer of a fresh process costs.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crewhall import config
from crewhall.app import Hub, Origin
from crewhall.families.all import registry
from crewhall.families.project.family import ANSWERS
from crewhall.identity import OPERATOR
from crewhall.outside import tokens

DIRECTORIES, EACH, COMMITS = 200, 100, 40
ROUNDS = 25
SETTLE = 2.5  # seconds after which a file's times tell whether it changed
Taken = tuple[float, float]
Found = dict[str, list[tuple[Taken, Taken]]]


def git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def repository(root: Path) -> None:
    """Files, a README, a manifest, recipes and some history."""
    git(root, "init", "-q", "-b", "main")
    for number in range(DIRECTORIES):
        directory = root / f"src/part_{number // 20}/module_{number}"
        directory.mkdir(parents=True)
        for name in range(EACH):
            (directory / f"file_{name}.py").write_text(f"# {number} {name}\n" + f"print({name})\n" * 8)
    (root / "README.md").write_text("# A large one\n\n" + "It has many files, and this is about them.\n" * 120)
    (root / "pyproject.toml").write_text('[project]\nname = "large"\nversion = "1"\n')
    (root / "AGENTS.md").write_text("# For agents\n\n" + "Run the tests before you commit.\n" * 30)
    (root / "justfile").write_text("# Run the tests.\ntest:\n    true\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    for number in range(COMMITS):
        (root / "README.md").open("a").write(f"{number}\n")
        git(root, "commit", "-qam", f"Change number {number} to the README")


def bare(root: Path) -> None:
    for words in (["status"], ["log", "-20"]):
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)


class Asked:
    """A hub, and the ways to ask it."""

    def __init__(self, root: Path) -> None:
        self.root, self.edited = root, 0
        self.hub = Hub(config.load({}, {"home": tempfile.mkdtemp()}), registry())

    def ask(self) -> dict[str, Any]:
        return self.hub.call("get_project_context", {}, OPERATOR, origin=Origin(directory=str(self.root)))

    def forget(self) -> None:
        self.hub.state(ANSWERS).clear()
        for counted in (tokens._long, tokens._line):
            counted.cache_clear()

    def edit(self) -> None:
        self.edited += 1
        path = self.root / f"src/part_0/module_{self.edited % 20}/file_{self.edited}.py"
        path.write_text(path.read_text() + f"# edit {self.edited}\n")


def taken(function: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor, all programs counted that were run."""
    began, before = time.perf_counter(), os.times()
    function()
    return time.perf_counter() - began, sum(os.times()[:4]) - sum(before[:4])


def context() -> None:
    """Cold, warm and after an edit, each against the two bare commands of the same round."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "large"
        root.mkdir()
        repository(root)
        time.sleep(SETTLE)
        asked = Asked(root)
        prepare = {"cold": asked.forget, "warm": lambda: None, "after an edit": asked.edit}
        found: Found = {name: [] for name in prepare}
        for number in range(ROUNDS):
            for name, before in prepare.items():
                before()
                both = taken(asked.ask), taken(lambda: bare(root))
                if number >= 2:  # the first rounds warm up
                    found[name].append(both)
        report(found, asked.ask())
        print(f"  the first answer of a process, which loads the vocabulary: {first(root)}")
        print(f"  the same when that is loaded, as where a worktree is served: {first(root, 'beforehand')}")


def report(found: Found, body: dict[str, Any]) -> None:
    print(f"\nget_project_context, {DIRECTORIES * EACH} files: {body['tokens']} of {body['max_tokens']} tokens")
    for name, rounds in found.items():
        told = []
        for kind in (0, 1):
            ours, floor = (statistics.median(side[kind] for side in sides) for sides in zip(*rounds, strict=True))
            ratio = statistics.median(ours[kind] / max(floor[kind], 0.001) for ours, floor in rounds)
            told.append(f"{ratio:5.2f} x ({ours * 1e3:.0f} to {floor * 1e3:.0f} ms)")
        print(f"  {name:14} {told[0]}   processor {told[1]}")


FIRST = """
import sys
from pathlib import Path
from bench.project_context import Asked, bare, taken
from crewhall.outside.tokens import _ranks
root = Path(sys.argv[1])
asked = Asked(root)
if "beforehand" in sys.argv:
    _ranks()
print(f"{taken(asked.ask)[0] / taken(lambda: bare(root))[0]:.2f} x")
"""


def first(root: Path, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", FIRST, str(root), *words], check=True, capture_output=True, text=True
    ).stdout.strip()


PARTS = {"context": context}

if __name__ == "__main__":
    context()
