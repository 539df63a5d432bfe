"""Claims that race: by threads and by several hubs of one hall, against all else that changes a task or an agent."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crewhall.app import Hub, Origin
from crewhall.errors import Failure
from crewhall.families.all import registry
from crewhall.identity import OPERATOR, Actor
from tests.conftest import Agent, Clock, eventually, settings_for
from tests.families.work.claims import (
    PERSON,
    PLAN,
    agent_of,
    ask,
    assert_claims_agree,
    claim,
    events_about,
    job,
    pass_time,
    register_agent,
    rows,
    task_of,
)
from tests.sizes import size

MakeHub = Callable[..., Hub]
Step = Callable[[], Any]
ROUNDS = size(6, 12)
# What a race may end in for the one who comes late; anything else, a deadlock above all, is a bug.
LATE = {"STALE_CLAIM", "INVALID_STATE", "INVALID_TRANSITION", "TASK_BLOCKED", "FORBIDDEN", "LIMIT_EXCEEDED"}

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def at_once(*steps: Step) -> list[Any]:
    """What each step gives, or the code of its failure; all begin together."""
    together = threading.Barrier(len(steps))

    def run(step: Step) -> Any:
        together.wait(20)
        try:
            return step()
        except Failure as failure:
            assert failure.code in LATE, failure
            return failure.code

    with ThreadPoolExecutor(len(steps)) as threads:
        return list(threads.map(run, steps, timeout=60))


@pytest.fixture
def hubs(make_hub: MakeHub, clock: Clock) -> list[Hub]:
    """Three hubs of one hall."""
    return [make_hub(clock=clock) for _ in range(3)]


@pytest.mark.parametrize("count", [1, 3], ids=["threads of one hub", "three hubs"])
def test_of_many_who_claim_at_once_one_wins_and_the_others_hear_who(hubs: list[Hub], database: str, count: int) -> None:
    agents = [register_agent(hubs[0], f"agent {number}") for number in range(9)]
    for _ in range(size(2, 4)):
        work = job(hubs[0])
        steps = [claiming(hubs[number % count], work.task, agent) for number, agent in enumerate(agents)]
        answers = at_once(*steps)
        (winner,) = (agent for agent, answer in zip(agents, answers, strict=True) if answer["success"])
        lost = {"success": False, "already_claimed_by": winner, "claim_epoch": None, "lease_expires_at": None}
        lost |= {"workspace": None, "workspace_problem": None}
        assert [answer for answer in answers if not answer["success"]] == [lost] * 8
        assert task_of(hubs[0], work.task, "claimed_by", "claim_epoch") == (winner, 1)
        assert len(events_about(hubs[0], work.task, "task.claimed")) == 1
        assert len(events_about(hubs[0], work.id, "workflow.updated")) == 1
        ask(hubs[0], "task_release", task_id=work.task, agent_id=winner)
    assert_claims_agree(database)


def claiming(hub: Hub, task: str, agent: str) -> Step:
    return lambda: ask(hub, "task_claim", task_id=task, agent_id=agent)


def test_a_worker_abandons_no_workflow_in_which_another_claims_at_that_moment(hubs: list[Hub], database: str) -> None:
    agents = [Agent(hub, name) for hub, name in zip(hubs, ("ada", "bob", "eve"), strict=True)]
    met: Counter[tuple[bool, bool]] = Counter()
    for _ in range(size(6, 2000)):
        work = job(hubs[0], "one", "two")
        pairs = zip(agents[:2], work.tasks.values(), strict=True)
        claims = [partial(agent.call, "task_claim", task_id=task) for agent, task in pairs]
        *claimed, abandoned = at_once(*claims, partial(abandon, agents[2], work.id))
        has_claimed = [answer != "INVALID_STATE" for answer in claimed]
        assert (abandoned == "FORBIDDEN") is any(has_claimed), (claimed, abandoned)
        met[any(has_claimed), all(has_claimed)] += 1
        holders = [task_of(hubs[0], task, "claimed_by") for task in work.tasks.values()]
        assert [holder is not None for holder in holders] == has_claimed
    assert_claims_agree(database)
    print(f"some claimed, all claimed: {met}")


def abandon(agent: Agent, workflow: str) -> Any:
    return agent.call("workflow_update_status", id=workflow, status="abandoned")


@pytest.mark.parametrize("most", [1, 3])
def test_claims_and_starts_that_race_never_run_more_tasks_than_may(hubs: list[Hub], database: str, most: int) -> None:
    """Half claim, a quarter start a task that nobody holds, and a quarter claim one by moving it with a token."""
    agents = [register_agent(hubs[0], f"agent {number}") for number in range(4)]
    tokens = [Agent(hubs[0], f"token {number}") for number in range(2)]
    for _ in range(size(3, 200)):
        work = job(hubs[0], *(f"t{number}" for number in range(8)), most=most)
        tasks = list(work.tasks.values())
        steps = [claiming(hubs[number % 3], tasks[number], agent) for number, agent in enumerate(agents)]
        steps += [
            moving(hubs[number % 3], tasks[number], actor)
            for number, actor in zip(range(4, 8), (OPERATOR, OPERATOR, *(one.actor for one in tokens)), strict=True)
        ]
        answers = at_once(*steps)
        assert Counter(answer if isinstance(answer, str) else "granted" for answer in answers) == {
            "granted": most,
            "LIMIT_EXCEEDED": 8 - most,
        }
        here = f"SELECT count(*) AS n FROM task WHERE workflow_id = '{work.id}'"
        assert rows(database, f"{here} AND (claimed_by IS NOT NULL OR status = 'in_progress')") == [{"n": most}]
        assert ask(hubs[0], "workflow_next_tasks", workflow_id=work.id)["recommended_count"] == 0
        ask(hubs[0], "workflow_update_status", id=work.id, status="abandoned")
    assert_claims_agree(database)


def moving(hub: Hub, task: str, actor: Actor) -> Step:
    return lambda: ask(hub, "task_update_status", actor, id=task, status="in_progress")


def test_one_agent_that_claims_everywhere_at_once_has_one_claim(hubs: list[Hub], database: str) -> None:
    bob, work = register_agent(hubs[0]), job(hubs[0])
    answers = at_once(*(claiming(hub, work.task, bob) for hub in hubs * 2))
    assert [(answer["success"], answer["claim_epoch"]) for answer in answers] == [(True, 1)] * 6
    assert_claims_agree(database)


def test_an_agent_that_takes_and_ends_tasks_of_several_workflows_at_once_is_busy_iff_it_holds_one(
    hubs: list[Hub], database: str
) -> None:
    bob = register_agent(hubs[0])
    for _ in range(ROUNDS // 2):
        works = [job(hubs[0], "one", "two") for _ in hubs]
        first = [next(iter(work.tasks.values())) for work in works]
        second = [work.tasks["two"] for work in works]
        for task in first:
            claim(hubs[0], task, bob)
        claims = [claiming(hub, task, bob) for hub, task in zip(hubs, second, strict=True)]
        ends = [releasing(hub, task, bob) for hub, task in zip(hubs, first, strict=True)]
        at_once(*claims, *ends)
        assert_claims_agree(database)
        at_once(*(releasing(hub, task, bob) for hub, task in zip(hubs, second, strict=True)))
        assert agent_of(hubs[0], bob, "status", "current_task_id") == ("online", None)
        assert_claims_agree(database)


def releasing(hub: Hub, task: str, agent: str) -> Step:
    return lambda: ask(hub, "task_release", task_id=task, agent_id=agent, reason="enough")


def test_a_claim_that_races_a_release_is_refused_or_has_the_next_epoch(hubs: list[Hub], database: str) -> None:
    bob, eve = register_agent(hubs[0], "bob"), register_agent(hubs[0], "eve")
    work = job(hubs[0])
    for _ in range(ROUNDS):
        epoch = claim(hubs[0], work.task, bob)
        taken, _ = at_once(claiming(hubs[1], work.task, eve), releasing(hubs[2], work.task, bob))
        if taken["success"]:
            assert taken["claim_epoch"] == epoch + 1
            ask(hubs[0], "task_release", task_id=work.task, agent_id=eve)
        else:
            assert taken["already_claimed_by"] == bob
        assert task_of(hubs[0], work.task, "claimed_by") is None
        assert_claims_agree(database)


def test_a_claim_that_races_the_end_of_a_task_never_holds_a_finished_one(hubs: list[Hub], database: str) -> None:
    bob, eve = register_agent(hubs[0], "bob"), register_agent(hubs[0], "eve")
    ways: Counter[str] = Counter()
    for number in range(ROUNDS):
        work = job(hubs[0])
        claim(hubs[0], work.task, bob)
        ask(hubs[0], "task_update_status", id=work.task, status="in_progress")
        told = {"status": "completed", "outcome": "done"} if number % 2 else {"status": "failed", "error": "no"}
        finish = _asking(hubs[1], "task_update_status", id=work.task, claim_epoch=1, **told)
        taken, done = at_once(claiming(hubs[2], work.task, eve), finish)
        assert done == {"success": True}, "the holder's own write is never refused"
        ways[str(taken if isinstance(taken, str) else taken["success"])] += 1
        assert task_of(hubs[0], work.task, "status") == told["status"], "no update is lost"
        assert_claims_agree(database)
        if task_of(hubs[0], work.task, "claimed_by"):
            ask(hubs[0], "task_release", task_id=work.task, agent_id=eve)
    assert set(ways) <= {"True", "False", "INVALID_STATE"}, ways


def _asking(hub: Hub, tool: str, **given: Any) -> Step:
    return lambda: ask(hub, tool, **given)


def test_claims_that_race_an_end_of_the_workflow_leave_nobody_with_a_task_of_it(hubs: list[Hub], database: str) -> None:
    agents = [register_agent(hubs[0], f"agent {number}") for number in range(4)]
    for _ in range(ROUNDS // 2):
        work = job(hubs[0], "one", "two", "three", "four")
        held = list(work.tasks.values())
        for agent, task in zip(agents[:2], held, strict=False):
            claim(hubs[0], task, agent)
        steps = [claiming(hubs[1], task, agent) for agent, task in zip(agents[2:], held[2:], strict=True)]
        steps += [releasing(hubs[2], held[0], agents[0])]
        at_once(*steps, _asking(hubs[0], "workflow_update_status", id=work.id, status="abandoned"))
        assert [task_of(hubs[0], task, "claimed_by") for task in held] == [None] * 4
        assert [agent_of(hubs[0], agent, "status") for agent in agents] == ["online"] * 4
        assert_claims_agree(database)


def test_claims_that_race_new_tasks_are_kept_and_so_are_the_tasks(hubs: list[Hub], database: str) -> None:
    agents = [register_agent(hubs[0], f"agent {number}") for number in range(3)]
    work = job(hubs[0], *(f"task {number}" for number in range(ROUNDS)))
    for number, task in enumerate(list(work.tasks.values())[: ROUNDS // 2]):
        new = {"name": f"new {number}", "description": "…", "sequence": 1, "depends_on": [f"task {number}"]}
        more = _asking(hubs[0], "workflow_add_tasks", id=work.id, tasks=[new])
        answers = at_once(*(claiming(hub, task, agent) for hub, agent in zip(hubs, agents, strict=True)), more)
        assert sum(answer["success"] for answer in answers[:3]) == 1
        assert refused_or_blocked(hubs[0], answers[3]["task_ids"][0], agents[0]) == "TASK_BLOCKED"
        assert_claims_agree(database)
    assert ask(hubs[0], "workflow_get", id=work.id)["task_count"] == ROUNDS + ROUNDS // 2


def refused_or_blocked(hub: Hub, task: str, agent: str) -> str:
    try:
        claim(hub, task, agent)
    except Failure as failure:
        return failure.code
    return "claimed"


def test_leaving_while_claiming_leaves_nothing_that_the_chore_does_not_find(
    hubs: list[Hub], clock: Clock, database: str
) -> None:
    bob = register_agent(hubs[0])
    for _ in range(ROUNDS // 2):
        works = [job(hubs[0]) for _ in range(3)]
        claim(hubs[0], works[0].task, bob)
        leave = _asking(hubs[2], "agent_unregister", id=bob)
        at_once(*(claiming(hub, work.task, bob) for hub, work in zip(hubs, works[1:], strict=False)), leave)
        assert task_of(hubs[0], works[0].task, "claimed_by") is None
        if agent_of(hubs[0], bob, "status") == "offline":
            clock.advance(1)
            hubs[0].chores.run_due()
            assert [task_of(hubs[0], work.task, "claimed_by") for work in works] == [None] * 3
        assert_claims_agree(database)
        ask(hubs[0], "agent_unregister", id=bob)
        assert_claims_agree(database)
        ask(hubs[0], "agent_heartbeat", agent_id=bob)


def test_an_agent_that_comes_back_while_it_is_missed_keeps_all_or_nothing(
    make_hub: MakeHub, clock: Clock, database: str
) -> None:
    hubs = [make_hub(clock=clock, agent__lease=60) for _ in range(2)]
    pass_time(clock, 70, *hubs)
    outcomes: Counter[bool] = Counter()
    for _ in range(ROUNDS // 2):
        bob, eve = register_agent(hubs[0], "bob"), register_agent(hubs[0], "eve")
        works = [job(hubs[0]) for _ in range(3)]
        for work in works:
            claim(hubs[0], work.task, bob)
        hubs[0].chores.run_due()  # what it saw of bob is noted now, and not at a later tick
        pass_time(clock, 60, *hubs)
        clock.advance(10)
        again = claiming(hubs[1], works[0].task, bob)
        other = claiming(hubs[1], works[1].task, eve)
        back, taken, _ = at_once(again, other, hubs[0].chores.run_due)
        assert_claims_agree(database)
        is_missed = bool(events_about(hubs[0], bob, "agent.expired"))
        outcomes[is_missed] += 1
        assert back["claim_epoch"] == (2 if is_missed else 1)
        assert len(events_about(hubs[0], works[2].task, "task.expired")) == is_missed
        assert task_of(hubs[0], works[2].task, "claimed_by") == (None if is_missed else bob)
        assert not taken["success"] or is_missed
        for agent in (bob, eve):
            ask(hubs[0], "agent_unregister", id=agent)
    assert outcomes.total() == ROUNDS // 2


def test_everything_at_once_neither_hangs_nor_leaves_a_contradiction(
    make_hub: MakeHub, clock: Clock, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Three hubs, twelve threads, three workflows: claims, ends, new tasks, leaving, coming back, and the chores."""
    hubs = [make_hub(clock=clock, agent__lease=1, agent__heartbeat=1) for _ in range(3)]
    agents = [register_agent(hubs[0], f"agent {number}") for number in range(6)]
    works = [job(hubs[0], *(f"task {number}" for number in range(8))) for _ in range(3)]
    tasks = [task for work in works for task in work.tasks.values()]
    steps = [_wandering(hubs[number % 3], number, agents, tasks, [work.id for work in works]) for number in range(10)]
    steps += [_ticking(hub, clock) for hub in hubs[:2]]
    at_once(*steps)
    for _ in range(10):
        clock.advance(0.3)
        hubs[0].chores.run_due()
    clock.advance(100)
    pass_time(clock, 70, hubs[0])
    assert not [record for record in caplog.records if record.levelname == "ERROR"], caplog.text
    assert rows(database, "SELECT id FROM task WHERE claimed_by IS NOT NULL") == [], "all went quiet long ago"
    assert_claims_agree(database)
    count = rows(database, "SELECT count(*) AS n FROM checkpoint WHERE type = 'progress'")[0]["n"]
    assert count == len(rows(database, "SELECT DISTINCT task_id, sequence FROM checkpoint WHERE type = 'progress'"))


