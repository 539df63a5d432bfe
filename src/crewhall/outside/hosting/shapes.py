"""The parts of the hosts' answers that we read; Gitea took its shapes from GitHub, so most are the same."""

from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, Field

from crewhall.outside.hosting.model import Check, HostIssue, Pull, PullFile, PullReview

ACTIONS = {"added": "create", "removed": "delete", "deleted": "delete"}
REVIEWS = {"request_changes": "changes_requested", "comment": "commented", "request_review": "requested"}


class UserShape(BaseModel):
    login: str


class RepositoryShape(BaseModel):
    name: str
    owner: UserShape
    default_branch: str
    has_issues: bool = True


class RefShape(BaseModel):
    ref: str


class ShaShape(BaseModel):
    sha: str


class EntryShape(BaseModel):
    path: str
    mode: str
    type: str
    sha: str


class TreeShape(BaseModel):
    tree: list[EntryShape] | None
    truncated: bool = False


class HomeShape(BaseModel):
    full_name: str


class EndShape(BaseModel):
    ref: str
    sha: str = ""
    repo: HomeShape | None = None


class LabelShape(BaseModel):
    id: int
    name: str


class PullShape(BaseModel):
    number: int
    title: str
    state: Literal["open", "closed"]
    html_url: str
    head: EndShape
    base: EndShape
    user: UserShape | None = None
    draft: bool | None = None
    labels: list[LabelShape] | None = None
    created_at: str | None = None
    updated_at: str | None = None
    merged_at: str | None = None
    body: str | None = None
    mergeable: bool | None = None

    def is_from(self, repository: str, branch: str, base: str | None = None) -> bool:
        """Whether it leads from this branch of the repository itself into the base, or any; a fork may be gone."""
        home = "" if self.head.repo is None else self.head.repo.full_name
        is_into = base in (None, self.base.ref)
        return home.lower() == repository.lower() and self.head.ref == branch and is_into

    def to_model(self) -> Pull:
        return Pull(
            number=self.number,
            title=self.title,
            state="merged" if self.merged_at else self.state,
            url=self.html_url,
            branch=self.head.ref,
            base=self.base.ref,
            author=_login(self.user),
            sha=self.head.sha,
            draft=bool(self.draft),
            labels=tuple(label.name for label in self.labels or []),
            created_at=self.created_at,
            updated_at=self.updated_at,
            merged_at=self.merged_at,
            body=self.body or "",
            mergeable=self.mergeable,
        )


class IssueShape(BaseModel):
    number: int
    title: str
    html_url: str
    body: str | None = None
    pull_request: Any = None  # GitHub lists pulls as issues too, and this tells them apart

    def is_same(self, title: str, body: str) -> bool:
        """Whether it has this title and body, whatever the host did to blanks and line ends."""
        return (self.title.split(), (self.body or "").split()) == (title.split(), body.split())

    def to_model(self) -> HostIssue:
        return HostIssue(self.number, self.html_url, self.title)


class ReviewShape(BaseModel):
    user: UserShape | None = None
    state: str
    submitted_at: str | None = None
    body: str | None = None
    dismissed: bool = False

    def to_model(self) -> PullReview:
        state = "dismissed" if self.dismissed else self.state.lower()
        return PullReview(_login(self.user), REVIEWS.get(state, state), self.submitted_at, self.body or "")


class StatusShape(BaseModel):
    context: str
    state: str = Field(validation_alias=AliasChoices("state", "status"))
    target_url: str | None = None

    def to_model(self) -> Check:
        return Check(self.context, self.state, self.target_url or None)


class StatusesShape(BaseModel):
    statuses: list[StatusShape] | None = None


class FileShape(BaseModel):
    filename: str
    status: str
    additions: int = 0
    deletions: int = 0

    def to_model(self) -> PullFile:
        return PullFile(self.filename, ACTIONS.get(self.status, "update"), self.additions, self.deletions)


def _login(user: UserShape | None) -> str:
    return user.login if user else "ghost"
