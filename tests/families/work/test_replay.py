"""The event log holds enough to replay the hall: forwards from nothing, backwards from what it is."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure, TaskBlocked
from crewhall.store.changes import TEXT_BYTES
from crewhall.store.recording import record
from tests.conftest import Agent, Clock
from tests.families.work.claims import claim, job, pass_time, register_agent
from tests.families.work.workflows import Ask, move, new_workflow, plan_workflow, sql, task
from tests.replay import Replay, assert_replayed, changes_in, events_after, stored
from tests.sizes import size


@pytest.fixture
def hub(make_hub: Callable[..., Hub], clock: Clock) -> Hub:
    return make_hub(clock=clock, agent__lease=60)


def history(hub: Hub, operator: Ask, clock: Clock) -> None:
    """Some of everything: plans, claims that end in each way, tasks that go, an agent that is gone."""
    made = job(hub, "one", "two", {"name": "three", "depends_on": ["one"]}, "four")
    ada, bob = register_agent(hub, "ada"), register_agent(hub, "bob")
    operator("workflow_set_parallelism", id=made.id, max_parallel_tasks=3)
    claim(hub, made.tasks["one"], ada)
    claim(hub, made.tasks["two"], bob)
    clock.advance(5)
    move(operator, made.tasks["one"], "in_progress", "completed")
    operator("task_release", task_id=made.tasks["two"], agent_id=bob)
    claim(hub, made.tasks["three"], bob)
    operator("workflow_remove_task", id=made.id, task_id=made.tasks["four"])
    pass_time(clock, 150, hub)
    operator("workflow_update_status", id=made.id, status="paused", reason="lunch")


def test_a_replay_gives_what_the_tables_hold_and_undone_nothing(hub: Hub, operator: Ask, clock: Clock) -> None:
    history(hub, operator, clock)
    state = stored(hub)
    assert {row["ended_how"] for row in state["claim"].values()} >= {"completed", "released", "expired"}
    assert_replayed(hub)


def test_a_replay_stops_at_any_event(hub: Hub, operator: Ask, clock: Clock) -> None:
    _, ids = plan_workflow(operator, task("a"), task("b", depends_on=["a"]))
    then, cursor = stored(hub), operator("event_list", limit=1)["newest"]
    move(operator, ids["a"], "in_progress", "completed")
    replay = Replay()
    replay.apply(changes_in(event for event in events_after(hub, 0) if event["seq"] <= cursor))
    assert replay.state == then != stored(hub)


def test_an_event_that_leaves_its_change_out_is_noticed(hub: Hub, operator: Ask, clock: Clock) -> None:
    history(hub, operator, clock)
    events = [event for event in events_after(hub, 0) if event["changes"]]
    for planted in events:
        replay = Replay()
        with pytest.raises(AssertionError):
            replay.apply(changes_in(event for event in events if event is not planted))
            assert replay.state == stored(hub)


def test_a_column_that_a_statement_changes_behind_the_log_is_noticed(hub: Hub, operator: Ask, clock: Clock) -> None:
    history(hub, operator, clock)
    hub.store.texts["test"] = "UPDATE task SET claim_epoch = claim_epoch + 1"
    with hub.own_work() as tx:
        tx.run("test")
    with pytest.raises(AssertionError):
        assert_replayed(hub)


def test_events_say_what_each_call_changed(hub: Hub, operator: Ask) -> None:
    made = job(hub)
    ada = register_agent(hub, "ada")
    start = operator("event_list", limit=1)["newest"]
    claim(hub, made.task, ada)
    changes = {event["what"]: event["changes"] for event in events_after(hub, start)}
    workflow = [(one["before"]["status"], one["after"]["status"]) for one in changes["workflow.updated"]]
    assert workflow == [("ready", "in_progress")]
    held, record = sorted(changes["task.claimed"], key=lambda change: str(change["noun"]), reverse=True)
    assert (held["noun"], held["id"], held["before"]["claimed_by"]) == ("task", made.task, None)
    assert (held["after"]["claimed_by"], held["after"]["claim_epoch"]) == (ada, 1)
    assert (record["noun"], record["id"], record["before"]) == ("claim", f"{made.task}/1", None)
    agent = changes["agent.updated"][0]
    assert agent["before"] == {"status": "online", "current_task_id": None}
    assert agent["after"] == {"status": "busy", "current_task_id": made.task}


def test_a_refused_call_changes_nothing_in_the_log(hub: Hub, operator: Ask) -> None:
    made = job(hub, "one", {"name": "two", "depends_on": ["one"]})
    ada = Agent(hub)
    start = operator("event_list", limit=1)["newest"]
    with pytest.raises(TaskBlocked):
        ada.call("task_claim", task_id=made.tasks["two"])
    assert not list(events_after(hub, start))


@pytest.mark.parametrize("letters", ["a", "é", "\U0001f980"])
def test_an_event_stays_under_16_kb_and_a_large_plan_is_several(hub: Hub, operator: Ask, letters: str) -> None:
    names = [f"{number}{letters * 190}" for number in range(120)]
    workflow = new_workflow(operator, name=letters * 200, source_ref=letters * 2000)
    tasks = [task(name, depends_on=names[:number][-3:]) for number, name in enumerate(names)]
    operator("workflow_set_plan", id=workflow, plan={"summary": "s", "approach": "a", "tasks": tasks})
    operator("workflow_update_status", id=workflow, status="abandoned", reason=letters * 2000)
    rows = sql(hub, "SELECT * FROM event ORDER BY seq")
    assert max(len(json.dumps(row, ensure_ascii=False).encode()) for row in rows) < 16_000
    parts = [row["what"] for row in rows if row["subject"] == workflow]
    assert parts.count("workflow.planned") == 1 and parts.count("hall.changed") >= 3
    assert parts.index("workflow.planned") > parts.index("hall.changed"), "at the plan's own event it is whole"
    assert all(len(change["after"].get("source_ref", "").encode()) <= TEXT_BYTES for change in created(hub))
    replay = Replay()
    replay.follow(hub)
    assert replay.state["task"] == stored(hub)["task"] and len(replay.state["dependency"]) == 3 * 120 - 6


def created(hub: Hub) -> list[dict[str, dict[str, str]]]:
    return [change for change in changes_in(events_after(hub, 0)) if change["before"] is None]


def test_what_a_block_takes_back_is_in_no_event(hub: Hub, operator: Ask) -> None:
    """A key that was used is refused in a savepoint: what the block had changed goes with it."""
    first = operator("workflow_create", name="a", source_type="prompt", source_content="x", idempotency_key="k")
    again = operator("workflow_create", name="a", source_type="prompt", source_content="x", idempotency_key="k")
    assert first["id"] == again["id"]
    assert len(created(hub)) == 1
    assert_replayed(hub)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO task (id, name) SELECT id, name FROM task",
        "INSERT INTO task (id, name) VALUES (:id, upper(:name))",
        "INSERT INTO task (id) VALUES (:id) ON CONFLICT (id) DO NOTHING",
        "UPDATE task SET status = 'failed'",
        "DELETE FROM task",
    ],
)
@pytest.mark.parametrize("joins", [True, False])
def test_a_statement_that_cannot_be_recorded_is_refused(text: str, joins: bool) -> None:
    with pytest.raises(ValueError, match="not read"):
        record(text, joins=joins)


@pytest.mark.parametrize("text", ["UPDATE task SET tail = :tail WHERE id = :id", "DELETE FROM token WHERE id = :id"])
def test_a_statement_that_changes_nothing_recorded_stays_as_it_is(text: str) -> None:
    assert record(text, joins=True) == (text, None)


def test_changes_of_many_at_once_follow_one_another(hub: Hub) -> None:
    """Each change begins where the last one of its row ended, also where PostgreSQL's writers overlap."""
    agents = [Agent(hub, name) for name in ("ada", "bob")]
    made = job(hub, "one", "two", "three")

    def work(number: int) -> None:
        agent, task_id = agents[number % 2], list(made.tasks.values())[number % 3]
        agent.call("agent_heartbeat", status=("online", "busy")[number // 2 % 2])
        if agent.call("task_claim", task_id=task_id)["success"]:
            agent.call("task_release", task_id=task_id)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, number) for number in range(size(60, 600))]:
            with suppress(Failure):  # another thread of the same agent has released it
                done.result(timeout=60)
    assert_replayed(hub)
