"""The rows and events that go with the steps of an instance's operations, each in the step's own transaction."""

import json
from typing import Any, cast

from crewhall.families.crew.model import InstanceRow
from crewhall.families.work.claim.leases import put_all_back
from crewhall.identity import new_id
from crewhall.journal import Operation
from crewhall.store.transaction import Tx

Change = Operation[Any]


def locked_row(tx: Tx, instance_id: str) -> InstanceRow:
    """The instance, held until commit."""
    row = tx.one("instance_lock", id=instance_id)
    assert row is not None, "the instance's row is there as long as its operation"
    return cast(InstanceRow, row)


def note_token(tx: Tx, operation: Change) -> None:
    """The token in the instance's files opens the hall as its agent."""
    row = locked_row(tx, operation.subject)
    tx.run("tokens_revoke", agent_id=row["agent_id"], now=tx.now)
    fields = {"hash": operation.data["token_hash"], "kind": "agent", "label": row["id"], "expires_at": None}
    tx.run("token_put", id=new_id("to"), agent_id=row["agent_id"], now=tx.now, **fields)


def note_process(tx: Tx, operation: Change) -> None:
    """The instance's session is led by this process."""
    process = {key: operation.data[key] for key in ("pid", "process_started")}
    tx.run("instance_process_set", id=operation.subject, now=tx.now, **process)


def note_started(tx: Tx, operation: Change) -> None:
    """The program may run."""
    row = locked_row(tx, operation.subject)
    tx.event("instance.started", row["id"], after="started", data=json.dumps({"branch": row["branch"]}))


def note_restarted(tx: Tx, operation: Change) -> None:
    """The program may run again."""
    row = locked_row(tx, operation.subject)
    tx.run("instance_status_set", id=row["id"], status="started", problem=None, now=tx.now)
    tx.run("agent_back", id=row["agent_id"], until=operation.data["lease_until"], now=tx.now)
    tx.event("instance.restarted", row["id"], before=row["status"], after="started")


def note_unstarted(tx: Tx, operation: Change) -> None:
    """Nothing of the instance is left, so the hall forgets it and its agent."""
    row = locked_row(tx, operation.subject)
    tx.run("tokens_revoke", agent_id=row["agent_id"], now=tx.now)
    tx.run("instance_delete", id=row["id"])
    tx.run("instance_agent_delete", agent_id=row["agent_id"])
    tx.event("instance.failed", row["id"], before="started")


def revoke_tokens(tx: Tx, operation: Change) -> None:
    """The instance's tokens open nothing."""
    tx.run("tokens_revoke", agent_id=locked_row(tx, operation.subject)["agent_id"], now=tx.now)


def note_stopped(tx: Tx, operation: Change) -> None:
    """The instance is over until it is restarted; what it holds is free when the grace is over."""
    row = locked_row(tx, operation.subject)
    disconnect(tx, row, "stopped", operation.data["until"])
    tx.run("tokens_revoke", agent_id=row["agent_id"], now=tx.now)
    tx.run("instance_status_set", id=row["id"], status="terminated", problem=None, now=tx.now)
    tx.event("instance.stopped", row["id"], before=row["status"], after="terminated")


def disconnect(tx: Tx, row: InstanceRow, how: str, until: int, at: int | None = None) -> None:
    """The instance's process is gone, since `at` or now: its agent is offline, and keeps its tasks until a time."""
    ended_at = tx.now if at is None else min(at, tx.now)
    if tx.count("instance_ended", id=row["id"], how=how, at=ended_at, now=tx.now):
        tx.run("bridges_forget_agent", agent_id=row["agent_id"])
        tx.run("agent_disconnected", id=row["agent_id"], until=until, now=tx.now)
        tx.event("instance.ended", row["id"], data=json.dumps({"how": how}))


def note_gone(tx: Tx, operation: Change) -> None:
    """The instance leaves the hall: its tokens open nothing, and what it held is free."""
    row = locked_row(tx, operation.subject)
    tx.run("instance_ended", id=row["id"], how=operation.data.get("how", "abandoned"), at=tx.now, now=tx.now)
    tx.run("tokens_revoke", agent_id=row["agent_id"], now=tx.now)
    before = put_all_back(tx, row["agent_id"], "released", tx.now, "Its instance has ended; what it noted is kept.")
    tx.run("reservations_drop", agent_id=row["agent_id"])
    fields = {
        "status": "offline",
        "task": None,
        "until": tx.now,
        "has_left": 1,
        "workspace_path": None,
        "metadata": None,
    }
    tx.run("agent_set", id=row["agent_id"], now=tx.now, **fields)
    if before["status"] != "offline":
        tx.event("agent.unregistered", row["agent_id"], before=before["status"], after="offline")


def note_saved(tx: Tx, operation: Change) -> None:
    """The refs that keep the instance's uncommitted work, or why its worktree is still there."""
    tx.run("instance_saved_set", id=operation.subject, saved_refs=json.dumps(operation.data["saved_refs"]), now=tx.now)


def note_over(tx: Tx, operation: Change) -> None:
    """The instance is over: given up, or done."""
    row, status = locked_row(tx, operation.subject), operation.data.get("status", "abandoned")
    tx.run("instance_status_set", id=row["id"], status=status, problem=operation.data.get("problem"), now=tx.now)
    tx.run("instance_ports_free", id=row["id"])
    facts = {"before": row["status"], "after": status}
    data = json.dumps({"saved_refs": operation.data["saved_refs"][:5]})
    if status == "abandoned":
        tx.event("instance.abandoned", row["id"], **facts, data=data)
    else:
        tx.event("instance.finished", row["id"], **facts, data=data)
