"""
The words of family pulls, and the shapes that its tools take and return.

    pull       a pull request on a host: open, closed or merged
    scope      the paths that a pull may touch
    tier       how much its maker may do: 1 nothing, 2 up to three files, 3 any number
    plan       what a dry run shows instead of doing it
"""

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from crewhall.bounded import take_fitting
from crewhall.declaration import InputModel
from crewhall.errors import InvalidInput
from crewhall.families.pulls.rules_status import checks_state
from crewhall.outside.hosting.model import Check, FileChange, Pull, PullDetail, PullFile, PullReview
from crewhall.tool import Result

ChangeType = Literal["check", "playbook", "skill", "manifest", "fix"]
Action = Literal["create", "update", "delete"]
PullState = Literal["open", "closed", "merged"]
ChecksState = Literal["none", "pending", "success", "failure", "unknown"]
Provider = Literal["github", "gitea"]
PART_BYTES = 6_000  # of each list of a pull's status
TEXT = 1_000  # characters of a review, and of a pull's own body

Owner = Annotated[str, Field(min_length=1, max_length=100, description="Who owns the repository on its host.")]
RepoName = Annotated[str, Field(min_length=1, max_length=100, description="The repository's name there.")]
CloneUrl = Annotated[
    str, Field(min_length=1, max_length=2000, description="Its address for git, which tells the host if there are two.")
]
Branch = Annotated[
    str, Field(min_length=1, max_length=250, description="Where it is to be merged; left out, the default branch.")
]
Number = Annotated[int, Field(ge=1, le=2**53, description="The pull's number.")]
Offset = Annotated[int, Field(ge=0, le=1_000_000, description="How many to pass over.")]


def _one_line(title: str) -> str:
    if not title.strip() or any(ord(character) < 32 or character in "\x7f\u2028\u2029" for character in title):
        raise ValueError("A title is one line of text")
    return title.strip()


Title = Annotated[str, Field(min_length=1, max_length=250), AfterValidator(_one_line)]
Body = Annotated[str, Field(max_length=60_000, description="What the pull is for, in Markdown.")]


class FileIn(InputModel):
    """A file of a pull."""

    path: Annotated[str, Field(min_length=1, max_length=4096, description="From the repository's top.")]
    content: Annotated[str | None, Field(description="The whole file as it is to be; not for delete.")] = None
    action: Action = "create"
    encoding: Annotated[Literal["utf-8", "base64"], Field(description="Of content; base64 is for binary files.")] = (
        "utf-8"
    )

    def change(self) -> FileChange:
        """What is to happen to the file. Raises InvalidInput when its content is missing or no base64."""
        if self.action == "delete":
            return FileChange(self.path, self.action)
        if self.content is None:
            raise InvalidInput(
                f"'{self.path[:200]}' has no content", hint=f"To {self.action} a file takes its content."
            )
        return FileChange(self.path, self.action, self._bytes(self.content))

    def _bytes(self, content: str) -> bytes:
        if self.encoding == "utf-8":
            return content.encode()
        try:
            return base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput(f"the content of '{self.path[:200]}' is no base64", hint="Encode it anew.") from None


Files = Annotated[list[FileIn], Field(min_length=1, max_length=3000)]


class FilePlan(Result):
    path: str
    action: Action
    bytes: int


class CreatedPull(Result):
    """A pull that was opened, or in a dry run the plan for it."""

    number: int | None = Field(description="Null in a dry run.")
    url: str | None
    provider: Provider | None = Field(description="Null in a dry run that can't tell.")
    repository: str
    branch: str
    base_branch: str | None = Field(description="Null: the default branch, which a dry run does not ask for.")
    commit: str | None
    title: str
    change_type: ChangeType
    labels: list[str]
    dry_run: bool
    warnings: list[str] = Field(description="What went wrong after the pull was open, such as a label.")
    body: str | None = Field(description="In a dry run alone, as is files.")
    files: list[FilePlan] | None
    file_count: int
    left_out: dict[str, int] | None
    note: str | None


