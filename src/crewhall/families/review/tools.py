"""
The review loop: a coding instance asks for a review, and its reviewer sends feedback (seed 000).

    started ── request_review ──▶ waiting_review ── send_feedback ──▶ started
                    └── at the limit ──▶ REVIEW_LIMIT_EXCEEDED, in the end abandoned
"""

import uuid
from dataclasses import dataclass, replace
from typing import Any, cast

from crewhall.app import Call
from crewhall.errors import InvalidState
from crewhall.families.crew.changes import begin, begin_start, candidate_ports, carry_out, names_taken
from crewhall.families.crew.delivery import has_inbox_only
from crewhall.families.crew.instance_rows import locked_row
from crewhall.families.crew.model import InstanceId, InstanceRow
from crewhall.families.crew.rules import LIVE, refuse_busy, refuse_status
from crewhall.families.crew.site import refuse_elsewhere
from crewhall.families.crew.steps import Change, end_later
from crewhall.families.review.callers import calling_instance, note_caller
from crewhall.families.review.family import review
from crewhall.families.review.items import read_round, settle_round, write_answers
from crewhall.families.review.judging import begin_judging
from crewhall.families.review.messages import feedback_message
from crewhall.families.review.model import (
    CompletionMessage,
    FeedbackSent,
    FeedbackText,
    FeedbackType,
    ItemAnswers,
    Items,
    Priority,
    ResolvedItems,
    ReviewerPrompt,
    ReviewRequested,
    RoundRow,
    TaskUnderReview,
)
from crewhall.families.review.packet import decision_packet
from crewhall.families.review.prompt import ReviewFacts, changes_text, review_prompt
from crewhall.families.review.pull_target import paths_since
from crewhall.families.review.rules import (
    JUDGE,
    LOST_IN_A_ROW,
    PULL,
    ReviewDecision,
    ReviewLimits,
    decide,
    items_given,
    limit_failure,
    refuse_unreviewable,
)
from crewhall.families.review.rules_contract import contract_text, refuse_unjudgeable
from crewhall.families.review.steps import REVIEWING, SENDING
from crewhall.families.work.workflow.halt import refuse_paused_work
from crewhall.identity import new_id
from crewhall.live_settings import live_setting
from crewhall.outside.environment import refuse_missing
from crewhall.outside.git import GitRepository, open_repository
from crewhall.store.transaction import Tx


@review.tool(
    "request_review",
    changes=True,
    pace="long",
    who=("operator", "coding"),
    profiles=("coding", "coordinator"),
    notes=note_caller,
    command="review request",
)
def request_review(
    call: Call,
    reviewer_prompt: ReviewerPrompt | None = None,
    completion_message: CompletionMessage | None = None,
    items: ItemAnswers | None = None,
    instance_id: InstanceId | None = None,
) -> ReviewRequested:
    """Have your committed work reviewed; the feedback reaches you when it is done.

    The number of rounds is limited. Until the feedback comes you are waiting_review. In items, say which items of
    earlier feedback you fixed or dispute. Only the operator gives instance_id.
    """
    coder = calling_instance(call, instance_id, ("coding",))
    refuse_elsewhere(call.settings, coder)
    asked = _prepare(call, coder, completion_message, reviewer_prompt)
    begun: tuple[Change, InstanceRow] | None = None
    with call.begin_midway() as tx:
        tx.run("hall_lock")
        coder = locked_row(tx, coder["id"])
        refuse_paused_work(tx, coder["agent_id"], "reviewed")
        decision, limits = _decision(call, tx, coder)
        if decision.iteration is None:
            _note_refusal(call, tx, coder, decision)
        else:
            write_answers(tx, coder["id"], items or ())
            facts = replace(asked.facts, iteration=decision.iteration)
            begun = _begin_round(call, tx, coder, replace(asked, facts=facts))
    if decision.iteration is None:
        raise limit_failure(coder["id"], asked.facts.iteration - 1, decision, limits, asked.packet)
    if begun is not None:
        carry_out(call, begun[0])
    call.note(commit=asked.facts.head, before=coder["status"], after="waiting_review")
    reviewer = begun and begun[1]
    return ReviewRequested(
        review_instance_id=reviewer and reviewer["id"],
        session_name=reviewer and reviewer["session"],
        worktree_path=reviewer and reviewer["worktree"],
        branch_name=coder["branch"],
        review_iteration=decision.iteration,
        max_iterations=limits.most,
        uncommitted_files=asked.uncommitted,
    )


