"""A pause binds: while a workflow is paused its tasks are neither begun nor finished, and what else is done is kept."""

from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Forbidden, InvalidState
from crewhall.families.work.workflow.halt import halt
from crewhall.identity import OPERATOR, Actor
from crewhall.store.transaction import Work
from tests.conftest import Agent, Clock
from tests.families.work.claims import (
    HEARTBEAT,
    MISSED,
    PERSON,
    PLAN,
    Job,
    ask,
    job,
    pass_time,
    recoveries,
    register_with_token,
    task_of,
)
from tests.families.work.workflows import all_rows, task

ENDS: dict[str, dict[str, str]] = {"completed": {"outcome": "done"}, "failed": {"error": "broken"}}
BOUND = {  # a task at this status goes to these once its workflow goes on
    "pending": ("planning", "in_progress", "skipped"),
    "planning": ("in_progress", "failed"),
    "in_progress": ("completed", "failed"),
    "paused": ("in_progress",),
    "failed": ("in_progress", "skipped"),
}
WAYS = {
    "pending": [],
    "planning": ["planning"],
    "paused": ["in_progress", "paused"],
    "failed": ["in_progress", "failed"],
}


def pause(hub: Hub, workflow: str, by: str = "operator", reason: str | None = "look here first") -> None:
    """Let the operator, the judge, or an agent of a role pause a workflow that is in progress."""
    if by == "judge":
        with hub.store.write(Work("operator", None, now=hub.clock())) as tx:
            assert halt(tx, workflow, "a report", tx.now)
        return
    actor = PERSON if by == "operator" else Agent(hub, f"a {by}", by).actor
    more: dict[str, Any] = {} if reason is None else {"reason": reason}
    ask(hub, "workflow_update_status", actor, id=workflow, status="paused", **more)


def job_in_hand(hub: Hub, ada: Agent, status: str = "in_progress") -> Job:
    """A workflow in progress whose first task ada holds, at this status, with a second one that nobody holds."""
    work = job(hub, "one", "two")
    ada.call("task_claim", task_id=work.task)
    for step in WAYS.get(status, [status]):
        ada.call("task_update_status", id=work.task, status=step, **ENDS.get(step, {}))
    return work


def refused(hub: Hub, tool: str, actor: Actor, **given: Any) -> InvalidState:
    """The INVALID_STATE with which a call is refused, which changes nothing."""
    before = all_rows(hub)
    with pytest.raises(InvalidState) as failure:
        ask(hub, tool, actor, **given)
    after = all_rows(hub)
    assert {name: after[name] for name in after if name not in ("agent", "agent_token")} == {
        name: before[name] for name in before if name not in ("agent", "agent_token")
    }
    return failure.value


@pytest.mark.parametrize("status", list(BOUND))
def test_a_task_of_a_paused_workflow_is_neither_begun_nor_finished(hub: Hub, status: str) -> None:
    ada = Agent(hub, "ada")
    work = job_in_hand(hub, ada, status)
    pause(hub, work.id)
    for actor in (ada.actor, OPERATOR, PERSON):
        for after in BOUND[status]:
            given = {"id": work.task, "status": after, **ENDS.get(after, {})}
            failure = refused(hub, "task_update_status", actor, **given)
            assert failure.fields == {"paused_by": "operator", "reason": "look here first"}
    ask(hub, "workflow_update_status", PERSON, id=work.id, status="in_progress")
    after = BOUND[status][0]
    ada.call("task_update_status", id=work.task, status=after, **ENDS.get(after, {}))


@pytest.mark.parametrize(
    ("by", "lifters"),
    [
        ("operator", "Only the operator"),
        ("judge", "Only the operator"),
        ("coordinator", "Only a coordinator or the operator"),
        ("worker", "Any agent resumes it"),
    ],
)
def test_a_refusal_says_who_paused_it_why_and_what_to_do(hub: Hub, by: str, lifters: str) -> None:
    ada = Agent(hub, "ada")
    work = job_in_hand(hub, ada)
    pause(hub, work.id, by)
    reason = "CRITICAL_HALT: a report" if by == "judge" else "look here first"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("task_claim", {"task_id": work.tasks["two"]}),
        ("task_update_status", {"id": work.task, "status": "completed", "outcome": "done"}),
    ]
    for tool, given in calls:
        failure = refused(hub, tool, ada.actor, **given)
        assert failure.body()["paused_by"] == by and failure.body()["reason"] == reason
        assert reason in failure.message and work.id in failure.message
        assert all(word in failure.hint for word in ("checkpoint_add", "task_release", lifters))
        assert (f"`crewhall resume {work.id}`" in failure.hint) == (by in ("operator", "judge"))


