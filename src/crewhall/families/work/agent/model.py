"""Agents: ag_…, a registered worker of any runtime, online, busy or offline."""

from typing import Annotated, Any, Literal, TypedDict

from pydantic import AfterValidator, Field
from pydantic_core import from_json

from crewhall.bounded import WHOLE_BYTES, Cut, cut
from crewhall.families.work.model import PATH_BYTES, check_path_length
from crewhall.tool import Result

Runtime = Literal["claude_code", "codex", "gemini", "opencode", "custom"]
Role = Literal["coordinator", "worker"]
AgentType = Literal["planning", "coding", "review"]
AgentStatus = Literal["online", "offline", "busy"]
Connection = Literal["disconnected"]
LiveStatus = Literal["online", "busy"]
Capabilities = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=100)]],
    Field(max_length=50, description="What you are good at, such as typescript, python, testing."),
]
Metadata = Annotated[dict[str, Any], Field(description="Anything else worth keeping, as an object of at most 16 kB.")]
WorkspacePath = Annotated[
    str, Field(max_length=PATH_BYTES, description="The directory you work in."), AfterValidator(check_path_length)
]


class AgentPresence(TypedDict):
    """The columns of an agent that tell whether it is here."""

    id: str
    name: str
    status: AgentStatus
    last_heartbeat_at: int | None
    archived_at: int | None


class AgentFound(AgentPresence):
    """An agent that a hub has heard of, locked until commit."""

    disconnected_since: int | None
    holds_tasks: int


class AgentLocked(AgentPresence):
    """The columns of an agent that change, locked until commit."""

    capabilities: str
    current_task_id: str | None
    lease_until: int | None
    has_left: int


class AgentLapsed(TypedDict):
    """An agent whose lease is over."""

    id: str
    name: str
    lease_until: int | None
    disconnected_since: int | None


class AgentNamed(TypedDict):
    """An agent whose name no other may take; `is_reserved` where it is kept for it though it is away."""

    id: str
    name: str
    created_at: int
    is_reserved: int


class AgentRow(AgentPresence):
    runtime: Runtime
    role: Role
    type: AgentType | None
    capabilities: str
    workspace_path: str | None
    current_task_id: str | None
    metadata: str
    lease_expires_at: int | None
    disconnected_since: int | None
    created_at: int
    updated_at: int


class AgentIntroduced(TypedDict):
    """An agent as it is told who it is."""

    id: str
    name: str
    status: AgentStatus
    role: Role


class Agent(Result):
    id: str
    name: str
    runtime: Runtime
    role: Role
    type: AgentType | None
    status: AgentStatus
    capabilities: list[str]
    workspace_path: str | None
    current_task_id: str | None
    metadata: dict[str, Any] | None = Field(description="Null when it is too large for this answer; see left_out.")
    last_heartbeat_at: int | None
    lease_expires_at: int | None = Field(description="When it counts as gone unless it calls or beats before.")
    connection: Connection | None = Field(description="disconnected once its last process has ended; else null.")
    disconnected_since: int | None
    archived_at: int | None = Field(description="When it was archived; null unless it was.")
    created_at: int
    updated_at: int
    left_out: Cut | None

    @classmethod
    def from_row(cls, row: AgentRow, total: int = WHOLE_BYTES) -> "Agent":
        connection = None if row["disconnected_since"] is None else "disconnected"
        fields = {**row, "capabilities": from_json(row["capabilities"]), "connection": connection}
        return cls(**cut(fields, ("capabilities", "workspace_path"), ("metadata",), total=total))


class AgentRegistered(Result):
    id: str
    name: str
    status: AgentStatus
    role: Role


class Heartbeat(Result):
    success: bool
    next_heartbeat_ms: int


class Agents(Result):
    agents: list[Agent]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")


class AgentToken(Result):
    agent_id: str
    role: Role
    token: str = Field(description="Shown once; the hall keeps a hash of it.")


class TokensRevoked(Result):
    agent_id: str
    revoked: int
