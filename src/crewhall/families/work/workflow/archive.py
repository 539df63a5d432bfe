"""Workflows that were put away: one that goes on is in the lists again."""

from crewhall.families.work.workflow.model import WorkflowLocked
from crewhall.store.transaction import Tx


def restore(tx: Tx, workflow: WorkflowLocked, now: int) -> None:
    """Put a workflow back into the lists, if it was put away."""
    if workflow["archived_at"] is not None:
        tx.run("workflow_archived_set", id=workflow["id"], at=None, now=now)
        tx.event("workflow.restored", workflow["id"])
