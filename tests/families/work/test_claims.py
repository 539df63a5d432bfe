"""Claims through the door, on both databases: who gets a task, who may write to it, and what sets it free."""

from collections.abc import Callable
from typing import Any

import pytest

from crewhall.app import Hub
from tests.conftest import Agent, Clock
from tests.families.work.claims import (
    HEARTBEAT,
    LEASE,
    MISSED,
    PLAN,
    Job,
    agent_of,
    ask,
    assert_claims_agree,
    claim,
    events_about,
    job,
    recoveries,
    refusal,
    register_agent,
    register_with_token,
    task_of,
)

WRITES: dict[str, dict[str, Any]] = {
    "task_set_plan": {"plan": PLAN},
    "task_update_status": {"status": "completed", "outcome": "done"},
    "task_replan": {"reason": "another way", "new_plan": PLAN},
    "checkpoint_add": {"type": "progress", "summary": "half of it"},
    "task_release": {},
}


def write(tool: str, task: str, agent: str | None = None) -> dict[str, Any]:
    """The arguments of a write to a task; an agent is named where a client without a token has to."""
    named = {"agent_id": agent} if agent is not None and tool == "task_release" else {}
    return {"task_id" if tool in ("checkpoint_add", "task_release") else "id": task, **named, **WRITES[tool]}


# Taking a task


def test_a_claim_makes_the_agent_busy_and_leaves_the_tasks_status_alone(hub: Hub, clock: Clock, database: str) -> None:
    work, bob = job(hub), register_agent(hub)
    clock.advance(5)
    assert ask(hub, "task_claim", task_id=work.task, agent_id=bob) == {
        "success": True,
        "already_claimed_by": None,
        "claim_epoch": 1,
        "lease_expires_at": clock.now + LEASE * 1000,
        "workspace": None,
        "workspace_problem": None,
    }
    held = ("status", "claimed_by", "claim_epoch", "claimed_at", "lease_expires_at", "started_at")
    assert task_of(hub, work.task, *held) == ("pending", bob, 1, clock.now, clock.now + LEASE * 1000, None)
    assert agent_of(hub, bob, "status", "current_task_id") == ("busy", work.task)
    assert events_about(hub, work.task) == [("task.claimed", bob, None, None)]
    assert events_about(hub, bob, "agent.updated") == [("agent.updated", bob, "online", "busy")]
    assert_claims_agree(database)


def test_a_claim_is_one_durable_commit(hub: Hub) -> None:
    """Whether it has a workspace is read from a snapshot, which costs none."""
    work, ada = job(hub), register_agent(hub, "ada")
    commits: list[None] = []
    hub.before_commit = lambda: commits.append(None)
    assert (claim(hub, work.task, ada), len(commits)) == (1, 1)


def test_an_agent_with_a_token_need_not_say_who_it_is(hub: Hub) -> None:
    work, ada = job(hub), register_with_token(hub, "ada")
    assert ada.call("task_claim", task_id=work.task)["success"]
    assert task_of(hub, work.task, "claimed_by") == ada.id
    assert events_about(hub, work.task) == [("task.claimed", ada.id, None, None)]


def test_asking_again_makes_the_lease_longer_and_nothing_else(hub: Hub, clock: Clock, database: str) -> None:
    work, bob = job(hub), register_agent(hub)
    first = ask(hub, "task_claim", task_id=work.task, agent_id=bob)
    clock.advance(100)
    again = ask(hub, "task_claim", task_id=work.task, agent_id=bob)
    assert again == {**first, "lease_expires_at": first["lease_expires_at"] + 100_000}
    assert agent_of(hub, bob, "lease_expires_at") == again["lease_expires_at"]
    assert len(events_about(hub, work.task)) == 1 and len(events_about(hub, bob, "agent.updated")) == 1
    assert_claims_agree(database)


def test_the_lease_of_one_that_beats_is_three_beats_long(hub: Hub, clock: Clock) -> None:
    work, bob = job(hub), register_agent(hub)
    ask(hub, "agent_heartbeat", agent_id=bob)
    until = ask(hub, "task_claim", task_id=work.task, agent_id=bob)["lease_expires_at"]
    assert until == clock.now + HEARTBEAT * MISSED * 1000


def test_a_task_that_someone_else_holds_names_its_holder(hub: Hub, database: str) -> None:
    work, bob, eve = job(hub), register_agent(hub, "bob"), register_agent(hub, "eve")
    claim(hub, work.task, bob)
    assert ask(hub, "task_claim", task_id=work.task, agent_id=eve) == {
        "success": False,
        "already_claimed_by": bob,
        "claim_epoch": None,
        "lease_expires_at": None,
        "workspace": None,
        "workspace_problem": None,
    }
    assert task_of(hub, work.task, "claimed_by", "claim_epoch") == (bob, 1)
    assert agent_of(hub, eve, "status", "current_task_id") == ("online", None)
    assert_claims_agree(database)


