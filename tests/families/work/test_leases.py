"""Leases, with the clock in hand: who counts as here, who is missed and when, and what becomes of what they held."""

from collections.abc import Callable
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.identity import OPERATOR, Actor, Credentials, make_token
from tests.conftest import Agent, Clock
from tests.families.work.claims import (
    PLAN,
    Job,
    agent_of,
    ask,
    assert_claims_agree,
    claim,
    events_about,
    job,
    pass_time,
    recoveries,
    refusal,
    refuse_changes,
    register_agent,
    register_with_token,
    task_of,
)
from tests.families.work.test_claims import WRITES, write
from tests.families.work.workflows import sql
from tests.sizes import size

LEASE, BEATS = 120, 90  # seconds; the second is three missed beats
TICK = 10
MakeHub = Callable[..., Hub]


@pytest.fixture
def new_hub(make_hub: MakeHub, clock: Clock) -> Hub:
    """A hub that has just started."""
    return make_hub(clock=clock, agent__lease=LEASE)


@pytest.fixture
def hub(new_hub: Hub, clock: Clock) -> Hub:
    """A hub that has been awake for longer than a lease: whoever is not heard of from now on is missed in time."""
    pass_time(clock, LEASE + TICK, new_hub, ticks=3)
    return new_hub


def start_tasks(hub: Hub, agent: Agent, *tasks: str) -> Job:
    """A workflow whose tasks the agent is at."""
    work = job(hub, *tasks)
    for task in work.tasks.values():
        agent.call("task_update_status", id=task, status="in_progress")
    return work


def go_on(clock: Clock, seconds: float, hub: Hub) -> None:
    """Time goes by: the first tick notes who was heard of until now, and of the others each third one is enough."""
    pass_time(clock, TICK, hub)
    pass_time(clock, seconds - TICK, hub, ticks=3)


def has_gone(hub: Hub, agent: str) -> bool:
    found: str = agent_of(hub, agent, "status")
    return found == "offline"


# Who is missed, and when


def test_an_older_look_shortens_no_lease(hub: Hub, clock: Clock) -> None:
    agent = register_agent(hub)
    work = job(hub)
    clock.advance(1)
    claim(hub, work.tasks["one"], agent)
    lease = "SELECT lease_until FROM agent"
    (before,) = sql(hub, lease)
    clock.advance(-1)  # a tick that began before the claim
    hub.chores.run_one("presence")
    assert sql(hub, lease) == [before]


def test_three_missed_beats_or_a_whole_lease_and_not_a_tick_earlier(hub: Hub, clock: Clock) -> None:
    beating, silent = register_agent(hub, "beating"), register_agent(hub, "silent")
    ask(hub, "agent_heartbeat", agent_id=beating)
    hub.chores.run_due()  # what the beat was as a call is noted now
    pass_time(clock, BEATS, hub)
    assert not has_gone(hub, beating), "three beats are just over"
    pass_time(clock, TICK, hub)
    assert has_gone(hub, beating) and not has_gone(hub, silent)
    pass_time(clock, LEASE - BEATS - TICK, hub)
    assert not has_gone(hub, silent)
    pass_time(clock, TICK, hub)
    assert has_gone(hub, silent)


def test_how_many_beats_may_be_missed_is_a_setting(make_hub: MakeHub, clock: Clock) -> None:
    hub = make_hub(clock=clock, agent__heartbeat=6, agent__missed_beats=5)
    assert hub.chores.tick_seconds == 2, "often enough to miss an agent in time"
    pass_time(clock, 40, hub)
    bob = register_agent(hub)
    ask(hub, "agent_heartbeat", agent_id=bob)
    hub.chores.run_due()
    pass_time(clock, 30, hub)
    assert not has_gone(hub, bob)
    pass_time(clock, 2, hub)
    assert has_gone(hub, bob)


