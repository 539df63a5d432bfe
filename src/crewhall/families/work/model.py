"""
The words of family work, and the shapes its tools return.

    agent       ag_…   a registered worker of any runtime: online, busy or offline
    repository  rp_…   a git repository that the hall knows by its absolute path
    event              one fact of the log; its number is a cursor
"""

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_core import from_json

from crewhall.declared import Acting, Suggest
from crewhall.store.transaction import Row
from crewhall.tool import Result

Runtime = Literal["claude_code", "codex", "gemini", "opencode", "custom"]
Role = Literal["coordinator", "worker"]
AgentType = Literal["planning", "coding", "review"]
AgentStatus = Literal["online", "offline", "busy"]
LiveStatus = Literal["online", "busy"]

Name = Annotated[str, Field(min_length=1, max_length=200)]
Path = Annotated[str, Field(min_length=1, max_length=4096)]
AgentId = Annotated[str, Suggest("agent_ids"), Field(max_length=100, description="An agent's id, ag_…")]
TaskId = Annotated[str, Field(max_length=100, description="A task's id, tk_…")]
Me = Annotated[
    str,
    Acting(),
    Field(max_length=100, description="Your agent id. Leave it out if you connect with your own token."),
]
Capabilities = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=100)]],
    Field(max_length=50, description="What you are good at, such as typescript, python, testing."),
]
Metadata = Annotated[dict[str, Any], Field(description="Anything else worth keeping, as an object of at most 16 kB.")]
WorkspacePath = Annotated[str, Field(max_length=4096, description="The directory you work in.")]
Limit = Annotated[int, Field(ge=1, le=500, description="How many at the most.")]
Offset = Annotated[int, Field(ge=0, le=1_000_000_000, description="How many to pass over.")]
Cursor = Annotated[int, Field(ge=0, le=2**53, description="The cursor to go on from; 0 is the oldest event kept.")]
Word = Annotated[str, Field(min_length=1, max_length=100)]


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
    metadata: dict[str, Any]
    last_heartbeat_at: int | None
    created_at: int
    updated_at: int

    @classmethod
    def from_row(cls, row: Row) -> "Agent":
        cargo = {"capabilities": from_json(row["capabilities"]), "metadata": from_json(row["metadata"])}
        return cls(**{**row, **cargo})


class Registered(Result):
    id: str
    name: str
    status: AgentStatus
    role: Role


class Done(Result):
    success: bool


class Beat(Result):
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


class Revoked(Result):
    agent_id: str
    revoked: int


class Repository(Result):
    id: str
    path: str
    name: str
    created_at: int
    updated_at: int

    @classmethod
    def from_row(cls, row: Row) -> "Repository":
        return cls(**row)


class RepositoryId(Result):
    id: str


class Repositories(Result):
    repositories: list[Repository]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")


class Event(Result):
    seq: int
    at: int
    actor: str
    what: str
    subject: str
    before_status: str | None
    after_status: str | None
    tool: str | None
    data: dict[str, Any] | None

    @classmethod
    def from_row(cls, row: Row) -> "Event":
        return cls(**{**row, "data": from_json(row["data"]) if row["data"] else None})


class LoggedCall(Result):
    id: str
    at: int
    tool: str
    actor: str
    edge: str
    success: bool
    error: str | None
    duration_ms: int


class Calls(Result):
    calls: list[LoggedCall]


class Events(Result):
    events: list[Event]
    cursor: int = Field(description="Give it as `after` to go on from here.")
    newest: int = Field(description="The number of the newest event in the hall.")
