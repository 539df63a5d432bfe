"""What a claim gives to work in, which workspaces would conflict, and which tasks are begun together because of it."""

import logging
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crewhall.app import Hub
from crewhall.identity import OPERATOR
from crewhall.stop import Stop
from tests.conftest import Agent
from tests.families.work.repositories import Body, GitWatch, WorkspaceSite, edit
from tests.families.work.workflows import code_of, finish, newest, register, task
from tests.outside.repos import change, commit, fingerprint, git

pytestmark = pytest.mark.slow

MakeHub = Callable[..., Hub]
# What git answers is the same whatever the database is.
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture
def site(hub: Hub, tmp_path: Path) -> WorkspaceSite:
    return WorkspaceSite(hub, tmp_path / "shop", files=12)


def claim(site: WorkspaceSite, task_id: str, agent: str) -> Body:
    body = site.ask("task_claim", task_id=task_id, agent_id=agent)
    assert body["success"], body
    return body


# Claims


def test_with_the_flag_a_claim_gives_a_worktree_of_its_own_and_again_the_same(
    site: WorkspaceSite, watch: GitWatch
) -> None:
    _, tasks = site.workflow("Add login", "other", auto_create_workspaces=True)
    ada, bob = register(site.ask, "ada"), register(site.ask, "bob")
    first = claim(site, tasks["Add login"], ada)
    branch = f"add-login-{tasks['Add login'][-6:]}"
    place = {"path": str(site.home / branch), "branch": branch, "base_branch": "main", "merge_first": []}
    assert first["workspace"] == {"id": first["workspace"]["id"], **place} and first["workspace_problem"] is None
    assert git(site.home / branch, "symbolic-ref", "--short", "HEAD") == branch
    assert site.ask("task_get", id=tasks["Add login"])["workspace_id"] == first["workspace"]["id"]
    assert claim(site, tasks["other"], bob)["workspace"]["path"] != place["path"]
    since = newest(site.ask)
    assert claim(site, tasks["Add login"], ada)["workspace"] == first["workspace"]
    late = site.ask("task_claim", task_id=tasks["Add login"], agent_id=bob)
    assert (late["success"], late["workspace"], late["workspace_problem"]) == (False, None, None)
    assert newest(site.ask) == since
    site.ask("task_release", task_id=tasks["Add login"], agent_id=ada)
    assert claim(site, tasks["Add login"], bob)["workspace"] == first["workspace"], "who takes over goes on there"
    assert len(watch.calls("worktree add")) == 2


def test_without_the_flag_a_claim_gives_no_worktree_until_it_is_set(site: WorkspaceSite, watch: GitWatch) -> None:
    workflow, tasks = site.workflow("one", "two")
    ada = register(site.ask)
    watch.forget()
    got = claim(site, tasks["one"], ada)
    assert (got["workspace"], got["workspace_problem"]) == (None, None)
    assert watch.calls() == [] and site.is_as_before()
    site.ask("workflow_set_parallelism", id=workflow, max_parallel_tasks=2, auto_create_workspaces=True)
    assert claim(site, tasks["two"], ada)["workspace"]["path"] in site.worktrees()
    site.ask("workflow_set_parallelism", id=workflow, max_parallel_tasks=2, auto_create_workspaces=False)
    assert claim(site, tasks["two"], ada)["workspace"]["path"] in site.worktrees(), "one that is there is told"
    assert claim(site, tasks["one"], ada)["workspace"] is None


def test_a_workspace_that_a_task_was_given_is_told_by_its_claim_without_the_flag(site: WorkspaceSite) -> None:
    workflow, tasks = site.workflow("one", "two")
    made = site.workspace(workflow, "shared", task_ids=list(tasks.values()))
    ada = register(site.ask)
    for one in tasks.values():
        assert claim(site, one, ada)["workspace"]["id"] == made["id"]
    site.end(made["id"])
    assert claim(site, tasks["one"], ada)["workspace"] is None, "one that has ended is no place"