def test_a_hub_ticks_several_times_within_the_shortest_lease(make_hub: MakeHub, clock: Clock) -> None:
    assert make_hub(clock=clock).chores.tick_seconds == 10
    assert make_hub(clock=clock, agent__heartbeat=3).chores.tick_seconds == 1
    assert make_hub(clock=clock, agent__lease=6).chores.tick_seconds == 2


def test_who_is_missed_is_offline_and_what_it_held_is_free_with_a_recovery_checkpoint(
    hub: Hub, clock: Clock, database: str
) -> None:
    ada = register_with_token(hub, "ada")
    works = [start_tasks(hub, ada, "one", "two"), start_tasks(hub, ada)]
    tasks = [task for work in works for task in work.tasks.values()]
    ada.call("task_set_plan", id=tasks[0], plan=PLAN)
    ada.call("checkpoint_add", task_id=tasks[0], type="decision", summary="in Rust")
    go_on(clock, LEASE + 2 * TICK, hub)
    held = ("status", "claimed_by", "claim_epoch", "lease_expires_at")
    assert [task_of(hub, task, *held) for task in tasks] == [("pending", None, 1, None)] * 3
    for task in tasks:
        (kept,) = recoveries(hub, task)
        assert "ada" in kept["summary"] and kept["agent_id"] is None
        assert kept["detail"] == {"agent_id": ada.id, "epoch": 1, "status": "in_progress"}
        assert events_about(hub, task, "task.expired") == [("task.expired", "hall", "in_progress", "pending")]
    noted = ask(hub, "checkpoint_list", task_id=tasks[0])["checkpoints"]
    assert [one["type"] for one in noted] == ["decision", "recovery"], "no recorded work is lost"
    assert task_of(hub, tasks[0], "plan") == PLAN
    assert agent_of(hub, ada.id, "status", "current_task_id") == ("offline", None)
    assert events_about(hub, ada.id, "agent.expired") == [("agent.expired", "hall", "busy", "offline")]
    pass_time(clock, 3 * TICK, hub)
    assert len(events_about(hub, ada.id, "agent.expired")) == 1 and len(recoveries(hub, tasks[0])) == 1
    assert_claims_agree(database)


def test_more_agents_than_one_tick_takes_are_missed_in_the_next_ones(hub: Hub, clock: Clock) -> None:
    for number in range(51):
        register_agent(hub, f"agent {number}")
    pass_time(clock, LEASE + TICK, hub)
    assert ask(hub, "agent_list", status=["online"])["total"] == 1
    pass_time(clock, TICK, hub)
    assert ask(hub, "agent_list", status=["online"])["total"] == 0


# What counts as a sign of life


def test_every_call_of_an_agent_is_a_sign_of_life_and_looking_at_one_is_none(hub: Hub, clock: Clock) -> None:
    ada = register_with_token(hub, "ada")
    named, looked_at, by_cookie, by_token = (
        register_agent(hub, name) for name in ("named", "looked", "cookie", "token")
    )
    cookie, token = operator_by(hub, "browser"), operator_by(hub, "operator")
    for _ in range(4):
        go_on(clock, LEASE - 2 * TICK, hub)
        ada.call("agent_list")
        ask(hub, "task_get_available", agent_id=named)
        ask(hub, "agent_get", id=looked_at)
        ask(hub, "task_get_available", cookie, agent_id=by_cookie)
        ask(hub, "task_get_available", token, agent_id=by_token)
    gone = [has_gone(hub, agent) for agent in (ada.id, named, looked_at, by_cookie, by_token)]
    assert gone == [False, False, True, True, True]


def operator_by(hub: Hub, kind: str) -> Actor:
    """The operator, known by a token or by the dashboard's cookie."""
    with hub.own_work() as tx:
        made = make_token(tx, kind, kind, hub.clock())
    return hub.identify(Credentials(token=made) if kind == "operator" else Credentials(cookie=made))


def test_a_call_that_is_refused_is_a_sign_of_life_too(hub: Hub, clock: Clock) -> None:
    ada = register_with_token(hub, "ada")
    for _ in range(2):
        go_on(clock, LEASE - 2 * TICK, hub)
        assert refusal(hub, "task_get", ada.actor, id="tk_nothing") == "NOT_FOUND"
    assert not has_gone(hub, ada.id)


