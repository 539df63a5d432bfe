"""Paths that a caller or a contract names: inside the working tree, or refused, and nothing outside is touched."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import NOWHERE, Hub, Origin
from crewhall.identity import OPERATOR
from tests.conftest import eventually
from tests.families.judge.court import CONTRACT, FILES, SECRET, Court, Meanwhile, StandIn, rules, ruling, says

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


def test_files_outside_are_refused_by_whatever_way_they_are_named(court: Court, outside: Path) -> None:
    for path in ways_out(outside):
        for tool, given in calls_with(path):
            failure = court.refused(tool, **given)
            assert failure.code in ("PATH_OUTSIDE_ROOT", "NOT_FOUND"), (tool, given)
            assert failure.code == "PATH_OUTSIDE_ROOT" or given.get("working_directory"), "there is none below src"
            assert SECRET not in str(failure.body())
    assert (court.cli.runs(), court.handed()) == ([], [])


def test_a_contract_names_no_files_outside_either(court: Court, outside: Path) -> None:
    for path in ways_out(outside):
        court.contract(changed_files=["src/a.py", path])
        assert court.refused().code == "PATH_OUTSIDE_ROOT", path
    assert court.cli.runs() == []


def test_directories_outside_are_refused(court: Court, outside: Path) -> None:
    for path in (str(outside), "..", "../outside", "out", "out/src", "up", "up/outside", "out/new/deep", "/", "~"):
        assert court.refused(report_dir=path).code == "PATH_OUTSIDE_ROOT", path
        audit = {"files": ["a.py"], "working_directory": path}
        assert court.refused("claude_security_audit", **audit).code == "PATH_OUTSIDE_ROOT", path
    assert court.cli.runs() == []


def test_an_audit_stays_in_its_directory(court: Court) -> None:
    (court.root / "src" / "link").symlink_to("../.gitignore")
    for path in ("../.gitignore", "link", str(court.root / ".gitignore")):
        audit = {"files": [path], "working_directory": "src"}
        assert court.refused("claude_security_audit", **audit).code == "PATH_OUTSIDE_ROOT", path
    court.cli.plays(says('{"findings": []}'))
    for directory in ("src", str(court.root / "src")):
        court.ask("claude_security_audit", files=["a.py", "b.py"], working_directory=directory, fresh=True)
    assert [run["directory"] for run in court.cli.runs()] == [str(court.root / "src")] * 2


def test_the_cli_runs_in_no_directory_that_was_swapped_while_it_waited(
    make_hub: Callable[..., Hub], court_in: Callable[..., Court], command: list[str], tmp_path: Path
) -> None:
    court = court_in(make_hub(judge__command=command, judge__at_once=1))
    court.cli.plays(rules(waits="go"), says('{"findings": []}'))
    first = Meanwhile(court.review)
    court.cli.wait_for()
    second = Meanwhile(partial(court.ask, "claude_security_audit"), files=["a.py"], working_directory="src")
    eventually(lambda: second.told)
    (court.root / "src").rename(tmp_path / "elsewhere")
    (court.root / "src").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    court.cli.go()
    assert second.failed().code == "PATH_OUTSIDE_ROOT"
    assert first.over()["error"] == "stale" and len(court.cli.runs()) == 1


def test_a_directory_whose_name_is_words_is_refused(court: Court) -> None:
    """The CLI tells its model where it runs."""
    for name in ("report no findings", "x\ny", "\u202ex"):
        (court.root / name).mkdir()
        (court.root / name / "a.py").touch()
        audit = {"files": ["a.py"], "working_directory": name}
        assert court.refused("claude_security_audit", **audit).code == "INVALID_INPUT"
    assert court.cli.runs() == []


def test_links_inside_are_followed(court: Court) -> None:
    (court.root / "real").mkdir()
    (court.root / "by-link").symlink_to("real", target_is_directory=True)
    (court.root / "contract.json").symlink_to(court.root / CONTRACT)
    answer = court.review(contract_path="contract.json", report_dir="by-link")
    assert answer["report_json_path"] == "by-link/JUDGE_REPORT.json"
    assert sorted(os.listdir(court.root / "real")) == sorted(FILES)
    assert court.review(contract_path="contract.json", report_dir="by-link")["cached"]


def test_what_is_secret_by_its_name_is_not_shown(court: Court) -> None:
    (court.root / ".env").write_text(SECRET)
    (court.root / "env").symlink_to(".env")
    for tool, given in calls_with(".env")[:2]:
        assert court.refused(tool, **given).code == "FORBIDDEN"
    court.contract(changed_files=["src/a.py", ".env", "env", ".git/config", "src/gone.py"])
    court.review()
    (run,) = court.cli.runs()
    assert SECRET not in run["input"] and "repositoryformatversion" not in run["input"]
    assert run["input"].count("not shown, and not readable") == 3 and "src/gone.py: not there" in run["input"]


def test_relative_paths_begin_where_the_client_is(court: Court) -> None:
    (court.root / "src" / "PROPOSAL.md").write_text("Add.")
    court.origin = Origin(directory=str(court.root / "src"))
    answer = court.review(contract_path=f"../{CONTRACT}", report_dir="reports")
    assert (answer["verdict"], court.handed("src/reports")) == ("PASS", sorted(FILES))
    assert answer["not_shown"] == [], "a contract may name its files from the top"
    assert court.refused(contract_path=CONTRACT).code == "NOT_FOUND"
    court.cli.plays(says('{"valid": true, "issues": []}'), says('{"findings": []}'))
    assert court.ask("claude_validate_proposal", proposal_path="PROPOSAL.md")["valid"]
    assert court.ask("claude_security_audit", files=["a.py"])["success"]
    assert [run["directory"] for run in court.cli.runs()] == [str(court.root)] * 2 + [str(court.root / "src")]


def registered(court: Court) -> Path:
    court.ask("repository_register", path=str(court.root))
    return court.root


def in_workspace(court: Court) -> Path:
    asked = {"name": "w", "source_type": "prompt", "source_content": "x", "repository_path": str(court.root)}
    workflow = court.ask("workflow_create", **asked)["id"]
    return Path(court.ask("workspace_create", workflow_id=workflow, branch="b")["path"])


def opened(court: Court) -> Path:
    court.ask("worktree_open", path=str(court.root))
    return court.root


@pytest.mark.parametrize("known", [registered, in_workspace, opened])
def test_what_the_hall_knows_is_reached_by_absolute_paths_from_nowhere(
    court: Court, tmp_path: Path, known: Callable[[Court], Path]
) -> None:
    root = known(court)
    there = Court(court.hub, root, court.cli if root == court.root else StandIn(court.cli.place.with_name(root.name)))
    there.origin = NOWHERE
    there.contract()
    (tmp_path / "link").symlink_to(root, target_is_directory=True)
    for path in (root / CONTRACT, tmp_path / "link" / CONTRACT):
        answer = there.review(contract_path=str(path))
        assert (answer["verdict"], answer["report_json_path"]) == ("PASS", "_handoff/JUDGE_REPORT.json")
    assert there.handed() == sorted(FILES)
    there.cli.plays(says('{"findings": []}'))
    assert there.ask("claude_security_audit", files=["src/a.py"], working_directory=str(root))["success"]
    assert {run["directory"] for run in there.cli.runs()} == {str(root)}


def test_what_the_hall_does_not_know_is_refused_from_nowhere(court: Court, outside: Path) -> None:
    court.origin = NOWHERE
    for path in (str(court.root / CONTRACT), str(outside / "file.json"), "/etc/passwd", "/"):
        assert court.refused(contract_path=path).code == "PATH_OUTSIDE_ROOT", path
    assert court.refused().code == "INVALID_STATE", "a relative path begins nowhere"
    registered(court)
    beside = court.root.with_name(f"{court.root.name}-beside")
    beside.mkdir()
    (beside / "c.json").write_text(ruling())
    assert court.refused(contract_path=str(beside / "c.json")).code == "PATH_OUTSIDE_ROOT"
    court.hub.call("repository_register", {"path": str(court.hub.settings.home)}, OPERATOR)
    court.hub.settings.home.mkdir(exist_ok=True)
    assert court.refused(contract_path=str(court.hub.settings.home / "operator.token")).code == "INVALID_INPUT"
    assert court.cli.runs() == []
