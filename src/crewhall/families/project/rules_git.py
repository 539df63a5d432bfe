"""What git says in its formats for programs, and the lines that tell it to a reader. Pure; names are as os has them."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

KINDS = ("staged", "changed", "conflicted", "untracked")


@dataclass(frozen=True)
class StatusEntry:
    """A path that is not as in the last commit; `code` is as in `git status --short`."""

    code: str
    path: str
    before: str | None = None  # its name before it was renamed

    @property
    def kinds(self) -> tuple[str, ...]:
        if self.code == "??":
            return ("untracked",)
        if "U" in self.code or self.code in ("AA", "DD"):
            return ("conflicted",)
        return tuple(kind for character, kind in zip(self.code, KINDS, strict=False) if character != " ")

    @property
    def line(self) -> str:
        return f"{self.code} {self.path}" if self.before is None else f"{self.code} {self.before} -> {self.path}"


@dataclass(frozen=True)
class GitStatus:
    """The output of `git status --porcelain=v2 --branch -z`, parsed."""

    head: str | None = None
    branch: str | None = None
    upstream: str | None = None
    ahead_behind: str | None = None
    entries: tuple[StatusEntry, ...] = ()

    def of(self, *kinds: str) -> list[StatusEntry]:
        return [entry for entry in self.entries if any(kind in kinds for kind in entry.kinds)]


def status_in(out: bytes, prefix: str = "") -> GitStatus:
    """The status that git's answer tells; paths are from a directory below the top if one is given."""
    records = iter(os.fsdecode(out).split("\0"))
    headers: dict[str, str] = {}
    entries: list[StatusEntry] = []
    for record in records:
        if record.startswith("# "):
            name, _, value = record[2:].partition(" ")
            headers[name] = value
        elif record:
            entries.append(_entry(record, records, prefix))
    head, branch = headers.get("branch.oid"), headers.get("branch.head")
    return GitStatus(
        None if head == "(initial)" else head,
        None if branch == "(detached)" else branch,
        headers.get("branch.upstream"),
        headers.get("branch.ab"),
        tuple(entries),
    )


def _entry(record: str, records: Iterator[str], prefix: str) -> StatusEntry:
    """One record; a renamed file's has its old name behind it."""
    if record[0] == "?":
        return StatusEntry("??", record[2:].removeprefix(prefix))
    fields = {"1": 8, "2": 9, "u": 10}[record[0]]
    parts = record.split(" ", fields)
    before = next(records).removeprefix(prefix) if record[0] == "2" else None
    return StatusEntry(parts[1].replace(".", " "), parts[fields].removeprefix(prefix), before)


def head_lines(status: GitStatus) -> list[str]:
    """The lines that say where HEAD is, and how far it is ahead of or behind its upstream."""
    at = "no commit yet" if status.head is None else f"commit {status.head[:12]}"
    where = "HEAD is detached" if status.branch is None else f"on branch {status.branch}"
    if status.upstream is None:
        return [f"{where}, {at}"]
    counts = (status.ahead_behind or "").split()
    distance = f"{counts[0][1:]} ahead, {counts[1][1:]} behind" if len(counts) == 2 else "it is not there"
    return [f"{where}, {at}", f"upstream {status.upstream}: {distance}"]


def tally(status: GitStatus) -> str:
    """How many entries of each kind there are."""
    numbers = Counter(kind for entry in status.entries for kind in entry.kinds)
    counts = ", ".join(f"{numbers[kind]} {kind}" for kind in KINDS if numbers[kind])
    return counts or "nothing is uncommitted"


@dataclass(frozen=True)
class ChangedFile:
    """A file of a diff: lines added and removed, None in a binary one."""

    path: str
    added: int | None
    removed: int | None

    @property
    def size(self) -> int:
        return (self.added or 0) + (self.removed or 0)


def changed_files_in(out: bytes, prefix: str = "") -> list[ChangedFile]:
    """The files in the output of `git diff --numstat -z --no-renames`."""
    records = [record.split("\t", 2) for record in os.fsdecode(out).split("\0") if record]
    return [
        ChangedFile(path.removeprefix(prefix), _number(added), _number(removed)) for added, removed, path in records
    ]


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def diff_lines(title: str, files: Sequence[ChangedFile]) -> list[str]:
    """A diff in short: its sum, then its files, those with the most changed lines first."""
    added, removed = sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)
    largest = sorted(files, key=lambda file: (-file.size, file.path))
    each = [
        f"  binary {file.path}" if file.added is None else f"  +{file.added} -{file.removed} {file.path}"
        for file in largest
    ]
    return [f"{title}: {len(files)} {'file' if len(files) == 1 else 'files'}, +{added} -{removed}", *each]
