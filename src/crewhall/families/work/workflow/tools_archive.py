"""
Workflows that are over: put away, so that lists leave them out.

    completed, failed, abandoned ── archive ──▶ archived ── restore, or it goes on ──▶ in the lists again
"""

from crewhall.app import Call
from crewhall.errors import InvalidState
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get_locked
from crewhall.families.work.model import Done, Restore, WorkflowId
from crewhall.families.work.workflow.archive import restore as put_back
from crewhall.families.work.workflow.model import WorkflowLocked

OVER = ("completed", "failed", "abandoned")


@work.tool(
    "workflow_archive",
    ours=True,
    changes=True,
    idempotent=True,
    who=("operator", "coordinator"),
    profiles=("coordinator",),
)
def workflow_archive(call: Call, id: WorkflowId, restore: Restore = False) -> Done:
    """Archive a workflow that is completed, failed or abandoned: lists leave it out.

    Nothing is deleted: restore brings it back, and so does setting a failed one in_progress.
    """
    with call.begin() as tx:
        workflow = get_locked(tx, "workflow", id)
        if restore:
            put_back(tx, workflow, call.now)
        elif workflow["archived_at"] is None:
            _refuse_open(workflow)
            tx.run("workflow_archived_set", id=id, at=call.now, now=call.now)
            tx.event("workflow.archived", id)
    return Done(success=True)


def _refuse_open(workflow: WorkflowLocked) -> None:
    """Raise InvalidState for a workflow that is not over."""
    if workflow["status"] not in OVER:
        raise InvalidState(
            f"workflow {workflow['id']} is {workflow['status']}, and only one that is over can be archived",
            hint="workflow_update_status ends it: completed, failed or abandoned.",
        )
