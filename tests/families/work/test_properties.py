"""
Whatever agents do, in whatever order: what holds after each step, and that every plan comes to its end.

The oracle knows the plan and nothing of gates, counters or tails; it reads the tables and counts anew.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from crewhall.app import Hub
from crewhall.errors import Failure, InvalidInput
from crewhall.families.all import registry
from crewhall.families.work.task.model import TASK_STATUSES
from crewhall.families.work.workflow.rules_plan import MINUTES
from crewhall.identity import OPERATOR
from crewhall.store.transaction import Row
from tests.conftest import Agent, Clock, settings_for
from tests.families.work.test_rules_plan import blockers, finishing_order, graph_task, longest
from tests.families.work.test_rules_task import TASK_GOES, WORKFLOW_GOES
from tests.families.work.workflows import HOW, PLAN, WORDS, Ask, plan_workflow, sql, task
from tests.postgres import Cluster
from tests.replay import Replay, assert_replayed, stored
from tests.sizes import size

DONE = ("completed", "skipped")
BACK = {(before, "pending") for before in ("planning", "in_progress", "paused", "failed")}
SEQUENCES = st.integers(0, 3)
NAMES = [f"t{number}" for number in range(14)]
SHORT = {"agent__lease": 60.0}  # a lease that often ends
# What may refuse a call here; anything else is a bug.
REFUSALS = {
    "INVALID_INPUT",
    "NOT_FOUND",
    "INVALID_STATE",
    "INVALID_TRANSITION",
    "TASK_BLOCKED",
    "STALE_CLAIM",
    "FORBIDDEN",
    "LIMIT_EXCEEDED",
}


def live(row: Row) -> bool:
    return row["status"] not in DONE


def waited_for(rows: Iterable[Row], edges: set[tuple[str, str]]) -> dict[str, set[str]]:
    """The unfinished tasks that each unfinished task waits for, read off the plan."""
    by_id = {row["id"]: row for row in rows}
    wanted: dict[str, set[str]] = {task_id: set() for task_id in by_id}
    for task_id, other in edges:
        wanted[task_id].add(other)
    return {
        task_id: (
            {other for other in wanted[task_id] if live(by_id[other])}
            if wanted[task_id]
            else {
                other["id"]
                for other in by_id.values()
                if live(other) and other["workflow_id"] == row["workflow_id"] and other["sequence"] < row["sequence"]
            }
        )
        for task_id, row in by_id.items()
        if live(row)
    }


class Crew(RuleBasedStateMachine):
    """Three agents with tokens, the operator, two workflows, a clock that jumps."""

    open_hub: Callable[[Clock], Hub]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.hub = type(self).open_hub(self.clock)
        self.agents = [Agent(self.hub, name) for name in ("ada", "bob", "eve")]
        self.workflows: list[str] = []
        self.noted: dict[str, set[str]] = {}  # checkpoints that were acknowledged, by task
        self.before: dict[str, Row] = {}
        self.workflow_before: dict[str, str] = {}
        self.seen = 0
        self.replay = Replay()

    def teardown(self) -> None:
        assert_replayed(self.hub)
        self.hub.close()

    def operator(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return self.hub.call(tool, arguments, OPERATOR)

    def attempt(self, who: int, tool: str, /, **arguments: Any) -> dict[str, Any] | None:
        """What the call gave, or None when it was refused as it may be. 3 is the operator."""
        try:
            return self.agents[who].call(tool, **arguments) if who < 3 else self.operator(tool, **arguments)
        except Failure as failure:
            assert failure.code in REFUSALS, (tool, arguments, failure.message)
            return None

    def pick(self, number: int) -> str:
        """Some task, whichever there are."""
        rows = sorted(self.before.values(), key=lambda row: (row["workflow_id"], row["place"]))
        return str(rows[number % len(rows)]["id"]) if rows else "tk_none"

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        for _ in range(2):
            made = self.operator("workflow_create", name="w", source_type="prompt", source_content="")
            self.workflows.append(made["id"])
        self.replan_workflow(data, 0)
        self.everything_holds()

    def tasks(self, data: st.DataObject) -> list[dict[str, Any]]:
        names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True))
        return [
            task(
                name,
                data.draw(SEQUENCES),
                depends_on=data.draw(st.lists(st.sampled_from(NAMES), max_size=2)) if data.draw(st.booleans()) else [],
                parallel_group=data.draw(st.sampled_from([None, "g"])),
                estimated_complexity=data.draw(st.sampled_from([None, "low", "high"])),
            )
            for name in names
        ]

    @rule(data=st.data(), which=st.integers(0, 1))
    def replan_workflow(self, data: st.DataObject, which: int) -> None:
        tasks = self.tasks(data)
        names = [one["name"] for one in tasks]
        for one in tasks:  # mostly plans that are taken, so that there is something to do
            one["depends_on"] = [name for name in one["depends_on"] if name in names[: names.index(one["name"])]]
        self.attempt(3, "workflow_set_plan", id=self.workflows[which], plan=PLAN | {"tasks": tasks})

    @rule(data=st.data(), which=st.integers(0, 1))
    def add_tasks(self, data: st.DataObject, which: int) -> None:
        self.attempt(3, "workflow_add_tasks", id=self.workflows[which], tasks=self.tasks(data))

    @rule(number=st.integers(0, 20), which=st.integers(0, 1))
    def remove_task(self, number: int, which: int) -> None:
        self.attempt(3, "workflow_remove_task", id=self.workflows[which], task_id=self.pick(number))

    @rule(
        which=st.integers(0, 1),
        status=st.sampled_from(["in_progress", "in_progress", "paused", "failed", "completed", "ready", "abandoned"]),
        sure=st.integers(0, 3),
    )
    def move_workflow(self, which: int, status: str, sure: int) -> None:
        if status != "abandoned" or sure == 0:
            self.attempt(3, "workflow_update_status", id=self.workflows[which], status=status)

    @rule(who=st.integers(0, 2), number=st.integers(0, 20))
    def claim(self, who: int, number: int) -> None:
        answer = self.attempt(who, "task_claim", task_id=self.pick(number))
        if answer is not None:
            held = self.operator("task_get", id=self.pick(number))["claimed_by"]
            assert held == (self.agents[who].id if answer["success"] else answer["already_claimed_by"])

    @rule(who=st.integers(0, 2), number=st.integers(0, 20), reason=st.sampled_from([None, "why"]))
    def release(self, who: int, number: int, reason: str | None) -> None:
        more = {} if reason is None else {"reason": reason}
        self.attempt(who, "task_release", task_id=self.pick(number), **more)

    @rule(who=st.integers(0, 3), to=st.integers(0, 2), number=st.integers(0, 20))
    def hand_over(self, who: int, to: int, number: int) -> None:
        task_id, taker = self.pick(number), self.agents[to].id
        before = self.before.get(task_id)
        answer = self.attempt(who, "task_hand_over", task_id=task_id, to=taker, reason="r")
        if answer is not None:
            after = self.operator("task_get", id=task_id)
            assert before is not None and answer["handed_from"] == before["claimed_by"] != taker
            assert (after["claimed_by"], after["claim_epoch"]) == (taker, before["claim_epoch"] + 1)
            shown = "pending" if after["status"] == "blocked" else after["status"]
            assert shown == before["status"]

    @rule(who=st.integers(0, 3), number=st.integers(0, 20), status=st.sampled_from(TASK_STATUSES))
    def move_task(self, who: int, number: int, status: str) -> None:
        self.attempt(who, "task_update_status", id=self.pick(number), status=status, **WORDS.get(status, {}))

    @rule(who=st.integers(0, 3), number=st.integers(0, 20))
    def go_through(self, who: int, number: int) -> None:
        for status in ("in_progress", "completed"):
            self.move_task(who, number, status)
            self.everything_holds()

    @rule(who=st.integers(0, 3), number=st.integers(0, 20))
    def note(self, who: int, number: int) -> None:
        task_id = self.pick(number)
        made = self.attempt(who, "checkpoint_add", task_id=task_id, type="progress", summary="s")
        if made is not None:
            self.noted.setdefault(task_id, set()).add(made["id"])

    @rule(who=st.integers(0, 3), number=st.integers(0, 20))
    def replan(self, who: int, number: int) -> None:
        task_id = self.pick(number)
        made = self.attempt(who, "task_replan", id=task_id, reason="r", new_plan=HOW)
        if made is not None:
            self.noted.setdefault(task_id, set()).add(made["checkpoint_id"])

    @rule(who=st.integers(0, 3), number=st.integers(0, 20))
    def set_plan(self, who: int, number: int) -> None:
        self.attempt(who, "task_set_plan", id=self.pick(number), plan=HOW)

    @rule(who=st.integers(0, 2), tool=st.sampled_from(["agent_heartbeat", "agent_unregister", "agent_update"]))
    def beat_or_leave(self, who: int, tool: str) -> None:
        assert self.attempt(who, tool) is not None

    @rule(seconds=st.sampled_from([10, 30, 95, 1900]))
    def time_goes_by(self, seconds: int) -> None:
        """The hub is awake all the time; agents that give no sign of life are missed."""
        for _ in range(0, min(seconds, 120), 20):
            self.clock.advance(20)
            self.hub.chores.run_due()
        if seconds > 120:  # the hub sleeps too, so that it waits for one whole lease
            self.clock.advance(seconds)
            self.hub.chores.run_due()

    @invariant()
    def everything_holds(self) -> None:
        rows = sql(self.hub, "SELECT * FROM task ORDER BY id")
        after = {row["id"]: row for row in rows}
        edges = {(edge["task_id"], edge["depends_on_id"]) for edge in sql(self.hub, "SELECT * FROM task_dependency")}
        self.one_holder_each(rows)
        self.steps_are_of_the_table(after, edges)
        self.graph_is_counted(rows, edges)
        self.workflows_are_counted(rows)
        self.nothing_noted_is_lost(rows)
        self.replay.follow(self.hub)
        assert self.replay.state == stored(self.hub), "the event log holds every change"
        self.before = after

    def one_holder_each(self, rows: list[Row]) -> None:
        claims = sql(self.hub, "SELECT * FROM claim WHERE ended_at IS NULL")
        held = {row["id"]: (row["claimed_by"], row["claim_epoch"]) for row in rows if row["claimed_by"]}
        assert {claim["task_id"]: (claim["agent_id"], claim["epoch"]) for claim in claims} == held
        assert len(claims) == len(held)
        assert not any(row["claimed_by"] for row in rows if not live(row)), "what is finished is held by no one"
        agents = {row["id"]: row for row in sql(self.hub, "SELECT * FROM agent")}
        for holder, _ in held.values():
            assert agents[holder]["status"] != "offline", "one that has gone holds nothing"

    def steps_are_of_the_table(self, after: dict[str, Row], edges: set[tuple[str, str]]) -> None:
        told = sql(self.hub, "SELECT * FROM event WHERE seq > :seen ORDER BY seq", seen=self.seen)
        self.seen = max([event["seq"] for event in told], default=self.seen)
        steps: dict[str, list[tuple[str, str, str]]] = {}
        for event in told:
            if event["what"].startswith("task.") and event["after_status"]:
                step = (event["what"], event["before_status"], event["after_status"])
                steps.setdefault(event["subject"], []).append(step)
        waiting = waited_for(self.before.values(), {edge for edge in edges if edge[0] in self.before})
        for task_id, row in after.items():
            was = self.before[task_id]["status"] if task_id in self.before else "pending"
            for what, before, then in steps.get(task_id, []):
                assert before == was, "each event goes on where the last one ended"
                was = then
                if what == "task.renewed":
                    assert before in ("pending", "failed") and then not in DONE
                    continue
                assert (before, then) in TASK_GOES | BACK or before == then, (what, before, then)
                begins = before in ("pending", "failed") and then in ("planning", "in_progress")
                assert not (begins and waiting.get(task_id)), "nothing begins while it waits"
            assert was == row["status"], "no status changes without its event"
            assert row["claim_epoch"] >= self.before.get(task_id, {"claim_epoch": 0})["claim_epoch"]

    def graph_is_counted(self, rows: list[Row], edges: set[tuple[str, str]]) -> None:
        waiting = waited_for(rows, edges)
        depending = Counter(task_id for task_id, _ in edges)
        for workflow in self.workflows:
            mine = [row for row in rows if row["workflow_id"] == workflow]
            steps = [
                graph_task(
                    row["id"],
                    row["sequence"],
                    *(other for one, other in edges if one == row["id"]),
                    minutes=MINUTES[row["estimated_complexity"]],
                    is_finished=not live(row),
                )
                for row in mine
            ]
            graph = blockers(steps)
            assert graph == {row["id"]: waiting[row["id"]] for row in mine if live(row)}
            assert len(finishing_order(graph)) == len(graph), "every plan can be finished"
            tails = longest(steps, graph)
            for row in mine:
                assert row["dependency_count"] == depending[row["id"]]
                count = len(waiting.get(row["id"], ()))
                assert row["waits_for"] == (count if depending[row["id"]] else min(1, count)), row
                if live(row):
                    assert row["tail"] == tails[row["id"]], row

    def workflows_are_counted(self, rows: list[Row]) -> None:
        for found in sql(self.hub, "SELECT * FROM workflow"):
            mine = [row for row in rows if row["workflow_id"] == found["id"]]
            statuses = Counter(row["status"] for row in mine)
            finished = sum(statuses[status] for status in DONE)
            counts = (found["task_count"], found["finished_count"], found["completed_count"])
            assert counts == (len(mine), finished, statuses["completed"])
            shown = self.operator("workflow_progress", workflow_id=found["id"])
            waiting = sum(row["status"] == "pending" and row["waits_for"] > 0 for row in mine)
            expected = dict.fromkeys(TASK_STATUSES, 0) | statuses | {"blocked": waiting}
            assert shown["by_status"] == expected | {"pending": statuses["pending"] - waiting}
            was = self.workflow_before.get(found["id"], "planning")
            assert was == found["status"] or self.way(was, found["status"]), (was, found["status"])
            self.workflow_before[found["id"]] = found["status"]

    @staticmethod
    def way(before: str, after: str) -> bool:
        return (before, after) in WORKFLOW_GOES

    def nothing_noted_is_lost(self, rows: list[Row]) -> None:
        kept: dict[str, list[int]] = {}
        known: dict[str, set[str]] = {}
        for row in sql(self.hub, "SELECT id, task_id, sequence FROM checkpoint ORDER BY task_id, sequence"):
            kept.setdefault(row["task_id"], []).append(row["sequence"])
            known.setdefault(row["task_id"], set()).add(row["id"])
        for row in rows:
            assert kept.get(row["id"], []) == list(range(1, row["checkpoint_count"] + 1))
        for task_id, noted in self.noted.items():
            assert noted <= known[task_id]


def machine(open_hub: Callable[[Clock], Hub]) -> type[Crew]:
    return type("Crew", (Crew,), {"open_hub": staticmethod(open_hub)})


def run(open_hub: Callable[[Clock], Hub], examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    case = machine(open_hub).TestCase
    case.settings = chosen
    case().runTest()


@pytest.mark.slow
def test_whatever_agents_do_no_rule_of_the_hall_is_broken_on_sqlite(tmp_path: Path) -> None:
    numbers = iter(range(10**6))

    def open_hub(clock: Clock) -> Hub:
        return Hub(settings_for(str(tmp_path / f"{next(numbers)}.db"), tmp_path, **SHORT), registry(), clock=clock)

    run(open_hub, examples=size(6, 12), steps=40)


def test_whatever_agents_do_no_rule_of_the_hall_is_broken_on_postgres(cluster: Cluster, tmp_path: Path) -> None:
    urls: list[str] = []

    def open_hub(clock: Clock) -> Hub:
        urls.append(cluster.create())
        return Hub(settings_for(urls[-1], tmp_path, **SHORT), registry(), clock=clock)

    try:
        run(open_hub, examples=2, steps=25)
    finally:
        for url in urls:
            cluster.drop(url)


# Every plan comes to its end


def random_plan(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Tasks that depend on earlier ones, mostly of sequences that fit."""
    tasks = []
    for number in range(count):
        sequence = number * 8 // count if chance.random() < 0.97 else chance.randrange(8)
        wanted = chance.sample(range(number), min(number, chance.choice([0, 0, 1, 2, 3])))
        depends_on = [f"t{other}" for other in wanted]
        tasks.append(task(f"t{number}", sequence, depends_on=depends_on, parallel_group=chance.choice([None, "g"])))
    chance.shuffle(tasks)
    return tasks


