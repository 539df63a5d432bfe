"""What can be begun, what waits for what, how far a workflow is: through the door, on both databases."""

from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.families.work.task.model import TASK_STATUSES
from tests.conftest import Agent, Clock
from tests.families.work.workflows import (
    Ask,
    all_rows,
    code_of,
    finish,
    ids,
    move,
    new_workflow,
    plan_workflow,
    register,
    task,
)

MINUTE = 60_000


def following(ask: Ask, workflow: str, **more: Any) -> dict[str, Any]:
    return ask("workflow_next_tasks", workflow_id=workflow, **more)


def names(answer: dict[str, Any]) -> list[str]:
    return [one["name"] for one in answer["tasks"]]


def recommended_names(answer: dict[str, Any]) -> list[str]:
    """The names of the tasks that are recommended; their number is recommended_count while all fit on a page."""
    found = [one["name"] for one in answer["tasks"] if one["recommended"]]
    assert len(found) == answer["recommended_count"]
    return found


# What is next


def test_next_tasks_have_the_seeds_fields(operator: Ask) -> None:
    workflow, found = plan_workflow(
        operator,
        task("a", 1),
        task("b", 2, depends_on=["a"], parallel_group="g"),
        task("c", 2, depends_on=["a"], parallel_group="g"),
        task("d", 3, parallel_group="g"),
        max_parallel_tasks=3,
    )
    finish(operator, found["a"])
    answer = following(operator, workflow)
    assert answer["tasks"][0] == {
        "id": found["b"],
        "name": "b",
        "description": "do b",
        "status": "pending",
        "can_parallelize": True,
        "parallel_with": sorted([found["c"], found["d"]]),
        "dependencies_completed": ["a"],
        "recommended": True,
        "conflicts_with": [],
        "left_out": None,
    }
    assert names(answer) == ["b", "c"]
    del answer["tasks"]
    assert answer == {
        "total": 2,
        "next_cursor": None,
        "max_parallel": 3,
        "recommended_count": 2,
        "workflow_status": "in_progress",
        "all_complete": False,
    }


def test_a_task_without_a_group_is_not_said_to_run_beside_others(operator: Ask) -> None:
    workflow, _ = plan_workflow(operator, task("a"), task("b"))
    for one in following(operator, workflow)["tasks"]:
        assert (one["can_parallelize"], one["parallel_with"], one["dependencies_completed"]) == (False, [], [])


def test_ready_and_failed_tasks_that_nobody_holds_are_next(operator: Ask) -> None:
    workflow, found = plan_workflow(
        operator, *(task(name) for name in ("a", "b", "c", "d", "e", "f")), task("late", 2), max_parallel_tasks=3
    )
    move(operator, found["b"], "in_progress", "failed")
    move(operator, found["c"], "in_progress")
    move(operator, found["d"], "in_progress", "paused")
    finish(operator, found["e"])
    operator("task_claim", task_id=found["f"], agent_id=register(operator))
    answer = following(operator, workflow)
    assert names(answer) == ["a", "b"] and [one["status"] for one in answer["tasks"]] == ["pending", "failed"]
    assert answer["total"] == 2
    without = following(operator, workflow, include_failed=False)
    assert names(without) == ["a"] and without["total"] == 1
    assert names(following(operator, workflow, include_failed=True)) == ["a", "b"]


@pytest.mark.parametrize("most", [1, 2, 3, 5, 9])
def test_so_many_are_recommended_as_parallelism_leaves_room_for(operator: Ask, most: int) -> None:
    """max(0, min(ready, max_parallel - running)), where running is held, planning or in progress."""
    workflow, found = plan_workflow(operator, *(task(f"t{number}") for number in range(7)), max_parallel_tasks=most)
    assert len(recommended_names(following(operator, workflow))) == min(7, most)
    operator("workflow_set_parallelism", id=workflow, max_parallel_tasks=3)
    operator("task_claim", task_id=found["t0"], agent_id=register(operator))
    move(operator, found["t1"], "planning")
    move(operator, found["t2"], "in_progress")
    operator("workflow_set_parallelism", id=workflow, max_parallel_tasks=most)
    answer = following(operator, workflow)
    assert answer["recommended_count"] == max(0, min(4, most - 3)) == len(recommended_names(answer))
    move(operator, found["t2"], "paused")
    assert following(operator, workflow)["recommended_count"] == max(0, min(4, most - 2)), "paused is not running"
    move(operator, found["t1"], "failed")
    answer = following(operator, workflow)
    assert answer["recommended_count"] == max(0, min(5, most - 1)) and answer["max_parallel"] == most
    assert following(operator, workflow, include_failed=False)["recommended_count"] == max(0, min(4, most - 1))