def _wandering(hub: Hub, number: int, agents: Sequence[str], tasks: Sequence[str], works: Sequence[str]) -> Step:
    """Steps of one thread through tools and tasks, each thread in an order of its own."""

    def run() -> None:
        for step in range(size(9, 20)):
            place = number * 7 + step * 5
            agent, task = agents[place % len(agents)], tasks[place % len(tasks)]
            new = {"name": f"new {number} {step}", "description": "…", "sequence": 1}
            choices: list[tuple[str, dict[str, Any]]] = [
                ("task_claim", {"task_id": task, "agent_id": agent}),
                ("task_update_status", {"id": task, "status": "in_progress"}),
                ("checkpoint_add", {"task_id": task, "type": "progress", "summary": "so far"}),
                ("task_claim", {"task_id": task, "agent_id": agent}),
                ("task_release", {"task_id": task, "agent_id": agent, "reason": "lunch"}),
                ("task_update_status", {"id": task, "status": "failed", "error": "no"}),
                ("task_replan", {"id": task, "reason": "again", "new_plan": PLAN}),
                ("agent_unregister" if step % 3 else "agent_heartbeat", {"id" if step % 3 else "agent_id": agent}),
                ("workflow_add_tasks", {"id": works[place % len(works)], "tasks": [new]}),
            ]
            tool, given = choices[(number + step) % len(choices)]
            try:
                hub.call(tool, given, OPERATOR, origin=Origin(bridge=f"br_{place % 4}"))
            except Failure as failure:
                assert failure.code in LATE, (tool, failure)

    return run


