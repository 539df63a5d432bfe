"""Which state may follow which, who may write, what goes well together: the tables of the design, whole."""

import time
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewhall.errors import Failure, InvalidInput, InvalidState, InvalidTransition, TaskBlocked
from crewhall.families.work.claim.rules import refuse_incapable, refuse_unclaimable, stale_claim
from crewhall.families.work.task.model import TASK_STATUSES, TaskStatus, shown_status
from crewhall.families.work.task.rules import refuse_task_step
from crewhall.families.work.workflow.model import WorkflowStatus
from crewhall.families.work.workflow.rules import (
    Reach,
    may_lift,
    recommend,
    refuse_not_running,
    refuse_workflow_step,
    remaining_ms,
)

WORKFLOW_STATUSES: tuple[str, ...] = get_args(WorkflowStatus)
STORED = tuple(status for status in TASK_STATUSES if status != "blocked")
# Design section 6, word for word.
WORKFLOW_GOES = {
    ("planning", "ready"),
    ("planning", "abandoned"),
    ("ready", "in_progress"),
    ("ready", "abandoned"),
    ("in_progress", "paused"),
    ("in_progress", "completed"),
    ("in_progress", "failed"),
    ("in_progress", "abandoned"),
    ("paused", "in_progress"),
    ("paused", "abandoned"),
    ("failed", "in_progress"),
    ("failed", "abandoned"),
}
TASK_GOES = {  # back to pending happens by release, expiry and replan only, so no status update leads there
    ("pending", "planning"),
    ("pending", "in_progress"),
    ("pending", "skipped"),
    ("planning", "in_progress"),
    ("planning", "failed"),
    ("planning", "paused"),
    ("in_progress", "completed"),
    ("in_progress", "failed"),
    ("in_progress", "paused"),
    ("paused", "in_progress"),
    ("failed", "in_progress"),
    ("failed", "skipped"),
}


def workflow(status: str = "in_progress", tasks: int = 4, finished: int = 4, **more: Any) -> Any:
    counts = {"task_count": tasks, "finished_count": finished, "completed_count": finished}
    return {
        "id": "wf_1",
        "status": status,
        "max_parallel_tasks": 1,
        "started_at": None,
        "halted_by": None,
        "hall_pause": None,
        "status_reason": None,
        "has_plan": 1,
        **counts,
        **more,
    }


def task(status: str = "pending", waits_for: int = 0, **more: Any) -> Any:
    return {"id": "tk_1", "status": status, "waits_for": waits_for, "claimed_by": None, "claim_epoch": 0, **more}


def failure(act: Any, *arguments: Any) -> Failure | None:
    try:
        act(*arguments)
    except Failure as error:
        return error
    return None


def test_the_statuses_are_those_of_the_seed() -> None:
    assert set(get_args(TaskStatus)) == set(TASK_STATUSES)
    assert set(WORKFLOW_STATUSES) == {word for pair in WORKFLOW_GOES for word in pair}
    assert set(STORED) == {word for pair in TASK_GOES for word in pair}


@pytest.mark.parametrize(("before", "after"), list(product(WORKFLOW_STATUSES, WORKFLOW_STATUSES)))
def test_a_workflow_goes_where_the_design_says_and_nowhere_else(before: str, after: Any) -> None:
    refused = failure(refuse_workflow_step, workflow(before), after, "worker")
    if (before, after) in WORKFLOW_GOES:
        assert refused is None
    else:
        assert isinstance(refused, InvalidTransition) and refused.hint.startswith(f"From {before} it goes to ")


@pytest.mark.parametrize(("before", "after"), list(product(STORED, TASK_STATUSES)))
def test_a_task_goes_where_the_design_says_and_nowhere_else(before: str, after: str) -> None:
    refused = failure(refuse_task_step, task(before), after, "done", "broken")
    if (before, after) in TASK_GOES:
        assert refused is None
    else:
        assert isinstance(refused, InvalidTransition) and refused.hint


@pytest.mark.parametrize(("before", "after"), sorted(TASK_GOES))
def test_a_task_that_waits_is_not_begun_and_can_be_skipped(before: str, after: str) -> None:
    refused = failure(refuse_task_step, task(before, waits_for=2), after, "done", "broken")
    begins = before in ("pending", "failed") and after != "skipped"
    assert isinstance(refused, TaskBlocked) if begins else refused is None


@pytest.mark.parametrize(("status", "missing"), [("completed", "an outcome"), ("failed", "an error")])
@pytest.mark.parametrize("empty", [None, ""])
def test_an_end_needs_its_words(status: str, missing: str, empty: str | None) -> None:
    with pytest.raises(InvalidInput, match=f"{status} needs {missing}"):
        refuse_task_step(task("in_progress"), status, *((empty, "e") if status == "completed" else ("o", empty)))


