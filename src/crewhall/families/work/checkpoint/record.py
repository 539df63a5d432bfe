"""How a checkpoint is put down; by a tool, or by the hall when a task changes hands."""

from crewhall.identity import new_id
from crewhall.store.transaction import Tx


def add_checkpoint(
    tx: Tx,
    task_id: str,
    type: str,
    summary: str,
    now: int,
    *,
    detail: str | None = None,
    files_changed: str = "[]",
    agent_id: str | None = None,
) -> tuple[str, int]:
    """A new checkpoint's id and its number within the task. `agent_id` is None when the hall itself notes it."""
    checkpoint_id = new_id("cp")
    sequence = int(tx.value("checkpoint_number", id=task_id, now=now))
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