@pytest.mark.parametrize("waits", [{"sequence": 2}, {"depends_on": ["one"]}])
def test_a_task_that_waits_for_another_is_blocked_until_that_is_finished(hub: Hub, waits: dict[str, Any]) -> None:
    work, bob = job(hub, "one", {"name": "two", **waits}), register_agent(hub)
    two = work.tasks["two"]
    assert refusal(hub, "task_claim", task_id=two, agent_id=bob) == "TASK_BLOCKED"
    assert task_of(hub, two, "claimed_by", "claim_epoch") == (None, 0)
    ask(hub, "task_update_status", id=work.task, status="skipped")
    assert claim(hub, two, bob) == 1


@pytest.mark.parametrize("status", ["completed", "skipped"])
def test_a_finished_task_needs_no_one(hub: Hub, status: str) -> None:
    work, bob = job(hub), register_agent(hub)
    if status == "completed":
        ask(hub, "task_update_status", id=work.task, status="in_progress")
    ask(hub, "task_update_status", id=work.task, status=status, outcome="done")
    assert refusal(hub, "task_claim", task_id=work.task, agent_id=bob) == "INVALID_STATE"
    assert agent_of(hub, bob, "status") == "online"


def test_a_failed_task_can_be_taken_and_stays_failed_until_someone_begins_it(hub: Hub, database: str) -> None:
    work, bob, eve = job(hub), register_agent(hub, "bob"), register_agent(hub, "eve")
    claim(hub, work.task, bob)
    ask(hub, "task_update_status", id=work.task, status="in_progress")
    ask(hub, "task_update_status", id=work.task, status="failed", error="no disk")
    assert claim(hub, work.task, eve) == 2
    assert task_of(hub, work.task, "status", "claimed_by", "error") == ("failed", eve, "no disk")
    assert_claims_agree(database)


def test_unknown_tasks_and_agents_are_not_found(hub: Hub) -> None:
    work, bob = job(hub), register_agent(hub)
    for tool in ("task_claim", "task_release"):
        assert refusal(hub, tool, task_id="tk_nothing", agent_id=bob) == "NOT_FOUND"
        assert refusal(hub, tool, task_id=work.task, agent_id="ag_nobody") == "NOT_FOUND"
        assert refusal(hub, tool, task_id=work.task) == "INVALID_INPUT"
    assert task_of(hub, work.task, "claimed_by", "claim_epoch") == (None, 0)
    assert ask(hub, "workflow_get", id=work.id)["status"] == "ready"


def test_no_one_claims_or_releases_for_another_with_a_token_of_its_own(hub: Hub) -> None:
    work, ada, bob = job(hub), register_with_token(hub, "ada"), register_agent(hub)
    assert refusal(hub, "task_claim", ada.actor, task_id=work.task, agent_id=bob) == "FORBIDDEN"
    claim(hub, work.task, bob)
    assert refusal(hub, "task_release", ada.actor, task_id=work.task, agent_id=bob) == "FORBIDDEN"
    assert task_of(hub, work.task, "claimed_by") == bob


def test_a_task_is_for_those_who_are_good_at_all_it_needs(hub: Hub) -> None:
    work = job(hub, {"name": "one", "required_capabilities": ["rust", "sql"]})
    some, both = (
        register_agent(hub, "some", capabilities=["rust"]),
        register_agent(hub, "both", capabilities=["sql", "rust"]),
    )
    assert refusal(hub, "task_claim", task_id=work.task, agent_id=some) == "INVALID_STATE"
    assert claim(hub, work.task, both) == 1


@pytest.mark.parametrize("status", ["paused", "failed", "abandoned"])
def test_nothing_is_claimed_in_a_workflow_that_does_not_run(hub: Hub, status: str) -> None:
    work, bob = job(hub, "one", "two"), register_agent(hub)
    ask(hub, "workflow_update_status", id=work.id, status="in_progress")
    ask(hub, "workflow_update_status", id=work.id, status=status)
    assert refusal(hub, "task_claim", task_id=work.task, agent_id=bob) == "INVALID_STATE"
    if status != "abandoned":
        ask(hub, "workflow_update_status", id=work.id, status="in_progress")
        assert claim(hub, work.task, bob) == 1


