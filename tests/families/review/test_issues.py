"""Issues that planning instances make on fake hosts: once each, from a list or a plan file."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.errors import InvalidInput
from crewhall.fakehosts.faults import Fault
from crewhall.families.review.rules_plan_file import issues_in
from tests.families.review.test_pull_requests import HOSTS, PULL, Landing, make_landing  # noqa: F401 - a fixture
from tests.outside.repos import git

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]
TWO = [{"title": "First", "body": "Do it.", "labels": ["plan"]}, {"title": "Second"}]


class Planning:
    """A planner, and the repository on the host."""

    def __init__(self, loop: Landing) -> None:
        self.loop, self.planner = loop, loop.site.start("Plan it", type="planning", title="plan")
        self.tree = Path(loop.instance(self.planner)["worktree"])

    def make(self, **arguments: Any) -> dict[str, Any]:
        return self.loop.by(self.planner, "create_issues", **arguments)

    def titles(self) -> list[str]:
        return sorted(issue.title for issue in self.loop.repo.issues.values())


@pytest.fixture
def planning(make_landing: Callable[..., Landing], request: pytest.FixtureRequest) -> Planning:  # noqa: F811
    return Planning(make_landing(getattr(request, "param", "github")))


@pytest.mark.parametrize("planning", HOSTS, indirect=True)
def test_a_planner_makes_issues_once(planning: Planning) -> None:
    made = planning.make(issues=TWO)
    assert [(one["title"], one["created"]) for one in made["issues"]] == [("First", True), ("Second", True)]
    assert made["failed"] == [] and planning.titles() == ["First", "Second"]
    again = planning.make(issues=[*TWO, {"title": "Third"}])
    assert [one["created"] for one in again["issues"]] == [False, False, True]
    assert [one["number"] for one in again["issues"][:2]] == [one["number"] for one in made["issues"]]
    assert planning.titles() == ["First", "Second", "Third"]


def test_a_plan_file_becomes_issues(planning: Planning) -> None:
    (planning.tree / "plan.md").write_text("# Plan\n\n## First\n\nDo it.\n\n```\n## not one\n```\n\n## Second\n")
    made = planning.make(plan_file="plan.md")
    assert [one["title"] for one in made["issues"]] == ["First", "Second"]
    text = next(issue.body for issue in planning.loop.repo.issues.values() if issue.title == "First")
    assert text.startswith("Do it.") and "## not one" in text


def test_some_may_fail(planning: Planning) -> None:
    planning.loop.host.fail(Fault(method="POST", path="/issues$", after=1, status=422, times=1))
    made = planning.make(issues=TWO)
    assert [one["title"] for one in made["issues"]] == ["First"]
    assert [(one["title"], one["code"]) for one in made["failed"]] == [("Second", "INVALID_INPUT")]
    assert [one["created"] for one in planning.make(issues=TWO)["issues"]] == [False, True]


def test_a_host_that_made_it_and_did_not_answer_makes_no_second_one(planning: Planning) -> None:
    planning.loop.host.fail(Fault(method="POST", path="/issues$", kind="drop_after"))
    planning.make(issues=TWO[:1])
    planning.make(issues=TWO[:1])
    assert planning.titles() == ["First"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "INVALID_INPUT"),
        ({"issues": TWO, "plan_file": "plan.md"}, "INVALID_INPUT"),
        ({"issues": []}, "INVALID_INPUT"),
        ({"issues": [{"title": ""}]}, "INVALID_INPUT"),
        ({"plan_file": "../shop/file-0"}, "PATH_OUTSIDE_ROOT"),
        ({"plan_file": "nothing.md"}, "NOT_FOUND"),
        ({"plan_file": "file-0"}, "INVALID_INPUT"),
        ({"issues": TWO, "repo_owner": "octo"}, "INVALID_INPUT"),
        ({"issues": TWO, "repo_owner": "octo", "repo_name": "nowhere"}, "NOT_FOUND"),
    ],
)
def test_bad_input_is_refused_and_makes_nothing(planning: Planning, given: dict[str, Any], code: str) -> None:
    refused = planning.loop.refusal(planning.planner, "create_issues", **given)
    assert refused.code == code and planning.titles() == []
    assert planning.loop.refusal(planning.loop.coder, "create_issues", issues=TWO).code == "FORBIDDEN"


@pytest.mark.parametrize("name", [".env", "notes.md"])
def test_no_secret_becomes_an_issue(planning: Planning, name: str) -> None:
    key = "-----BEGIN " + f"PRIVATE KEY-----\n{'MIIE' * 16}\n"
    (planning.tree / name).write_text(f"## Database\n{key}")
    (planning.tree / "plan.md").symlink_to(name)
    for given in (name, "plan.md"):
        refused = planning.loop.refusal(planning.planner, "create_issues", plan_file=given)
        assert refused.code == "FORBIDDEN" and name in refused.message and planning.titles() == []


@pytest.mark.parametrize("pattern", ["octo/*", "OCTO/shop"])
def test_nothing_goes_where_the_settings_do_not_lead(make_landing: Callable[..., Landing], pattern: str) -> None:  # noqa: F811
    """Anyone may write an issue in a public repository: without a list, it is a way out for what an agent has read."""
    loop = make_landing(pulls__repositories=pattern)
    planning, drop = Planning(loop), loop.host.add_repository("mallory", "drop")
    refused = loop.refusal(planning.planner, "create_issues", issues=TWO, repo_owner="mallory", repo_name="drop")
    assert refused.code == "FORBIDDEN" and "mallory/drop" in refused.message and pattern in refused.hint
    assert len(planning.make(issues=TWO, repo_owner="octo", repo_name="shop")["issues"]) == 2
    git(loop.tree, "remote", "set-url", "origin", f"{loop.host.url}/mallory/drop.git")
    for name, tool, given in (
        (planning.planner, "create_issues", {"issues": TWO}),
        (loop.coder, "create_pull_request", PULL),
    ):
        assert loop.refusal(name, tool, **given).code == "FORBIDDEN"
    assert not drop.issues and not drop.pulls and loop.coder not in drop.branches


def test_of_a_huge_plan_only_the_start_is_read(planning: Planning) -> None:
    with (planning.tree / "plan.md").open("wb") as file:
        file.truncate(400_000_000)  # a file may have far more, and take no room on its disk
    tracemalloc.start()
    try:
        assert planning.loop.refusal(planning.planner, "create_issues", plan_file="plan.md").code == "INVALID_INPUT"
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ["", "# One\n### Two\n", "##\n", "```\n## a\n```\n", "## a\n" * 51])
def test_a_plan_without_issues_or_with_too_many_is_refused(database: str, text: str) -> None:
    with pytest.raises(InvalidInput, match="headings"):
        issues_in(text, "plan.md")
