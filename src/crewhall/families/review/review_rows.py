"""The rows and events of reviews, each written in the transaction of the step that it belongs to."""

import json
from typing import cast

from crewhall.config import Settings
from crewhall.families.crew.delivery import has_inbox_only, put_in_inbox, queue_message
from crewhall.families.crew.instance_rows import Change, locked_row, note_unstarted
from crewhall.families.crew.model import InstanceRow, Status
from crewhall.families.crew.rules import LIVE
from crewhall.families.crew.steps import end_later
from crewhall.families.review.items import write_round
from crewhall.families.review.model import Outcome, RoundRow
from crewhall.families.review.rules import REVIEWABLE
from crewhall.journal import Journal
from crewhall.store.transaction import Tx

LOST: dict[Outcome, str] = {
    "ended": "ended without feedback",
    "timed_out": "took longer than review.timeout_hours",
}


def set_status(tx: Tx, row: InstanceRow, status: Status) -> None:
    """Give an instance another status; what hinders its end stays noted."""
    tx.run("instance_status_set", id=row["id"], status=status, problem=row["problem"], now=tx.now)


def note_review_started(tx: Tx, operation: Change) -> None:
    """The reviewer's program may run, and its coder waits for it."""
    reviewer = locked_row(tx, operation.subject)
    tx.event("instance.started", reviewer["id"], after="started", data=json.dumps({"branch": reviewer["branch"]}))
    review = cast(RoundRow, tx.one("review_by", reviewer=reviewer["id"]))
    coder = locked_row(tx, review["parent_instance"])
    if coder["status"] not in REVIEWABLE:
        return  # it has ended meanwhile: a chore ends the review, too
    set_status(tx, coder, "waiting_review")
    data = json.dumps({"reviewer": reviewer["id"], "round": review["review_iteration"]})
    facts = {"before": coder["status"], "after": "waiting_review", "commit": review["forked_from"]}
    tx.event("review.requested", coder["id"], **facts, data=data)


def note_review_undone(tx: Tx, operation: Change) -> None:
    """The reviewer could not be started, and the round is as if nobody had asked for it."""
    tx.run("review_delete", reviewer=operation.subject)
    note_unstarted(tx, operation)


def note_feedback(tx: Tx, operation: Change) -> None:
    """The feedback is committed: the coder is told and goes on, and the reviewer will be ended."""
    data = operation.data
    tx.run("feedback_committed", id=data["feedback_id"], **{key: data[key] for key in ("git_commit", "merge_commit")})
    reviewer = locked_row(tx, operation.subject)
    review = cast(RoundRow, tx.one("review_by", reviewer=reviewer["id"]))
    coder = locked_row(tx, review["parent_instance"])
    tx.run("review_end", reviewer=reviewer["id"], outcome="feedback", type="spawned_review", now=tx.now)
    tx.run("review_converged", reviewer=reviewer["id"], converged=int(data["converged"]))
    write_round(tx, coder["id"], data["feedback_id"], data)
    if coder["status"] == "waiting_review":
        set_status(tx, coder, "started")
    _tell(tx, coder, reviewer["id"], data["message"], inbox_only=data["inbox_only"])
    facts = {"reviewer": reviewer["id"], "round": review["review_iteration"], "feedback_id": data["feedback_id"]}
    facts["converged"] = data["converged"]
    told = {"before": coder["status"], "after": _after(coder), "commit": data["merge_commit"] or data["git_commit"]}
    tx.event("review.feedback", coder["id"], **told, data=json.dumps(facts))
    end_later(operation.journal, tx, reviewer, "terminated")


def _tell(tx: Tx, coder: InstanceRow, sender: str, text: str, *, inbox_only: bool) -> None:
    """Tell a coder in its conversation, where it has one, and in its inbox."""
    queue_message(tx, coder, sender, text, inbox_only=inbox_only)
    if not inbox_only:
        put_in_inbox(tx, coder, text)


def _after(coder: InstanceRow) -> Status:
    return "started" if coder["status"] == "waiting_review" else coder["status"]


def note_feedback_undone(tx: Tx, operation: Change) -> None:
    """The feedback never was."""
    tx.run("feedback_delete", id=operation.data["feedback_id"])


def give_back(tx: Tx, journal: Journal, settings: Settings, review: RoundRow, outcome: Outcome) -> bool:
    """End a review without feedback: its round does not count, and its coder goes on. False if it was over already."""
    reviewer, coder = locked_row(tx, review["child_instance"]), locked_row(tx, review["parent_instance"])
    own = {"reviewer": reviewer["id"], "outcome": outcome, "type": "review_lost"}
    if tx.all("operations_on", subject=reviewer["id"]) or not tx.run("review_end", **own, now=tx.now):
        return False
    facts = json.dumps({"reviewer": reviewer["id"], "round": review["review_iteration"], "outcome": outcome})
    if coder["status"] == "waiting_review":
        set_status(tx, coder, "started")
    if coder["status"] in LIVE:  # one that was restarted may wait, too
        reason = LOST.get(outcome, outcome)
        text = f"Your reviewer {reviewer['id']} {reason}. The round does not count: call request_review again."
        _tell(tx, coder, "hall", text, inbox_only=has_inbox_only(settings, coder))
    tx.event("review.lost", coder["id"], before=coder["status"], after=_after(coder), data=facts)
    if reviewer["status"] != "abandoned":
        end_later(journal, tx, reviewer, "terminated")
    return True
