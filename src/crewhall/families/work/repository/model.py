"""Repositories: rp_…, a git repository that the hall knows by its absolute path."""

from pydantic import Field

from crewhall.store.transaction import Row
from crewhall.tool import Result


class Repository(Result):
    id: str
    path: str
    name: str
    created_at: int
    updated_at: int

    @classmethod
    def from_row(cls, row: Row) -> "Repository":
        return cls(**row)


class RepositoryId(Result):
    id: str


class Repositories(Result):
    repositories: list[Repository]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")