def test_registering_anew_forgets_that_it_ever_beat(hub: Hub, clock: Clock) -> None:
    ada = register_with_token(hub, "ada")
    ada.call("agent_heartbeat")
    ada.call("agent_register", name="ada", runtime="codex")
    assert agent_of(hub, ada.id, "last_heartbeat_at", "lease_expires_at") == (None, clock.now + LEASE * 1000)
    pass_time(clock, BEATS + TICK, hub)
    assert not has_gone(hub, ada.id)


def test_an_agent_that_was_missed_is_back_with_its_next_call(hub: Hub, clock: Clock) -> None:
    ada = register_with_token(hub, "ada")
    go_on(clock, LEASE + 2 * TICK, hub)
    assert has_gone(hub, ada.id)
    ada.call("agent_list")
    pass_time(clock, TICK, hub)
    assert agent_of(hub, ada.id, "status", "lease_expires_at") == ("online", clock.now + LEASE * 1000)
    assert events_about(hub, ada.id)[-1] == ("agent.updated", "hall", "offline", "online")


def test_who_left_is_brought_back_by_a_heartbeat_and_not_by_a_look_around(hub: Hub, clock: Clock) -> None:
    ada = register_with_token(hub, "ada")
    ada.call("agent_unregister")
    ada.call("agent_list")
    pass_time(clock, TICK, hub)
    assert has_gone(hub, ada.id)
    ada.call("agent_heartbeat")
    pass_time(clock, TICK, hub)
    assert agent_of(hub, ada.id, "status") == "online"


def test_signs_of_life_that_could_not_be_noted_are_noted_at_the_next_tick(
    hub: Hub, clock: Clock, database: str
) -> None:
    ada = register_with_token(hub, "ada")
    hub.chores.run_due()
    clock.advance(TICK)
    ada.call("agent_list")
    with refuse_changes(database, "agent", "UPDATE"):
        hub.chores.run_due()
    assert agent_of(hub, ada.id, "lease_expires_at") == clock.now + (LEASE - TICK) * 1000
    hub.chores.run_due()
    assert agent_of(hub, ada.id, "lease_expires_at") == clock.now + LEASE * 1000


# Bridges


def test_an_agent_busy_for_an_hour_behind_a_connected_bridge_keeps_its_task(
    hub: Hub, clock: Clock, database: str
) -> None:
    """An hour in `make soak`: otherwise a quarter of one, which is many leases, too."""
    through = Origin(bridge="br_1")
    with hub.presence.connection("br_1"), hub.presence.connection("br_2"), hub.presence.connection("br_1"):
        ada, beating = register_with_token(hub, "ada"), register_with_token(hub, "beating")
        named, told = register_agent(hub, "named"), register_agent(hub, "told")
        joined, alone = register_agent(hub, "joined", Origin(bridge="br_2")), Agent(hub, "alone")
        works = {agent: job(hub) for agent in (ada.id, beating.id, told, joined, named, alone.id)}
        for agent in (ada, beating):
            hub.call("task_claim", {"task_id": works[agent.id].task}, agent.actor, origin=through)
        hub.call("agent_heartbeat", {}, beating.actor, origin=through)
        ask(hub, "agent_heartbeat", origin=through, agent_id=told)
        claim(hub, works[told].task, told)
        claim(hub, works[named].task, named)
        ask(hub, "message_count_unread", origin=through, agent_id=named)
        claim(hub, works[joined].task, joined)
        alone.call("task_claim", task_id=works[alone.id].task)
        pass_time(clock, size(900, 3600), hub, ticks=3)
        present = [ada.id, beating.id, told, joined]
        assert [task_of(hub, works[agent].task, "claimed_by", "claim_epoch") for agent in present] == [
            (agent, 1) for agent in present
        ]
        assert [agent_of(hub, agent, "status") for agent in present] == ["busy"] * 4
        assert not any(events_about(hub, works[agent].task, "task.expired", "task.renewed") for agent in present)
        assert task_of(hub, works[alone.id].task, "claimed_by") is None, "no bridge beats for this one"
        assert task_of(hub, works[named].task, "claimed_by") is None, "who only names an agent may be another"
        assert_claims_agree(database)
    pass_time(clock, LEASE, hub)
    assert [has_gone(hub, agent) for agent in present] == [False, True, True, False], "two of them beat"
    pass_time(clock, TICK, hub)
    assert [has_gone(hub, agent) for agent in present] == [True] * 4
    assert [task_of(hub, works[agent].task, "claimed_by") for agent in present] == [None] * 4
    assert_claims_agree(database)


