"""
The words of `just` tasks, and the shape that their tool returns.

    task     a public recipe of the worktree's justfile: one entry of a fixed menu, without arguments
    output   what it printed on both streams, as it came; of too much, the beginning and the end
"""

from typing import Annotated

from pydantic import Field

from crewhall.tool import Result

TaskName = Annotated[str, Field(min_length=1, max_length=200)]


class TaskRun(Result):
    task_name: str
    exit_code: int | None = Field(description="Null when it was ended.")
    timed_out: bool
    output: str
    left_out_bytes: int = Field(description="Cut from the middle of the output.")
    duration_ms: int
    ended_leftovers: int = Field(description="Processes that outlived it, and were ended.")