def can_be_finished(tasks: list[dict[str, Any]]) -> bool:
    graph = blockers([graph_task(one["name"], one["sequence"], *one["depends_on"]) for one in tasks])
    return len(finishing_order(graph)) == len(graph)


def offers(ask: Ask, agent: Agent, workflow: str, chance: random.Random) -> list[str]:
    """Ids of tasks that the hall offers, by one of the two ways to ask."""
    if chance.random() < 0.5:
        answer = agent.call("task_get_available", workflow_id=workflow, limit=20)
    else:
        answer = ask("workflow_next_tasks", workflow_id=workflow)
    return [one["id"] for one in answer["tasks"]]


@pytest.mark.parametrize(("seed", "count"), [(1, 40), (2, 25), (3, 12), (4, 5), (5, 1)])
def test_every_plan_that_is_taken_can_be_driven_to_its_end(hub: Hub, operator: Ask, seed: int, count: int) -> None:
    drive(hub, operator, seed, count)


def test_a_plan_of_three_hundred_tasks_is_driven_to_its_end(tmp_path: Path, clock: Clock) -> None:
    hub = Hub(settings_for(str(tmp_path / "hall.db"), tmp_path), registry(), clock=clock)
    try:
        drive(hub, lambda tool, /, **arguments: hub.call(tool, arguments, OPERATOR), 6, size(100, 300))
    finally:
        hub.close()