def test_a_bridge_that_connects_twice_is_there_until_the_last_of_its_connections_ends(hub: Hub, clock: Clock) -> None:
    bob = register_agent(hub, "bob", Origin(bridge="br_1"))
    with hub.presence.connection("br_1"):
        with hub.presence.connection("br_1"):
            pass
        go_on(clock, 2 * LEASE, hub)
        assert not has_gone(hub, bob)
    pass_time(clock, LEASE + TICK, hub)
    assert has_gone(hub, bob)


def test_a_bridge_that_goes_to_another_hub_keeps_beating_without_a_call(
    hub: Hub, make_hub: MakeHub, clock: Clock
) -> None:
    with hub.presence.connection("br_1"):
        ada = register_with_token(hub, "ada")
        work = job(hub)
        hub.call("task_claim", {"task_id": work.task}, ada.actor, origin=Origin(bridge="br_1"))
        pass_time(clock, TICK, hub)
    other = make_hub(clock=clock, agent__lease=LEASE)
    with other.presence.connection("br_1"):
        go_on(clock, 5 * LEASE, other)
        assert task_of(other, work.task, "claimed_by") == ada.id
    pass_time(clock, LEASE + TICK, other)
    assert task_of(other, work.task, "claimed_by") is None


def test_who_left_is_not_brought_back_by_the_bridge_it_came_by(hub: Hub, clock: Clock) -> None:
    with hub.presence.connection("br_1"):
        here = Origin(bridge="br_1")
        left, offline, stays = (register_agent(hub, name, here) for name in ("left", "offline", "stays"))
        ask(hub, "agent_unregister", origin=here, id=left)
        ask(hub, "agent_update", origin=here, id=offline, status="offline")
        go_on(clock, 2 * LEASE, hub)
        assert [has_gone(hub, agent) for agent in (left, offline, stays)] == [True, True, False]
        assert not events_about(hub, left, "agent.updated", "agent.expired")


def test_an_agent_is_held_by_each_bridge_it_came_by_until_the_last_has_ended(hub: Hub, clock: Clock) -> None:
    ada = register_with_token(hub, "ada")
    with hub.presence.connection("br_1"):
        with hub.presence.connection("br_2"):
            for bridge in ("br_1", "br_2"):
                hub.call("agent_list", {}, ada.actor, origin=Origin(bridge=bridge))
                ada.call("agent_list")  # and by no bridge: that takes nothing away
                pass_time(clock, TICK, hub)
        go_on(clock, 2 * LEASE, hub)
        assert not has_gone(hub, ada.id)
    pass_time(clock, LEASE + TICK, hub)
    assert has_gone(hub, ada.id)


def test_an_agent_that_has_only_a_token_is_here_from_its_first_call_on(hub: Hub, clock: Clock) -> None:
    ada, work = Agent(hub), job(hub)
    assert has_gone(hub, ada.id)
    with hub.presence.connection("br_1"):
        hub.call("task_get_available", {}, ada.actor, origin=Origin(bridge="br_1"))
        pass_time(clock, TICK, hub)
        assert agent_of(hub, ada.id, "status") == "online"
        claim(hub, work.task, ada.id)
        go_on(clock, 3 * LEASE, hub)
        assert task_of(hub, work.task, "claimed_by") == ada.id


