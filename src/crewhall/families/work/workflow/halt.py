"""
Pauses of a workflow: who set one, who may lift it, and the judge's halt, which is one that the operator alone lifts.

    planning, ready, in_progress, failed ── halt ──▶ paused, halted_by judge      paused by anyone ── halt ──▶ the same
    in_progress ── pause ──▶ paused, halted_by operator | coordinator | worker

Who paused it is a column. What the reason says decides nothing: every agent can write one.
"""

import json

from crewhall.app import Call
from crewhall.errors import Forbidden
from crewhall.families.work.lookup import get_locked
from crewhall.families.work.workflow.archive import restore
from crewhall.families.work.workflow.model import Pauser, WorkflowLocked
from crewhall.families.work.workflow.rules import WORKFLOW_NEXT, is_halted, lifters, may_lift, pause_text
from crewhall.identity import Actor
from crewhall.store.transaction import Tx

HALT = "CRITICAL_HALT"


def refuse_lifting(call: Call, workflow: WorkflowLocked) -> None:
    """Raise Forbidden when an agent would end a pause that it may not lift: by resuming, or by abandoning.

    A local client without a token may lift a pause like the operator, but not the judge's halt.
    """
    if workflow["status"] == "paused" and not may_lift(pauser(call.actor), workflow["halted_by"]):
        raise Forbidden(
            pause_text(workflow),
            hint=f"Stop work on it. Only {lifters(workflow)} resumes or abandons it; message_send reaches them.",
        )
    if is_halted(workflow) and call.actor.proof not in ("token", "cookie"):  # it may be anyone's agent
        raise Forbidden(
            pause_text(workflow),
            hint="Stop work on it. Only the operator resumes or abandons it, with the operator's token: "
            f"`crewhall workflow update-status {workflow['id']} …` and the dashboard's cookie send it.",
        )


def pauser(actor: Actor) -> Pauser:
    """The word that `halted_by` has for this actor: operator, or the agent's role."""
    if actor.kind == "operator":
        return "operator"
    return "coordinator" if actor.role == "coordinator" else "worker"


def halt(tx: Tx, workflow_id: str, reason: str, now: int) -> bool:
    """Halt a workflow, whoever paused it before. False when it is over or halted, and is left as it is."""
    workflow = get_locked(tx, "workflow", workflow_id)
    before = workflow["status"]
    if is_halted(workflow) or not WORKFLOW_NEXT[before]:
        return False
    reason = f"{HALT}: {reason}"
    tx.run("workflow_status_set", id=workflow_id, status="paused", reason=reason, halted_by="judge", now=now)
    restore(tx, workflow, now)
    tx.event("workflow.updated", workflow_id, before=before, after="paused", data=json.dumps({"reason": reason}))
    return True