@dataclass(frozen=True)
class _Request:
    """What a request needs of git and the machine, found out before its transaction. `judged`: by the judge."""

    facts: ReviewFacts
    uncommitted: int
    changes: str
    packet: dict[str, Any]
    ports: list[int]
    names: list[str]
    judged: TaskUnderReview | None
    files: list[str]


def _prepare(call: Call, coder: InstanceRow, completion: str | None, prompt: str | None) -> _Request:
    task = cast(TaskUnderReview | None, call.one("task_under_review", agent_id=coder["agent_id"]))
    judged = task if task is not None and task["reviewer"] == JUDGE else None
    if judged is None:
        refuse_missing("tmux", "a review instance")
    repo = open_repository(coder["repository_path"], call.stop)
    head = _head(repo, coder)
    with call.look() as look:
        asked_by = "The operator" if call.actor.kind == "operator" else "Its coder"
        facts = _facts(call, look, coder, head, completion, prompt, asked_by)
    return _Request(
        facts=facts,
        uncommitted=_count_uncommitted(repo, coder),
        changes=changes_text(repo, coder, facts),
        packet=decision_packet(call, repo, coder),
        ports=candidate_ports(call),
        names=names_taken(repo, _stem(coder)),
        judged=judged,
        files=_judged_files(repo, coder) if judged else [],
    )


def _judged_files(repo: GitRepository, coder: InstanceRow) -> list[str]:
    """The files that the judge is given. Raises InvalidInput, InvalidState where it would not see all of them."""
    paths = paths_since(repo, coder, repo.base_of(coder["base_branch"]), coder["base_branch"])
    refuse_unjudgeable(coder["id"], paths)
    return paths


def _begin_round(call: Call, tx: Tx, coder: InstanceRow, asked: _Request) -> tuple[Change, InstanceRow] | None:
    """The operation that starts a review instance, and the instance; None where the judge reviews."""
    left = tx.all("items_open", coder=coder["id"])
    if asked.judged is not None:
        contract = contract_text(asked.judged, asked.files, asked.facts.completion_message, left)
        begin_judging(call, tx, coder, asked.facts, contract)
        return None
    fields = {name: coder[name] for name in ("runtime", "node", "repository_path", "tier", "issue_number")}
    fields |= {"type": "review", "base_branch": coder["branch"], "conversation_id": str(uuid.uuid4())}
    fields |= {"prompt": review_prompt(coder, asked.facts, asked.changes, left), "parent": coder["id"]}
    stem, head = _stem(coder), asked.facts.head
    started = begin_start(call, tx, REVIEWING, stem, asked.names, fields, "worker", None, asked.ports, base=head)
    own = {"coder": coder["id"], "reviewer": started[1]["id"], "forked_from": head, "iteration": asked.facts.iteration}
    tx.run("review_insert", completion_message=asked.facts.completion_message, now=tx.now, **own)
    return started


def _head(repo: GitRepository, coder: InstanceRow) -> str:
    head = repo.commit_of(f"refs/heads/{coder['branch']}")
    if head is None:
        raise InvalidState(
            f"{repo.root} has no branch {coder['branch']}",
            hint="`crewhall doctor --fix` makes it again.",
            instance_id=coder["id"],
        )
    return head


def _decision(call: Call, tx: Tx, coder: InstanceRow) -> tuple[ReviewDecision, ReviewLimits]:
    """Whether the coder gets a round. Raises InvalidState when it can't be reviewed now."""
    refuse_busy(coder["id"], [one["kind"] for one in tx.all("operations_on", subject=coder["id"])])
    under_way: RoundRow | None = tx.one("review_open", coder=coder["id"])
    last: list[RoundRow] = tx.all("reviews_last", coder=coder["id"], limit=LOST_IN_A_ROW)
    lost = next((n for n, one in enumerate(last) if one["relationship_type"] != "review_lost"), len(last))
    by_person = call.actor.kind == "operator"
    reviewer = under_way and under_way["child_instance"]
    refuse_unreviewable(coder["id"], coder["status"], reviewer, lost, by_person=by_person)
    most, after = (
        live_setting(tx, call.settings, f"review.{name}") for name in ("max_iterations", "auto_abandon_after")
    )
    limits = ReviewLimits(most, after)
    return decide(tx.value("review_iteration", coder=coder["id"]), coder["review_refusals"], limits), limits


def _note_refusal(call: Call, tx: Tx, coder: InstanceRow, decision: ReviewDecision) -> None:
    tx.run("review_refused", id=coder["id"], now=tx.now)
    if decision.abandons:
        end_later(call.hub.journal, tx, coder, "abandoned")


