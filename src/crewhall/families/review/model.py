"""Reviews: one round each, of a coding instance by a review instance; feedback, and the items in it."""

from typing import Annotated, Literal, TypedDict

from pydantic import Field

from crewhall.declaration import InputModel
from crewhall.families.crew.model import Status
from crewhall.families.work.workflow.model import Reviewer
from crewhall.tool import Result

FeedbackType = Literal["needs_work", "suggestions", "clarification"]
Priority = Literal["low", "normal", "high", "urgent"]
Outcome = Literal["feedback", "approved", "withdrawn", "ended", "timed_out"]
RelationshipType = Literal["spawned_review", "review_lost"]
ItemState = Literal["open", "fixed", "disputed", "waived", "repeated"]
ItemClaim = Literal["fixed", "disputed"]
FoundBy = Literal["new", "id", "words"]
CleanupStatus = Literal["terminated", "pending", "failed"]

ReviewerPrompt = Annotated[str, Field(max_length=100_000, description="What the reviewer is to look at besides.")]
CompletionMessage = Annotated[str, Field(max_length=100_000, description="What you did, for the reviewer.")]
FeedbackText = Annotated[str, Field(min_length=1, max_length=300_000, description="What you found, in Markdown.")]


class RoundRow(TypedDict):
    """A relationship of two instances: `child_instance` reviews `parent_instance`."""

    parent_instance: str
    child_instance: str
    relationship_type: RelationshipType
    review_iteration: int
    forked_from: str
    outcome: Outcome | None
    completion_message: str | None
    converged: int | None
    report_id: str | None
    created_at: int
    ended_at: int | None


class TaskUnderReview(TypedDict):
    """The task that an instance works on, or worked on last, and who reviews the work on its workflow."""

    id: str
    workflow_id: str
    name: str
    description: str
    plan: str | None
    reviewer: Reviewer


class FeedbackRow(TypedDict):
    """Feedback as the database has it; `merge_commit` is None while the coder's tree can't take it."""

    id: str
    reviewer: str
    coder: str
    review_iteration: int
    feedback_type: FeedbackType
    priority: Priority
    feedback: str
    git_commit: str | None
    merge_commit: str | None
    created_at: int


class ItemRow(TypedDict):
    """One thing that a reviewer wants done. `seen_at` is the commit at which it was raised last."""

    id: str
    coder: str
    feedback_id: str
    position: int
    item: str
    file: str | None
    line: int | None
    rule: str | None
    is_blocking: int
    fingerprint: str
    times: int
    seen_at: str | None
    state: ItemState
    claim: ItemClaim | None
    note: str | None
    reason: str | None
    created_at: int
    updated_at: int


class MentionRow(TypedDict):
    """What one feedback says of an item."""

    feedback_id: str
    position: int
    item_id: str
    found_by: FoundBy
    item: str
    file: str | None
    line: int | None
    rule: str | None
    is_blocking: int


class ItemGiven(InputModel):
    """An item as a reviewer gives it."""

    text: Annotated[str, Field(min_length=1, max_length=4_000)]
    file: Annotated[str, Field(max_length=1_000)] | None = None
    line: Annotated[int, Field(ge=1, le=10**7)] | None = None
    rule: Annotated[str, Field(max_length=200)] | None = None
    item_id: Annotated[str, Field(max_length=40, description="Of an open item that this is about.")] | None = None
    blocking: bool | None = None


ItemId = Annotated[str, Field(min_length=1, max_length=40, description="An item's id, such as ri_…")]
ResolvedItems = Annotated[
    list[ItemId],
    Field(max_length=200, description="Open items that are fixed, or whose dispute you accept."),
]


class ItemAnswer(InputModel):
    """What a coder says of an item that a reviewer raised."""

    item_id: ItemId
    state: ItemClaim
    note: Annotated[str, Field(max_length=4_000, description="What you did, or why you dispute it.")] | None = None


