"""Instances: work-…-a1, agents that the hall itself started, each in a worktree and a terminal session."""

import json
from typing import Annotated, Literal, TypedDict

from pydantic import AfterValidator, Field

from crewhall.bounded import WHOLE_BYTES, Cut, cut
from crewhall.declaration import Suggest
from crewhall.families.crew.rules import ID_PATTERN
from crewhall.families.work.agent.model import AgentType
from crewhall.tool import Result

Status = Literal["started", "waiting_review", "pr_created", "pr_merged", "pr_closed", "abandoned", "terminated"]
StateName = Literal["starting", "working", "in a tool", "waiting", "idle", "alive", "ended", "elsewhere"]
StateSource = Literal["process", "status file", "hooks", "state file", "terminal", "launcher", "database"]
DeliveredBy = Literal["hook", "paste", "inbox"]

DifferenceName = Literal[
    "process_gone",
    "session_lost",
    "launcher_lost",
    "interrupted",
    "worktree_gone",
    "branch_gone",
    "repository_gone",
    "stray_session",
    "stray_directory",
    "stale_worktree",
    "live_token",
    "detached",
    "unfinished",
]


def _check_id(value: str) -> str:
    if not ID_PATTERN.fullmatch(value):
        raise ValueError(f"'{value[:80]}' is no instance id, such as work-123-a1")
    return value


InstanceId = Annotated[
    str,
    Suggest("instance_ids"),
    Field(max_length=100, description="An instance's id, such as work-123-a1."),
    AfterValidator(_check_id),
]
MessageText = Annotated[str, Field(min_length=1, max_length=100_000)]


class InstanceRow(TypedDict):
    """An instance as the database has it."""

    id: str
    agent_id: str
    type: AgentType
    status: Status
    runtime: str
    node: str
    repository_path: str
    worktree: str
    branch: str
    base_branch: str
    session: str
    pid: int | None
    process_started: str | None
    conversation_id: str
    prompt: str
    tier: int
    issue_number: int | None
    pull_number: int | None
    pull_url: str | None
    parent: str | None
    input_tokens: int
    output_tokens: int
    ended_how: str | None
    ended_at: int | None
    last_activity_at: int | None
    problem: str | None
    saved_refs: str
    ports: str
    review_refusals: int
    created_at: int
    updated_at: int


class InstanceMessageRow(TypedDict):
    """A message for an instance's conversation."""

    id: str
    instance_id: str
    sender: str
    body: str
    created_at: int
    delivered_at: int | None
    delivered_by: DeliveredBy | None


class InstanceState(Result):
    """What an instance is doing, as far as somebody can tell, and how that is known."""

    name: StateName
    evidence: str = Field(description="How this is known, and since when.")
    source: StateSource
    since: int | None = Field(description="When it was first seen so; null when nobody knows.")


class Instance(Result):
    id: str
    agent_id: str
    type: AgentType
    status: Status
    state: InstanceState
    runtime: str
    node: str
    repository_path: str
    worktree: str
    branch: str
    base_branch: str
    session: str = Field(description="The tmux session's name.")
    attach: str = Field(description="The command that shows its terminal to a person on its node.")
    pid: int | None
    conversation_id: str
    prompt: str
    tier: int
    issue_number: int | None
    pull_number: int | None
    pull_url: str | None
    parent: str | None
    input_tokens: int
    output_tokens: int
    ended_how: str | None = Field(description="How its process ended; null while it lives.")
    ended_at: int | None
    last_activity_at: int | None
    problem: str | None = Field(description="What the hall could not do for it, and tries again.")
    saved_refs: list[str] = Field(description="Git refs that keep work which was not committed.")
    ports: list[int] = Field(description="Ports that are its own: CREWHALL_PORT, CREWHALL_PORT_2 … in its session.")
    created_at: int
    updated_at: int
    left_out: Cut | None

    @classmethod
    def from_row(cls, row: InstanceRow, state: InstanceState, attach: str, total: int = WHOLE_BYTES) -> "Instance":
        hidden = ("process_started", "review_refusals")
        shown = {name: row[name] for name in row if name not in hidden}  # type: ignore[literal-required]
        lists = {name: json.loads(row[name]) for name in ("saved_refs", "ports")}
        fields = {**shown, **lists, "state": state, "attach": attach}
        return cls(**cut(fields, ("prompt", "worktree", "repository_path", "problem"), (), total=total))


class Instances(Result):
    instances: list[Instance]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")


class InstanceStarted(Result):
    instance_id: str
    agent_id: str
    session_name: str
    worktree_path: str
    branch_name: str
    base_branch: str
    attach: str = Field(description="The command that shows its terminal to a person on its node.")


class InstanceChanged(Result):
    instance_id: str
    status: Status
    saved_refs: list[str] = Field(description="Git refs that keep work which was not committed.")
    problem: str | None = Field(description="What could not be done yet; the hall tries again.")


class InstanceOutput(Result):
    instance_id: str
    text: str = Field(description="The end of its terminal's text.")
    is_live: bool = Field(description="Whether its terminal session exists; else this is the last text kept.")
    left_out: int = Field(description="Characters left out at the start.")


class MessageQueued(Result):
    message_id: str
    instance_id: str
    delivered: bool = Field(description="Whether its conversation has it already; instance_get tells its state.")
    delivered_by: DeliveredBy | None


class DifferenceShown(Result):
    """One thing on a node that is not as the hall has it."""

    name: DifferenceName
    instance_id: str | None
    about: str
    action: str = Field(description="What would set it right.")
    is_fixable: bool = Field(description="Whether instance_repair does it.")
    hint: str


class InstanceCheck(Result):
    node: str
    differences: list[DifferenceShown]


class InstanceRepair(Result):
    node: str
    done: list[DifferenceShown]
    left: list[DifferenceShown]