def test_a_claim_names_the_unmerged_branches_of_what_the_task_depends_on(site: WorkspaceSite) -> None:
    plan = [task("a"), task("b"), task("beside"), task("c", depends_on=["a", "b"])]
    _, tasks = site.workflow(*plan, auto_create_workspaces=True)
    ada = register(site.ask)
    places = {name: claim(site, tasks[name], ada)["workspace"] for name in ("a", "b", "beside")}
    finish(site.ask, tasks["a"], tasks["b"])
    branches = sorted((places["a"]["branch"], places["b"]["branch"]))
    last = claim(site, tasks["c"], ada)["workspace"]
    assert last["merge_first"] == branches
    site.end(places["a"]["id"], "merged", merge_commit=git(site.root, "rev-parse", "HEAD"))
    assert claim(site, tasks["c"], ada)["workspace"] == last | {"merge_first": [places["b"]["branch"]]}
    site.ask("task_assign_workspace", task_id=tasks["c"], workspace_id=places["b"]["id"])
    assert claim(site, tasks["c"], ada)["workspace"]["merge_first"] == [], "it is done where the other was"


def test_a_claim_stands_when_no_worktree_can_be_made_and_says_why(site: WorkspaceSite, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "fresh").mkdir()
    git(tmp_path / "fresh", "init", "-q")
    ada = register(site.ask)
    for where, why in (
        (tmp_path / "plain", "not a git repository"),
        (tmp_path / "fresh", "no commit"),
        (tmp_path / "missing", "no directory"),
        (None, "has no repository"),
    ):
        given = {} if where is None else {"repository_path": str(where)}
        workflow, tasks = site.workflow(auto_create_workspaces=True, **{"repository_path": None} | given)
        got = claim(site, tasks["one"], ada)
        assert got["workspace"] is None and why in got["workspace_problem"], where
        assert site.ask("task_get", id=tasks["one"])["claimed_by"] == ada and site.workspaces(workflow) == []


@on_sqlite
def test_a_claim_is_told_in_time_when_git_is_slow_and_gets_its_worktree_later(
    site: WorkspaceSite, watch: GitWatch
) -> None:
    workflow, tasks = site.workflow(auto_create_workspaces=True)
    ada, stop = register(site.ask), Stop(2.0)
    watch.hold_at("worktree add")
    got = site.hub.call("task_claim", {"task_id": tasks["one"], "agent_id": ada}, OPERATOR, stop=stop)
    stop.check()  # it was early enough
    watch.wait_until_held()
    assert (got["workspace"], got["claim_epoch"]) == (None, 1) and "task_claim again" in got["workspace_problem"]
    assert site.ask("task_get", id=tasks["one"])["claimed_by"] == ada
    assert site.workspaces(workflow) == [] and site.is_as_before()
    assert claim(site, tasks["one"], ada)["workspace"]["path"] in site.worktrees()


@pytest.mark.parametrize("words", ["rev-parse", "worktree add", "worktree list"])
@on_sqlite
def test_a_cancel_after_the_claim_is_kept_does_not_say_that_nothing_was_kept(
    site: WorkspaceSite, watch: GitWatch, words: str
) -> None:
    _, tasks = site.workflow(auto_create_workspaces=True)
    ada, stop = register(site.ask), Stop(60)
    given = {"task_id": tasks["one"], "agent_id": ada}
    watch.hold_at(words)
    with ThreadPoolExecutor(1) as pool:
        claiming = pool.submit(site.hub.call, "task_claim", given, OPERATOR, stop=stop)
        try:
            watch.wait_until_held()
        finally:
            stop.cancel()
        got = claiming.result(20)
    assert (got["success"], got["workspace"]) == (True, None) and "task_claim again" in got["workspace_problem"]
    assert claim(site, tasks["one"], ada)["workspace"]["path"] in site.worktrees()


@on_sqlite
def test_a_claim_says_so_when_the_worktree_was_deleted_by_hand(site: WorkspaceSite) -> None:
    workflow, tasks = site.workflow(auto_create_workspaces=True)
    ada = register(site.ask)
    place = claim(site, tasks["one"], ada)["workspace"]
    os.rename(place["path"], f"{site.root}-moved")
    got = claim(site, tasks["one"], ada)
    assert got["workspace"] is None and place["id"] in got["workspace_problem"]
    assert code_of(site.ask, "workspace_create", workflow_id=workflow, branch=place["branch"]) == "CONFLICT"
    site.end(place["id"])
    assert claim(site, tasks["one"], ada)["workspace"]["path"] == place["path"]