# A claim that lapsed


def test_the_late_writes_of_one_that_was_missed_are_stale_once_its_task_is_anothers(
    hub: Hub, clock: Clock, database: str
) -> None:
    ada, eve = register_with_token(hub, "ada"), register_with_token(hub, "eve")
    work = start_tasks(hub, ada, *WRITES)
    go_on(clock, LEASE + 2 * TICK, hub)
    for is_done in (False, True):
        for tool, task in work.tasks.items():
            if is_done:
                eve.call("task_update_status", id=task, status="completed", outcome="by eve")
            else:
                assert eve.call("task_claim", task_id=task)["claim_epoch"] == 2
                eve.call("task_update_status", id=task, status="in_progress")
            before = task_of(hub, task, "status", "outcome", "plan", "checkpoint_count", "claimed_by")
            assert refusal(hub, tool, ada.actor, **write(tool, task)) == "STALE_CLAIM"
            assert refusal(hub, tool, claim_epoch=1, **write(tool, task, ada.id)) == "STALE_CLAIM"
            assert task_of(hub, task, "status", "outcome", "plan", "checkpoint_count", "claimed_by") == before
            assert len(recoveries(hub, task)) == 1
        assert_claims_agree(database)


RENEWED = {
    "task_set_plan": ("in_progress", True),
    "task_update_status": ("completed", False),
    "task_replan": ("pending", True),
    "checkpoint_add": ("in_progress", True),
}


@pytest.mark.parametrize("has_token", [True, False], ids=["by its token", "by its epoch"])
def test_a_lapsed_claim_that_nobody_took_goes_on_where_it_was_with_the_next_write(
    hub: Hub, clock: Clock, database: str, has_token: bool
) -> None:
    ada = register_with_token(hub, "ada")
    work = start_tasks(hub, ada, *RENEWED)
    go_on(clock, LEASE + 2 * TICK, hub)
    for tool, (status, is_held) in RENEWED.items():
        task = work.tasks[tool]
        assert task_of(hub, task, "status", "claimed_by") == ("pending", None)
        if has_token:
            ada.call(tool, **write(tool, task))
        else:
            ask(hub, tool, claim_epoch=1, **write(tool, task))
        holder = ada.id if is_held else None
        assert task_of(hub, task, "status", "claimed_by", "claim_epoch") == (status, holder, 1)
        renewed = [event[2:] for event in events_about(hub, task, "task.renewed")]
        assert renewed == [("pending", "in_progress")]
        expected = ("busy", clock.now + LEASE * 1000)
        assert agent_of(hub, ada.id, "status", "lease_expires_at") == expected
        assert_claims_agree(database)


def test_a_renewed_claim_has_the_status_that_the_task_had(hub: Hub, clock: Clock) -> None:
    steps = {"planning": ["planning"], "paused": ["planning", "paused"], "failed": ["in_progress", "failed"]}
    ada, work = register_with_token(hub, "ada"), job(hub, *steps)
    for status, task in work.tasks.items():
        for step in steps[status]:
            ada.call("task_update_status", id=task, status=step, error="no")
        ada.call("task_claim", task_id=task)
    go_on(clock, LEASE + 2 * TICK, hub)
    assert [task_of(hub, task, "status") for task in work.tasks.values()] == ["pending", "pending", "failed"]
    for status, task in work.tasks.items():
        ada.call("checkpoint_add", task_id=task, type="progress", summary="back")
        assert task_of(hub, task, "status", "claimed_by") == (status, ada.id)


