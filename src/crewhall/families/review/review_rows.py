"""The rows and events of reviews, each written in the transaction of the step that it belongs to."""

import json
from typing import Any, cast

from crewhall.families.crew.delivery import put_in_inbox, queue_message
from crewhall.families.crew.instance_rows import Change, locked_row, note_unstarted
from crewhall.families.crew.model import InstanceRow, Status
from crewhall.families.crew.rules import LIVE
from crewhall.families.crew.steps import end_later
from crewhall.families.review.items import write_round, write_states
from crewhall.families.review.model import Outcome, RoundRow
from crewhall.families.review.quotes import one_line, quote
from crewhall.families.review.rules import JUDGE, PULL, REVIEWABLE, reviewer_name
from crewhall.journal import Journal, Operation
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
    reviewer = locked_row(tx, operation.subject)
    _end_with_feedback(tx, operation, reviewer["id"])
    end_later(operation.journal, tx, reviewer, "terminated")


def _end_with_feedback(tx: Tx, operation: Operation[Any], sender: str) -> None:
    """End a round with its feedback and its items; the coder is told by `sender` and goes on."""
    data = operation.data
    tx.run("feedback_committed", id=data["feedback_id"], **{key: data[key] for key in ("git_commit", "merge_commit")})
    review = cast(RoundRow, tx.one("review_by", reviewer=operation.subject))
    coder = locked_row(tx, review["parent_instance"])
    tx.run("review_end", reviewer=operation.subject, outcome="feedback", type="spawned_review", now=tx.now)
    tx.run("review_converged", reviewer=operation.subject, converged=int(data["converged"]))
    write_round(tx, coder["id"], data["feedback_id"], data)
    if coder["status"] == "waiting_review":
        set_status(tx, coder, "started")
    _tell(tx, coder, sender, data["message"], inbox_only=data["inbox_only"])
    facts = {"reviewer": sender, "round": review["review_iteration"], "feedback_id": data["feedback_id"]}
    facts["converged"] = data["converged"]
    told = {"before": coder["status"], "after": _after(coder), "commit": data["merge_commit"] or data["git_commit"]}
    tx.event("review.feedback", coder["id"], **told, data=json.dumps(facts))


def note_judge_asked(tx: Tx, coder: InstanceRow, iteration: int, head: str) -> None:
    """The judge will review, and the coder waits for it."""
    set_status(tx, coder, "waiting_review")
    data = json.dumps({"reviewer": JUDGE, "round": iteration})
    tx.event("review.requested", coder["id"], before=coder["status"], after="waiting_review", commit=head, data=data)


def note_verdict(tx: Tx, operation: Operation[Any]) -> None:
    """What the judge said is known: feedback is about to be committed, or the round is given back."""
    data = operation.data
    review = cast(RoundRow, tx.one("review_by", reviewer=operation.subject))
    if review["ended_at"] is not None:
        return
    if data.get("report_id"):
        tx.run("review_reported", reviewer=operation.subject, report_id=data["report_id"])
    if data["verdict"] is None:
        reason = f"gave no verdict: {one_line(data['reason'], 300)}"
        give_back(tx, operation.journal, review, "ended", data["inbox_only"], reason)
    elif data["verdict"] == "PASS":
        _approve(tx, operation, review)
    else:
        sent = {key: data["sent"][key] for key in ("id", "feedback_type", "priority", "feedback", "iteration")}
        tx.run("feedback_insert", **sent, reviewer=operation.subject, coder=data["coder"], now=tx.now)


def note_judged(tx: Tx, operation: Operation[Any]) -> None:
    """The judge's feedback is committed, if it is any: its coder is told and goes on."""
    review = cast(RoundRow, tx.one("review_by", reviewer=operation.subject))
    if operation.data.get("git_commit") and review["ended_at"] is None:
        _end_with_feedback(tx, operation, JUDGE)


