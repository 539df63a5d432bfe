"""What is long over is put away: lists leave it out, and it is back as soon as it goes on."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure, InvalidState
from crewhall.families.work.workflow.halt import halt
from crewhall.identity import OPERATOR
from crewhall.notices import notify
from tests.conftest import Agent, Clock
from tests.families.work.claims import assert_claims_agree
from tests.families.work.workflows import (
    Ask,
    all_rows,
    code_of,
    events,
    new_workflow,
    newest,
    plan_workflow,
    register,
    sql,
    task,
)
from tests.replay import assert_replayed

MakeHub = Callable[..., Hub]


def make_offline(ask: Ask, name: str = "ada") -> str:
    """An agent that has left."""
    agent = register(ask, name)
    ask("agent_unregister", id=agent)
    return agent


def ended(ask: Ask, status: str = "abandoned") -> str:
    workflow, _ = plan_workflow(ask, task("one"))
    if status != "abandoned":
        ask("workflow_update_status", id=workflow, status="in_progress")
    ask("workflow_update_status", id=workflow, status=status)
    return workflow


def agents(ask: Ask, **more: Any) -> set[str]:
    found = ask("agent_list", **more)
    assert found["total"] == len(found["agents"])
    return {agent["id"] for agent in found["agents"]}


def workflows(ask: Ask, **more: Any) -> set[str]:
    found = ask("workflow_list", **more)
    assert found["total"] == len(found["workflows"])
    return {workflow["id"] for workflow in found["workflows"]}


def test_an_agent_that_is_put_away_is_in_no_list_unless_asked_for(hub: Hub, operator: Ask, clock: Clock) -> None:
    ada, bob = make_offline(operator), register(operator, "bob")
    start = newest(operator)
    assert operator("agent_archive", id=ada) == {"success": True}
    assert agents(operator) == agents(operator, status=["offline", "online"]) == {bob}
    assert agents(operator, include_archived=True) == {ada, bob}
    assert operator("agent_get", id=ada)["archived_at"] == clock.now
    assert events(operator, start) == [("agent.archived", None, None)]
    with hub.store.read() as tx:
        assert [row["value"] for row in tx.all("agent_ids", prefix="a", limit=9)] == [bob]
    assert_replayed(hub)
    operator("agent_archive", id=ada, restore=True)
    assert agents(operator) == {ada, bob} and operator("agent_get", id=ada)["archived_at"] is None
    assert events(operator, start)[1:] == [("agent.restored", None, None)]
    assert_replayed(hub)


def test_a_workflow_that_is_put_away_is_in_no_list_unless_asked_for(hub: Hub, operator: Ask, clock: Clock) -> None:
    over, other = ended(operator), new_workflow(operator)
    start = newest(operator)
    assert operator("workflow_archive", id=over) == {"success": True}
    assert workflows(operator) == {other} and workflows(operator, status=["abandoned"]) == set()
    assert workflows(operator, include_archived=True) == {over, other}
    assert operator("workflow_get", id=over)["archived_at"] == clock.now
    listed = operator("workflow_list", include_archived=True, status=["abandoned"])["workflows"]
    assert [one["archived_at"] for one in listed] == [clock.now]
    with hub.store.read() as tx:
        assert [row["value"] for row in tx.all("workflow_ids", prefix="w", limit=9)] == [other]
    assert_replayed(hub)
    operator("workflow_archive", id=over, restore=True)
    assert workflows(operator) == {over, other}
    assert [what for what, *_ in events(operator, start)] == ["workflow.archived", "workflow.restored"]
    assert_replayed(hub)


def test_twice_changes_nothing(hub: Hub, operator: Ask) -> None:
    ada, over = make_offline(operator), ended(operator)
    for restore in (False, True):
        for tool, thing in (("agent_archive", ada), ("workflow_archive", over)):
            operator(tool, id=thing, restore=restore)
            before = all_rows(hub)
            operator(tool, id=thing, restore=restore)
            assert all_rows(hub) == before


def test_only_the_operator_and_coordinators_put_away(hub: Hub, operator: Ask) -> None:
    ada, over = make_offline(operator), ended(operator)
    worker, coordinator = Agent(hub, "worker"), Agent(hub, "coordinator", "coordinator")
    for tool, thing in (("agent_archive", ada), ("workflow_archive", over)):
        assert code_of(worker.call, tool, id=thing) == "FORBIDDEN"
        assert coordinator.call(tool, id=thing) == {"success": True}
        assert code_of(operator, tool, id="none") == "NOT_FOUND"


def test_an_agent_that_is_here_or_holds_something_is_not_put_away(hub: Hub, operator: Ask, clock: Clock) -> None:
    ada = register(operator)
    with pytest.raises(InvalidState, match="is online") as refused:
        operator("agent_archive", id=ada)
    assert "agent_unregister" in refused.value.hint
    _, tasks = plan_workflow(operator, task("one"))
    operator("task_claim", task_id=tasks["one"], agent_id=ada)
    with hub.own_work() as tx:
        tx.run("agent_disconnected", id=ada, until=clock.now + 120_000, now=clock.now)
    with pytest.raises(InvalidState, match=f"still holds task {tasks['one']}"):
        operator("agent_archive", id=ada)
    operator("agent_heartbeat", agent_id=ada)
    operator("task_release", task_id=tasks["one"], agent_id=ada)
    operator("file_reserve", agent_id=ada, paths=["a.py"], repository_path="/r", seconds=60)
    with hub.own_work() as tx:
        tx.run("agent_disconnected", id=ada, until=clock.now + 120_000, now=clock.now)
    with pytest.raises(InvalidState, match=r"still holds path a\.py"):
        operator("agent_archive", id=ada)
    operator("agent_unregister", id=ada)
    operator("agent_archive", id=ada)


@pytest.mark.parametrize("status", ["planning", "ready", "in_progress", "paused"])
def test_a_workflow_that_is_not_over_is_not_put_away(operator: Ask, status: str) -> None:
    workflow = new_workflow(operator) if status == "planning" else plan_workflow(operator, task("one"))[0]
    for step in {"in_progress": ("in_progress",), "paused": ("in_progress", "paused")}.get(status, ()):
        operator("workflow_update_status", id=workflow, status=step)
    with pytest.raises(InvalidState, match=f"is {status}"):
        operator("workflow_archive", id=workflow)


def test_completed_and_failed_ones_are(operator: Ask) -> None:
    workflow, tasks = plan_workflow(operator, task("one"))
    operator("workflow_update_status", id=workflow, status="in_progress")
    operator("task_update_status", id=tasks["one"], status="skipped")
    operator("workflow_update_status", id=workflow, status="completed")
    for one in (workflow, ended(operator, "failed")):
        operator("workflow_archive", id=one)
    assert workflows(operator) == set()


SIGNS: dict[str, Callable[[Ask, str, str], Any]] = {
    "heartbeat": lambda ask, agent, task: ask("agent_heartbeat", agent_id=agent),
    "update": lambda ask, agent, task: ask("agent_update", id=agent, metadata={"a": 1}),
    "claim": lambda ask, agent, task: ask("task_claim", task_id=task, agent_id=agent),
}


@pytest.mark.parametrize("sign", SIGNS)
def test_any_sign_of_life_brings_an_agent_back(hub: Hub, operator: Ask, sign: str) -> None:
    ada = make_offline(operator)
    operator("agent_archive", id=ada)
    _, tasks = plan_workflow(operator, task("one"))
    SIGNS[sign](operator, ada, tasks["one"])
    assert operator("agent_get", id=ada)["archived_at"] is None and ada in agents(operator)
    assert [what for what, *_ in events(operator, subject=ada)].count("agent.restored") == 1
    assert_replayed(hub)


def test_so_does_a_call_by_its_token(hub: Hub, operator: Ask, clock: Clock) -> None:
    kim, eve = Agent(hub, "kim"), Agent(hub, "eve")
    for agent in (kim, eve):
        operator("agent_archive", id=agent.id)
    kim.call("agent_register", name="kim", runtime="codex")
    eve.call("agent_list")
    hub.chores.run_one("presence")
    assert agents(operator) == {kim.id, eve.id}


def test_an_agent_that_leaves_stays_where_it_is(operator: Ask) -> None:
    ada = make_offline(operator)
    operator("agent_archive", id=ada)
    operator("agent_unregister", id=ada)
    assert ada not in agents(operator)


def test_its_name_is_free_and_it_gets_another_when_it_is_back(hub: Hub, operator: Ask) -> None:
    kim = Agent(hub, "kim")
    operator("agent_archive", id=kim.id)
    other = Agent(hub, "kim")
    kim.call("agent_heartbeat")
    assert operator("agent_get", id=kim.id)["name"] == "kim-2"
    assert operator("agent_get", id=other.id)["name"] == "kim"


def test_nothing_waits_to_be_told_to_an_agent_that_is_put_away(hub: Hub, operator: Ask, clock: Clock) -> None:
    ada, bob = make_offline(operator), make_offline(operator, "bob")
    with hub.own_work() as tx:
        notify(tx, [ada, bob], "message", "ms_1", "You have a message.", clock.now)
    operator("agent_archive", id=ada)
    assert [row["agent_id"] for row in sql(hub, "SELECT agent_id FROM notice")] == [bob]


def test_a_failed_workflow_that_goes_on_or_is_halted_is_back(hub: Hub, operator: Ask, clock: Clock) -> None:
    onward, halted = ended(operator, "failed"), ended(operator, "failed")
    for workflow in (onward, halted):
        operator("workflow_archive", id=workflow)
    operator("workflow_update_status", id=onward, status="in_progress")
    with hub.own_work() as tx:
        assert halt(tx, halted, "broken", clock.now)
    assert workflows(operator) == {onward, halted}
    for workflow in (onward, halted):
        assert [what for what, *_ in events(operator, subject=workflow)].count("workflow.restored") == 1
    assert_replayed(hub)


def test_one_that_is_abandoned_after_it_failed_stays_put_away(operator: Ask) -> None:
    workflow = ended(operator, "failed")
    operator("workflow_archive", id=workflow)
    operator("workflow_update_status", id=workflow, status="abandoned")
    assert workflows(operator) == set()


def test_an_agent_that_claims_while_it_is_put_away_is_in_the_lists(make_hub: MakeHub, clock: Clock) -> None:
    hubs = [make_hub(clock=clock) for _ in range(2)]

    def ask(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hubs[0].call(tool, arguments, OPERATOR)

    for number in range(6):
        ada = make_offline(ask, f"ada {number}")
        _, tasks = plan_workflow(ask, task("one"))
        claim = {"task_id": tasks["one"], "agent_id": ada}
        at_once(partial(ask, "agent_archive", id=ada), partial(hubs[1].call, "task_claim", claim, OPERATOR))
        agent = ask("agent_get", id=ada)
        assert (agent["status"], agent["archived_at"]) == ("busy", None)
    assert_claims_agree(hubs[0].settings.database)
    assert_replayed(hubs[0])


def at_once(*steps: Callable[[], Any]) -> None:
    """All steps begin together; one that comes late may be refused."""
    together = threading.Barrier(len(steps))

    def run(step: Callable[[], Any]) -> None:
        together.wait(20)
        try:
            step()
        except Failure as failure:
            assert failure.code == "INVALID_STATE", failure

    with ThreadPoolExecutor(len(steps)) as threads:
        list(threads.map(run, steps, timeout=40))
