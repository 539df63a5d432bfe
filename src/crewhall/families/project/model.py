"""
The words of open worktrees, and the shapes that their tools return.

    worktree  wt_…   a directory that the hub serves on a port of its own, from `worktree open` to `worktree close`
"""

from typing import Annotated, Any

from pydantic import Field

from crewhall.tool import Result

WorktreeId = Annotated[str, Field(max_length=100, description="An open worktree's id, wt_…")]


class ToolInfo(Result):
    name: str
    description: str
    parameters: dict[str, Any] = Field(description="The JSON schema of its arguments.")


class McpState(Result):
    """A worktree's server, as seed 001 has it."""

    server_running: bool
    port: int | None
    connected_clients: int = Field(description="The most at once in the last minute.")
    tools: list[ToolInfo]
    last_error: str | None


class OpenWorktree(Result):
    id: str
    path: str
    node: str
    workspace_id: str | None = Field(description="The workspace it belongs to; it is closed with that.")
    url: str | None = Field(description="Where an MCP client connects; null while it is not served.")
    mcp: McpState
    opened_at: int


class OpenWorktrees(Result):
    worktrees: list[OpenWorktree]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")


class ClosedWorktree(Result):
    success: bool
    path: str
    port: int | None = Field(description="The port that is free again; the next worktree may get it.")
    note: str | None = Field(description="What is left to do.")
