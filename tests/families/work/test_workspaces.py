"""Workspaces through the door, on both databases, with real git: made, found, listed, given to tasks, ended."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Conflict, Forbidden
from crewhall.identity import new_id
from crewhall.outside.git import open_repository
from crewhall.outside.worktrees import add_worktree
from tests.conftest import Agent, Clock, eventually
from tests.families.work.claims import pass_time, refuse_changes, rows
from tests.families.work.repositories import Body, GitWatch, WorkspaceSite, edit
from tests.families.work.workflows import all_rows, code_of, newest, register
from tests.outside.repos import commit, fingerprint, git, make_repository, refs

pytestmark = pytest.mark.slow

MakeHub = Callable[..., Hub]
# What git does is the same whatever the database is.
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def minutes(site: WorkspaceSite, clock: Clock, count: float = 1) -> None:
    """Time goes by, and the hub does its chores."""
    pass_time(clock, count * 60, site.hub, ticks=2)


def by_branch(site: WorkspaceSite, workflow: str) -> list[Body]:
    return sorted(site.workspaces(workflow), key=lambda one: one["branch"])


# Made


def test_a_workspace_is_a_worktree_beside_the_repository_on_a_branch_of_its_own(
    site: WorkspaceSite, clock: Clock
) -> None:
    workflow, tasks = site.workflow("one", "two")
    since = newest(site.ask)
    made = site.workspace(workflow, "fix/login", task_ids=[tasks["two"]])
    path = str(site.home / "fix-login")
    assert made == {
        "id": made["id"],
        "path": path,
        "branch": "fix/login",
        "base_branch": "main",
        "worktree": "made",
    }
    assert git(path, "symbolic-ref", "HEAD") == "refs/heads/fix/login"
    assert git(path, "rev-parse", "HEAD") == git(site.root, "rev-parse", "main")
    told = site.ask("event_list", after=since)["events"]
    assert [(event["what"], event["subject"]) for event in told if event["what"] != "worktree.opened"] == [
        ("workspace.created", made["id"]),
        ("task.placed", tasks["two"]),
    ]
    assert site.workspaces(workflow) == [
        made
        | {
            "workflow_id": workflow,
            "status": "active",
            "merge_commit": None,
            "task_ids": [tasks["two"]],
            "saved_refs": [],
            "problem": None,
            "node": site.hub.settings.node,
            "created_at": clock.now,
            "updated_at": clock.now,
        }
    ]


@on_sqlite
def test_the_operator_says_where_it_is_and_what_it_begins_from(site: WorkspaceSite, tmp_path: Path) -> None:
    workflow, _ = site.workflow()
    first = git(site.root, "rev-parse", "HEAD")
    git(site.root, "tag", "v1")
    commit(_overwrite(site.root / "file-1"), "second")
    where = tmp_path / "far" / "away"
    made = site.workspace(workflow, "old", path=f"{tmp_path}//far/./x/../away/", base_branch="v1")
    assert (made["path"], made["base_branch"]) == (str(where), "v1")
    assert git(where, "rev-parse", "HEAD") == first
    assert site.workspace(workflow, "new")["path"] == str(site.home / "new")


def _overwrite(file: Path) -> Path:
    file.write_text("changed\n")
    return file.parent


def test_the_same_call_again_gives_the_same_one_and_git_makes_one_worktree(
    site: WorkspaceSite, watch: GitWatch
) -> None:
    workflow, tasks = site.workflow("one", "two")
    made = site.workspace(workflow, "a", task_ids=[tasks["one"]])
    since, before = newest(site.ask), refs(site.root)
    assert site.workspace(workflow, "a", task_ids=[tasks["one"]]) == made
    assert newest(site.ask) == since and refs(site.root) == before
    assert site.workspace(workflow, "a", task_ids=[tasks["two"]]) == made
    assert site.workspaces(workflow)[0]["task_ids"] == [tasks["one"], tasks["two"]]
    assert len(watch.calls("worktree add")) == 1


@on_sqlite
def test_a_worktree_that_a_person_made_is_used_and_never_removed(
    site: WorkspaceSite, clock: Clock, tmp_path: Path
) -> None:
    git(site.root, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))
    (tmp_path / "mine" / "draft").write_text("not yet")
    workflow, _ = site.workflow()
    before = fingerprint(site.root), fingerprint(tmp_path / "mine")
    made = site.workspace(workflow, "mine", path=str(tmp_path / "mine"))
    assert made["worktree"] == "found" and site.workspace(workflow, "mine", path=str(tmp_path / "mine")) == made
    assert site.end(made["id"]) == {"success": True, "worktree": "found", "saved_refs": [], "problem": None}
    minutes(site, clock, 2)
    assert (fingerprint(site.root), fingerprint(tmp_path / "mine")) == before


@on_sqlite
def test_a_branch_that_was_there_is_used_and_stays(site: WorkspaceSite) -> None:
    git(site.root, "branch", "kept")
    workflow, _ = site.workflow()
    made = site.workspace(workflow, "kept")
    tip = edit(made, "file-0", "mine")
    assert site.end(made["id"])["saved_refs"] == []
    assert refs(site.root) == site.before | {"refs/heads/kept": tip} and not site.home.exists()


@pytest.fixture
def refusal_code(site: WorkspaceSite, hub: Hub) -> Callable[..., str]:
    """The code with which a call is refused, after which hall, refs and worktrees are as before."""

    def check(tool: str, /, **given: Any) -> str:
        (code,) = refusals(site, tool, [given])  # to its end: it looks at the hall after the call
        return code

    return check


def refusals(site: WorkspaceSite, tool: str, calls: Iterable[Body]) -> Iterator[str]:
    """The code with which each call is refused, after which hall, refs and worktrees are as before all of them."""
    before = all_rows(site.hub), refs(site.root), site.worktrees()
    for given in calls:
        yield code_of(site.ask, tool, **given)
        assert (all_rows(site.hub), refs(site.root), site.worktrees()) == before, given


BAD: list[tuple[str, Body]] = [
    ("INVALID_INPUT", {"branch": "-rf"}),
    ("INVALID_INPUT", {"branch": "--orphan"}),
    ("INVALID_INPUT", {"branch": "a..b"}),
    ("INVALID_INPUT", {"branch": "../../x"}),
    ("INVALID_INPUT", {"branch": "x.lock"}),
    ("INVALID_INPUT", {"branch": "@{-1}"}),
    ("INVALID_INPUT", {"branch": ""}),
    ("INVALID_INPUT", {"branch": "b" * 201}),
    ("INVALID_INPUT", {"base_branch": "nowhere"}),
    ("INVALID_INPUT", {"base_branch": "--all"}),
    ("INVALID_INPUT", {"base_branch": "HEAD:file-0"}),
    ("INVALID_INPUT", {"path": "relative/path"}),
    ("INVALID_INPUT", {"path": "ROOT/.git/inside"}),
    ("INVALID_INPUT", {"path": "ROOT/.git"}),
    ("INVALID_INPUT", {"path": "/" + "p" * 2_100}),
    ("CONFLICT", {"path": "ROOT"}),  # a worktree, on main
    ("CONFLICT", {"path": "ROOT/file-0"}),
    ("CONFLICT", {"path": "TMP/full"}),
    ("CONFLICT", {"path": "TMP/link"}),
    ("CONFLICT", {"path": "TMP/mine"}),  # a worktree, on another branch
    ("CONFLICT", {"path": "TMP/gone", "branch": "gone"}),  # a worktree whose directory was deleted
    ("CONFLICT", {"path": "TMP/used"}),  # another workspace's
    ("CONFLICT", {"path": "TMP/used/inside"}),
    ("CONFLICT", {"path": "TMP/mine/deep/inside"}),  # and so with a person's
    ("CONFLICT", {"branch": "main"}),  # checked out in the main worktree
    ("CONFLICT", {"branch": "mine"}),  # checked out in another
    ("NOT_FOUND", {"workflow_id": "wf_none"}),
    ("NOT_FOUND", {"task_ids": ["tk_none"]}),
    ("INVALID_INPUT", {"task_ids": ["OTHER"]}),
    ("INVALID_STATE", {"task_ids": ["DONE"]}),
    ("INVALID_STATE", {"workflow_id": "OVER"}),
    ("INVALID_STATE", {"workflow_id": "NOWHERE"}),
    ("INVALID_STATE", {"workflow_id": "PLAIN"}),
]


def test_what_cannot_be_is_refused_and_leaves_no_row_no_branch_and_no_worktree(
    site: WorkspaceSite, tmp_path: Path
) -> None:
    places = _taken_places(site, tmp_path)
    workflow, tasks = site.workflow("one", "done")
    site.workspace(workflow, "used", path=str(tmp_path / "used"))
    site.ask("task_update_status", id=tasks["done"], status="skipped")
    over, _ = site.workflow()
    site.ask("workflow_update_status", id=over, status="abandoned")
    words = {
        "OVER": over,
        "NOWHERE": _without_repository(site),
        "PLAIN": site.workflow(repository_path=str(tmp_path / "full"))[0],
        "OTHER": site.workflow("other")[1]["other"],
        "DONE": tasks["done"],
    }

    def expand(value: Any) -> Any:
        if isinstance(value, list):
            return [expand(one) for one in value]
        return words.get(value, value).replace("ROOT", str(site.root)).replace("TMP", str(tmp_path))

    told = [{"workflow_id": workflow, "branch": "new", "task_ids": [tasks["one"]]} | given for _, given in BAD]
    calls = [{name: expand(value) for name, value in given.items()} for given in told]
    for (code, given), met in zip(BAD, refusals(site, "workspace_create", calls), strict=True):
        assert met == code, given
    assert site.ask("task_get", id=tasks["one"])["workspace_id"] is None
    assert {path: fingerprint(path) for path in places} == places and not site.home.exists()


def _taken_places(site: WorkspaceSite, tmp_path: Path) -> dict[Path, dict[bytes, str]]:
    """Places that are not free, and what is in them."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("theirs")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("mine", "gone"):
        git(site.root, "worktree", "add", "-q", "-b", name, str(tmp_path / name))
    (tmp_path / "gone").rename(tmp_path / "elsewhere")
    return {tmp_path / name: fingerprint(tmp_path / name) for name in ("full", "empty", "mine", "elsewhere")}


