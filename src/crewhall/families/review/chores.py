"""Chores of reviews: none waits for a reviewer that is gone, and feedback that had to wait is merged."""

import json
import logging
from typing import cast

from crewhall.app import Tick
from crewhall.errors import Failure
from crewhall.families.crew.delivery import has_inbox_only
from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.rules import LIVE
from crewhall.families.crew.steps import NodeWorld
from crewhall.families.review.family import review
from crewhall.families.review.model import FeedbackRow, Outcome, RoundRow
from crewhall.families.review.review_rows import give_back
from crewhall.families.review.rules import JUDGE, reviewer_name
from crewhall.families.review.steps import merge_feedback
from crewhall.live_settings import live_setting

log = logging.getLogger(__name__)


@review.chore("reviews", seconds=4.0)
def end_reviews(tick: Tick) -> None:
    """Give back the rounds of reviewers that ended, took too long, or whose coder waits for them no more."""
    with tick.look() as look:
        under_way: list[RoundRow] = look.all("reviews_open")
        found = [(one, _outcome(one, look.one("instance_get", id=one["child_instance"]),
                                look.one("instance_get", id=one["parent_instance"]))) for one in under_way]  # fmt: skip
    for one, outcome in found:
        if outcome is not None:
            _give_back(tick, one, outcome)
    _end_late(tick, [one for one, outcome in found if outcome is None])


def _outcome(one: RoundRow, reviewer: InstanceRow | None, coder: InstanceRow | None) -> Outcome | None:
    """How a review ended without feedback; None while it goes on, or is only about to begin."""
    if coder is not None and reviewer_name(one["child_instance"]) == JUDGE:
        return "withdrawn" if coder["status"] not in LIVE else None
    if reviewer is None or coder is None or reviewer["pid"] is None:
        return None
    if reviewer["ended_how"] is not None or reviewer["status"] not in LIVE:
        return "ended"
    return "withdrawn" if coder["status"] not in LIVE else None


def _end_late(tick: Tick, under_way: list[RoundRow]) -> None:
    """End reviews that take too long: after the others, for a limit that can't be read stops here."""
    if not under_way:
        return
    with tick.look() as look:
        most_ms = live_setting(look, tick.settings, "review.timeout_hours") * 3_600_000
    for one in under_way:
        if tick.now - one["created_at"] > most_ms:
            _give_back(tick, one, "timed_out")


def _give_back(tick: Tick, one: RoundRow, outcome: Outcome) -> None:
    with tick.look() as look:
        coder = cast(InstanceRow, look.one("instance_get", id=one["parent_instance"]))
    with tick.begin() as tx:
        give_back(tx, tick.hub.journal, one, outcome, has_inbox_only(tick.settings, coder))


@review.chore("review_merges", seconds=10.0, everywhere=True, limit_seconds=120.0)
def merge_pending(tick: Tick) -> None:
    """Merge feedback that the coder's worktree could not take before; the rounds of a coder in their order."""
    with tick.look() as look:
        waiting: list[FeedbackRow] = look.all("feedback_pending")
    hindered: set[str] = set()
    for row in waiting:
        try:
            if row["coder"] not in hindered and not _merge(tick, row):
                hindered.add(row["coder"])
        except Failure as failure:
            log.info("feedback waits", extra={"feedback": row["id"], "reason": failure.message})


def _merge(tick: Tick, row: FeedbackRow) -> bool:
    """Whether it is merged now."""
    with tick.look() as look:
        coder = cast(InstanceRow | None, look.one("instance_get", id=row["coder"]))
    if coder is None or coder["node"] != tick.settings.node or coder["status"] in ("abandoned", "pr_merged"):
        return False
    assert row["git_commit"] is not None
    merged = merge_feedback(NodeWorld(tick.settings, tick.stop), coder, row, row["git_commit"])
    if merged is None:
        return False
    with tick.begin() as tx:
        tx.run("feedback_committed", id=row["id"], git_commit=row["git_commit"], merge_commit=merged)
        data = json.dumps({"feedback_id": row["id"], "round": row["review_iteration"]})
        tx.event("review.merged", coder["id"], commit=merged, data=data)
    return True
