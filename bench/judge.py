"""
What a review costs on top of the CLI: the hub's tool and the same CLI bare, with the same prompt, take turns.

The CLI is a stand-in of two lines of shell, so that nothing but our own work is left; a real one takes a second to
start, and minutes to answer. A verdict that is kept is held against what it can't do without: a row of SQLite, and
one `git status`.
"""

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pysqlite3.dbapi2 as sqlite3

from bench.project_context import git
from crewhall import config
from crewhall.app import Hub, Origin
from crewhall.families.all import registry
from crewhall.families.judge.question import STATUS
from crewhall.identity import OPERATOR

ROUNDS, WARM = 15, 2
DIRTY = 1000
LINE = "def area(width: int, height: int) -> int:  # of a rectangle\n"
LARGE = {f"src/large_{number}.py": LINE * 1000 for number in range(5)}  # 300 kB together
SMALL = {"src/small.py": LINE * 10}
SAID = {"task_id": "bench", "verdict": "PASS", "summary": "So.", "blocking_issues": []}


def judge() -> None:
    """A review of a small file and of 300 kB, in a clean tree and in one with 1,000 changed files; a kept verdict."""
    for dirty in (0, DIRTY):
        with tempfile.TemporaryDirectory() as base:
            bench = Bench(Path(base), dirty)
            print(f"\n{dirty:,} changed files in the tree; a kept verdict is against a row and git status")
            for title, files in (("1 small file", SMALL), ("300 kB in 5 files", LARGE)):
                bench.hand_over(files)
                _show(title, bench.bare, bench.review)
                _show(f"{title}, kept", bench.row_and_status, bench.kept)
            bench.hub.close()


class Bench:
    """A hall, a tree, and a CLI that says always the same and keeps what it was asked."""

    def __init__(self, base: Path, dirty: int) -> None:
        self.tree, self.prompt, cli = base / "tree", base / "prompt", base / "cli"
        said = {"type": "result", "is_error": False, "result": json.dumps(SAID), "usage": {"output_tokens": 1}}
        (base / "said").write_text(json.dumps(said))
        cli.write_text(f"#!/bin/sh\ncat > '{self.prompt}'\ncat '{base}/said'\n")
        cli.chmod(0o755)
        self.words = [str(cli)]
        _make_tree(self.tree, dirty)
        flags = {"home": str(base / "home"), "judge.command": self.words}
        self.hub = Hub(config.load({}, flags), registry())
        self.raw = sqlite3.connect(base / "home" / "hall.db")

    def hand_over(self, files: dict[str, str]) -> None:
        """A contract about these files; the prompt of its review is kept for the bare side."""
        told = {"task_id": "bench", "specification": {"requirements": ["x"]}, "acceptance_criteria": ["y"]}
        (self.tree / "handoff/contract.json").write_text(json.dumps(told | {"changed_files": list(files)}))
        self.review()
        self.asked = self.prompt.read_bytes()

    def review(self, *, fresh: bool = True) -> None:
        given = {"contract_path": "handoff/contract.json", "report_dir": "handoff", "fresh": fresh}
        got = self.hub.call("claude_judge_review", given, OPERATOR, origin=Origin(directory=str(self.tree)))
        assert got["verdict"] == "PASS" and got["cached"] is not fresh, got

    def kept(self) -> None:
        self.review(fresh=False)

    def bare(self) -> None:
        ended = subprocess.run(self.words, cwd=self.tree, input=self.asked, capture_output=True, check=True)
        assert ended.stdout

    def row_and_status(self) -> None:
        assert self.raw.execute("SELECT * FROM judge_report ORDER BY created_at DESC, id LIMIT 1").fetchone()
        subprocess.run(["git", *STATUS], cwd=self.tree, capture_output=True, check=True)


def _make_tree(root: Path, dirty: int) -> None:
    """A repository with the files to be judged, and so many that are not as in its commit."""
    for path, text in {**SMALL, **LARGE, ".gitignore": "handoff/\n"}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "handoff").mkdir()
    (root / "more").mkdir()
    for number in range(DIRTY):
        (root / f"more/{number}.py").write_text(LINE)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    for number in range(dirty):
        (root / f"more/{number}.py").write_text(LINE * 2)


def _show(title: str, floor: Callable[[], None], ours: Callable[[], None]) -> None:
    taken: dict[Callable[[], None], list[float]] = {floor: [], ours: []}
    for number in range(ROUNDS + WARM):
        for side, times in taken.items():
            began = time.perf_counter()
            side()
            if number >= WARM:
                times.append(time.perf_counter() - began)
    pairs = list(zip(taken[floor], taken[ours], strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    more = statistics.median(b - a for a, b in pairs)
    low = statistics.median(taken[floor])
    print(f"  {title:24} {ratio:6.2f} x of {low * 1e3:6.1f} ms; {more * 1e3:6.1f} ms more")


PARTS = {"judge": judge}

if __name__ == "__main__":
    judge()
