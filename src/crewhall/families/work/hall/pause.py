"""
The hall's pause: what runs is held, and nothing begins to run by another way, until the operator resumes the hall.

    ready, in_progress ── hall_pause ──▶ paused, with the pause's id and what it was ── hall_resume ──▶ what it was
    planning ── a plan ──▶ ready, and held at once             any other change of its status takes it out of the pause

It is a fact in the table `hall`. Whoever pauses or resumes the hall holds its own row; whoever sets a workflow going
shares that row before the workflow's, and then looks whether the hall is paused.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict

from crewhall.errors import InvalidState
from crewhall.families.work.hall.model import HallPause
from crewhall.families.work.workflow.model import Pauser, WorkflowStatus
from crewhall.store.transaction import Row, Rows, Tx

PAUSE = "pause"


def read_pause(tx: Tx) -> HallPause | None:
    """The hall's pause, if it is paused."""
    return _to_pause(tx.value("hall_get", key=PAUSE))


class SharedPause:
    """The hall's pause as it stays until commit: asked for before any lock on a workflow, and read later.

    The question travels with what is asked next.
    """

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._rows: Rows | None = None
        tx.run("hall_share")
        tx.guard("hall_get", self._take, key=PAUSE)

    def _take(self, found: Rows) -> None:
        self._rows = found

    def read(self) -> HallPause | None:
        """The pause, if the hall is paused."""
        if self._rows is None:
            self._tx.flush()
        assert self._rows is not None
        return _to_pause(next((row["value"] for row in self._rows.rows), None))


def _to_pause(value: str | None) -> HallPause | None:
    return None if value is None else HallPause(**json.loads(value))


def write_pause(tx: Tx, pause: HallPause) -> None:
    tx.run("hall_set", key=PAUSE, value=json.dumps(asdict(pause)))


def hold(tx: Tx, workflows: Sequence[Row], pause: HallPause) -> None:
    """The pause holds these workflows, which are locked."""
    tx.run("hall_hold", ids=_ids(workflows), pause=pause.id, reason=pause.text, now=tx.now)
    data = json.dumps({"reason": pause.text})
    for row in workflows:
        tx.event("workflow.updated", row["id"], before=row["status"], after="paused", data=data)


def let_go(tx: Tx, workflows: Sequence[Row]) -> None:
    """They are what they were."""
    tx.run("hall_let_go", ids=_ids(workflows), now=tx.now)
    for row in workflows:
        tx.event("workflow.updated", row["id"], before="paused", after=row["status"])


def _ids(workflows: Sequence[Row]) -> str:
    return json.dumps([row["id"] for row in workflows])


def refuse_set_going(pause: HallPause | None, workflow_id: str, after: WorkflowStatus, by: Pauser) -> None:
    """Raise InvalidState when anybody else than the operator sets a workflow going while the hall is paused."""
    if pause is not None and by != "operator":
        raise InvalidState(
            f"{pause.text}. Workflow {workflow_id} can't be set {after}",
            hint="Wait: only the operator resumes the hall, with `crewhall resume --all`.",
            paused_by="operator",
            reason=pause.text,
        )


def refuse_in_paused_hall(tx: Tx, workflow_id: str, what: str) -> None:
    """Raise InvalidState while the hall is paused, for a workflow that the pause doesn't hold: one that failed."""
    pause = read_pause(tx)
    if pause is not None:
        raise InvalidState(
            f"{pause.text}. No task of workflow {workflow_id} can be {what}",
            hint="Add a checkpoint (checkpoint_add), then wait or release the task (task_release). Only the operator "
            "resumes the hall, with `crewhall resume --all`.",
            paused_by="operator",
            reason=pause.text,
        )
