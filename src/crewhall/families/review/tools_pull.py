"""An instance's pull request: its branch pushed, the pull opened; from a reviewer it is the approval (seed 000)."""

from typing import Annotated, cast

from pydantic import Field

from crewhall.app import Call
from crewhall.errors import Forbidden, InvalidState
from crewhall.families.crew.changes import begin, carry_out, find_instance
from crewhall.families.crew.delivery import has_inbox_only
from crewhall.families.crew.instance_rows import locked_row
from crewhall.families.crew.model import InstanceId, InstanceRow
from crewhall.families.crew.rules import LIVE, refuse_busy, refuse_status
from crewhall.families.crew.site import refuse_elsewhere
from crewhall.families.pulls.providers import host
from crewhall.families.pulls.rules_scope import refuse_branch_paths
from crewhall.families.pulls.tiers import tier_of
from crewhall.families.review.callers import calling_instance, note_caller
from crewhall.families.review.family import review
from crewhall.families.review.items import read_round, settle_round
from crewhall.families.review.model import ItemRow, ResolvedItems, RoundRow
from crewhall.families.review.pull_steps import PULLING
from crewhall.families.review.pull_target import changed_paths, find_base, pull_target, refuse_unseen
from crewhall.families.review.quotes import one_line
from crewhall.families.work.message.model import HALL
from crewhall.families.work.workflow.halt import refuse_paused_work
from crewhall.outside.git import open_repository
from crewhall.store.transaction import Row, Tx
from crewhall.tool import Result

Title = Annotated[str, Field(min_length=1, max_length=250)]
Description = Annotated[str, Field(max_length=60_000, description="The pull request's text, in Markdown.")]


class PullRequestOpened(Result):
    pr_number: int
    pr_url: str
    branch_name: str


@review.tool(
    "create_pull_request",
    changes=True,
    pace="long",
    outward=True,
    who=("operator", "coding", "review", "planning"),
    profiles=("coding", "review", "planning", "coordinator"),
    notes=note_caller,
    command="review pull-request",
)
def create_pull_request(
    call: Call,
    title: Title,
    description: Description,
    base_branch: Annotated[str, Field(min_length=1, max_length=200)] | None = None,
    resolved_items: ResolvedItems | None = None,
    instance_id: InstanceId | None = None,
) -> PullRequestOpened:
    """Push your branch and open its pull request; a reviewer approves so: the branch is that of the coder it reviews.

    A reviewer approves only when no item blocks: name in resolved_items those that are fixed. Calling it again returns
    the same pull request. Only the operator gives instance_id.
    """
    caller = calling_instance(call, instance_id, ("coding", "review", "planning"))
    owner = _owner_of_branch(call, caller)
    refuse_elsewhere(call.settings, owner)
    if owner["status"] == "pr_created" and owner["pull_number"] is not None:
        return _to_result(owner)
    if tier_of(call) < 2:
        raise Forbidden(
            "tier 1 agents cannot create PRs; minimum tier is 2",
            hint="Ask the operator to start the instance with tier 2.",
            instance_id=caller["id"],
        )
    repo = open_repository(owner["repository_path"], call.stop)
    target = pull_target(repo, call.settings)
    with host(call, target.access) as there:
        at = there.repository(target.remote.owner, target.remote.name)
        base, base_commit = find_base(there, at, owner, base_branch)
    reviewed = _reviewed_commit(call, caller, owner)
    refuse_unseen(repo, owner, reviewed)
    paths = changed_paths(repo, target, owner, base, base_commit)
    refuse_branch_paths(paths, call.settings["pulls.branch_deny"], call.settings["pulls.branch_allow"])
    reading = read_round(call, caller, []) if caller["type"] == "review" else None
    with call.begin_midway() as tx:
        _refuse_unheard(tx, caller, owner)
        row = locked_row(tx, owner["id"])
        refuse_paused_work(tx, row["agent_id"], "given a pull request")
        refuse_busy(row["id"], [one["kind"] for one in tx.all("operations_on", subject=row["id"])])
        refuse_status(row["id"], row["status"], LIVE, "given a pull request")
        given: Row = {"title": title, "base_branch": base, "base_commit": base_commit, "by": caller["id"]}
        given |= {"reviewed": reviewed, "remote_url": target.url, "inbox_only": has_inbox_only(call.settings, row)}
        if reading is not None:
            outcome = settle_round(tx, row["id"], reading, resolved_items or ())
            refuse_blocking(caller["id"], outcome.blocking_ids)
            given |= {"description": description, "states": outcome.data["states"]}
        else:
            given["description"] = with_open_items(description, tx.all("items_open", coder=row["id"]))
        operation = begin(call, tx, PULLING, row, **given)
    carry_out(call, operation)
    call.note(commit=operation.data["pushed"], before=row["status"], after="pr_created")
    return _to_result(find_instance(call, owner["id"]))


