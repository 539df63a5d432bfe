"""Workspaces when many act at once: twenty agents in one repository, and whatever may come between two steps."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crewhall.app import Hub, Tick
from crewhall.errors import Failure
from crewhall.families.all import registry
from crewhall.families.work.workspace.chores import remove_ended
from crewhall.stop import Stop
from tests.conftest import Agent, Clock, Live, eventually, settings_for
from tests.edges.raw_http import http
from tests.families.work.claims import events_about, pass_time, rows
from tests.families.work.repositories import Body, GitWatch, WorkspaceSite, edit, run_together
from tests.families.work.workflows import code_of, register
from tests.outside.repos import change, commit, fingerprint, git, make_repository, refs
from tests.sizes import size

pytestmark = pytest.mark.slow

MakeHub = Callable[..., Hub]
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture
def wide(postgres_url: str, tmp_path: Path, clock: Clock) -> Iterator[WorkspaceSite]:
    """A site whose hall is in PostgreSQL, where writers overlap."""
    hub = Hub(settings_for(postgres_url, tmp_path / "home"), registry(), clock=clock)
    yield WorkspaceSite(hub, tmp_path / "shop")
    hub.close()


@pytest.fixture
def thread(watch: GitWatch) -> Iterator[Callable[[Callable[[], Any]], "Future[Any]"]]:
    """Something done meanwhile; its result, or the code of its failure."""

    def result_of(step: Callable[[], Any]) -> Any:
        try:
            return step()
        except Failure as failure:
            return failure.code

    with ThreadPoolExecutor(2) as pool:
        yield lambda step: pool.submit(result_of, step)
        watch.let_all_go()


# Twenty agents

AGENTS = 20
WORKERS = size(10, AGENTS)  # each makes, merges and removes a worktree, with dozens of processes
LATER = "other worktrees are being made just now. Call task_claim again for yours."


def _own_things(root: Path) -> Path:
    """What a person has in a repository, besides commits; the worktree in which branches are merged."""
    change(root / "file-1", "stashed")
    git(root, "stash", "push", "-q")
    change(root / "file-2", "staged")
    git(root, "add", "file-2")
    change(root / "file-2", "staged, and changed again")
    change(root / "file-3", "changed")
    (root / "file-4").unlink()
    (root / "draft").write_text("untracked")
    git(root, "config", "branch.main.description", "the person's own")
    mine, merging = root.with_name("mine"), root.with_name("merging")
    git(root, "worktree", "add", "-q", "-b", "mine", str(mine))
    change(mine / "file-5", "changed in the person's other worktree")
    git(root, "worktree", "add", "-q", "-b", "merging", str(merging))
    return merging


def _unchanging(root: Path) -> tuple[Any, ...]:
    """All that must not change: files, index, stash, configuration, logs and refs, but those of the merging branch."""
    merging = (".git/objects", ".git/worktrees/merging", ".git/refs/heads/merging", ".git/logs/refs/heads/merging")
    own = {name: commit for name, commit in refs(root).items() if name != "refs/heads/merging"}
    return fingerprint(root, merging), fingerprint(root.with_name("mine")), own


@on_sqlite
def test_twenty_workspaces_are_made_forecast_merged_and_removed_and_nothing_of_them_is_left(
    hub: Hub, tmp_path: Path, watch: GitWatch
) -> None:
    """Twenty in `make soak`: otherwise ten."""
    root = tmp_path / "shop"
    make_repository(root, files=size(200, 2_000))
    merging = _own_things(root)
    site, before = WorkspaceSite(hub, root), _unchanging(root)
    watch.forget()
    agents = [register(site.ask, f"agent {number}") for number in range(WORKERS)]
    workflow, tasks = site.workflow(*(f"task {number}" for number in range(WORKERS)), auto_create_workspaces=True)
    steps = [_claiming(site, task, agent) for task, agent in zip(tasks.values(), agents, strict=True)]
    claims = run_together(*steps)
    while any(claim["workspace"] is None for claim in claims):  # some worktrees at a time
        assert {claim["workspace_problem"] for claim in claims} <= {None, LATER}
        claims = [claim if claim["workspace"] else step() for claim, step in zip(claims, steps, strict=True)]
    places = dict(zip(tasks.values(), (claim["workspace"] for claim in claims), strict=True))
    assert len({place["path"] for place in places.values()}) == len({one["id"] for one in places.values()}) == WORKERS
    assert sorted(site.worktrees()) == sorted([str(merging), str(root.with_name("mine")), *_paths(places)])

    for number, place in enumerate(places.values()):  # the last two are at the same line
        edit(place, f"file-{100 + min(number, WORKERS - 2)}", f"task {number}", committed=number % 2 == 0)
    first, second = list(tasks.values())[-2:]
    (clash,) = site.ask("workspace_forecast", workflow_id=workflow)["conflicts"]
    assert (set(clash["task_ids"]), clash["files"]) == ({first, second}, [f"file-{98 + WORKERS}"])
    for task, agent in zip((first, second), agents[-2:], strict=True):
        site.ask("task_release", task_id=task, agent_id=agent)
    free = site.ask("workflow_next_tasks", workflow_id=workflow)["tasks"]
    assert {one["id"]: one["conflicts_with"] for one in free} == {first: [second], second: [first]}
    assert [one["recommended"] for one in free].count(True) == 1

    for place in places.values():
        _merge(site, merging, place)
    assert sorted(site.worktrees()) == sorted([str(merging), str(root.with_name("mine"))]) and not site.home.exists()
    assert _unchanging(root) == before
    assert not list((root / ".git").rglob("*.lock"))
    assert len(watch.calls("worktree add")) == WORKERS
    assert {one["status"] for one in site.workspaces(workflow, limit=100)} == {"merged"}


def _claiming(site: WorkspaceSite, task: str, agent: str) -> Callable[[], Body]:
    return lambda: site.ask("task_claim", task_id=task, agent_id=agent)


def _paths(places: dict[str, Body]) -> list[str]:
    return [place["path"] for place in places.values()]


def _merge(site: WorkspaceSite, merging: Path, place: Body) -> None:
    """A person merges a branch, and in a conflict keeps what was there first."""
    if git(place["path"], "status", "--porcelain"):
        commit(place["path"], "the rest")
    git(merging, "merge", "-q", "--no-ff", "-X", "ours", "-m", f"merge {place['branch']}", place["branch"])
    ended = site.end(place["id"], "merged", merge_commit=git(merging, "rev-parse", "HEAD"))
    assert ended == {"success": True, "worktree": "removed", "saved_refs": [], "problem": None}


@on_sqlite
def test_a_hub_answers_while_twenty_claims_wait_for_a_slow_git(
    serve: Callable[..., Live], tmp_path: Path, watch: GitWatch
) -> None:
    live = serve()
    site = WorkspaceSite(live.hub, tmp_path / "shop")
    _, tasks = site.workflow(*(f"task {number}" for number in range(AGENTS)), auto_create_workspaces=True)
    agents = [Agent(live.hub, f"agent {number}") for number in range(AGENTS)]
    watch.hold_at("worktree add")
    with ThreadPoolExecutor(AGENTS) as pool:
        steps = zip(agents, tasks.values(), strict=True)
        claims = [pool.submit(_post, live, agent, "task/claim", task_id=task) for agent, task in steps]
        try:
            watch.wait_until_held()
            at_once_told = eventually(lambda: _all_but(claims, AGENTS - live.hub.settings["tool.threads"] // 2), 20)
            assert all(_post(live, agent, "agent/heartbeat")["success"] for agent in agents)
        finally:
            watch.let_all_go()
        told = [claim.result(60) for claim in claims]
    assert [(claim["workspace"], claim["workspace_problem"]) for claim in at_once_told] == [(None, LATER)] * 12
    assert all(claim["success"] for claim in told) and len([claim for claim in told if claim["workspace"]]) == 8
    assert len(site.worktrees()) == 8
    first = next(number for number, claim in enumerate(told) if claim["workspace"] is None)
    assert site.ask("task_claim", task_id=list(tasks.values())[first], agent_id=agents[first].id)["workspace"]


def _post(live: Live, agent: Agent, route: str, **given: Any) -> Body:
    headers = {"Authorization": f"Bearer {agent.token}"}
    body: Body = http.post(f"{live.url}/api/v1/{route}", json=given, headers=headers).json()
    return body


def _all_but(claims: "list[Future[Body]]", count: int) -> list[Body] | None:
    """The answers that are there, once they are so many."""
    done = [claim.result() for claim in claims if claim.done()]
    return done if len(done) == count else None


# The same at once


def test_the_same_claim_many_times_at_once_gives_one_workspace(
    site: WorkspaceSite, make_hub: MakeHub, clock: Clock, watch: GitWatch
) -> None:
    workflow, tasks = site.workflow(auto_create_workspaces=True)
    ada, other = register(site.ask), WorkspaceSite(make_hub(clock=clock), site.root)
    claims = run_together(*(_claiming(where, tasks["one"], ada) for where in (site, other) * 3))
    assert all(claim["workspace"] is not None for claim in claims), claims
    assert len({claim["workspace"]["id"] for claim in claims}) == 1
    assert len(watch.calls("worktree add")) == len(site.workspaces(workflow)) == 1
    assert len(events_about(site.hub, claims[0]["workspace"]["id"], "workspace.created")) == 1


def test_eight_branches_at_once_get_a_worktree_each(wide: WorkspaceSite, watch: GitWatch) -> None:
    workflow, tasks = wide.workflow(*"abcdefgh")
    steps = [_making(wide, workflow, name, task_ids=[task]) for name, task in tasks.items()]
    made = run_together(*steps)
    assert [one["branch"] for one in made] == list("abcdefgh") and len(wide.worktrees()) == 8
    assert {tuple(one["task_ids"]) for one in wide.workspaces(workflow)} == {(task,) for task in tasks.values()}
    run_together(*(_ending(wide, one["id"]) for one in made))
    assert wide.is_as_before() and len(watch.calls("worktree add")) == 8


def _making(site: WorkspaceSite, workflow: str, branch: str, **more: Any) -> Callable[[], Body]:
    return lambda: site.workspace(workflow, branch, **more)


def _ending(site: WorkspaceSite, workspace: str) -> Callable[[], Body]:
    return lambda: site.end(workspace)


@on_sqlite
def test_ends_and_forecasts_at_once_do_not_disturb_each_other(site: WorkspaceSite, clock: Clock) -> None:
    workflow, _ = site.workflow()
    made = [site.workspace(workflow, branch) for branch in "abcd"]
    for one in made:
        edit(one, "file-0", one["branch"], committed=False)
    looks = [lambda: site.ask("workspace_forecast", workflow_id=workflow)] * 2
    done = run_together(*looks, *(_ending(site, one["id"]) for one in made[:3]))
    for one in done[2:]:  # a process that is about to be git in a worktree is somebody who is busy there
        assert one["worktree"] == "removed" or "is working in" in one["problem"]
    pass_time(clock, 120, site.hub)
    for look in done[:2]:  # one that went away while it was looked at is left out, with the reason
        assert look["conflicts_total"] <= 6 and len(look["unreadable"]) <= 3
    assert site.worktrees() == [made[3]["path"]]
    assert sorted(set(refs(site.root)) - set(site.before)) == sorted(
        [f"refs/crewhall/{one['id']}" for one in made[:3]] + ["refs/heads/d"]
    )


def test_a_path_that_two_workflows_want_at_once_is_that_of_one(
    wide: WorkspaceSite, postgres_url: str, thread: Any
) -> None:
    first, second = wide.workflow()[0], wide.workflow()[0]
    path = str(wide.home / "a")
    wide.end(wide.workspace(first, "a")["id"])
    with psycopg.connect(postgres_url) as other:
        other.execute("UPDATE workspace SET status = 'active', worktree = 'made'")  # and is not committed yet
        making = thread(_making(wide, second, "b", path=path))
        eventually(lambda: rows(postgres_url, WAITING))
        other.commit()
    assert making.result(20) == "CONFLICT"
    assert wide.workspaces(second) == []


# Between two steps


def test_a_workflow_that_is_abandoned_meanwhile_gets_no_workspace(
    site: WorkspaceSite, watch: GitWatch, thread: Any
) -> None:
    workflow, _ = site.workflow()
    watch.hold_at("check-ref-format")
    making = thread(_making(site, workflow, "a"))
    watch.wait_until_held()
    site.ask("workflow_update_status", id=workflow, status="abandoned")
    watch.let_go()
    assert making.result(20) == "INVALID_STATE"
    assert site.workspaces(workflow) == [] and site.is_as_before()


def test_one_that_is_ended_while_git_makes_it_is_gone_in_the_end(
    site: WorkspaceSite, clock: Clock, watch: GitWatch, thread: Any
) -> None:
    workflow, tasks = site.workflow()
    watch.hold_at("worktree add")
    making = thread(_making(site, workflow, "a", task_ids=[tasks["one"]]))
    watch.wait_until_held()
    (begun,) = site.workspaces(workflow)
    assert (begun["worktree"], begun["task_ids"]) == ("wanted", [])
    assert site.ask("workspace_forecast", workflow_id=workflow)["compared"] == 0, "what is half made is not looked at"
    ending = thread(_ending(site, begun["id"]))
    eventually(lambda: site.workspaces(workflow)[0]["status"] == "abandoned")
    watch.let_go()
    assert making.result(20) == "INVALID_STATE" and ending.result(20)["success"]
    pass_time(clock, 60, site.hub)
    assert site.workspaces(workflow)[0]["worktree"] == "removed" and site.is_as_before()


@on_sqlite
def test_the_branch_goes_too_when_the_worktree_came_while_its_end_waited(
    site: WorkspaceSite, watch: GitWatch, thread: Any
) -> None:
    workflow, _ = site.workflow()
    watch.hold_at("worktree add")
    making = thread(_making(site, workflow, "a"))
    watch.wait_until_held()
    watch.forget()
    ending = thread(_ending(site, site.workspaces(workflow)[0]["id"]))
    eventually(lambda: watch.calls("worktree list"))  # nothing is there
    watch.hold_at("for-each-ref --format=%(refname) refs/crewhall", "told")
    watch.let_go()
    assert making.result(20) == "INVALID_STATE"
    watch.wait_until_held("told")
    watch.let_go("told")
    assert ending.result(20)["worktree"] == "removed" and site.is_as_before()


def _held_after_its_row(
    site: WorkspaceSite, watch: GitWatch, thread: Any, workflow: str, gate: str = "gate", **more: Any
) -> "Future[Any]":
    """A workspace whose row is written, and which waits before it enters the repository."""

    def at_commit() -> None:
        watch.hold_at("check-ref-format", gate)

    site.hub.before_commit = at_commit
    making: Future[Any] = thread(_making(site, workflow, "a", **more))
    watch.wait_until_held(gate)
    site.hub.before_commit = lambda: None
    return making


def test_one_that_is_ended_before_git_begins_is_gone_in_the_end(
    site: WorkspaceSite, clock: Clock, watch: GitWatch, thread: Any
) -> None:
    workflow, _ = site.workflow()
    making = _held_after_its_row(site, watch, thread, workflow)
    assert site.end(site.workspaces(workflow)[0]["id"])["worktree"] == "removed"
    watch.let_go()
    assert making.result(20) == "INVALID_STATE"
    pass_time(clock, 60, site.hub)
    assert site.workspaces(workflow)[0]["worktree"] == "removed" and site.is_as_before()


def test_one_that_another_call_failed_to_make_is_made_by_the_call_that_can(
    site: WorkspaceSite, watch: GitWatch, thread: Any
) -> None:
    workflow, tasks = site.workflow()
    making = _held_after_its_row(site, watch, thread, workflow, task_ids=[tasks["one"]])
    obstacle = site.root / ".git" / "refs" / "heads" / "a.lock"
    obstacle.touch()
    assert code_of(site.ask, "workspace_create", workflow_id=workflow, branch="a") == "INVALID_STATE"
    assert [one["worktree"] for one in site.workspaces(workflow)] == ["wanted"], "it is the first one's"
    obstacle.unlink()
    watch.let_go()
    made = making.result(20)
    (kept,) = site.workspaces(workflow)
    assert (kept["id"], kept["worktree"], kept["task_ids"]) == (made["id"], "made", [tasks["one"]])


def test_one_that_its_first_call_failed_to_make_and_forgot_is_made_by_the_second(
    site: WorkspaceSite, make_hub: MakeHub, clock: Clock, watch: GitWatch, thread: Any
) -> None:
    workflow, tasks = site.workflow()
    first = _held_after_its_row(site, watch, thread, workflow)
    other = WorkspaceSite(make_hub(clock=clock), site.root)
    second = _held_after_its_row(other, watch, thread, workflow, gate="second", task_ids=[tasks["one"]])
    obstacle = site.root / ".git" / "refs" / "heads" / "a.lock"
    obstacle.touch()
    watch.let_go()
    assert first.result(20) == "INVALID_STATE" and site.workspaces(workflow) == []
    obstacle.unlink()
    watch.let_go("second")
    made = second.result(20)
    (kept,) = site.workspaces(workflow)
    assert (kept["id"], kept["worktree"], kept["task_ids"]) == (made["id"], "made", [tasks["one"]])
    site.end(made["id"])
    assert site.is_as_before()


def test_one_that_is_finished_when_it_is_about_to_be_given_up_stays(
    wide: WorkspaceSite, postgres_url: str, clock: Clock, thread: Any
) -> None:
    workflow, _ = wide.workflow()
    made = wide.workspace(workflow, "a")
    rows(postgres_url, "UPDATE workspace SET worktree = 'wanted'")
    pass_time(clock, 14 * 60, wide.hub, ticks=2)
    assert wide.workspaces(workflow)[0]["status"] == "active"
    clock.advance(90)
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT id FROM workflow FOR UPDATE")
        ticking = thread(wide.hub.chores.run_due)
        eventually(lambda: rows(postgres_url, WAITING))  # it has seen that nobody finished it
        other.execute("UPDATE workspace SET worktree = 'made'")
        other.commit()
    ticking.result(20)
    assert (wide.workspaces(workflow)[0]["status"], os.path.isdir(made["path"])) == ("active", True)


@on_sqlite
def test_a_slow_git_keeps_the_chores_up_for_a_bounded_time_and_the_rest_goes_on_later(
    make_hub: MakeHub, tmp_path: Path, clock: Clock, watch: GitWatch, thread: Any
) -> None:
    """The chore's own limit ends the git that it waits for."""
    site = WorkspaceSite(make_hub(clock=clock), tmp_path / "shop")
    workflow, _ = site.workflow()
    for branch in "ab":
        edit(site.workspace(workflow, branch), "file-0", "uncommitted", committed=False)
    site.ask("workflow_update_status", id=workflow, status="abandoned")
    watch.hold_at("add --all")
    clock.advance(60)
    thread(lambda: remove_ended(Tick(site.hub, clock.now, 0, Stop(1.0)))).result(20)
    watch.wait_until_held()
    first, second = sorted(site.workspaces(workflow), key=lambda one: one["problem"] is None)
    assert "in time" in first["problem"]
    assert (second["worktree"], second["problem"]) == ("made", None), "there was no time left for it"
    watch.let_all_go()
    pass_time(clock, 120, site.hub)
    assert {one["worktree"] for one in site.workspaces(workflow)} == {"removed"} and not site.home.exists()


