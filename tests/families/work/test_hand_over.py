"""Handing a task over, on both databases: who may, who gets it, what both are told, and what races it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.errors import Forbidden
from crewhall.identity import OPERATOR
from tests.conftest import Agent, Clock
from tests.families.work.claims import (
    LEASE,
    PERSON,
    PLAN,
    agent_of,
    ask,
    assert_claims_agree,
    claim,
    events_about,
    job,
    pass_time,
    recoveries,
    refusal,
    register_agent,
    register_with_token,
    rows,
    task_of,
)
from tests.families.work.repositories import WorkspaceSite
from tests.families.work.test_claim_races import at_once
from tests.families.work.test_message_notices import notices
from tests.sizes import size


@pytest.fixture
def ada(hub: Hub) -> Agent:
    return register_with_token(hub, "ada")


@pytest.fixture
def bob(hub: Hub) -> Agent:
    return register_with_token(hub, "bob")


@pytest.fixture(autouse=True)
def agreement(hub: Hub, database: str) -> Iterator[None]:
    yield
    assert_claims_agree(database)


def give(agent: Agent, task: str, to: Agent, reason: str = "css", **more: Any) -> dict[str, Any]:
    return agent.call("task_hand_over", task_id=task, to=to.id, reason=reason, **more)


def began(hub: Hub, agent: Agent) -> str:
    """A task that the agent is at, with a plan."""
    task = job(hub).task
    agent.call("task_claim", task_id=task)
    agent.call("task_set_plan", id=task, plan=PLAN)
    agent.call("task_update_status", id=task, status="in_progress")
    return task


def test_a_task_goes_over_with_all_that_it_is(hub: Hub, database: str, ada: Agent, bob: Agent) -> None:
    task = began(hub, ada)
    kept = ("status", "plan", "started_at", "workspace_id")
    before = task_of(hub, task, *kept)
    lease = agent_of(hub, bob.id, "lease_expires_at")
    assert give(ada, task, bob) == {
        "success": True,
        "handed_from": ada.id,
        "handed_to": bob.id,
        "claim_epoch": 2,
    }
    assert task_of(hub, task, *kept) == before
    assert task_of(hub, task, "claimed_by", "claim_epoch") == (bob.id, 2)
    claims = rows(database, "SELECT agent_id, ended_how, status_then FROM claim ORDER BY epoch")
    assert [tuple(one.values()) for one in claims] == [(ada.id, "handed_over", "in_progress"), (bob.id, None, None)]
    assert agent_of(hub, ada.id, "status", "current_task_id") == ("online", None)
    assert agent_of(hub, bob.id, "status", "current_task_id", "lease_expires_at") == ("busy", task, lease)
    assert events_about(hub, task, "task.handed_over") == [("task.handed_over", ada.id, None, None)]
    events = ask(hub, "event_list", subject=task, limit=500)["events"]
    (data,) = (event["data"] for event in events if event["what"] == "task.handed_over")
    assert {"from": ada.id, "to": bob.id, "epoch": 2}.items() <= data.items()


def test_a_checkpoint_says_from_whom_to_whom_and_why(hub: Hub, ada: Agent, bob: Agent) -> None:
    task = began(hub, ada)
    give(ada, task, bob, "bob knows css")
    (note,) = recoveries(hub, task)
    assert note["summary"] == f"Handed over from ada ({ada.id}) to bob ({bob.id}) by ada ({ada.id}): bob knows css"
    assert (note["agent_id"], note["detail"]) == (ada.id, {"from": ada.id, "to": bob.id, "epoch": 2})


def test_an_old_holders_late_writes_are_stale_and_the_new_ones_are_taken(hub: Hub, ada: Agent, bob: Agent) -> None:
    task = began(hub, ada)
    give(ada, task, bob)
    late: dict[str, Any] = {"id": task, "status": "completed", "outcome": "done"}
    assert refusal(hub, "task_update_status", ada.actor, **late) == "STALE_CLAIM"
    assert refusal(hub, "task_update_status", **late, claim_epoch=1) == "STALE_CLAIM"
    assert refusal(hub, "task_hand_over", ada.actor, task_id=task, to=ada.id, reason="back") == "STALE_CLAIM"
    assert refusal(hub, "task_hand_over", task_id=task, to=ada.id, reason="back", claim_epoch=1) == "STALE_CLAIM"
    bob.call("task_update_status", **late, claim_epoch=2)


def test_who_is_at_another_task_stays_there(hub: Hub, ada: Agent, bob: Agent) -> None:
    first, task = began(hub, bob), began(hub, ada)
    other = began(hub, ada)
    give(ada, task, bob)
    assert agent_of(hub, bob.id, "status", "current_task_id") == ("busy", first)
    assert agent_of(hub, ada.id, "status", "current_task_id") == ("busy", other)


def test_both_are_told_unless_they_did_it(hub: Hub, ada: Agent, bob: Agent) -> None:
    lead = Agent(hub, "lead", "coordinator")
    task = began(hub, ada)
    give(lead, task, bob, 'ada" is stuck')
    (told,) = notices(hub, bob)
    assert told == (
        f'Task {task} "one" is yours now: lead ({lead.id}) handed it over, which ada ({ada.id}) held: '
        f'"ada\' is stuck" Your claim_epoch is 2. Call task_load_context(task_id="{task}") before you go on.'
    )
    (told,) = notices(hub, ada)
    assert told == (
        f'Task {task} "one" is no longer yours: lead ({lead.id}) handed it to bob ({bob.id}): "ada\' is stuck" '
        "Stop working on it: your writes to it are STALE_CLAIM."
    )
    assert notices(hub, lead) == []
    give(bob, task, ada)
    (told,) = notices(hub, ada)
    assert f"bob ({bob.id}) handed it over, which it held" in told and "claim_epoch is 3" in told
    assert notices(hub, bob) == []


def test_a_notice_has_room_for_the_longest_names(hub: Hub) -> None:
    name, why = "n" * 200, "r" * 2_000
    lead = Agent(hub, name, "coordinator")
    ada, bob = (register_with_token(hub, f"{name[2:]}{letter}") for letter in "ab")
    work = job(hub, name)
    task = work.task
    ada.call("task_claim", task_id=task)
    ask(hub, "workflow_update_status", PERSON, id=work.id, status="paused")
    give(lead, task, bob, why)
    (handed,) = notices(hub, bob)
    (taken,) = [notice for notice in notices(hub, ada) if "no longer yours" in notice]
    assert handed.endswith(f'Call task_load_context(task_id="{task}") before you go on.')
    assert taken.endswith("your writes to it are STALE_CLAIM.")


def test_who_lost_it_again_is_not_told_that_it_is_theirs(hub: Hub, clock: Clock, ada: Agent, bob: Agent) -> None:
    eve = register_with_token(hub, "eve")
    task = began(hub, ada)
    give(ada, task, bob)
    ask(hub, "task_hand_over", task_id=task, to=eve.id, reason="no css either")
    (told,) = notices(hub, bob)
    assert "no longer yours: the operator handed it to eve" in told
    pass_time(clock, LEASE * 2 + 60, hub)
    assert task_of(hub, task, "claimed_by") is None
    assert notices(hub, eve) == [], "its lease ended before it was told"


@pytest.mark.parametrize("who", ["person", "local", "coordinator", "bound coordinator"])
def test_who_directs_others_may_hand_over_what_another_holds(hub: Hub, ada: Agent, bob: Agent, who: str) -> None:
    task = began(hub, ada)
    actor, origin = OPERATOR, Origin()
    if who == "person":
        actor = PERSON
    elif who == "coordinator":
        actor = Agent(hub, "lead", "coordinator").actor
    elif who == "bound coordinator":
        origin = Origin(bridge="br_1")
        register_agent(hub, "lead", origin, role="coordinator")
    ask(hub, "task_hand_over", actor, origin, task_id=task, to=bob.id, reason="r")
    assert task_of(hub, task, "claimed_by") == bob.id
    assert len(notices(hub, ada)) == 1


def test_a_bound_holder_hands_over_and_another_bound_worker_does_not(hub: Hub, bob: Agent) -> None:
    origin, others = Origin(bridge="br_1"), Origin(bridge="br_2")
    ada = register_agent(hub, "ada", origin)
    register_agent(hub, "eve", others)
    task = job(hub).task
    claim(hub, task, ada)
    given = {"task_id": task, "to": bob.id, "reason": "r"}
    with pytest.raises(Forbidden, match=f"{ada} holds task {task}, and you are ag_"):
        hub.call("task_hand_over", given, OPERATOR, origin=others)
    ask(hub, "task_hand_over", OPERATOR, origin, **given)
    assert events_about(hub, task, "task.handed_over") == [("task.handed_over", ada, None, None)]


def test_a_worker_hands_over_nothing_that_it_does_not_hold(hub: Hub, ada: Agent, bob: Agent) -> None:
    task = began(hub, ada)
    assert refusal(hub, "task_hand_over", bob.actor, task_id=task, to=bob.id, reason="mine") == "FORBIDDEN"
    assert task_of(hub, task, "claimed_by", "claim_epoch") == (ada.id, 1)


def test_what_cannot_go_over_is_refused_and_changes_nothing(hub: Hub, database: str, ada: Agent, bob: Agent) -> None:
    free, task = job(hub).task, began(hub, ada)
    needing = job(hub, {"name": "css", "required_capabilities": ["css"]}).task
    ada.call("agent_register", name="ada", runtime="codex", capabilities=["css"])
    ada.call("task_claim", task_id=needing)
    offline = Agent(hub, "eve")
    gone = register_with_token(hub, "gone")
    gone.call("agent_unregister")
    before = rows(database, "SELECT * FROM task ORDER BY id")
    for about, to, code in [
        (free, bob.id, "INVALID_STATE"),
        ("tk_none", bob.id, "NOT_FOUND"),
        (task, "ag_none", "NOT_FOUND"),
        (task, ada.id, "INVALID_STATE"),
        (task, offline.id, "INVALID_STATE"),
        (task, gone.id, "INVALID_STATE"),
        (needing, bob.id, "INVALID_STATE"),
    ]:
        assert refusal(hub, "task_hand_over", PERSON, task_id=about, to=to, reason="r") == code, (about, to)
    assert refusal(hub, "task_hand_over", PERSON, task_id=task, to=bob.id, reason="") == "INVALID_INPUT"
    assert rows(database, "SELECT * FROM task ORDER BY id") == before
    assert rows(database, "SELECT * FROM notice") == []


def test_a_task_of_a_paused_workflow_goes_over(hub: Hub, ada: Agent, bob: Agent) -> None:
    work = job(hub)
    ada.call("task_claim", task_id=work.task)
    ask(hub, "workflow_update_status", PERSON, id=work.id, status="paused", reason="wait")
    give(ada, work.task, bob)
    assert task_of(hub, work.task, "claimed_by") == bob.id
    (told,) = notices(hub, bob)
    assert "claim_epoch is 2. Its workflow is paused: begin and finish nothing in it. Call task_load_context" in told


@pytest.mark.slow
def test_the_worktree_stays_the_tasks(site: WorkspaceSite, hub: Hub) -> None:
    ada, bob = register_with_token(hub, "ada"), register_with_token(hub, "bob")
    _, tasks = site.workflow(auto_create_workspaces=True)
    place = ada.call("task_claim", task_id=tasks["one"])["workspace"]
    assert place is not None
    give(ada, tasks["one"], bob)
    assert bob.call("task_claim", task_id=tasks["one"])["workspace"] == place


# Races


def test_of_two_hand_overs_at_once_one_wins(make_hub: Callable[..., Hub], hub: Hub, clock: Clock) -> None:
    hubs = [hub, make_hub(clock=clock)]
    ada, bob, eve = (register_with_token(hub, name) for name in ("ada", "bob", "eve"))
    for _ in range(size(6, 40)):
        task = began(hub, ada)
        given: dict[str, Any] = {"task_id": task, "reason": "r", "claim_epoch": 1}
        answers = at_once(
            *(
                partial(ask, one, "task_hand_over", actor, **given, to=to.id)
                for one, to, actor in zip(hubs, (bob, eve), (ada.actor, PERSON), strict=True)
            )
        )
        (winner,) = (answer for answer in answers if answer != "STALE_CLAIM")
        assert task_of(hub, task, "claimed_by", "claim_epoch") == (winner["handed_to"], 2)
        assert len(events_about(hub, task, "task.handed_over")) == 1


def test_agents_that_hand_over_to_each_other_wait_for_nobody_for_ever(hub: Hub, ada: Agent, bob: Agent) -> None:
    """Both agents are locked in each call, in one order."""
    for _ in range(size(6, 40)):
        mine, theirs = began(hub, ada), began(hub, bob)
        answers = at_once(partial(give, ada, mine, bob), partial(give, bob, theirs, ada))
        assert [answer["claim_epoch"] for answer in answers] == [2, 2]


def test_of_a_hand_over_and_the_end_of_the_task_one_wins(hub: Hub, ada: Agent, bob: Agent) -> None:
    ends: set[str] = set()
    for _ in range(size(8, 40)):
        task = began(hub, ada)
        done = {"id": task, "status": "completed", "outcome": "done"}
        handed, finished = at_once(
            partial(give, ada, task, bob), partial(ada.call, "task_update_status", **done, claim_epoch=1)
        )
        held = task_of(hub, task, "status", "claimed_by", "claim_epoch")
        if finished == "STALE_CLAIM":
            assert held == ("in_progress", bob.id, 2) and handed["claim_epoch"] == 2
        else:
            assert (handed, held) == ("INVALID_STATE", ("completed", None, 1))
        ends.add(held[0])
    assert ends <= {"in_progress", "completed"}


def test_a_hand_over_that_races_a_release_a_claim_and_the_end_of_an_agent(hub: Hub, ada: Agent, bob: Agent) -> None:
    for number in range(size(6, 40)):
        task, eve = began(hub, ada), register_with_token(hub, f"eve {number}")
        give(ada, task, eve)
        steps: list[Callable[[], Any]] = [
            partial(ask, hub, "task_hand_over", PERSON, task_id=task, to=bob.id, reason="r"),
            partial(eve.call, "agent_unregister"),
            partial(ada.call, "task_claim", task_id=task),
        ]
        handed, _, _ = at_once(*steps)
        if handed != "INVALID_STATE":
            assert task_of(hub, task, "claimed_by") == bob.id
