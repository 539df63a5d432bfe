"""The hall's pause: it holds what runs, nothing begins while it lasts, and its end restores only what it held."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.edges.hub.serve import hub_facts
from crewhall.errors import Failure, Forbidden, InvalidState
from crewhall.identity import OPERATOR, Actor
from tests.conftest import Agent, Clock
from tests.families.work.claims import PERSON, Job, ask, assert_claims_agree, job, refusal
from tests.families.work.test_pause_binds import pause as pause_one
from tests.families.work.workflows import PLAN, all_rows, new_workflow, task
from tests.replay import assert_replayed
from tests.sizes import size

ROUNDS = size(3, 200)


def set_status(hub: Hub, workflow: str, *steps: str, actor: Actor = PERSON) -> None:
    for step in steps:
        ask(hub, "workflow_update_status", actor, id=workflow, status=step)


def pause(hub: Hub, **given: Any) -> dict[str, Any]:
    return ask(hub, "hall_pause", PERSON, **given)


def resume(hub: Hub) -> dict[str, Any]:
    return ask(hub, "hall_resume", PERSON)


def statuses(hub: Hub) -> dict[str, str]:
    return {one["id"]: one["status"] for one in ask(hub, "workflow_list", limit=100)["workflows"]}


def hall_of_all_kinds(hub: Hub) -> dict[str, str]:
    """A workflow of each status, and one paused by each; their ids by what they are."""
    made = {"planning": new_workflow(lambda tool, **given: ask(hub, tool, **given)), "ready": job(hub).id}
    for status in ("in_progress", "failed", "abandoned"):
        made[status] = job(hub).id
        set_status(hub, made[status], *dict.fromkeys(("in_progress", status)))
    for by in ("operator", "coordinator", "worker", "judge"):
        made[by] = job(hub).id
        set_status(hub, made[by], "in_progress")
        pause_one(hub, made[by], by)
    return made


def test_it_holds_what_runs_and_its_end_restores_that_alone(hub: Hub) -> None:
    made = hall_of_all_kinds(hub)
    before = statuses(hub)
    paused = pause(hub, reason="a leak")
    held = {made["ready"], made["in_progress"]}
    assert (paused["workflows_paused"], set(paused["workflow_ids"]), paused["workflows_held"]) == (2, held, 2)
    assert statuses(hub) == before | dict.fromkeys(held, "paused")
    for workflow in held:
        shown = ask(hub, "workflow_get", id=workflow)
        assert (shown["halted_by"], shown["status_reason"]) == ("operator", "the hall is paused: a leak")
    resumed = resume(hub)
    assert (resumed["was_paused"], resumed["workflows_resumed"], set(resumed["workflow_ids"])) == (True, 2, held)
    assert statuses(hub) == before
    assert all(ask(hub, "workflow_get", id=workflow)["halted_by"] is None for workflow in held)
    assert resume(hub) == {"was_paused": False, "workflows_resumed": 0, "workflow_ids": []}
    assert_replayed(hub)


def test_who_is_at_a_task_of_a_failed_workflow_finishes_nothing_meanwhile(hub: Hub) -> None:
    """The pause doesn't hold such a workflow: nothing of it can be begun anyway."""
    work, ada = job(hub), Agent(hub, "ada")
    ada.call("task_update_status", id=work.task, status="in_progress")
    set_status(hub, work.id, "failed")
    pause(hub, reason="a leak")
    with pytest.raises(InvalidState) as refused:
        ada.call("task_update_status", id=work.task, status="completed", outcome="done")
    assert refused.value.fields["paused_by"] == "operator" and "a leak" in refused.value.fields["reason"]
    ada.call("checkpoint_add", task_id=work.task, type="progress", summary="as good as done")
    resume(hub)
    ada.call("task_update_status", id=work.task, status="completed", outcome="done")


def test_again_it_holds_what_is_new_and_keeps_the_first_reason(hub: Hub, clock: Clock) -> None:
    one = job(hub).id
    first = pause(hub, reason="a leak")
    assert pause(hub)["workflows_paused"] == 0
    set_status(hub, one, "in_progress")
    clock.advance(60)
    again = pause(hub, reason="lunch")
    assert again == first | {"workflow_ids": [one]}
    resume(hub)
    assert statuses(hub) == {one: "in_progress"}
    clock.advance(60)
    assert pause(hub)["paused_since"] == clock.now


