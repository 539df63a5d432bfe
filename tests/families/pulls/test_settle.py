"""A hub that is killed with SIGKILL while it opens a pull: the next hub finishes or removes what there is."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.families.all import registry
from crewhall.families.pulls.steps import OPENING
from crewhall.journal import FORGET_MS
from crewhall.store.transaction import Row
from tests.conftest import Clock, eventually, settings_for
from tests.contract.writer import SERVER
from tests.families.pulls.conftest import (
    BRANCH,
    FILE,
    PERSON,
    PULL,
    TOKENS,
    Site,
    bridge,
    fake_host,
    on_both,
    on_github,
    set_up,
    together,
)
from tests.families.work.claims import pass_time

pytestmark = pytest.mark.slow

STEPS = {  # where the hub dies: the request is done, and nobody hears the answer
    "github": ["/git/trees$", "/git/refs$", "/pulls$", "/issues/1/labels$"],
    "gitea": ["/contents$", "/pulls$"],
}
OTHER = {**FILE, "path": "checks/other.md"}
KillAt = Callable[[str], None]


@pytest.fixture
def kill_hub(database: str, tmp_path: Path, clock: Clock, site: Site) -> KillAt:
    """A call of another hub of the hall, which is killed while the host works at this."""

    def kill_at(path: str) -> None:
        site.fail(("POST", path), times=1, kind="slow", seconds=60)
        settings = set_up(site.kind, site.host)
        where = (database, tmp_path / "home", settings, clock.now, site.name)
        process = SERVER.Process(target=_create, args=where)
        process.start()
        eventually(lambda: any(one.fault for one in site.host.exchanges), 30)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)

    return kill_at


def _create(database: str, home: Path, settings: dict[str, Any], now: int, name: str) -> None:
    hub = Hub(settings_for(database, home, **settings), registry(), clock=lambda: now)
    hub.call("create_pr", {"repo_owner": "octo", "repo_name": name, "files": [FILE], **PULL}, PERSON)
    os._exit(3)  # nobody killed it


def look(site: Site, clock: Clock, times: int = 1) -> None:
    """What the chore does when all leases are over."""
    for _ in range(times):
        site.settle(clock)


def half_open(site: Site) -> list[Row]:
    return [row for row in site.rows() if row["state"] in ("opening", "left")]


@pytest.mark.parametrize(
    ("kind", "step"), [(kind, step) for kind, steps in STEPS.items() for step in steps], indirect=["kind"]
)
def test_what_a_killed_hub_left_is_settled_after_its_lease(
    site: Site, clock: Clock, kill_hub: KillAt, step: str
) -> None:
    kill_hub(step)
    is_open, refusal = bool(site.repo.pulls), site.refusal()
    assert refusal.code == "CONFLICT"
    assert refusal.fields.get("number") == 1 if is_open else "settled in 120 s" in refusal.hint
    pass_time(clock, 119, site.hub, ticks=2)
    assert [row["state"] for row in site.rows()] == (["open"] if "label" in step else ["opening"])
    pass_time(clock, 60, site.hub, ticks=2)
    assert site.branches() == site.open_heads() == ([BRANCH] if is_open else [])
    if is_open:
        assert sorted(site.repo.pulls[1].labels) == ["automated", "claude-ops"] or "label" in step
        assert site.refusal().fields["number"] == 1
    else:
        assert site.create()["branch"] == BRANCH
    look(site, clock, 6)
    assert ([row["number"] for row in site.rows()], len(site.repo.pulls), site.branches()) == ([1], 1, [BRANCH])
    assert site.pull_events() == ["pull.opened"] + ["pull.failed"] * (not is_open)


@on_both
@on_github
def test_the_same_call_again_settles_it_too_and_makes_one_pull(site: Site, clock: Clock, kill_hub: KillAt) -> None:
    kill_hub("/git/refs$")
    assert site.refusal(title="Other title").code == "CONFLICT"
    clock.advance(121)
    made = site.create()
    assert (made["branch"], site.branches(), len(site.repo.pulls)) == (BRANCH, [BRANCH], 1)
    look(site, clock, 6)
    assert ([row["state"] for row in site.rows()], site.pull_events()) == (["open"], ["pull.opened", "pull.failed"])


@on_github
def test_a_pull_that_a_killed_hub_opened_is_noted_and_known_by_its_files(
    site: Site, clock: Clock, kill_hub: KillAt
) -> None:
    kill_hub("/pulls$")
    clock.advance(121)
    assert site.refusal(title="Other title").fields["number"] == 1
    (row,) = site.rows()
    assert (row["state"], row["number"], row["commit_id"]) == ("open", 1, site.repo.branches[BRANCH])


@on_github
def test_a_commit_of_a_person_on_what_a_killed_hub_left_is_never_removed(
    site: Site, clock: Clock, kill_hub: KillAt
) -> None:
    kill_hub("/git/refs$")
    theirs = site.repo.add_commit(BRANCH, {"checks/mine.md": b"1"}, "A person goes on here")
    look(site, clock, 6)
    assert (site.repo.branches[BRANCH], site.rows()) == (theirs, [])


@on_github
def test_what_a_killed_hub_left_and_nobody_may_look_at_blocks_nobody(
    site: Site, clock: Clock, kill_hub: KillAt
) -> None:
    kill_hub("/git/trees$")
    site.fail(("GET", "/branches/claude-ops/"), times=1, status=403, body={"message": "protected"})
    look(site, clock)
    assert [row["state"] for row in site.rows()] == ["left"]
    assert site.create()["number"] == 1


# A call that was away


@on_github
def test_a_hub_that_wakes_up_lets_a_call_that_slept_go_on_first(site: Site, clock: Clock) -> None:
    def sleep(done: float, total: float | None, text: str | None) -> None:
        if done == 1:
            clock.advance(3600)
            pass_time(clock, 100, site.hub, ticks=2)

    made = site.create(progress=sleep)
    assert (made["number"], site.branches(), half_open(site)) == (1, [BRANCH], [])


@on_github
@pytest.mark.parametrize(("database", "step"), [("sqlite", 1), ("postgres", 2)], indirect=["database"])
def test_a_call_that_was_taken_for_dead_stops_and_leaves_nothing(site: Site, clock: Clock, step: int) -> None:
    def sleep(done: float, total: float | None, text: str | None) -> None:
        if done == step:
            look(site, clock)

    refusal = site.refusal(progress=sleep)
    assert (refusal.code, "taken for dead" in refusal.message) == ("UNAVAILABLE", True)
    assert site.branches() == []
    look(site, clock, 6)
    assert (site.rows(), site.repo.pulls) == ([], {})


# Two who settle, and many things to settle


def leave_branch(site: Site, clock: Clock, number: int = 1, **given: Any) -> None:
    """A branch that a call could not remove; its lease is over."""
    site.fail(("POST", "/pulls$"), times=1, status=422, body={"message": "unfit"})
    site.fail(("DELETE", ""), times=1, status=403, body={"message": "protected"})
    site.refusal(title=f"Change {number}", files=[{**FILE, "content": str(number)}], **given)
    clock.advance(61)


@on_both
@on_github
def test_who_settles_is_alone_and_removes_no_branch_of_a_later_call(site: Site, clock: Clock) -> None:
    leave_branch(site, clock)
    site.fail(("GET", "/pulls$"), times=1, kind="slow", seconds=0.5)
    chore = threading.Thread(target=look, args=(site, clock))
    chore.start()
    eventually(lambda: any(one.fault == "slow" for one in site.host.exchanges))
    made = site.create(title="Change 1")
    chore.join(30)
    assert site.branches() == site.open_heads() == [made["branch"]]
    look(site, clock, 6)
    assert [row["number"] for row in site.rows()] == [1]


@on_both
@on_github
def test_of_many_who_want_to_settle_one_does(site: Site, clock: Clock) -> None:
    leave_branch(site, clock)
    for _ in range(10):
        clock.now = max(clock.now, *site.leases())
        found = together(*[lambda: {"taken": len(site.hub.journal.take(OPENING, site.host.url))}] * 8)
        assert sorted(one["taken"] for one in found if isinstance(one, dict)) == [0] * 7 + [1]


@on_github
def test_what_cannot_be_settled_keeps_nothing_else_back(site: Site, clock: Clock) -> None:
    site.fail(("GET", "/branches/claude-ops/"), status=403, body={"message": "protected"})
    for number in range(12):
        leave_branch(site, clock, number)
    leave_branch(site.move_to_new_repository(), clock)
    look(site, clock, 2)
    assert (site.branches(), [row["name"] for row in site.rows()].count("ops")) == ([], 12)


@on_github
def test_a_repository_that_the_token_does_not_see_is_not_taken_for_an_empty_one(site: Site, clock: Clock) -> None:
    leave_branch(site, clock)
    site.fail(("GET", "$"), times=9, status=404, body={"message": "Not Found"})
    site.fail(("GET", "/branches/"), times=9, status=404, body={"message": "Not Found"})
    look(site, clock, 9)
    assert len(site.rows()) == len(site.branches()) == 1


@on_github
def test_what_nobody_can_look_at_is_forgotten_after_a_week(site: Site, clock: Clock) -> None:
    leave_branch(site, clock)
    site.fail(("GET", "$"), status=404, body={"message": "Not Found"})
    look(site, clock, 2)
    assert len(site.rows()) == 1
    clock.now += FORGET_MS
    look(site, clock, 2)
    assert site.rows() == [] and site.pull_events() == ["pull.failed"]


@on_github
def test_what_a_client_left_with_a_token_of_its_own_is_settled_by_its_next_call(
    site: Site, make_hub: Callable[..., Hub], clock: Clock
) -> None:
    site.hub = make_hub(clock=clock, **set_up("github", site.host, token=""))
    client = bridge(GITHUB_TOKEN=TOKENS["github"], CLAUDEOPS_TIER="3")
    leave_branch(site, clock, origin=client)
    look(site, clock, 3)
    assert (len(site.branches()), len(site.rows())) == (1, 1), "the hub has no token for it"
    made = site.create(title="Something else", files=[OTHER], origin=client)
    assert site.branches() == [made["branch"]]


@on_github
def test_a_host_that_is_not_set_up_any_more_keeps_the_chore_from_no_other(
    site: Site, make_hub: Callable[..., Hub], clock: Clock
) -> None:
    leave_branch(site, clock)
    asked = len(site.host.exchanges)
    with fake_host("gitea") as gitea:
        there = Site(make_hub(clock=clock, **set_up("gitea", gitea)), gitea, "gitea").move_to_new_repository()
        leave_branch(there, clock)
        look(there, clock, 6)
        assert (there.branches(), [row["provider"] for row in there.rows()]) == ([], ["github"])
    assert len(site.host.exchanges) == asked
