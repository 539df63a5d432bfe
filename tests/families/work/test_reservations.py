"""File reservations: who is about to change what, until when, and who is in whose way."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.errors import Failure
from crewhall.families.work.reservation.rules import MOST_RESERVED
from crewhall.identity import OPERATOR
from tests.conftest import Agent, Clock
from tests.families.work.claims import ask, refusal, register_agent, rows
from tests.families.work.workflows import all_rows, let_lapse, plan_workflow, task
from tests.outside.test_places import Git, app, git
from tests.sizes import size

__all__ = ["app", "git"]  # fixtures

MakeHub = Callable[..., Hub]
HERE = "/srv/app"  # on another machine, perhaps


def reserve(hub: Hub, agent: str, *paths: str, **more: Any) -> dict[str, Any]:
    return ask(hub, "file_reserve", agent_id=agent, paths=list(paths), **{"repository_path": HERE} | more)


def release(hub: Hub, agent: str, **more: Any) -> int:
    body = ask(hub, "file_release", agent_id=agent, **more)
    assert body["success"]
    released: int = body["released"]
    return released


def reserved_paths(hub: Hub, **chosen: Any) -> list[tuple[str, str]]:
    """The paths that are reserved, each with its agent's name."""
    body = ask(hub, "file_reservations", **chosen)
    assert body["total"] >= len(body["reservations"])
    return [(one["path"], one["agent_name"]) for one in body["reservations"]]


def event_data(hub: Hub, what: str) -> list[dict[str, Any]]:
    events = ask(hub, "event_list", topic=what, limit=500)["events"]
    return [{"subject": event["subject"], **event["data"]} for event in events]


# Reserving


def test_what_is_reserved_is_told_whole(hub: Hub, operator: Callable[..., dict[str, Any]], clock: Clock) -> None:
    ada = register_agent(hub, "ada")
    _, tasks = plan_workflow(operator, task("one"), repository_path=HERE)
    more = {"reason": "moving it", "seconds": 60, "task_id": tasks["one"], "exclusive": False}
    body = reserve(hub, ada, "src/app.py", "docs/", **more)
    end = clock.now + 60_000
    assert body == {
        "success": True,
        "repository_path": HERE,
        "reserved": [{"path": "src/app.py", "expires_at": end}, {"path": "docs/", "expires_at": end}],
        "reserved_total": 2,
        "conflicts": [],
        "conflicts_total": 0,
    }
    listed = ask(hub, "file_reservations")
    one = {"agent_id": ada, "agent_name": "ada", "exclusive": False, "reason": "moving it", "task_id": tasks["one"]}
    one |= {"repository_path": HERE, "expires_at": end}
    both = [one | {"path": "docs/"}, one | {"path": "src/app.py"}]
    assert listed == {"reservations": both, "total": 2, "next_offset": None}
    paths = {"paths": ["src/app.py", "docs/"], "count": 2, "repository_path": HERE}
    assert event_data(hub, "file.reserved") == [{"subject": ada, **paths}]


def test_another_agent_hears_who_is_in_its_way_and_gets_nothing(hub: Hub, database: str, clock: Clock) -> None:
    ada, bob = register_agent(hub, "ada"), register_agent(hub, "bob")
    reserve(hub, ada, "src/", reason="moving it")
    before = rows(database, "SELECT * FROM file_reservation")
    body = reserve(hub, bob, "README.md", "src/app.py", "src/*.py")
    assert body == {
        "success": False,
        "repository_path": HERE,
        "reserved": [],
        "reserved_total": 0,
        "conflicts": [
            {
                "path": "src/*.py",
                "held_path": "src/",
                "agent_id": ada,
                "agent_name": "ada",
                "exclusive": True,
                "reason": "moving it",
                "expires_at": clock.now + 3_600_000,
            }
        ],
        "conflicts_total": 1,
    }
    assert rows(database, "SELECT * FROM file_reservation") == before, "all of them or none"
    assert len(event_data(hub, "file.reserved")) == 1
    assert reserve(hub, bob, "README.md")["success"]
    assert reserve(hub, bob, "src/app.py", repository_path="/srv/other")["success"], "another repository"


