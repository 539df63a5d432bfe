"""The judge is real Claude Code, whose model plays a script: what it rules, what that took, what its caller gets."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from crewhall.errors import Cancelled
from crewhall.stop import Stop
from tests.edges.claude import Json
from tests.edges.real_judge import CONTRACT, MODEL, Judge, contract_in, judging, verdict
from tests.families.work.workflows import plan_workflow, task
from tests.outside.repos import make_repository
from tools.npm import CLAUDE_CODE
from tools.stubs.anthropic import Play, Problem, Turn, Use

DOLLARS = (1200 * 4 + 340 * 20 + 5000 * 0.2 + 60 * 5) / 1e6  # of one answer, at this model's prices


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, sqlite_file: Path) -> Iterator[Judge]:
    with judging(tmp_path_factory.mktemp("judge"), sqlite_file) as made:
        yield made


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a contract in it."""
    root = make_repository(tmp_path / "shop").root
    contract_in(Path(root))
    return Path(root)


def test_health_tells_its_version(judge: Judge) -> None:
    health = judge.ask("claude_health")
    (version,) = CLAUDE_CODE.values()
    assert health["available"] and health["version"] == f"{version} (Claude Code)"
    assert (health["error"], health["model"]) == (None, MODEL)


@pytest.mark.parametrize(("word", "blocking"), [("PASS", 0), ("CONDITIONAL", 1), ("FAIL", 2), ("CRITICAL_HALT", 1)])
def test_a_verdict_is_stored_with_what_it_took(judge: Judge, tree: Path, word: str, blocking: int) -> None:
    """The model reads a file first: two answers, and the tokens and the cost of both."""
    workflow, tasks = plan_workflow(judge.ask, task("dark"))
    contract_in(tree, task_id=tasks["dark"])
    says = verdict(word, blocking, tasks["dark"])
    got = judge.review(tree, Use("Read", {"file_path": str(tree / "file-1")}), says)
    assert (got["success"], got["verdict"], got["blocking_issues_count"], got["error"]) == (True, word, blocking, None)
    assert "line 29" in judge.model.told()[1][0], "what it read"
    assert (got["input_tokens"], got["output_tokens"]) == (2 * 6260, 2 * 340)
    assert got["cost_usd"] == pytest.approx(2 * DOLLARS)
    _is_kept(judge, tree, got, workflow)
    assert got["workflow_paused"] == (word == "CRITICAL_HALT")
    assert judge.ask("workflow_get", id=workflow)["status"] == ("paused" if got["workflow_paused"] else "ready")
    assert not _files_with(judge.home, tasks["dark"]), "the CLI keeps nothing of what it was asked"


def _is_kept(judge: Judge, tree: Path, got: Json, workflow: str) -> None:
    kept = judge.ask("judge_report_get", id=got["report_id"])
    same = ("verdict", "input_tokens", "output_tokens", "cost_usd", "duration_ms", "workflow_id", "task_id")
    assert {name: kept[name] for name in same} == {name: got[name] for name in same}
    assert kept["model"] == MODEL
    spent = judge.ask("judge_report_list", workflow_id=workflow)["spent"]
    assert (spent["reports"], spent["input_tokens"], spent["output_tokens"]) == (1, 12520, 680)
    report = json.loads((tree / got["report_json_path"]).read_text())
    assert (report["verdict"], report["tokens_used"], report["task_id"]) == (got["verdict"], 13200, got["task_id"])
    assert kept["text"] == (tree / got["report_md_path"]).read_text()


def _files_with(place: Path, word: str) -> list[Path]:
    files = [path for path in place.rglob("*") if path.is_file()]
    return [path for path in files if word.encode() in path.read_bytes()]


ISSUE = {"file": None, "line": 3, "issue": "no goal"}
MENU: list[tuple[str, Json, Json, str]] = [
    ("claude_validate_proposal", {"proposal_path": "file-0"}, {"valid": False, "issues": [ISSUE]}, "invalid"),
    ("claude_security_audit", {"files": ["file-0"]}, {"findings": [ISSUE | {"severity": "high"}]}, "findings"),
    (
        "claude_resolve_conflict",
        {"contract_path": CONTRACT, "rebuttal_path": "file-1", "judge_report_path": "file-2"},
        {"side": "judge", "reasoning": "line 3 is as it says"},
        "judge",
    ),
]


@pytest.mark.parametrize(("tool", "given", "said", "word"), MENU)
def test_the_rest_of_the_menu(judge: Judge, tree: Path, tool: str, given: Json, said: Json, word: str) -> None:
    judge.model.plays(Use("StructuredOutput", said))
    got = judge.ask(tool, tree, **given)
    assert got["success"] and {name: got[name] for name in said} == said, got
    kept = judge.ask("judge_report_get", id=got["report_id"])
    assert (kept["verdict"], kept["input_tokens"], kept["output_tokens"]) == (word, 6260, 340)