def _facts(
    call: Call, look: Tx, coder: InstanceRow, head: str, completion: str | None, prompt: str | None, asked_by: str
) -> ReviewFacts:
    iteration = look.value("review_iteration", coder=coder["id"]) + 1
    most = live_setting(look, call.settings, "review.max_iterations")
    last = [one for one in look.all("reviews_last", coder=coder["id"], limit=50) if one["outcome"] == "feedback"]
    since = last[0]["forked_from"] if last else None
    return ReviewFacts(iteration, most, head, since, completion, prompt, asked_by)


def _stem(coder: InstanceRow) -> str:
    """What a reviewer's id begins with: of work-7-a1, review-7."""
    return f"review-{coder['id'].partition('-')[2].rpartition('-a')[0]}"


def _count_uncommitted(repo: GitRepository, coder: InstanceRow) -> int:
    """How many files of the coder's worktree the review does not show."""
    ended = repo.git("-C", coder["worktree"], "status", "--porcelain", env={"GIT_DIR": f"{coder['worktree']}/.git"})
    return len(ended.out.splitlines())


@review.tool(
    "send_feedback",
    changes=True,
    pace="long",
    who=("operator", "review"),
    profiles=("review", "coordinator"),
    notes=note_caller,
    command="review feedback",
)
def send_feedback(
    call: Call,
    feedback: FeedbackText,
    feedback_type: FeedbackType,
    priority: Priority = "normal",
    actionable_items: Items | None = None,
    resolved_items: ResolvedItems | None = None,
    instance_id: InstanceId | None = None,
) -> FeedbackSent:
    """Send your findings to the coding instance that you review; your session ends after that.

    REVIEW_FEEDBACK.md is merged into its branch, and it is told. To raise an open item again, give its item_id; name
    in resolved_items those that are fixed or no problem. Only the operator gives instance_id.
    """
    reviewer = calling_instance(call, instance_id, ("review",))
    refuse_elsewhere(call.settings, reviewer)
    given = items_given(feedback_type, feedback, actionable_items)
    reading = read_round(call, reviewer, given)
    with call.begin_midway() as tx:
        reviewer = locked_row(tx, reviewer["id"])
        refuse_status(reviewer["id"], reviewer["status"], LIVE, "heard")
        under_way = _open_review(tx, reviewer)
        refuse_busy(reviewer["id"], [one["kind"] for one in tx.all("operations_on", subject=reviewer["id"])])
        coder = locked_row(tx, under_way["parent_instance"])
        _refuse_opening(tx, coder)
        kept = {"id": new_id("fb"), "feedback_type": feedback_type, "priority": priority, "feedback": feedback}
        people = {"reviewer": reviewer["id"], "coder": coder["id"], "iteration": under_way["review_iteration"]}
        outcome = settle_round(tx, coder["id"], reading, resolved_items or ())
        tx.run("feedback_insert", **kept, **people, now=tx.now)
        data = {"feedback_id": kept["id"], "head": under_way["forked_from"], **outcome.data}
        data |= {"inbox_only": has_inbox_only(call.settings, coder)}
        message = feedback_message({**kept, **people}, outcome)
        operation = begin(call, tx, SENDING, reviewer, **data, message=message)
    carry_out(call, operation)
    commit = operation.data["merge_commit"] or operation.data["git_commit"]
    call.note(commit=commit, before=reviewer["status"], after="terminated")
    return FeedbackSent(
        feedback_id=kept["id"],
        git_commit_hash=commit,
        target_instance_id=coder["id"],
        cleanup_status="pending",
        review_iteration=under_way["review_iteration"],
        merge_pending=operation.data["merge_commit"] is None,
        converged=outcome.has_converged,
        blocking_items=outcome.blocking_ids,
    )


def _refuse_opening(tx: Tx, coder: InstanceRow) -> None:
    """Raise InvalidState while the pull request of the reviewed branch is being opened: one of the two answers."""
    under_way = [one["kind"] for one in tx.all("operations_on", subject=coder["id"])]
    refuse_busy(coder["id"], [kind for kind in under_way if kind == PULL])


def _open_review(tx: Tx, reviewer: InstanceRow) -> RoundRow:
    found: RoundRow | None = tx.one("review_by", reviewer=reviewer["id"])
    if found is None or found["ended_at"] is not None:
        how = "reviews nothing" if found is None else f"has ended its review: {found['outcome']}"
        raise InvalidState(
            f"{reviewer['id']} {how}", hint="Feedback is sent once; review_get shows it.", instance_id=reviewer["id"]
        )
    return found