def drive(hub: Hub, operator: Ask, seed: int, count: int) -> None:
    """Agents take what is offered, and complete it, skip it, or fail and try again, until all is complete."""
    chance = random.Random(seed)
    tasks = random_plan(chance, count)
    while not can_be_finished(tasks):
        with pytest.raises(InvalidInput, match="for ever"):
            plan_workflow(operator, *tasks)
        tasks = random_plan(chance, count)
    workflow, _ = plan_workflow(operator, *tasks, max_parallel_tasks=3)
    agents = [Agent(hub, name) for name in ("ada", "bob")]
    finished: set[str] = set()
    calls = 0
    while not operator("workflow_next_tasks", workflow_id=workflow, limit=1)["all_complete"]:
        agent = chance.choice(agents)
        offered = offers(operator, agent, workflow, chance)
        assert offered, "something can always be done"
        assert not finished & set(offered), "nothing is offered twice"
        for task_id in chance.sample(offered, min(len(offered), 4)):
            finished |= work_on(agent, task_id, chance)
            calls += 1
        assert calls <= 20 * count + 20
    assert len(finished) == count
    operator("workflow_update_status", id=workflow, status="completed")


def work_on(agent: Agent, task_id: str, chance: random.Random) -> set[str]:
    assert agent.call("task_claim", task_id=task_id)["success"]
    ends: Iterator[str] = iter(["skipped"] if chance.random() < 0.2 else ["in_progress", "completed"])
    if chance.random() < 0.2:
        ends = iter(["in_progress", "failed"])
    status = ""
    for status in ends:
        agent.call("task_update_status", id=task_id, status=status, **WORDS.get(status, {}))
    return {task_id} if status in DONE else set()


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_is_refused_exactly_when_it_can_never_be_finished(operator: Ask, seed: int) -> None:
    chance = random.Random(seed)
    verdicts = set()
    for _ in range(size(8, 15)):
        count = chance.randrange(2, 12)
        tasks = [
            task(
                f"t{number}",
                chance.randrange(3),
                depends_on=[f"t{other}" for other in range(count) if other != number and chance.random() < 0.12],
            )
            for number in range(count)
        ]
        verdict = can_be_finished(tasks)
        verdicts.add(verdict)
        if verdict:
            plan_workflow(operator, *tasks)
        else:
            with pytest.raises(InvalidInput, match="for ever"):
                plan_workflow(operator, *tasks)
    assert verdicts == {True, False}
