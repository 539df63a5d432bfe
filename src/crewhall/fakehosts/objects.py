"""
Git's objects as a host's API sees them: blobs, trees and commits, each under its real SHA-1.

Those that the API makes wait in `unwritten` for the bare repository (bare.py); those that were pushed come from there.

    flat      {"checks/a.md": FakeTreeEntry("100644", sha)}      all files below a tree, without the folders
    tree      {"checks": FakeTreeEntry("040000", sha)}           one level, as git stores it
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

FOLDER, FILE = "040000", "100644"
KINDS = {FOLDER: "tree", "160000": "commit"}  # by mode; all others are blobs
PERSON = re.compile(r"([^<]*?) ?<([^>]*)> (\d+) [-+]\d+")


@dataclass(frozen=True)
class FakeTreeEntry:
    """What a tree says of a name."""

    mode: str
    sha: str

    @property
    def kind(self) -> str:
        return KINDS.get(self.mode, "blob")


@dataclass(frozen=True)
class Person:
    """Who wrote a commit, and when (as in 2026-01-01T00:00:00Z)."""

    name: str
    email: str
    date: str

    @property
    def line(self) -> str:
        seconds = int(datetime.fromisoformat(self.date).timestamp())
        return f"{self.name} <{self.email}> {seconds} +0000"

    @classmethod
    def from_line(cls, line: str) -> "Person":
        match = PERSON.fullmatch(line)
        assert match, line
        date = datetime.fromtimestamp(int(match[3]), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return cls(match[1], match[2], date)


@dataclass(frozen=True)
class Commit:
    sha: str
    tree: str
    parents: tuple[str, ...]
    message: str
    author: Person
    committer: Person


class Objects:
    """All objects of a repository; the same content twice is the same object."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.trees: dict[str, dict[str, FakeTreeEntry]] = {}
        self.commits: dict[str, Commit] = {}
        self.unwritten: dict[str, bytes] = {}  # as git stores them: kind, size, NUL, content

    def __contains__(self, sha: str) -> bool:
        return sha in self.blobs or sha in self.trees or sha in self.commits

    def put_blob(self, content: bytes) -> str:
        sha = self._name("blob", content)
        self.blobs[sha] = content
        return sha

    def put_tree(self, flat: Mapping[str, FakeTreeEntry]) -> str:
        """The tree of these files, and of their folders below it."""
        level: dict[str, FakeTreeEntry] = {}
        below: dict[str, dict[str, FakeTreeEntry]] = {}
        for path, entry in flat.items():
            name, _, rest = path.partition("/")
            if rest:
                below.setdefault(name, {})[rest] = entry
            else:
                level[name] = entry
        level |= {name: FakeTreeEntry(FOLDER, self.put_tree(inner)) for name, inner in below.items()}
        return self._put_level(level)

    def _put_level(self, level: dict[str, FakeTreeEntry]) -> str:
        ordered = dict(sorted(level.items(), key=lambda one: (one[0] + "/" * (one[1].mode == FOLDER)).encode()))
        rows = (f"{one.mode.lstrip('0')} {name}\0".encode() + bytes.fromhex(one.sha) for name, one in ordered.items())
        sha = self._name("tree", b"".join(rows))
        self.trees[sha] = ordered
        return sha

    def put_commit(self, tree: str, parents: tuple[str, ...], message: str, author: Person, committer: Person) -> str:
        lines = [f"tree {tree}", *(f"parent {sha}" for sha in parents)]
        lines += [f"author {author.line}", f"committer {committer.line}", "", message]
        sha = self._name("commit", "\n".join(lines).encode())
        self.commits[sha] = Commit(sha, tree, parents, message, author, committer)
        return sha

    def _name(self, kind: str, content: bytes) -> str:
        stored = f"{kind} {len(content)}\0".encode() + content
        sha = hashlib.sha1(stored, usedforsecurity=False).hexdigest()
        if sha not in self:
            self.unwritten[sha] = stored
        return sha

    def add_stored(self, sha: str, kind: str, content: bytes) -> None:
        """Take in an object that the bare repository has; tags are left there."""
        if kind == "blob":
            self.blobs[sha] = content
        elif kind == "tree":
            self.trees[sha] = dict(_tree_entries(content))
        elif kind == "commit":
            self.commits[sha] = _parse_commit(sha, content.decode("utf-8", "replace"))

    def walk(self, tree: str, above: str = "") -> Iterator[tuple[str, FakeTreeEntry]]:
        """Every path below a tree, a folder before what is in it."""
        for name, entry in self.trees[tree].items():
            yield above + name, entry
            if entry.mode == FOLDER:
                yield from self.walk(entry.sha, f"{above}{name}/")

    def flat(self, tree: str) -> dict[str, FakeTreeEntry]:
        return {path: entry for path, entry in self.walk(tree) if entry.mode != FOLDER}

    def history(self, sha: str) -> list[Commit]:
        """The commit and all before it, newest first by the first parent."""
        found: dict[str, Commit] = {}
        todo = [sha]
        while todo:
            one = self.commits[todo.pop()]
            if one.sha not in found:
                found[one.sha] = one
                todo += reversed(one.parents)
        return list(found.values())


def _tree_entries(content: bytes) -> Iterator[tuple[str, FakeTreeEntry]]:
    while content:
        head, _, rest = content.partition(b"\0")
        mode, _, name = head.decode("utf-8", "surrogateescape").partition(" ")
        yield name, FakeTreeEntry(mode.zfill(6), rest[:20].hex())
        content = rest[20:]


def _parse_commit(sha: str, text: str) -> Commit:
    head, _, message = text.partition("\n\n")
    fields = [line.partition(" ")[::2] for line in head.split("\n")]
    first = dict(reversed(fields))
    parents = tuple(value for name, value in fields if name == "parent")
    author, committer = (Person.from_line(first[name]) for name in ("author", "committer"))
    return Commit(sha, first["tree"], parents, message.rstrip("\n"), author, committer)