def test_hundreds_are_recommended_when_parallelism_allows_it(operator: Ask) -> None:
    workflow, _ = plan_workflow(operator, *(task(f"t{number}") for number in range(700)), max_parallel_tasks=1000)
    assert following(operator, workflow)["recommended_count"] == 700


def test_tasks_that_touch_the_same_files_are_not_recommended_together(operator: Ask) -> None:
    workflow, found = plan_workflow(
        operator,
        task("a", files_likely_affected=["src/x.py"]),
        task("b", files_likely_affected=["./src/"]),
        task("c", files_likely_affected=["docs/*.md"]),
        task("d", files_likely_affected=["docs/a.md", "e.py"]),
        task("e", files_likely_affected=["e.py"]),
        task("f"),
        max_parallel_tasks=6,
    )
    answer = following(operator, workflow)
    assert recommended_names(answer) == ["a", "c", "e", "f"]
    conflicts = {one["name"]: set(one["conflicts_with"]) for one in answer["tasks"]}
    assert conflicts == {
        "a": {found["b"]},
        "b": {found["a"]},
        "c": {found["d"]},
        "d": {found["c"], found["e"]},
        "e": {found["d"]},
        "f": set(),
    }


def test_tasks_that_touch_the_files_of_running_ones_are_not_recommended(operator: Ask) -> None:
    workflow, found = plan_workflow(
        operator,
        task("held", files_likely_affected=["src"]),
        task("going", files_likely_affected=["docs"]),
        task("a", files_likely_affected=["src/x.py"]),
        task("b", files_likely_affected=["docs/*.md"]),
        task("c", files_likely_affected=["else"]),
        max_parallel_tasks=9,
    )
    operator("task_claim", task_id=found["held"], agent_id=register(operator))
    move(operator, found["going"], "in_progress")
    answer = following(operator, workflow)
    assert names(answer) == ["a", "b", "c"] and recommended_names(answer) == ["c"]
    assert [one["conflicts_with"] for one in answer["tasks"]] == [[found["held"]], [found["going"]], []]
    move(operator, found["going"], "completed")
    assert recommended_names(following(operator, workflow)) == ["b", "c"]


def test_one_that_conflicts_with_nothing_is_found_behind_many_that_do(operator: Ask) -> None:
    many = [task(f"t{number}", files_likely_affected=["same.py"]) for number in range(25)]
    workflow, _ = plan_workflow(operator, *many, task("free", files_likely_affected=["free.py"]), max_parallel_tasks=2)
    answer = following(operator, workflow, limit=500)
    assert recommended_names(answer) == ["t0", "free"]


def test_next_tasks_are_paged_without_gaps(operator: Ask) -> None:
    tasks = [task(f"t{number}", -1 if number % 2 else 0, depends_on=["root"]) for number in range(30)]
    tasks += [task(f"end{number}", 1, depends_on=[f"t{number}"]) for number in range(0, 30, 3)]
    workflow, found = plan_workflow(operator, task("root", -5), *tasks)
    finish(operator, found["root"])
    whole = following(operator, workflow, limit=100)
    assert len(following(operator, workflow)["tasks"]) == 20, "20 when no limit is given"
    for limit in (1, 7, 29, 30):
        seen: list[str] = []
        more: dict[str, Any] = {}
        while True:
            page = following(operator, workflow, limit=limit, **more)
            seen += names(page)
            assert page["total"] == 30 >= len(seen)
            if page["next_cursor"] is None:
                break
            more = {"cursor": page["next_cursor"]}
        assert seen == names(whole) and sorted(seen) == sorted(f"t{number}" for number in range(30))
    assert names(whole)[:5] == ["t3", "t9", "t15", "t21", "t27"], "lower sequences first, then longer chains"


