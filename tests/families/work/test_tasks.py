"""Tasks, checkpoints and long texts through the door, on both databases."""

from itertools import product
from typing import Any, get_args

import pytest

from crewhall.app import Hub
from crewhall.errors import InvalidInput, InvalidState, InvalidTransition, NotFound
from crewhall.families.work.checkpoint.model import CheckpointType
from crewhall.families.work.task.model import TASK_STATUSES
from crewhall.families.work.task.rules import TASK_NEXT
from tests.conftest import Agent, Clock
from tests.families.work.test_rules_task import STORED, TASK_GOES
from tests.families.work.workflows import (
    HOW,
    Ask,
    all_rows,
    code_of,
    events,
    finish,
    ids,
    list_tasks,
    move,
    new_workflow,
    newest,
    plan_workflow,
    register,
    sql,
    statuses,
    task,
)

WAYS: dict[str, list[str]] = {  # how a task comes to be in a status
    "pending": [],
    "planning": ["planning"],
    "in_progress": ["in_progress"],
    "paused": ["in_progress", "paused"],
    "completed": ["in_progress", "completed"],
    "failed": ["in_progress", "failed"],
    "skipped": ["skipped"],
}


@pytest.fixture
def one(operator: Ask) -> str:
    """A task of a plan."""
    return plan_workflow(operator, task("a"))[1]["a"]


# Get and list


def test_a_task_has_the_seeds_fields(operator: Ask, clock: Clock) -> None:
    workflow, found = plan_workflow(operator, task("a"), task("b", 2, depends_on=["a"]))
    assert operator("task_get", id=found["b"]) == {
        "id": found["b"],
        "workflow_id": workflow,
        "name": "b",
        "description": "do b",
        "status": "blocked",
        "sequence": 2,
        "parallel_group": None,
        "depends_on": ["a"],
        "estimated_complexity": None,
        "files_likely_affected": [],
        "required_capabilities": [],
        "plan": None,
        "context": None,
        "outcome": None,
        "outcome_detail": None,
        "error": None,
        "claimed_by": None,
        "claim_epoch": 0,
        "claimed_at": None,
        "lease_expires_at": None,
        "checkpoint_count": 0,
        "workspace_id": None,
        "started_at": None,
        "finished_at": None,
        "created_at": clock.now,
        "updated_at": clock.now,
        "left_out": None,
        "checkpoints": None,
    }


def test_a_task_shows_its_newest_checkpoints_oldest_first_when_asked(operator: Ask, one: str) -> None:
    for number in range(5):
        operator("checkpoint_add", task_id=one, type="progress", summary=f"s{number}")

    def summaries_shown(**more: Any) -> Any:
        checkpoints = operator("task_get", id=one, **more)["checkpoints"]
        return checkpoints and [checkpoint["summary"] for checkpoint in checkpoints]

    assert (
        summaries_shown() is None
        and summaries_shown(checkpoint_limit=2) is None
        and summaries_shown(include_checkpoints=False) is None
    )
    assert summaries_shown(include_checkpoints=True) == ["s0", "s1", "s2", "s3", "s4"], "all when no limit is given"
    assert summaries_shown(include_checkpoints=True, checkpoint_limit=2) == ["s3", "s4"]
    assert operator("task_get", id=one)["checkpoint_count"] == 5


