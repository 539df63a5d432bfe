"""What the agents that hold tasks of a workflow are told when it is paused, and when it goes on."""

import json
from collections.abc import Sequence

from crewhall.families.work.workflow.model import Pauser
from crewhall.families.work.workflow.rules import ARTICLE
from crewhall.identity import new_id
from crewhall.notices import Kind, cut, withdraw
from crewhall.store.transaction import Tx

REASON = 140  # letters of it: a notice is short


def tell_paused(tx: Tx, workflows: Sequence[str], by: Pauser, reason: str | None, but: str | None = None) -> None:
    """Tell whoever holds a task of these that they are paused, and what to do; `but`: the agent who did it."""
    withdraw(tx, "resumed", workflows)
    withdraw(tx, "paused", workflows)
    why = cut(reason or "no reason was given", REASON)
    _tell(
        tx,
        "paused",
        workflows,
        f"is paused by {ARTICLE[by]}: {why} Begin and finish nothing in it. Add a checkpoint (checkpoint_add), then "
        "wait or release the task (task_release).",
        but,
    )


def tell_resumed(tx: Tx, workflows: Sequence[str], by: Pauser, but: str | None = None) -> None:
    """Tell them that they may go on; nobody is told any more of the pause."""
    withdraw(tx, "paused", workflows)
    _tell(tx, "resumed", workflows, f"was resumed by {ARTICLE[by]}. Go on with your task.", but)


def _tell(tx: Tx, kind: Kind, workflows: Sequence[str], what: str, but: str | None) -> None:
    if workflows:
        own = {"kind": kind, "prefix": new_id("no"), "but": but or "", "line_end": "\n", "now": tx.now}
        tx.run("holders_notify", ids=json.dumps(list(workflows)), what=what, **own)
