"""
The words of workflows, tasks, claims and checkpoints, and the shapes that their tools take and return.

    workflow    wf_…   what is to be done, and the plan for it
    task        tk_…   one piece of a plan; it waits for the tasks it depends on
    claim              an agent's hold on a task; its epoch grows with each claim, its lease is the agent's
    checkpoint  cp_…   what an agent noted while it worked, numbered within its task
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import from_json

from crewhall.bounded import LIST_TEXT_BYTES, WHOLE_BYTES, Cut, cut
from crewhall.declaration import Suggest
from crewhall.families.work.model import Name, Path, Word
from crewhall.families.work.workspace.model import Place
from crewhall.store.transaction import Row
from crewhall.tool import Result

SourceType = Literal["prompt", "github_issue", "linear", "jira", "custom"]
WorkflowStatus = Literal["planning", "ready", "in_progress", "paused", "completed", "failed", "abandoned"]
TaskStatus = Literal["pending", "blocked", "planning", "in_progress", "paused", "completed", "failed", "skipped"]
Complexity = Literal["low", "medium", "high"]
CheckpointType = Literal["plan", "progress", "decision", "error", "recovery", "complete", "replan"]

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

WorkflowId = Annotated[str, Suggest("workflow_ids"), Field(max_length=100, description="A workflow's id, wf_…")]
Text = Annotated[str, Field(max_length=100_000)]
Source = Annotated[str, Field(max_length=1_000_000, description="The prompt or issue itself.")]
Short = Annotated[str, Field(min_length=1, max_length=2_000)]
Files = Annotated[list[Path], Field(max_length=500)]
Words = Annotated[list[Word], Field(max_length=50)]
Cargo = dict[str, Any]
MaxParallel = Annotated[
    int, Field(ge=1, le=1000, description="How many tasks are recommended at once; 1 is one after the other.")
]
AutoCreate = Annotated[bool, Field(description="Give each parallel task a git worktree of its own.")]
Epoch = Annotated[
    int,
    Field(ge=1, le=2**31 - 1, description="Of your claim, from task_claim: refused once that is over."),
]
PageCursor = Annotated[str, Field(min_length=1, max_length=200, description="next_cursor of the page before.")]


class Given(BaseModel):
    """Base of what callers hand over as an object: typed strictly, and nothing else in it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _none_is_empty(value: Any) -> Any:
    """Models write null where they have nothing to say."""
    return [] if value is None else value


IfAny = BeforeValidator(_none_is_empty)


class PlannedTask(Given):
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


class WorkflowPlan(Given):
    summary: Text
    approach: Text
    tasks: Annotated[list[PlannedTask], Field(min_length=1, max_length=20_000)]
    risks: Annotated[list[Short], IfAny, Field(max_length=200)] = []
    assumptions: Annotated[list[Short], IfAny, Field(max_length=200)] = []


class NewPlan(Given):
    approach: Text
    steps: Annotated[list[Text], Field(max_length=500)]
    files_to_modify: Annotated[Files, IfAny] = []
    files_to_create: Annotated[Files, IfAny] = []


class TaskPlan(NewPlan):
    context_needed: Annotated[list[Short], IfAny, Field(max_length=200)] = []


class WorkflowCreated(Result):
    id: str
    name: str
    status: WorkflowStatus
    max_parallel_tasks: int


class WorkflowSummary(Result):
    id: str
    name: str
    status: WorkflowStatus
    repository_path: str | None
    max_parallel_tasks: int
    task_count: int
    finished_count: int
    created_at: int
    updated_at: int

    @classmethod
    def from_row(cls, row: Row) -> "WorkflowSummary":
        return cls(**{name: row[name] for name in cls.model_fields})


class Workflows(Result):
    workflows: list[WorkflowSummary]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")


class PlanSet(Result):
    workflow_id: str
    tasks_created: int
    parallelizable_groups: int
    status: WorkflowStatus


class TasksAdded(Result):
    workflow_id: str
    tasks_created: int
    task_ids: list[str]


class Checkpoint(Result):
    id: str
    task_id: str
    sequence: int
    type: CheckpointType
    summary: str
    detail: Cargo | None
    files_changed: list[str]
    agent_id: str | None
    created_at: int
    left_out: Cut | None

    @classmethod
    def from_row(cls, row: Row) -> "Checkpoint":
        row = row | {"files_changed": from_json(row["files_changed"])}
        return cls(**cut(row, ("summary", "files_changed"), ("detail",), each=LIST_TEXT_BYTES))


class CheckpointAdded(Result):
    id: str
    sequence: int