def test_tasks_are_listed_by_shown_status_and_holder_and_paged(operator: Ask) -> None:
    workflow, found = plan_workflow(
        operator, *(task(f"t{number}", number // 3) for number in range(9)), max_parallel_tasks=2
    )
    agent = register(operator)
    operator("task_claim", task_id=found["t1"], agent_id=agent)
    move(operator, found["t2"], "in_progress", "failed")

    def names(**more: Any) -> list[str]:
        page = operator("task_list", workflow_id=workflow, **more)
        assert page["total"] == len(page["tasks"]) and page["next_cursor"] is None
        return [one["name"] for one in page["tasks"]]

    assert names() == names(status=[]) == [f"t{number}" for number in range(9)]
    assert names(status=["blocked"]) == ["t3", "t4", "t5", "t6", "t7", "t8"]
    assert names(status=["pending"]) == ["t0", "t1"] and names(status=["failed", "pending"]) == ["t0", "t1", "t2"]
    assert names(status=["completed"]) == [] and names(claimed_by=agent) == ["t1"]
    assert names(status=["blocked"], claimed_by=agent) == [] and names(claimed_by="ag_nobody") == []
    seen = []
    cursor: dict[str, Any] = {}
    while cursor is not None:
        page = operator("task_list", workflow_id=workflow, status=["blocked"], limit=4, **cursor)
        assert page["total"] == 6
        seen.append([one["name"] for one in page["tasks"]])
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else None  # type: ignore[assignment]
    assert seen == [["t3", "t4", "t5", "t6"], ["t7", "t8"]]
    assert operator("task_list", workflow_id=workflow, limit=9)["next_cursor"] is None


# Available


def test_available_tasks_are_ready_free_and_fit_what_the_agent_is_good_at(operator: Ask, clock: Clock) -> None:
    first, mine = plan_workflow(
        operator,
        task("plain", 1),
        task("rust", 1, required_capabilities=["rust"]),
        task("both", 1, required_capabilities=["rust", "sql"]),
        task("later", 2),
        task("held", 1),
        task("broken", 1),
        task("done", 1),
        max_parallel_tasks=3,
    )
    clock.advance(1)
    second, others = plan_workflow(operator, task("other"))
    move(operator, mine["broken"], "in_progress", "failed")
    finish(operator, mine["done"])
    operator("task_claim", task_id=mine["held"], agent_id=register(operator, "eve"))

    def names_offered(agent: str, **more: Any) -> list[str]:
        answer = operator("task_get_available", agent_id=agent, **more)
        assert answer["total"] >= len(answer["tasks"])
        return [one["name"] for one in answer["tasks"]]

    nobody = register(operator, "nobody")
    rust = register(operator, "rust", capabilities=["rust", "go"])
    every = register(operator, "every", capabilities=["sql", "rust"])
    assert names_offered(nobody) == ["plain", "broken", "other"], "the oldest workflow first"
    assert names_offered(rust) == ["plain", "rust", "broken", "other"]
    assert names_offered(every) == ["plain", "rust", "both", "broken", "other"]
    assert names_offered(every, workflow_id=first) == ["plain", "rust", "both", "broken"]
    assert names_offered(nobody, workflow_id=second) == ["other"]
    assert names_offered(every, limit=2) == ["plain", "rust"] and names_offered(every, limit=2, offset=3) == [
        "broken",
        "other",
    ]
    page = operator("task_get_available", agent_id=every, limit=2)
    assert (page["total"], page["next_offset"]) == (5, 2)
    assert operator("task_get_available", agent_id=every, offset=3)["next_offset"] is None
    whole = operator("task_get_available", agent_id=every, limit=3)["tasks"][2]
    assert whole["required_capabilities"] == ["rust", "sql"] and whole == operator("task_get", id=mine["both"])
    assert code_of(operator, "task_get_available", agent_id="ag_nobody") == "NOT_FOUND"
    assert code_of(operator, "task_get_available", agent_id=rust, workflow_id="wf_no") == "NOT_FOUND"
    assert code_of(operator, "task_claim", task_id=mine["both"], agent_id=rust) == "INVALID_STATE"
    assert operator("task_claim", task_id=mine["both"], agent_id=every)["success"]
    operator("workflow_update_status", id=second, status="abandoned")
    assert names_offered(nobody) == ["plain", "broken"]
    assert others


def test_ten_available_tasks_are_shown_unless_more_are_asked_for(operator: Ask) -> None:
    plan_workflow(operator, *(task(f"t{number}") for number in range(12)))
    agent = register(operator)
    page = operator("task_get_available", agent_id=agent)
    assert (len(page["tasks"]), page["total"], page["next_offset"]) == (10, 12, 10)
    assert len(operator("task_get_available", agent_id=agent, limit=500)["tasks"]) == 12


def test_the_longest_chain_is_offered_first_within_a_sequence(operator: Ask) -> None:
    workflow, _ = plan_workflow(
        operator, task("short"), task("long"), task("after", depends_on=["long"]), task("next", 0)
    )
    agent = register(operator)
    finish(operator, ids(operator, workflow)["next"])
    assert [one["name"] for one in operator("task_get_available", agent_id=agent)["tasks"]] == ["long", "short"]


# Plan


def test_a_task_keeps_its_plan_and_joins_its_context(hub: Hub, operator: Ask, one: str) -> None:
    plan = HOW | {"files_to_modify": ["a.py"], "files_to_create": ["b/c.py"], "context_needed": ["the schema"]}
    at = newest(operator)
    assert operator("task_set_plan", id=one, plan=plan, context={"k": [1, None], "old": 1}) == {"success": True}
    kept = operator("task_get", id=one)
    assert (kept["plan"], kept["context"], kept["status"]) == (plan, {"k": [1, None], "old": 1}, "pending")
    operator("task_set_plan", id=one, plan=HOW, context={"k": "new"})
    kept = operator("task_get", id=one)
    assert (kept["plan"], kept["context"]) == (HOW, {"k": "new", "old": 1})
    operator("task_set_plan", id=one, plan={"approach": "", "steps": []})
    assert operator("task_get", id=one)["context"] == {"k": "new", "old": 1}
    assert events(operator, at) == [("task.planned", None, None)] * 3
    before = all_rows(hub)
    wrongs: list[dict[str, Any]] = [{"approach": "x"}, {"steps": []}, HOW | {"more": 1}, HOW | {"steps": "look"}]
    for wrong in [*wrongs, HOW | {"steps": [1]}]:
        assert code_of(operator, "task_set_plan", id=one, plan=wrong) == "INVALID_INPUT"
    with pytest.raises(InvalidInput, match=r"context is .* bytes"):
        operator("task_set_plan", id=one, plan=HOW, context={"big": "x" * 64_000})
    assert all_rows(hub) == before


def test_a_context_does_not_grow_past_its_bytes_piece_by_piece(operator: Ask, one: str) -> None:
    operator("task_set_plan", id=one, plan=HOW, context={"a": "x" * 40_000})
    assert code_of(operator, "task_set_plan", id=one, plan=HOW, context={"b": "x" * 40_000}) == "INVALID_INPUT"
    operator("task_set_plan", id=one, plan=HOW, context={"a": "x" * 50_000})


def test_a_finished_task_is_not_planned_and_an_open_one_is(operator: Ask) -> None:
    for status, way in WAYS.items():
        _, found = plan_workflow(operator, task("a"))
        move(operator, found["a"], *way)
        if status in ("completed", "skipped"):
            assert code_of(operator, "task_set_plan", id=found["a"], plan=HOW) == "INVALID_STATE"
        else:
            operator("task_set_plan", id=found["a"], plan=HOW)
            assert operator("task_get", id=found["a"])["status"] == status


# Status


def test_every_step_of_a_task_goes_as_the_design_says_through_the_door(operator: Ask) -> None:
    for before, after in product(STORED, TASK_STATUSES):
        workflow, found = plan_workflow(operator, task("a"))
        move(operator, found["a"], *WAYS[before])
        at, stored = newest(operator), operator("task_get", id=found["a"])
        if (before, after) in TASK_GOES:
            move(operator, found["a"], after)
            assert operator("task_get", id=found["a"])["status"] == after
            assert ("task.updated", before, after) in events(operator, at)
            finished = operator("workflow_get", id=workflow)["finished_count"]
            assert finished == int(after in ("completed", "skipped"))
        else:
            with pytest.raises(InvalidTransition):
                move(operator, found["a"], after)
            assert (newest(operator), operator("task_get", id=found["a"])) == (at, stored)
    assert set(TASK_NEXT) == set(STORED)


def test_an_end_keeps_its_words(hub: Hub, operator: Ask, clock: Clock) -> None:
    _, found = plan_workflow(operator, task("a"), task("b"), max_parallel_tasks=2)
    clock.advance(1)
    began = clock.now
    for name in "ab":
        move(operator, found[name], "in_progress")
    before = all_rows(hub)
    for status, missing in (("completed", "outcome"), ("failed", "error")):
        for empty in ({}, {missing: ""}):
            with pytest.raises(InvalidInput, match=f"{status} needs an {missing}"):
                operator("task_update_status", id=found["a"], status=status, outcome_detail={"k": 1}, **empty)
    assert all_rows(hub) == before
    clock.advance(1)
    told = {"outcome": "all of it", "outcome_detail": {"k": [1]}}
    assert operator("task_update_status", id=found["a"], status="completed", **told) == {"success": True}
    kept = operator("task_get", id=found["a"])
    assert {name: kept[name] for name in told} == told
    assert (kept["started_at"], kept["finished_at"], kept["error"]) == (began, clock.now, None)
    operator("task_update_status", id=found["b"], status="failed", error="broken", outcome_detail={"half": True})
    kept = operator("task_get", id=found["b"])
    assert (kept["error"], kept["outcome_detail"], kept["finished_at"]) == ("broken", {"half": True}, None)
    operator("task_update_status", id=found["b"], status="in_progress")
    assert operator("task_get", id=found["b"])["error"] == "broken", "whoever tries again sees what went wrong"
    assert code_of(operator, "task_update_status", id=found["b"], status="failed", outcome="x") == "INVALID_INPUT"
    operator("task_update_status", id=found["b"], status="paused", outcome_detail={"more": 1})
    assert operator("task_get", id=found["b"])["outcome_detail"] == {"more": 1}, "outcome_detail is always kept"


def test_a_blocked_task_is_shown_so_and_stored_as_pending(hub: Hub, operator: Ask) -> None:
    workflow, found = plan_workflow(operator, task("a"), task("b", 2), task("c", 2, depends_on=["b"]))
    assert statuses(operator, workflow) == {"a": "pending", "b": "blocked", "c": "blocked"}
    agent = register(operator)
    for name in "bc":
        for status in ("planning", "in_progress"):
            assert code_of(operator, "task_update_status", id=found[name], status=status) == "TASK_BLOCKED"
        assert code_of(operator, "task_claim", task_id=found[name], agent_id=agent) == "TASK_BLOCKED"
    assert {row["status"] for row in sql(hub, "SELECT status FROM task")} == {"pending"}


def test_a_blocked_task_can_be_skipped_and_a_skipped_one_frees_those_that_wait(operator: Ask) -> None:
    workflow, found = plan_workflow(
        operator,
        task("a", 1),
        task("b", 2, depends_on=["a"]),
        task("c", 3, depends_on=["b"]),
        task("d", 3, depends_on=["a", "b"]),
        task("e", 4),
    )
    move(operator, found["b"], "skipped")
    assert statuses(operator, workflow) == {
        "a": "pending",
        "b": "skipped",
        "c": "pending",
        "d": "blocked",
        "e": "blocked",
    }
    assert operator("workflow_get", id=workflow)["finished_count"] == 1
    move(operator, found["a"], "skipped")
    assert statuses(operator, workflow)["d"] == "pending"
    for name in "cd":
        assert statuses(operator, workflow)["e"] == "blocked"
        move(operator, found[name], "skipped")
    assert statuses(operator, workflow)["e"] == "pending"


def test_a_task_without_dependencies_waits_for_every_lower_sequence(operator: Ask) -> None:
    workflow, found = plan_workflow(operator, task("a", -5), task("b", -5), task("c", 0), task("d", 10), task("e", 10))
    for name, waiting in (("a", "cde"), ("b", "de"), ("c", ""), ("d", ""), ("e", "")):
        assert statuses(operator, workflow)[name] == "pending"
        finish(operator, found[name])
        assert {one["name"] for one in list_tasks(operator, workflow, status=["blocked"])} == set(waiting)


def test_a_failed_task_still_holds_back_what_waits_for_it(operator: Ask) -> None:
    workflow, found = plan_workflow(operator, task("a"), task("b", depends_on=["a"]), task("c", 2))
    move(operator, found["a"], "in_progress", "failed")
    assert statuses(operator, workflow) == {"a": "failed", "b": "blocked", "c": "blocked"}
    move(operator, found["a"], "in_progress", "completed")
    assert statuses(operator, workflow) == {"a": "completed", "b": "pending", "c": "blocked"}


def test_an_agent_that_begins_a_free_task_holds_it_and_an_end_lets_go(hub: Hub, operator: Ask) -> None:
    _, found = plan_workflow(operator, task("a"), task("b"))
    ada, bob = Agent(hub, "ada"), Agent(hub, "bob")
    move(ada.call, found["a"], "planning")
    kept = operator("task_get", id=found["a"])
    assert (kept["claimed_by"], kept["claim_epoch"], kept["status"]) == (ada.id, 1, "planning")
    assert operator("agent_get", id=ada.id)["status"] == "busy"
    for tool, more in (
        ("task_update_status", {"id": found["a"], "status": "in_progress"}),
        ("task_set_plan", {"id": found["a"], "plan": HOW}),
        ("task_replan", {"id": found["a"], "reason": "r", "new_plan": HOW}),
        ("checkpoint_add", {"task_id": found["a"], "type": "progress", "summary": "s"}),
    ):
        assert code_of(bob.call, tool, **more) == "STALE_CLAIM"
    assert bob.call("task_claim", task_id=found["a"]) == {
        "success": False,
        "already_claimed_by": ada.id,
        "claim_epoch": None,
        "lease_expires_at": None,
        "workspace": None,
        "workspace_problem": None,
    }
    move(ada.call, found["a"], "in_progress", "completed")
    assert operator("task_get", id=found["a"])["claimed_by"] is None
    assert operator("agent_get", id=ada.id)["status"] == "online"
    move(ada.call, found["b"], "in_progress", "failed")
    assert operator("task_get", id=found["b"])["claimed_by"] is None


# Replan


def test_replanning_keeps_the_old_plan_as_a_checkpoint_and_begins_anew(operator: Ask) -> None:
    for before in ("planning", "in_progress", "paused", "failed"):
        _, found = plan_workflow(operator, task("a"))
        operator("task_set_plan", id=found["a"], plan=HOW | {"context_needed": ["c"]}, context={"k": 1})
        move(operator, found["a"], *WAYS[before])
        at = newest(operator)
        new = {"approach": "boldly", "steps": ["jump"], "files_to_modify": ["m"], "files_to_create": ["n"]}
        made = operator("task_replan", id=found["a"], reason="it rained", new_plan=new)
        assert made == {"success": True, "checkpoint_id": made["checkpoint_id"]}
        kept = operator("task_get", id=found["a"])
        assert (kept["status"], kept["plan"], kept["context"], kept["error"]) == ("pending", new, {"k": 1}, None)
        (checkpoint,) = operator("checkpoint_list", task_id=found["a"])["checkpoints"]
        assert (checkpoint["id"], checkpoint["type"]) == (made["checkpoint_id"], "replan")
        assert checkpoint["summary"] == "it rained" and checkpoint["detail"] == {
            "plan": HOW | {"context_needed": ["c"]},
            "error": "broken" if before == "failed" else None,
            "status": before,
        }
        assert events(operator, at) == [("task.replanned", before, "pending")]
        move(operator, found["a"], "in_progress", "completed")


def test_only_what_was_begun_or_failed_is_planned_anew(hub: Hub, operator: Ask) -> None:
    for status in ("pending", "completed", "skipped"):
        _, found = plan_workflow(operator, task("a"))
        move(operator, found["a"], *WAYS[status])
        before = all_rows(hub)
        assert code_of(operator, "task_replan", id=found["a"], reason="r", new_plan=HOW) == "INVALID_TRANSITION"
        assert all_rows(hub) == before
    for wrong in ({"reason": ""}, {"new_plan": {"approach": "x"}}, {"new_plan": HOW | {"context_needed": []}}):
        told = {"id": found["a"], "reason": "r", "new_plan": HOW} | wrong
        assert code_of(operator, "task_replan", **told) == "INVALID_INPUT"


def test_a_holder_that_replans_keeps_the_task(hub: Hub, operator: Ask) -> None:
    _, found = plan_workflow(operator, task("a"))
    ada = Agent(hub)
    move(ada.call, found["a"], "in_progress")
    ada.call("task_replan", id=found["a"], reason="r", new_plan=HOW)
    kept = operator("task_get", id=found["a"])
    assert (kept["status"], kept["claimed_by"], kept["claim_epoch"]) == ("pending", ada.id, 1)
    assert operator("checkpoint_list", task_id=found["a"])["checkpoints"][0]["agent_id"] == ada.id


# Checkpoints


def test_checkpoints_are_numbered_and_keep_what_they_say(hub: Hub, operator: Ask, one: str, clock: Clock) -> None:
    kinds = get_args(CheckpointType)
    assert kinds == ("plan", "progress", "decision", "error", "recovery", "complete", "replan")
    ada = Agent(hub)
    ada.call("task_claim", task_id=one)
    at = newest(operator)
    made = []
    for number, kind in enumerate(kinds, 1):
        clock.advance(1)
        told = {"type": kind, "summary": f"s{number} 漢", "detail": {"n": number}, "files_changed": ["a.py", "b.py"]}
        made.append(ada.call("checkpoint_add", task_id=one, **told))
        assert made[-1]["sequence"] == number
    bare = operator("checkpoint_add", task_id=one, type="progress", summary="bare")
    shown = operator("checkpoint_list", task_id=one)
    assert shown["total"] == 8 and shown["next_since_sequence"] is None
    assert [(one["id"], one["sequence"]) for one in shown["checkpoints"]] == [
        (one["id"], one["sequence"]) for one in [*made, bare]
    ]
    assert shown["checkpoints"][6] == {
        "id": made[6]["id"],
        "task_id": one,
        "sequence": 7,
        "type": "replan",
        "summary": "s7 漢",
        "detail": {"n": 7},
        "files_changed": ["a.py", "b.py"],
        "agent_id": ada.id,
        "created_at": clock.now,
        "left_out": None,
    }
    last = shown["checkpoints"][7]
    assert (last["detail"], last["files_changed"]) == (None, [])
    assert [what for what, _, _ in events(operator, at)] == ["checkpoint.added"] * 8
    data = operator("event_list", after=at)["events"][0]["data"]
    assert data == {"checkpoint_id": made[0]["id"], "sequence": 1}


def test_checkpoints_are_listed_by_type_number_and_limit(operator: Ask, one: str) -> None:
    for number in range(1, 8):
        kind = "decision" if number % 3 == 0 else "progress"
        operator("checkpoint_add", task_id=one, type=kind, summary="s")

    def numbers(**more: Any) -> list[int]:
        return [found["sequence"] for found in operator("checkpoint_list", task_id=one, **more)["checkpoints"]]

    assert numbers() == numbers(type=[]) == numbers(since_sequence=0) == [1, 2, 3, 4, 5, 6, 7]
    assert numbers(type=["decision"]) == [3, 6] and numbers(type=["decision", "error"], since_sequence=3) == [6]
    assert numbers(since_sequence=5) == [6, 7] and numbers(since_sequence=7) == [] and numbers(limit=2) == [1, 2]
    page = operator("checkpoint_list", task_id=one, limit=2, type=["progress"])
    assert (page["total"], page["next_since_sequence"]) == (5, 2)
    rest = operator("checkpoint_list", task_id=one, type=["progress"], since_sequence=2)
    assert [found["sequence"] for found in rest["checkpoints"]] == [4, 5, 7] and rest["next_since_sequence"] is None
    assert code_of(operator, "checkpoint_list", task_id="tk_no") == "NOT_FOUND"


def test_a_checkpoint_can_be_noted_whatever_the_status_of_the_task(operator: Ask) -> None:
    for way in WAYS.values():
        _, found = plan_workflow(operator, task("a"))
        move(operator, found["a"], *way)
        assert operator("checkpoint_add", task_id=found["a"], type="progress", summary="s")["sequence"] == 1


def test_a_checkpoint_that_is_refused_takes_no_number(hub: Hub, operator: Ask, one: str) -> None:
    before = all_rows(hub)
    for wrong in (
        {"summary": ""},
        {"summary": "x" * 100_001},
        {"detail": {"big": "x" * 64_000}},
        {"files_changed": ["x"] * 501},
        {"files_changed": [""]},
        {"files_changed": ["x" * 4097]},
        {"claim_epoch": 0},
    ):
        told = {"task_id": one, "type": "progress", "summary": "s"} | wrong
        assert code_of(operator, "checkpoint_add", **told) == "INVALID_INPUT"
    assert all_rows(hub) == before
    assert operator("checkpoint_add", task_id=one, type="progress", summary="s")["sequence"] == 1


# The rest of long texts


def test_text_read_gives_piece_by_piece_what_an_answer_left_out(operator: Ask) -> None:
    text = "".join(f'"{number}"\n漢😀\x01' for number in range(9_000))[:99_000]
    cargo = {"text": "é" * 20_000, "list": list(range(3000))}
    workflow, found = plan_workflow(operator, task("a") | {"description": text}, source_content=text * 5)
    one = found["a"]
    operator("task_set_plan", id=one, plan=HOW | {"steps": ["x" * 50_000]}, context=cargo)
    move(operator, one, "in_progress")
    operator("task_update_status", id=one, status="failed", error=text, outcome=text, outcome_detail=cargo)
    made = operator("checkpoint_add", task_id=one, type="error", summary=text, detail=cargo, files_changed=["f"] * 500)
    shown = operator("task_get", id=one)
    whole = {"description": text, "outcome": text, "error": text}
    for field, value in whole.items():
        assert value.startswith(shown[field]) and shown["left_out"][field] == len(value) - len(shown[field]) > 0

    def read(of: str, field: str) -> str:
        pieces, offset = "", 0
        while offset is not None:
            piece = operator("text_read", id=of, field=field, offset=offset)
            assert piece["offset"] == offset == len(pieces)
            pieces += piece["text"]
            offset = piece["next_offset"]
        assert piece["length"] == len(pieces)
        return pieces

    for field, value in whole.items():
        assert read(one, field) == value
    assert read(workflow, "source_content") == text * 5 and read(made["id"], "summary") == text
    for of, field in ((one, "context"), (one, "outcome_detail"), (made["id"], "detail")):
        assert '"list":[0,1,2' in read(of, field)
    assert read(workflow, "plan").startswith('{"summary":') and read(workflow, "status_reason") == ""
    assert read(made["id"], "files_changed").count("f") == 500
    past = operator("text_read", id=one, field="error", offset=10**6)
    assert past == {"text": "", "offset": 10**6, "length": len(text), "next_offset": None}
    assert operator("text_read", id=one, field="description")["offset"] == 0
    with pytest.raises(InvalidInput, match="has no long text 'name'") as refused:
        operator("text_read", id=one, field="name")
    assert "description, files_likely_affected, plan, context" in refused.value.hint
    for missing, field in (("tk_no", "error"), ("wf_no", "plan"), ("cp_no", "summary"), ("ms_no", "body")):
        with pytest.raises(NotFound):
            operator("text_read", id=missing, field=field)


def test_a_message_can_be_read_on(operator: Ask) -> None:
    ada, bob = register(operator, "ada"), register(operator, "bob")
    told = {"sender_id": ada, "recipient_id": bob, "message_type": "query", "body": "y" * 90_000}
    sent = operator("message_send", **told)["id"]
    first = operator("text_read", id=sent, field="body")
    assert first["length"] == 90_000 and first["next_offset"] == len(first["text"]) > 20_000


# Events


def test_every_change_of_a_task_writes_its_events_and_nothing_else_does(hub: Hub, operator: Ask) -> None:
    workflow, found = plan_workflow(operator, task("a"))
    ada = Agent(hub)
    a = found["a"]
    steps: list[tuple[str, dict[str, Any], list[tuple[str, str | None, str | None]]]] = [
        (
            "task_claim",
            {"task_id": a},
            [
                ("task.claimed", None, None),
                ("workflow.updated", "ready", "in_progress"),
                ("agent.updated", "offline", "busy"),
            ],
        ),
        ("task_claim", {"task_id": a}, []),
        ("task_set_plan", {"id": a, "plan": HOW}, [("task.planned", None, None)]),
        ("task_update_status", {"id": a, "status": "in_progress"}, [("task.updated", "pending", "in_progress")]),
        (
            "checkpoint_add",
            {"task_id": a, "type": "progress", "summary": "s"},
            [("checkpoint.added", None, None)],
        ),
        (
            "task_replan",
            {"id": a, "reason": "r", "new_plan": HOW},
            [("task.replanned", "in_progress", "pending")],
        ),
        ("task_update_status", {"id": a, "status": "planning"}, [("task.updated", "pending", "planning")]),
        (
            "task_release",
            {"task_id": a, "reason": "r"},
            [("task.released", "planning", "pending"), ("agent.updated", "busy", "online")],
        ),
        ("task_release", {"task_id": a}, []),
        ("task_get", {"id": a}, []),
        ("task_list", {"workflow_id": workflow}, []),
        ("workflow_progress", {"workflow_id": workflow}, []),
        ("workflow_next_tasks", {"workflow_id": workflow}, []),
        ("task_get_available", {}, []),
        (
            "task_update_status",
            {"id": a, "status": "in_progress"},
            [
                ("task.claimed", None, None),
                ("agent.updated", "online", "busy"),
                ("task.updated", "pending", "in_progress"),
            ],
        ),
        (
            "task_update_status",
            {"id": a, "status": "completed", "outcome": "o"},
            [("task.updated", "in_progress", "completed"), ("agent.updated", "busy", "online")],
        ),
    ]
    for tool, arguments, expected in steps:
        at = newest(operator)
        ada.call(tool, **arguments)
        assert events(operator, at) == expected, tool
    noted = operator("checkpoint_list", task_id=a)["checkpoints"]
    assert [(one["type"], one["summary"]) for one in noted] == [("progress", "s"), ("replan", "r"), ("recovery", "r")]


def test_unknown_ids_are_not_found(operator: Ask) -> None:
    new_workflow(operator)
    with pytest.raises(NotFound, match="there is no task 'tk_no'"):
        operator("task_get", id="tk_no")
    with pytest.raises(NotFound, match="there is no workflow 'wf_no'"):
        operator("task_list", workflow_id="wf_no")
    with pytest.raises(NotFound, match="there is no agent 'ag_no'"):
        operator("task_get_available", agent_id="ag_no")
    with pytest.raises(InvalidState):
        _, found = plan_workflow(operator, task("a"))
        operator("task_release", task_id=found["a"], agent_id=register(operator))