def test_a_refusal_says_how_the_hall_is_resumed(hub: Hub) -> None:
    ada = Agent(hub, "ada")
    work = job_in_hand(hub, ada)
    ask(hub, "hall_pause", PERSON)
    failure = refused(hub, "task_claim", ada.actor, task_id=work.tasks["two"])
    assert "Only the operator resumes it: `crewhall resume --all`." in failure.hint


def test_a_pause_without_a_reason_says_so(hub: Hub) -> None:
    ada = Agent(hub, "ada")
    work = job_in_hand(hub, ada)
    pause(hub, work.id, reason=None)
    failure = refused(hub, "task_claim", ada.actor, task_id=work.tasks["two"])
    assert failure.fields == {"paused_by": "operator", "reason": None}


def test_what_keeps_work_is_accepted_while_it_is_paused(hub: Hub) -> None:
    ada, bob = Agent(hub, "ada"), Agent(hub, "bob")
    work = job_in_hand(hub, ada)
    bob.call("task_claim", task_id=work.tasks["two"])
    pause(hub, work.id)
    assert ada.call("task_claim", task_id=work.task)["success"], "it holds it"
    ada.call("checkpoint_add", task_id=work.task, type="progress", summary="half of it")
    ada.call("task_set_plan", id=work.task, plan=PLAN)
    ada.call("task_update_status", id=work.task, status="paused")
    ada.call("message_send", recipient_id=bob.id, message_type="notification", subject="s", body="it is paused")
    bob.call("task_release", task_id=work.tasks["two"])
    ada.call("task_release", task_id=work.task, reason="paused")
    assert [task_of(hub, one, "status", "claimed_by") for one in work.tasks.values()] == [("pending", None)] * 2
    ask(hub, "workflow_update_status", PERSON, id=work.id, status="abandoned")


def test_who_may_not_lift_it_may_not_abandon_it_either(hub: Hub) -> None:
    ada = Agent(hub, "ada")
    work = job_in_hand(hub, ada)
    pause(hub, work.id, "coordinator")
    for actor in (ada.actor, OPERATOR):
        with pytest.raises(Forbidden) as failure:
            ask(hub, "workflow_update_status", actor, id=work.id, status="abandoned")
        assert failure.value.fields["paused_by"] == "coordinator"


def test_a_blocked_task_of_a_paused_workflow_is_told_of_the_pause(hub: Hub) -> None:
    ada, work = Agent(hub, "ada"), job(hub, task("one"), task("two", sequence=2))
    ask(hub, "workflow_update_status", PERSON, id=work.id, status="in_progress")
    pause(hub, work.id)
    assert refused(hub, "task_claim", ada.actor, task_id=work.tasks["two"]).fields["paused_by"] == "operator"


def test_a_claim_that_lapsed_is_not_taken_up_again_during_a_pause(hub: Hub, clock: Clock) -> None:
    """Its holder's notes are kept, and it goes on where it was when the workflow does."""
    work, ada = job(hub), register_with_token(hub, "ada")
    ada.call("task_claim", task_id=work.task)
    ada.call("task_update_status", id=work.task, status="in_progress")
    ada.call("agent_heartbeat")
    pause(hub, work.id, "worker")
    pass_time(clock, HEARTBEAT * (MISSED + 2), hub)
    assert task_of(hub, work.task, "status", "claimed_by") == ("pending", None) and recoveries(hub, work.task)
    ada.call("checkpoint_add", task_id=work.task, type="progress", summary="I slept")
    for status in ("paused", "in_progress"):
        failure = refused(hub, "task_update_status", ada.actor, id=work.task, status=status)
        assert failure.fields["paused_by"] == "worker"
    ask(hub, "workflow_update_status", id=work.id, status="in_progress")
    ada.call("task_update_status", id=work.task, status="completed", outcome="done")
    assert task_of(hub, work.task, "status") == "completed"
