"""A hub that is killed with SIGKILL between two steps of a workspace: the next call, or the chore, ends it clean."""

import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import TimedOut
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
from crewhall.stop import Stop
from tests.conftest import Clock, settings_for
from tests.contract.writer import PATIENCE, SERVER
from tests.families.work.claims import pass_time
from tests.families.work.repositories import GitWatch, WorkspaceSite, edit
from tests.families.work.workflows import register
from tests.outside.repos import git, refs

pytestmark = pytest.mark.slow

Killed = Callable[..., None]
MAKING = [  # when the row is written, when git knows the worktree, and when it has its files; no row says so yet
    pytest.param("worktree add", False, id="before git"),
    pytest.param("worktree add", True, id="registered"),
    pytest.param("reset --hard", True, id="filled"),
]
ENDING = [
    pytest.param("commit-tree", True, id="saved, without a ref"),
    pytest.param("update-ref --no-deref", True, id="saved"),
    pytest.param("worktree remove", False, id="moved aside"),
    pytest.param("worktree remove", True, id="forgotten"),
    pytest.param("update-ref -d", False, id="deleted, with its branch"),
    pytest.param("update-ref -d", True, id="all done and not told"),
]
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture
def call_and_kill(database: str, tmp_path: Path, clock: Clock, watch: GitWatch) -> Killed:
    """A call of another hub of the hall, which is killed in it, at a command of git."""

    def call(words: str, after: bool, tool: str, /, **given: Any) -> None:
        watch.kill_at(words, after=after)
        where = (database, tmp_path / "home", os.environ["PATH"])
        process = SERVER.Process(target=_call, args=(*where, clock.now, tool, given))
        process.start()
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL

    return call


def _call(database: str, home: Path, path: str, now: int, tool: str, given: dict[str, Any]) -> None:
    os.environ["PATH"] = path
    Hub(settings_for(database, home), registry(), clock=lambda: now).call(tool, given, OPERATOR)
    os._exit(3)  # nobody killed it


@pytest.mark.parametrize(("words", "after"), MAKING)
def test_the_same_claim_again_finishes_a_workspace_in_whose_making_the_hub_was_killed(
    site: WorkspaceSite, call_and_kill: Killed, watch: GitWatch, words: str, after: bool
) -> None:
    workflow, tasks = site.workflow(auto_create_workspaces=True)
    given = {"task_id": tasks["one"], "agent_id": register(site.ask)}
    call_and_kill(words, after, "task_claim", **given)
    (left,) = site.workspaces(workflow)
    assert (left["status"], left["worktree"]) == ("active", "wanted")
    assert site.ask("workspace_forecast", workflow_id=workflow)["compared"] == 0
    claim = site.ask("task_claim", **given)
    assert claim["workspace"]["id"] == left["id"] and git(claim["workspace"]["path"], "status", "--porcelain") == ""
    assert site.workspaces(workflow)[0]["worktree"] == "made"
    assert len(watch.calls("worktree add")) == 2
    site.end(left["id"])
    assert site.is_as_before(), "one that was made, and not found"


@pytest.mark.parametrize(("words", "after"), MAKING)
def test_a_workspace_that_nobody_finishes_is_given_up_and_removed(
    site: WorkspaceSite, clock: Clock, call_and_kill: Killed, words: str, after: bool
) -> None:
    workflow, tasks = site.workflow()
    call_and_kill(words, after, "workspace_create", workflow_id=workflow, branch="a", task_ids=[tasks["one"]])
    pass_time(clock, 14 * 60, site.hub, ticks=2)
    assert site.workspaces(workflow)[0]["status"] == "active"
    pass_time(clock, 3 * 60, site.hub, ticks=2)
    (left,) = site.workspaces(workflow)
    assert (left["status"], left["worktree"], left["task_ids"]) == ("abandoned", "removed", [])
    assert site.is_as_before()


@pytest.mark.parametrize("is_given_up", [True, False], ids=["given up", "asked for again"])
@on_sqlite
def test_a_branch_that_a_person_made_before_git_ran_stays_the_persons(
    site: WorkspaceSite, clock: Clock, call_and_kill: Killed, is_given_up: bool
) -> None:
    workflow, _ = site.workflow()
    call_and_kill("worktree add", False, "workspace_create", workflow_id=workflow, branch="feature")
    git(site.root, "branch", "feature")
    git(site.root, "config", "branch.feature.description", "my notes")
    if is_given_up:
        pass_time(clock, 17 * 60, site.hub, ticks=2)
    else:
        site.end(site.workspace(workflow, "feature")["id"])
    (left,) = site.workspaces(workflow)
    assert (left["status"], left["worktree"], left["saved_refs"]) == ("abandoned", "removed", [])
    assert git(site.root, "config", "branch.feature.description") == "my notes"
    site.before |= {"refs/heads/feature": git(site.root, "rev-parse", "main")}
    assert site.is_as_before()


