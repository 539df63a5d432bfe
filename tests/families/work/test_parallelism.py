"""How many tasks of a workflow run at once: whoever would start one more is refused, and no one who is at one."""

from collections.abc import Callable
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import LimitExceeded
from tests.conftest import Agent, Clock
from tests.families.crew.conftest import PERSON
from tests.families.work.claims import LEASE, ask, claim, job, pass_time, refusal, register_agent, task_of
from tests.families.work.workflows import Ask, all_rows, finish, move, plan_workflow, register, task

ENFORCE = "work.enforce_parallelism"


def test_a_claim_past_the_limit_is_refused_with_the_numbers_and_leaves_nothing(hub: Hub, operator: Ask) -> None:
    workflow, found = plan_workflow(operator, task("a"), task("b"), task("c"), max_parallel_tasks=2)
    ada, bob = register(operator, "ada"), register(operator, "bob")
    for name, agent in (("a", ada), ("b", bob)):
        assert operator("task_claim", task_id=found[name], agent_id=agent)["success"]
    cyd = register(operator, "cyd")
    before = all_rows(hub)
    with pytest.raises(LimitExceeded, match=f"{workflow} is full: 2 running .* is 2$") as refused:
        operator("task_claim", task_id=found["c"], agent_id=cyd)
    assert refused.value.code == "LIMIT_EXCEEDED" and refused.value.recoverable
    assert "Wait until one is finished" in refused.value.hint and "workflow_set_parallelism" in refused.value.hint
    assert all_rows(hub) == before
    assert operator("task_claim", task_id=found["a"], agent_id=ada)["claim_epoch"] == 1, "its own claim is renewed"
    assert operator("task_claim", task_id=found["a"], agent_id=bob)["already_claimed_by"] == ada


def test_who_holds_a_task_of_a_full_workflow_is_told_not_to_wait_for_itself(hub: Hub) -> None:
    """An agent that has forgotten its task would wait for ever: each of its calls makes its lease longer."""
    work, ada, bob = job(hub, "a", "b", most=1), Agent(hub, "ada"), Agent(hub, "bob")
    ask(hub, "task_claim", ada.actor, task_id=work.tasks["a"])
    begin: dict[str, Any] = {"id": work.tasks["b"], "status": "in_progress"}
    for actor, hint in ((ada.actor, f"Finish or release task {work.tasks['a']}"), (bob.actor, "Wait until one")):
        for tool, given in (("task_claim", {"task_id": work.tasks["b"]}), ("task_update_status", begin)):
            with pytest.raises(LimitExceeded) as refused:
                ask(hub, tool, actor, **given)
            assert refused.value.hint.startswith(hint)


@pytest.mark.parametrize("end", ["completed", "failed", "released", "replanned and released", "skipped"])
def test_a_task_that_ends_makes_room_for_the_next(operator: Ask, end: str) -> None:
    _, found = plan_workflow(operator, task("a"), task("b"))
    ada = register(operator)
    operator("task_claim", task_id=found["a"], agent_id=ada)
    for status in ("planning", "in_progress", "paused", "in_progress"):
        move(operator, found["a"], status)
        assert claim_code(operator, found["b"], ada) == "LIMIT_EXCEEDED", f"a held task that is {status} runs"
    if end in ("completed", "failed"):
        move(operator, found["a"], end)
    elif end == "skipped":
        move(operator, found["a"], "failed", "skipped")
    else:
        if end != "released":
            operator("task_replan", id=found["a"], reason="no", new_plan={"approach": "x", "steps": ["y"]})
            assert claim_code(operator, found["b"], ada) == "LIMIT_EXCEEDED", "its holder has it still"
        operator("task_release", task_id=found["a"], agent_id=ada)
    assert claim_code(operator, found["b"], ada) is None


def claim_code(ask: Ask, task_id: str, agent: str) -> str | None:
    """Why the claim is refused; None when it is granted."""
    try:
        assert ask("task_claim", task_id=task_id, agent_id=agent)["success"]
    except LimitExceeded as refused:
        return refused.code
    return None