@pytest.mark.parametrize(("ours", "theirs"), [(True, True), (True, False), (False, True), (False, False)])
def test_only_those_who_share_may_have_the_same_files(hub: Hub, ours: bool, theirs: bool) -> None:
    ada, bob = register_agent(hub, "ada"), register_agent(hub, "bob")
    assert reserve(hub, ada, "src/**", exclusive=theirs)["success"]
    assert reserve(hub, bob, "src/app.py", exclusive=ours)["success"] is (not ours and not theirs)


def test_ones_own_reservations_are_in_nobodys_way_and_asking_again_sets_a_new_end(hub: Hub, clock: Clock) -> None:
    ada, bob = register_agent(hub, "ada"), register_agent(hub, "bob")
    reserve(hub, ada, "src/", reason="moving it", seconds=600)
    assert reserve(hub, ada, "src/app.py", "src/*.py")["success"]
    clock.advance(300)
    again = reserve(hub, ada, "src/", exclusive=False, seconds=900)
    assert again["reserved"] == [{"path": "src/", "expires_at": clock.now + 900_000}]
    (one,) = (one for one in ask(hub, "file_reservations")["reservations"] if one["path"] == "src/")
    assert (one["exclusive"], one["reason"], one["expires_at"]) == (False, "moving it", clock.now + 900_000)
    release(hub, ada, paths=["src/app.py", "src/*.py"], repository_path=HERE)
    assert reserve(hub, bob, "src/", exclusive=False)["success"]
    assert not reserve(hub, ada, "src/")["success"], "what is shared cannot be taken alone"


def test_many_conflicts_are_counted_and_some_are_named(hub: Hub) -> None:
    ada, bob = register_agent(hub, "ada"), register_agent(hub, "bob")
    reserve(hub, ada, *(f"src/{n:02}.py" for n in range(60)))
    body = reserve(hub, bob, "src/", "src/1*.py")
    assert (len(body["conflicts"]), body["conflicts_total"]) == (20, 60)
    long = [f"{n:02}" + "\x01" * 200 + "/" + "é" * 100 for n in range(100)]
    for agent, repository in ((ada, "/one"), (bob, "/one")):
        body = reserve(hub, agent, *long, reason="\x01" * 200, repository_path=repository)
        assert len(json.dumps(body, ensure_ascii=False).encode()) <= 20_000
        assert body["reserved_total"] + body["conflicts_total"] == 100
    assert len(json.dumps(ask(hub, "file_reservations", limit=500), ensure_ascii=False).encode()) <= 20_000
    assert all(len(json.dumps(event)) < 6_000 for event in event_data(hub, "file.reserved"))


def test_an_agent_has_at_most_five_hundred(hub: Hub, clock: Clock, database: str) -> None:
    ada = register_agent(hub, "ada")
    for part in range(5):
        reserve(hub, ada, *(f"{part}/{n}" for n in range(100)), repository_path=f"/r{part % 2}", seconds=60)
    assert refusal(hub, "file_reserve", agent_id=ada, paths=["x"], repository_path=HERE) == "LIMIT_EXCEEDED"
    assert reserve(hub, ada, "0/1", "0/2", repository_path="/r0")["success"], "none of these is new"
    assert len(rows(database, "SELECT path FROM file_reservation")) == MOST_RESERVED
    clock.advance(61)
    assert reserve(hub, ada, *(f"x{n}" for n in range(100)))["success"], "those are over"


