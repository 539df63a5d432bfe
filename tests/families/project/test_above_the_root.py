"""Another user swaps a directory above the root while the tools run: nothing of what is elsewhere comes back."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.errors import Failure
from crewhall.identity import OPERATOR
from crewhall.outside.root_path import identity_of
from tests.outside.repos import commit, git, make_repository
from tests.outside.swaps import Stage, nobodys_stage
from tests.sizes import size

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
SECRET = "hunter2"
TASKS = "who:\n    @cat word.txt\n"
Ask = Callable[[], dict[str, Any]]


def furnish(root: Path, word: str) -> None:
    """A repository in which this word is in every place that a tool tells of."""
    root.rmdir()
    make_repository(root)
    for name in ("README.md", "AGENTS.md", "word.txt"):
        (root / name).write_text(f"{word}\n")
    (root / "justfile").write_text(f"{TASKS}{word}:\n")
    (root / "pyproject.toml").write_text(f'name = "{word}"\n')
    git(root, "checkout", "-q", "-b", f"{word}-branch")
    commit(root, f"{word} is done")
    (root / f"{word}-new").write_text("x\n")
    (root / "file-0").write_text(f"{word}\n")


@pytest.fixture(params=["link", "directory"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with nobodys_stage() as stage:
        furnish(stage.root, "plain")
        furnish(stage.private, SECRET)
        stage.lure_by_link() if request.param == "link" else stage.lure_by_directory()
        yield stage


def call(hub: Hub, stage: Stage, tool: str, **given: Any) -> Ask:
    """A call of the worktree's own server, which noted the directory when it began."""
    origin = Origin(worktree=str(stage.root), identity=identity_of(str(stage.root)))
    return lambda: hub.call(tool, given, OPERATOR, origin=origin)


def outcomes(stage: Stage, ask: Ask, times: int, *, rests: bool = False) -> Counter[str]:
    """How many calls succeeded, were refused, and told what is elsewhere."""
    seen: Counter[str] = Counter()
    with stage.swapping(rests=rests):
        for _ in range(times):
            try:
                body = json.dumps(ask())
                seen["elsewhere" if SECRET in body else "told"] += 1
            except Failure as failure:
                told = json.dumps(failure.body(""))
                seen["elsewhere" if SECRET in told else failure.code] += 1
    print(dict(seen))
    return seen


def test_read_file_reads_nothing_elsewhere(hub: Hub, stage: Stage) -> None:
    seen = outcomes(stage, call(hub, stage, "read_file", path="word.txt"), size(1_500, 4_000))
    assert set(seen) <= {"told", "INVALID_STATE"}, seen


@pytest.mark.parametrize("rests", [False, True], ids=["always", "now and then"])
def test_list_directory_lists_nothing_elsewhere(hub: Hub, stage: Stage, rests: bool) -> None:
    ask = call(hub, stage, "list_directory")
    assert SECRET not in json.dumps(ask())
    seen = outcomes(stage, ask, size(20, 1_500), rests=rests)
    assert set(seen) <= {"told", "INVALID_STATE"}, seen
    assert "plain-new" in json.dumps(ask()), "when it is quiet again, it answers"


@pytest.mark.parametrize("rests", [False, True], ids=["always", "now and then"])
def test_get_project_context_tells_nothing_of_elsewhere(hub: Hub, stage: Stage, rests: bool) -> None:
    ask = call(hub, stage, "get_project_context")
    seen = outcomes(stage, ask, size(12, 600), rests=rests)
    assert set(seen) <= {"told", "INVALID_STATE"}, seen
    body = json.dumps(ask())
    assert "on branch plain-branch" in body and SECRET not in body, "nothing of elsewhere was cached"


def test_run_just_task_runs_in_its_root_alone(hub: Hub, stage: Stage) -> None:
    ask = call(hub, stage, "run_just_task", task_name="who")
    assert ask()["output"] == "plain\n"
    seen = outcomes(stage, ask, size(20, 1_000))
    assert set(seen) <= {"told", "INVALID_STATE"}, seen


@pytest.mark.parametrize("stage", ["link"], indirect=True)
@pytest.mark.parametrize("tool", ["read_file", "list_directory", "get_project_context"])
def test_where_no_directory_was_noted_no_link_leads_elsewhere(hub: Hub, stage: Stage, tool: str) -> None:
    """A client by the bridge, or the operator by REST, only says where it is."""
    given = {"path": "word.txt"} if tool == "read_file" else {}
    origin = Origin(worktree=str(stage.root))
    times = size(200, 4_000) if tool == "read_file" else size(20, 1_000)
    seen = outcomes(stage, lambda: hub.call(tool, given, OPERATOR, origin=origin), times)
    assert set(seen) <= {"told", "INVALID_STATE"}, seen