@on_sqlite
def test_a_git_that_hangs_in_one_chore_delays_no_lease_of_another(
    make_hub: MakeHub, tmp_path: Path, clock: Clock, watch: GitWatch
) -> None:
    site = WorkspaceSite(make_hub(clock=clock, agent__heartbeat=2.0, agent__missed_beats=2), tmp_path / "shop")
    workflow, _ = site.workflow()
    edit(site.workspace(workflow, "a"), "file-0", "uncommitted", committed=False)
    site.ask("workflow_update_status", id=workflow, status="abandoned")
    agent = site.ask("agent_register", name="quiet", runtime="codex", role="worker")["id"]
    site.ask("agent_heartbeat", agent_id=agent)
    watch.hold_at("add --all")
    clock.advance(60)
    site.hub.chores.tick()
    watch.wait_until_held()
    for _ in range(6):
        clock.advance(2)
        site.hub.chores.tick()
    chores = site.hub.chores.records
    eventually(lambda: site.ask("agent_get", id=agent)["status"] == "offline")
    assert (chores["workspaces"].is_running, chores["workspaces"].runs) == (True, 0)
    assert not chores["workspaces"].is_stuck(clock.now)
    clock.advance(60)
    assert chores["workspaces"].is_stuck(clock.now)
    watch.let_all_go()
    eventually(lambda: chores["workspaces"].runs == 1 and not chores["workspaces"].is_running)
    assert site.hub.chores.close(10)


def test_what_two_hubs_remove_at_once_is_removed_once_and_its_saved_work_is_told(
    site: WorkspaceSite, make_hub: MakeHub, clock: Clock
) -> None:
    workflow, _ = site.workflow()
    made = [site.workspace(workflow, branch) for branch in "ab"]
    for one in made:
        edit(one, "file-0", "uncommitted", committed=False)
    site.ask("workflow_update_status", id=workflow, status="abandoned")
    hubs = [site.hub, *(make_hub(clock=clock) for _ in range(2))]
    clock.advance(60)
    run_together(*(hub.chores.run_due for hub in hubs))
    assert {one["id"]: one["saved_refs"] for one in site.workspaces(workflow)} == {
        one["id"]: [f"refs/crewhall/{one['id']}"] for one in made
    }
    assert [len(events_about(site.hub, one["id"], "workspace.removed")) for one in made] == [1, 1]
    assert site.worktrees() == [] and not site.home.exists()