def _without_repository(site: WorkspaceSite) -> str:
    told = {"name": "w", "source_type": "prompt", "source_content": "do it"}
    found: str = site.ask("workflow_create", **told)["id"]
    return found


def test_when_git_fails_there_is_no_workspace_and_its_task_has_none(
    site: WorkspaceSite, refusal_code: Callable[..., str]
) -> None:
    workflow, tasks = site.workflow()
    site.home.write_text("a file where the directory would be")
    assert refusal_code("workspace_create", workflow_id=workflow, branch="a", task_ids=[tasks["one"]]) != "INTERNAL"
    site.home.unlink()
    (site.root / ".git" / "refs" / "heads" / "a.lock").touch()  # git makes no branch then
    assert (
        refusal_code("workspace_create", workflow_id=workflow, branch="a", task_ids=[tasks["one"]]) == "INVALID_STATE"
    )
    (site.root / ".git" / "refs" / "heads" / "a.lock").unlink()
    assert site.ask("task_get", id=tasks["one"])["workspace_id"] is None and site.is_as_before()


@on_sqlite
def test_an_agent_places_new_worktrees_beside_the_repository_alone(
    site: WorkspaceSite, hub: Hub, tmp_path: Path
) -> None:
    ada = Agent(hub)
    workflow, _ = site.workflow()
    site.home.mkdir()
    (site.home / "out").symlink_to(tmp_path)
    given = {"workflow_id": workflow, "branch": "a"}
    elsewhere = [tmp_path / "x", site.home / ".." / "x", site.root / "x", site.home / "out" / "x", site.home]
    for path in (*elsewhere, site.home / "deep" / "x"):
        assert code_of(ada.call, "workspace_create", path=str(path), **given) == "FORBIDDEN"
    assert code_of(ada.call, "workspace_create", path=str(site.home / "out"), **given) == "CONFLICT"
    made = ada.call("workspace_create", path=str(site.home / "x"), **given)
    assert made["worktree"] == "made"
    git(site.root, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))
    found = ada.call("workspace_create", workflow_id=workflow, branch="mine", path=str(tmp_path / "mine"))
    assert found["worktree"] == "found"