class PullRow(Result):
    number: int
    title: str
    state: PullState
    url: str
    branch: str
    base_branch: str
    author: str
    draft: bool
    labels: list[str]
    created_at: str | None
    updated_at: str | None
    merged_at: str | None

    @classmethod
    def of(cls, pull: Pull) -> "PullRow":
        return cls.model_validate(row_of(pull))


def row_of(pull: Pull) -> dict[str, object]:
    """A pull as every answer tells it, with no text of a stranger's that floods its reader."""
    return {
        "number": pull.number,
        "title": pull.title[:250],
        "state": pull.state,
        "url": pull.url[:500],
        "branch": pull.branch[:250],
        "base_branch": pull.base[:250],
        "author": pull.author[:100],
        "draft": pull.draft,
        "labels": [label[:50] for label in pull.labels[:20]],
        "created_at": pull.created_at,
        "updated_at": pull.updated_at,
        "merged_at": pull.merged_at,
    }


class Pulls(Result):
    prs: list[PullRow]
    provider: Provider
    total: int | None = Field(description="Null: there are more than were looked through.")
    next_offset: int | None


class ReviewRow(Result):
    author: str
    state: str
    submitted_at: str | None
    body: str = Field(description="Its first letters.")

    @classmethod
    def of(cls, one: PullReview) -> "ReviewRow":
        return cls(author=one.author[:100], state=one.state[:50], submitted_at=one.at, body=one.body[:TEXT])


class CheckRow(Result):
    name: str
    state: str
    url: str | None

    @classmethod
    def of(cls, one: Check) -> "CheckRow":
        return cls(name=one.name[:200], state=one.state[:50], url=one.url and one.url[:500])


class FileRow(Result):
    path: str
    action: Action
    additions: int
    deletions: int

    @classmethod
    def of(cls, one: PullFile) -> "FileRow":
        return cls.model_validate({**vars(one), "path": one.path[:1000]})


class PullStatus(PullRow):
    body: str = Field(description="Its first letters.")
    mergeable: bool | None = Field(description="Null: the host has not worked it out yet.")
    checks_state: ChecksState = Field(description="Unknown: the token may not see the checks.")
    reviews: list[ReviewRow]
    checks: list[CheckRow]
    files: list[FileRow]
    left_out: dict[str, int] | None = Field(description="How many of which list did not fit.")

    @classmethod
    def whole(cls, detail: PullDetail) -> "PullStatus":
        """A pull with as many of its newest reviews, its checks and its files as an answer holds."""
        rows: dict[str, list[Any]] = {
            "reviews": [ReviewRow.of(one) for one in reversed(detail.reviews)],
            "checks": [CheckRow.of(one) for one in detail.checks],
            "files": [FileRow.of(one) for one in detail.files],
        }
        shown: dict[str, list[Any]] = {name: take_fitting(some, PART_BYTES) for name, some in rows.items()}
        left_out = {name: len(some) - len(shown[name]) for name, some in rows.items() if len(some) > len(shown[name])}
        fields = {**row_of(detail.pull), "body": detail.pull.body[:TEXT], "mergeable": detail.pull.mergeable}
        state = "unknown" if detail.checks_hidden else checks_state([one.state for one in detail.checks])
        return cls.model_validate({**fields, **shown, "checks_state": state, "left_out": left_out or None})


class RateLimit(Result):
    limit: int
    remaining: int
    resets_at: int = Field(description="UTC milliseconds.")


class ProviderHealth(Result):
    provider: Provider
    url: str | None
    enabled: bool = Field(description="Whether it is set up.")
    works: bool | None = Field(description="Whether it answers and takes the token.")
    rate_limit: RateLimit | None


class PullsHealth(Result):
    providers: list[ProviderHealth]
    problems: list[str]
    tier: int
    dry_run: bool
    may_create: str = Field(description="What this tier may do.")
    allow: list[str]
    deny: list[str]