def test_a_lapsed_claim_does_not_go_on_when_someone_has_touched_the_task(hub: Hub, clock: Clock, database: str) -> None:
    ada, bob = register_with_token(hub, "ada"), register_agent(hub)
    note: dict[str, Any] = {"type": "progress", "summary": "back"}
    moved, over, taken = (start_tasks(hub, ada) for _ in range(3))
    go_on(clock, LEASE + 2 * TICK, hub)
    ask(hub, "task_update_status", id=moved.task, status="planning")
    ask(hub, "workflow_update_status", id=over.id, status="abandoned")
    claim(hub, taken.task, bob)
    ask(hub, "task_release", task_id=taken.task, agent_id=bob)
    ada.call("checkpoint_add", task_id=over.task, **note)
    ask(hub, "checkpoint_add", task_id=over.task, claim_epoch=1, **note)
    for work in (moved, taken):
        assert refusal(hub, "checkpoint_add", ada.actor, task_id=work.task, **note) == "STALE_CLAIM"
        assert refusal(hub, "checkpoint_add", task_id=work.task, claim_epoch=1, **note) == "STALE_CLAIM"
    assert [task_of(hub, work.task, "claimed_by") for work in (moved, over, taken)] == [None] * 3
    assert not any(events_about(hub, work.task, "task.renewed") for work in (moved, over, taken))
    assert_claims_agree(database)


def test_a_lapsed_claim_does_not_undo_what_was_done_to_the_task_meanwhile(
    hub: Hub, clock: Clock, database: str
) -> None:
    ada = register_with_token(hub, "ada")
    replanned, ended = start_tasks(hub, ada), start_tasks(hub, ada)
    go_on(clock, LEASE + 2 * TICK, hub)
    ask(hub, "task_update_status", id=replanned.task, status="in_progress")
    ask(hub, "task_update_status", id=replanned.task, status="failed", error="boom")
    ask(hub, "task_replan", id=replanned.task, reason="anew", new_plan={"approach": "b", "steps": []})
    ask(hub, "task_update_status", id=ended.task, status="in_progress")
    told: dict[str, Any] = {"status": "completed", "outcome": "mine"}
    for work in (replanned, ended):
        assert refusal(hub, "task_update_status", ada.actor, id=work.task, **told) == "STALE_CLAIM"
        assert refusal(hub, "task_update_status", id=work.task, claim_epoch=1, **told) == "STALE_CLAIM"
    assert task_of(hub, replanned.task, "status", "claimed_by") == ("pending", None)
    assert task_of(hub, ended.task, "status", "outcome") == ("in_progress", None)
    assert_claims_agree(database)


def test_a_lapsed_claim_does_not_go_on_when_the_task_waits_for_another_now(
    hub: Hub, clock: Clock, database: str
) -> None:
    ada = register_with_token(hub, "ada")
    work = start_tasks(hub, ada)
    go_on(clock, LEASE + 2 * TICK, hub)
    ask(hub, "workflow_add_tasks", id=work.id, tasks=[{"name": "first", "description": "…", "sequence": 0}])
    note: dict[str, Any] = {"type": "progress", "summary": "back"}
    assert refusal(hub, "checkpoint_add", ada.actor, task_id=work.task, **note) == "STALE_CLAIM"
    assert task_of(hub, work.task, "status") == "blocked"
    assert_claims_agree(database)


def test_a_note_by_someone_else_does_not_end_a_lapsed_claim(hub: Hub, clock: Clock) -> None:
    ada = register_with_token(hub, "ada")
    work = start_tasks(hub, ada)
    go_on(clock, LEASE + 2 * TICK, hub)
    ask(hub, "checkpoint_add", task_id=work.task, type="decision", summary="from a person")
    ada.call("checkpoint_add", task_id=work.task, type="progress", summary="back")
    assert task_of(hub, work.task, "status", "claimed_by", "claim_epoch") == ("in_progress", ada.id, 1)


def test_writes_to_its_task_keep_an_agent_whose_client_has_no_token(hub: Hub, clock: Clock) -> None:
    bob, work = register_agent(hub), job(hub)
    ask(hub, "agent_heartbeat", agent_id=bob)
    epoch = claim(hub, work.task, bob)
    person = Actor("operator", "operator", proof="token")
    for _ in range(4):
        pass_time(clock, BEATS - TICK, hub)
        ask(hub, "checkpoint_add", task_id=work.task, type="progress", summary="on", claim_epoch=epoch)
    assert task_of(hub, work.task, "claimed_by") == bob
    for _ in range(2):
        pass_time(clock, BEATS - TICK, hub)
        ask(hub, "checkpoint_add", person, task_id=work.task, type="decision", summary="a person's word")
    assert task_of(hub, work.task, "claimed_by") is None


