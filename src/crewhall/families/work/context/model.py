"""
The shapes of context: what an agent needs to know to go on with a task, and a workflow in short.

Each `left_out` says what did not fit: of a text or an object the characters, which `text_read` gives under that name
and the thing's id; of a list the items.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from crewhall.bounded import Cut
from crewhall.declaration import InputModel
from crewhall.families.work.checkpoint.model import Checkpoint
from crewhall.families.work.model import Cargo
from crewhall.families.work.task.model import TaskStatus
from crewhall.families.work.workflow.model import SourceType, WorkflowStatus
from crewhall.tool import Result

MaxTokens = Annotated[int, Field(ge=500, le=1_000_000, description="Of the answer; above 20000 counts as that.")]


class Include(InputModel):
    workflow_plan: bool = True
    workflow_summary: bool = True
    prior_task_outcomes: bool = True
    prior_task_full: Annotated[bool, Field(description="With details.")] = False
    sibling_status: bool = True
    dependency_outcomes: bool = True
    all_checkpoints: bool = False
    recent_checkpoints: Annotated[int, Field(ge=0, le=10_000)] = 5


class ContextWorkflow(Result):
    id: str
    name: str
    source_type: SourceType
    source_summary: str | None
    plan_summary: str | None
    status: WorkflowStatus
    max_parallel_tasks: int
    task_count: int
    finished_count: int
    repository_path: str | None
    left_out: Cut | None


class ContextTask(Result):
    id: str
    name: str
    description: str
    status: TaskStatus
    plan: Cargo | None
    context: Cargo | None
    outcome: str | None
    error: str | None
    files_likely_affected: list[str]
    workspace: dict[str, str] | None = Field(
        description="Where to work on it: id, path, branch and status; of a very long path the id alone."
    )
    claimed_by: str | None
    claim_epoch: int
    checkpoint_count: int
    checkpoints: list[Checkpoint] = Field(description="The newest, oldest first.")
    left_out: Cut | None


class PriorTask(Result):
    id: str
    name: str
    status: TaskStatus
    outcome: str | None
    left_out: Cut | None


class WholePriorTask(PriorTask):
    description: str | None
    outcome_detail: Cargo | None


class SiblingTask(Result):
    id: str
    name: str
    status: TaskStatus
    claimed_by: str | None
    brief_summary: str | None


class DependencyOutcome(Result):
    task_id: str
    task_name: str
    status: TaskStatus
    outcome: str | None = Field(description="Of a failed one, its error.")
    left_out: Cut | None


class Context(Result):
    workflow: ContextWorkflow
    current_task: ContextTask
    prior_tasks: list[PriorTask] | list[WholePriorTask] = Field(description="Finished ones, the latest first.")
    sibling_tasks: list[SiblingTask] | None
    dependency_outcomes: list[DependencyOutcome] | None = Field(description="Unfinished ones first.")
    unread_messages: int = Field(description="In the inbox of whoever holds the task.")
    left_out: Cut | None = Field(description="How many items of which list did not fit.")
    token_estimate: int = Field(description="Of this answer as JSON, by the o200k tokenizer.")


class WorkflowPage(Result):
    summary: str | dict[str, Any]
    token_estimate: int


SummaryFormat = Literal["json", "markdown"]