@pytest.mark.parametrize(
    "wrong",
    [
        {"paths": []},
        {"paths": ["x"] * 101},
        {"paths": ["../x"]},
        {"paths": ["x", ""]},
        {"paths": ["/etc/passwd"]},
        {"paths": "x"},
        {"seconds": 59},
        {"seconds": 86_401},
        {"repository_path": "app"},
        {"reason": "x" * 201},
    ],
    ids=str,
)
def test_bad_input_is_refused_and_changes_nothing(common_hub: Hub, wrong: dict[str, Any]) -> None:
    ada = register_agent(common_hub, "ada")
    reserve(common_hub, ada, "src/")
    before = all_rows(common_hub)
    good = {"agent_id": ada, "paths": ["a"], "repository_path": HERE}
    assert refusal(common_hub, "file_reserve", **good | wrong) == "INVALID_INPUT"
    if "paths" in wrong:
        assert refusal(common_hub, "file_release", **good | wrong) == "INVALID_INPUT"
    assert all_rows(common_hub) == before


def test_what_is_not_there_is_not_found(hub: Hub) -> None:
    ada = register_agent(hub, "ada")
    wheres: tuple[dict[str, Any], ...] = ({}, {"repository_path": HERE})
    whos: tuple[dict[str, Any], ...] = ({"agent_id": "ag_none"}, {"agent_id": ada, "task_id": "tk_none"})
    for given in whos:
        for where in wheres:
            expected = "INVALID_INPUT" if not where and "task_id" not in given else "NOT_FOUND"
            assert refusal(hub, "file_reserve", paths=["a"], **given, **where) == expected
    assert refusal(hub, "file_release", agent_id="ag_none") == "NOT_FOUND"
    assert refusal(hub, "file_reservations", agent_id="ag_none") == "NOT_FOUND"


def test_no_one_reserves_or_releases_for_an_agent_whose_token_it_has_not(hub: Hub) -> None:
    ada, bob = Agent(hub, "ada"), Agent(hub, "bob")
    assert ada.call("file_reserve", paths=["a"], repository_path=HERE)["success"]
    assert refusal(hub, "file_release", bob.actor, agent_id=ada.id) == "FORBIDDEN"
    assert not bob.call("file_reserve", paths=["a"], repository_path=HERE)["success"]
    assert bob.call("file_reservations")["total"] == 1, "everyone sees them"


# Which repository


def test_the_repository_is_the_one_given_or_the_tasks_or_the_clients(
    hub: Hub, operator: Callable[..., dict[str, Any]], app: Path, git: Git, tmp_path: Path
) -> None:
    git(app, "worktree", "add", "-q", str(tmp_path / "fix"), "-b", "fix")
    (tmp_path / "fix/src/new").mkdir(parents=True)
    ada = register_agent(hub, "ada")
    _, tasks = plan_workflow(operator, task("one"), repository_path=HERE)
    _, homeless = plan_workflow(operator, task("one"))
    inside, nowhere = Origin(f"{tmp_path}/fix/src"), Origin(str(tmp_path))
    cases: tuple[tuple[dict[str, Any], Origin, str], ...] = (
        ({"repository_path": f"{app}/src", "task_id": tasks["one"]}, nowhere, str(app)),
        ({"repository_path": "/srv/else/"}, inside, "/srv/else"),
        ({"task_id": tasks["one"]}, inside, HERE),
        ({"task_id": homeless["one"]}, inside, str(app)),
        ({}, inside, str(app)),
    )
    for given, origin, root in cases:
        body = ask(hub, "file_reserve", origin=origin, agent_id=ada, paths=["a"], **given)
        assert body["repository_path"] == root
    unclear: tuple[tuple[dict[str, Any], Origin], ...] = (
        ({}, nowhere),
        ({}, Origin()),
        ({"task_id": homeless["one"]}, nowhere),
    )
    for given, origin in unclear:
        with pytest.raises(Failure, match="which repository") as refused:
            ask(hub, "file_reserve", origin=origin, agent_id=ada, paths=["a"], **given)
        assert "repository_path" in refused.value.hint
    with pytest.raises(Failure, match="which repository"):
        ask(hub, "file_reservations", path="a")
    assert ask(hub, "file_reservations", origin=inside, path="a")["total"] == 1


