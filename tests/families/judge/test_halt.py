"""CRITICAL_HALT: the workflow stops in the same moment as the report is kept, and a person decides how it goes on."""

from collections.abc import Callable
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure
from tests.conftest import Agent
from tests.families.judge.court import CONTRACT, Court, Meanwhile, on_both, rules, says
from tests.families.work.claiming import broken, claim, happened, job, registered
from tests.families.work.halls import WORDS

pytestmark = pytest.mark.slow

HALT = "CRITICAL_HALT"


def reviewed(court: Court, task_id: str = "T-1", word: str = HALT, **contract: Any) -> dict[str, Any]:
    court.contract(task_id=task_id, **contract)
    court.cli.plays(rules(word, task_id))
    return court.review()


def status(court: Court, workflow: str) -> str:
    found: str = court.ask("workflow_get", id=workflow)["status"]
    return found


@on_both
@pytest.mark.parametrize(("names", "before"), [("task", "in_progress"), ("workflow", "ready"), ("task", "failed")])
def test_a_critical_halt_stops_the_workflow(court: Court, names: str, before: str) -> None:
    work = job(court.hub, "one", "two")
    ada, bob = registered(court.hub, "ada"), registered(court.hub, "bob")
    if before == "in_progress":
        claim(court.hub, work.tasks["one"], ada)
    if before == "failed":
        moved("in_progress", "failed")(court, work.id, work.task)
    answer = reviewed(court, work.task) if names == "task" else reviewed(court, workflow_id=work.id)
    assert (answer["verdict"], answer["workflow_id"], answer["workflow_paused"]) == (HALT, work.id, True)
    stored = court.report(answer)
    assert (stored["workflow_id"], stored["task_id"]) == (work.id, work.task if names == "task" else "T-1")
    halted = court.ask("workflow_get", id=work.id)
    assert halted["status"] == "paused" and answer["report_id"] in halted["status_reason"]
    assert HALT in halted["status_reason"] and answer["task_id"] in halted["status_reason"]
    assert court.refused("task_claim", task_id=work.tasks["two"], agent_id=bob).code == "INVALID_STATE"
    assert court.ask("task_get_available", agent_id=bob)["tasks"] == []
    assert happened(court.hub, work.id)[-1] == ("workflow.updated", "operator", before, "paused")
    assert happened(court.hub, answer["report_id"]) == [("report.made", "operator", None, HALT)]
    assert court.reports(workflow_id=work.id, verdict=HALT)["spent"]["reports"] == 1


def completed(court: Court, workflow: str, task: str) -> None:
    for step in ("in_progress", "completed"):
        court.ask("task_update_status", id=task, status=step, **WORDS.get(step, {}))
    court.ask("workflow_update_status", id=workflow, status="completed")


def moved(*steps: str) -> Callable[[Court, str, str], None]:
    def move(court: Court, workflow: str, task: str) -> None:
        for step in steps:
            court.ask("workflow_update_status", id=workflow, status=step)

    return move


STATES: dict[str, Callable[[Court, str, str], None]] = {
    "paused": moved("in_progress", "paused"),
    "abandoned": moved("abandoned"),
    "completed": completed,
}


def test_a_workflow_that_nobody_works_on_is_left_as_it_is(court: Court) -> None:
    for state, move in STATES.items():
        work = job(court.hub)
        move(court, work.id, work.task)
        before = court.ask("workflow_get", id=work.id)
        answer = reviewed(court, work.task)
        assert (answer["verdict"], answer["workflow_paused"]) == (HALT, False)
        assert court.ask("workflow_get", id=work.id) == before and before["status"] == state
    planned = court.ask("workflow_create", name="w", source_type="prompt", source_content="x")["id"]
    assert reviewed(court, workflow_id=planned)["workflow_paused"] is False
    assert status(court, planned) == "planning"


def test_no_other_verdict_stops_anything(court: Court) -> None:
    work = job(court.hub)
    for word in ("PASS", "CONDITIONAL", "FAIL"):
        answer = reviewed(court, work.task, word)
        assert (answer["workflow_id"], answer["workflow_paused"]) == (work.id, False)
    court.cli.plays(says(HALT), {"out": "CRITICAL_HALT", "code": 1})
    assert [court.review(fresh=True)["workflow_paused"] for _ in range(2)] == [False, False]
    assert status(court, work.id) == "ready"


