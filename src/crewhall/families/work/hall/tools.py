"""The hall's pause, set and lifted: by the operator alone, with the operator's token or cookie."""

from typing import Annotated

from pydantic import Field

from crewhall.app import Call
from crewhall.app.checks import refuse_unproven
from crewhall.families.work.family import work
from crewhall.families.work.hall.model import HallPause, HallPaused, HallResumed
from crewhall.families.work.hall.pause import PAUSE, hold, let_go, read_pause, write_pause
from crewhall.families.work.model import Short
from crewhall.families.work.workflow.tellings import tell_paused, tell_resumed
from crewhall.identity import new_id
from crewhall.store.transaction import Row, Tx
from crewhall.tool import OPERATOR

LISTED = 500


@work.tool("hall_pause", ours=True, changes=True, idempotent=True, who=OPERATOR)
def hall_pause(
    call: Call, reason: Annotated[Short, Field(description="Why; every agent at work is told.")] | None = None
) -> HallPaused:
    """Pause every workflow that is ready or in progress, and let nothing begin until hall_resume.

    It takes the operator's token. Again while the hall is paused: what runs by now is paused too, and the first
    reason stays.
    """
    refuse_unproven(call)
    with call.begin() as tx:
        pause = _locked_pause(tx)
        if pause is None:
            pause = HallPause(new_id("hp"), call.now, call.author, reason)
            tx.event("hall.paused", tx.value("hall_get", key="id"))
            write_pause(tx, pause)
        running = tx.all("hall_runs")
        hold(tx, running, pause)
        tell_paused(tx, _names(running), "operator", pause.text)
        held = tx.value("hall_held_count", pause=pause.id)
    return HallPaused(
        paused_since=pause.since,
        reason=pause.reason,
        workflows_paused=len(running),
        workflow_ids=_ids(running)[:LISTED],
        workflows_held=held,
    )


@work.tool("hall_resume", ours=True, changes=True, idempotent=True, who=OPERATOR)
def hall_resume(call: Call) -> HallResumed:
    """End the hall's pause: the workflows that it paused are as before. Those paused by others stay paused.

    It takes the operator's token.
    """
    refuse_unproven(call)
    with call.begin() as tx:
        pause = _locked_pause(tx)
        held = [] if pause is None else tx.all("hall_held", pause=pause.id)
        if pause is not None:
            tx.event("hall.resumed", tx.value("hall_get", key="id"))
            tx.run("hall_drop", key=PAUSE)
            let_go(tx, held)
            tell_resumed(tx, _names(held), "operator")
    return HallResumed(was_paused=pause is not None, workflows_resumed=len(held), workflow_ids=_ids(held)[:LISTED])


def _locked_pause(tx: Tx) -> HallPause | None:
    """The hall's pause; the hall is locked."""
    tx.run("hall_lock")
    tx.ahead("hall_get", key="id")
    return read_pause(tx)


def _ids(rows: list[Row]) -> list[str]:
    return [row["id"] for row in rows]


def _names(rows: list[Row]) -> dict[str, str]:
    return {row["id"]: row["name"] for row in rows}