def test_working_trees_of_a_repository_share_its_paths(hub: Hub, app: Path, git: Git, tmp_path: Path) -> None:
    git(app, "worktree", "add", "-q", str(tmp_path / "fix"), "-b", "fix")
    ada, bob = register_agent(hub, "ada"), register_agent(hub, "bob")
    here, there = Origin(str(app / "src")), Origin(str(tmp_path / "fix"))
    paths = [f"{tmp_path}/fix/src/a.py", f"{app}/src/b.py", "src/c.py", f"{tmp_path}/fix/docs/", str(app / "src")]
    body = ask(hub, "file_reserve", origin=there, agent_id=ada, paths=paths)
    reserved = [one["path"] for one in body["reserved"]]
    assert reserved == ["src/a.py", "src/b.py", "src/c.py", "docs/", "src/"], "a directory that is there is one"
    body = ask(hub, "file_reserve", origin=here, agent_id=bob, paths=["docs/x", "**/a.py"])
    assert {one["held_path"] for one in body["conflicts"]} == {"docs/", "src/a.py", "src/"}
    outside: dict[str, Any] = {"agent_id": bob, "paths": [f"{tmp_path}/x"], "repository_path": str(app)}
    with pytest.raises(Failure, match="not inside") as refused:
        ask(hub, "file_reserve", **outside)
    assert refused.value.code == "INVALID_INPUT"
    assert release(hub, ada, paths=[f"{tmp_path}/fix/src"], repository_path=str(app)) == 1, "without its slash, too"


# Releasing


def test_what_is_released_is_free_and_nothing_happens_twice(hub: Hub) -> None:
    ada, bob = register_agent(hub, "ada"), register_agent(hub, "bob")
    reserve(hub, ada, "a", "b", "c/")
    reserve(hub, ada, "a", repository_path="/srv/other")
    assert release(hub, ada, paths=["a", "./c", "none"], repository_path=HERE) == 2
    assert release(hub, ada, paths=["a", "c"], repository_path=HERE) == 0
    assert release(hub, bob) == 0
    assert reserve(hub, bob, "a", "c/d")["success"] and not reserve(hub, bob, "b")["success"]
    assert reserved_paths(hub, agent_id=ada) == [("b", "ada"), ("a", "ada")]
    assert release(hub, ada, paths=["a"]) == 1, "wherever it is, when nothing tells the repository"
    reserve(hub, ada, "x", repository_path="/srv/other")
    assert release(hub, ada, repository_path="/srv/other") == 1
    assert release(hub, ada) == 1
    assert [one["paths"] for one in event_data(hub, "file.released")] == [["a", "c/"], ["a"], ["x"], ["b"]]
    assert {one["subject"] for one in event_data(hub, "file.released")} == {ada}


def test_all_of_an_agents_in_the_clients_repository_are_released(hub: Hub, app: Path) -> None:
    ada, here = register_agent(hub, "ada"), Origin(str(app / "src"))
    reserve(hub, ada, "a")
    ask(hub, "file_reserve", origin=here, agent_id=ada, paths=["a", "b"])
    assert ask(hub, "file_release", origin=here, agent_id=ada) == {"success": True, "released": 2}
    assert reserved_paths(hub) == [("a", "ada")]


def test_a_reservation_ends_by_itself_and_is_forgotten(hub: Hub, clock: Clock, database: str) -> None:
    ada, bob = register_agent(hub, "ada"), register_agent(hub, "bob")
    reserve(hub, ada, "a", seconds=60, reason="old")
    clock.now += 59_999
    assert not reserve(hub, bob, "a")["success"] and reserved_paths(hub) == [("a", "ada")]
    clock.now += 1
    assert reserved_paths(hub) == [] and reserved_paths(hub, path="a", repository_path=HERE) == []
    assert reserve(hub, bob, "a")["success"] and release(hub, bob) == 1
    assert release(hub, ada) == 0 and len(event_data(hub, "file.released")) == 1, "it was over already"
    reserve(hub, ada, "a", seconds=60, reason="old")
    clock.advance(60)
    reserve(hub, ada, "a", seconds=600)
    assert ask(hub, "file_reservations")["reservations"][0]["reason"] is None, "that was another one"
    reserve(hub, bob, "b", seconds=60)
    hub.chores.run_due()
    clock.advance(601)
    hub.chores.run_due()
    assert rows(database, "SELECT path FROM file_reservation") == []