def test_a_workflow_is_not_ready_without_a_plan_nor_completed_with_open_tasks() -> None:
    with pytest.raises(InvalidState, match="no plan yet"):
        refuse_workflow_step(workflow("planning", 0, 0), "ready", "operator")
    with pytest.raises(InvalidState, match="1 of 4 tasks are not finished"):
        refuse_workflow_step(workflow("in_progress", 4, 3), "completed", "operator")
    refuse_workflow_step(workflow("in_progress", 4, 3), "failed", "operator")


@pytest.mark.parametrize("after", WORKFLOW_STATUSES)
def test_a_paused_workflow_without_a_plan_is_planned_before_it_goes_on(after: Any) -> None:
    refused = failure(refuse_workflow_step, workflow("paused", 0, 0, has_plan=0), after, "operator")
    assert (refused is None) == (after in ("planning", "abandoned", "paused"))
    assert refused is None or "planning or abandoned" in refused.hint


PAUSERS = (None, "worker", "coordinator", "operator", "judge")


@pytest.mark.parametrize(("actor", "by"), list(product(PAUSERS[1:4], PAUSERS)))
def test_a_pause_is_lifted_by_its_rank_and_made_stricter_by_a_higher_one(actor: Any, by: Any) -> None:
    rank = {None: 0, "worker": 0, "coordinator": 1, "operator": 2, "judge": 2}
    assert may_lift(actor, by) == (rank[actor] >= rank[by])
    again = failure(refuse_workflow_step, workflow("paused", halted_by=by), "paused", actor)
    assert (again is None) == (rank[actor] > rank[by])


@pytest.mark.parametrize("status", WORKFLOW_STATUSES)
def test_tasks_are_begun_while_a_workflow_is_ready_or_in_progress(status: str) -> None:
    refused = failure(refuse_not_running, workflow(status), "claimed")
    assert (refused is None) == (status in ("ready", "in_progress"))
    assert refused is None or (isinstance(refused, InvalidState) and refused.hint)


@pytest.mark.parametrize(("status", "waits_for"), list(product(STORED, (0, 3))))
def test_finished_and_waiting_tasks_are_not_claimed(status: str, waits_for: int) -> None:
    refused = failure(refuse_unclaimable, task(status, waits_for))
    if status in ("completed", "skipped"):
        assert isinstance(refused, InvalidState)
    elif waits_for and status in ("pending", "failed"):
        assert isinstance(refused, TaskBlocked)
    else:
        assert refused is None


@pytest.mark.parametrize(("status", "waits_for"), list(product(STORED, (0, 1))))
def test_only_a_pending_task_that_waits_is_shown_as_blocked(status: str, waits_for: int) -> None:
    blocked = status == "pending" and waits_for
    assert shown_status(task(status, waits_for)) == ("blocked" if blocked else status)


def test_what_an_agent_lacks_is_named() -> None:
    refuse_incapable(task(), [], "ag_1")
    with pytest.raises(InvalidState, match="needs rust, sql, and agent ag_1"):
        refuse_incapable(task(), ["rust", "sql"], "ag_1")


def test_a_stale_writer_hears_who_holds_the_task_at_which_epoch() -> None:
    held = stale_claim(task("in_progress", claimed_by="ag_2", claim_epoch=7))
    assert "held by ag_2, at epoch 7" in held.message
    assert held.fields == {"current_epoch": 7, "claimed_by": "ag_2"}
    assert "blocked and held by no one" in stale_claim(task("pending", 1)).message


def overlap(ours: list[str], theirs: list[str]) -> bool:
    return Reach(ours).meets(Reach(theirs))


@pytest.mark.parametrize(
    ("ours", "theirs", "meets"),
    [
        ([], [], False),
        ([], ["a"], False),
        ([], ["."], False),
        (["a"], ["a"], True),
        (["a"], ["b"], False),
        (["a"], ["ab"], False),
        (["./a"], ["a"], True),
        (["a/"], ["a"], True),
        (["src/../a"], ["a"], True),
        (["src"], ["src/a.py"], True),
        (["src/"], ["src/deep/er/a.py"], True),
        (["src/a"], ["src/a.py"], False),
        (["src/*.py"], ["src/a.py"], True),
        (["src/*.py"], ["src/a.js"], False),
        (["*"], ["src/a.py"], True),
        (["src"], ["src/*.py"], True),
        (["src/deep"], ["src/deep/*/x.py"], True),
        (["src/*.py"], ["src/*.py"], True),
        (["src/**/*.py"], ["src/a.py"], True),
        (["src/**"], ["src/a/b.py"], True),
        (["."], ["src/a.py"], True),
        (["."], ["*.py"], True),
        (["/srv/app"], ["/srv/app/a.py"], True),
        (["/srv/app"], ["/srv/apple"], False),
        (["x", "y", "z/q"], ["k", "z"], True),
        (["a[1]"], ["a[1]"], True),
        (["Src"], ["src"], False),
    ],
)
def test_files_overlap_when_they_are_the_same_one_inside_the_other_or_by_pattern(
    ours: list[str], theirs: list[str], meets: bool
) -> None:
    assert overlap(ours, theirs) is meets
    assert overlap(theirs, ours) is meets