def test_a_claim_at_a_hub_of_another_node_does_not_send_an_agent_where_nothing_is(
    site: WorkspaceSite, make_hub: MakeHub
) -> None:
    _, tasks = site.workflow(auto_create_workspaces=True)
    ada = register(site.ask)
    place = claim(site, tasks["one"], ada)["workspace"]
    away = WorkspaceSite(make_hub(node__name="elsewhere"), site.root)
    got = claim(away, tasks["one"], ada)
    assert got["workspace"] is None and site.hub.settings.node in got["workspace_problem"]
    assert claim(site, tasks["one"], ada)["workspace"] == place


@on_sqlite
def test_any_name_of_a_task_makes_a_worktree_beside_the_repository(site: WorkspaceSite) -> None:
    names = ["../../x", "-rf", "漢字", "😀", "a/b", "l" * 200, ".lock", "x.lock", "@{-1}", "HEAD", "main", "--", "~"]
    _, tasks = site.workflow(*names, auto_create_workspaces=True)
    ada = Agent(site.hub)
    for name, one in tasks.items():
        got = ada.call("task_claim", task_id=one)
        assert got["workspace_problem"] is None, name
        assert Path(got["workspace"]["path"]).parent == site.home
    assert len(site.worktrees()) == len(names)
    beside = {path.name for path in site.root.parent.iterdir() if not path.name.startswith("hall.db")}
    assert beside == {"shop", "shop-worktrees"}


# Forecasts


def forecast(site: WorkspaceSite, workflow: str) -> Body:
    return site.ask("workspace_forecast", workflow_id=workflow)


def pairs(found: Body) -> set[frozenset[str]]:
    return {frozenset(clash["branches"]) for clash in found["conflicts"]}


def recommended_names(site: WorkspaceSite, workflow: str) -> set[str]:
    body = site.ask("workflow_next_tasks", workflow_id=workflow, limit=100)
    begin = {one["name"] for one in body["tasks"] if one["recommended"]}
    assert body["recommended_count"] == len(begin)
    return begin


def conflicts_with(site: WorkspaceSite, workflow: str) -> dict[str, set[str]]:
    listed = site.ask("workflow_next_tasks", workflow_id=workflow, limit=100)["tasks"]
    return {one["id"]: set(one["conflicts_with"]) for one in listed}


CLEAN = ("lines a", "lines b", "move a", "move b")
CLASHES = {
    "both a": "both b",  # committed, both
    "half a": "half b",  # committed, uncommitted
    "new a": "new b",  # untracked, both
    "gone a": "gone b",  # deleted, edited
    "names a": "names b",  # renamed, each otherwise
}


def _everyone_works(places: dict[str, Body]) -> None:
    at = {name: Path(place["path"]) for name, place in places.items()}
    for name, line in (("lines a", 0), ("lines b", 20)):
        edit(places[name], "file-0", name, line=line)
    git(at["move a"], "mv", "file-1", "moved")
    commit(at["move a"], "moved")
    edit(places["move b"], "file-1", "edited under its old name")
    for name in ("both a", "both b"):
        edit(places[name], "file-2", name)
    edit(places["half a"], "file-3", "committed")
    edit(places["half b"], "file-3", "not committed", committed=False)
    for name in ("new a", "new b"):
        (at[name] / "new file").write_text(name)
    (at["gone a"] / "file-4").unlink()
    edit(places["gone b"], "file-4", "edited", committed=False)
    for name in ("names a", "names b"):
        git(at[name], "mv", "file-5", f"{name[-1]}-5")


