"""What passes between us and a host: what we want changed, and what there is."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crewhall.errors import Conflict, InvalidInput, NotFound

FILE, PROGRAM = "100644", "100755"


@dataclass(frozen=True)
class HostRepository:
    """A repository as its host spells it."""

    owner: str
    name: str
    default_branch: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def path(self) -> str:
        return f"/repos/{self.full_name}"


@dataclass(frozen=True)
class FileChange:
    """What happens to one file: create, update or delete."""

    path: str
    action: str
    content: bytes = b""


@dataclass(frozen=True)
class BranchChange:
    """A new branch: one commit on the base with these files. The mark in its message is how we know it again."""

    base: str
    branch: str
    message: str
    mark: str
    files: Sequence[FileChange]


@dataclass(frozen=True)
class TreeEntry:
    """What a path of a tree holds."""

    mode: str
    type: str
    sha: str


Tree = Mapping[str, TreeEntry]


@dataclass(frozen=True)
class BranchHead:
    """A branch's newest commit."""

    sha: str
    message: str
    tree: str = ""


@dataclass(frozen=True)
class Pull:
    """A pull request. `state` is open, closed or merged; times are the host's own text."""

    number: int
    title: str
    state: str
    url: str
    branch: str
    base: str
    author: str
    sha: str
    draft: bool
    labels: tuple[str, ...]
    created_at: str | None
    updated_at: str | None
    merged_at: str | None
    body: str
    mergeable: bool | None


@dataclass(frozen=True)
class HostIssue:
    number: int
    url: str
    title: str


@dataclass(frozen=True)
class PullReview:
    author: str
    state: str  # approved, changes_requested, commented, dismissed, pending, requested
    at: str | None
    body: str


@dataclass(frozen=True)
class Check:
    name: str
    state: str  # pending, success, failure, error, or what else the host calls it
    url: str | None


@dataclass(frozen=True)
class PullFile:
    path: str
    action: str
    additions: int
    deletions: int


@dataclass(frozen=True)
class PullDetail:
    pull: Pull
    reviews: Sequence[PullReview]
    checks: Sequence[Check]
    files: Sequence[PullFile]
    checks_hidden: bool = False  # the token may not see them


@dataclass(frozen=True)
class Limits:
    """Requests that are left until a time (UTC seconds)."""

    limit: int
    remaining: int
    resets_at: int


def refuse_mismatch(files: Sequence[FileChange], tree: Tree, base: str) -> None:
    """Raise Conflict, NotFound or InvalidInput for a change that does not fit what the base holds."""
    for file in files:
        found = tree.get(file.path)
        if found is None:
            _refuse_missing(file, tree, base)
        elif found.type != "blob" or found.mode not in (FILE, PROGRAM):
            kind = {"tree": "directory", "commit": "submodule"}.get(found.type, "symbolic link")
            raise InvalidInput(f"'{file.path}' is a {kind} on {base}", hint="Name a file.")
        elif file.action == "create":
            raise Conflict(f"'{file.path}' is on {base} already", hint="Give its action as update.")
    if all(file.action == "update" and _is_same(file, tree[file.path].sha) for file in files):
        raise InvalidInput(f"nothing would change: {base} has these files already", hint="No pull is needed.")


def _refuse_missing(file: FileChange, tree: Tree, base: str) -> None:
    if file.action != "create":
        way_out = "A new file's action is create." if file.action == "update" else "Leave it out."
        raise NotFound(f"there is no '{file.path}' on {base} to {file.action}", hint=way_out)
    parts = file.path.split("/")
    for upper in ("/".join(parts[:count]) for count in range(1, len(parts))):
        if upper in tree and tree[upper].type != "tree":
            raise Conflict(
                f"'{upper}' is no directory on {base}, so '{file.path}' cannot be", hint="Choose another path."
            )


def _is_same(file: FileChange, sha: str) -> bool:
    """Whether git's name for the content is this one, in the kind of hash that the repository uses."""
    raw = b"blob %d\0" % len(file.content) + file.content
    made = hashlib.sha256(raw) if len(sha) == 64 else hashlib.sha1(raw, usedforsecurity=False)
    return made.hexdigest() == sha
