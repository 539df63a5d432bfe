"""How a checkpoint is put down; by a tool, or by the hall when a task changes hands."""

from crewhall.families.work.task.model import TaskRow
from crewhall.identity import new_id
from crewhall.store.transaction import Tx


def add_checkpoint(
    tx: Tx,
    task: TaskRow,
    type: str,
    summary: str,
    now: int,
    *,
    detail: str | None = None,
    files_changed: str = "[]",
    agent_id: str | None = None,
) -> tuple[str, int]:
    """A new checkpoint's id and its number within the task, whose lock the caller holds.

    `agent_id` is None when the hall itself notes it.
    """
    task_id, checkpoint_id = task["id"], new_id("cp")
    sequence = task["checkpoint_count"] + 1
    tx.run("checkpoint_count", id=task_id, sequence=sequence, now=now)
    tx.run(
        "checkpoint_insert",
        id=checkpoint_id,
        task_id=task_id,
        sequence=sequence,
        type=type,
        summary=summary,
        detail=detail,
        files_changed=files_changed,
        agent_id=agent_id,
        now=now,
    )
    return checkpoint_id, sequence
