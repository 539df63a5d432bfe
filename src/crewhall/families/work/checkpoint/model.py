"""Checkpoints: cp_…, what an agent noted while it worked, numbered within its task."""

from typing import Any, Literal, TypedDict

from pydantic import Field
from pydantic_core import from_json

from crewhall.bounded import LIST_TEXT_BYTES, Cut, cut
from crewhall.families.work.model import Cargo
from crewhall.tool import Result

CheckpointType = Literal["plan", "progress", "decision", "error", "recovery", "complete", "replan"]


class CheckpointRow(TypedDict):
    id: str
    task_id: str
    sequence: int
    type: CheckpointType
    summary: str
    detail: str | None
    files_changed: str
    agent_id: str | None
    created_at: int


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
    def from_row(cls, row: CheckpointRow) -> "Checkpoint":
        fields: dict[str, Any] = {**row, "files_changed": from_json(row["files_changed"])}
        return cls(**cut(fields, ("summary", "files_changed"), ("detail",), each=LIST_TEXT_BYTES))


class CheckpointAdded(Result):
    id: str
    sequence: int


class Checkpoints(Result):
    checkpoints: list[Checkpoint]
    total: int = Field(description="How many match in all.")
    next_since_sequence: int | None = Field(
        description="Give it as since_sequence for the rest; null when this is the end."
    )
