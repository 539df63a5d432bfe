"""
The graph of a plan: what waits for what, what would wait for ever, and how long the chains are.

A task waits for the tasks it depends on; one that depends on none waits for all tasks of a lower sequence. The second
kind is a gate before each sequence that a task holds shut, so that the graph stays small:

    tasks of sequence 1 ──▶ gate 2 ──▶ tasks of sequence 2 without dependencies
                              └──────▶ gate 3 ──▶ …
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Protocol

from crewhall.errors import InvalidInput
from crewhall.spelling import did_you_mean

MINUTES = {"low": 5, None: 15, "medium": 15, "high": 45}  # what a task is taken to need before any is done
NAMED = 8  # of the tasks of a cycle that a message names
Gate = int
Node = str | Gate


class NamedTask(Protocol):
    """What the checks need of a planned task."""

    @property
    def name(self) -> str: ...
    @property
    def depends_on(self) -> list[str]: ...


@dataclass(frozen=True)
class GraphTask:
    """A task in the graph: the ids of its dependencies, and its estimate in minutes."""

    id: str
    name: str
    sequence: int
    depends_on: tuple[str, ...]
    minutes: int = 15
    is_finished: bool = False


@dataclass(frozen=True)
class Standing:
    """Where a task stands in the graph: for how many things it waits, and the longest chain that begins with it."""

    waits_for: int
    tail: int
    tail_next: str | None


def refuse_misnamed(tasks: Sequence[NamedTask], known: Sequence[str] = ()) -> None:
    """Raise InvalidInput for a name that is there twice, and for a dependency on itself or on what is not there."""
    names = set(known)
    for task in tasks:
        if task.name in names:
            raise InvalidInput(f"there are two tasks named '{task.name}'", hint="Give each task a name of its own.")
        names.add(task.name)
    for task in tasks:
        for wanted in task.depends_on:
            if wanted == task.name:
                raise InvalidInput(f"task '{task.name}' depends on itself", hint="Take it out of its depends_on.")
            if wanted not in names:
                meant = did_you_mean(wanted, names) if len(names) <= 1000 else ""
                raise InvalidInput(
                    f"task '{task.name}' depends on '{wanted[:80]}', which is not in the plan",
                    hint=meant or "depends_on holds names of tasks of this workflow.",
                )


def standings(tasks: Sequence[GraphTask]) -> dict[str, Standing]:
    """Where each unfinished task stands. Raises InvalidInput that names the path when tasks wait for each other."""
    open_tasks = {task.id: task for task in tasks if not task.is_finished}
    waits = _waits(open_tasks)
    try:
        order = list(TopologicalSorter(waits).static_order())
    except CycleError as error:
        raise _cycle_error(open_tasks, error.args[1]) from None
    return _measure_chains(open_tasks, waits, order)


def _waits(tasks: Mapping[str, GraphTask]) -> dict[Node, list[Node]]:
    """What each unfinished task and each gate waits for."""
    sequences = sorted({task.sequence for task in tasks.values()})
    gates = {sequence: number for number, sequence in enumerate(sequences)}
    waits: dict[Node, list[Node]] = {number: [number - 1] for number in range(1, len(sequences))}
    for task in tasks.values():
        gate = gates[task.sequence]
        if gate + 1 < len(sequences):
            waits.setdefault(gate + 1, []).append(task.id)
        waits[task.id] = [wanted for wanted in task.depends_on if wanted in tasks]
        if not task.depends_on and gate > 0:
            waits[task.id] = [gate]
    return waits


def _measure_chains(
    tasks: Mapping[str, GraphTask], waits: Mapping[Node, list[Node]], order: list[Node]
) -> dict[str, Standing]:
    tails: dict[Node, int] = {}
    best: dict[Node, tuple[int, str | None]] = {}  # the longest chain behind a node, and the task it begins with
    for node in reversed(order):
        behind, first = best.get(node, (0, None))
        if isinstance(node, str):
            tails[node] = behind + tasks[node].minutes
            behind, first = tails[node], node
        for earlier in waits.get(node, ()):
            if behind > best.get(earlier, (0, None))[0]:
                best[earlier] = (behind, first)
    return {
        task_id: Standing(len(waits[task_id]), tails[task_id], best.get(task_id, (0, None))[1]) for task_id in tasks
    }


def _cycle_error(tasks: Mapping[str, GraphTask], cycle: Sequence[Node]) -> InvalidInput:
    """The error for a cycle, which names its path: each task waits for the next one."""
    path = [tasks[node] for node in reversed(cycle) if isinstance(node, str)]
    if path[0].id != path[-1].id:
        path.append(path[0])
    named = [task.name for task in path]
    if len(named) > NAMED + 1:
        named = [*named[: NAMED // 2], f"… {len(named) - NAMED} more …", *named[-NAMED // 2 :]]
    gated = next((task for task in path if not task.depends_on), None)
    reason = (
        f"'{gated.name}' depends on nothing, so it waits for every task of a sequence below {gated.sequence}: "
        "give it depends_on or a lower sequence."
        if gated
        else "Take one of these out of another's depends_on."
    )
    return InvalidInput(f"these tasks would wait for each other for ever: {' → '.join(named)}", hint=reason)
