"""What a pretended host keeps beside git: labels, reviews, checks, issues and pulls; and how it says no."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


class Refusal(Exception):
    """What the host says no with; `errors` are the details of a validation at GitHub."""

    def __init__(self, status: int, message: str, errors: Collection[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.status, self.message, self.errors = status, message, list(errors)


@dataclass
class Label:
    id: int
    name: str
    color: str
    description: str = ""


@dataclass(frozen=True)
class ReviewRecord:
    id: int
    user: str
    state: str
    body: str
    commit: str
    at: str
    dismissed: bool = False
    stale: bool = False


@dataclass(frozen=True)
class CheckRecord:
    """A check run of GitHub, or a commit status of either host (its context is the name here)."""

    id: int
    name: str
    state: str
    conclusion: str | None
    description: str
    url: str
    at: str


@dataclass(frozen=True)
class FileDifference:
    """A file that differs between two trees: status added, modified or removed."""

    path: str
    status: str
    sha: str
    additions: int
    deletions: int


@dataclass
class Issue:
    number: int
    title: str
    body: str
    author: str
    state: str  # open | closed
    created: str
    updated: str
    closed: str | None = None
    labelled: list[Label] = field(default_factory=list)

    @property
    def labels(self) -> list[str]:
        return [label.name for label in self.labelled]


@dataclass(kw_only=True)
class PullRecord(Issue):
    differs: Callable[[str, str], list[FileDifference]] = field(repr=False)
    head: str
    base: str
    head_sha: str
    base_sha: str
    merged: bool = False
    draft: bool = False
    mergeable: bool | None = True  # True: as git finds; None at GitHub: not known yet
    merge_sha: str | None = None  # the commit that merged it
    reviews: list[ReviewRecord] = field(default_factory=list)

    @property
    def files(self) -> list[FileDifference]:
        """What it changes, by path."""
        return self.differs(self.base_sha, self.head_sha)