def test_a_plan_that_comes_meanwhile_is_held_too(hub: Hub) -> None:
    template = ask(hub, "template_create", name="t", template={"tasks": [task("a")]})["id"]
    planned = new_workflow(lambda tool, **given: ask(hub, tool, **given))
    pause(hub)
    ada = Agent(hub)
    for actor in (ada.actor, PERSON):
        applied = ask(hub, "template_apply", actor, template_id=template, workflow_name="w")["workflow_id"]
        assert statuses(hub)[applied] == "paused"
    given: dict[str, Any] = {"id": planned, "plan": PLAN | {"tasks": [task("a")]}}
    assert ask(hub, "workflow_set_plan", **given)["status"] == "paused"
    found = ask(hub, "task_list", workflow_id=planned)["tasks"][0]["id"]
    assert refusal(hub, "task_claim", ada.actor, task_id=found) == "INVALID_STATE"
    assert ada.call("task_get_available")["tasks"] == []
    assert resume(hub)["workflows_resumed"] == 3
    assert set(statuses(hub).values()) == {"ready"}
    assert ada.call("task_claim", task_id=found)["success"]
    assert_replayed(hub)


def test_nobody_else_sets_a_workflow_going_meanwhile(hub: Hub) -> None:
    """Not even one that the pause does not hold; the operator may let one go on alone."""
    made = hall_of_all_kinds(hub)
    pause(hub, reason="a leak")
    cora = Agent(hub, "cora", "coordinator").actor
    for kind in ("failed", "worker", "coordinator"):
        with pytest.raises(InvalidState) as refused:
            set_status(hub, made[kind], "in_progress", actor=cora)
        assert refused.value.fields == {"paused_by": "operator", "reason": "the hall is paused: a leak"}
        assert "crewhall resume --all" in refused.value.hint
    for kind in ("ready", "in_progress"):
        for actor in (cora, OPERATOR):
            with pytest.raises(Forbidden):
                set_status(hub, made[kind], "in_progress", actor=actor)
    set_status(hub, made["ready"], "in_progress")
    set_status(hub, made["worker"], "abandoned", actor=cora)
    resume(hub)
    set_status(hub, made["failed"], "in_progress", actor=cora)


@pytest.mark.parametrize("how", ["the judge's halt", "the operator's own pause", "resumed and paused", "abandoned"])
def test_what_has_changed_meanwhile_is_not_restored(hub: Hub, how: str) -> None:
    one, other = job(hub).id, job(hub).id
    pause(hub)
    if how == "the judge's halt":
        pause_one(hub, one, "judge")
    elif how == "the operator's own pause":
        set_status(hub, one, "paused")
    else:
        set_status(hub, one, *(("abandoned",) if how == "abandoned" else ("in_progress", "paused")))
    assert resume(hub)["workflow_ids"] == [other]
    assert statuses(hub) == {one: "abandoned" if how == "abandoned" else "paused", other: "ready"}
    assert_replayed(hub)


def test_it_takes_the_operators_token_or_cookie(hub: Hub) -> None:
    work = job(hub)
    agents = [Agent(hub, role, role).actor for role in ("worker", "coordinator")]
    bridge = Origin(bridge="b1")
    ask(hub, "agent_register", origin=bridge, name="bound", runtime="codex", role="coordinator")
    for tool in ("hall_pause", "hall_resume"):
        before = all_rows(hub)
        for actor, origin in [*((one, None) for one in agents), (OPERATOR, None), (OPERATOR, bridge)]:
            with pytest.raises(Forbidden) as refused:
                ask(hub, tool, actor, origin=origin)
            assert refused.value.hint
            if actor is OPERATOR:
                assert "needs the operator's token" in refused.value.message
                assert "CREWHALL_TOKEN" in refused.value.hint
        changed = {name for name, rows in all_rows(hub).items() if rows != before[name]}
        assert not changed & {"workflow", "hall", "event", "notice"}
        pause(hub)
    assert statuses(hub) == {work.id: "paused"}