def test_a_contract_that_names_nothing_of_the_hall_stops_nothing(court: Court) -> None:
    work = job(court.hub)
    answer = reviewed(court)
    assert (answer["verdict"], answer["workflow_id"], answer["workflow_paused"]) == (HALT, None, False)
    assert status(court, work.id) == "ready"


def test_a_contract_that_is_wrong_about_the_hall_is_refused(court: Court) -> None:
    one, other = job(court.hub), job(court.hub)
    wrong = [
        ({"workflow_id": "wf_nowhere"}, "wf_nowhere"),
        ({"task_id": one.task, "workflow_id": other.id}, one.id),
        ({"task_id": one.task, "workflow_id": "wf_nowhere"}, "wf_nowhere"),
    ]
    for contract, named in wrong:
        court.contract(**contract)
        failure = court.refused()
        assert failure.code == "INVALID_INPUT" and named in failure.message
        given = {"contract_path": CONTRACT, "rebuttal_path": CONTRACT, "judge_report_path": CONTRACT}
        assert court.refused("claude_resolve_conflict", **given).code == "INVALID_INPUT"
    assert (court.cli.runs(), court.reports()["reports"]) == ([], [])
    court.contract(task_id=one.task, workflow_id=one.id)
    court.cli.plays(rules("PASS", one.task))
    assert court.review()["workflow_id"] == one.id


@on_both
def test_a_halt_that_is_kept_halts_again(court: Court) -> None:
    work = job(court.hub)
    first = reviewed(court, work.task)
    court.ask("workflow_update_status", id=work.id, status="in_progress", reason="looked at it")
    again = court.review()
    assert (again["cached"], again["workflow_paused"], again["report_id"]) == (True, True, first["report_id"])
    halted = court.ask("workflow_get", id=work.id)
    assert halted["status"] == "paused" and first["report_id"] in halted["status_reason"]
    assert court.review()["workflow_paused"] is False, "it is paused already"


def test_a_person_decides_how_it_goes_on(court: Court) -> None:
    work = job(court.hub)
    reviewed(court, work.task)
    for agent in (Agent(court.hub, "ada"), Agent(court.hub, "cora", "coordinator")):
        for word in ("in_progress", "abandoned"):
            with pytest.raises(Failure) as refused:
                agent.call("workflow_update_status", id=work.id, status=word)
            assert refused.value.code == "FORBIDDEN" and "operator" in refused.value.hint
    assert status(court, work.id) == "paused"
    court.ask("workflow_update_status", id=work.id, status="in_progress")
    assert status(court, work.id) == "in_progress"


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_halts_of_one_workflow_at_once_lose_no_verdict(
    make_hub: Callable[..., Hub], court_in: Callable[..., Court], command: list[str]
) -> None:
    court = court_in(make_hub(judge__command=command, judge__at_once=6))
    work = job(court.hub)
    for number in range(6):
        court.contract(f"{number}.json", workflow_id=work.id)
    court.cli.plays(rules(HALT, waits="go"))
    calls = [
        Meanwhile(court.review, contract_path=f"{number}.json", report_dir=f"ignored/{number}") for number in range(6)
    ]
    court.cli.wait_for(6)
    court.cli.go(6)
    assert sorted(call.over()["workflow_paused"] for call in calls) == [False] * 5 + [True]
    assert court.reports(workflow_id=work.id, verdict=HALT)["spent"]["reports"] == 6


@on_both
def test_the_report_and_the_halt_are_kept_together_or_not_at_all(court: Court, database: str) -> None:
    work = job(court.hub)
    court.contract(task_id=work.task)
    court.cli.plays(rules(HALT, work.task))
    with broken(database, "workflow", "UPDATE"), pytest.raises(Exception, match="refused by the test"):
        court.review()
    assert (court.reports()["reports"], court.handed(), status(court, work.id)) == ([], [], "ready")
    assert court.review()["workflow_paused"]


def test_a_halt_holds_though_its_report_cannot_be_written(court: Court) -> None:
    work = job(court.hub)
    (court.root / "_handoff" / "JUDGE_REPORT.md").mkdir()
    answer = reviewed(court, work.task)
    assert (answer["verdict"], answer["workflow_paused"], answer["report_md_path"]) == (HALT, True, None)
    assert status(court, work.id) == "paused"