def test_a_start_without_a_claim_counts_and_is_refused_past_the_limit(operator: Ask) -> None:
    _, found = plan_workflow(operator, task("a"), task("b"), task("c"))
    ada = register(operator)
    for status in ("planning", "in_progress"):
        move(operator, found["a"], status)
        assert claim_code(operator, found["b"], ada) == "LIMIT_EXCEEDED"
        for start in ("planning", "in_progress"):
            with pytest.raises(LimitExceeded):
                move(operator, found["b"], start)
    move(operator, found["a"], "paused")
    assert claim_code(operator, found["b"], ada) is None, "a paused task that nobody holds does not run"
    with pytest.raises(LimitExceeded):
        move(operator, found["a"], "in_progress")
    move(operator, found["b"], "in_progress", "failed")
    move(operator, found["a"], "in_progress")
    assert claim_code(operator, found["a"], ada) is None, "it runs already; the claim takes no further place"
    with pytest.raises(LimitExceeded):
        move(operator, found["b"], "in_progress")
    move(operator, found["a"], "paused", "in_progress")
    move(operator, found["b"], "skipped")
    move(operator, found["a"], "completed")
    finish(operator, found["c"])


def test_a_token_that_starts_a_task_by_moving_it_is_refused_past_the_limit(hub: Hub) -> None:
    work, ada, bob = job(hub, "a", "b", most=1), Agent(hub, "ada"), Agent(hub, "bob")
    ask(hub, "task_update_status", ada.actor, id=work.tasks["a"], status="planning")
    for status in ("planning", "in_progress"):
        assert refusal(hub, "task_update_status", bob.actor, id=work.tasks["b"], status=status) == "LIMIT_EXCEEDED"
    assert task_of(hub, work.tasks["b"], "status", "claimed_by", "claim_epoch") == ("pending", None, 0)
    ask(hub, "task_update_status", ada.actor, id=work.tasks["a"], status="in_progress")
    ask(hub, "task_update_status", ada.actor, id=work.tasks["a"], status="completed", outcome="done")
    ask(hub, "task_update_status", bob.actor, id=work.tasks["b"], status="in_progress")
    assert task_of(hub, work.tasks["b"], "claimed_by") == bob.id


def test_a_token_takes_over_what_runs_without_a_holder_though_all_places_are_taken(hub: Hub) -> None:
    work, ada = job(hub, "a", most=1), Agent(hub, "ada")
    ask(hub, "task_update_status", id=work.task, status="in_progress")
    ask(hub, "task_update_status", ada.actor, id=work.task, status="completed", outcome="done")
    assert task_of(hub, work.task, "status") == "completed"


def test_a_late_write_renews_a_lapsed_claim_whose_place_is_taken_and_it_counts(hub: Hub, clock: Clock) -> None:
    """Its agent is at work whatever the hall says, and what it did would be lost; the next claim waits for both."""
    work, ada = job(hub, "a", "b", "c", most=1), Agent(hub, "ada")
    ask(hub, "task_claim", ada.actor, task_id=work.tasks["a"])
    ask(hub, "task_update_status", ada.actor, id=work.tasks["a"], status="in_progress")
    pass_time(clock, LEASE + 60, hub, ticks=3)
    bob = register_agent(hub)
    claim(hub, work.tasks["b"], bob)
    ask(hub, "checkpoint_add", ada.actor, task_id=work.tasks["a"], type="progress", summary="half of it")
    assert task_of(hub, work.tasks["a"], "status", "claimed_by", "claim_epoch") == ("in_progress", ada.id, 1)
    told = ask(hub, "workflow_next_tasks", workflow_id=work.id)
    assert (told["max_parallel"], told["recommended_count"], told["total"]) == (1, 0, 1)
    ask(hub, "task_update_status", ada.actor, id=work.tasks["a"], status="completed", outcome="all of it")
    assert refusal(hub, "task_claim", task_id=work.tasks["c"], agent_id=bob) == "LIMIT_EXCEEDED"
    ask(hub, "task_release", task_id=work.tasks["b"], agent_id=bob)
    claim(hub, work.tasks["c"], bob)


def test_a_lapsed_claim_that_is_claimed_again_needs_a_place(hub: Hub, clock: Clock) -> None:
    work, ada = job(hub, "a", "b", most=1), register_agent(hub, "ada")
    claim(hub, work.tasks["a"], ada)
    pass_time(clock, LEASE + 60, hub, ticks=3)
    bob = register_agent(hub)
    claim(hub, work.tasks["b"], bob)
    assert refusal(hub, "task_claim", task_id=work.tasks["a"], agent_id=ada) == "LIMIT_EXCEEDED"


