"""Workflows through the door: create, plan, change the plan, move on; bad input to all tools; on both databases."""

import random
import string
from collections.abc import Callable
from itertools import product
from typing import Any, get_args

import pytest

from crewhall.app import Hub, Origin
from crewhall.errors import InvalidInput, InvalidState, InvalidTransition, LimitExceeded, NotFound
from crewhall.families.work.workflow.model import SourceType, WorkflowStatus
from crewhall.identity import OPERATOR
from tests.conftest import Agent, Clock
from tests.families.work.test_rules_task import WORKFLOW_GOES
from tests.families.work.workflows import (
    HOW,
    PLAN,
    Ask,
    all_rows,
    code_of,
    events,
    finish,
    ids,
    let_lapse,
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

STATUSES: tuple[str, ...] = get_args(WorkflowStatus)
WAYS = {  # how a workflow with one finished task comes to be in a status
    "planning": [],
    "ready": [],
    "in_progress": ["in_progress"],
    "paused": ["in_progress", "paused"],
    "failed": ["in_progress", "failed"],
    "completed": ["in_progress", "completed"],
    "abandoned": ["abandoned"],
}


# Create, get, list


def test_a_new_workflow_has_the_seeds_fields_and_defaults(operator: Ask, clock: Clock) -> None:
    made = operator("workflow_create", name="w", source_type="prompt", source_content="do it")
    assert made == {"id": made["id"], "name": "w", "status": "planning", "max_parallel_tasks": 1}
    assert operator("workflow_get", id=made["id"]) == {
        "id": made["id"],
        "name": "w",
        "status": "planning",
        "status_reason": None,
        "halted_by": None,
        "source_type": "prompt",
        "source_ref": None,
        "source_content": "do it",
        "repository_path": None,
        "max_parallel_tasks": 1,
        "auto_create_workspaces": False,
        "reviewer": "instance",
        "plan": None,
        "task_count": 0,
        "finished_count": 0,
        "started_at": None,
        "finished_at": None,
        "archived_at": None,
        "created_at": clock.now,
        "updated_at": clock.now,
        "left_out": None,
        "tasks": None,
        "next_cursor": None,
    }
    assert events(operator) == [("workflow.created", None, "planning")]


def test_a_workflow_keeps_what_it_was_made_with(operator: Ask) -> None:
    assert get_args(SourceType) == ("prompt", "github_issue", "linear", "jira", "custom")
    for source_type in get_args(SourceType):
        told = {
            "name": "wörk 漢",
            "source_type": source_type,
            "source_ref": "https://example.org/1",
            "source_content": "é\n\x01'\"",
            "repository_path": "/srv//app/",
            "max_parallel_tasks": 7,
            "auto_create_workspaces": True,
            "reviewer": "judge",
        }
        kept = operator("workflow_get", id=operator("workflow_create", **told)["id"])
        assert {name: kept[name] for name in told} == told | {"repository_path": "/srv/app"}


def test_the_repository_is_the_clients_directory_when_left_out(hub: Hub, operator: Ask) -> None:
    told = {"name": "w", "source_type": "custom", "source_content": ""}
    here = Origin(directory="/home/ada/app")
    made = hub.call("workflow_create", told, OPERATOR, origin=here)["id"]
    assert operator("workflow_get", id=made)["repository_path"] == "/home/ada/app"
    made = hub.call("workflow_create", told | {"repository_path": "/other"}, OPERATOR, origin=here)["id"]
    assert operator("workflow_get", id=made)["repository_path"] == "/other"
    with pytest.raises(InvalidInput, match="not absolute"):
        operator("workflow_create", **told, repository_path="app")


def test_the_longest_path_is_kept_and_found_again(operator: Ask) -> None:
    """One that cannot be made shorter, since indexes hold only so much."""
    letters = random.Random(1).choices(string.ascii_letters, k=1_999)
    path = "/" + "".join(letters)
    made = new_workflow(operator, repository_path=path)
    assert [one["id"] for one in operator("workflow_list", repository_path=path)["workflows"]] == [made]
    assert operator("repository_get", path=path)["result"] is None
    operator("repository_register", path=path)
    assert operator("repository_get", path=path)["path"] == path
    assert code_of(operator, "repository_register", path=path + "x") == "INVALID_INPUT"
    wrong = {"name": "w", "source_type": "prompt", "source_content": "", "repository_path": path + "x"}
    assert code_of(operator, "workflow_create", **wrong) == "INVALID_INPUT"


def test_a_workflow_shows_its_tasks_when_asked_in_short_or_in_full(operator: Ask) -> None:
    workflow, task_ids = plan_workflow(operator, task("a"), task("b", depends_on=["a"], files_likely_affected=["x.py"]))
    assert operator("workflow_get", id=workflow)["tasks"] is None
    assert operator("workflow_get", id=workflow, include_task_summaries=False)["tasks"] is None
    short = operator("workflow_get", id=workflow, include_tasks=True)["tasks"]
    assert short == operator("task_list", workflow_id=workflow)["tasks"]
    assert [one["status"] for one in short] == ["pending", "blocked"] and "description" not in short[0]
    assert short == operator("workflow_get", id=workflow, include_tasks=True, include_task_summaries=True)["tasks"]
    full = operator("workflow_get", id=workflow, include_tasks=True, include_task_summaries=False)["tasks"]
    assert full == [operator("task_get", id=task_ids[name]) for name in "ab"]
    assert full[1]["depends_on"] == ["a"] and full[1]["files_likely_affected"] == ["x.py"]


def test_workflows_are_listed_by_repository_and_status_the_newest_first(operator: Ask, clock: Clock) -> None:
    made = []
    for number in range(25):
        clock.advance(1)
        made.append(new_workflow(operator, name=f"w{number}", repository_path="/even" if number % 2 == 0 else "/odd"))
    operator("workflow_update_status", id=made[3], status="abandoned")

    def names(**more: Any) -> list[str]:
        return [one["name"] for one in operator("workflow_list", **more)["workflows"]]

    assert names() == [f"w{number}" for number in range(24, 4, -1)], "20 when no limit is given"
    assert names(limit=2, offset=1) == ["w23", "w22"]
    assert names(repository_path="/even/", limit=3) == ["w24", "w22", "w20"]
    assert names(status=["abandoned"]) == ["w3"]
    assert names(status=["abandoned", "planning"], repository_path="/odd", offset=10) == ["w3", "w1"]
    assert names(status=["completed"]) == [] and len(names(status=[], limit=500)) == 25
    first = operator("workflow_list")
    assert (first["total"], first["next_offset"]) == (25, 20)
    rest = operator("workflow_list", offset=20)
    assert len(rest["workflows"]) == 5 and rest["next_offset"] is None
    assert operator("workflow_list", status=["abandoned"])["total"] == 1
    assert operator("workflow_list", offset=25)["workflows"] == []


# The plan


def test_a_plan_makes_all_its_tasks_and_the_workflow_ready(operator: Ask, clock: Clock) -> None:
    workflow = new_workflow(operator)
    more = {"risks": ["it rains"], "assumptions": ["it does not"]}
    tasks = [
        task("late", 7, parallel_group="g", estimated_complexity="high", files_likely_affected=["a", "b/*.py"]),
        task("early", -3, parallel_group="g", estimated_complexity="low", required_capabilities=["sql", "Rust", "sql"]),
        task("other", 7, parallel_group="h", depends_on=["early", "late", "early"], estimated_complexity="medium"),
        task("bare", 2**31 - 1),
    ]
    clock.advance(5)
    answer = operator("workflow_set_plan", id=workflow, plan=PLAN | more | {"tasks": tasks})
    assert answer == {"workflow_id": workflow, "tasks_created": 4, "parallelizable_groups": 2, "status": "ready"}
    kept = operator("workflow_get", id=workflow)
    assert kept["plan"] == PLAN | more and kept["status"] == "ready" and kept["task_count"] == 4
    assert kept["updated_at"] == clock.now
    order = list_tasks(operator, workflow)
    assert [(one["name"], one["sequence"]) for one in order] == [
        ("early", -3),
        ("late", 7),
        ("other", 7),
        ("bare", 2**31 - 1),
    ]
    by_name = {one["name"]: operator("task_get", id=one["id"]) for one in order}
    for given in tasks:
        found = by_name[given["name"]]
        for field in ("description", "sequence", "parallel_group", "estimated_complexity", "files_likely_affected"):
            assert found[field] == given.get(field, [] if field == "files_likely_affected" else None), field
    assert by_name["other"]["depends_on"] == ["late", "early"] or by_name["other"]["depends_on"] == ["early", "late"]
    assert by_name["early"]["required_capabilities"] == ["Rust", "sql"]
    assert {one["status"] for one in by_name.values()} == {"pending", "blocked"}
    assert events(operator) == [("workflow.created", None, "planning"), ("workflow.planned", "planning", "ready")]


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([task("a"), task("a")], "two tasks named 'a'"),
        ([task("a", depends_on=["a"])], "depends on itself"),
        ([task("a", depends_on=["b"])], "'b', which is not in the plan"),
        ([task("a", depends_on=["b"]), task("b", depends_on=["c"]), task("c", depends_on=["a"])], "→"),
        ([task("a", 1, depends_on=["b"]), task("b", 2)], "for ever: (a → b → a|b → a → b)"),
        ([], "plan.tasks"),
        ([task("")], "plan.tasks.0.name"),
        ([task("a", 1.5)], "plan.tasks.0.sequence"),  # type: ignore[arg-type]
        ([task("a", estimated_complexity="huge")], "plan.tasks.0.estimated_complexity"),
        ([task("a", priority=1)], "plan.tasks.0.priority"),
        ([{"name": "a", "sequence": 1}], "missing argument 'plan.tasks.0.description'"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused_whole(
    hub: Hub, operator: Ask, tasks: list[dict[str, Any]], said: str
) -> None:
    workflow = new_workflow(operator)
    before = all_rows(hub)
    with pytest.raises(InvalidInput, match=said):
        operator("workflow_set_plan", id=workflow, plan=PLAN | {"tasks": tasks})
    assert all_rows(hub) == before


def test_a_plan_is_set_while_planning_alone(hub: Hub, operator: Ask) -> None:
    for status, way in WAYS.items():
        workflow, task_ids = (
            plan_workflow(operator, task("a")) if status != "planning" else (new_workflow(operator), {})
        )
        if "completed" in way:
            finish(operator, task_ids["a"])
        for step in way[1:] if "completed" in way else way:
            operator("workflow_update_status", id=workflow, status=step)
        assert operator("workflow_get", id=workflow)["status"] == status
        before = all_rows(hub)
        plan = PLAN | {"tasks": [task("b")]}
        if status == "planning":
            operator("workflow_set_plan", id=workflow, plan=plan)
        else:
            with pytest.raises(InvalidState, match=f"is {status}, and a plan is set while it is planning"):
                operator("workflow_set_plan", id=workflow, plan=plan)
            assert all_rows(hub) == before


def test_names_are_the_workflows_own(operator: Ask) -> None:
    plan_workflow(operator, task("a"))
    workflow, _ = plan_workflow(operator, task("a"), task("A"), task("a "))
    assert set(statuses(operator, workflow)) == {"a", "A", "a "}
    plan_workflow(operator, task("b"))
    with pytest.raises(InvalidInput, match="not in the plan"):
        plan_workflow(operator, task("c", depends_on=["b"]))


def test_the_plans_own_words_are_bounded_and_a_workflows_tasks_too(hub: Hub, operator: Ask) -> None:
    workflow = new_workflow(operator)
    before = all_rows(hub)
    with pytest.raises(InvalidInput, match=r"plan is .* bytes of JSON, and 64000 are allowed"):
        operator("workflow_set_plan", id=workflow, plan=PLAN | {"summary": "漢" * 30_000, "tasks": [task("a")]})
    assert all_rows(hub) == before


# Changing the plan


def test_tasks_are_added_to_a_plan_with_the_same_checks(hub: Hub, operator: Ask) -> None:
    workflow, task_ids = plan_workflow(operator, task("a", 1), task("b", 2))
    at = newest(operator)
    more = [task("c", 2, depends_on=["a", "d"]), task("d", 3, depends_on=["b"])]
    added = operator("workflow_add_tasks", id=workflow, tasks=more)
    found = ids(operator, workflow)
    assert added == {"workflow_id": workflow, "tasks_created": 2, "task_ids": [found["c"], found["d"]]}
    assert events(operator, at) == [("workflow.tasks_added", None, None)]
    assert statuses(operator, workflow) == {"a": "pending", "b": "blocked", "c": "blocked", "d": "blocked"}
    assert operator("workflow_get", id=workflow)["task_count"] == 4
    before = all_rows(hub)
    for tasks, said in (
        ([task("a")], "two tasks named 'a'"),
        ([task("x"), task("x")], "two tasks named 'x'"),
        ([task("x", depends_on=["x"])], "depends on itself"),
        ([task("x", depends_on=["nothing"])], "not in the plan"),
        ([task("x", 0, depends_on=["b"])], "for ever"),
        ([task("x", depends_on=["y"]), task("y", depends_on=["x"])], "for ever"),
        ([], "tasks"),
    ):
        with pytest.raises(InvalidInput, match=said):
            operator("workflow_add_tasks", id=workflow, tasks=tasks)
    assert all_rows(hub) == before
    finish(operator, task_ids["a"])
    operator("workflow_add_tasks", id=workflow, tasks=[task("e", 9, depends_on=["a"])])
    assert statuses(operator, workflow)["e"] == "pending", "what it depends on is finished already"


def test_a_task_added_below_holds_back_what_has_not_begun(operator: Ask) -> None:
    workflow, task_ids = plan_workflow(operator, task("a", 5), task("b", 5), task("c", 6, depends_on=["a"]))
    move(operator, task_ids["a"], "in_progress")
    operator("workflow_add_tasks", id=workflow, tasks=[task("new", 1)])
    assert statuses(operator, workflow) == {"new": "pending", "a": "in_progress", "b": "blocked", "c": "blocked"}
    assert code_of(operator, "task_update_status", id=task_ids["b"], status="in_progress") == "TASK_BLOCKED"
    move(operator, task_ids["a"], "completed")
    assert statuses(operator, workflow)["c"] == "pending", "what was under way can be finished"
    finish(operator, ids(operator, workflow)["new"])
    assert statuses(operator, workflow)["b"] == "pending"


def test_a_task_is_removed_that_nobody_began_and_nothing_depends_on(hub: Hub, operator: Ask) -> None:
    workflow, found = plan_workflow(
        operator,
        task("a", 1, required_capabilities=["x"]),
        task("b", 1, parallel_group="g"),
        task("c", 2),
        task("d", 3, depends_on=["c"]),
    )
    other, _ = plan_workflow(operator, task("z"))
    at = newest(operator)
    assert operator("workflow_remove_task", id=workflow, task_id=found["a"]) == {"success": True}
    assert events(operator, at) == [("workflow.task_removed", None, None)]
    assert operator("event_list", after=at)["events"][0]["data"] == {"task_id": found["a"], "name": "a"}
    assert set(statuses(operator, workflow)) == {"b", "c", "d"}
    assert operator("workflow_get", id=workflow)["task_count"] == 3
    assert code_of(operator, "task_get", id=found["a"]) == "NOT_FOUND"
    before = all_rows(hub)
    with pytest.raises(InvalidState, match=f"d depends on task {found['c']}"):
        operator("workflow_remove_task", id=workflow, task_id=found["c"])
    for wrong in ({"id": other, "task_id": found["b"]}, {"id": workflow, "task_id": found["a"]}):
        with pytest.raises(NotFound):
            operator("workflow_remove_task", **wrong)
    assert all_rows(hub) == before
    agent = register(operator)
    operator("task_claim", task_id=found["b"], agent_id=agent)
    assert code_of(operator, "workflow_remove_task", id=workflow, task_id=found["b"]) == "INVALID_STATE"
    operator("task_release", task_id=found["b"], agent_id=agent)
    operator("workflow_remove_task", id=workflow, task_id=found["b"])
    assert statuses(operator, workflow) == {"c": "pending", "d": "blocked"}, "the last below is gone"
    operator("checkpoint_add", task_id=found["c"], type="progress", summary="looked")
    operator("workflow_remove_task", id=workflow, task_id=found["d"])
    assert code_of(operator, "workflow_remove_task", id=workflow, task_id=found["c"]) == "INVALID_STATE"


def test_a_plan_is_changed_while_the_workflow_is_neither_planning_nor_over(hub: Hub, operator: Ask) -> None:
    for status, way in WAYS.items():
        workflow, task_ids = plan_workflow(operator, task("a"), task("b"))
        if status == "planning":
            workflow = new_workflow(operator)
        if status == "completed":
            finish(operator, *task_ids.values())
        for step in way[1:] if status == "completed" else way:
            operator("workflow_update_status", id=workflow, status=step)
        add = {"id": workflow, "tasks": [task("c")]}
        if status in ("planning", "completed", "abandoned"):
            before = all_rows(hub)
            assert code_of(operator, "workflow_add_tasks", **add) == "INVALID_STATE"
            gone = task_ids["b"]
            assert code_of(operator, "workflow_remove_task", id=workflow, task_id=gone) == "INVALID_STATE"
            assert all_rows(hub) == before
        else:
            operator("workflow_add_tasks", **add)
            operator("workflow_remove_task", id=workflow, task_id=task_ids["b"])
            assert set(statuses(operator, workflow)) == {"a", "c"}


def test_a_workflow_holds_twenty_thousand_tasks_at_most(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub()

    def ask(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hub.call(tool, arguments, OPERATOR)

    def tasks(first: int, count: int) -> list[dict[str, Any]]:
        return [task(f"t{number}") for number in range(first, first + count)]

    workflow, _ = plan_workflow(ask, *tasks(0, 10_000))
    ask("workflow_add_tasks", id=workflow, tasks=tasks(10_000, 1))
    before = newest(ask)
    with pytest.raises(LimitExceeded, match="would have 20001 tasks, and 20000 are allowed"):
        ask("workflow_add_tasks", id=workflow, tasks=tasks(10_001, 10_000))
    assert newest(ask) == before and ask("workflow_get", id=workflow)["task_count"] == 10_001


# Moving on


def test_every_step_of_a_workflow_goes_as_the_design_says_through_the_door(operator: Ask) -> None:
    for before, after in product(STATUSES, STATUSES):
        workflow, task_ids = (
            plan_workflow(operator, task("a")) if before != "planning" else (new_workflow(operator), {})
        )
        way = WAYS[before]
        if "completed" in (*way, after) and task_ids and before != "abandoned":
            if before in ("ready",):
                move(operator, task_ids["a"], "skipped")
            else:
                finish(operator, task_ids["a"])
                way = way[1:]
        for step in way:
            operator("workflow_update_status", id=workflow, status=step)
        at, stored = newest(operator), operator("workflow_get", id=workflow)
        if (before, after) == ("planning", "ready"):
            with pytest.raises(InvalidState, match="no plan yet"):
                operator("workflow_update_status", id=workflow, status=after)
        elif (before, after) in WORKFLOW_GOES:
            assert operator("workflow_update_status", id=workflow, status=after, reason="why") == {"success": True}
            kept = operator("workflow_get", id=workflow)
            assert (kept["status"], kept["status_reason"]) == (after, "why")
            assert events(operator, at) == [("workflow.updated", before, after)]
            continue
        else:
            with pytest.raises(InvalidTransition, match=f"is {before}, and does not go to {after}"):
                operator("workflow_update_status", id=workflow, status=after)
        assert (newest(operator), operator("workflow_get", id=workflow)) == (at, stored)


def test_a_workflow_notes_when_it_began_and_when_it_was_over(operator: Ask, clock: Clock) -> None:
    workflow, task_ids = plan_workflow(operator, task("a"))
    clock.advance(1)
    began = clock.now
    operator("task_claim", task_id=task_ids["a"], agent_id=register(operator))
    assert operator("workflow_get", id=workflow)["status"] == "in_progress", "the first claim sets it going"
    clock.advance(1)
    operator("workflow_update_status", id=workflow, status="paused")
    operator("workflow_update_status", id=workflow, status="in_progress")
    finish(operator, task_ids["a"])
    clock.advance(1)
    operator("workflow_update_status", id=workflow, status="completed")
    kept = operator("workflow_get", id=workflow)
    assert (kept["started_at"], kept["finished_at"], kept["finished_count"]) == (began, clock.now, 1)


def test_completed_is_refused_while_tasks_are_open(operator: Ask) -> None:
    workflow, found = plan_workflow(operator, task("a"), task("b"), task("c"))
    move(operator, found["a"], "in_progress", "completed")
    move(operator, found["b"], "in_progress", "failed")
    for said in ("2 of 3 tasks", "1 of 3 tasks"):
        with pytest.raises(InvalidState, match=f"{said} are not finished"):
            operator("workflow_update_status", id=workflow, status="completed")
        move(operator, found["b" if said.startswith("2") else "c"], "skipped")
    operator("workflow_update_status", id=workflow, status="completed")


@pytest.mark.parametrize("status", ["paused", "failed"])
def test_no_task_of_a_paused_or_failed_workflow_is_begun(hub: Hub, operator: Ask, status: str) -> None:
    workflow, found = plan_workflow(operator, task("a"), task("b"), task("c"), task("d"), max_parallel_tasks=4)
    ada = Agent(hub)
    ada.call("task_claim", task_id=found["a"])
    move(operator, found["a"], "in_progress")
    move(operator, found["d"], "in_progress", "paused")
    operator("workflow_update_status", id=workflow, status=status)
    before = all_rows(hub)
    assert code_of(operator, "task_claim", task_id=found["b"], agent_id=ada.id) == "INVALID_STATE"
    assert code_of(operator, "task_update_status", id=found["b"], status="in_progress") == "INVALID_STATE"
    assert code_of(ada.call, "task_update_status", id=found["b"], status="planning") == "INVALID_STATE"
    assert code_of(ada.call, "task_update_status", id=found["d"], status="in_progress") == "INVALID_STATE"
    assert ada.call("task_get_available")["tasks"] == []
    shown = operator("workflow_next_tasks", workflow_id=workflow)
    assert (shown["workflow_status"], shown["recommended_count"], shown["total"]) == (status, 0, 2)
    assert all_rows(hub) == before
    assert ada.call("task_claim", task_id=found["a"])["success"], "what is held stays held"
    if status == "paused":
        ends = {"id": found["a"], "status": "completed", "outcome": "done"}
        assert code_of(ada.call, "task_update_status", **ends) == "INVALID_STATE"
        assert code_of(operator, "task_update_status", id=found["b"], status="skipped") == "INVALID_STATE"
        operator("workflow_update_status", id=workflow, status="in_progress")
    move(ada.call, found["a"], "completed")
    move(operator, found["b"], "skipped")
    if status == "failed":
        operator("workflow_update_status", id=workflow, status="in_progress")
    assert [one["name"] for one in ada.call("task_get_available")["tasks"]] == ["c"]
    assert ada.call("task_claim", task_id=found["c"])["success"]


def test_abandoning_frees_every_claim_and_nothing_can_be_taken_or_moved_after(hub: Hub, operator: Ask) -> None:
    workflow, found = plan_workflow(operator, task("a"), task("b"), task("c"), task("d"), max_parallel_tasks=3)
    _, others = plan_workflow(operator, task("z"))
    ada, bob = Agent(hub, "ada"), Agent(hub, "bob")
    ada.call("task_claim", task_id=others["z"])
    ada.call("task_claim", task_id=found["a"])
    move(ada.call, found["a"], "in_progress")
    bob.call("task_claim", task_id=found["b"])
    move(operator, found["c"], "in_progress")
    at = newest(operator)
    operator("workflow_update_status", id=workflow, status="abandoned", reason="no more")
    held = {one["name"]: (one["status"], one["claimed_by"]) for one in list_tasks(operator, workflow)}
    assert held["a"] == held["b"] == ("pending", None)
    who = {one["id"]: (one["status"], one["current_task_id"]) for one in operator("agent_list")["agents"]}
    assert who == {ada.id: ("busy", others["z"]), bob.id: ("online", None)}, "ada turns to what she holds elsewhere"
    told = events(operator, at)
    assert ("task.released", "in_progress", "pending") in told and ("task.released", "pending", "pending") in told
    assert told.count(("workflow.updated", "in_progress", "abandoned")) == 1
    for status in ("planning", "in_progress", "skipped"):
        assert code_of(ada.call, "task_update_status", id=found["a"], status=status) == "INVALID_STATE"
    for status in ("completed", "failed", "paused"):
        asked = {"id": found["c"], "status": status, "outcome": "o", "error": "e"}
        assert code_of(operator, "task_update_status", **asked) == "INVALID_STATE"
        assert code_of(bob.call, "task_update_status", **asked) == "INVALID_STATE"
    assert code_of(ada.call, "task_claim", task_id=found["d"]) == "INVALID_STATE"
    assert sql(hub, "SELECT task_id FROM claim WHERE ended_at IS NULL") == [{"task_id": others["z"]}]


def test_a_lapsed_claim_on_an_abandoned_workflow_does_not_come_back(hub: Hub, operator: Ask, clock: Clock) -> None:
    workflow, found = plan_workflow(operator, task("a"))
    ada = Agent(hub)
    ada.call("task_claim", task_id=found["a"])
    move(ada.call, found["a"], "in_progress")
    let_lapse(hub, clock)
    assert operator("agent_get", id=ada.id)["status"] == "offline"
    operator("workflow_update_status", id=workflow, status="abandoned")
    ada.call("checkpoint_add", task_id=found["a"], type="progress", summary="what I did before")
    (row,) = sql(hub, "SELECT status, claimed_by FROM task")
    assert row == {"status": "pending", "claimed_by": None}


def test_parallelism_is_set_and_what_is_left_out_stays(operator: Ask) -> None:
    workflow = new_workflow(operator, auto_create_workspaces=True)

    def parallelism() -> tuple[int, bool]:
        found = operator("workflow_get", id=workflow)
        return found["max_parallel_tasks"], found["auto_create_workspaces"]

    at = newest(operator)
    assert operator("workflow_set_parallelism", id=workflow, max_parallel_tasks=5) == {"success": True}
    assert parallelism() == (5, True)
    operator("workflow_set_parallelism", id=workflow, max_parallel_tasks=1000, auto_create_workspaces=False)
    assert parallelism() == (1000, False)
    assert [what for what, _, _ in events(operator, at)] == ["workflow.parallelism_set"] * 2
    for wrong in (0, -1, 1001, 2.5, "3", True):
        assert code_of(operator, "workflow_set_parallelism", id=workflow, max_parallel_tasks=wrong) == "INVALID_INPUT"
    assert parallelism() == (1000, False)


# Bad input, for all tools of workflows and tasks

HUGE = "x" * (3 << 20)
TOOLS: dict[str, dict[str, Any]] = {  # a good call of each, with every argument
    "workflow_create": {
        "name": "w",
        "source_type": "prompt",
        "source_content": "c",
        "source_ref": "r",
        "repository_path": "/r",
        "max_parallel_tasks": 2,
        "auto_create_workspaces": True,
        "reviewer": "judge",
        "idempotency_key": "k1",
    },
    "workflow_get": {"id": "WF", "include_tasks": True, "include_task_summaries": False},
    "workflow_list": {
        "repository_path": "/r",
        "status": ["ready"],
        "halted_by": "judge",
        "limit": 5,
        "offset": 0,
        "include_archived": True,
    },
    "workflow_set_plan": {"id": "NEW", "plan": PLAN | {"tasks": [task("q")]}, "idempotency_key": "k2"},
    "workflow_add_tasks": {"id": "WF", "tasks": [task("q")], "idempotency_key": "k3"},
    "workflow_remove_task": {"id": "WF", "task_id": "LAST"},
    "workflow_update_status": {"id": "WF", "status": "in_progress", "reason": "why"},
    "workflow_set_parallelism": {"id": "WF", "max_parallel_tasks": 3, "auto_create_workspaces": False},
    "task_get": {"id": "TK", "include_checkpoints": True, "checkpoint_limit": 3},
    "task_list": {"workflow_id": "WF", "status": ["blocked"], "claimed_by": "ag_x", "limit": 3, "cursor": "0:0"},
    "task_get_available": {"agent_id": "AG", "workflow_id": "WF", "limit": 3, "offset": 0, "repository_path": "/r"},
    "task_claim": {"task_id": "TK", "agent_id": "AG"},
    "task_release": {"task_id": "TK", "agent_id": "AG", "reason": "why", "claim_epoch": 1},
    "task_set_plan": {"id": "TK", "plan": HOW, "context": {"k": 1}, "claim_epoch": 1},
    "task_update_status": {
        "id": "TK",
        "status": "in_progress",
        "outcome": "o",
        "outcome_detail": {"k": 1},
        "error": "e",
        "claim_epoch": 1,
    },
    "task_replan": {"id": "TK", "reason": "why", "new_plan": HOW, "claim_epoch": 1, "idempotency_key": "k4"},
    "checkpoint_add": {
        "task_id": "TK",
        "type": "progress",
        "summary": "s",
        "detail": {"k": 1},
        "files_changed": ["f"],
        "claim_epoch": 1,
        "idempotency_key": "k5",
    },
    "checkpoint_list": {"task_id": "TK", "type": ["progress"], "since_sequence": 0, "limit": 3},
    "workflow_next_tasks": {"workflow_id": "WF", "include_failed": True, "limit": 3, "cursor": "0:0:0"},
    "workflow_progress": {"workflow_id": "WF", "cursor": "0:0"},
    "task_check_dependencies": {"task_id": "TK", "cursor": "0:0"},
    "text_read": {"id": "TK", "field": "description", "offset": 0},
}
MUST = {  # unknown things of the right kind
    "id": "tk_nothing00000",
    "workflow_id": "wf_nothing00000",
    "task_id": "tk_nothing00000",
    "agent_id": "ag_nothing00000",
}
FREE_OF_LOOKS = {("task_list", "claimed_by")}  # a filter that nothing matches is an empty list


def bad_values(name: str, good: Any) -> list[Any]:
    """What an argument may not be."""
    bad: list[Any] = [{"no": 1}, ["no", 1, []]] if not isinstance(good, dict) else ["no", [1]]
    if isinstance(good, str):
        return [*bad, 7, True, HUGE, "a\0b", "a\ud800b"]
    if isinstance(good, bool):
        return [*bad, "true", 1, 0.0]
    if isinstance(good, int):
        return [*bad, "1", 1.5, -1, 2**70, True, float("nan"), *([] if name in ("offset", "since_sequence") else [0])]
    if isinstance(good, list):
        return ["no", 7, {"no": 1}, [7], [None], [HUGE], ["a\0b"], ["\udfff"]]
    nested: Any = "x"
    for _ in range(80):
        nested = [nested]
    return [*bad, 7, {"k\0": 1}, {"k": "\ud800"}, {"k": HUGE}, {"k": float("inf")}, {"k": nested}]


def test_bad_input_to_any_tool_is_refused_with_its_code_and_changes_nothing(hub: Hub, operator: Ask) -> None:
    workflow, found = plan_workflow(operator, task("a"), task("b"), task("last"))
    agent = register(operator)
    operator("task_claim", task_id=found["a"], agent_id=agent)
    real = {"WF": workflow, "NEW": new_workflow(operator), "TK": found["a"], "LAST": found["last"], "AG": agent}
    before = all_rows(hub)
    for tool, arguments in TOOLS.items():
        good = {name: real.get(value, value) if isinstance(value, str) else value for name, value in arguments.items()}
        assert set(good) == set(hub.registry.find(tool).input_schema["properties"]), tool
        wrong: list[tuple[str, dict[str, Any]]] = [("INVALID_INPUT", good | {"surprise": 1})]
        for name in hub.registry.find(tool).input_schema.get("required", []):
            wrong.append(("INVALID_INPUT", {key: value for key, value in good.items() if key != name}))
        for name, value in good.items():
            wrong += [("INVALID_INPUT", good | {name: bad}) for bad in bad_values(name, value)]
            if name in MUST:
                wrong.append(("NOT_FOUND", good | {name: MUST[name]}))
        for code, asked in wrong:
            told = {name: str(value)[:60] for name, value in asked.items()}
            try:
                assert code_of(operator, tool, **asked) == code, (tool, told)
            except pytest.fail.Exception:
                raise AssertionError(f"{tool} took {told}") from None
        assert all_rows(hub) == before, tool


def test_words_that_are_no_word_of_an_enum_and_cursors_that_are_none_are_refused(hub: Hub, operator: Ask) -> None:
    workflow, found = plan_workflow(operator, task("a"))
    before = all_rows(hub)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("workflow_create", {"name": "w", "source_type": "email", "source_content": ""}),
        ("workflow_list", {"status": ["blocked"]}),
        ("workflow_update_status", {"id": workflow, "status": "blocked"}),
        ("task_list", {"workflow_id": workflow, "status": ["ready"]}),
        ("task_update_status", {"id": found["a"], "status": "ready"}),
        ("checkpoint_add", {"task_id": found["a"], "type": "note", "summary": "s"}),
        ("checkpoint_list", {"task_id": found["a"], "type": ["note"]}),
        ("text_read", {"id": found["a"], "field": "name"}),
        ("text_read", {"id": "ag_1", "field": "metadata"}),
        ("workflow_list", {"limit": 501}),
        ("task_get", {"id": found["a"], "checkpoint_limit": 501}),
    ]
    for tool, size in (("task_list", 2), ("workflow_progress", 2), ("workflow_next_tasks", 3)):
        for cursor in ("", "x", ":", "1", "1:2:3:4", "1:x", "9" * 199, ":".join(["1e3"] * size), "-" + "9" * 30):
            wrong.append((tool, {"workflow_id": workflow, "cursor": cursor}))
    for tool, arguments in wrong:
        assert code_of(operator, tool, **arguments) == "INVALID_INPUT", (tool, arguments)
    assert all_rows(hub) == before


def test_blocked_is_never_set(hub: Hub, operator: Ask) -> None:
    _, found = plan_workflow(operator, task("a"), task("b", 2))
    before = all_rows(hub)
    for name in "ab":
        with pytest.raises(InvalidTransition, match="blocked is not set"):
            operator("task_update_status", id=found[name], status="blocked")
    assert all_rows(hub) == before
    assert sql(hub, "SELECT DISTINCT status FROM task") == [{"status": "pending"}]