def test_all_complete_is_said_when_the_last_task_is_finished(operator: Ask) -> None:
    workflow, found = plan_workflow(operator, task("a"), task("b", 2))
    empty = new_workflow(operator)
    assert following(operator, empty) == {
        "tasks": [],
        "total": 0,
        "next_cursor": None,
        "max_parallel": 1,
        "recommended_count": 0,
        "workflow_status": "planning",
        "all_complete": False,
    }
    finish(operator, found["a"])
    assert not following(operator, workflow)["all_complete"]
    move(operator, found["b"], "skipped")
    answer = following(operator, workflow)
    assert answer["all_complete"] and answer["workflow_status"] == "in_progress" and answer["tasks"] == []
    assert operator("workflow_progress", workflow_id=workflow)["all_complete"]
    operator("workflow_add_tasks", id=workflow, tasks=[task("c", 3)])
    assert not following(operator, workflow)["all_complete"]


# How far


def test_progress_is_right_at_every_step(hub: Hub, operator: Ask, clock: Clock) -> None:
    workflow, found = plan_workflow(
        operator,
        task("a", 1, parallel_group="g", estimated_complexity="low"),
        task("b", 1, parallel_group="g"),
        task("c", 3, estimated_complexity="high"),
        task("d", 3, depends_on=["a"], parallel_group="h"),
        max_parallel_tasks=2,
    )

    def progress() -> dict[str, Any]:
        answer = operator("workflow_progress", workflow_id=workflow)
        assert set(answer["by_status"]) == set(TASK_STATUSES)
        assert sum(answer["by_status"].values()) == answer["total_tasks"] == 4
        assert answer["blocked_total"] == len(answer["blocked_tasks"]) == answer["by_status"]["blocked"]
        answer["by_status"] = {status: count for status, count in answer["by_status"].items() if count}
        return answer

    def fields_of(answer: dict[str, Any], *fields: str) -> list[Any]:
        return [answer[field] for field in fields]

    def path(answer: dict[str, Any]) -> list[str]:
        return [one["name"] for one in answer["critical_path"]]

    at = progress()
    assert at["by_status"] == {"pending": 2, "blocked": 2}
    assert fields_of(at, "completed_sequence", "current_sequence", "all_complete") == [0, 1, False]
    assert at["blocked_tasks"] == [
        {"id": found["c"], "name": "c", "blocked_by": ["a", "b"]},
        {"id": found["d"], "name": "d", "blocked_by": ["a"]},
    ]
    assert at["parallel_groups"] == [
        {"group_id": "g", "task_count": 2, "completed": 0},
        {"group_id": "h", "task_count": 1, "completed": 0},
    ]
    assert at["parallel_groups_total"] == 2 and at["next_cursor"] is None
    assert at["critical_path"] == [
        {"id": found["b"], "name": "b", "status": "pending"},
        {"id": found["c"], "name": "c", "status": "blocked"},
    ]
    assert fields_of(at, "critical_path_minutes", "estimated_remaining", "estimate_from") == [
        60,
        60 * MINUTE,
        "complexity",
    ]

    move(operator, found["b"], "in_progress")
    at = progress()
    assert at["by_status"] == {"pending": 1, "blocked": 2, "in_progress": 1}
    assert at["critical_path"][0]["status"] == "in_progress"
    clock.advance(100)
    move(operator, found["b"], "completed")
    at = progress()
    assert at["by_status"] == {"pending": 1, "blocked": 2, "completed": 1}
    assert fields_of(at, "completed_sequence", "current_sequence") == [0, 1]
    assert fields_of(at, "estimated_remaining", "estimate_from") == [300_000, "completed_rate"]
    assert path(at) == ["a", "c"] and at["critical_path_minutes"] == 50
    assert at["parallel_groups"][0] == {"group_id": "g", "task_count": 2, "completed": 1}
    assert [one["blocked_by"] for one in at["blocked_tasks"]] == [["a"], ["a"]]

    clock.advance(100)
    finish(operator, found["a"])
    at = progress()
    assert at["by_status"] == {"pending": 2, "completed": 2} and at["blocked_tasks"] == []
    assert fields_of(at, "completed_sequence", "current_sequence", "estimated_remaining") == [1, 3, 200_000]
    assert path(at) == ["c"] and at["critical_path_minutes"] == 45

    move(operator, found["c"], "in_progress", "failed")
    operator("task_claim", task_id=found["d"], agent_id=register(operator))
    assert progress()["by_status"] == {"failed": 1, "pending": 1, "completed": 2}
    move(operator, found["c"], "in_progress", "paused")
    assert progress()["by_status"] == {"paused": 1, "pending": 1, "completed": 2}
    operator("task_replan", id=found["c"], reason="r", new_plan={"approach": "x", "steps": []})
    move(operator, found["d"], "planning")
    assert progress()["by_status"] == {"pending": 1, "planning": 1, "completed": 2}
    move(operator, found["d"], "in_progress", "completed")
    move(operator, found["c"], "skipped")
    at = progress()
    assert at["by_status"] == {"skipped": 1, "completed": 3} and path(at) == []
    assert fields_of(at, "completed_sequence", "current_sequence", "all_complete") == [3, 0, True]
    assert fields_of(at, "estimated_remaining", "critical_path_minutes") == [0, 0]
    assert at["parallel_groups"] == [
        {"group_id": "g", "task_count": 2, "completed": 2},
        {"group_id": "h", "task_count": 1, "completed": 1},
    ]


