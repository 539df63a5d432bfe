"""
Rules of the review loop: no clock, no database, no world.

    requests     1  2  3   4               5
    limit 3      ─────────▶ refused, warned ─▶ refused, abandoned (auto_abandon_after 5)
"""

from dataclasses import dataclass
from typing import Any

from crewhall.errors import InvalidState, ReviewLimitExceeded
from crewhall.families.review.model import FeedbackType, ItemGiven

SUGGESTIONS = (
    "Create pull request with current work",
    "Abandon this approach and try different solution",
    "Manually review and fix issues before requesting review",
)
JUDGE = "judge"
JUDGED = "jd_"  # how the round of a judge is called where a review instance would be named
REVIEWABLE = ("started", "pr_created")  # statuses from which a coding instance may ask for a review
LOST_IN_A_ROW = 3
PULL = "branch_pull"  # the operation on a coder that opens its pull request


@dataclass(frozen=True)
class ReviewLimits:
    """How many rounds there are, and after how many rounds and refusals together an instance is abandoned."""

    most: int
    abandon_after: int


@dataclass(frozen=True)
class ReviewDecision:
    """What becomes of a request: a round, or a refusal that may abandon the instance."""

    iteration: int | None
    abandons: bool = False
    abandons_next: bool = False


def reviewer_name(child_instance: str) -> str:
    """Who reviews in a round: an instance, or the judge."""
    return JUDGE if child_instance.startswith(JUDGED) else child_instance


def decide(granted: int, refusals: int, limits: ReviewLimits) -> ReviewDecision:
    """A request after so many granted rounds and refused requests. One under the limit never abandons."""
    if granted < limits.most:
        return ReviewDecision(granted + 1)
    abandons = granted + refusals + 1 >= limits.abandon_after
    return ReviewDecision(None, abandons, not abandons and granted + refusals + 2 >= limits.abandon_after)


def limit_failure(
    instance_id: str, granted: int, decision: ReviewDecision, limits: ReviewLimits, packet: dict[str, Any]
) -> ReviewLimitExceeded:
    """The refusal of a request at the limit, with what a person needs to decide."""
    hint = f"Maximum review iterations reached ({limits.most}). Consider creating PR or abandoning."
    fields: dict[str, Any] = {"suggestions": list(SUGGESTIONS), "current_iteration": granted}
    fields |= {"max_iterations": limits.most, "instance_id": instance_id, "packet": packet}
    if decision.abandons:
        hint += " This instance is abandoned now; its work is saved."
        fields["abandoned"] = True
    elif decision.abandons_next:
        hint += " The next request abandons this instance."
        fields["abandons_next"] = True
    return ReviewLimitExceeded(
        f"Maximum review iterations ({limits.most}) reached for agent {instance_id}", hint=hint, **fields
    )


def refuse_unreviewable(instance_id: str, status: str, reviewer: str | None, lost: int, *, by_person: bool) -> None:
    """Raise InvalidState when the instance can't be reviewed now."""
    about = {"instance_id": instance_id, "status": status}
    if reviewer is not None:
        raise InvalidState(
            f"{instance_id} is {status}: {reviewer_name(reviewer)} reviews it already",
            hint="Wait for its feedback; it reaches you in your conversation and inbox.",
            **about,
        )
    if status not in REVIEWABLE:
        raise InvalidState(
            f"{instance_id} is {status}, and only {' or '.join(REVIEWABLE)} ones can be reviewed",
            hint="`crewhall instance get` shows what it is doing.",
            **about,
        )
    if lost >= LOST_IN_A_ROW and not by_person:
        raise InvalidState(
            f"the last {lost} reviewers of {instance_id} ended without feedback",
            hint=f"Ask the operator to find out why, then to call request_review with instance_id {instance_id}.",
            **about,
        )


def items_given(feedback_type: FeedbackType, feedback: str, items: list[str | ItemGiven] | None) -> list[ItemGiven]:
    """The items of a feedback, each with whether it blocks. needs_work without items is one blocking item."""
    blocks = feedback_type == "needs_work"
    given = [ItemGiven(text=one) if isinstance(one, str) else one for one in items or ()]
    if not given and blocks:
        given = [ItemGiven(text=feedback.strip()[:4_000] or "See the feedback.")]
    return [one.model_copy(update={"blocking": blocks if one.blocking is None else one.blocking}) for one in given]
