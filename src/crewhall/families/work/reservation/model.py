"""
The words of file reservations, and the shapes that their tools return.

    reservation   an agent's lease on a path or glob of a repository: exclusive, or shared with others who share it
"""

from typing import Annotated, Any, TypedDict

from pydantic import Field

from crewhall.families.work.model import PATH_BYTES
from crewhall.tool import Result

# An empty path is refused as others are that mean nothing, by the rule that spells them.
Paths = Annotated[
    list[Annotated[str, Field(max_length=PATH_BYTES)]],
    Field(min_length=1, max_length=100),
]
Seconds = Annotated[int, Field(ge=60, le=86_400)]
Reason = Annotated[str, Field(max_length=200)]


class ReservationHeld(TypedDict):
    """What another agent has reserved, as `reservations_of_others` gives it."""

    path: str
    agent_id: str
    agent_name: str
    exclusive: int
    reason: str | None
    expires_at: int


class ReservationRow(ReservationHeld):
    """A reservation as `reservations` lists it."""

    task_id: str | None
    repository_path: str


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
    def from_row(cls, row: ReservationHeld, path: str) -> "FileConflict":
        return cls(
            path=path,
            held_path=row["path"],
            agent_id=row["agent_id"],
            agent_name=row["agent_name"],
            exclusive=bool(row["exclusive"]),
            reason=row["reason"],
            expires_at=row["expires_at"],
        )


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
    def from_row(cls, row: ReservationRow) -> "FileReservation":
        fields: dict[str, Any] = {**row, "exclusive": bool(row["exclusive"])}
        return cls(**fields)


class FileReservations(Result):
    reservations: list[FileReservation]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")
