"""Workflows: wf_…, what is to be done, the plan for it, and how far it is."""

from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field

from crewhall.bounded import WHOLE_BYTES, Cut, cut
from crewhall.declaration import InputModel
from crewhall.families.work.model import Cargo, IfAny, Short, Text
from crewhall.families.work.task.model import PlannedTask, Task, TaskStatus, TaskSummary
from crewhall.tool import Result

SourceType = Literal["prompt", "github_issue", "linear", "jira", "custom"]
WorkflowStatus = Literal["planning", "ready", "in_progress", "paused", "completed", "failed", "abandoned"]
Pauser = Literal["judge", "operator", "coordinator", "worker"]
LISTED_REASON = 300  # characters of a reason in a list
HaltedBy = Annotated[
    Pauser | None, Field(description="Who paused it. Only the operator lifts the judge's halt or their own pause.")
]
Archived = Annotated[int | None, Field(description="When it was archived; null unless it was.")]
Reviewer = Literal["instance", "judge"]
ReviewerChoice = Annotated[
    Reviewer, Field(description="Who reviews what instances do in it: another one, or the judge.")
]
Source = Annotated[str, Field(max_length=1_000_000, description="The prompt or issue itself.")]
MaxParallel = Annotated[
    int, Field(ge=1, le=1000, description="How many tasks may run at once: a claim past it is refused. 1: one by one.")
]
AutoCreate = Annotated[bool, Field(description="Give each parallel task a git worktree of its own.")]


class WorkflowState(TypedDict):
    """The columns of a workflow that change, to read."""

    id: str
    status: WorkflowStatus
    max_parallel_tasks: int
    task_count: int
    finished_count: int
    completed_count: int
    started_at: int | None
    repository_path: str | None
    auto_create_workspaces: int


class WorkflowLocked(WorkflowState):
    """The columns of a workflow that change, locked until commit."""

    name: str
    status_reason: str | None
    halted_by: Pauser | None
    hall_pause: str | None
    has_plan: int
    archived_at: int | None


class WorkflowRow(WorkflowState):
    name: str
    status_reason: str | None
    halted_by: Pauser | None
    source_type: SourceType
    source_ref: str | None
    source_content: str
    reviewer: Reviewer
    plan: str | None
    finished_at: int | None
    archived_at: int | None
    created_at: int
    updated_at: int


class WorkflowListed(TypedDict):
    """A workflow as a list shows it."""

    id: str
    name: str
    status: WorkflowStatus
    status_reason: str | None
    halted_by: Pauser | None
    repository_path: str | None
    max_parallel_tasks: int
    task_count: int
    finished_count: int
    archived_at: int | None
    created_at: int
    updated_at: int


class WorkflowPlan(InputModel):
    summary: Text
    approach: Text
    tasks: Annotated[list[PlannedTask], Field(min_length=1, max_length=10_000)]
    risks: Annotated[list[Short], IfAny, Field(max_length=200)] = []
    assumptions: Annotated[list[Short], IfAny, Field(max_length=200)] = []


class WorkflowCreated(Result):
    id: str
    name: str
    status: WorkflowStatus
    max_parallel_tasks: int


class WorkflowSummary(Result):
    id: str
    name: str
    status: WorkflowStatus
    halted_by: HaltedBy
    status_reason: str | None = Field(description="Why, the first 300 characters.")
    repository_path: str | None
    max_parallel_tasks: int
    task_count: int
    finished_count: int
    archived_at: Archived
    created_at: int
    updated_at: int

    @classmethod
    def from_row(cls, row: WorkflowListed) -> "WorkflowSummary":
        reason = row["status_reason"]
        return cls(**row | {"status_reason": reason and reason[:LISTED_REASON]})


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


class Workflow(Result):
    id: str
    name: str
    status: WorkflowStatus
    status_reason: str | None
    halted_by: HaltedBy
    source_type: SourceType
    source_ref: str | None
    source_content: str
    repository_path: str | None
    max_parallel_tasks: int
    auto_create_workspaces: bool
    reviewer: Reviewer
    plan: Cargo | None
    task_count: int
    finished_count: int
    started_at: int | None
    finished_at: int | None
    archived_at: Archived
    created_at: int
    updated_at: int
    left_out: Cut | None
    tasks: list[TaskSummary] | list[Task] | None
    next_cursor: str | None = Field(description="Give it to task_list for the tasks that follow; null when none do.")

    @classmethod
    def from_row(
        cls, row: WorkflowRow, tasks: list[TaskSummary] | list[Task] | None, next_cursor: str | None
    ) -> "Workflow":
        fields: dict[str, Any] = {name: value for name, value in row.items() if name in cls.model_fields}
        fields["auto_create_workspaces"] = bool(row["auto_create_workspaces"])
        total = WHOLE_BYTES if tasks is None else 4_000
        fields = cut(fields, ("source_content", "source_ref", "status_reason"), ("plan",), total=total)
        return cls(**fields, tasks=tasks, next_cursor=next_cursor)


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
