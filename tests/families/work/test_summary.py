"""A workflow on one page: what it says, that it stays one page, and that nothing in it opens a heading of its own."""

import re
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.families.work.context.summary import LISTED, TOKENS
from tests.conftest import Clock
from tests.families.work.claims import claim, register_agent
from tests.families.work.workflows import (
    PLAN,
    Ask,
    code_of,
    finish,
    list_tasks,
    move,
    new_workflow,
    plan_workflow,
    task,
)
from tests.outside.samples import real_cost, real_count

NASTY = ('漢"\\\n\x01😀\u0301𒀀 ' * 20_000)[:90_000]
PAGE = TOKENS + 200
HEADINGS = ["Being worked on", "Ready to begin", "Failed", "Finished lately"]


def summary(ask: Ask, workflow: str) -> dict[str, Any]:
    body = ask("workflow_get_summary", id=workflow)
    assert body["token_estimate"] == real_cost(body["summary"]) <= PAGE
    told: dict[str, Any] = body["summary"]
    return told


def page(ask: Ask, workflow: str) -> str:
    body = ask("workflow_get_summary", id=workflow, format="markdown")
    assert body["token_estimate"] == real_count(body["summary"]) <= PAGE
    text: str = body["summary"]
    return text


@pytest.fixture
def flow(hub: Hub, operator: Ask, clock: Clock) -> tuple[str, dict[str, str]]:
    """Six tasks: two finished, one failed, one held with a note, one free, one that waits."""
    workflow, ids = plan_workflow(
        operator,
        *(task(name) for name in ("first", "second", "broken", "held", "free")),
        task("waiting", 2, depends_on=["free"]),
        name="the compiler",
        source_content="Write a compiler.\nIt must be fast.",
    )
    for name in ("first", "second"):
        clock.advance(1)
        finish(operator, ids[name])
    move(operator, ids["broken"], "in_progress", "failed")
    claim(hub, ids["held"], register_agent(hub))
    operator("checkpoint_add", task_id=ids["held"], type="progress", summary="half way")
    return workflow, ids


def test_the_page_says_what_is_wanted_how_far_it_is_and_who_is_at_what(
    operator: Ask, flow: tuple[str, dict[str, str]]
) -> None:
    workflow, ids = flow
    told = summary(operator, workflow)
    assert (told["id"], told["name"]) == (workflow, "the compiler")
    assert told["status"] == operator("workflow_get", id=workflow)["status"]
    assert (told["source"], told["plan"]) == ("Write a compiler.\nIt must be fast.", "in short\nstep by step")
    counted = {"tasks": 6, "finished": 2, "running": 1, "failed": 1, "blocked": 1, "ready": 1}
    assert told["progress"] == counted and told["left_out"] is None
    holder = operator("task_get", id=ids["held"])["claimed_by"]
    (held,) = told["running"]
    assert held == {"id": ids["held"], "name": "held", "status": "pending", "claimed_by": holder, "noted": "half way"}
    assert [(one["name"], one["outcome"]) for one in told["recent"]] == [("second", "done"), ("first", "done")]
    assert told["failed"] == [{"id": ids["broken"], "name": "broken", "error": "broken"}]
    assert told["next"] == [{"id": ids["free"], "name": "free"}]


def test_json_is_what_is_given_when_no_format_is_named(operator: Ask, flow: tuple[str, dict[str, str]]) -> None:
    plain, named = (operator("workflow_get_summary", id=flow[0], **more) for more in ({}, {"format": "json"}))
    assert plain == named and isinstance(plain["summary"], dict)


def test_the_page_as_markdown_has_the_same_for_a_reader(operator: Ask, flow: tuple[str, dict[str, str]]) -> None:
    workflow, ids = flow
    text = page(operator, workflow)
    status = operator("workflow_get", id=workflow)["status"]
    assert text.startswith(f"# the compiler ({status})\n\nWorkflow {workflow}: 2 of 6 tasks finished;")
    assert "1 running, 1 ready, 1 blocked, 1 failed." in text
    assert "**Asked for**: Write a compiler. It must be fast." in text and "**Plan**: in short step by step" in text
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    assert f"- second (`{ids['second']}`): done" in text and f"- broken (`{ids['broken']}`): broken" in text
    assert re.search(rf"- held \(`{ids['held']}`, ag_\w+\): half way\n", text) and text.endswith("\n")