@on_sqlite
def test_the_directory_of_all_worktrees_may_be_a_link_to_a_larger_disk(
    site: WorkspaceSite, hub: Hub, tmp_path: Path
) -> None:
    (tmp_path / "large").mkdir()
    site.home.symlink_to(tmp_path / "large")
    workflow, _ = site.workflow()
    made = Agent(hub).call("workspace_create", workflow_id=workflow, branch="a")
    assert made["path"] == str(tmp_path / "large" / "a")


@pytest.fixture
def public(site: WorkspaceSite) -> Iterator[Path]:
    """The repository's directory, in which every user may make files; a later one in it is nobody's."""
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's files")
    site.root.parent.chmod(0o1777)
    yield site.root.parent
    site.root.parent.chmod(0o755)


def give_away(path: Path) -> None:
    os.chown(path, 65534, 65534, follow_symlinks=False)


@on_sqlite
@pytest.mark.parametrize("what", ["link", "directory", "open link", "open target", "link on the way", "open directory"])
def test_no_worktree_is_made_where_another_user_leads(
    site: WorkspaceSite, hub: Hub, public: Path, tmp_path: Path, what: str
) -> None:
    """`shop-worktrees` may be anybody's where all may write; what it leads to is the hub's user's."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    lead_astray(site.home, private, what)
    workflow, tasks = site.workflow(auto_create_workspaces=True)
    given = {"workflow_id": workflow, "branch": "a"}
    ada = Agent(hub)
    for more in ({}, {"path": str(site.home / ".ssh")}, {"path": str(private / ".ssh")}):
        assert code_of(ada.call, "workspace_create", **given, **more) == "FORBIDDEN"
        if str(private) not in str(more):  # the operator may name any place
            assert code_of(site.ask, "workspace_create", **given, **more) == "FORBIDDEN"
    problem = ada.call("task_claim", task_id=tasks["one"], agent_id=ada.id)["workspace_problem"]
    assert "no worktree is made at" in problem and ("nobody" in problem or "may write" in problem)
    assert (list(private.iterdir()), site.worktrees(), refs(site.root)) == ([], [], site.before)


@on_sqlite
@pytest.mark.parametrize(
    ("owner", "group", "mode", "is_refused"),
    [(65534, 0, 0o755, True), (0, 0, 0o777, True), (0, 0, 0o1777, False), (0, 65534, 0o2775, False)],
)
def test_no_worktree_is_made_where_another_user_may_swap_a_directory_above_the_repository(
    site: WorkspaceSite, hub: Hub, public: Path, owner: int, group: int, mode: int, is_refused: bool
) -> None:
    """A group that may write there is trusted: it may put another repository there, too."""
    os.chown(public, owner, group)
    public.chmod(mode)
    workflow, _ = site.workflow()
    ask, given = Agent(hub).call, {"workflow_id": workflow, "branch": "a"}
    if is_refused:
        assert code_of(ask, "workspace_create", **given) == "FORBIDDEN"
        assert (site.worktrees(), refs(site.root)) == ([], site.before)
    else:
        assert ask("workspace_create", **given)["path"] == str(site.home / "a")


@on_sqlite
@pytest.mark.parametrize(
    "script",
    [
        "ln -s {private} {home} && chown -h 65534 {home}",
        "mkdir {home} && chown 65534 {home}",
        "mkdir -p {home}/a && chown 65534 {home}/a",
    ],
)
def test_a_link_that_comes_while_a_worktree_is_made_leads_nowhere(
    site: WorkspaceSite, public: Path, tmp_path: Path, watch: GitWatch, script: str
) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    watch.run_at("worktree list", script.format(private=private, home=site.home))
    with pytest.raises((Conflict, Forbidden)):
        add_worktree(open_repository(str(site.root)), str(site.home / "a"), "a", "main")
    assert (list(private.iterdir()), site.worktrees(), refs(site.root)) == ([], [], site.before)


def lead_astray(home: Path, private: Path, what: str) -> None:
    """Make `shop-worktrees` what another user controls."""
    if "directory" in what:
        home.mkdir()
    elif what == "link on the way":
        home.symlink_to(home.parent / "theirs")
        (home.parent / "theirs").symlink_to(private)
        give_away(home.parent / "theirs")
    else:
        home.symlink_to(private)
    if what in ("link", "directory"):
        give_away(home)
    if what == "open link":
        home.parent.chmod(0o777)
    if what == "open target":
        private.chmod(0o777)
    if what == "open directory":
        home.chmod(0o777)


@on_sqlite
def test_what_is_the_repository_s_own_owner_s_may_lead_to_worktrees(
    site: WorkspaceSite, hub: Hub, public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git is told by safe.directory whose repository it may use; root's links are as good as ours."""
    (tmp_path / "large").mkdir()
    site.home.symlink_to(tmp_path / "large")
    for path in (site.root, site.root / ".git", site.home, tmp_path / "large"):
        give_away(path)
    (tmp_path / ".gitconfig").write_text(f"[safe]\n\tdirectory = {site.root}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    workflow, _ = site.workflow()
    made = Agent(hub).call("workspace_create", workflow_id=workflow, branch="a")
    assert made["path"] == str(tmp_path / "large" / "a")


@on_sqlite
def test_a_repository_is_known_by_any_of_its_worktrees(site: WorkspaceSite, tmp_path: Path) -> None:
    git(site.root, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))
    workflow, _ = site.workflow(repository_path=str(tmp_path / "mine"))
    assert site.workspace(workflow, "a")["path"] == str(site.home / "a")