@on_sqlite
def test_a_call_that_does_not_finish_an_older_calls_workspace_does_not_forget_it(
    site: WorkspaceSite, call_and_kill: Killed
) -> None:
    workflow, _ = site.workflow()
    given = {"workflow_id": workflow, "branch": "a"}
    call_and_kill("worktree add", True, "workspace_create", **given)
    busy = os.open(site.root / ".git", os.O_RDONLY)
    fcntl.flock(busy, fcntl.LOCK_EX)
    with pytest.raises(TimedOut):
        site.hub.call("workspace_create", given, OPERATOR, stop=Stop(1.0))
    os.close(busy)
    (left,) = site.workspaces(workflow)
    assert left["worktree"] == "wanted"
    assert site.workspace(workflow, "a")["worktree"] == "made", "and not one that was found, which would stay"
    site.end(left["id"])
    assert site.is_as_before()


@on_sqlite
def test_the_claim_of_a_task_finishes_the_workspace_that_the_task_was_given(
    site: WorkspaceSite, tmp_path: Path, call_and_kill: Killed
) -> None:
    workflow, tasks = site.workflow()
    given = {"branch": "a", "path": str(tmp_path / "elsewhere"), "workflow_id": workflow}
    call_and_kill("worktree add", False, "workspace_create", **given)
    (left,) = site.workspaces(workflow)
    site.ask("task_assign_workspace", task_id=tasks["one"], workspace_id=left["id"])
    claim = site.ask("task_claim", task_id=tasks["one"], agent_id=register(site.ask))
    assert (claim["workspace"]["id"], claim["workspace"]["path"]) == (left["id"], given["path"])
    assert site.worktrees() == [given["path"]]


@on_sqlite
def test_git_killed_together_with_the_hub_leaves_nothing_that_stands_in_the_way(
    site: WorkspaceSite, watch: GitWatch, call_and_kill: Killed
) -> None:
    """What git itself leaves when it is killed in the middle: a locked entry and some of the files."""
    workflow, _ = site.workflow()
    given = {"workflow_id": workflow, "branch": "a"}
    call_and_kill("reset --hard", True, "workspace_create", **given)
    (entry,) = (site.root / ".git" / "worktrees").iterdir()
    assert (entry / "locked").read_text().strip() == "initializing"
    (site.home / "a" / "file-0").unlink()
    made = site.workspace(workflow, "a")
    assert (made["worktree"], git(made["path"], "status", "--porcelain")) == ("made", "")


@pytest.mark.parametrize("by_chore", [False, True], ids=["the same call", "the chore"])
@pytest.mark.parametrize(("words", "after"), ENDING)
@on_sqlite
def test_an_end_in_which_the_hub_was_killed_is_finished_and_no_work_is_lost(
    site: WorkspaceSite, clock: Clock, call_and_kill: Killed, words: str, after: bool, by_chore: bool
) -> None:
    workflow, _ = site.workflow()
    made = site.workspace(workflow, "a")
    edit(made, "file-0", "uncommitted", committed=False)
    Path(made["path"], "new").write_text("untracked")
    given = {"id": made["id"], "status": "abandoned"}
    call_and_kill(words, after, "workspace_update", **given)
    (left,) = site.workspaces(workflow)
    assert (left["status"], left["worktree"]) == ("abandoned", "made")
    if by_chore:
        pass_time(clock, 60, site.hub)
    else:
        assert site.ask("workspace_update", **given)["worktree"] == "removed"
    (ended,) = site.workspaces(workflow)
    assert (ended["worktree"], ended["problem"]) == ("removed", None)
    _holds_all(site, ended["saved_refs"])
    site.before |= {ref: commit for ref, commit in refs(site.root).items() if ref.startswith("refs/crewhall/")}
    assert site.is_as_before()


def _holds_all(site: WorkspaceSite, saved: list[str]) -> None:
    """All that was uncommitted is under the refs that are told, and no other ref is there."""
    assert set(saved) == {ref for ref in refs(site.root) if ref.startswith("refs/crewhall/")} and saved
    assert git(site.root, "show", f"{saved[0]}:file-0").startswith("uncommitted")
    assert git(site.root, "show", f"{saved[0]}:new") == "untracked"
