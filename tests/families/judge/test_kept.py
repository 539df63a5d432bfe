"""Verdicts that are kept: the same question costs nothing, and another question is asked anew."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from tests.conftest import Clock
from tests.families.judge.judge_site import CONTRACT, FILES, JudgeSite, on_both, rules, ruling, says
from tests.outside.repos import commit, git

pytestmark = pytest.mark.slow

Change = Callable[[Path], object]


@on_both
def test_the_same_question_costs_nothing(site: JudgeSite, clock: Clock) -> None:
    site.cli.plays(rules("FAIL"))
    first = site.review()
    clock.advance(60)
    for name in FILES:
        (site.root / "_handoff" / name).unlink()
    again = site.review()
    assert len(site.cli.runs()) == 1
    free = {"cached": True, "input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0, "duration_ms": 0}
    assert again == first | free and first["cost_usd"] == 0.25
    assert site.report_names() == sorted(FILES), "they are written anew"
    assert site.reports()["spent"]["reports"] == 1
    fresh = site.review(fresh=True)
    assert (fresh["cached"], len(site.cli.runs())) == (False, 2) and fresh["report_id"] != first["report_id"]
    assert site.review()["report_id"] in (first["report_id"], fresh["report_id"])


def test_who_asked_anew_has_the_newer_answer_from_then_on(site: JudgeSite, clock: Clock) -> None:
    site.cli.plays(rules("PASS"), rules("FAIL"))
    site.review()
    clock.advance(1)
    site.review(fresh=True)
    assert site.review()["verdict"] == "FAIL"


def dirty(name: str, text: str) -> Change:
    def change(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    return change


def swap_link(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("src/b.py")


CHANGES: list[tuple[str, Change]] = [
    ("the contract", lambda root: (root / CONTRACT).write_text((root / CONTRACT).read_text().replace("adds", "sums"))),
    ("HEAD", lambda root: git(root, "commit", "-q", "--allow-empty", "-m", "second")),
    ("a tracked file", dirty("src/b.py", "from a import add\n\n")),
    ("its content, not its size", dirty("src/b.py", "from b import add\n\n")),
    ("what is staged", lambda root: git(root, "add", "src/b.py")),
    ("an untracked file", dirty("new.py", "1")),
    ("its content", dirty("new.py", "2")),
    ("one in new directories", dirty("deep/er/new.py", "1")),
    ("the content of that", dirty("deep/er/new.py", "2")),
    ("a mode", lambda root: (root / "src/a.py").chmod(0o755)),
    ("a deleted file", lambda root: (root / ".gitignore").unlink()),
    ("a link", lambda root: (root / "link").symlink_to("src/a.py")),
    ("where it leads", swap_link),
]


def test_whatever_changes_makes_it_another_question(site: JudgeSite) -> None:
    first = site.review()
    asked = {first["report_id"]}
    for what, change in CHANGES:
        change(site.root)
        answer = site.review()
        assert not answer["cached"] and answer["report_id"] not in asked, what
        asked.add(answer["report_id"])
        assert site.review()["cached"], f"{what}: and the same again is kept"


def test_a_tree_that_is_as_it_was_has_its_verdict_again(site: JudgeSite) -> None:
    site.cli.plays(rules("PASS"), rules("FAIL"))
    before = (site.root / "src/b.py").read_text()
    assert site.review()["verdict"] == "PASS"
    (site.root / "src/b.py").write_text("broken")
    assert site.review()["verdict"] == "FAIL"
    (site.root / "src/b.py").write_text(before)
    again = site.review()
    assert (again["verdict"], again["cached"]) == ("PASS", True)
    assert json.loads((site.root / "_handoff/JUDGE_REPORT.json").read_text())["verdict"] == "PASS"


def test_what_does_not_belong_to_the_question(site: JudgeSite) -> None:
    site.review()
    for path in (CONTRACT, "src/a.py"):
        os.utime(site.root / path, (1, 1))
    dirty("ignored/notes", "git does not see this")(site.root)
    site.leave_reports(word="FAIL")
    assert site.review(timeout_seconds=60)["cached"]
    (site.root / "other").symlink_to("ignored", target_is_directory=True)
    git(site.root, "add", "other")
    for report_dir in ("other", "ignored"):
        answer = site.review(report_dir=report_dir)
    assert answer["cached"], "where the reports go"


def test_tracked_reports_do_not_count_either(site: JudgeSite) -> None:
    site.review()
    commit(site.root, "with the reports")
    assert not site.review()["cached"]
    assert site.review()["cached"]


@pytest.mark.parametrize(
    "other", [{"judge__model": "opus"}, {"judge__skip_permissions": True}, {"judge__prompt_bytes": 1}]
)
def test_another_judge_is_asked_anew(
    site: JudgeSite, make_hub: Callable[..., Hub], command: list[str], other: dict[str, Any]
) -> None:
    site.review()
    elsewhere = JudgeSite(make_hub(judge__command=command, **other), site.root, site.cli)
    assert not elsewhere.review()["cached"]
    assert elsewhere.review()["cached"] and site.review()["cached"]
    words = site.cli.runs()[1]["words"]
    assert words != site.cli.runs()[0]["words"] or "judge__prompt_bytes" in other


def test_a_tree_that_changed_meanwhile_is_told_of_and_not_kept(site: JudgeSite) -> None:
    site.cli.plays(rules(writes={"src/b.py": "changed by somebody"}))
    answer = site.review()
    assert answer["verdict"] == "PASS" and "changed while it was asked" in answer["detail"]
    assert "changed while" in site.report(answer)["text"]
    git(site.root, "checkout", "-q", "src/b.py")
    assert site.review()["cached"] is False


@pytest.mark.parametrize("path", ["src/a.py", CONTRACT])
@pytest.mark.parametrize("word", ["PASS", "FAIL"])
def test_a_pass_for_files_that_changed_meanwhile_is_none(site: JudgeSite, path: str, word: str) -> None:
    text = (site.root / path).read_text().replace("add", "subtract")
    site.cli.plays(rules(word, writes={path: text}))
    answer = site.review()
    is_pass = word == "PASS"
    assert (answer["verdict"], answer["error"]) == ((None, "stale") if is_pass else ("FAIL", None))
    assert "files that it is about changed" in answer["detail"]
    assert site.report_names() == ([] if is_pass else sorted(FILES))


def gitlink(root: Path) -> None:
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{git(root, 'rev-parse', 'HEAD')},module")


def stop_watching(flag: str) -> Change:
    return lambda root: git(root, "update-index", flag, "src/b.py")


def no_git(root: Path) -> None:
    shutil.rmtree(root / ".git")


def many(root: Path) -> None:
    (root / "many").mkdir()
    for number in range(2001):
        (root / "many" / str(number)).touch()


def broken(root: Path) -> None:
    (root / ".git" / "HEAD").write_text("nonsense")


@pytest.mark.parametrize(
    "change",
    [
        *(no_git, broken, many, gitlink),
        *(stop_watching("--assume-unchanged"), stop_watching("--skip-worktree")),
    ],
)
def test_what_cannot_be_told_apart_is_not_kept(site: JudgeSite, change: Change) -> None:
    change(site.root)
    assert [site.review()["cached"] for _ in range(2)] == [False, False]
    assert {run["directory"] for run in site.cli.runs()} == {str(site.root)}


def test_what_failed_is_not_kept(site: JudgeSite) -> None:
    site.cli.plays({"code": 1}, says("PASS"), rules("PASS"))
    assert [site.review()["verdict"] for _ in range(4)] == [None, None, "PASS", "PASS"]
    assert len(site.cli.runs()) == 3


def test_the_rest_of_the_menu_is_kept_too_each_for_itself(site: JudgeSite) -> None:
    (site.root / "P.md").write_text("Add.")
    (site.root / "R.md").write_text("No.")
    (site.root / "J.json").write_text(ruling("FAIL"))
    sides = {"contract_path": CONTRACT, "rebuttal_path": "R.md", "judge_report_path": "J.json"}
    asked: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("claude_validate_proposal", {"proposal_path": "P.md"}, {"valid": True, "issues": []}),
        ("claude_security_audit", {"files": ["src/a.py"]}, {"findings": []}),
        ("claude_resolve_conflict", sides, {"side": "judge", "reasoning": "it does not"}),
    ]
    for tool, given, said in asked:
        site.cli.plays(says(json.dumps(said)))
        first, again = site.ask(tool, **given), site.ask(tool, **given)
        assert (first["cached"], again["cached"]) == (False, True) and first["success"], tool
        assert said.items() <= again.items()
        assert site.ask(tool, fresh=True, **given)["cached"] is False
    audit = {"files": ["a.py"], "working_directory": "src"}
    assert site.ask("claude_security_audit", **audit)["cached"] is False, "less may be read there"