def test_progress_keeps_count_through_release_removal_and_added_tasks(hub: Hub, operator: Ask) -> None:
    workflow, found = plan_workflow(operator, task("a", parallel_group="g"), task("b", parallel_group="g"))
    ada = Agent(hub)

    def counts() -> tuple[dict[str, int], list[tuple[str, int, int]]]:
        at = operator("workflow_progress", workflow_id=workflow)
        groups = [(one["group_id"], one["task_count"], one["completed"]) for one in at["parallel_groups"]]
        return {status: count for status, count in at["by_status"].items() if count}, groups

    move(ada.call, found["a"], "in_progress")
    assert counts() == ({"pending": 1, "in_progress": 1}, [("g", 2, 0)])
    ada.call("task_release", task_id=found["a"])
    assert counts() == ({"pending": 2}, [("g", 2, 0)])
    operator("workflow_remove_task", id=workflow, task_id=found["b"])
    assert counts() == ({"pending": 1}, [("g", 1, 0)])
    operator("workflow_add_tasks", id=workflow, tasks=[task("c", 2, parallel_group="h"), task("d", 2)])
    assert counts() == ({"pending": 1, "blocked": 2}, [("g", 1, 0), ("h", 1, 0)])
    operator("workflow_remove_task", id=workflow, task_id=ids(operator, workflow)["c"])
    assert counts() == ({"pending": 1, "blocked": 1}, [("g", 1, 0)])
    move(ada.call, found["a"], "in_progress")
    ada.call("agent_unregister")
    assert counts() == ({"pending": 1, "blocked": 1}, [("g", 1, 0)])
    finish(operator, found["a"])
    assert counts() == ({"pending": 1, "completed": 1}, [("g", 1, 1)])


def test_the_critical_path_is_shorter_after_a_skip(operator: Ask) -> None:
    workflow, found = plan_workflow(
        operator,
        task("a"),
        task("b", depends_on=["a"], estimated_complexity="high"),
        task("c", depends_on=["b"]),
        task("x", estimated_complexity="low"),
        task("y", depends_on=["x"]),
        task("z", depends_on=["y"], estimated_complexity="low"),
    )

    def chain() -> tuple[list[str], int]:
        at = operator("workflow_progress", workflow_id=workflow)
        return [one["name"] for one in at["critical_path"]], at["critical_path_minutes"]

    assert chain() == (["a", "b", "c"], 75)
    move(operator, found["b"], "skipped")
    assert chain() == (["x", "y", "z"], 25)
    move(operator, found["y"], "skipped")
    assert chain()[1] == 15 and len(chain()[0]) == 1
    operator("workflow_add_tasks", id=workflow, tasks=[task("q", depends_on=["z", "c"], estimated_complexity="high")])
    assert chain() == (["c", "q"], 60)
    operator("workflow_remove_task", id=workflow, task_id=ids(operator, workflow)["q"])
    assert chain()[1] == 15