def test_a_lower_limit_stops_nothing_that_runs_and_a_higher_one_counts_at_once(operator: Ask) -> None:
    workflow, found = plan_workflow(operator, *(task(name) for name in "abcd"), max_parallel_tasks=3)
    ada = register(operator)
    for name in "abc":
        operator("task_claim", task_id=found[name], agent_id=ada)
    operator("workflow_set_parallelism", id=workflow, max_parallel_tasks=1)
    for name in "abc":
        assert operator("task_claim", task_id=found[name], agent_id=ada)["success"]
        move(operator, found[name], "planning", "in_progress")
    with pytest.raises(LimitExceeded, match=r"3 running .* is 1$"):
        operator("task_claim", task_id=found["d"], agent_id=ada)
    operator("workflow_set_parallelism", id=workflow, max_parallel_tasks=4)
    assert claim_code(operator, found["d"], ada) is None


def test_limits_of_other_workflows_do_not_count(operator: Ask) -> None:
    ada = register(operator)
    for _ in range(2):
        _, found = plan_workflow(operator, task("a"))
        assert claim_code(operator, found["a"], ada) is None


@pytest.mark.parametrize("running", range(4))
def test_as_many_are_recommended_and_offered_as_can_be_claimed(operator: Ask, running: int) -> None:
    workflow, found = plan_workflow(operator, *(task(f"t{number}") for number in range(6)), max_parallel_tasks=3)
    other, _ = plan_workflow(operator, task("other"))
    ada = register(operator)
    for number in range(running):
        operator("task_claim", task_id=found[f"t{number}"], agent_id=ada)
    told = operator("workflow_next_tasks", workflow_id=workflow)["recommended_count"]
    offered = operator("task_get_available", agent_id=ada, limit=50)
    assert offered["total"] == len(offered["tasks"]) == (7 - running if running < 3 else 1)
    assert other in {one["workflow_id"] for one in offered["tasks"]}
    granted = [claim_code(operator, found[f"t{number}"], ada) for number in range(running, 6)].count(None)
    assert told == granted == 3 - running


def test_agents_of_a_fleet_that_find_no_room_are_told_that_there_is_work(hub: Hub) -> None:
    """With the default of one at once, four of five would take the hall for finished and leave."""
    work, fleet = job(hub, "a", "b", "c", most=1), [Agent(hub, f"agent {number}") for number in range(5)]
    first, *others = fleet
    ask(hub, "task_claim", first.actor, task_id=work.tasks["a"])
    told = [ask(hub, "task_get_available", one.actor) for one in others]
    assert [(one["tasks"], one["total"], one["no_room"]) for one in told] == [([], 0, 2)] * 4
    ask(hub, "task_release", first.actor, task_id=work.tasks["a"])
    told = [ask(hub, "task_get_available", one.actor) for one in others]
    assert [(one["total"], one["no_room"]) for one in told] == [(3, 0)] * 4
    for name in "abc":
        ask(hub, "task_update_status", id=work.tasks[name], status="skipped")
    assert ask(hub, "task_get_available", first.actor)["no_room"] == 0, "nothing is left"


def test_the_setting_lets_claims_pass_from_the_next_call_on(hub: Hub) -> None:
    work, ada = job(hub, "a", "b", "c", most=1), register_agent(hub, "ada")
    claim(hub, work.tasks["a"], ada)
    none = ask(hub, "task_get_available", agent_id=ada)
    assert (none["total"], none["no_room"]) == (0, 2)
    assert hub.call("setting_set", {"key": ENFORCE, "value": "off"}, PERSON)["is_live"]
    told = ask(hub, "task_get_available", agent_id=ada)
    assert (told["total"], [one["name"] for one in told["tasks"]]) == (2, ["b", "c"])
    claim(hub, work.tasks["b"], ada)
    assert ask(hub, "workflow_next_tasks", workflow_id=work.id)["recommended_count"] == 0, "it still steers"
    hub.call("setting_set", {"key": ENFORCE, "value": "on"}, PERSON)
    assert refusal(hub, "task_claim", task_id=work.tasks["c"], agent_id=ada) == "LIMIT_EXCEEDED"


def test_a_hub_may_be_started_without_the_limit(make_hub: Callable[..., Hub], clock: Clock) -> None:
    hub = make_hub(clock=clock, work__enforce_parallelism=False)
    work, ada = job(hub, "a", "b", most=1), register_agent(hub, "ada")
    tasks: Any = work.tasks.values()
    assert [claim(hub, one, ada) for one in tasks] == [1, 1]