def test_a_model_that_answers_in_prose_is_understood(judge: Judge, tree: Path) -> None:
    said = json.dumps(verdict("FAIL", 2).arguments)
    got = judge.review(tree, f"Here it is:\n```json\n{said}\n```")
    assert (got["verdict"], got["blocking_issues_count"]) == ("FAIL", 2), got


FAILURES: dict[str, tuple[Turn, str, str]] = {
    "prose": ("It is fine, PASS.", "parse_error", "no JSON object"),
    "nothing": ("", "parse_error", "no JSON object"),
    "another task": (verdict(task_id="light-mode"), "parse_error", "for task 'light-mode'"),
    "a key that is wrong": (Problem(401, "authentication_error"), "401", ""),
    "an API that fails": (Problem(500), "500", ""),
}


@pytest.mark.parametrize("name", FAILURES)
def test_without_a_verdict_the_caller_is_told_why(judge: Judge, tree: Path, name: str) -> None:
    turn, error, detail = FAILURES[name]
    got = judge.review(tree, turn)
    assert not got["success"] and (got["verdict"], got["report_json_path"]) == (None, None)
    assert error in got["error"] and detail in (got["detail"] or ""), got
    assert not list((tree / "_handoff").glob("JUDGE_REPORT*"))
    assert judge.ask("judge_report_get", id=got["report_id"])["error"] == got["error"]


def test_who_is_not_logged_in_is_told_so(judge: Judge, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    got = judge.review(tree, verdict())
    assert not got["success"] and "Not logged in" in got["error"]
    assert judge.model.requests == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_root_is_refused_in_the_words_of_the_cli(judge: Judge, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IS_SANDBOX", raising=False)
    with judge.with_settings(judge__skip_permissions=True) as free:
        got = free.review(tree, verdict())
    assert not got["success"] and "cannot be used with root" in got["error"]
    assert judge.model.requests == []


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that any user may come into, with a home that is there already.

    The CLI makes a file in the root. If it also made one beside it, that could have been a rename of the root.
    """
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "home").mkdir()
        for directory in (place, f"{place}/home"):
            os.chmod(directory, 0o777)
        yield Path(place)


def test_skipped_permissions_give_it_all_tools(judge: Judge, open_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root by way of runuser, as nobody; a change that it makes is told."""
    monkeypatch.delenv("IS_SANDBOX", raising=False)
    command = [*_as_nobody(), "claude"]
    monkeypatch.setenv("HOME", str(open_place / "home"))
    monkeypatch.setenv("TMPDIR", str(open_place / "home"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(open_place / "home/.claude"))
    root = Path(make_repository(open_place / "shop").root)
    contract_in(root)
    root.chmod(0o777)
    with judge.with_settings(judge__skip_permissions=True, judge__command=command) as free:
        got = free.review(root, Use("Bash", {"command": "id -un > made; env > around"}), verdict())
    assert got["verdict"] == "PASS", got
    assert (root / "made").read_text() == (root / "made").owner() + "\n"
    assert "changed while it was asked" in got["detail"]
    assert "ANTHROPIC_BASE_URL" in (root / "around").read_text(), "what it logs in by"
    assert "MARK" not in (root / "around").read_text(), "nor is anything of an outer session's, or of the hall's"


def _as_nobody() -> list[str]:
    """Words before a command that run it as somebody who is not root; none for those who are not."""
    if os.geteuid() != 0:
        return []
    if shutil.which("runuser") is None:
        pytest.skip("root may not skip permissions, and there is no runuser here")
    words = ["runuser", "-u", "nobody", "--"]
    if subprocess.run([*words, "test", "-x", shutil.which("claude") or "claude"], check=False).returncode:
        pytest.skip("nobody can't run the Claude Code that is in this checkout")
    return words


@dataclass
class Silence:
    """A model that says nothing until the test is over."""

    asked: threading.Event
    over: threading.Event

    def script(self, _: str) -> Play:
        self.asked.set()
        self.over.wait(60)
        yield verdict()


@pytest.fixture
def silence(judge: Judge) -> Iterator[Silence]:
    quiet = Silence(threading.Event(), threading.Event())
    judge.model.script = quiet.script
    yield quiet
    quiet.over.set()


def test_a_cancelled_review_leaves_no_process(judge: Judge, tree: Path, silence: Silence) -> None:
    stop = Stop()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(partial(judge.review, tree, stop=stop))
        assert silence.asked.wait(30) and judge.processes
        stop.cancel()
        began = time.monotonic()
        with pytest.raises(Cancelled):
            call.result(30)
    assert judge.processes == [] and time.monotonic() - began < 2
    assert not list((tree / "_handoff").glob("JUDGE_REPORT*"))


def test_a_late_review_leaves_no_process(judge: Judge, tree: Path, silence: Silence) -> None:
    began = time.monotonic()
    got = judge.review(tree, timeout_seconds=1)
    assert judge.processes == [] and time.monotonic() - began < 1 + 2
    assert (got["success"], got["timed_out"], got["error"], got["verdict"]) == (False, True, "timed_out", None)
    assert not list((tree / "_handoff").glob("JUDGE_REPORT*"))