@on_sqlite
def test_a_branch_whose_name_is_no_text_is_no_base(site: WorkspaceSite) -> None:
    workflow, tasks = site.workflow(auto_create_workspaces=True)
    git(site.root, "checkout", "-q", "-b", os.fsdecode(b"caf\xe9"))
    assert code_of(site.ask, "workspace_create", workflow_id=workflow, branch="a") == "INVALID_INPUT"
    claim = site.ask("task_claim", task_id=tasks["one"], agent_id=register(site.ask))
    assert claim["success"] and "caf" in claim["workspace_problem"]
    assert site.workspace(workflow, "a", base_branch="main")["worktree"] == "made"


def test_a_workflow_has_two_hundred_live_workspaces_at_most(
    site: WorkspaceSite, hub: Hub, refusal_code: Callable[..., str]
) -> None:
    workflow, _ = site.workflow()
    made = site.workspace(workflow, "a")
    _insert(hub, 199, workflow_id=workflow, node="n", repository_path="/r", branch="main", base_branch="main")
    assert refusal_code("workspace_create", workflow_id=workflow, branch="b") == "LIMIT_EXCEEDED"
    assert site.workspace(workflow, "a") == made, "one that is there is no further one"
    site.end(made["id"])
    assert site.workspace(workflow, "b")["worktree"] == "made"


def _insert(hub: Hub, count: int, **row: Any) -> None:
    """Rows of workspaces at paths that nothing is at."""
    with hub.own_work() as tx:
        for number in range(count):
            place = {"path": f"/nowhere/{number}", "worktree": "made", "has_made_branch": 1} | row
            tx.run("workspace_insert", id=new_id("ws"), now=number, **place)


@on_sqlite
def test_a_forecast_tells_how_many_it_did_not_look_at(site: WorkspaceSite, hub: Hub) -> None:
    workflow, _ = site.workflow()
    where = {"node": hub.settings.node, "repository_path": str(site.root), "branch": "main", "base_branch": "main"}
    _insert(hub, 45, workflow_id=workflow, **where)
    found = site.ask("workspace_forecast", workflow_id=workflow)
    assert (found["compared"], found["total"]) == (40, 45)


# Given to tasks, and listed


def test_a_task_is_given_a_workspace_of_its_workflow(site: WorkspaceSite, refusal_code: Callable[..., str]) -> None:
    workflow, tasks = site.workflow("one", "two", "done")
    first, second = (site.workspace(workflow, branch)["id"] for branch in ("a", "b"))
    for where in (first, second, second):
        assert site.ask("task_assign_workspace", task_id=tasks["one"], workspace_id=where) == {"success": True}
    assert site.ask("task_get", id=tasks["one"])["workspace_id"] == second
    inside = {one["id"]: one["task_ids"] for one in site.workspaces(workflow)}
    assert inside == {first: [], second: [tasks["one"]]}
    site.ask("task_update_status", id=tasks["done"], status="skipped")
    other = site.workflow("one")[1]["one"]
    site.end(first)
    for code, task, workspace in (
        ("NOT_FOUND", "tk_none", second),
        ("NOT_FOUND", tasks["one"], "ws_none"),
        ("NOT_FOUND", tasks["one"], first),
        ("INVALID_INPUT", other, second),
        ("INVALID_STATE", tasks["done"], second),
    ):
        assert refusal_code("task_assign_workspace", task_id=task, workspace_id=workspace) == code


def test_an_agents_task_is_placed_by_itself_and_not_by_another_agent(site: WorkspaceSite, hub: Hub) -> None:
    workflow, tasks = site.workflow()
    given = {"task_id": tasks["one"], "workspace_id": site.workspace(workflow, "a")["id"]}
    ada, bob = Agent(hub, "ada"), Agent(hub, "bob")
    epoch = ada.call("task_claim", task_id=tasks["one"])["claim_epoch"]
    assert code_of(bob.call, "task_assign_workspace", **given) == "STALE_CLAIM"
    assert code_of(site.ask, "task_assign_workspace", claim_epoch=epoch + 1, **given) == "STALE_CLAIM"
    assert ada.call("task_assign_workspace", claim_epoch=epoch, **given) == {"success": True}