def test_what_a_hub_says_of_itself_says_that_the_hall_is_paused(hub: Hub, clock: Clock) -> None:
    assert hub_facts(hub)["paused"] is None
    pause(hub, reason="a leak")
    since = clock.now
    clock.advance(60)
    assert hub_facts(hub)["paused"] == {"since": since, "by": "operator", "reason": "a leak"}
    resume(hub)
    assert hub_facts(hub)["paused"] is None


def test_nothing_begins_once_it_is_paused(make_hub: Callable[..., Hub], clock: Clock, database: str) -> None:
    """Claims, plans, templates and resumptions on two hubs, while the operator pauses the hall on one of them."""
    hubs = [make_hub(clock=clock) for _ in range(2)]
    template = ask(hubs[0], "template_create", name="t", template={"tasks": [task("a")]})["id"]
    agents = [Agent(hubs[number % 2], f"agent {number}", "coordinator") for number in range(4)]
    seen = 0
    for number in range(ROUNDS):
        works = [job(hubs[0], "one", "two", "three") for _ in range(3)]
        set_status(hubs[0], works[2].id, "in_progress", "failed")
        begun, moved = threading.Barrier(5), threading.Event()
        acts = [
            partial(claim_and_release, work=works[0]),
            partial(claim_and_release, work=works[1]),
            partial(make_one, template=template),
            partial(fail_and_resume, work=works[2]),
        ]

        def play(place: int, acts: Any = acts, begun: Any = begun, moved: Any = moved) -> int:
            begun.wait(20)
            done = 0
            while acts[place](agents[place]):
                done += 1
                moved.set()
            return done

        with ThreadPoolExecutor(4) as threads:
            players = [threads.submit(play, place) for place in range(4)]
            begun.wait(20)
            assert number or moved.wait(20)
            hub = hubs[number % 2]
            pause(hub)
            done = [player.result(40) for player in players]
        assert not set(statuses(hub).values()) & {"ready", "in_progress"}, done
        # Not the newest event of then: behind a slower write, what was committed before the pause could be hidden yet.
        at = list(events_after(hub, seen, topic="hall.paused"))[-1]["seq"]
        later = [one for one in events_after(hub, at) if one["tool"] != "hall_pause"]
        seen = at
        begins = [one for one in later if one["what"] == "task.claimed" or one["after_status"] in ("in_progress",)]
        assert begins == []
        ready = [one["subject"] for one in later if one["what"] == "workflow.planned"]
        held = [one["subject"] for one in later if one["after_status"] == "paused"]
        assert ready == held, "what was planned after it was held at once"
        resume(hub)
        for workflow, status in statuses(hub).items():
            assert status in ("ready", "in_progress", "failed", "abandoned")
            set_status(hub, workflow, *(() if status == "abandoned" else ("abandoned",)))
    assert_claims_agree(database)
    assert_replayed(hubs[0])


def events_after(hub: Hub, seq: int, **chosen: Any) -> Iterator[dict[str, Any]]:
    """All events after a number, page by page."""
    while found := ask(hub, "event_list", after=seq, limit=500, **chosen)["events"]:
        yield from found
        seq = found[-1]["seq"]


def claim_and_release(agent: Agent, work: Job) -> bool:
    """One turn of an agent; False once it is refused."""
    if not attempt(agent, "task_claim", task_id=work.task):
        return False
    attempt(agent, "task_update_status", id=work.task, status="in_progress")
    return attempt(agent, "task_release", task_id=work.task)


def make_one(agent: Agent, template: str) -> bool:
    made = agent.call("template_apply", template_id=template, workflow_name="w")["workflow_id"]
    return bool(agent.call("workflow_get", id=made)["status"] == "ready")


def fail_and_resume(agent: Agent, work: Job) -> bool:
    given = {"id": work.id}
    return all(attempt(agent, "workflow_update_status", status=status, **given) for status in ("in_progress", "failed"))


def attempt(agent: Agent, tool: str, **given: str) -> bool:
    try:
        return bool(agent.call(tool, **given).get("success"))
    except Failure as failure:
        assert failure.code in ("INVALID_STATE", "FORBIDDEN"), json.dumps(failure.body())
        return False