def test_blocked_tasks_are_paged(operator: Ask) -> None:
    tasks = [task(f"t{number}", number % 4 + 2) for number in range(120)]
    workflow, _ = plan_workflow(operator, task("first", 1), *tasks)
    seen: list[str] = []
    more: dict[str, Any] = {}
    while True:
        page = operator("workflow_progress", workflow_id=workflow, **more)
        seen += [one["name"] for one in page["blocked_tasks"]]
        assert page["blocked_total"] == 120 >= len(seen)
        if page["next_cursor"] is None:
            break
        more = {"cursor": page["next_cursor"]}
    assert len(seen) == 120 and sorted(seen) == sorted(one["name"] for one in tasks)


# Dependencies


@pytest.mark.parametrize("by_name", [True, False], ids=["named", "of lower sequences"])
def test_many_dependencies_are_told_page_by_page(operator: Ask, by_name: bool) -> None:
    names = [f"d{number}" for number in range(130)]
    last = task("z", 5, **({"depends_on": names} if by_name else {}))
    _, found = plan_workflow(operator, *(task(name) for name in names), last)
    for name in names[:60]:
        move(operator, found[name], "skipped")
    page: dict[str, Any] = {"next_cursor": None}
    pending: list[str] = []
    completed: list[str] = []
    while not pending or page["next_cursor"]:
        more = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
        page = operator("task_check_dependencies", task_id=found["z"], **more)
        assert (page["pending_total"], page["completed_total"]) == (70, 60 if by_name else 0)
        pending += [one["name"] for one in page["pending"]]
        completed += [one["name"] for one in page["completed"]]
    assert pending == names[60:] and completed == (names[:60] if by_name else [])


def test_dependencies_are_told_apart_by_whether_they_are_finished(operator: Ask) -> None:
    workflow, found = plan_workflow(
        operator, *(task(name) for name in "abcd"), task("z", 5, depends_on=["a", "b", "c", "d"]), task("y", 9)
    )
    move(operator, found["a"], "in_progress")
    operator("task_update_status", id=found["a"], status="completed", outcome="it works")
    move(operator, found["b"], "skipped")
    move(operator, found["c"], "in_progress")

    def check(name: str) -> dict[str, Any]:
        return operator("task_check_dependencies", task_id=found[name])

    assert check("z") == {
        "satisfied": False,
        "pending": [
            {"id": found["c"], "name": "c", "status": "in_progress"},
            {"id": found["d"], "name": "d", "status": "pending"},
        ],
        "pending_total": 2,
        "completed": [
            {"id": found["a"], "name": "a", "outcome": "it works", "left_out": None},
            {"id": found["b"], "name": "b", "outcome": None, "left_out": None},
        ],
        "completed_total": 2,
        "next_cursor": None,
    }
    waiting = check("y")
    assert [(one["name"], one["status"]) for one in waiting["pending"]] == [
        ("c", "in_progress"),
        ("d", "pending"),
        ("z", "blocked"),
    ], "one without dependencies waits for lower sequences"
    assert not waiting["satisfied"] and waiting["pending_total"] == 3
    first = check("d")
    assert first["satisfied"] and first["pending"] == first["completed"] == []
    move(operator, found["c"], "completed")
    finish(operator, found["d"])
    assert check("z")["satisfied"] and check("z")["completed_total"] == 4
    move(operator, found["y"], "skipped")
    assert check("y")["satisfied"], "what is finished waits for nothing"
    assert workflow


def test_questions_about_what_is_not_there_are_not_found_and_change_nothing(hub: Hub, operator: Ask) -> None:
    plan_workflow(operator, task("a"))
    before = all_rows(hub)
    assert code_of(operator, "workflow_next_tasks", workflow_id="wf_no") == "NOT_FOUND"
    assert code_of(operator, "workflow_progress", workflow_id="wf_no") == "NOT_FOUND"
    assert code_of(operator, "task_check_dependencies", task_id="tk_no") == "NOT_FOUND"
    assert all_rows(hub) == before