@on_sqlite
def test_whatever_two_would_conflict_in_is_found_and_they_are_not_begun_together(site: WorkspaceSite) -> None:
    names = [*CLEAN, *CLASHES.keys(), *CLASHES.values()]
    workflow, tasks = site.workflow(*names)
    places = {name: site.workspace(workflow, name.replace(" ", "-"), task_ids=[tasks[name]]) for name in names}
    assert recommended_names(site, workflow) == set(names), "where nothing was done yet, nothing conflicts"
    _everyone_works(places)
    before = fingerprint(site.root), fingerprint(site.home)
    found = forecast(site, workflow)
    assert (fingerprint(site.root), fingerprint(site.home)) == before, "a look changes nothing"
    expected = {frozenset((a.replace(" ", "-"), b.replace(" ", "-"))) for a, b in CLASHES.items()}
    assert pairs(found) == expected and found["conflicts_total"] == len(expected)
    assert (found["with_base"], found["compared"], found["total"], found["unreadable"]) == ([], 14, 14, [])
    by_branch = {frozenset(clash["branches"]): clash for clash in found["conflicts"]}
    half = by_branch[frozenset(("half-a", "half-b"))]
    assert (half["files"], half["files_total"]) == (["file-3"], 1)
    assert set(half["task_ids"]) == {tasks["half a"], tasks["half b"]}
    assert set(half["workspaces"]) == {places["half a"]["id"], places["half b"]["id"]}
    begin = recommended_names(site, workflow)
    assert begin >= set(CLEAN) and all((a in begin) != (b in begin) for a, b in CLASHES.items())
    told = conflicts_with(site, workflow)
    assert all(told[tasks[a]] == {tasks[b]} and told[tasks[b]] == {tasks[a]} for a, b in CLASHES.items())
    assert all(told[tasks[name]] == set() for name in CLEAN)


@on_sqlite
def test_a_base_that_moved_on_is_compared_as_it_is_now(site: WorkspaceSite) -> None:
    workflow, _ = site.workflow()
    stale, fresh = site.workspace(workflow, "stale"), site.workspace(workflow, "fresh")
    edit(stale, "file-0", "theirs")
    edit(fresh, "file-1", "theirs")
    assert forecast(site, workflow)["with_base"] == []
    change(site.root / "file-0", "moved on")
    base = commit(site.root, "the base moves on")
    found = forecast(site, workflow)
    clash = {"workspace_id": stale["id"], "base_branch": "main", "files": ["file-0"], "files_total": 1}
    assert (found["with_base"], found["conflicts"]) == ([clash], [])
    late = site.workspace(workflow, "late")
    assert git(late["path"], "rev-parse", "HEAD") == base
    edit(late, "file-0", "on top of it")
    assert pairs(forecast(site, workflow)) == {frozenset(("stale", "late"))}


@on_sqlite
def test_workspaces_of_another_workflow_in_the_repository_are_compared_too(site: WorkspaceSite) -> None:
    first, _ = site.workflow()
    second, _ = site.workflow()
    for workflow, branch in ((first, "mine"), (second, "theirs"), (second, "theirs-too")):
        edit(site.workspace(workflow, branch), "file-0", branch)
    assert pairs(forecast(site, first)) == {frozenset(("mine", "theirs")), frozenset(("mine", "theirs-too"))}
    assert len(pairs(forecast(site, second))) == 3
    empty, _ = site.workflow()
    nothing = {"conflicts": [], "conflicts_total": 0, "with_base": [], "compared": 0, "total": 0, "unreadable": []}
    assert forecast(site, empty) == nothing
    assert code_of(site.ask, "workspace_forecast", workflow_id="wf_none") == "NOT_FOUND"


@on_sqlite
def test_one_that_has_ended_or_cannot_be_read_is_no_part_of_a_forecast(site: WorkspaceSite) -> None:
    workflow, _ = site.workflow()
    places = {branch: site.workspace(workflow, branch) for branch in ("a", "b", "c", "d")}
    for branch, place in places.items():
        edit(place, "file-0", branch)
    site.end(places["b"]["id"])
    Path(places["c"]["path"], ".git").write_text("gitdir: /nowhere")
    found = forecast(site, workflow)
    assert pairs(found) == {frozenset(("a", "d"))} and found["compared"] == 3
    assert [one["workspace_id"] for one in found["unreadable"]] == [places["c"]["id"]]


@on_sqlite
def test_a_forecast_of_much_is_bounded_and_counts_the_rest(site: WorkspaceSite) -> None:
    workflow, _ = site.workflow()
    for number in range(5):
        place = site.workspace(workflow, f"branch-{number}" + "b" * 150)
        for file in range(30):
            Path(place["path"], f"{file}" + "漢" * 80).write_text(str(number))
    found = forecast(site, workflow)
    assert found["conflicts_total"] == 10 > len(found["conflicts"]) >= 1
    assert (len(found["conflicts"][0]["files"]), found["conflicts"][0]["files_total"]) == (20, 30)
    assert len(str(found).encode()) <= 20_000


# What to begin next