def test_a_workflow_without_a_plan_has_a_page_too(operator: Ask) -> None:
    workflow = new_workflow(operator)
    assert summary(operator, workflow)["progress"]["tasks"] == 0
    text = page(operator, workflow)
    assert "There is no plan yet." in text and "##" not in text


def test_what_agents_write_opens_no_heading(hub: Hub, operator: Ask) -> None:
    evil = "x\n# Do this\r\n## and that\x0b# or\x85# else\u2028# now\n===\n- item"
    workflow, ids = plan_workflow(operator, *(task(f"{evil}{n}") for n in range(4)), name=evil, source_content=evil)
    done, failed, held, _ = ids.values()
    move(operator, done, "in_progress")
    operator("task_update_status", id=done, status="completed", outcome=evil)
    move(operator, failed, "in_progress")
    operator("task_update_status", id=failed, status="failed", error=evil)
    claim(hub, held, register_agent(hub))
    operator("checkpoint_add", task_id=held, type="progress", summary=evil)
    lines = page(operator, workflow).splitlines()
    assert [line for line in lines[1:] if line.startswith("#")] == [f"## {title}" for title in HEADINGS]
    assert not [line for line in lines if line.startswith(("=", "---"))]
    assert sum(line.startswith("- ") for line in lines) == 4


@pytest.mark.parametrize("text", ["It was done and noted. " * 3_000, NASTY], ids=["prose", "nasty"])
def test_it_stays_one_page_whatever_is_stored_and_tells_what_it_left_out(hub: Hub, operator: Ask, text: str) -> None:
    many, half = 120, 40
    names = [f"{number:03}" + "𒀀" * 190 for number in range(many)]
    workflow = new_workflow(operator, name="𒀀" * 200, source_content=text, max_parallel_tasks=25)
    plan = {"summary": text[:6_000], "approach": text[:2_000], "tasks": [task(name) for name in names]}
    operator("workflow_set_plan", id=workflow, plan=plan)
    ids = [one["id"] for one in list_tasks(operator, workflow)]
    bob = register_agent(hub)
    for task_id in ids[:half]:
        move(operator, task_id, "in_progress")
        operator("task_update_status", id=task_id, status="completed", outcome=text)
    for task_id in ids[half : half + 25]:
        move(operator, task_id, "in_progress")
        operator("task_update_status", id=task_id, status="failed", error=text)
    for task_id in ids[half + 25 : half + 50]:
        claim(hub, task_id, bob)
        operator("checkpoint_add", task_id=task_id, type="progress", summary=text)
    told = summary(operator, workflow)
    totals = {"running": 25, "recent": 40, "failed": 25, "next": 30}
    for name, total in totals.items():
        assert 0 < len(told[name]) <= LISTED and len(told[name]) + told["left_out"][name] == total
    assert text.startswith(told["source"]) and len(told["source"]) + told["left_out"]["source"] == len(text)
    assert told["progress"] == {"tasks": 120, "finished": 40, "running": 25, "failed": 25, "blocked": 0, "ready": 30}
    assert f"{told['left_out']['failed']} of failed" in page(operator, workflow)


def test_a_page_of_nothing_there_and_of_no_known_format_is_refused(
    operator: Ask, flow: tuple[str, dict[str, str]]
) -> None:
    assert code_of(operator, "workflow_get_summary", id="wf_nothing") == "NOT_FOUND"
    assert code_of(operator, "workflow_get_summary", id=flow[0], format="html") == "INVALID_INPUT"
    assert PLAN["summary"] in str(summary(operator, flow[0])["plan"])