def _approve(tx: Tx, operation: Operation[Any], review: RoundRow) -> None:
    """A PASS ends the round; what was open is fixed."""
    coder = locked_row(tx, review["parent_instance"])
    tx.run("review_end", reviewer=operation.subject, outcome="approved", type="spawned_review", now=tx.now)
    tx.run("review_converged", reviewer=operation.subject, converged=1)
    write_states(tx, operation.data["states"])
    if coder["status"] == "waiting_review":
        set_status(tx, coder, "started")
    facts = {"reviewer": JUDGE, "round": review["review_iteration"], "report_id": operation.data["report_id"]}
    told = {"before": coder["status"], "after": _after(coder), "commit": operation.data["head"]}
    tx.event("review.approved", coder["id"], **told, data=json.dumps(facts))


def note_approved(tx: Tx, operation: Operation[Any]) -> None:
    """The coder of an approved round is told, also of what kept its pull request from being opened."""
    data = operation.data
    if "problem" not in data:
        return
    then = "Its pull request is open."
    if data["problem"] is not None:
        problem = one_line(data["problem"], 300)
        then = f"Its pull request could not be opened: {problem} Call create_pull_request when it can be."
    review = cast(RoundRow, tx.one("review_by", reviewer=operation.subject))
    coder = locked_row(tx, review["parent_instance"])
    said = quote(data["summary"], 1_000)
    text = f"The judge approves your work (round {review['review_iteration']}, PASS):\n\n{said}\n\n{then}"
    _tell(tx, coder, JUDGE, text, inbox_only=data["inbox_only"])


def tell_approval(tx: Tx, coder: InstanceRow, operation: Operation[Any]) -> None:
    """A coder that waited for a review learns that its reviewer has opened the pull request."""
    data = operation.data
    text = f"{data['by']} approves your work. Its pull request is open: {one_line(data['url'], 300)}"
    _tell(tx, coder, data["by"], text, inbox_only=data.get("inbox_only", True))


def _tell(tx: Tx, coder: InstanceRow, sender: str, text: str, *, inbox_only: bool) -> None:
    """Tell a coder in its conversation, where it has one, and in its inbox."""
    queue_message(tx, coder, sender, text, inbox_only=inbox_only)
    if not inbox_only:
        put_in_inbox(tx, coder, sender, text, is_told=True)


def _after(coder: InstanceRow) -> Status:
    return "started" if coder["status"] == "waiting_review" else coder["status"]


def note_feedback_undone(tx: Tx, operation: Change) -> None:
    """The feedback never was."""
    tx.run("feedback_delete", id=operation.data["feedback_id"])


def give_back(
    tx: Tx, journal: Journal, review: RoundRow, outcome: Outcome, inbox_only: bool, reason: str | None = None
) -> bool:
    """End a review without feedback: its round does not count, and its coder goes on.

    False if it was over already, or is being answered.
    """
    name = reviewer_name(review["child_instance"])
    reviewer = None if name == JUDGE else locked_row(tx, name)
    coder = locked_row(tx, review["parent_instance"])
    own = {"reviewer": review["child_instance"], "outcome": outcome, "type": "review_lost"}
    if reviewer is not None and _is_answering(tx, reviewer, coder):
        return False
    if not tx.count("review_end", **own, now=tx.now):
        return False
    facts = json.dumps({"reviewer": name, "round": review["review_iteration"], "outcome": outcome})
    if coder["status"] == "waiting_review":
        set_status(tx, coder, "started")
    if coder["status"] in LIVE:  # one that was restarted may wait, too
        whose = "The judge" if reviewer is None else f"Your reviewer {name}"
        text = f"{whose} {reason or LOST.get(outcome, outcome)}. The round does not count: call request_review again."
        _tell(tx, coder, "hall", text, inbox_only=inbox_only)
    tx.event("review.lost", coder["id"], before=coder["status"], after=_after(coder), data=facts)
    if reviewer is not None and reviewer["status"] != "abandoned":
        end_later(journal, tx, reviewer, "terminated")
    return True


def _is_answering(tx: Tx, reviewer: InstanceRow, coder: InstanceRow) -> bool:
    """Whether its feedback is being sent, or the pull request that ends the round is being opened."""
    opening = [one for one in tx.all("operations_on", subject=coder["id"]) if one["kind"] == PULL]
    return bool(opening or tx.all("operations_on", subject=reviewer["id"]))
