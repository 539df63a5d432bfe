"""CRITICAL_HALT: the workflow stops in the same moment as the report is kept, and a person decides how it goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure
from tests.conftest import Agent
from tests.families.judge.judge_site import CONTRACT, BackgroundCall, JudgeSite, on_both, rules, says
from tests.families.work.claims import PERSON, ask, claim, events_about, job, refuse_changes, register_agent
from tests.families.work.workflows import WORDS
from tests.outside.repos import make_repository

pytestmark = pytest.mark.slow

HALT = "CRITICAL_HALT"


def review(site: JudgeSite, task_id: str = "T-1", word: str = HALT, **contract: Any) -> dict[str, Any]:
    site.contract(task_id=task_id, **contract)
    site.cli.plays(rules(word, task_id))
    return site.review()


def status(site: JudgeSite, workflow: str) -> str:
    found: str = site.ask("workflow_get", id=workflow)["status"]
    return found


@on_both
@pytest.mark.parametrize(("names", "before"), [("task", "in_progress"), ("workflow", "ready"), ("task", "failed")])
def test_a_critical_halt_stops_the_workflow(site: JudgeSite, names: str, before: str) -> None:
    work = job(site.hub, "one", "two")
    ada, bob = register_agent(site.hub, "ada"), register_agent(site.hub, "bob")
    if before == "in_progress":
        claim(site.hub, work.tasks["one"], ada)
    if before == "failed":
        move_through("in_progress", "failed")(site, work.id, work.task)
    answer = review(site, work.task) if names == "task" else review(site, workflow_id=work.id)
    assert (answer["verdict"], answer["workflow_id"], answer["workflow_paused"]) == (HALT, work.id, True)
    stored = site.report(answer)
    assert (stored["workflow_id"], stored["task_id"]) == (work.id, work.task if names == "task" else "T-1")
    halted = site.ask("workflow_get", id=work.id)
    assert halted["status"] == "paused" and answer["report_id"] in halted["status_reason"]
    assert HALT in halted["status_reason"] and answer["task_id"] in halted["status_reason"]
    assert site.refusal("task_claim", task_id=work.tasks["two"], agent_id=bob).code == "INVALID_STATE"
    assert site.ask("task_get_available", agent_id=bob)["tasks"] == []
    assert events_about(site.hub, work.id)[-1] == ("workflow.updated", "operator", before, "paused")
    assert events_about(site.hub, answer["report_id"]) == [("report.made", "operator", None, HALT)]
    assert site.reports(workflow_id=work.id, verdict=HALT)["spent"]["reports"] == 1


def complete(site: JudgeSite, workflow: str, task: str) -> None:
    for step in ("in_progress", "completed"):
        site.ask("task_update_status", id=task, status=step, **WORDS.get(step, {}))
    site.ask("workflow_update_status", id=workflow, status="completed")


def lift(site: JudgeSite, workflow: str, status: str = "in_progress", **more: Any) -> None:
    ask(site.hub, "workflow_update_status", PERSON, id=workflow, status=status, **more)


def move_through(*steps: str) -> Callable[[JudgeSite, str, str], None]:
    def move(site: JudgeSite, workflow: str, task: str) -> None:
        for step in steps:
            site.ask("workflow_update_status", id=workflow, status=step)

    return move


FINAL: dict[str, Callable[[JudgeSite, str, str], None]] = {
    "abandoned": move_through("abandoned"),
    "completed": complete,
}


def test_a_workflow_that_is_over_is_left_as_it_is(site: JudgeSite) -> None:
    for state, move in FINAL.items():
        work = job(site.hub)
        move(site, work.id, work.task)
        before = site.ask("workflow_get", id=work.id)
        answer = review(site, work.task)
        assert (answer["verdict"], answer["workflow_paused"]) == (HALT, False)
        assert site.ask("workflow_get", id=work.id) == before and before["status"] == state


@on_both
@pytest.mark.parametrize("steps", [("in_progress", "paused"), ("in_progress", "failed"), ("in_progress",), ()])
def test_no_step_of_a_worker_before_a_halt_keeps_it_away(site: JudgeSite, steps: tuple[str, ...]) -> None:
    ada, cora = Agent(site.hub, "ada"), Agent(site.hub, "cora", "coordinator")
    work = job(site.hub)
    for step in steps:
        ada.call("workflow_update_status", id=work.id, status=step, reason="a break")
    assert review(site, work.task)["workflow_paused"] is True
    halted = site.ask("workflow_get", id=work.id)
    assert (halted["status"], halted["halted_by"]) == ("paused", "judge") and HALT in halted["status_reason"]
    for agent in (ada, cora):
        for word in ("in_progress", "abandoned", "paused", "failed"):
            with pytest.raises(Failure, match=HALT) as refusal:
                agent.call("workflow_update_status", id=work.id, status=word)
            assert refusal.value.code == "FORBIDDEN" and "Only the operator" in refusal.value.hint
        with pytest.raises(Failure, match=HALT):
            agent.call("task_claim", task_id=work.task, agent_id=agent.id)
    lift(site, work.id)
    assert ada.call("task_claim", task_id=work.task, agent_id=ada.id)["success"]


@on_both
def test_a_halt_before_the_plan_holds_until_the_operator_lets_it_be_planned(site: JudgeSite) -> None:
    ada = Agent(site.hub, "ada")
    made = ada.call("workflow_create", name="w", source_type="prompt", source_content="x")["id"]
    assert review(site, workflow_id=made)["workflow_paused"] is True
    tasks = [{"name": "one", "description": "…", "sequence": 1}]
    plan = {"id": made, "plan": {"summary": "s", "approach": "a", "tasks": tasks}}
    for tool, given in (("workflow_set_plan", plan), ("workflow_add_tasks", {"id": made, "tasks": tasks})):
        with pytest.raises(Failure, match=HALT) as refusal:
            ada.call(tool, **given)
        assert "Only the operator" in refusal.value.hint
    with pytest.raises(Failure) as without_plan:
        lift(site, made)
    assert without_plan.value.hint == "From paused it goes to planning or abandoned."
    lift(site, made, "planning")
    assert ada.call("workflow_set_plan", **plan)["status"] == "ready"


def test_no_other_verdict_stops_anything(site: JudgeSite) -> None:
    work = job(site.hub)
    for word in ("PASS", "CONDITIONAL", "FAIL"):
        answer = review(site, work.task, word)
        assert (answer["workflow_id"], answer["workflow_paused"]) == (work.id, False)
    site.cli.plays(says(HALT), {"out": "CRITICAL_HALT", "code": 1})
    assert [site.review(fresh=True)["workflow_paused"] for _ in range(2)] == [False, False]
    assert status(site, work.id) == "ready"


def test_a_contract_that_names_nothing_of_the_hall_stops_nothing(site: JudgeSite) -> None:
    work = job(site.hub)
    answer = review(site)
    assert (answer["verdict"], answer["workflow_id"], answer["workflow_paused"]) == (HALT, None, False)
    assert status(site, work.id) == "ready"


def test_a_contract_that_is_wrong_about_the_hall_is_refused(site: JudgeSite) -> None:
    one, other = job(site.hub), job(site.hub)
    wrong = [
        ({"workflow_id": "wf_nowhere"}, "wf_nowhere"),
        ({"task_id": one.task, "workflow_id": other.id}, one.id),
        ({"task_id": one.task, "workflow_id": "wf_nowhere"}, "wf_nowhere"),
        ({"task_id": "tk_000000000000"}, "tk_000000000000"),
    ]
    for contract, named in wrong:
        site.contract(**contract)
        failure = site.refusal()
        assert failure.code == "INVALID_INPUT" and named in failure.message
        given = {"contract_path": CONTRACT, "rebuttal_path": CONTRACT, "judge_report_path": CONTRACT}
        assert site.refusal("claude_resolve_conflict", **given).code == "INVALID_INPUT"
    assert (site.cli.runs(), site.reports()["reports"]) == ([], [])
    site.contract(task_id=one.task, workflow_id=one.id)
    site.cli.plays(rules("PASS", one.task))
    assert site.review()["workflow_id"] == one.id


def test_a_contract_halts_no_workflow_of_another_repository(site: JudgeSite, tmp_path: Path) -> None:
    others = make_repository(tmp_path / "others").root
    fields = {"name": "w", "source_type": "prompt", "source_content": "x"}
    other = site.ask("workflow_create", repository_path=others, **fields)["id"]
    site.contract(workflow_id=other)
    refused = site.refusal()
    assert refused.code == "INVALID_INPUT" and others in refused.message and str(site.root) in refused.message
    assert (site.cli.runs(), status(site, other)) == ([], "planning")
    own = site.ask("workflow_create", repository_path=str(site.root), **fields)["id"]
    assert review(site, workflow_id=own)["workflow_paused"] is True


@on_both
def test_a_halt_that_is_kept_halts_again(site: JudgeSite) -> None:
    work = job(site.hub)
    first = review(site, work.task)
    lift(site, work.id, reason="looked at it")
    again = site.review()
    assert (again["cached"], again["workflow_paused"], again["report_id"]) == (True, True, first["report_id"])
    halted = site.ask("workflow_get", id=work.id)
    assert halted["status"] == "paused" and first["report_id"] in halted["status_reason"]
    assert site.review()["workflow_paused"] is False, "it is paused already"


def test_a_person_decides_how_it_goes_on(site: JudgeSite) -> None:
    work = job(site.hub)
    review(site, work.task)
    for agent in (Agent(site.hub, "ada"), Agent(site.hub, "cora", "coordinator")):
        for word in ("in_progress", "abandoned"):
            with pytest.raises(Failure) as refusal:
                agent.call("workflow_update_status", id=work.id, status=word)
            assert refusal.value.code == "FORBIDDEN" and "operator" in refusal.value.hint
    for word in ("in_progress", "abandoned", "paused"):  # a local client without a token may be anyone's agent
        refused = site.refusal("workflow_update_status", id=work.id, status=word)
        assert refused.code == "FORBIDDEN" and "crewhall resume" in refused.hint and "CREWHALL_TOKEN" in refused.hint
    assert status(site, work.id) == "paused"
    lift(site, work.id)
    assert status(site, work.id) == "in_progress"


@on_both
def test_no_hint_after_a_halt_sends_an_agent_where_it_is_refused(site: JudgeSite) -> None:
    work = job(site.hub)
    answer = review(site, work.task)
    ada = Agent(site.hub, "ada")
    calls = [
        ("task_claim", {"task_id": work.task, "agent_id": ada.id}),
        ("task_update_status", {"id": work.task, "status": "in_progress"}),
        *(
            ("workflow_update_status", {"id": work.id, "status": word})
            for word in ("in_progress", "completed", "ready")
        ),
    ]
    for tool, given in calls:
        with pytest.raises(Failure) as refusal:
            ada.call(tool, **given)
        assert "Only the operator" in refusal.value.hint, (tool, refusal.value.hint)
        assert answer["report_id"] in refusal.value.message
    lift(site, work.id)
    ada.call("workflow_update_status", id=work.id, status="paused")
    with pytest.raises(Failure) as refusal:
        ada.call("task_claim", task_id=work.task, agent_id=ada.id)
    assert "Any agent resumes it" in refusal.value.hint
    ada.call("workflow_update_status", id=work.id, status="in_progress")
    assert ada.call("task_claim", task_id=work.task, agent_id=ada.id)["success"]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_halts_of_one_workflow_at_once_lose_no_verdict(
    make_hub: Callable[..., Hub], site_in: Callable[..., JudgeSite], command: list[str]
) -> None:
    site = site_in(make_hub(judge__command=command, judge__at_once=6))
    work = job(site.hub)
    for number in range(6):
        site.contract(f"{number}.json", workflow_id=work.id)
    site.cli.plays(rules(HALT, waits="go"))
    calls = [
        BackgroundCall(site.review, contract_path=f"{number}.json", report_dir=f"ignored/{number}")
        for number in range(6)
    ]
    site.cli.wait_for(6)
    site.cli.go(6)
    assert sorted(call.wait()["workflow_paused"] for call in calls) == [False] * 5 + [True]
    assert site.reports(workflow_id=work.id, verdict=HALT)["spent"]["reports"] == 6


@on_both
def test_the_report_and_the_halt_are_kept_together_or_not_at_all(site: JudgeSite, database: str) -> None:
    work = job(site.hub)
    site.contract(task_id=work.task)
    site.cli.plays(rules(HALT, work.task))
    with refuse_changes(database, "workflow", "UPDATE"), pytest.raises(Exception, match="refused by the test"):
        site.review()
    assert (site.reports()["reports"], site.report_names(), status(site, work.id)) == ([], [], "ready")
    assert site.review()["workflow_paused"]


def test_a_halt_holds_though_its_report_cannot_be_written(site: JudgeSite) -> None:
    work = job(site.hub)
    (site.root / "_handoff" / "JUDGE_REPORT.md").mkdir()
    answer = review(site, work.task)
    assert (answer["verdict"], answer["workflow_paused"], answer["report_md_path"]) == (HALT, True, None)
    assert status(site, work.id) == "paused"
