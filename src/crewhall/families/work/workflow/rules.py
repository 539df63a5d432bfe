"""
Rules of workflows: which status follows which, and which tasks run side by side. No clock, no database, no world.

    planning ─▶ ready ─▶ in_progress ◀─▶ paused      in_progress ─▶ completed | failed      any ─▶ abandoned
        ◀── without a plan ── paused
"""

import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

from crewhall.errors import InvalidState, InvalidTransition
from crewhall.families.work.workflow.model import Pauser, WorkflowLocked, WorkflowState, WorkflowStatus

WORKFLOW_NEXT: dict[str, tuple[WorkflowStatus, ...]] = {
    "planning": ("ready", "abandoned"),
    "ready": ("in_progress", "abandoned"),
    "in_progress": ("paused", "completed", "failed", "abandoned"),
    "paused": ("in_progress", "abandoned"),
    "failed": ("in_progress", "abandoned"),
    "completed": (),
    "abandoned": (),
}
UNPLANNED_NEXT: tuple[WorkflowStatus, ...] = ("planning", "abandoned")  # of a paused one that the judge halted early
RANK: dict[Pauser | None, int] = {None: 0, "worker": 0, "coordinator": 1, "operator": 2, "judge": 2}
LIFTERS = ("Any agent", "Only a coordinator or the operator", "Only the operator")  # by that rank
ARTICLE: dict[Pauser, str] = {
    "worker": "a worker",
    "coordinator": "a coordinator",
    "operator": "the operator",
    "judge": "the judge",
}
PATHS, PATH_LETTERS, PATH_DEPTH, PATTERNS = 200, 400, 40, 20  # of one task, that are looked at
WILD = re.compile(r"[*?[]")
LOOKS = 1_000_000  # pairs of pattern and path that are compared for one answer
RUNS = ("ready", "in_progress")  # workflows whose tasks may be begun


def refuse_workflow_step(workflow: WorkflowLocked, after: WorkflowStatus, actor: Pauser) -> None:
    """Raise InvalidTransition, or InvalidState when it is not time yet."""
    before = workflow["status"]
    onward = UNPLANNED_NEXT if before == "paused" and not workflow["has_plan"] else WORKFLOW_NEXT[before]
    if after not in onward and not (before == after == "paused" and _takes_over(actor, workflow)):
        raise InvalidTransition(
            f"workflow {workflow['id']} is {before}, and does not go to {after} from there",
            hint=f"From {before} it goes to {alternatives(onward)}.",
        )
    if after == "ready" and not workflow["task_count"]:
        raise InvalidState(f"workflow {workflow['id']} has no plan yet", hint="workflow_set_plan makes it ready.")
    unfinished = workflow["task_count"] - workflow["finished_count"]
    if after == "completed" and unfinished:
        raise InvalidState(
            f"{unfinished} of {workflow['task_count']} tasks are not finished",
            hint="workflow_progress shows them. Finish or skip them first; or the workflow can be abandoned.",
        )


def may_lift(actor: Pauser, halted_by: Pauser | None) -> bool:
    """Whether this kind of actor may end a pause. Nobody is known to have set one of an older hub: anyone may."""
    return RANK[actor] >= RANK[halted_by]


def _takes_over(actor: Pauser, workflow: WorkflowLocked) -> bool:
    """Whether this kind of actor may make a pause its own: another can't lift it then, nor does hall_resume."""
    is_of_hall = actor == "operator" and workflow["hall_pause"] is not None
    return is_of_hall or RANK[actor] > RANK[workflow["halted_by"]]


def lifters(workflow: WorkflowLocked) -> str:
    """Who may end the workflow's pause, as a sentence begins."""
    return LIFTERS[RANK[workflow["halted_by"]]]


def takes_a_person(workflow: WorkflowLocked) -> bool:
    """Whether the operator alone may end its pause."""
    return RANK[workflow["halted_by"]] == RANK["operator"]


def is_halted(workflow: WorkflowLocked) -> bool:
    """Whether the judge has stopped it: then the operator alone resumes it."""
    return workflow["status"] == "paused" and workflow["halted_by"] == "judge"


def pause_text(workflow: WorkflowLocked) -> str:
    """By whom the workflow is paused, and the reason that was given."""
    by = "" if workflow["halted_by"] is None else f" by {ARTICLE[workflow['halted_by']]}"
    return f"workflow {workflow['id']} is paused{by}: {workflow['status_reason'] or 'no reason was given'}"


def pause_fields(workflow: WorkflowLocked) -> dict[str, str | None]:
    """What a refusal says of the pause: by whom, and why."""
    return {"paused_by": workflow["halted_by"], "reason": workflow["status_reason"]}