ItemAnswers = Annotated[list[ItemAnswer], Field(max_length=200, description="Items that you fixed or dispute.")]

Items = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=4_000)] | ItemGiven],
    Field(max_length=50, description="One thing to do each."),
]


class IssueRow(TypedDict):
    """An issue of an instance; `number` is None until the host has said it."""

    id: str
    instance_id: str
    repository: str
    title: str
    body: str
    labels: str
    number: int | None
    url: str | None
    created_at: int


class IssueGiven(InputModel):
    """An issue as a planner gives it."""

    title: Annotated[str, Field(min_length=1, max_length=250)]
    body: Annotated[str, Field(max_length=60_000)] = ""
    labels: Annotated[list[Annotated[str, Field(min_length=1, max_length=50)]], Field(max_length=20)] = Field(
        default_factory=list
    )


class IssueMade(Result):
    title: str
    number: int
    url: str
    created: bool = Field(description="false: an earlier call of this instance made it.")


class IssueFailed(Result):
    title: str
    code: str
    message: str


class IssuesMade(Result):
    issues: list[IssueMade]
    failed: list[IssueFailed]


class ReviewRequested(Result):
    review_instance_id: str | None = Field(description="null: the judge reviews.")
    session_name: str | None = Field(description="The tmux session's name.")
    worktree_path: str | None
    branch_name: str = Field(description="Your branch, which is reviewed.")
    review_iteration: int
    max_iterations: int
    uncommitted_files: int = Field(description="Changed files that are not committed, so not in the review.")


class FeedbackSent(Result):
    feedback_id: str
    git_commit_hash: str = Field(description="The merge into the coder's branch; the file's own commit until then.")
    target_instance_id: str
    cleanup_status: CleanupStatus = Field(description="pending: your session ends within 10 seconds.")
    review_iteration: int
    merge_pending: bool = Field(description="The coder's worktree can't take the file now; the hall tries again.")
    converged: bool = Field(description="Nothing blocks any more; the coder is told to open the pull request.")
    blocking_items: list[str] = Field(description="Items that block: these open ones have to be fixed or waived.")


class ItemWaived(Result):
    id: str
    instance_id: str
    state: ItemState
    blocking_items: list[str] = Field(description="Items of the instance that still block.")


class ReviewItem(Result):
    id: str
    text: str
    file: str | None
    line: int | None
    rule: str | None
    blocking: bool
    state: ItemState = Field(description="repeated: raised again. waived: a person or its reviewer let it go.")
    times: int = Field(description="In how many feedbacks it was raised.")
    claim: ItemClaim | None = Field(description="What the coder says of it.")
    note: str | None
    reason: str | None = Field(description="Why a person waived it.")


class ReviewRound(Result):
    coder: str
    reviewer: str = Field(description="A review instance, or judge.")
    report_id: str | None = Field(description="The judge's report.")
    review_iteration: int
    is_lost: bool = Field(description="Given back: the reviewer ended or took too long, so it does not count.")
    outcome: Outcome | None = Field(description="null while the review goes on.")
    converged: bool | None = Field(description="Whether nothing blocked after its feedback; null without feedback.")
    started_at: int
    ended_at: int | None
    feedback_id: str | None
    feedback_type: FeedbackType | None
    priority: Priority | None
    merge_pending: bool
    git_commit: str | None
    items: int


class Reviews(Result):
    reviews: list[ReviewRound]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")


class RoundDetail(ReviewRound):
    feedback: str | None
    item_list: list[ReviewItem]


class ReviewDetail(Result):
    instance_id: str
    status: Status
    current_iteration: int
    max_iterations: int
    refusals: int = Field(description="Requests that were refused at the limit.")
    open_items: list[ReviewItem] = Field(description="Items that are not settled, the oldest first.")
    rounds: list[RoundDetail] = Field(description="The newest first.")
    left_out: int = Field(description="Older rounds that are not shown.")
