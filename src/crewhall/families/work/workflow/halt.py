"""A workflow is stopped by what can't wait for a person: nothing of it can be claimed until one resumes it."""

import json

from crewhall.app import Call
from crewhall.errors import Forbidden
from crewhall.families.work.lookup import get_locked
from crewhall.families.work.workflow.model import Pauser, WorkflowLocked
from crewhall.families.work.workflow.rules import is_halted
from crewhall.identity import Actor
from crewhall.store.transaction import Tx

HALT = "CRITICAL_HALT"


def refuse_lifting(call: Call, workflow: WorkflowLocked) -> None:
    """Raise Forbidden when an agent would let a halted workflow go on: a person decides about that."""
    if is_halted(workflow) and call.actor.kind != "operator":
        raise Forbidden(
            f"workflow {workflow['id']} was stopped by {workflow['status_reason']}",
            hint="Stop work on it. Only the operator resumes or abandons it; message_send reaches them.",
        )


def pauser(actor: Actor) -> Pauser:
    """The word that `halted_by` has for this actor: operator, or the agent's role."""
    if actor.kind == "operator":
        return "operator"
    return "coordinator" if actor.role == "coordinator" else "worker"


def halt(tx: Tx, workflow_id: str, reason: str, now: int) -> bool:
    """Pause a workflow that is going on, or could be. False when it is in no such state, and is left as it is."""
    before = get_locked(tx, "workflow", workflow_id)["status"]
    if before not in ("ready", "in_progress", "failed"):
        return False
    reason = f"{HALT}: {reason}"
    tx.run("workflow_status_set", id=workflow_id, status="paused", reason=reason, halted_by="judge", now=now)
    tx.event("workflow.updated", workflow_id, before=before, after="paused", data=json.dumps({"reason": reason}))
    return True