def test_whoever_names_an_agent_takes_it_from_no_bridge_and_keeps_it_by_none(hub: Hub, clock: Clock) -> None:
    own, other = Origin(bridge="br_own"), Origin(bridge="br_other")
    bob, eve = register_agent(hub, "bob", own), register_agent(hub, "eve", Origin(bridge="br_gone"))
    work = job(hub)
    with hub.presence.connection("br_own"):
        with hub.presence.connection("br_other"):
            ask(hub, "task_claim", origin=other, task_id=work.task, agent_id=bob)
            ask(hub, "message_count_unread", origin=other, agent_id=eve)
            go_on(clock, LEASE + 2 * TICK, hub)
        go_on(clock, LEASE + 2 * TICK, hub)
        assert task_of(hub, work.task, "claimed_by") == bob
        assert has_gone(hub, eve)


def test_a_revoked_token_s_agent_is_not_kept_by_its_bridge(hub: Hub, clock: Clock) -> None:
    ada = register_with_token(hub, "ada")
    with hub.presence.connection("br_1"):
        hub.call("agent_list", {}, ada.actor, origin=Origin(bridge="br_1"))
        pass_time(clock, TICK, hub)
        ask(hub, "agent_token_revoke", agent_id=ada.id)
        go_on(clock, LEASE + 2 * TICK, hub)
    assert has_gone(hub, ada.id)


def test_a_clock_that_was_set_back_stops_no_chore(hub: Hub, clock: Clock) -> None:
    pass_time(clock, 2 * TICK, hub)
    clock.advance(-86_400)
    bob = register_agent(hub)
    pass_time(clock, 2 * LEASE + 3 * TICK, hub)
    assert has_gone(hub, bob)


def test_a_read_brings_the_agent_back_and_not_its_claim(hub: Hub, clock: Clock, database: str) -> None:
    ada = register_with_token(hub, "ada")
    work = start_tasks(hub, ada)
    go_on(clock, LEASE + 2 * TICK, hub)
    ada.call("task_get", id=work.task)
    pass_time(clock, TICK, hub)
    assert agent_of(hub, ada.id, "status") == "online" and task_of(hub, work.task, "claimed_by") is None
    assert ada.call("task_release", task_id=work.task) == {"success": True}, "it is free as it is"
    assert_claims_agree(database)


# Hubs that were away


def test_a_hub_stopped_for_ten_minutes_and_started_again_expires_nobody_at_once(
    new_hub: Hub, make_hub: MakeHub, clock: Clock
) -> None:
    pass_time(clock, TICK, new_hub)
    beating, silent = register_agent(new_hub, "beating"), register_agent(new_hub, "silent")
    ask(new_hub, "agent_heartbeat", agent_id=beating)
    clock.advance(600 + LEASE)
    again = make_hub(clock=clock, agent__lease=LEASE)
    again.chores.run_due()
    pass_time(clock, BEATS, again)
    assert not has_gone(again, beating)
    pass_time(clock, TICK, again)
    assert has_gone(again, beating) and not has_gone(again, silent)
    pass_time(clock, LEASE - BEATS - TICK, again)
    assert not has_gone(again, silent)
    pass_time(clock, TICK, again)
    assert has_gone(again, silent)


def test_after_a_gap_in_its_ticks_a_hub_waits_for_a_whole_lease(hub: Hub, clock: Clock) -> None:
    work, silent, heard = job(hub), register_agent(hub, "silent"), register_with_token(hub, "heard")
    claim(hub, work.task, silent)
    hub.chores.run_due()
    clock.advance(10 * LEASE)  # the laptop is closed
    hub.chores.run_due()
    heard.call("agent_list")
    pass_time(clock, LEASE, hub)
    assert task_of(hub, work.task, "claimed_by") == silent
    pass_time(clock, TICK, hub)
    assert task_of(hub, work.task, "claimed_by") is None and not has_gone(hub, heard.id)