paths = st.lists(st.sampled_from(["a", "a/b", "a/b/c.py", "b", "b/*.py", "b/x.py", "c", "./c/d", "*/x.py"]), max_size=4)


@given(paths, paths)
def test_overlap_is_the_same_both_ways_and_with_itself(ours: list[str], theirs: list[str]) -> None:
    assert overlap(ours, theirs) == overlap(theirs, ours) == any(overlap([a], [b]) for a in ours for b in theirs)
    assert overlap(ours, ours) is bool(ours)


@given(st.lists(paths, max_size=8), st.lists(paths, max_size=3), st.integers(0, 5))
def test_recommended_tasks_touch_no_files_of_each_other_and_nothing_is_left_out_without_reason(
    ready: list[list[str]], running: list[list[str]], slots: int
) -> None:
    candidates = [(f"t{number}", files) for number, files in enumerate(ready)]
    chosen = recommend(candidates, [(f"r{number}", files) for number, files in enumerate(running)], slots)
    files = dict(candidates)
    assert len(chosen) <= slots and chosen == sorted(chosen, key=lambda one: int(one[1:]))
    for number, one in enumerate(chosen):
        others = [*running, *(files[other] for other in chosen[:number])]
        assert not any(overlap(files[one], theirs) for theirs in others)
    if len(chosen) < slots:
        taken = [*running, *(files[one] for one in chosen)]
        assert all(any(overlap(theirs, files[one]) for theirs in taken) for one in files if one not in chosen)


def test_many_and_hostile_patterns_are_given_up_in_time() -> None:
    hostile = ["*a" * 150 + "b"] * 20 + ["d/" * 2000 + "x"] * 100
    candidates = [
        (f"t{number}", [f"src/{number}/*.py", *(f"src/{number}/{n}" for n in range(99))]) for number in range(900)
    ]
    began = time.process_time()
    chosen = recommend(candidates, [("r", hostile)], 900)
    assert time.process_time() - began < 5
    assert 0 < len(chosen) < 900, "what could not be compared in time is left out"


def test_tasks_without_files_are_all_recommended() -> None:
    assert len(recommend([(f"t{number}", []) for number in range(900)], [("r", ["src/*"])], 800)) == 800


def test_tasks_whose_work_conflicts_are_not_recommended_together() -> None:
    ready: list[tuple[str, list[str]]] = [(name, []) for name in "abcd"]
    clashes = {"a": {"c"}, "c": {"a"}, "d": {"r"}, "r": {"d"}}
    assert recommend(ready, [("r", [])], 4, clashes) == ["a", "b"]
    assert recommend(ready[1:], [], 4, clashes) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("row", "longest", "now", "remaining"),
    [
        # Before the first is completed: the longest chain, or all of it side by side, whichever is longer.
        (workflow(tasks=4, finished=0), 20, 0, (60 * 60_000, False)),
        (workflow(tasks=4, finished=0, max_parallel_tasks=4), 20, 0, (20 * 60_000, False)),
        (workflow(tasks=4, finished=0, max_parallel_tasks=3), 0, 0, (20 * 60_000, False)),
        (workflow(tasks=4, finished=0, max_parallel_tasks=7), 0, 0, (9 * 60_000, False)),
        # Skipped ones are finished, and say nothing about the rate.
        (workflow(tasks=4, finished=2, completed_count=0, started_at=0), 0, 9_000, (30 * 60_000, False)),
        # After it: so long for each that was completed.
        (workflow(tasks=4, finished=1, started_at=1_000), 99, 7_000, (18_000, True)),
        (workflow(tasks=4, finished=2, completed_count=1, started_at=0), 99, 5_000, (10_000, True)),
        (workflow(tasks=4, finished=4, started_at=0), 0, 5_000, (0, True)),
        (workflow(tasks=4, finished=1, started_at=5_000), 0, 5_000, (3, True)),
        (workflow(tasks=0, finished=0), 0, 0, (0, False)),
    ],
)
def test_what_remains_is_told_by_complexity_and_then_by_the_rate(
    row: Any, longest: int, now: int, remaining: tuple[int, bool]
) -> None:
    assert remaining_ms(row, longest, now) == remaining


def test_every_refusal_says_what_to_do_next() -> None:
    for before, after in product(STORED, TASK_STATUSES):
        refused = failure(refuse_task_step, task(before), after, None, None)
        assert refused is None or (refused.message and refused.hint.endswith((".", "it.")))
