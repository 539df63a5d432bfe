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


class Planned(Protocol):
    """What the checks need of a task that is to be."""

    @property
    def name(self) -> str: ...
    @property
    def depends_on(self) -> list[str]: ...


@dataclass(frozen=True)
class Step:
    """A task as the graph sees it: ids of what it depends on, and how long it is taken to need."""

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


def refuse_misnamed(tasks: Sequence[Planned], known: Sequence[str] = ()) -> None:
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


def standings(steps: Sequence[Step]) -> dict[str, Standing]:
    """Where each unfinished task stands. Raises InvalidInput that names the path when tasks wait for each other."""
    open_steps = {step.id: step for step in steps if not step.is_finished}
    waits = _waits(open_steps)
    try:
        order = list(TopologicalSorter(waits).static_order())
    except CycleError as error:
        raise _endless(open_steps, error.args[1]) from None
    return _measured(open_steps, waits, order)


def _waits(steps: Mapping[str, Step]) -> dict[Node, list[Node]]:
    """What each unfinished task and each gate waits for."""
    sequences = sorted({step.sequence for step in steps.values()})
    gates = {sequence: number for number, sequence in enumerate(sequences)}
    waits: dict[Node, list[Node]] = {number: [number - 1] for number in range(1, len(sequences))}
    for step in steps.values():
        gate = gates[step.sequence]
        if gate + 1 < len(sequences):
            waits.setdefault(gate + 1, []).append(step.id)
        waits[step.id] = [wanted for wanted in step.depends_on if wanted in steps]
        if not step.depends_on and gate > 0:
            waits[step.id] = [gate]
    return waits


def _measured(steps: Mapping[str, Step], waits: Mapping[Node, list[Node]], order: list[Node]) -> dict[str, Standing]:
    tails: dict[Node, int] = {}
    best: dict[Node, tuple[int, str | None]] = {}  # the longest chain behind a node, and the task it begins with
    for node in reversed(order):
        behind, first = best.get(node, (0, None))
        if isinstance(node, str):
            tails[node] = behind + steps[node].minutes
            behind, first = tails[node], node
        for earlier in waits.get(node, ()):
            if behind > best.get(earlier, (0, None))[0]:
                best[earlier] = (behind, first)
    return {
        task_id: Standing(len(waits[task_id]), tails[task_id], best.get(task_id, (0, None))[1]) for task_id in steps
    }


def _endless(steps: Mapping[str, Step], cycle: Sequence[Node]) -> InvalidInput:
    """The error that names the path: each task waits for the next one."""
    path = [steps[node] for node in reversed(cycle) if isinstance(node, str)]
    if path[0].id != path[-1].id:
        path.append(path[0])
    named = [step.name for step in path]
    if len(named) > NAMED + 1:
        named = [*named[: NAMED // 2], f"… {len(named) - NAMED} more …", *named[-NAMED // 2 :]]
    gated = next((step for step in path if not step.depends_on), None)
    reason = (
        f"'{gated.name}' depends on nothing, so it waits for every task of a sequence below {gated.sequence}: "
        "give it depends_on or a lower sequence."
        if gated
        else "Take one of these out of another's depends_on."
    )
    return InvalidInput(f"these tasks would wait for each other for ever: {' → '.join(named)}", hint=reason)