def _ticking(hub: Hub, clock: Clock) -> Step:
    def run() -> None:
        with hub.presence.connection("br_1"), hub.presence.connection("br_3"):
            for _ in range(size(12, 25)):
                clock.now += 50
                hub.chores.run_due()

    return run


@pytest.fixture
def wide(postgres_url: str, tmp_path: Path, clock: Clock) -> Iterator[Hub]:
    """A hub on PostgreSQL, where writers overlap."""
    hub = Hub(settings_for(postgres_url, tmp_path, agent__lease=60), registry(), clock=clock)
    yield hub
    hub.close()


def overlap(url: str, table: str, first: str, second: str, step: Step) -> None:
    """One who has the first row and wants the second gets it, while a step waits that takes both."""
    lock = f"SELECT id FROM {table} WHERE id = %s FOR UPDATE"
    with psycopg.connect(url) as other, ThreadPoolExecutor(1) as thread:
        other.execute("SET lock_timeout = '5s'")
        other.execute(lock, [first])
        stepping = thread.submit(step)
        eventually(lambda: rows(url, WAITING))
        other.execute(lock, [second])
        other.commit()
        stepping.result(20)


def test_a_hand_over_takes_agents_in_the_order_of_their_ids(wide: Hub, postgres_url: str) -> None:
    first, second = sorted(register_agent(wide, name) for name in ("one", "two"))
    for holder, to in ((first, second), (second, first)):
        task = job(wide).task
        claim(wide, task, holder)
        step = partial(ask, wide, "task_hand_over", PERSON, task_id=task, to=to, reason="r")
        overlap(postgres_url, "agent", first, second, step)
        assert task_of(wide, task, "claimed_by", "claim_epoch") == (to, 2)
    assert_claims_agree(postgres_url)