def test_a_pause_takes_no_task_away_and_an_abandoned_workflow_frees_all(hub: Hub, database: str) -> None:
    work, bob, eve = job(hub, "one", "two"), register_agent(hub, "bob"), register_agent(hub, "eve")
    one, two = work.tasks.values()
    claim(hub, one, bob)
    claim(hub, two, eve)
    ask(hub, "workflow_update_status", id=work.id, status="paused")
    assert claim(hub, one, bob) == 1, "it holds it already"
    ask(hub, "workflow_update_status", id=work.id, status="abandoned")
    assert [task_of(hub, task, "claimed_by") for task in (one, two)] == [None, None]
    assert [agent_of(hub, agent, "status") for agent in (bob, eve)] == ["online", "online"]
    assert_claims_agree(database)


def test_the_first_claim_sets_a_ready_workflow_going_and_later_ones_do_not(hub: Hub, clock: Clock) -> None:
    work, bob = job(hub, "one", "two"), register_agent(hub)
    clock.advance(3)
    began = clock.now
    for task in work.tasks.values():
        claim(hub, task, bob)
        clock.advance(3)
    workflow = ask(hub, "workflow_get", id=work.id)
    assert (workflow["status"], workflow["started_at"]) == ("in_progress", began)
    changes = events_about(hub, work.id, "workflow.updated")
    assert changes == [("workflow.updated", bob, "ready", "in_progress")]


def test_each_claim_has_a_higher_epoch_whoever_makes_it(hub: Hub, database: str) -> None:
    work, bob, eve = job(hub), register_agent(hub, "bob"), register_agent(hub, "eve")
    for epoch, agent in enumerate([bob, eve, eve, bob], start=1):
        assert claim(hub, work.task, agent) == epoch
        ask(hub, "task_release", task_id=work.task, agent_id=agent)
    assert_claims_agree(database)


def test_an_agent_with_a_token_claims_what_it_begins(hub: Hub, database: str) -> None:
    work = job(hub, "one", {"name": "two", "required_capabilities": ["rust"]})
    ada = register_with_token(hub, "ada")
    ada.call("task_update_status", id=work.task, status="in_progress")
    held = ("status", "claimed_by", "claim_epoch")
    assert task_of(hub, work.task, *held) == ("in_progress", ada.id, 1)
    assert agent_of(hub, ada.id, "status", "current_task_id") == ("busy", work.task)
    two = {"id": work.tasks["two"], "status": "in_progress"}
    assert refusal(hub, "task_update_status", ada.actor, **two) == "INVALID_STATE"
    assert task_of(hub, work.tasks["two"], *held) == ("pending", None, 0)
    assert_claims_agree(database)


# Giving it back


def _fail(hub: Hub, work: Job, agent: str) -> None:
    ask(hub, "task_update_status", id=work.task, status="failed", error="no")


def _complete(hub: Hub, work: Job, agent: str) -> None:
    ask(hub, "task_update_status", id=work.task, status="completed", outcome="yes")


def _release(hub: Hub, work: Job, agent: str) -> None:
    ask(hub, "task_release", task_id=work.task, agent_id=agent)


def _unregister(hub: Hub, work: Job, agent: str) -> None:
    ask(hub, "agent_unregister", id=agent)


def _go_offline(hub: Hub, work: Job, agent: str) -> None:
    ask(hub, "agent_update", id=agent, status="offline")


ENDS = [
    (_complete, "completed", "online"),
    (_fail, "failed", "online"),
    (_release, "pending", "online"),
    (_unregister, "pending", "offline"),
    (_go_offline, "pending", "offline"),
]


@pytest.mark.parametrize(("end", "task", "agent"), ENDS)
def test_what_ends_a_claim_frees_the_task_and_the_agent(
    hub: Hub, database: str, end: Callable[[Hub, Job, str], None], task: str, agent: str
) -> None:
    work, bob = job(hub), register_agent(hub)
    claim(hub, work.task, bob)
    ask(hub, "task_update_status", id=work.task, status="in_progress")
    ask(hub, "task_set_plan", id=work.task, plan=PLAN)
    end(hub, work, bob)
    held = ("status", "claimed_by", "claimed_at", "lease_expires_at", "claim_epoch", "plan")
    assert task_of(hub, work.task, *held) == (task, None, None, None, 1, PLAN)
    assert agent_of(hub, bob, "status", "current_task_id") == (agent, None)
    assert_claims_agree(database)


