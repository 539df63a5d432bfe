"""
The words of family work, and the shapes its tools return.

    agent       ag_…   a registered worker of any runtime: online, busy or offline
    repository  rp_…   a git repository that the hall knows by its absolute path
    event              one fact of the log; its number is a cursor
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import from_json, to_json

from crewhall.bounded import WHOLE_BYTES, Cut, cut
from crewhall.declaration import Acting, Suggest
from crewhall.store.transaction import Row
from crewhall.tool import Result

Runtime = Literal["claude_code", "codex", "gemini", "opencode", "custom"]
Role = Literal["coordinator", "worker"]
AgentType = Literal["planning", "coding", "review"]
AgentStatus = Literal["online", "offline", "busy"]
LiveStatus = Literal["online", "busy"]

PATH_BYTES = 4096

Name = Annotated[str, Field(min_length=1, max_length=200)]


def _fits(path: str) -> str:
    """Raise ValueError for a path that no file can have; a list of paths stays short by that."""
    if len(to_json(path)) > PATH_BYTES + 2:
        raise ValueError(f"A path has at most {PATH_BYTES} bytes")
    return path


Path = Annotated[str, Field(min_length=1, max_length=PATH_BYTES), AfterValidator(_fits)]
AgentId = Annotated[str, Suggest("agent_ids"), Field(max_length=100, description="An agent's id, ag_…")]
TaskId = Annotated[str, Suggest("task_ids"), Field(max_length=100, description="A task's id, tk_…")]
Me = Annotated[
    str,
    Acting(),
    Field(max_length=100, description="Your agent id; left out if you have a token of your own."),
]
Capabilities = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=100)]],
    Field(max_length=50, description="What you are good at, such as typescript, python, testing."),
]
Metadata = Annotated[dict[str, Any], Field(description="Anything else worth keeping, as an object of at most 16 kB.")]
WorkspacePath = Annotated[
    str, Field(max_length=PATH_BYTES, description="The directory you work in."), AfterValidator(_fits)
]
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
    metadata: dict[str, Any] | None = Field(description="Null when it is too large for this answer; see left_out.")
    last_heartbeat_at: int | None
    lease_expires_at: int | None = Field(description="When it counts as gone unless it calls or beats before.")
    created_at: int
    updated_at: int
    left_out: Cut | None

    @classmethod
    def from_row(cls, row: Row, total: int = WHOLE_BYTES) -> "Agent":
        told = row | {"capabilities": from_json(row["capabilities"])}
        return cls(**cut(told, ("capabilities", "workspace_path"), ("metadata",), total=total))


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
    total: int
    next_cursor: str | None = Field(description="Give it as cursor for older ones; null when this is the end.")


class Events(Result):
    events: list[Event]
    total: int = Field(description="How many match after the cursor that was given.")
    cursor: int = Field(description="Give it as `after` to go on from here.")
    newest: int = Field(description="The number of the newest event in the hall.")
