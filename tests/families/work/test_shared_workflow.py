"""On PostgreSQL, changes of different tasks of a workflow don't wait for each other, and add up all the same."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.identity import OPERATOR
from tests.families.work.workflows import HOW, plan_workflow, register, sql, task
from tests.sizes import size

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)

TASKS = [f"t{number}" for number in range(8)]
ROUNDS = size(6, 100)
Ask = Callable[..., Any]


@pytest.fixture
def hubs(make_hub: Callable[..., Hub]) -> tuple[Hub, Hub]:
    return make_hub(), make_hub()


@pytest.fixture
def held(hubs: tuple[Hub, Hub]) -> tuple[str, dict[str, str]]:
    """A workflow and its tasks by name, each begun by an agent of its own."""

    def ask(tool: str, /, **arguments: Any) -> Any:
        return hubs[0].call(tool, arguments, OPERATOR)

    workflow, ids = plan_workflow(ask, *(task(name) for name in TASKS), max_parallel_tasks=len(TASKS))
    for name in TASKS:
        ask("task_claim", task_id=ids[name], agent_id=register(ask, name))
        ask("task_update_status", id=ids[name], status="in_progress")
    return workflow, ids


@contextmanager
def in_mid_write(hub: Hub, tool: str, **arguments: Any) -> Iterator[None]:
    """A call that has changed what it changes, and commits when the block ends."""
    reached, may_go_on = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        assert may_go_on.wait(20)

    hub.before_commit = wait
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(hub.call, tool, arguments, OPERATOR)
        try:
            assert reached.wait(20)
            yield
        finally:
            may_go_on.set()
        call.result()
    hub.before_commit = lambda: None


NOTE = {"type": "progress", "summary": "half done"}
STEPS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a note": ("checkpoint_add", "task_id", NOTE),
    "a plan": ("task_set_plan", "id", {"plan": HOW}),
    "a step": ("task_update_status", "id", {"status": "paused"}),
}


@pytest.mark.parametrize("second", STEPS)
@pytest.mark.parametrize("first", STEPS)
def test_a_change_of_one_task_waits_for_no_change_of_another(
    hubs: tuple[Hub, Hub], held: tuple[str, dict[str, str]], first: str, second: str
) -> None:
    workflow, ids = held
    (tool, key, arguments), (other_tool, other_key, other_arguments) = STEPS[first], STEPS[second]
    with in_mid_write(hubs[0], tool, **{key: ids["t0"]}, **arguments):
        hubs[1].call(other_tool, {other_key: ids["t1"]} | other_arguments, OPERATOR)
    paused = {"paused": (first == "a step") + (second == "a step")}
    counted = hubs[0].call("workflow_progress", {"workflow_id": workflow}, OPERATOR)["by_status"]
    assert counted.get("paused", 0) == paused["paused"] and sum(counted.values()) == len(TASKS)


def test_a_pause_waits_for_the_step_that_has_begun(hubs: tuple[Hub, Hub], held: tuple[str, dict[str, str]]) -> None:
    workflow, ids = held
    with ThreadPoolExecutor(1) as threads:
        with in_mid_write(hubs[0], "task_update_status", id=ids["t0"], status="paused"):
            halt = {"id": workflow, "status": "paused", "reason": "wait"}
            pausing = threads.submit(hubs[1].call, "workflow_update_status", halt, OPERATOR)
            waits = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while not sql(hubs[1], waits)[0]["n"]:
                assert not pausing.done()
        pausing.result()
    events = [row["what"] for row in sql(hubs[0], "SELECT what FROM event ORDER BY seq DESC LIMIT 2")]
    assert events == ["workflow.updated", "task.updated"]


def test_notes_of_one_task_are_numbered_one_by_one(hubs: tuple[Hub, Hub], held: tuple[str, dict[str, str]]) -> None:
    _, ids = held
    with ThreadPoolExecutor(8) as threads:
        notes = [
            threads.submit(hubs[number % 2].call, "checkpoint_add", {"task_id": ids["t0"]} | NOTE, OPERATOR)
            for number in range(ROUNDS * 4)
        ]
    assert sorted(one.result()["sequence"] for one in notes) == list(range(1, ROUNDS * 4 + 1))
    assert hubs[0].call("task_get", {"id": ids["t0"]}, OPERATOR)["checkpoint_count"] == ROUNDS * 4


def test_whatever_moves_at_once_is_counted_right(hubs: tuple[Hub, Hub], held: tuple[str, dict[str, str]]) -> None:
    """Steps that share the workflow, and ends and claims that don't: nothing deadlocks, and the sums are right."""
    workflow, ids = held

    def live(number: int) -> None:
        hub, me = hubs[number % 2], {"id": ids[TASKS[number]]}
        for _ in range(ROUNDS):
            hub.call("task_update_status", me | {"status": "paused"}, OPERATOR)
            hub.call("task_update_status", me | {"status": "in_progress"}, OPERATOR)
        if number % 3 == 0:
            hub.call("task_update_status", me | {"status": "completed", "outcome": "done"}, OPERATOR)

    with ThreadPoolExecutor(len(TASKS)) as threads:
        for one in [threads.submit(live, number) for number in range(len(TASKS))]:
            one.result()
    counted = hubs[0].call("workflow_progress", {"workflow_id": workflow}, OPERATOR)["by_status"]
    rows = sql(hubs[0], "SELECT status, count(*) AS n FROM task GROUP BY status")
    assert {name: n for name, n in counted.items() if n} == {row["status"]: row["n"] for row in rows}


def test_a_step_of_a_paused_workflow_is_refused_as_ever(
    hubs: tuple[Hub, Hub], held: tuple[str, dict[str, str]]
) -> None:
    workflow, ids = held
    hubs[0].call("task_release", {"task_id": ids["t0"], "agent_id": holder(hubs[0], ids["t0"])}, OPERATOR)
    hubs[0].call("workflow_update_status", {"id": workflow, "status": "paused", "reason": "wait"}, OPERATOR)
    with pytest.raises(Failure) as refused:
        hubs[1].call("task_update_status", {"id": ids["t0"], "status": "in_progress"}, OPERATOR)
    assert refused.value.code == "INVALID_STATE"


def holder(hub: Hub, task_id: str) -> str:
    return str(hub.call("task_get", {"id": task_id}, OPERATOR)["claimed_by"])
