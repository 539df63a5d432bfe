"""Events, one fact of the log each, whose number is a cursor; and calls, refused ones too."""

from typing import Annotated, Any

from pydantic import Field
from pydantic_core import from_json

from crewhall.store.transaction import Row
from crewhall.tool import Result

Cursor = Annotated[int, Field(ge=0, le=2**53, description="The cursor to go on from; 0 is the oldest event kept.")]


class RowChange(Result):
    noun: str = Field(description="Such as task, claim or review.")
    id: str
    before: dict[str, Any] | None = Field(description="What the values were; null if the row is new.")
    after: dict[str, Any] | None = Field(description="What they are; null if the row was deleted.")


class Event(Result):
    seq: int
    at: int
    actor: str
    what: str
    subject: str
    before_status: str | None
    after_status: str | None
    tool: str | None
    git_commit: str | None = Field(description="The commit that its subject was at, where one applies.")
    data: dict[str, Any] | None
    changes: list[RowChange] = Field(description="What it changed, for a replay.")

    @classmethod
    def from_row(cls, row: Row) -> "Event":
        data, changes = (from_json(text) if text else None for text in (row["data"], row["changes"]))
        return cls(**{**row, "data": data, "changes": changes or []})


class LoggedCall(Result):
    id: str
    at: int
    tool: str
    actor: str
    edge: str
    success: bool
    error: str | None
    duration_ms: int
    instance_id: str | None = Field(description="The instance that made the call, or that it is about.")
    git_commit: str | None
    before_status: str | None = Field(description="The instance's status before the call, if the call changed it.")
    after_status: str | None


class Calls(Result):
    calls: list[LoggedCall]
    total: int
    next_cursor: str | None = Field(description="Give it as cursor for older ones; null when this is the end.")


class Events(Result):
    events: list[Event]
    total: int = Field(description="How many match after the cursor that was given.")
    cursor: int = Field(description="Give it as `after` to go on from here.")
    newest: int = Field(description="The number of the newest event in the hall.")