@pytest.mark.parametrize("how", ["unregister", "update", "lapse"])
def test_an_agent_that_is_gone_has_nothing_reserved_and_gets_nothing_back(
    make_hub: MakeHub, clock: Clock, how: str
) -> None:
    hub = make_hub(clock=clock, agent__lease=300)
    ada, bob = register_agent(hub, "ada"), register_agent(hub, "bob")
    hub.chores.run_due()
    reserve(hub, ada, "a", seconds=86_400)
    if how == "unregister":
        ask(hub, "agent_unregister", id=ada)
    elif how == "update":
        ask(hub, "agent_update", id=ada, status="offline")
    else:
        let_lapse(hub, clock, 2 * 360)
    assert ask(hub, "agent_get", id=ada)["status"] == "offline"
    ask(hub, "agent_heartbeat", agent_id=ada)
    assert reserved_paths(hub) == []
    assert reserve(hub, bob, "a")["success"]


def test_an_agent_that_had_left_and_reserves_is_back_and_is_missed_when_it_goes_quiet(
    make_hub: MakeHub, clock: Clock
) -> None:
    hub = make_hub(clock=clock, agent__lease=300)
    ada = register_agent(hub, "ada")
    hub.chores.run_due()
    ask(hub, "agent_unregister", id=ada)
    remote = replace(OPERATOR, proof="token")  # whose calls are no sign of the agent's own life
    hub.call("file_reserve", {"agent_id": ada, "paths": ["a"], "seconds": 86_400, "repository_path": HERE}, remote)
    assert ask(hub, "agent_get", id=ada)["status"] == "online" and reserved_paths(hub) == [("a", "ada")]
    let_lapse(hub, clock, 2 * 360)
    assert ask(hub, "agent_get", id=ada)["status"] == "offline" and reserved_paths(hub) == []


# Looking


def test_reservations_are_listed_by_repository_agent_and_path_page_by_page(hub: Hub) -> None:
    ada, bob = register_agent(hub, "ada"), register_agent(hub, "bob")
    reserve(hub, ada, *(f"src/{n}.py" for n in range(5)), "docs/")
    reserve(hub, bob, "src/*.ts", "src/app", exclusive=False)
    reserve(hub, bob, "src/0.py", repository_path="/srv/other")
    assert len(reserved_paths(hub)) == 9 and len(reserved_paths(hub, repository_path=HERE)) == 8
    assert reserved_paths(hub, agent_id=bob) == [("src/*.ts", "bob"), ("src/app", "bob"), ("src/0.py", "bob")]
    meets = {"repository_path": HERE, "path": "src/[0-2].py"}
    assert reserved_paths(hub, **meets) == [(f"src/{n}.py", "ada") for n in range(3)]
    assert reserved_paths(hub, **meets, agent_id=bob) == []
    assert reserved_paths(hub, repository_path=HERE, path="src/app/x.ts") == [("src/app", "bob")]
    choices: tuple[dict[str, Any], ...] = ({}, {"path": "src/", "repository_path": HERE})
    for chosen in choices:
        seen: list[tuple[str, str]] = []
        offset: int | None = 0
        while offset is not None:
            body = ask(hub, "file_reservations", limit=2, offset=offset, **chosen)
            seen += [(one["path"], one["agent_name"]) for one in body["reservations"]]
            offset = body["next_offset"]
        assert seen == reserved_paths(hub, **chosen) and len(seen) == body["total"]


