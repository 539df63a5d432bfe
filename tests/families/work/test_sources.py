"""What the hall tells of a worktree in its context: open tasks of its repository, reserved files; both databases."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.identity import OPERATOR
from tests.conftest import Clock
from tests.families.work.repositories import WorkspaceSite
from tests.families.work.workflows import finish, move, plan_workflow, register, task

Tell = Callable[..., Any]


@pytest.fixture
def tell(hub: Hub, site: WorkspaceSite) -> Tell:
    """The lines of a source, with what it left out; or the reason why there are none."""

    def ask(name: str, root: str | None = None) -> Any:
        origin = Origin(worktree=root or str(site.root))
        body = hub.call("get_project_context", {"sources": [name]}, OPERATOR, origin=origin)
        if body["missing"]:
            return body["missing"][0]["reason"]
        return body["sections"][0]["text"].split("\n"), body["sections"][0]["left_out"]

    return ask


def test_open_tasks_of_the_repository_are_told_with_their_holders_those_of_this_worktree_first(
    hub: Hub, site: WorkspaceSite, tell: Tell, tmp_path: Path
) -> None:
    assert tell("tasks") == "the hall has no open task for this repository"
    workflow, ids = site.workflow("one", "two", "three", "four")
    plan_workflow(site.ask, task("elsewhere"), repository_path=str(tmp_path / "other"))
    made = site.workspace(workflow, "fix", task_ids=[ids["three"]])
    ada = register(site.ask)
    site.ask("task_claim", task_id=ids["two"], agent_id=ada)
    move(site.ask, ids["two"], "in_progress")
    finish(site.ask, ids["one"])
    end = f"; workflow w ({workflow}, in_progress)"
    two = f"{ids['two']} in_progress: two, held by ada ({ada}){end}"
    four = f"{ids['four']} pending: four{end}"
    assert tell("tasks") == ([two, f"{ids['three']} pending: three, in {made['path']}{end}", four], None)
    here = f"{ids['three']} pending: three, in this worktree{end}"
    assert tell("tasks", made["path"]) == ([here, two, four], None)
    finish(site.ask, ids["four"])
    assert tell("tasks", made["path"]) == ([here, two], None)
    site.ask("workflow_update_status", id=workflow, status="abandoned")
    assert tell("tasks") == "the hall has no open task for this repository"


def test_a_blocked_task_says_so_and_of_many_the_first_are_told(site: WorkspaceSite, tell: Tell) -> None:
    tasks = [task(f"t{number:03}", number + 1) for number in range(130)]
    workflow, ids = plan_workflow(site.ask, *tasks, repository_path=str(site.root))
    lines, left_out = tell("tasks")
    assert lines[0] == f"{ids['t000']} pending: t000; workflow w ({workflow}, ready)"
    assert lines[1] == f"{ids['t001']} blocked: t001; workflow w ({workflow}, ready)"
    assert len(lines) == 100 and left_out == "30 of 130 lines"


def test_reserved_files_of_the_repository_are_told_until_their_time_is_over(
    site: WorkspaceSite, tell: Tell, clock: Clock, tmp_path: Path
) -> None:
    assert tell("reservations") == "nothing is reserved in this repository"
    ada, bob = register(site.ask), register(site.ask, "bob")
    told = {"repository_path": str(site.root)}
    site.ask("file_reserve", agent_id=ada, paths=["src/a.py"], reason="rewriting it", seconds=600, **told)
    site.ask("file_reserve", agent_id=bob, paths=["docs/**"], exclusive=False, seconds=60, **told)
    site.ask("file_reserve", agent_id=bob, paths=["x"], repository_path=str(tmp_path / "other"))
    docs = f"docs/** shared by bob ({bob}) until 2027-01-15 08:01 UTC"
    src = f"src/a.py reserved by ada ({ada}) until 2027-01-15 08:10 UTC: rewriting it"
    assert tell("reservations") == ([docs, src], None)
    clock.advance(61)
    assert tell("reservations") == ([src], None)
