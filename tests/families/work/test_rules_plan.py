"""The graph of a plan against a slow and simple one: what waits for what, cycles, and the longest chains."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.errors import InvalidInput
from crewhall.families.work.workflow.rules_plan import MINUTES, NAMED, GraphTask, refuse_misnamed, standings
from tests.sizes import size

FOR_EVER = "these tasks would wait for each other for ever: "


@dataclass(frozen=True)
class Wanted:
    """A task that is to be, as far as its name matters."""

    name: str
    depends_on: list[str] = field(default_factory=list)


def graph_task(name: str, sequence: int, *depends_on: str, **more: Any) -> GraphTask:
    return GraphTask(name, name, sequence, depends_on, **more)


def blockers(steps: Sequence[GraphTask]) -> dict[str, set[str]]:
    """For each unfinished task the unfinished ones that it waits for, read off the rule as it is written."""
    live = [one for one in steps if not one.is_finished]
    found = {}
    for one in live:
        if one.depends_on:
            found[one.id] = {other.id for other in live if other.id in one.depends_on}
        else:
            found[one.id] = {other.id for other in live if other.sequence < one.sequence}
    return found


def finishing_order(waiting: dict[str, set[str]]) -> list[str]:
    """The tasks in an order in which they can be done; those that never can are not in it."""
    order: list[str] = []
    left = dict(waiting)
    while ready := [one for one, others in left.items() if not others - set(order)]:
        order += ready
        for one in ready:
            del left[one]
    return order


def longest(steps: Sequence[GraphTask], waiting: dict[str, set[str]]) -> dict[str, int]:
    minutes = {one.id: one.minutes for one in steps}
    tails: dict[str, int] = {}
    for one in reversed(finishing_order(waiting)):
        behind = [tails[other] for other, others in waiting.items() if one in others]
        tails[one] = minutes[one] + max(behind, default=0)
    return tails


def named_path(error: InvalidInput) -> list[str]:
    assert error.message.startswith(FOR_EVER)
    return error.message.removeprefix(FOR_EVER).split(" → ")


@st.composite
def graphs(draw: st.DrawFn, any_way: bool = False) -> list[GraphTask]:
    """A few tasks that depend on earlier ones, or on any; some are finished."""
    count = draw(st.integers(1, 9))
    steps = []
    for number in range(count):
        others = [f"t{n}" for n in range(count if any_way else number) if n != number]
        wanted = draw(st.lists(st.sampled_from(others), unique=True, max_size=3)) if others else []
        steps.append(
            graph_task(
                f"t{number}",
                draw(st.integers(-2, 3)),
                *wanted,
                minutes=draw(st.sampled_from([5, 15, 45])),
                is_finished=draw(st.sampled_from([False, False, False, True])),
            )
        )
    return steps


# What is refused


def test_a_name_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="two tasks named 'a'"):
        refuse_misnamed([Wanted("a"), Wanted("b"), Wanted("a")])


def test_a_name_that_the_workflow_has_already_is_refused() -> None:
    with pytest.raises(InvalidInput, match="two tasks named 'a'"):
        refuse_misnamed([Wanted("a")], ["a"])


def test_a_task_that_depends_on_itself_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'a' depends on itself"):
        refuse_misnamed([Wanted("a", ["a"])])


def test_a_dependency_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidInput, match="'b' depends on 'bild', which is not in the plan") as refused:
        refuse_misnamed([Wanted("build"), Wanted("b", ["bild"])])
    assert refused.value.hint == "Did you mean 'build'?"
    with pytest.raises(InvalidInput) as refused:
        refuse_misnamed([Wanted("build"), Wanted("b", ["zzz"])])
    assert refused.value.hint == "depends_on holds names of tasks of this workflow."


def test_a_misnamed_dependency_of_a_huge_plan_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match="which is not in the plan"):
        refuse_misnamed([*(Wanted(f"{'x' * 190}{n}") for n in range(20_000)), Wanted("b", ["y" * 200])])


def test_names_that_are_there_and_later_ones_are_no_mistake() -> None:
    refuse_misnamed([Wanted("a", ["b", "old", "b"]), Wanted("b")], ["old"])


@pytest.mark.parametrize("size", [2, 3, NAMED])
def test_the_path_of_a_cycle_is_named_and_each_task_waits_for_the_next(size: int) -> None:
    steps = [graph_task(f"t{n}", 1, f"t{(n + 1) % size}") for n in range(size)]
    with pytest.raises(InvalidInput) as refused:
        standings([*steps, graph_task("aside", 1), graph_task("before", 0)])
    path = named_path(refused.value)
    assert len(path) == size + 1 and path[0] == path[-1]
    follows = {one.name: one.depends_on[0] for one in steps}
    assert all(follows[one] == after for one, after in pairwise(path))
    assert refused.value.hint == "Take one of these out of another's depends_on."


def test_a_cycle_by_lower_sequences_names_its_path_and_says_why() -> None:
    """The late one depends on nothing, so it waits for the early one, which depends on it."""
    with pytest.raises(InvalidInput) as refused:
        standings([graph_task("early", 1, "late"), graph_task("late", 2), graph_task("aside", 1)])
    path = named_path(refused.value)
    assert path in (["early", "late", "early"], ["late", "early", "late"])
    assert "'late' depends on nothing, so it waits for every task of a sequence below 2" in refused.value.hint


def test_a_cycle_by_lower_sequences_over_several_gates_is_refused() -> None:
    steps = [graph_task("a", 1, "d"), graph_task("b", 2), graph_task("c", 3), graph_task("d", 9)]
    with pytest.raises(InvalidInput, match="d") as refused:
        standings(steps)
    path = named_path(refused.value)
    waiting = blockers(steps)
    assert path[0] == path[-1]
    assert all(after in waiting[one] for one, after in pairwise(path))


@given(graphs(any_way=True))
@settings(max_examples=size(70, 200), deadline=None)
def test_exactly_what_can_never_be_finished_is_refused_and_the_path_is_real(steps: list[GraphTask]) -> None:
    waiting = blockers(steps)
    can_be_done = len(finishing_order(waiting)) == len(waiting)
    try:
        standings(steps)
    except InvalidInput as error:
        assert not can_be_done
        path = named_path(error)
        assert path[0] == path[-1] and len(path) > 2
        if len(path) <= NAMED + 1:
            assert all(after in waiting[one] for one, after in pairwise(path))
    else:
        assert can_be_done


def test_a_chain_of_ten_thousand_tasks_stands() -> None:
    count = 10_000
    found = standings([graph_task(f"t{n}", 1, *([f"t{n - 1}"] if n else [])) for n in range(count)])
    assert found["t0"].tail == 15 * count and found["t0"].waits_for == 0 and found["t0"].tail_next == "t1"
    assert found["t9999"].tail == 15 and found["t9999"].waits_for == 1 and found["t9999"].tail_next is None


def test_a_chain_of_ten_thousand_sequences_stands() -> None:
    found = standings([graph_task(f"t{n}", n) for n in range(10_000)])
    assert found["t0"].tail == 150_000 and found["t0"].tail_next == "t1"
    assert {one.waits_for for name, one in found.items() if name != "t0"} == {1}


def test_a_cycle_of_ten_thousand_tasks_is_named_in_short() -> None:
    count = 10_000
    with pytest.raises(InvalidInput) as refused:
        standings([graph_task(f"t{n}", 1, f"t{(n + 1) % count}") for n in range(count)])
    path = named_path(refused.value)
    assert path[NAMED // 2] == f"… {count + 1 - NAMED} more …" and len(path) == NAMED + 1
    numbers = [int(name[1:]) for name in path if name.startswith("t")]
    assert numbers[0] == numbers[-1]
    assert all((before + 1) % count == after for before, after in pairwise(numbers[:4]))
    assert all((before + 1) % count == after for before, after in pairwise(numbers[4:]))


# Where tasks stand


@given(graphs())
@settings(max_examples=size(100, 300), deadline=None)
def test_standings_are_those_of_a_slow_and_simple_count(steps: list[GraphTask]) -> None:
    waiting = blockers(steps)
    if len(finishing_order(waiting)) < len(waiting):
        with pytest.raises(InvalidInput):
            standings(steps)
        return
    found, tails = standings(steps), longest(steps, waiting)
    assert set(found) == {one.id for one in steps if not one.is_finished}
    minutes = {one.id: one.minutes for one in steps}
    for name, standing in found.items():
        assert (standing.waits_for > 0) == bool(waiting[name])
        named = next(one for one in steps if one.id == name).depends_on
        assert standing.waits_for == (len(waiting[name]) if named else min(1, len(waiting[name])))
        assert standing.tail == tails[name]
        if standing.tail_next is None:
            assert standing.tail == minutes[name]
        else:
            assert name in waiting[standing.tail_next]
            assert standing.tail == minutes[name] + tails[standing.tail_next]


def test_a_task_with_dependencies_does_not_wait_for_lower_sequences() -> None:
    found = standings([graph_task("a", 1), graph_task("b", 1), graph_task("c", 2, "a"), graph_task("d", 2)])
    assert {name: one.waits_for for name, one in found.items()} == {"a": 0, "b": 0, "c": 1, "d": 1}


def test_a_task_whose_dependencies_are_finished_waits_for_nothing_not_even_lower_sequences() -> None:
    found = standings([graph_task("a", 1, is_finished=True), graph_task("b", 1), graph_task("c", 2, "a")])
    assert found["c"].waits_for == 0


def test_complexity_weighs_as_the_table_says() -> None:
    assert MINUTES == {"low": 5, None: 15, "medium": 15, "high": 45}
    found = standings([graph_task("a", 1, minutes=5), graph_task("b", 2, minutes=45), graph_task("c", 2, minutes=15)])
    assert (found["a"].tail, found["a"].tail_next) == (50, "b")


def test_nothing_to_do_is_nothing() -> None:
    assert standings([]) == {} and standings([graph_task("a", 1, is_finished=True)]) == {}