def test_skipping_a_task_that_someone_holds_frees_it(hub: Hub, database: str) -> None:
    work, bob = job(hub), register_agent(hub)
    claim(hub, work.task, bob)
    ask(hub, "task_update_status", id=work.task, status="skipped")
    assert task_of(hub, work.task, "status", "claimed_by") == ("skipped", None)
    assert agent_of(hub, bob, "status") == "online"
    assert_claims_agree(database)


def test_a_released_task_is_pending_again_wherever_it_was(hub: Hub) -> None:
    steps = {"pending": [], "planning": ["planning"], "in_progress": ["in_progress"], "paused": ["planning", "paused"]}
    work, bob = job(hub, *steps), register_agent(hub)
    for status, task in work.tasks.items():
        claim(hub, task, bob)
        for step in steps[status]:
            ask(hub, "task_update_status", id=task, status=step)
        ask(hub, "task_release", task_id=task, agent_id=bob)
        assert task_of(hub, task, "status") == "pending"
        assert events_about(hub, task, "task.released") == [("task.released", bob, status, "pending")]


def test_planning_anew_keeps_the_claim(hub: Hub, database: str) -> None:
    work, ada = job(hub), register_with_token(hub, "ada")
    ada.call("task_update_status", id=work.task, status="in_progress")
    ada.call("task_replan", id=work.task, reason="another way", new_plan=PLAN)
    assert task_of(hub, work.task, "status", "claimed_by", "claim_epoch") == ("pending", ada.id, 1)
    assert agent_of(hub, ada.id, "status", "current_task_id") == ("busy", work.task)
    assert_claims_agree(database)


def test_an_agent_with_several_tasks_is_busy_until_the_last_one_is_gone(hub: Hub, database: str) -> None:
    first, second, bob = job(hub, "one", "two"), job(hub), register_agent(hub)
    one, two, three = *first.tasks.values(), second.task
    for task in (one, two, three):
        claim(hub, task, bob)
    assert agent_of(hub, bob, "status", "current_task_id") == ("busy", three)
    ask(hub, "task_release", task_id=one, agent_id=bob)
    assert agent_of(hub, bob, "status", "current_task_id") == ("busy", three), "it is still at the last it took"
    ask(hub, "task_update_status", id=three, status="in_progress")
    ask(hub, "task_update_status", id=three, status="completed", outcome="done")
    assert agent_of(hub, bob, "status", "current_task_id") == ("busy", two)
    assert_claims_agree(database)
    ask(hub, "workflow_update_status", id=first.id, status="abandoned")
    assert agent_of(hub, bob, "status", "current_task_id") == ("online", None)
    assert [event[2:] for event in events_about(hub, bob, "agent.updated")] == [("online", "busy"), ("busy", "online")]
    assert_claims_agree(database)


def test_leaving_frees_everything_with_a_recovery_checkpoint_each(hub: Hub, database: str) -> None:
    jobs, bob = [job(hub, "one", "two"), job(hub)], register_agent(hub)
    tasks = [task for work in jobs for task in work.tasks.values()]
    for task in tasks:
        claim(hub, task, bob)
    ask(hub, "agent_unregister", id=bob)
    assert [task_of(hub, task, "claimed_by") for task in tasks] == [None] * 3
    assert [len(recoveries(hub, task)) for task in tasks] == [1] * 3
    assert_claims_agree(database)


def test_releasing_twice_is_as_good_as_once(hub: Hub) -> None:
    work, bob = job(hub), register_agent(hub)
    claim(hub, work.task, bob)
    for _ in range(2):
        assert ask(hub, "task_release", task_id=work.task, agent_id=bob, reason="lunch") == {"success": True}
    assert len(events_about(hub, work.task, "task.released")) == 1 and len(recoveries(hub, work.task)) == 1


def test_a_stranger_releases_nothing(hub: Hub) -> None:
    work, bob, eve = job(hub), register_agent(hub, "bob"), register_agent(hub, "eve")
    assert refusal(hub, "task_release", task_id=work.task, agent_id=eve) == "INVALID_STATE"
    claim(hub, work.task, bob)
    assert refusal(hub, "task_release", task_id=work.task, agent_id=eve) == "STALE_CLAIM"
    assert task_of(hub, work.task, "claimed_by") == bob


def test_the_reason_of_a_release_is_kept_for_whoever_takes_the_task_next(hub: Hub) -> None:
    work, bob = job(hub), register_agent(hub)
    for reason in (None, "the tests need a GPU"):
        claim(hub, work.task, bob)
        ask(hub, "task_update_status", id=work.task, status="in_progress")
        ask(hub, "task_release", task_id=work.task, agent_id=bob, reason=reason)
    (kept,) = recoveries(hub, work.task)
    assert kept["summary"] == "the tests need a GPU"
    assert kept["detail"] == {"agent_id": bob, "epoch": 2, "status": "in_progress"}


