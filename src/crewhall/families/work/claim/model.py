"""Claims: an agent's hold on a task; its epoch grows with each claim, its lease is the agent's."""

from typing import Annotated, TypedDict

from pydantic import Field

from crewhall.families.work.workspace.model import TaskWorkspace
from crewhall.tool import Result

Epoch = Annotated[
    int,
    Field(ge=1, le=2**31 - 1, description="Of your claim, from task_claim: refused once that is over."),
]


class ClaimRow(TypedDict):
    epoch: int
    agent_id: str
    ended_how: str | None
    status_then: str | None


class HandedOver(Result):
    success: bool
    handed_from: str
    handed_to: str
    claim_epoch: int = Field(description="Of the new holder's claim; the old one's is over.")


class Claim(Result):
    success: bool
    already_claimed_by: str | None = Field(description="Who holds it, when that is someone else.")
    claim_epoch: int | None = Field(description="Of your claim; give it with your writes to be told when it is over.")
    lease_expires_at: int | None = Field(description="When the claim lapses unless you call or beat before.")
    workspace: TaskWorkspace | None = Field(
        description="Where to do it, when the workflow gives each task a git worktree."
    )
    workspace_problem: str | None = Field(description="Why there is no worktree; the claim is yours all the same.")