def test_noting_who_is_here_takes_agents_in_the_order_of_their_ids(wide: Hub, postgres_url: str) -> None:
    first, second = sorted(register_agent(wide, name, Origin(bridge="br_1")) for name in ("one", "two"))
    with wide.presence.connection("br_1"), wide.presence.connection("br_2"):
        wide.presence.note_call(second, "br_2", wide.clock())
        overlap(postgres_url, "agent", first, second, wide.chores.run_due)
    found = rows(postgres_url, f"SELECT bridge FROM bridge_agent WHERE agent_id = '{second}' ORDER BY bridge")
    assert [row["bridge"] for row in found] == ["br_1", "br_2"]


def test_abandoning_a_workflow_takes_agents_in_the_order_of_their_ids(wide: Hub, postgres_url: str) -> None:
    first, second = sorted(register_agent(wide, name) for name in ("one", "two"))
    work = job(wide, "one", "two")
    for agent, task in zip((first, second), sorted(work.tasks.values(), reverse=True), strict=True):
        claim(wide, task, agent)
    abandon = _asking(wide, "workflow_update_status", id=work.id, status="abandoned")
    overlap(postgres_url, "agent", first, second, abandon)
    assert_claims_agree(postgres_url)


def test_leaving_takes_workflows_in_the_order_of_their_ids(wide: Hub, postgres_url: str) -> None:
    bob, works = register_agent(wide), sorted((job(wide) for _ in range(2)), key=lambda work: work.id)
    for work in works:
        claim(wide, work.task, bob)
    overlap(postgres_url, "workflow", works[0].id, works[1].id, _asking(wide, "agent_unregister", id=bob))
    assert_claims_agree(postgres_url)


def test_an_agent_that_beats_when_it_is_about_to_be_missed_keeps_its_task(
    wide: Hub, postgres_url: str, clock: Clock
) -> None:
    pass_time(clock, 70, wide)
    bob, work = register_agent(wide), job(wide)
    claim(wide, work.task, bob)
    wide.chores.run_due()
    pass_time(clock, 60, wide)
    clock.advance(10)
    with psycopg.connect(postgres_url) as other, ThreadPoolExecutor(1) as thread:
        other.execute("SELECT id FROM workflow FOR UPDATE")
        ticking = thread.submit(wide.chores.run_due)
        eventually(lambda: rows(postgres_url, WAITING))  # it has found that the lease is over
        ask(wide, "agent_heartbeat", agent_id=bob)
        other.commit()
        ticking.result(20)
    assert task_of(wide, work.task, "claimed_by") == bob and not events_about(wide, bob, "agent.expired")
    assert_claims_agree(postgres_url)
