"""Repositories: rp_…, a git repository that the hall knows by its absolute path."""

from typing import TypedDict

from pydantic import Field

from crewhall.tool import Result


class RepositoryRow(TypedDict):
    id: str
    path: str
    name: str
    created_at: int
    updated_at: int


class Repository(Result):
    id: str
    path: str
    name: str
    created_at: int
    updated_at: int

    @classmethod
    def from_row(cls, row: RepositoryRow) -> "Repository":
        return cls(**row)


class RepositoryId(Result):
    id: str


class Repositories(Result):
    repositories: list[Repository]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")