def test_nobody_moves_anothers_task_out_of_its_workspace_by_making_a_new_one(site: WorkspaceSite, hub: Hub) -> None:
    workflow, tasks = site.workflow("one", "free")
    ada, bob = Agent(hub, "ada"), Agent(hub, "bob")
    held = site.workspace(workflow, "bobs", task_ids=[tasks["one"]])
    bob.call("task_claim", task_id=tasks["one"])
    given = {"workflow_id": workflow, "branch": "adas", "task_ids": [tasks["free"], tasks["one"]]}
    before = all_rows(hub), refs(site.root), site.worktrees()
    assert code_of(ada.call, "workspace_create", **given) == "STALE_CLAIM"
    assert (all_rows(hub), refs(site.root), site.worktrees()) == before
    assert code_of(ada.call, "workspace_update", id=held["id"], status="abandoned") == "FORBIDDEN"
    moved = bob.call("workspace_create", **given)
    assert site.ask("task_get", id=tasks["one"])["workspace_id"] == moved["id"]


def test_workspaces_are_listed_by_status_page_by_page(site: WorkspaceSite, clock: Clock) -> None:
    workflow, _ = site.workflow()
    made = []
    for branch in ("a", "b", "c"):
        made.append(site.workspace(workflow, branch)["id"])
        clock.advance(1)
    site.end(made[0], "merged", merge_commit=git(site.root, "rev-parse", "HEAD"))
    site.end(made[1])
    ids = lambda **more: [one["id"] for one in site.workspaces(workflow, **more)]  # noqa: E731
    assert (ids(), ids(status=["active"]), ids(status=["merged", "abandoned"])) == (made, made[2:], made[:2])
    page = site.ask("workspace_list", workflow_id=workflow, limit=2)
    assert ([one["id"] for one in page["workspaces"]], page["total"], page["next_offset"]) == (made[:2], 3, 2)
    page = site.ask("workspace_list", workflow_id=workflow, limit=2, offset=2)
    assert ([one["id"] for one in page["workspaces"]], page["next_offset"]) == (made[2:], None)
    assert code_of(site.ask, "workspace_list", workflow_id="wf_none") == "NOT_FOUND"
    assert code_of(site.ask, "workspace_list", workflow_id=workflow, status=["over"]) == "INVALID_INPUT"


@on_sqlite
def test_a_hundred_workspaces_with_long_paths_are_listed_in_bounded_pages(site: WorkspaceSite, hub: Hub) -> None:
    workflow, tasks = site.workflow(*(f"task {number}" for number in range(30)))
    with hub.own_work() as tx:
        for number in range(100):
            row = {"workflow_id": workflow, "node": "n", "repository_path": "/r", "base_branch": "b" * 200}
            place = {"path": f"/{number}" + "漢" * 600, "branch": "b" * 200, "worktree": "made", "has_made_branch": 1}
            tx.run("workspace_insert", id=new_id("ws"), now=number, **row, **place)
        first = tx.all("workspaces", workflow_id=workflow, statuses=None, limit=1, offset=0)[0]
        for task in tasks.values():
            tx.run("task_place", id=task, workspace_id=first["id"], now=0)
        tx.run("workspace_removed", id=first["id"], saved_refs=json.dumps(["refs/crewhall/x"]), now=0)
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = site.ask("workspace_list", workflow_id=workflow, limit=500, offset=offset)
        assert len(json.dumps(page, ensure_ascii=False).encode()) <= 20_000 and page["total"] == 100
        seen += [one["id"] for one in page["workspaces"]]
        offset = page["next_offset"]
    assert len(seen) == len(set(seen)) == 100
    assert len(site.workspaces(workflow, limit=1)[0]["task_ids"]) == 20
    assert site.ask("workspace_forecast", workflow_id=workflow)["compared"] == 0, "none of them is on this node"


# Ended


def test_a_merged_workspace_is_gone_with_its_branch(site: WorkspaceSite) -> None:
    workflow, _ = site.workflow()
    made = site.workspace(workflow, "a")
    edit(made, "file-0", "mine")
    git(site.root, "merge", "-q", "--no-ff", "-m", "merge a", "a")
    merge, since = git(site.root, "rev-parse", "HEAD"), newest(site.ask)
    gone = {"success": True, "worktree": "removed", "saved_refs": [], "problem": None}
    assert site.end(made["id"], "merged", merge_commit=merge) == gone
    assert site.end(made["id"], "merged", merge_commit=merge) == gone, "twice is as good as once"
    kept = site.workspaces(workflow)[0]
    assert (kept["status"], kept["merge_commit"], kept["worktree"]) == ("merged", merge, "removed")
    told = [event["what"] for event in site.ask("event_list", after=since)["events"]]
    assert told == ["workspace.updated", "workspace.removed"], "it took nobody's port"
    site.before["refs/heads/main"] = merge
    assert site.is_as_before()


def test_what_is_no_end_of_a_workspace_is_refused(site: WorkspaceSite) -> None:
    workflow, _ = site.workflow()
    live, over = (site.workspace(workflow, branch)["id"] for branch in ("a", "b"))
    site.end(over)
    bad: list[tuple[str, Body]] = [
        ("INVALID_INPUT", {"id": live}),
        ("INVALID_INPUT", {"id": live, "status": "merged"}),
        ("INVALID_INPUT", {"id": live, "merge_commit": "abcd"}),
        ("INVALID_INPUT", {"id": live, "status": "abandoned", "merge_commit": "abcd"}),
        ("INVALID_INPUT", {"id": live, "status": "merged", "merge_commit": "main"}),
        ("INVALID_INPUT", {"id": live, "status": "merged", "merge_commit": "--all"}),
        ("INVALID_INPUT", {"id": live, "status": "merged", "merge_commit": "abc"}),
        ("INVALID_INPUT", {"id": live, "status": "merged", "merge_commit": "a" * 65}),
        ("INVALID_INPUT", {"id": live, "status": "over"}),
        ("INVALID_TRANSITION", {"id": over, "status": "merged", "merge_commit": "abcd"}),
        ("INVALID_TRANSITION", {"id": over, "status": "active"}),
        ("NOT_FOUND", {"id": "ws_none", "status": "abandoned"}),
    ]
    for (code, given), met in zip(bad, refusals(site, "workspace_update", (given for _, given in bad)), strict=True):
        assert met == code, given
    assert site.end(live, "active")["worktree"] == "made", "to say what it is already changes nothing"


