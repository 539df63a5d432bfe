"""
Rules of tasks: which status may follow which. No clock, no database, no world.

    task      pending ─▶ planning ─▶ in_progress ◀─▶ paused    in_progress ─▶ completed | failed      pending ─▶ skipped
                 ▲───── release, expiry, replan ─────┘         failed ─▶ in_progress | skipped
"""

from collections.abc import Sequence

from crewhall.errors import InvalidInput, InvalidTransition, TaskBlocked
from crewhall.families.work.task.model import FINISHED, TaskRow
from crewhall.families.work.workflow.rules import alternatives

TASK_NEXT: dict[str, tuple[str, ...]] = {
    "pending": ("planning", "in_progress", "skipped"),
    "planning": ("in_progress", "failed", "paused"),
    "in_progress": ("completed", "failed", "paused"),
    "paused": ("in_progress",),
    "failed": ("in_progress", "skipped"),
    "completed": (),
    "skipped": (),
}
RUNNING = ("planning", "in_progress")  # counts towards max_parallel_tasks, as does a task that is held
UNDER_WAY = ("planning", "in_progress", "paused")
BINDING = {  # statuses that begin or finish work, which a pause of the workflow holds up, and the words for that
    "planning": "planned",
    "in_progress": "begun",
    "completed": "completed",
    "failed": "set failed",
    "skipped": "skipped",
}
REPLANNED = ("planning", "in_progress", "paused", "failed")


def refuse_task_step(
    task: TaskRow, after: str, outcome: str | None, error: str | None, waited_for: Sequence[str] = ()
) -> None:
    """Raise InvalidTransition, TaskBlocked, or InvalidInput when what the new status needs is missing."""
    before = task["status"]
    if after == "blocked":
        raise InvalidTransition(
            "blocked is not set: a task is blocked while it waits for others",
            hint="To put a task aside, set it paused, or release it.",
        )
    if after not in TASK_NEXT[before]:
        raise InvalidTransition(f"task {task['id']} is {before}, and does not go to {after} from there", _way(task))
    if before in ("pending", "failed") and after != "skipped":
        refuse_blocked(task, waited_for)
    if after == "completed" and not outcome:
        raise InvalidInput("completed needs an outcome", hint="Say in outcome what was done; others build on it.")
    if after == "failed" and not error:
        raise InvalidInput("failed needs an error", hint="Say in error what went wrong; whoever tries again needs it.")


def _way(task: TaskRow) -> str:
    """What leads on from where the task is."""
    before = task["status"]
    if before in FINISHED:
        return "It is finished, and stays so. workflow_add_tasks makes a new task for more work."
    back = "task_replan leads back to pending" if before == "failed" else "task_release leads back to pending"
    onward = f"From {before} it goes to {alternatives(TASK_NEXT[before])}"
    return f"{onward}." if before == "pending" else f"{onward}; {back}."


def is_running(task: TaskRow) -> bool:
    """Whether a task takes one of the places that its workflow's max_parallel_tasks gives."""
    return task["claimed_by"] is not None or task["status"] in RUNNING


def is_begun(task: TaskRow) -> bool:
    """Whether somebody is at the task, and so may go on with it while its workflow counts as failed."""
    return is_running(task) and task["status"] not in ("pending", "failed")


def refuse_blocked(task: TaskRow, waited_for: Sequence[str] = ()) -> None:
    """Raise TaskBlocked for a task that waits for others, and name some of them."""
    if task["waits_for"] > 0:
        named = f": {', '.join(waited_for)}" if waited_for else ""
        raise TaskBlocked(
            f"task {task['id']} waits for others that are not finished{named}",
            hint="task_check_dependencies names them; workflow_next_tasks and task_get_available show what is ready.",
        )
