"""
A question, and its cache key: a question with the same key gets the stored report.

    the prompt, and the files it names ───┐
    the CLI's command and model ──────────┼─▶ cache key
    HEAD, and every changed or new file ──┘       ignored files do not count
"""

import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crewhall.app import Call
from crewhall.errors import Failure
from crewhall.families.judge.menu import Item
from crewhall.families.judge.paths import InputDirectory
from crewhall.families.judge.report_files import ReportDirectory
from crewhall.families.judge.rules_prompt import InputFile, prompt_of
from crewhall.families.project.hostile_git import GitSetup, run_git, setup_at
from crewhall.families.project.rules_git import StatusEntry, status_in
from crewhall.outside.claude import ClaudeReply, Cli, manner
from crewhall.outside.files import Top
from crewhall.store.transaction import Row

# A repository's own settings may not make git look less closely.
CLOSELY = ("-c", "core.trustctime=true", "-c", "core.checkStat=default", "-c", "core.ignoreStat=false")
STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--ignore-submodules=dirty")
OURS = re.compile(r"(?:\A|/)(?:JUDGE_REPORT\.(?:md|json)|\.JUDGE_REPORT\.(?:md|json)\.[0-9a-f]{16})\Z")
LS_FILES = ("ls-files", "-z", "-s", "-v")
CHANGED, CHANGED_BYTES = 2_000, 64 * 1024 * 1024  # files and bytes that are looked through


@dataclass(frozen=True)
class TreeState:
    """A working tree as it is: its HEAD, and a digest of all that git sees there; None where that can't be told."""

    commit: str | None = None
    digest: str | None = None


@dataclass(frozen=True)
class MenuQuestion:
    """An item of the menu with its input files; `subject` is what a list calls it.

    `workflow_id` is there if its contract names one, or a task of the hall; `reports` is where its reports go, and
    the files there are no part of the question.
    """

    item: Item
    directory: InputDirectory
    inputs: Mapping[str, Sequence[InputFile]] = field(repr=False)
    subject: str
    seconds: int
    workflow_id: str | None = None
    is_fresh: bool = False
    reports: ReportDirectory | None = None

    @property
    def report_paths(self) -> frozenset[str]:
        return frozenset() if self.reports is None else self.reports.report_paths

    @property
    def unshown_files(self) -> list[str]:
        """The input files that the prompt only names, and why."""
        inputs = (file for each in self.inputs.values() for file in each)
        return [f"{file.name[:200]}: {file.note}" for file in inputs if file.text is None]

    @property
    def prompt(self) -> str:
        return prompt_of(self.item.template, self.inputs)

    def cache_key(self, cli: Cli, tree: TreeState) -> str | None:
        """The key under which the answer may be cached; None when the tree's state is unknown.

        The CLI's command and model and the directory it may read are parts of it.
        """
        parts = [part for name, inputs in self.inputs.items() for file in inputs for part in (name, *file.cache_parts)]
        return _cache_key(tree, self.item.template, *manner(cli), self.directory.inside, *parts)


@dataclass(frozen=True)
class ReviewResult:
    """A report's row, its question, whether it came from the cache, and whether it paused a workflow.

    `problem` says why its files could not be written.
    """

    row: Row
    question: MenuQuestion
    is_cached: bool = False
    has_paused: bool = False
    problem: str | None = None


@dataclass(frozen=True)
class ReviewRun:
    """A question, the tree just before its input files were read, and Claude's reply."""

    question: MenuQuestion
    tree: TreeState
    cli: Cli
    reply: ClaudeReply = field(default_factory=lambda: ClaudeReply(None))
    has_moved: bool = False  # files that the prompt names
    has_tree_moved: bool = False

    @property
    def cache_key(self) -> str | None:
        return self.question.cache_key(self.cli, self.tree)


def tree_at(call: Call, directory: InputDirectory) -> TreeState:
    """The tree as it is now. The judge's own reports don't count, wherever they are."""
    try:
        with directory.open() as root, root.hold() as top:
            return _tree_state(call, top)
    except Failure:  # no git here, or one that can't be asked
        call.stop.check()
        return TreeState()


def _tree_state(call: Call, top: Top) -> TreeState:
    setup = setup_at(call, top)
    status = status_in(run_git(call, setup, (*CLOSELY, *STATUS)))
    is_blind = setup.off or _is_blind(run_git(call, setup, LS_FILES))
    entries = [entry for entry in status.entries if not OURS.search(entry.path)]
    if is_blind or len(entries) > CHANGED:
        return TreeState(status.head)
    return TreeState(status.head, _digest(call, setup, status.head, entries))


def _is_blind(listing: bytes) -> bool:
    """Whether git skips something: a submodule, or a file marked as unchanged."""
    records = listing.split(b"\0")[:-1]
    return any(not record.startswith((b"H ", b"M ")) or record[2:].startswith(b"160000 ") for record in records)


def _cache_key(tree: TreeState, *parts: str) -> str | None:
    """A digest of the tree and all parts; None when the tree's state is unknown."""
    if tree.digest is None:
        return None
    return _hash(tree.digest.encode(), *(part.encode("utf-8", "replace") for part in parts))


def _digest(call: Call, setup: GitSetup, head: str | None, entries: list[StatusEntry]) -> str | None:
    parts, left = [str(head).encode()], CHANGED_BYTES
    for entry in entries:
        call.stop.check()
        digest, size = _file_digest(os.path.join(setup.layout.top, entry.path), left)
        left -= size
        if digest is None or left < 0:
            return None
        parts += [entry.code.encode(), os.fsencode(entry.path), digest]
    return _hash(*parts)


def _file_digest(path: str, most: int) -> tuple[bytes | None, int]:
    """A digest of a file's mode and content, and its size; None when the file can't be read or is too large."""
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            return b"link " + os.fsencode(os.readlink(path)), 0
        if not stat.S_ISREG(info.st_mode) or info.st_size > most:
            return None, 0
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return f"{info.st_mode:o} ".encode() + hashlib.file_digest(file, "sha256").digest(), info.st_size
    except FileNotFoundError:
        return b"gone", 0
    except OSError:
        return None, 0


def _hash(*parts: bytes) -> str:
    """A digest of parts that can't run into each other."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()
