"""One hall for many repositories: each has one path, from wherever in it a client comes."""

from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.identity import OPERATOR
from tests.conftest import Clock
from tests.families.work.workflows import Ask, code_of, events, new_workflow, plan_workflow, register, task
from tests.outside.test_places import Git, app, git

__all__ = ["app", "git"]  # fixtures

NEW = {"name": "w", "source_type": "prompt", "source_content": "do it"}


@pytest.fixture
def fix(app: Path, git: Git, tmp_path: Path) -> Path:
    """A linked working tree of the repository."""
    git(app, "worktree", "add", "-q", str(tmp_path / "fix"), "-b", "fix")
    return tmp_path / "fix"


def test_every_way_into_a_repository_is_the_same_repository(hub: Hub, operator: Ask, app: Path, fix: Path) -> None:
    (fix / "src").mkdir()
    made = [new_workflow(operator, repository_path=f"{path}") for path in (app, app / "src", fix, f"{fix}//src/")]
    for directory in (app / "src/deep", fix / "src"):
        made.append(hub.call("workflow_create", NEW, OPERATOR, origin=Origin(str(directory)))["id"])
    elsewhere = new_workflow(operator, repository_path=str(app.parent))
    assert {operator("workflow_get", id=one)["repository_path"] for one in made} == {str(app)}
    assert operator("workflow_get", id=elsewhere)["repository_path"] == str(app.parent), "in no repository: as given"
    for path in (app, app / "src", fix):
        listed = operator("workflow_list", repository_path=str(path))
        assert {one["id"] for one in listed["workflows"]} == set(made) and listed["total"] == len(made)
    assert [one["id"] for one in operator("workflow_list", repository_path=str(app.parent))["workflows"]] == [elsewhere]


def test_a_workflow_makes_its_repository_known_once(operator: Ask, app: Path, fix: Path, clock: Clock) -> None:
    new_workflow(operator, repository_path=str(fix))
    (known,) = operator("repository_list")["repositories"]
    assert (known["path"], known["name"]) == (str(app), "app")
    operator("repository_register", path=str(app), name="the app")
    clock.advance(1)
    new_workflow(operator, repository_path=str(app / "src"))
    (again,) = operator("repository_list")["repositories"]
    assert again["name"] == "the app" and again["updated_at"] < clock.now
    assert [what for what, _, _ in events(operator, topic="repository")] == [
        "repository.registered",
        "repository.renamed",
    ]
    new_workflow(operator, repository_path=str(app.parent))
    new_workflow(operator, repository_path="/srv/on/another/machine")
    new_workflow(operator)
    assert operator("repository_list")["total"] == 1


def test_what_fails_makes_no_repository_known(hub: Hub, operator: Ask, app: Path) -> None:
    def stop() -> None:
        raise RuntimeError("stopped by the test")

    hub.before_commit = stop
    with pytest.raises(RuntimeError):
        new_workflow(operator, repository_path=str(app))
    hub.before_commit = lambda: None
    assert operator("repository_list")["total"] == operator("workflow_list")["total"] == 0


def test_a_repository_is_registered_at_the_path_that_is_given(operator: Ask, app: Path) -> None:
    operator("repository_register", path=str(app / "src"))
    assert [one["path"] for one in operator("repository_list")["repositories"]] == [str(app / "src")]


def test_available_tasks_are_those_of_one_repository_if_asked(operator: Ask, app: Path, fix: Path) -> None:
    ada = register(operator, capabilities=["python"])
    needs: dict[str, Any] = {"required_capabilities": ["cooking"]}
    here, tasks = plan_workflow(operator, task("a"), task("b"), task("c", **needs), repository_path=str(fix))
    _, others = plan_workflow(operator, task("a"), repository_path="/srv/other")
    plan_workflow(operator, task("a"))

    def available(**more: Any) -> tuple[set[str], int]:
        body = operator("task_get_available", agent_id=ada, **more)
        return {one["id"] for one in body["tasks"]}, body["total"]

    assert available()[1] == 4
    for path in (app, app / "src", fix):
        assert available(repository_path=str(path)) == ({tasks["a"], tasks["b"]}, 2)
    assert available(repository_path="/srv/other/") == ({others["a"]}, 1)
    assert available(repository_path="/srv/none") == (set(), 0)
    assert available(repository_path="/srv/other", workflow_id=here) == (set(), 0)
    assert available(repository_path=str(app), workflow_id=here, limit=1, offset=1)[1] == 2
    assert code_of(operator, "task_get_available", agent_id=ada, repository_path="app") == "INVALID_INPUT"
