"""
The words of file reservations, and the shapes that their tools return.

    reservation   an agent's lease on a path or glob of a repository: exclusive, or shared with others who share it
"""

from typing import Annotated

from pydantic import Field

from crewhall.families.work.model import PATH_BYTES
from crewhall.store.transaction import Row
from crewhall.tool import Result

# An empty path is refused as others are that mean nothing, by the rule that spells them.
Paths = Annotated[
    list[Annotated[str, Field(max_length=PATH_BYTES)]],
    Field(min_length=1, max_length=100),
]
Seconds = Annotated[int, Field(ge=60, le=86_400)]
Reason = Annotated[str, Field(max_length=200)]


class ReservedPath(Result):
    path: str
    expires_at: int


class FileConflict(Result):
    path: str = Field(description="Of yours.")
    held_path: str
    agent_id: str
    agent_name: str
    exclusive: bool
    reason: str | None
    expires_at: int

    @classmethod
    def from_row(cls, row: Row, path: str) -> "FileConflict":
        fields = {name: row[name] for name in ("agent_id", "agent_name", "reason", "expires_at")}
        return cls(path=path, held_path=row["path"], exclusive=bool(row["exclusive"]), **fields)


class FilesReserved(Result):
    success: bool = Field(description="False when another agent is in the way; then nothing was reserved.")
    repository_path: str
    reserved: list[ReservedPath]
    reserved_total: int
    conflicts: list[FileConflict]
    conflicts_total: int = Field(description="How many reservations of others are in the way, named or not.")


class FilesReleased(Result):
    success: bool
    released: int


class FileReservation(Result):
    path: str
    agent_id: str
    agent_name: str
    exclusive: bool
    reason: str | None
    task_id: str | None
    repository_path: str
    expires_at: int

    @classmethod
    def from_row(cls, row: Row) -> "FileReservation":
        return cls(**row | {"exclusive": bool(row["exclusive"])})


class FileReservations(Result):
    reservations: list[FileReservation]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")
