"""The judge's halt against what workers do at the same moment: nothing is claimed or set going once it is there."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.families.work.workflow.halt import halt
from crewhall.store.transaction import Work
from tests.conftest import Agent, Clock
from tests.families.work.claims import Job, ask, assert_claims_agree, job
from tests.sizes import size

ROUNDS = size(4, 1000)
MOST = 400  # calls of one worker, who ends when the halt refuses it
TASKS = ("one", "two", "three", "four")
# What a worker may hear, before the halt and of it.
REFUSALS = {"FORBIDDEN", "INVALID_STATE", "INVALID_TRANSITION", "STALE_CLAIM"}


def claims(agent: Agent, work: Job) -> Iterator[str]:
    """Claim tasks and give them back, until the halt refuses it; what each call came to."""
    for number in range(MOST):
        task = list(work.tasks.values())[number % len(work.tasks)]
        answer = attempt(agent, "task_claim", task_id=task)
        yield answer
        if answer == "ok":
            attempt(agent, "task_update_status", id=task, status="in_progress")
            attempt(agent, "task_release", task_id=task)
        if answer == "halted":
            return


def steps(agent: Agent, work: Job) -> Iterator[str]:
    """Pause, resume and fail the workflow, until the halt refuses it; what each call came to."""
    for number in range(MOST):
        status = ("in_progress", "paused", "in_progress", "failed")[number % 4]
        answer = attempt(agent, "workflow_update_status", id=work.id, status=status)
        yield answer
        if answer == "halted":
            return


def attempt(agent: Agent, tool: str, **given: str) -> str:
    try:
        return "ok" if agent.call(tool, **given).get("success") else "taken"
    except Failure as failure:
        assert failure.code in REFUSALS, failure
        return "halted" if "CRITICAL_HALT" in failure.message else "refused"


def test_nothing_is_claimed_or_set_going_after_a_halt(
    make_hub: Callable[..., Hub], clock: Clock, database: str
) -> None:
    hubs = [make_hub(clock=clock) for _ in range(2)]
    agents = [Agent(hubs[number % 2], f"worker {number}") for number in range(4)]
    met: Counter[str] = Counter()
    for number in range(ROUNDS):
        work = job(hubs[0], *TASKS)
        begun = threading.Barrier(len(agents) + 1)

        moved = threading.Event()

        def play(
            place: int, work: Job = work, begun: threading.Barrier = begun, moved: threading.Event = moved
        ) -> list[str]:
            begun.wait(20)
            answers = []
            for answer in (claims if place % 2 else steps)(agents[place], work):
                answers.append(answer)
                if answer == "ok":
                    moved.set()
            return answers

        def stop(
            work: Job = work, begun: threading.Barrier = begun, number: int = number, moved: threading.Event = moved
        ) -> None:
            begun.wait(20)
            if number == 0:
                assert moved.wait(20), "in one round at least the halt comes after a claim"
            for _ in range(number % 7):
                ask(hubs[0], "workflow_get", id=work.id)
            with hubs[number % 2].store.write(Work("operator", None, now=clock.now)) as tx:
                assert halt(tx, work.id, "a report", clock.now)

        with ThreadPoolExecutor(len(agents) + 1) as threads:
            players = [threads.submit(play, place) for place in range(len(agents))]
            threads.submit(stop).result(60)
            for player in players:
                answers = player.result(60)
                assert answers[-1] == "halted", "every worker met the halt"
                met.update(answers)
        assert_halted(hubs[0], work)
    assert_claims_agree(database)
    print(f"{ROUNDS} rounds: {json.dumps(met)}")
    assert met["ok"]


def assert_halted(hub: Hub, work: Job) -> None:
    """The workflow is halted, and nothing after its halt claimed a task of it or changed it."""
    halted = ask(hub, "workflow_get", id=work.id)
    assert (halted["status"], halted["halted_by"]) == ("paused", "judge")
    about = ask(hub, "event_list", subject=work.id, limit=500)["events"]
    assert (about[-1]["what"], about[-1]["after_status"]) == ("workflow.updated", "paused")
    assert about[-1]["data"] and "CRITICAL_HALT" in json.dumps(about[-1]["data"])
    claimed = [
        event["seq"]
        for task in work.tasks.values()
        for event in ask(hub, "event_list", subject=task, limit=500)["events"]
        if event["what"] in ("task.claimed", "task.renewed")
    ]
    assert all(number < about[-1]["seq"] for number in claimed)