def _owner_of_branch(call: Call, caller: InstanceRow) -> InstanceRow:
    """The instance whose branch it is: of a reviewer, the coder that it reviews."""
    if caller["type"] != "review":
        return caller
    found = cast(RoundRow | None, call.one("review_by", reviewer=caller["id"]))
    if found is None:
        raise Forbidden(
            f"{caller['id']} reviews nothing", hint="Start it with request_review.", instance_id=caller["id"]
        )
    return find_instance(call, found["parent_instance"])


def _reviewed_commit(call: Call, caller: InstanceRow, owner: InstanceRow) -> str | None:
    """The commit that this pull request approves: a reviewer's or the judge's. None for one that approves nothing."""
    if caller["type"] == "review":
        seen = cast(RoundRow | None, call.one("review_by", reviewer=caller["id"]))
    elif call.actor.id == HALL:
        with call.look() as look:
            seen = next(iter(look.all("reviews_last", coder=owner["id"], limit=1)), None)
    else:
        return None
    return seen and seen["forked_from"]


def refuse_blocking(reviewer: str, blocking: list[str]) -> None:
    """Raise InvalidState for an approval while items of earlier rounds block."""
    if blocking:
        raise InvalidState(
            f"{len(blocking)} items block: {', '.join(blocking[:10])}",
            hint="Name those that are fixed, or no problem, in resolved_items; or call send_feedback.",
            instance_id=reviewer,
            blocking_items=blocking[:50],
        )


def with_open_items(description: str, items: list[ItemRow]) -> str:
    """The text of a pull request that its coder opens, after the review's items that still block.

    They come first: what the coder writes, such as a comment that never ends, can hide what follows only.
    """
    lines = [f"- {one_line(one['item'], 300)}" for one in items if one["is_blocking"]]
    return "\n".join(["Open review items:", "", *lines[:20], "", "---", "", description]) if lines else description


def _refuse_unheard(tx: Tx, caller: InstanceRow, owner: InstanceRow) -> None:
    """Raise InvalidState while the branch's review begins or is being answered, or when the caller's own is over.

    A reviewer's row is locked before its coder's, here and wherever both are.
    """
    seen: RoundRow | None = tx.one("review_open", coder=owner["id"])
    reviewer = cast(InstanceRow | None, tx.one("instance_lock", id=seen["child_instance"])) if seen else None
    if reviewer is not None:
        refuse_busy(reviewer["id"], [one["kind"] for one in tx.all("operations_on", subject=reviewer["id"])])
    if caller["type"] != "review":
        return
    still: RoundRow | None = tx.one("review_open", coder=owner["id"])
    if still is None or still["child_instance"] != caller["id"] or reviewer is None or reviewer["status"] not in LIVE:
        raise InvalidState(
            f"the review by {caller['id']} is over",
            hint="A review is answered once; review_get shows how.",
            instance_id=caller["id"],
        )


def _to_result(row: InstanceRow) -> PullRequestOpened:
    assert row["pull_number"] is not None and row["pull_url"] is not None
    return PullRequestOpened(pr_number=row["pull_number"], pr_url=row["pull_url"], branch_name=row["branch"])