def test_a_tick_or_two_left_out_is_no_gap(hub: Hub, clock: Clock) -> None:
    silent = register_agent(hub)
    for _ in range(LEASE // (3 * TICK)):
        clock.advance(3 * TICK)
        hub.chores.run_due()
    assert not has_gone(hub, silent)
    clock.advance(3 * TICK)
    hub.chores.run_due()
    assert has_gone(hub, silent)


def test_one_hub_at_a_time_looks_for_the_missing_and_another_does_when_it_dies(
    hub: Hub, make_hub: MakeHub, clock: Clock
) -> None:
    other = make_hub(clock=clock, agent__lease=LEASE)
    pass_time(clock, LEASE + TICK, hub, other)
    first = register_agent(hub, "first")
    pass_time(clock, LEASE, hub, other)
    clock.advance(TICK)
    other.chores.run_due()
    assert not has_gone(hub, first), "it is the first hub's to do"
    hub.chores.run_due()
    assert has_gone(hub, first)
    second = register_agent(other, "second")
    pass_time(clock, LEASE + TICK, other)  # the first hub does nothing any more
    assert has_gone(other, second)
    third = register_agent(other, "third")
    pass_time(clock, LEASE, other)
    clock.advance(TICK)
    hub.chores.run_due()
    assert not has_gone(other, third), "it is the other hub's now, even if the first one wakes again"
    other.chores.run_due()
    assert has_gone(other, third)


# All or nothing


def test_what_an_agent_held_goes_back_as_a_whole_or_not_at_all(hub: Hub, clock: Clock, database: str) -> None:
    bob = register_agent(hub, "bob")
    clock.advance(1)  # his lease ends first
    ada, eve = register_with_token(hub, "ada"), register_agent(hub, "eve")
    works = [start_tasks(hub, ada, "one", "two"), start_tasks(hub, ada), start_tasks(hub, ada)]
    tasks = [task for work in works for task in work.tasks.values()]
    last = max((work for work in works), key=lambda work: work.id).task  # workflows are gone through by their ids
    hub.chores.run_due()
    with refuse_changes(database, "checkpoint", "INSERT", f"NEW.task_id = '{last}'"):
        pass_time(clock, LEASE + TICK, hub)
        assert has_gone(hub, bob), "those before it have gone"
        assert [task_of(hub, task, "status", "claimed_by") for task in tasks] == [("in_progress", ada.id)] * 4
        assert [recoveries(hub, task) for task in tasks] == [[]] * 4
        assert agent_of(hub, ada.id, "status") == "busy"
        assert not any(events_about(hub, task, "task.expired") for task in tasks)
        assert_claims_agree(database)
    pass_time(clock, TICK, hub)
    assert [task_of(hub, task, "status", "claimed_by") for task in tasks] == [("pending", None)] * 4
    assert [len(recoveries(hub, task)) for task in tasks] == [1] * 4
    assert has_gone(hub, ada.id) and has_gone(hub, eve)
    assert_claims_agree(database)


def test_leaving_is_all_or_nothing_too(hub: Hub, database: str) -> None:
    ada = register_with_token(hub, "ada")
    works = [start_tasks(hub, ada), start_tasks(hub, ada)]
    last = max(work.id for work in works)
    task = next(work.task for work in works if work.id == last)
    with (
        refuse_changes(database, "checkpoint", "INSERT", f"NEW.task_id = '{task}'"),
        pytest.raises(Exception, match="refused by the test"),
    ):
        hub.call("agent_unregister", {"id": ada.id}, OPERATOR)
    assert [task_of(hub, work.task, "claimed_by") for work in works] == [ada.id] * 2
    assert_claims_agree(database)