def refuse_paused(workflow: WorkflowLocked, what: str) -> None:
    """Raise InvalidState while the workflow is paused: until it goes on, no task of it is begun or finished."""
    if workflow["status"] == "paused":
        what_of = "--all" if workflow["hall_pause"] is not None else workflow["id"]
        way = f": `crewhall resume {what_of}`" if takes_a_person(workflow) else ", with workflow_update_status"
        raise InvalidState(
            f"{pause_text(workflow)}. No task of it can be {what}",
            hint="Begin and finish nothing in it. Add a checkpoint (checkpoint_add), then wait or release the task "
            f"(task_release). {lifters(workflow)} resumes it{way}.",
            **pause_fields(workflow),
        )


def refuse_not_running(workflow: WorkflowLocked, what: str) -> None:
    """Raise InvalidState when no task of the workflow may be begun now."""
    refuse_paused(workflow, what)
    status = workflow["status"]
    if status not in RUNS:
        hints = {
            "planning": "workflow_set_plan makes it ready.",
            "completed": "It is finished; a new workflow is for new work.",
            "abandoned": "It was given up; a new workflow is for new work.",
        }
        raise InvalidState(
            f"workflow {workflow['id']} is {status}, and no task of it can be {what}",
            hint=hints.get(status, "workflow_update_status sets it in_progress again."),
        )


class Reach:
    """What a list of paths is likely to touch: the paths, all above them, and what patterns begin and end with.

    A pattern is a path as well: `app/[id]/page.tsx` is a file's name to some. Of a long list the first part counts.
    """

    def __init__(self, files: Sequence[str] = ()) -> None:
        self.paths = {posixpath.normpath(path[:PATH_LETTERS]) for path in files[:PATHS]}
        self.above = {".", "/"} if self.paths else set()
        self.globs: list[tuple[str, str]] = []
        for path in sorted(self.paths):
            parts = path.split("/")[:PATH_DEPTH]
            self.above |= {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}
            if len(self.globs) < PATTERNS and (first := WILD.search(path)):
                last = max(map(path.rfind, "*?["))
                self.globs.append((path[: first.start()], path[path.rfind("]", last) + 1 or last + 1 :]))

    def looks(self, other: "Reach") -> int:
        """How many pairs have to be looked at to tell whether they meet; sets are for free."""
        return len(self.globs) * len(other.paths) + len(other.globs) * len(self.paths)

    def meets(self, other: "Reach") -> bool:
        if not self.paths.isdisjoint(other.above) or not other.paths.isdisjoint(self.above):
            return True
        return self._covers(other) or other._covers(self) or self._crosses(other)

    def _covers(self, other: "Reach") -> bool:
        return any(path.startswith(head) and path.endswith(tail) for head, tail in self.globs for path in other.paths)

    def _crosses(self, other: "Reach") -> bool:
        """Whether a pattern of one and a pattern of the other may mean the same file."""
        return any(
            (head.startswith(front) or front.startswith(head)) and (tail.endswith(back) or back.endswith(tail))
            for head, tail in self.globs
            for front, back in other.globs
        )

    def add(self, other: "Reach") -> None:
        self.paths |= other.paths
        self.above |= other.above
        self.globs += other.globs


def recommend(
    candidates: Sequence[tuple[str, list[str]]],
    running: Sequence[tuple[str, list[str]]],
    slots: int,
    clashes: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> list[str]:
    """The ids of the tasks to start now: at most `slots`, in their order, none likely to touch files of another.

    `clashes` names, for a task, those whose work would conflict with what there is of it already. Where it would take
    too long to tell, because of many patterns, a task is left out.
    """
    chosen: list[str] = []
    taken = Reach()
    begun = {task_id for task_id, _ in running}
    for _, files in running:
        taken.add(Reach(files))
    left = LOOKS
    for task_id, files in candidates:
        if len(chosen) >= slots:
            break
        one = Reach(files)
        left -= one.looks(taken)
        if left > 0 and not one.meets(taken) and begun.isdisjoint(clashes.get(task_id, ())):
            chosen.append(task_id)
            begun.add(task_id)
            taken.add(one)
    return chosen


def conflicts(files: list[str], others: Sequence[tuple[str, Reach]], most: int) -> list[str]:
    """Ids of those of the others that are likely to touch one of the files, so many at the most."""
    one = Reach(files)
    return list(islice((task_id for task_id, theirs in others if one.meets(theirs)), most))


def remaining_ms(workflow: WorkflowState, longest_minutes: int, now: int) -> tuple[int, bool]:
    """Milliseconds until all is finished, and whether that comes from the rate so far and not from complexity."""
    unfinished = workflow["task_count"] - workflow["finished_count"]
    if workflow["completed_count"] and workflow["started_at"] is not None:
        elapsed = max(1, now - workflow["started_at"])
        return unfinished * elapsed // workflow["completed_count"], True
    side_by_side = -(-unfinished * 15 // workflow["max_parallel_tasks"])
    return max(longest_minutes, side_by_side) * 60_000, False


def alternatives(words: Sequence[str]) -> str:
    return " or ".join(words) or "nothing: that is final"