# A claim that is over


def test_a_late_write_of_the_first_holder_never_reaches_its_successors_task(hub: Hub, database: str) -> None:
    work, ada, eve = job(hub, *WRITES), register_with_token(hub, "ada"), register_with_token(hub, "eve")
    for task in work.tasks.values():
        ada.call("task_update_status", id=task, status="in_progress")
        ada.call("task_release", task_id=task)
        eve.call("task_update_status", id=task, status="in_progress")
    for is_done in (False, True):
        for tool, task in work.tasks.items():
            if is_done:
                eve.call("task_update_status", id=task, status="completed", outcome="by eve")
            before = ask(hub, "task_get", id=task, include_checkpoints=True)
            assert refusal(hub, tool, ada.actor, **write(tool, task)) == "STALE_CLAIM"
            assert refusal(hub, tool, claim_epoch=1, **write(tool, task, ada.id)) == "STALE_CLAIM"
            assert ask(hub, "task_get", id=task, include_checkpoints=True) == before
        assert_claims_agree(database)


def test_an_agent_that_never_claimed_a_task_does_not_write_to_the_one_of_another(hub: Hub) -> None:
    work, ada, eve = job(hub, *WRITES), register_with_token(hub, "ada"), Agent(hub, "eve")
    for tool, task in work.tasks.items():
        ada.call("task_update_status", id=task, status="in_progress")
        assert refusal(hub, tool, eve.actor, **write(tool, task)) == "STALE_CLAIM"


def test_the_current_epoch_lets_a_client_without_a_token_write(hub: Hub) -> None:
    work, bob = job(hub, *WRITES), register_agent(hub)
    for tool, task in work.tasks.items():
        claim(hub, task, bob)
        ask(hub, "task_update_status", id=task, status="in_progress", claim_epoch=1)
        assert refusal(hub, tool, claim_epoch=2, **write(tool, task, bob)) == "STALE_CLAIM"
        ask(hub, tool, claim_epoch=1, **write(tool, task, bob))


def test_a_stale_writer_hears_who_holds_the_task_now(hub: Hub) -> None:
    work, ada, bob = job(hub), register_with_token(hub, "ada"), register_agent(hub)
    ada.call("task_claim", task_id=work.task)
    ada.call("task_release", task_id=work.task)
    claim(hub, work.task, bob)
    with pytest.raises(Exception, match=f"held by {bob}, at epoch 2") as refused:
        ada.call("checkpoint_add", task_id=work.task, type="progress", summary="late")
    body = refused.value.body()  # type: ignore[attr-defined]
    assert (body["current_epoch"], body["claimed_by"]) == (2, bob)


def test_an_earlier_life_of_the_same_agent_is_told_by_its_epoch(hub: Hub) -> None:
    work, ada = job(hub), register_with_token(hub, "ada")
    for _ in range(2):
        ada.call("task_claim", task_id=work.task)
        ada.call("task_update_status", id=work.task, status="in_progress")
        if ada.call("task_get", id=work.task)["claim_epoch"] == 1:
            ada.call("task_release", task_id=work.task)
    late = {"task_id": work.task, "type": "progress", "summary": "late"}
    assert refusal(hub, "checkpoint_add", ada.actor, claim_epoch=1, **late) == "STALE_CLAIM"
    assert ada.call("checkpoint_add", claim_epoch=2, **late)["sequence"] == 1


def test_an_agent_that_registers_again_is_busy_while_it_holds_a_task(hub: Hub, database: str) -> None:
    ada, work = register_with_token(hub, "ada"), job(hub)
    claim(hub, work.task, ada.id)
    assert ada.call("agent_register", name="ada", runtime="codex")["status"] == "online"
    assert agent_of(hub, ada.id, "status", "current_task_id") == ("busy", work.task)
    assert_claims_agree(database)


def test_an_agent_holds_what_it_finishes_even_if_nobody_held_it(hub: Hub, database: str) -> None:
    ada, work = register_with_token(hub, "ada"), job(hub)
    ask(hub, "task_update_status", id=work.task, status="in_progress")
    ada.call("task_update_status", id=work.task, status="completed", outcome="done")
    assert task_of(hub, work.task, "claim_epoch", "claimed_by", "error") == (1, None, None)
    assert agent_of(hub, ada.id, "status") == "online"
    assert [event[0] for event in events_about(hub, work.task)] == ["task.updated", "task.claimed", "task.updated"]
    assert_claims_agree(database)