class Checkpoints(Result):
    checkpoints: list[Checkpoint]
    total: int = Field(description="How many match in all.")
    next_since_sequence: int | None = Field(
        description="Give it as since_sequence for the rest; null when this is the end."
    )


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
    def from_row(cls, row: Row) -> "TaskSummary":
        names = [name for name in cls.model_fields if name != "left_out"]
        picked = {name: row[name] for name in names} | {"status": shown_status(row)}
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
    started_at: int | None
    finished_at: int | None
    created_at: int
    updated_at: int
    left_out: Cut | None
    checkpoints: list[Checkpoint] | None = Field(description="When asked for: the newest that fit, oldest first.")

    @classmethod
    def from_row(cls, row: Row, near: "Near", *, whole: bool, checkpoints: list[Checkpoint] | None = None) -> "Task":
        """The task of a row, with what the page's `near` rows say of it; `whole` for one alone, short in a list."""
        told = {name: row[name] for name in cls.model_fields if name in row}
        told["status"] = shown_status(row)
        told["files_likely_affected"] = from_json(row["files_likely_affected"])
        told["depends_on"] = near.depends_on.get(row["id"], [])
        told["required_capabilities"] = near.capabilities.get(row["id"], [])
        told["checkpoints"] = checkpoints
        lists = ("depends_on", "files_likely_affected", "required_capabilities")
        texts, cargo = ("description", "outcome", "error", *lists), ("plan", "context", "outcome_detail")
        limit = {"total": WHOLE_BYTES} if whole else {"each": LIST_TEXT_BYTES}
        fields = cut(told, texts, cargo, **limit)
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


class TaskList(Result):
    tasks: list[TaskSummary]
    total: int
    next_cursor: str | None = Field(description="Give it as cursor for the next page; null when this is the last.")


class Workflow(Result):
    id: str
    name: str
    status: WorkflowStatus
    status_reason: str | None
    source_type: SourceType
    source_ref: str | None
    source_content: str
    repository_path: str | None
    max_parallel_tasks: int
    auto_create_workspaces: bool
    plan: Cargo | None
    task_count: int
    finished_count: int
    started_at: int | None
    finished_at: int | None
    created_at: int
    updated_at: int
    left_out: Cut | None
    tasks: list[TaskSummary] | list[Task] | None
    next_cursor: str | None = Field(description="Give it to task_list for the tasks that follow; null when none do.")

    @classmethod
    def from_row(cls, row: Row, tasks: list[TaskSummary] | list[Task] | None, next_cursor: str | None) -> "Workflow":
        told = {name: row[name] for name in cls.model_fields if name in row}
        told["auto_create_workspaces"] = bool(row["auto_create_workspaces"])
        total = WHOLE_BYTES if tasks is None else 4_000
        fields = cut(told, ("source_content", "source_ref", "status_reason"), ("plan",), total=total)
        return cls(**fields, tasks=tasks, next_cursor=next_cursor)


class Replanned(Result):
    success: bool
    checkpoint_id: str


class Claim(Result):
    success: bool
    already_claimed_by: str | None = Field(description="Who holds it, when that is someone else.")
    claim_epoch: int | None = Field(description="Of your claim; give it with your writes to be told when it is over.")
    lease_expires_at: int | None = Field(description="When the claim lapses unless you call or beat before.")
    workspace: Place | None = Field(description="Where to do it, when the workflow gives each task a git worktree.")
    workspace_problem: str | None = Field(description="Why there is no worktree; the claim is yours all the same.")


class NextTask(Result):
    id: str
    name: str
    description: str
    status: TaskStatus
    can_parallelize: bool
    parallel_with: list[str] = Field(description="Other tasks of the same parallel group, at most 10.")
    dependencies_completed: list[str] = Field(description="Names of the finished tasks it depended on, at most 20.")
    recommended: bool = Field(description="Whether it is among those to begin now.")
    conflicts_with: list[str] = Field(description="Tasks, ready or running, that are likely to touch the same files.")
    left_out: Cut | None


class NextTasks(Result):
    tasks: list[NextTask]
    total: int = Field(description="How many tasks are ready and held by nobody.")
    next_cursor: str | None
    max_parallel: int
    recommended_count: int
    workflow_status: WorkflowStatus
    all_complete: bool


class BlockedTask(Result):
    id: str
    name: str
    blocked_by: list[str] = Field(description="Names of unfinished tasks that it waits for, at most 10.")


class ParallelGroup(Result):
    group_id: str
    task_count: int
    completed: int


class PathTask(Result):
    id: str
    name: str
    status: TaskStatus


class Progress(Result):
    total_tasks: int
    by_status: dict[str, int]
    completed_sequence: int = Field(description="The highest sequence up to which all is finished; 0 when none is.")
    current_sequence: int = Field(description="The lowest sequence with an unfinished task; 0 when all are finished.")
    blocked_tasks: list[BlockedTask]
    blocked_total: int
    next_cursor: str | None = Field(description="Give it as cursor for further blocked tasks.")
    parallel_groups: list[ParallelGroup]
    parallel_groups_total: int
    critical_path: list[PathTask] = Field(description="The longest chain of unfinished tasks, its first 20.")
    critical_path_minutes: int = Field(description="How long that chain is taken to need, by complexity.")
    estimated_remaining: int = Field(description="Milliseconds until all is finished, as estimate_from says.")
    estimate_from: Literal["completed_rate", "complexity"]
    all_complete: bool


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


def shown_status(row: Row) -> TaskStatus:
    """A pending task that waits for others is shown as blocked, and stored as pending."""
    status: TaskStatus = "blocked" if row["status"] == "pending" and row["waits_for"] > 0 else row["status"]
    return status
