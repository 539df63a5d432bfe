"""
The words of workspaces, and the shapes that their tools return.

    workspace  ws_…   a git worktree on a branch of its own, in which one or more tasks of a workflow are done
    forecast          which workspaces would conflict if they were merged now
"""

from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field
from pydantic_core import from_json

from crewhall.declaration import Suggest
from crewhall.tool import Result

WorkspaceStatus = Literal["active", "merged", "abandoned"]
Worktree = Literal["wanted", "made", "found", "removed"]

WorkspaceId = Annotated[str, Suggest("workspace_ids"), Field(max_length=100, description="A workspace's id, ws_…")]
Branch = Annotated[str, Field(min_length=1, max_length=200)]
Commit = Annotated[str, Field(pattern="^[0-9a-fA-F]{4,64}$")]


class WorkspaceRow(TypedDict):
    """A workspace as its queries give it."""

    id: str
    workflow_id: str
    node: str
    repository_path: str
    path: str
    branch: str
    base_branch: str
    status: WorkspaceStatus
    worktree: Worktree
    has_made_branch: int
    merge_commit: str | None
    saved_refs: str
    problem: str | None
    created_at: int
    updated_at: int


class TaskWorkspace(Result):
    """Where to work on a task."""

    id: str
    path: str
    branch: str
    base_branch: str
    merge_first: list[str] = Field(description="Unmerged branches of the tasks that it depends on.")


class WorkspaceMade(Result):
    id: str
    path: str
    branch: str
    base_branch: str
    worktree: Worktree


class Workspace(Result):
    id: str
    workflow_id: str
    path: str
    branch: str
    base_branch: str
    status: WorkspaceStatus
    merge_commit: str | None
    task_ids: list[str] = Field(description="Tasks that are done in it, at most 20.")
    worktree: Worktree = Field(description="Made by the hall, or found as a person made it, which is never removed.")
    saved_refs: list[str] = Field(description="Git refs that keep what nothing else kept when it was removed.")
    problem: str | None = Field(description="Why its worktree is not removed yet.")
    node: str
    created_at: int
    updated_at: int

    @classmethod
    def from_row(cls, row: WorkspaceRow, task_ids: list[str]) -> "Workspace":
        fields: dict[str, Any] = {name: value for name, value in row.items() if name in cls.model_fields}
        return cls(**fields | {"saved_refs": from_json(row["saved_refs"]), "task_ids": task_ids})


class Workspaces(Result):
    workspaces: list[Workspace]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")


class WorkspaceUpdated(Result):
    success: bool
    worktree: Worktree
    saved_refs: list[str] = Field(description="Git refs that keep what nothing else kept when it was removed.")
    problem: str | None = Field(description="Why its worktree is not removed yet; the hall tries again.")


class Clash(Result):
    workspaces: list[str] = Field(description="The two that would conflict.")
    branches: list[str]
    task_ids: list[str] = Field(description="Unfinished tasks that are done in them, at most 20.")
    files: list[str] = Field(description="Where, at most 20.")
    files_total: int


class BaseClash(Result):
    workspace_id: str
    base_branch: str
    files: list[str]
    files_total: int


class UnreadableWorkspace(Result):
    workspace_id: str
    why: str


class WorkspaceForecast(Result):
    conflicts: list[Clash]
    conflicts_total: int
    with_base: list[BaseClash] = Field(description="Workspaces that conflict with the branch that they began from.")
    compared: int = Field(description="Live workspaces that were looked at, the newest.")
    total: int = Field(description="Live workspaces in the repository.")
    unreadable: list[UnreadableWorkspace]