@on_sqlite
def test_work_that_nothing_else_keeps_can_be_read_back_under_a_ref(site: WorkspaceSite) -> None:
    workflow, _ = site.workflow()
    made = site.workspace(workflow, "a")
    edit(made, "file-0", "committed, and in no other branch")
    edit(made, "file-1", "uncommitted", committed=False)
    Path(made["path"], "new file").write_text("untracked")
    ref = f"refs/crewhall/{made['id']}"
    assert site.end(made["id"]) == {"success": True, "worktree": "removed", "saved_refs": [ref], "problem": None}
    assert site.workspaces(workflow)[0]["saved_refs"] == [ref]
    show = lambda file: git(site.root, "show", f"{ref}:{file}")  # noqa: E731
    assert show("file-0").startswith("committed, and") and show("file-1").startswith("uncommitted")
    assert show("new file") == "untracked"
    assert refs(site.root) == site.before | {ref: git(site.root, "rev-parse", ref)}
    assert site.worktrees() == [] and not site.home.exists()


@on_sqlite
def test_after_a_squash_the_branchs_own_commits_are_kept_under_a_ref(site: WorkspaceSite) -> None:
    workflow, _ = site.workflow()
    made = site.workspace(workflow, "a")
    tip = edit(made, "file-0", "mine")
    git(site.root, "merge", "-q", "--squash", "a")
    ended = site.end(made["id"], "merged", merge_commit=commit(site.root, "squashed"))
    assert [refs(site.root)[ref] for ref in ended["saved_refs"]] == [tip]
    assert not site.home.exists() and "refs/heads/a" not in refs(site.root)


def test_a_worker_does_not_end_the_workspace_in_which_another_agent_works(site: WorkspaceSite, hub: Hub) -> None:
    workflow, tasks = site.workflow("one", "two", "three")
    ada, bob, cleo = Agent(hub, "ada"), Agent(hub, "bob"), Agent(hub, "cleo", "coordinator")
    made = [site.workspace(workflow, name, task_ids=[tasks[name]])["id"] for name in tasks]
    for task in tasks.values():
        bob.call("task_claim", task_id=task)
    assert code_of(ada.call, "workspace_update", id=made[0], status="abandoned") == "FORBIDDEN"
    assert len(site.worktrees()) == 3
    for call, workspace in zip((bob.call, cleo.call, site.ask), made, strict=True):
        assert call("workspace_update", id=workspace, status="abandoned")["worktree"] == "removed"
    assert site.is_as_before()


def test_no_call_of_a_worker_takes_the_workspace_from_under_another(
    site: WorkspaceSite, hub: Hub, clock: Clock
) -> None:
    workflow, tasks = site.workflow("free", "kims", auto_create_workspaces=True)
    kim, eve, cleo = Agent(hub, "kim"), Agent(hub, "eve"), Agent(hub, "cleo", "coordinator")
    claimed = kim.call("task_claim", task_id=tasks["kims"])
    held, task = claimed["workspace"]["id"], tasks["kims"]
    edit(claimed["workspace"], "file-0", "uncommitted", committed=False)
    plan = {"approach": "mine", "steps": ["one"]}
    doors: list[tuple[str, str, Body]] = [
        ("FORBIDDEN", "workspace_update", {"id": held, "status": "abandoned"}),
        ("FORBIDDEN", "workspace_update", {"id": held, "status": "merged", "merge_commit": "abcdef"}),
        ("FORBIDDEN", "workflow_update_status", {"id": workflow, "status": "abandoned"}),
        ("FORBIDDEN", "agent_unregister", {"id": kim.id}),
        ("FORBIDDEN", "agent_update", {"id": kim.id, "status": "offline"}),
        ("FORBIDDEN", "task_release", {"task_id": task, "agent_id": kim.id}),
        ("STALE_CLAIM", "task_update_status", {"id": task, "status": "skipped"}),
        ("STALE_CLAIM", "task_replan", {"id": task, "reason": "better", "new_plan": plan}),
        ("INVALID_STATE", "workflow_remove_task", {"id": workflow, "task_id": task}),
        ("STALE_CLAIM", "task_assign_workspace", {"task_id": task, "workspace_id": held}),
    ]
    for code, tool, given in doors:
        assert code_of(eve.call, tool, **given) == code, (tool, given)
    for step in ("failed", "in_progress", "paused"):
        eve.call("workflow_update_status", id=workflow, status=step)
        assert code_of(eve.call, "workflow_update_status", id=workflow, status="abandoned") == "FORBIDDEN"
    minutes(site, clock, 3)
    assert site.worktrees() == [claimed["workspace"]["path"]]
    assert site.ask("task_get", id=task)["claimed_by"] == kim.id
    kim.call("task_release", task_id=task)
    cleo.call("workflow_update_status", id=workflow, status="in_progress")
    cleo.call("task_claim", task_id=task)
    assert code_of(eve.call, "workflow_update_status", id=workflow, status="abandoned") == "FORBIDDEN"
    cleo.call("task_release", task_id=task)
    assert eve.call("workflow_update_status", id=workflow, status="abandoned") == {"success": True}


