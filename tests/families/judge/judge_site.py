"""What the tests of the judge stand on: a tree with a contract, a script for the fake Claude, and its results."""

import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.errors import Failure
from crewhall.identity import OPERATOR
from crewhall.stop import Stop
from tests.conftest import BOTH, eventually
from tests.edges.stdio import is_alive

FAKE_CLAUDE = Path(__file__).with_name("fake_claude.py")
CONTRACT = "_handoff/TASK_CONTRACT.json"
FILES = ("JUDGE_REPORT.md", "JUDGE_REPORT.json")
SECRET = "what-is-outside"  # in files beside the tree
ISSUE = {"file": "src/a.py", "line": 2, "issue": "it subtracts"}
USAGE = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 1000}
Act = dict[str, Any]
on_both = pytest.mark.parametrize("database", BOTH, indirect=True)


def command_for(place: Path) -> list[str]:
    """The setting judge.command for a fake Claude with its scripts there."""
    return [sys.executable, "-S", "-E", str(FAKE_CLAUDE), str(place)]


def ruling(word: str = "PASS", task_id: str = "T-1", **more: Any) -> str:
    """A verdict, as Claude says it."""
    issues = [] if word == "PASS" else [ISSUE]
    return json.dumps({"task_id": task_id, "verdict": word, "summary": "so", "blocking_issues": issues, **more})


def result(text: Any, **more: Any) -> str:
    """What the CLI prints when its model has said this."""
    fields = {"type": "result", "subtype": "success", "is_error": False, "result": text}
    return json.dumps({**fields, "usage": USAGE, "total_cost_usd": 0.25, **more}) + "\n"


def says(text: Any, **act: Any) -> Act:
    return {"out": result(text), **act}


def rules(word: str = "PASS", task_id: str = "T-1", **act: Any) -> Act:
    return says(ruling(word, task_id), **act)


class FakeClaude:
    """The script of a fake Claude for one tree, and the notes it left there."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        os.mkfifo(place / "go")
        self._go = os.open(place / "go", os.O_RDWR)
        self.plays(rules())

    def plays(self, *acts: Act) -> None:
        """From now on: the next run plays the first act."""
        passing = self.place / "passing"
        passing.write_text(json.dumps([*([{}] * len(self.runs())), *acts]))
        passing.rename(self.place / "script.json")

    def go(self, runs: int = 1) -> None:
        """Let so many runs go on that wait for it."""
        os.write(self._go, b"." * runs)

    def close(self) -> None:
        """End what a test that failed has left."""
        for pid in self.processes_left():
            os.kill(pid, signal.SIGKILL)
        os.close(self._go)

    def runs(self) -> list[dict[str, Any]]:
        """How it was run, each time."""
        files = sorted(self.place.glob("run-*.json"), key=lambda path: int(path.stem[4:]))
        return [json.loads(path.read_text()) for path in files]

    def journal(self, *words: str) -> list[str]:
        """What happened, in order; of these kinds alone if any are named."""
        journal = self.place / "journal"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [line for line in lines if not words or line.split()[0] in words]

    def wait_for(self, count: int = 1, word: str = "start") -> None:
        eventually(lambda: len(self.journal(word)) >= count)

    def wait_until_gone(self, seconds: float) -> None:
        eventually(lambda: not self.processes_left(), seconds)

    def processes_left(self) -> list[int]:
        """The processes of all runs that are still there."""
        pids = [run["pid"] for run in self.runs()] + [int(line.split()[1]) for line in self.journal("stray")]
        return [pid for pid in pids if is_alive(pid) and str(self.place.parent) in _command_line(pid)]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


class JudgeSite:
    """A hall, and a working tree with a contract in it; calls come from a client that is there."""

    def __init__(self, hub: Hub, root: Path, cli: FakeClaude) -> None:
        self.hub, self.root, self.cli = hub, root, cli
        self.origin = Origin(directory=str(root))

    @classmethod
    def at(cls, hub: Hub, root: Path, stage: Path, model: Path) -> "JudgeSite":
        """A new one: its tree is a copy of the model, with a contract."""
        shutil.copytree(model, root, symlinks=True)
        site = cls(hub, root, FakeClaude(stage))
        site.contract()
        return site

    def contract(self, path: str = CONTRACT, **fields: Any) -> None:
        defaults = {"task_id": "T-1", "specification": {"requirements": [f"add in {self.root.name}"]}}
        more = {"acceptance_criteria": ["it adds"], "changed_files": ["src/a.py"]}
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**defaults, **more, **fields}))

    def ask(self, tool: str, /, *, stop: Any = None, progress: Any = None, **given: Any) -> dict[str, Any]:
        return self.hub.call(tool, given, OPERATOR, origin=self.origin, stop=stop, progress=progress)

    @staticmethod
    def ask_of(hub: Hub, tool: str, /, **given: Any) -> dict[str, Any]:
        """A call of one who is nowhere."""
        return hub.call(tool, given, OPERATOR)

    def review(self, **given: Any) -> dict[str, Any]:
        return self.ask("claude_judge_review", **{"contract_path": CONTRACT, **given})

    def refusal(self, tool: str = "claude_judge_review", **given: Any) -> Failure:
        """The failure that a call meets; it must meet one that says what to do next."""
        with pytest.raises(Failure) as caught:
            self.review(**given) if tool == "claude_judge_review" else self.ask(tool, **given)
        assert caught.value.message and caught.value.hint
        return caught.value

    def report(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """What is stored of it."""
        return self.ask("judge_report_get", id=outcome["report_id"])

    def reports(self, **given: Any) -> dict[str, Any]:
        return self.ask("judge_report_list", **given)

    def report_names(self, directory: str = "_handoff") -> list[str]:
        """The names in the directory for reports, without the contract's."""
        return sorted(path.name for path in (self.root / directory).iterdir() if path.name != "TASK_CONTRACT.json")

    def leave_reports(self, directory: str = "_handoff", word: str = "PASS") -> None:
        """Leave report files there that say this, as of a review before."""
        (self.root / directory).mkdir(exist_ok=True)
        for name in FILES:
            (self.root / directory / name).write_text(ruling(word))


class BackgroundCall:
    """A call in a thread of its own: its result, and the progress it reported."""

    def __init__(self, call: Callable[..., dict[str, Any]], **given: Any) -> None:
        self.stop, self.progress = Stop(), list[tuple[float, str]]()
        self.answer: dict[str, Any] | None = None
        self.failure: Failure | None = None
        self._call, self._given = call, given
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.answer = self._call(stop=self.stop, progress=self._note, **self._given)
        except Failure as failure:
            self.failure = failure

    def _note(self, done: float, total: float | None, message: str | None) -> None:
        self.progress.append((done, message or ""))

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, seconds: float = 20.0) -> dict[str, Any]:
        """Its answer, once it is there."""
        self._thread.join(seconds)
        assert self.answer is not None, self.failure or "it goes on"
        return self.answer

    def wait_for_failure(self, seconds: float = 20.0) -> Failure:
        self._thread.join(seconds)
        assert self.failure is not None, self.answer or "it goes on"
        return self.failure
