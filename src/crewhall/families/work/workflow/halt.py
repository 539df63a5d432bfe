"""
Pauses of a workflow: who set one, who may lift it, and the judge's halt, which is one that the operator alone lifts.

    planning, ready, in_progress, failed ── halt ──▶ paused, halted_by judge      paused by anyone ── halt ──▶ the same
    in_progress ── pause ──▶ paused, halted_by operator | coordinator | worker

Who paused it is a column. What the reason says decides nothing: every agent can write one. The operator is who brings
the operator's token or cookie: a client without a token counts as the agent for which its bridge speaks, else as a
worker.
"""

import json

from crewhall.app import Call
from crewhall.app.checks import HOW_TO_PROVE, is_proven
from crewhall.errors import Forbidden
from crewhall.families.work.lookup import get_locked
from crewhall.families.work.workflow.archive import restore
from crewhall.families.work.workflow.model import Pauser, WorkflowLocked
from crewhall.families.work.workflow.rules import (
    WORKFLOW_NEXT,
    is_halted,
    lifters,
    may_lift,
    pause_fields,
    pause_text,
    refuse_paused,
    takes_a_person,
)
from crewhall.families.work.workflow.tellings import tell_paused
from crewhall.store.transaction import Tx

HALT = "CRITICAL_HALT"


def refuse_lifting(call: Call, workflow: WorkflowLocked) -> None:
    """Raise Forbidden when somebody would end a pause that they may not lift: by resuming, or by abandoning."""
    if workflow["status"] != "paused" or may_lift(pauser(call), workflow["halted_by"]):
        return
    way = "and message_send reaches them."
    if takes_a_person(workflow):
        way = f"with the operator's token: `crewhall resume {workflow['id']}`. {HOW_TO_PROVE}"
    raise Forbidden(
        pause_text(workflow),
        hint=f"Stop work on it. {lifters(workflow)} resumes or abandons it, {way}",
        **pause_fields(workflow),
    )


def refuse_paused_work(tx: Tx, agent_id: str, what: str) -> None:
    """Raise InvalidState when a workflow is paused in which the agent holds a task, or held its last one.

    These workflows are shared until commit. Whoever locks the agent's instance does that before.
    """
    for workflow in tx.all("workflows_share_of_agent", agent_id=agent_id):
        refuse_paused(workflow, what)


def pauser(call: Call) -> Pauser:
    """The word that `halted_by` has for the caller: operator, or the agent's role."""
    if is_proven(call.actor):
        return "operator"
    role = call.actor.role if call.bound is None else call.bound.role
    return "coordinator" if role == "coordinator" else "worker"


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
    tell_paused(tx, {workflow_id: workflow["name"]}, "judge", reason)
    return True
