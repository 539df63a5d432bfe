"""Tasks: tk_…, one piece of a plan, which waits for the tasks it depends on."""

from typing import Annotated, Any, Literal, TypedDict

from pydantic import BaseModel, Field
from pydantic_core import from_json

from crewhall.bounded import LIST_TEXT_BYTES, WHOLE_BYTES, Cut, cut
from crewhall.declaration import InputModel
from crewhall.families.work.checkpoint.model import Checkpoint
from crewhall.families.work.model import Cargo, Files, IfAny, Name, Short, Text, Word, Words
from crewhall.tool import Result

StoredStatus = Literal["pending", "planning", "in_progress", "paused", "completed", "failed", "skipped"]
TaskStatus = Literal["pending", "blocked", "planning", "in_progress", "paused", "completed", "failed", "skipped"]
Complexity = Literal["low", "medium", "high"]
TASK_STATUSES: tuple[TaskStatus, ...] = (
    "pending",
    "blocked",
    "planning",
    "in_progress",
    "paused",
    "completed",
    "failed",
    "skipped",
)
FINISHED = ("completed", "skipped")


class TaskState(TypedDict):
    """The columns that tell how a task is shown."""

    status: StoredStatus
    waits_for: int


class TaskNamed(TaskState):
    """A task that another one's answer names."""

    id: str
    name: str


class TaskHeld(TypedDict):
    """A task, and the agent that holds it."""

    id: str
    claimed_by: str | None


class TaskDependency(TaskNamed):
    outcome: str | None


class TaskFree(TaskNamed):
    """A task that is ready and held by no one."""

    description: str
    sequence: int
    tail: int
    place: int
    parallel_group: str | None
    files_likely_affected: str


class TaskAround(TaskNamed):
    """An open task of a repository, with its workflow, holder and workspace."""

    workflow_id: str
    workflow_name: str
    workflow_status: str
    agent_id: str | None
    agent_name: str | None
    workspace_path: str | None
    total: int


class TaskRow(TaskNamed):
    workflow_id: str
    description: str
    sequence: int
    place: int
    parallel_group: str | None
    estimated_complexity: Complexity | None
    files_likely_affected: str
    dependency_count: int
    plan: str | None
    context: str | None
    outcome: str | None
    outcome_detail: str | None
    error: str | None
    claimed_by: str | None
    claim_epoch: int
    claimed_at: int | None
    lease_expires_at: int | None
    checkpoint_count: int
    workspace_id: str | None
    started_at: int | None
    finished_at: int | None
    created_at: int
    updated_at: int


class PlannedTask(InputModel):
    name: Name
    description: Text
    sequence: Annotated[
        int, Field(ge=-(2**31), le=2**31 - 1, description="Tasks that may run side by side share a sequence.")
    ]
    parallel_group: Word | None = None
    depends_on: Annotated[
        list[Name], IfAny, Field(max_length=1000, description="Names of the tasks that must be finished first.")
    ] = []
    estimated_complexity: Complexity | None = None
    files_likely_affected: Annotated[Files, IfAny] = []
    required_capabilities: Annotated[
        Words, IfAny, Field(description="What an agent must be good at to get this task; others are not offered it.")
    ] = []


class NewPlan(InputModel):
    approach: Text
    steps: Annotated[list[Text], Field(max_length=500)]
    files_to_modify: Annotated[Files, IfAny] = []
    files_to_create: Annotated[Files, IfAny] = []


class TaskPlan(NewPlan):
    context_needed: Annotated[list[Short], IfAny, Field(max_length=200)] = []


class TaskSummary(Result):
    """A task in a list, in short."""

    id: str
    name: str
    status: TaskStatus
    sequence: int
    parallel_group: str | None
    claimed_by: str | None
    outcome: str | None
    left_out: Cut | None

    @classmethod
    def from_row(cls, row: TaskRow) -> "TaskSummary":
        picked = {name: value for name, value in row.items() if name in cls.model_fields}
        picked["status"] = shown_status(row)
        return cls(**cut(picked, ("outcome",), (), each=200))


class Task(Result):
    id: str
    workflow_id: str
    name: str
    description: str
    status: TaskStatus
    sequence: int
    parallel_group: str | None
    depends_on: list[str] = Field(description="Names of the tasks that it depends on, at most 50 of them.")
    estimated_complexity: Complexity | None
    files_likely_affected: list[str]
    required_capabilities: list[str]
    plan: Cargo | None
    context: Cargo | None
    outcome: str | None
    outcome_detail: Cargo | None
    error: str | None
    claimed_by: str | None
    claim_epoch: int
    claimed_at: int | None
    lease_expires_at: int | None
    checkpoint_count: int
    workspace_id: str | None
    started_at: int | None = Field(
        description="When it was first planning or in_progress. Pausing, releasing or replanning keeps it."
    )
    finished_at: int | None
    created_at: int
    updated_at: int
    left_out: Cut | None
    checkpoints: list[Checkpoint] | None = Field(description="When asked for: the newest that fit, oldest first.")

    @classmethod
    def from_row(
        cls, row: TaskRow, near: "Near", *, whole: bool, checkpoints: list[Checkpoint] | None = None
    ) -> "Task":
        """The task of a row, with what the page's `near` rows say of it; `whole` for one alone, short in a list."""
        fields: dict[str, Any] = {name: value for name, value in row.items() if name in cls.model_fields}
        fields["status"] = shown_status(row)
        fields["files_likely_affected"] = from_json(row["files_likely_affected"])
        fields["depends_on"] = near.depends_on.get(row["id"], [])
        fields["required_capabilities"] = near.capabilities.get(row["id"], [])
        fields["checkpoints"] = checkpoints
        lists = ("depends_on", "files_likely_affected", "required_capabilities")
        texts, cargo = ("description", "outcome", "error", *lists), ("plan", "context", "outcome_detail")
        limit = {"total": WHOLE_BYTES} if whole else {"each": LIST_TEXT_BYTES}
        fields = cut(fields, texts, cargo, **limit)
        if unnamed := row["dependency_count"] - len(fields["depends_on"]):
            fields["left_out"] = {**(fields["left_out"] or {}), "depends_on": unnamed}
        return cls(**fields)


class Near(BaseModel):
    """What other tables say of the tasks of a page: names of dependencies, capabilities, by task id."""

    depends_on: dict[str, list[str]] = {}
    capabilities: dict[str, list[str]] = {}


class Tasks(Result):
    tasks: list[Task]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")
    no_room: int = Field(
        description="If total is 0: ready tasks whose workflows run max_parallel_tasks. Ask again when one ends."
    )


class TaskList(Result):
    tasks: list[TaskSummary]
    total: int
    next_cursor: str | None = Field(description="Give it as cursor for the next page; null when this is the last.")


class TaskReplanned(Result):
    success: bool
    checkpoint_id: str


class PendingDependency(Result):
    id: str
    name: str
    status: TaskStatus


class CompletedDependency(Result):
    id: str
    name: str
    outcome: str | None
    left_out: Cut | None


class Dependencies(Result):
    satisfied: bool
    pending: list[PendingDependency]
    pending_total: int
    completed: list[CompletedDependency]
    completed_total: int
    next_cursor: str | None = Field(description="Give it as cursor for the rest of both; null when this is the end.")


def shown_status(row: TaskState) -> TaskStatus:
    """A pending task that waits for others is shown as blocked, and stored as pending."""
    return "blocked" if row["status"] == "pending" and row["waits_for"] > 0 else row["status"]