# Many at once


def at_once(*steps: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    together = threading.Barrier(len(steps))

    def run(step: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        together.wait(20)
        return step()

    with ThreadPoolExecutor(len(steps)) as threads:
        return list(threads.map(run, steps, timeout=60))


def test_of_many_who_want_the_same_files_at_once_one_gets_them(make_hub: MakeHub, clock: Clock) -> None:
    hubs = [make_hub(clock=clock) for _ in range(3)]
    agents = [register_agent(hubs[0], f"agent {n}") for n in range(6)]
    wants = ["src/", "src/app.py", "src/*.py", "**/app.py", "src/**", "src/app.*"]
    for turn in range(size(6, 12)):
        where: dict[str, Any] = {"repository_path": f"/srv/app{turn}"}
        if turn % 2:  # otherwise the first to come makes the repository's row
            reserve(hubs[0], agents[0], "src/", **where)
            release(hubs[0], agents[0], **where)
        steps = [partial(reserve, hubs[n % 3], agent, f"own{n}", wants[n], **where) for n, agent in enumerate(agents)]
        answers = at_once(*steps)
        assert sorted(answer["success"] for answer in answers) == [False] * 5 + [True]
        (winner,) = (agent for agent, answer in zip(agents, answers, strict=True) if answer["success"])
        assert all(one["agent_id"] == winner for answer in answers for one in answer["conflicts"])
        assert ask(hubs[0], "file_reservations", **where)["total"] == 2


def test_reserving_releasing_leaving_and_forgetting_at_once_end_without_a_deadlock(
    make_hub: MakeHub, clock: Clock, database: str
) -> None:
    hubs = [make_hub(clock=clock) for _ in range(3)]
    agents = [register_agent(hubs[0], f"agent {n}") for n in range(3)]
    paths = [f"p{n}" for n in range(40)]

    def many(hub: Hub, agent: str, number: int) -> dict[str, Any]:
        for turn in range(size(4, 8)):
            reserve(hub, agent, *(paths if turn % 2 else paths[::-1]), exclusive=False, seconds=60 + turn)
            if (turn + number) % 4 == 0:
                release(hub, agent, paths=paths[: 20 + turn], repository_path=HERE)
            if (turn + number) % 4 == 1:
                ask(hub, "agent_unregister", id=agent)
            clock.now += 20_000
            hub.chores.run_due()
        return {}

    both = [(hubs[n % 3], agents[n % 3], n) for n in range(6)]
    at_once(*(partial(many, *one) for one in both))
    gone = rows(
        database, "SELECT agent.id FROM agent JOIN file_reservation ON agent_id = agent.id AND status = 'offline'"
    )
    assert gone == []


def test_five_thousand_reservations_and_a_hundred_paths_take_less_than_a_second(hub: Hub) -> None:
    for number in range(10):
        agent = register_agent(hub, f"agent {number}")
        reserve(hub, agent, f"src/{number}/0.py")
        _reserve_directly(hub, agent, [f"src/{number}/{n}.py" for n in range(1, 500)])
    ada = register_agent(hub, "ada")
    begun = time.process_time()
    assert reserve(hub, ada, *(f"src/**/test_{n}_*.py" for n in range(100)))["success"]
    assert reserve(hub, ada, "src/")["conflicts_total"] == 5000
    assert time.process_time() - begun < 2


def _reserve_directly(hub: Hub, agent: str, paths: list[str]) -> None:
    """As the tool writes them, beside one that it has written: five thousand of its calls' paths take seconds."""
    hub.store.texts["test"] = hub.store.dialect.query("SELECT * FROM file_reservation WHERE agent_id = :agent_id")
    with hub.own_work() as tx:
        (one,) = tx.all("test", agent_id=agent)
        told = {"now": one.pop("reserved_at"), "until": one.pop("expires_at")}
        tx.many("reservation_put", [one | told | {"path": path} for path in paths])
