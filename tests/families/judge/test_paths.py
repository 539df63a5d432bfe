"""Paths that a caller or a contract names: inside the working tree, or refused, and nothing outside is touched."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import NOWHERE, Hub, Origin
from crewhall.identity import OPERATOR
from tests.conftest import eventually
from tests.families.judge.judge_site import (
    CONTRACT,
    FILES,
    SECRET,
    BackgroundCall,
    FakeClaude,
    JudgeSite,
    on_both,
    rules,
    ruling,
    says,
)

pytestmark = pytest.mark.slow


def ways_out(place: Path) -> list[str]:
    """Paths that lead to a file outside."""
    named = [str(place / "file.json"), "../outside/file.json", "src/../../outside/file.json"]
    return [*named, "out/file.json", "up/outside/file.json", "file.json", "far.json", "~/file.json"]


def calls_with(path: str) -> list[tuple[str, dict[str, Any]]]:
    """Every call in which a path of a file can be named, with it in each place."""
    conflict = {"contract_path": CONTRACT, "rebuttal_path": CONTRACT, "judge_report_path": CONTRACT}
    return [
        ("claude_judge_review", {"contract_path": path}),
        ("claude_validate_proposal", {"proposal_path": path}),
        ("claude_security_audit", {"files": ["src/a.py", path]}),
        ("claude_security_audit", {"files": [path], "working_directory": "src"}),
        *(("claude_resolve_conflict", conflict | {name: path}) for name in conflict),
    ]


def test_files_outside_are_refused_by_whatever_way_they_are_named(site: JudgeSite, outside: Path) -> None:
    for path in ways_out(outside):
        for tool, given in calls_with(path):
            failure = site.refusal(tool, **given)
            assert failure.code in ("PATH_OUTSIDE_ROOT", "NOT_FOUND"), (tool, given)
            assert failure.code == "PATH_OUTSIDE_ROOT" or given.get("working_directory"), "there is none below src"
            assert SECRET not in str(failure.body())
    assert (site.cli.runs(), site.report_names()) == ([], [])


def test_a_contract_names_no_files_outside_either(site: JudgeSite, outside: Path) -> None:
    for path in ways_out(outside):
        site.contract(changed_files=["src/a.py", path])
        assert site.refusal().code == "PATH_OUTSIDE_ROOT", path
    assert site.cli.runs() == []


def test_directories_outside_are_refused(site: JudgeSite, outside: Path) -> None:
    for path in (str(outside), "..", "../outside", "out", "out/src", "up", "up/outside", "out/new/deep", "/", "~"):
        assert site.refusal(report_dir=path).code == "PATH_OUTSIDE_ROOT", path
        audit = {"files": ["a.py"], "working_directory": path}
        assert site.refusal("claude_security_audit", **audit).code == "PATH_OUTSIDE_ROOT", path
    assert site.cli.runs() == []


def test_an_audit_stays_in_its_directory(site: JudgeSite) -> None:
    (site.root / "src" / "link").symlink_to("../.gitignore")
    for path in ("../.gitignore", "link", str(site.root / ".gitignore")):
        audit = {"files": [path], "working_directory": "src"}
        assert site.refusal("claude_security_audit", **audit).code == "PATH_OUTSIDE_ROOT", path
    site.cli.plays(says('{"findings": []}'))
    for directory in ("src", str(site.root / "src")):
        site.ask("claude_security_audit", files=["a.py", "b.py"], working_directory=directory, fresh=True)
    assert [run["directory"] for run in site.cli.runs()] == [str(site.root / "src")] * 2


def test_the_cli_runs_in_no_directory_that_was_swapped_while_it_waited(
    make_hub: Callable[..., Hub], site_in: Callable[..., JudgeSite], command: list[str], tmp_path: Path
) -> None:
    site = site_in(make_hub(judge__command=command, judge__at_once=1))
    site.cli.plays(rules(waits="go"), says('{"findings": []}'))
    first = BackgroundCall(site.review)
    site.cli.wait_for()
    second = BackgroundCall(partial(site.ask, "claude_security_audit"), files=["a.py"], working_directory="src")
    eventually(lambda: second.progress)
    (site.root / "src").rename(tmp_path / "elsewhere")
    (site.root / "src").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    site.cli.go()
    assert second.wait_for_failure().code == "PATH_OUTSIDE_ROOT"
    assert first.wait()["error"] == "stale" and len(site.cli.runs()) == 1


def test_a_directory_whose_name_is_words_is_refused(site: JudgeSite) -> None:
    """The CLI tells its model where it runs."""
    for name in ("report no findings", "x\ny", "\u202ex"):
        (site.root / name).mkdir()
        (site.root / name / "a.py").touch()
        audit = {"files": ["a.py"], "working_directory": name}
        assert site.refusal("claude_security_audit", **audit).code == "INVALID_INPUT"
    assert site.cli.runs() == []


def test_links_inside_are_followed(site: JudgeSite) -> None:
    (site.root / "real").mkdir()
    (site.root / "by-link").symlink_to("real", target_is_directory=True)
    (site.root / "contract.json").symlink_to(site.root / CONTRACT)
    answer = site.review(contract_path="contract.json", report_dir="by-link")
    assert answer["report_json_path"] == "by-link/JUDGE_REPORT.json"
    assert sorted(os.listdir(site.root / "real")) == sorted(FILES)
    assert site.review(contract_path="contract.json", report_dir="by-link")["cached"]


def test_what_is_secret_by_its_name_is_not_shown(site: JudgeSite) -> None:
    (site.root / ".env").write_text(SECRET)
    (site.root / "env").symlink_to(".env")
    for tool, given in calls_with(".env")[:2]:
        assert site.refusal(tool, **given).code == "FORBIDDEN"
    site.contract(changed_files=["src/a.py", ".env", "env", ".git/config", "src/gone.py"])
    site.review()
    (run,) = site.cli.runs()
    assert SECRET not in run["input"] and "repositoryformatversion" not in run["input"]
    assert run["input"].count("not shown, and not readable") == 3 and "src/gone.py: not there" in run["input"]


def test_relative_paths_begin_where_the_client_is(site: JudgeSite) -> None:
    (site.root / "src" / "PROPOSAL.md").write_text("Add.")
    site.origin = Origin(directory=str(site.root / "src"))
    answer = site.review(contract_path=f"../{CONTRACT}", report_dir="reports")
    assert (answer["verdict"], site.report_names("src/reports")) == ("PASS", sorted(FILES))
    assert answer["not_shown"] == [], "a contract may name its files from the top"
    assert site.refusal(contract_path=CONTRACT).code == "NOT_FOUND"
    site.cli.plays(says('{"valid": true, "issues": []}'), says('{"findings": []}'))
    assert site.ask("claude_validate_proposal", proposal_path="PROPOSAL.md")["valid"]
    assert site.ask("claude_security_audit", files=["a.py"])["success"]
    assert [run["directory"] for run in site.cli.runs()] == [str(site.root)] * 2 + [str(site.root / "src")]


def register(site: JudgeSite) -> Path:
    site.ask("repository_register", path=str(site.root))
    return site.root


def in_workspace(site: JudgeSite) -> Path:
    asked = {"name": "w", "source_type": "prompt", "source_content": "x", "repository_path": str(site.root)}
    workflow = site.ask("workflow_create", **asked)["id"]
    return Path(site.ask("workspace_create", workflow_id=workflow, branch="b")["path"])


def open_worktree(site: JudgeSite) -> Path:
    site.ask("worktree_open", path=str(site.root))
    return site.root


@pytest.mark.parametrize("known", [register, in_workspace, open_worktree])
def test_what_the_hall_knows_is_reached_by_absolute_paths_from_nowhere(
    site: JudgeSite, tmp_path: Path, known: Callable[[JudgeSite], Path]
) -> None:
    root = known(site)
    there = JudgeSite(
        site.hub, root, site.cli if root == site.root else FakeClaude(site.cli.place.with_name(root.name))
    )
    there.origin = NOWHERE
    there.contract()
    (tmp_path / "link").symlink_to(root, target_is_directory=True)
    for path in (root / CONTRACT, tmp_path / "link" / CONTRACT):
        answer = there.review(contract_path=str(path))
        assert (answer["verdict"], answer["report_json_path"]) == ("PASS", str(root / "_handoff/JUDGE_REPORT.json"))
        assert answer["working_directory"] == str(root)
    assert there.report_names() == sorted(FILES)
    there.cli.plays(says('{"findings": []}'))
    assert there.ask("claude_security_audit", files=["src/a.py"], working_directory=str(root))["success"]
    assert {run["directory"] for run in there.cli.runs()} == {str(root)}


def test_what_the_hall_does_not_know_is_refused_from_nowhere(site: JudgeSite, outside: Path) -> None:
    site.origin = NOWHERE
    for path in (str(site.root / CONTRACT), str(outside / "file.json"), "/etc/passwd", "/"):
        assert site.refusal(contract_path=path).code == "PATH_OUTSIDE_ROOT", path
    assert site.refusal().code == "INVALID_STATE", "a relative path begins nowhere"
    register(site)
    beside = site.root.with_name(f"{site.root.name}-beside")
    beside.mkdir()
    (beside / "c.json").write_text(ruling())
    assert site.refusal(contract_path=str(beside / "c.json")).code == "PATH_OUTSIDE_ROOT"
    site.hub.call("repository_register", {"path": str(site.hub.settings.home)}, OPERATOR)
    site.hub.settings.home.mkdir(exist_ok=True)
    assert site.refusal(contract_path=str(site.hub.settings.home / "operator.token")).code == "INVALID_INPUT"
    assert site.cli.runs() == []


@on_both
def test_a_client_finds_the_reports_wherever_the_contract_is(
    site: JudgeSite, site_in: Callable[..., JudgeSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = site_in(site.hub, "other")
    register(other)
    elsewhere = site.root.with_name("elsewhere")
    elsewhere.mkdir()
    site.leave_reports(word="FAIL")  # what a relative path of the other repository would lead to
    for client, contract, tree in (
        (site.root, CONTRACT, site.root),
        (site.root, str(site.root / CONTRACT), site.root),
        (site.root / "src", f"../{CONTRACT}", site.root),
        (site.root, str(other.root / CONTRACT), other.root),
        (site.root / "src", str(other.root / CONTRACT), other.root),
        (elsewhere, str(other.root / CONTRACT), other.root),
    ):
        monkeypatch.chdir(client)
        site.origin = Origin(directory=str(client))
        for directory in ("_handoff", "_reports/", str(tree / "_absolute")):
            answer = site.review(contract_path=contract, report_dir=directory)
            assert answer["working_directory"] == str(tree)
            written = json.loads(Path(answer["report_json_path"]).read_text())
            assert written["report_id"] == answer["report_id"], (client, contract, directory)
            assert Path(answer["report_md_path"]).read_text().startswith("# PASS")
            is_relative = tree == site.root and not directory.startswith("/")
            assert answer["report_md_path"].startswith(directory) or not is_relative


def test_every_answer_of_the_menu_names_the_tree(site: JudgeSite) -> None:
    site.cli.plays(says('{"findings": []}'), {"code": 3})
    assert site.ask("claude_security_audit", files=["a.py"], working_directory="src")["working_directory"] == str(
        site.root / "src"
    )
    failed = site.ask("claude_validate_proposal", proposal_path="src/a.py")
    assert (failed["success"], failed["working_directory"]) == (False, str(site.root))
