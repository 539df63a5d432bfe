"""Checkpoints: what an agent notes while it works, so that it or another can go on from there (seed 003)."""

import json
from typing import Annotated

from pydantic import Field

from crewhall.app import Call
from crewhall.bounded import AnyOf, Limit, json_text, rows_and_total, take_fitting
from crewhall.families.work.checkpoint.model import Checkpoint, CheckpointAdded, Checkpoints, CheckpointType
from crewhall.families.work.checkpoint.record import add_checkpoint
from crewhall.families.work.claim.leases import task_to_write, writer
from crewhall.families.work.claim.model import Epoch
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get, hint_get
from crewhall.families.work.model import Cargo, Files, TaskId, Text


@work.tool("checkpoint_add", changes=True, creates=True, profiles=("worker", "coordinator", "standard", "coding"))
def checkpoint_add(
    call: Call,
    task_id: TaskId,
    type: CheckpointType,
    summary: Annotated[Text, Field(min_length=1)],
    detail: Annotated[Cargo, Field(description="More about it, as an object.")] | None = None,
    files_changed: Files | None = None,
    claim_epoch: Epoch | None = None,
) -> CheckpointAdded:
    """Note where you are with a task: a step done, a decision, an error. It outlives you and your memory."""
    text = None if detail is None else json_text("detail", detail)
    with call.begin() as tx:
        _, task = task_to_write(call, tx, task_id, claim_epoch, notes_only=True, is_shared=True)
        made, sequence = add_checkpoint(
            tx,
            task,
            type,
            summary,
            call.now,
            detail=text,
            files_changed=json.dumps(files_changed or [], ensure_ascii=False),
            agent_id=writer(call, task),
        )
        tx.event("checkpoint.added", task_id, data=json.dumps({"checkpoint_id": made, "sequence": sequence}))
    return CheckpointAdded(id=made, sequence=sequence)


@work.tool(
    "checkpoint_list",
    profiles=("coordinator", "reviewer", "review"),
    resources=("crewhall://tasks/{task_id}/checkpoints",),
)
def checkpoint_list(
    call: Call,
    task_id: TaskId,
    type: AnyOf[CheckpointType] | None = None,
    since_sequence: Annotated[int, Field(ge=0, le=2**31 - 1, description="Those after this number alone.")] = 0,
    limit: Limit = 100,
) -> Checkpoints:
    """The checkpoints of a task, oldest first, perhaps of some types or after a number."""
    chosen = {"task_id": task_id, "after": since_sequence, "types": json.dumps(type) if type else None}
    with call.begin() as tx:
        hint_get(tx, "task", task_id)
        rows, total = rows_and_total(tx, "checkpoints", chosen, limit=limit)
        get(tx, "task", task_id)
    items = take_fitting(Checkpoint.from_row(row) for row in rows)
    following = items[-1].sequence if len(items) < total else None
    return Checkpoints(checkpoints=items, total=total, next_since_sequence=following)