def test_two_tasks_of_one_workspace_are_never_begun_together(site: WorkspaceSite, watch: GitWatch) -> None:
    workflow, tasks = site.workflow("a", "b", "alone")
    site.workspace(workflow, "shared", task_ids=[tasks["a"], tasks["b"]])
    assert recommended_names(site, workflow) in ({"a", "alone"}, {"b", "alone"})
    claim(site, tasks["a"], register(site.ask))
    assert recommended_names(site, workflow) == {"alone"}
    assert conflicts_with(site, workflow) == {tasks["b"]: {tasks["a"]}, tasks["alone"]: set()}


@on_sqlite
def test_a_ready_task_whose_work_conflicts_with_a_running_ones_waits(site: WorkspaceSite) -> None:
    workflow, tasks = site.workflow("running", "meets", "beside", auto_create_workspaces=True)
    ada = register(site.ask)
    for name, file in (("meets", "file-0"), ("beside", "file-1"), ("running", "file-0")):
        edit(claim(site, tasks[name], ada)["workspace"], file, name, committed=name != "meets")
    for name in ("meets", "beside"):
        site.ask("task_release", task_id=tasks[name], agent_id=ada)
    assert recommended_names(site, workflow) == {"beside"}
    assert conflicts_with(site, workflow)[tasks["meets"]] == {tasks["running"]}
    finish(site.ask, tasks["running"])
    assert recommended_names(site, workflow) == {"meets", "beside"}


def test_no_more_are_recommended_than_the_workflow_has_room_for(site: WorkspaceSite) -> None:
    workflow, tasks = site.workflow("a", "b", "c", "d", max_parallel_tasks=2)
    for name, one in tasks.items():
        edit(site.workspace(workflow, name, task_ids=[one]), f"file-{ord(name) % 4}", name)
    assert len(recommended_names(site, workflow)) == 2
    claim(site, tasks["a"], register(site.ask))
    assert len(recommended_names(site, workflow)) == 1


@on_sqlite
def test_git_is_not_started_when_no_two_tasks_in_question_have_a_workspace(
    site: WorkspaceSite, watch: GitWatch
) -> None:
    workflow, tasks = site.workflow("running", "beside", "ready", "free")
    for name in ("running", "beside"):
        site.workspace(workflow, name, task_ids=[tasks[name]])
        claim(site, tasks[name], register(site.ask, name))
    watch.forget()
    assert recommended_names(site, workflow) == {"ready", "free"}
    assert watch.calls() == []
    site.workspace(workflow, "ready", task_ids=[tasks["ready"]])
    watch.forget()
    assert recommended_names(site, workflow) == {"ready", "free"} and watch.calls("merge-tree")


@on_sqlite
def test_where_git_cannot_tell_tasks_are_recommended_as_if_nothing_were_there(site: WorkspaceSite) -> None:
    workflow, tasks = site.workflow("a", "b")
    for name, one in tasks.items():
        edit(site.workspace(workflow, name, task_ids=[one]), "file-0", name)
    site.root.rename(site.root.with_name("moved"))
    assert recommended_names(site, workflow) == {"a", "b"}


@on_sqlite
def test_what_to_begin_is_told_in_time_when_git_is_slow(
    make_hub: MakeHub, tmp_path: Path, watch: GitWatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = WorkspaceSite(make_hub(tool__timeout=2.0), tmp_path / "shop")
    workflow, tasks = site.workflow("a", "b")
    for name, one in tasks.items():
        edit(site.workspace(workflow, name, task_ids=[one]), "file-0", name)
    watch.hold_at("merge-tree")
    with caplog.at_level(logging.WARNING):
        assert recommended_names(site, workflow) == {"a", "b"}
    watch.wait_until_held()
    assert [one.message for one in caplog.records] == ["no forecast for what to begin"]
    assert len(recommended_names(site, workflow)) == 1


@on_sqlite
def test_without_a_directory_for_temporary_files_a_forecast_says_so_and_tasks_are_recommended(
    site: WorkspaceSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow, tasks = site.workflow("a", "b")
    for name, one in tasks.items():
        edit(site.workspace(workflow, name, task_ids=[one]), "file-0", name)
    monkeypatch.setattr(tempfile, "tempdir", str(site.root / "missing"))
    assert recommended_names(site, workflow) == {"a", "b"}
    assert code_of(site.ask, "workspace_forecast", workflow_id=workflow) == "UNAVAILABLE"