def test_a_crowded_workspace_is_ended_by_no_worker_either(site: WorkspaceSite, hub: Hub, database: str) -> None:
    names = [f"t{number}" for number in range(510)]
    workflow, tasks = site.workflow(*names)
    held = site.workspace(workflow, "crowded", task_ids=[tasks[names[-1]]])["id"]
    Agent(hub, "kim").call("task_claim", task_id=tasks[names[-1]])
    rows(database, f"UPDATE task SET workspace_id = '{held}' WHERE workflow_id = '{workflow}'")
    eve = Agent(hub, "eve")
    assert code_of(eve.call, "workspace_update", id=held, status="abandoned") == "FORBIDDEN"


@pytest.fixture
def busy() -> Iterator[Callable[[str], "subprocess.Popen[bytes]"]]:
    """Processes that stand in a directory."""
    started: list[subprocess.Popen[bytes]] = []

    def stand(where: str) -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen(["cat"], cwd=where, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        eventually(lambda: os.readlink(f"/proc/{started[-1].pid}/cwd") == where)
        return started[-1]

    yield stand
    for process in started:
        process.kill()
        process.communicate()


@on_sqlite
def test_a_worktree_in_which_somebody_is_goes_when_they_have_left(site: WorkspaceSite, clock: Clock, busy: Any) -> None:
    workflow, _ = site.workflow()
    made = site.workspace(workflow, "a")
    process = busy(made["path"])
    told = site.end(made["id"])
    assert (told["success"], told["worktree"]) == (True, "made") and str(process.pid) in told["problem"]
    minutes(site, clock)
    assert str(process.pid) in site.workspaces(workflow)[0]["problem"] and os.path.isdir(made["path"])
    process.kill()
    process.communicate()
    minutes(site, clock)
    kept = site.workspaces(workflow)[0]
    assert (kept["worktree"], kept["problem"]) == ("removed", None) and site.is_as_before()


@on_sqlite
def test_a_place_that_is_to_be_removed_is_not_given_to_another_workspace(
    site: WorkspaceSite, clock: Clock, busy: Any
) -> None:
    """Otherwise the chore would take it away from under whoever works there by then."""
    workflow, tasks = site.workflow(auto_create_workspaces=True)
    agent = register(site.ask)
    claimed = site.ask("task_claim", task_id=tasks["one"], agent_id=agent)["workspace"]
    process = busy(claimed["path"])
    site.end(claimed["id"])
    again = site.ask("task_claim", task_id=tasks["one"], agent_id=agent)
    assert again["workspace"] is None and claimed["id"] in again["workspace_problem"]
    given = {"workflow_id": workflow, "branch": claimed["branch"]}
    assert code_of(site.ask, "workspace_create", **given) == "CONFLICT"
    process.kill()
    process.communicate()
    minutes(site, clock)
    fresh = site.ask("task_claim", task_id=tasks["one"], agent_id=agent)["workspace"]
    minutes(site, clock, 2)
    assert fresh["path"] == claimed["path"] and os.path.isdir(fresh["path"])


@on_sqlite
def test_one_that_cannot_be_removed_keeps_no_other_back(site: WorkspaceSite, clock: Clock, database: str) -> None:
    workflow, _ = site.workflow()
    made = [site.workspace(workflow, branch) for branch in ("a", "b", "c", "d")]
    for one in made[:2]:
        git(site.root, "worktree", "lock", "--reason", "on a stick", one["path"])
    for one in made[:2]:
        assert "on a stick" in site.end(one["id"])["problem"]
    clock.advance(1)
    rows(database, "UPDATE workspace SET status = 'abandoned' WHERE branch IN ('c', 'd')")
    minutes(site, clock, 3)
    stands = {one["branch"]: one["worktree"] for one in site.workspaces(workflow)}
    assert stands == {"a": "made", "b": "made", "c": "removed", "d": "removed"}


def test_one_whose_end_cannot_be_noted_is_noted_with_that_and_keeps_no_other_back(
    site: WorkspaceSite, clock: Clock, database: str
) -> None:
    workflow, _ = site.workflow()
    made = [site.workspace(workflow, branch) for branch in ("a", "b")]
    rows(database, "UPDATE workspace SET status = 'abandoned'")
    with refuse_changes(database, "workspace", "UPDATE", "NEW.branch = 'a' AND NEW.worktree = 'removed'"):
        minutes(site, clock, 2)
        first, second = by_branch(site, workflow)
    assert (first["id"], first["worktree"], second["worktree"]) == (made[0]["id"], "made", "removed")
    assert "refused by the test" in first["problem"]
    minutes(site, clock, 2)
    assert [one["problem"] for one in site.workspaces(workflow)] == [None, None] and site.is_as_before()


def test_one_that_cannot_be_given_up_keeps_no_other_back(site: WorkspaceSite, clock: Clock, database: str) -> None:
    workflow, _ = site.workflow()
    for branch in ("a", "b"):
        site.workspace(workflow, branch)
    rows(database, "UPDATE workspace SET worktree = 'wanted'")
    with refuse_changes(database, "workspace", "UPDATE", "NEW.branch = 'a' AND NEW.status = 'abandoned'"):
        minutes(site, clock, 17)
    assert [one["worktree"] for one in by_branch(site, workflow)] == ["wanted", "removed"]


@on_sqlite
def test_a_problem_with_a_name_that_is_no_text_is_told_and_keeps_no_other_back(
    site: WorkspaceSite, clock: Clock
) -> None:
    workflow, _ = site.workflow()
    made = [site.workspace(workflow, branch) for branch in ("a", "b")]
    inside = Path(made[0]["path"], os.fsdecode(b"caf\xe9"))
    inside.mkdir()
    git(inside, "init", "-q")
    assert "caf" in site.end(made[0]["id"])["problem"]
    site.ask("workflow_update_status", id=workflow, status="abandoned")
    minutes(site, clock, 2)
    first, second = by_branch(site, workflow)
    assert ("caf" in first["problem"], first["worktree"], second["worktree"]) == (True, "made", "removed")


@on_sqlite
def test_an_end_without_a_directory_for_temporary_files_is_tried_again(
    site: WorkspaceSite, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow, _ = site.workflow()
    made = site.workspace(workflow, "a")
    edit(made, "file-0", "uncommitted", committed=False)
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(site.root / "missing"))
        told = site.end(made["id"])
        assert told["worktree"] == "made" and told["problem"]
    minutes(site, clock)
    assert site.workspaces(workflow)[0]["saved_refs"] == [f"refs/crewhall/{made['id']}"] and not site.home.exists()


def test_with_a_workflow_that_is_abandoned_its_workspaces_end(site: WorkspaceSite, clock: Clock) -> None:
    workflow, _ = site.workflow()
    other = site.workspace(site.workflow()[0], "other")
    for branch in ("a", "b", "c", "d", "e"):
        made = site.workspace(workflow, branch)
    edit(made, "file-0", "uncommitted", committed=False)
    site.ask("workflow_update_status", id=workflow, status="abandoned")
    assert {one["status"] for one in site.workspaces(workflow)} == {"abandoned"}
    minutes(site, clock, 3)
    assert {one["worktree"] for one in site.workspaces(workflow)} == {"removed"}
    assert site.worktrees() == [other["path"]]
    saved = [ref for ref in refs(site.root) if ref not in site.before]
    assert sorted(saved) == [f"refs/crewhall/{made['id']}", "refs/heads/other"]


@on_sqlite
def test_a_repository_that_is_gone_is_told_and_one_that_is_back_is_tidied(site: WorkspaceSite, clock: Clock) -> None:
    workflow, _ = site.workflow()
    made = site.workspace(workflow, "a")
    site.root.rename(site.root.with_name("moved"))
    told = site.end(made["id"])
    assert told["success"] and str(site.root) in told["problem"]
    minutes(site, clock)
    site.root.with_name("moved").rename(site.root)
    minutes(site, clock)
    assert site.workspaces(workflow)[0]["worktree"] == "removed" and site.is_as_before()


# Of several machines


def test_a_workspace_is_ended_by_a_hub_of_its_own_node_alone(
    site: WorkspaceSite, make_hub: MakeHub, clock: Clock, tmp_path: Path
) -> None:
    workflow, _ = site.workflow()
    made = site.workspace(workflow, "a")
    away = WorkspaceSite(make_hub(clock=clock, node__name="elsewhere"), site.root)
    before = all_rows(site.hub)
    assert code_of(away.ask, "workspace_update", id=made["id"], status="abandoned") == "UNAVAILABLE"
    assert all_rows(site.hub) == before
    assert away.ask("workspace_forecast", workflow_id=workflow)["compared"] == 0
    away.ask("workflow_update_status", id=workflow, status="abandoned")
    minutes(away, clock, 2)
    assert os.path.isdir(made["path"]) and away.workspaces(workflow)[0]["worktree"] == "made"
    minutes(site, clock, 2)
    assert site.is_as_before()


def test_a_sqlite_hall_is_on_one_node_whatever_the_machine_is_called(make_hub: MakeHub, database: str) -> None:
    assert make_hub().settings.node == (os.uname().nodename if "://" in database else "local")
    assert make_hub(node__name="elsewhere").settings.node == "elsewhere"


def test_a_worktree_stays_while_another_live_workspace_is_at_its_path(
    site: WorkspaceSite, make_hub: MakeHub, clock: Clock
) -> None:
    """The machine got another name meanwhile, or two hubs on it have two."""
    workflow, _ = site.workflow()
    made = site.workspace(workflow, "a")
    again = WorkspaceSite(make_hub(clock=clock, node__name="elsewhere"), site.root)
    found = again.workspace(workflow, "a")
    assert (found["path"], found["worktree"]) == (made["path"], "found")
    assert found["id"] in site.end(made["id"])["problem"]
    minutes(site, clock)
    kept = {one["id"]: one for one in site.workspaces(workflow)}
    assert os.path.isdir(made["path"]) and found["id"] in kept[made["id"]]["problem"]
    again.end(found["id"])
    minutes(site, clock)
    assert {one["worktree"] for one in site.workspaces(workflow)} == {"removed", "found"} and site.is_as_before()


@on_sqlite
def test_the_same_path_on_two_nodes_is_two_workspaces(site: WorkspaceSite, make_hub: MakeHub, tmp_path: Path) -> None:
    """Two machines may have the same directories: here one looks at a copy that is moved away."""
    workflow, _ = site.workflow()
    first = site.workspace(workflow, "a")
    site.home.rename(tmp_path / "their worktrees")
    site.root.rename(tmp_path / "their repository")
    make_repository(site.root)
    second = WorkspaceSite(make_hub(node__name="elsewhere"), site.root).workspace(workflow, "a")
    assert (second["path"], second["worktree"]) == (first["path"], "made") and second["id"] != first["id"]
