"""What the agents that hold tasks of a workflow are told when it is paused, and when it goes on."""

from collections.abc import Mapping

from crewhall.families.work.workflow.model import Pauser
from crewhall.families.work.workflow.rules import ARTICLE
from crewhall.identity import new_id
from crewhall.notices import Kind, quotation, withdraw
from crewhall.store.transaction import Tx

NAME, REASON = 60, 140  # letters of them: a notice is short
Named = Mapping[str, str]  # workflows: their names by their ids


def tell_paused(tx: Tx, workflows: Named, by: Pauser, reason: str | None, but: str | None = None) -> None:
    """Tell whoever holds a task of these that they are paused, and what to do; `but`: the agent who did it."""
    withdraw(tx, "resumed", workflows)
    withdraw(tx, "paused", workflows)
    why = quotation(reason, REASON) if reason else "no reason was given"
    _tell(
        tx,
        "paused",
        workflows,
        f"is paused by {ARTICLE[by]}: {why}. Begin and finish nothing in it. Add a checkpoint (checkpoint_add), then "
        "wait or release the task (task_release).",
        but,
    )


def tell_resumed(tx: Tx, workflows: Named, by: Pauser, but: str | None = None) -> None:
    """Tell them that they may go on; nobody is told any more of the pause."""
    withdraw(tx, "paused", workflows)
    _tell(tx, "resumed", workflows, f"was resumed by {ARTICLE[by]}. Go on with your task.", but)


def _tell(tx: Tx, kind: Kind, workflows: Named, what: str, but: str | None) -> None:
    texts = {workflow: f"Workflow {workflow} {quotation(name, NAME)} {what}" for workflow, name in workflows.items()}
    own = {"kind": kind, "but": but or "", "now": tx.now}
    tx.many(
        "holders_notify",
        [own | {"prefix": new_id("no"), "workflow": one, "text": text} for one, text in texts.items()],
    )
