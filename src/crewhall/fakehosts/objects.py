"""
Git's objects as a host keeps them: blobs, trees and commits, each under its real SHA-1.

    flat      {"checks/a.md": FakeTreeEntry("100644", sha)}      all files below a tree, without the folders
    tree      {"checks": FakeTreeEntry("040000", sha)}           one level, as git stores it
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

FOLDER, FILE = "040000", "100644"
KINDS = {FOLDER: "tree", "160000": "commit"}  # by mode; all others are blobs


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

    def put_blob(self, content: bytes) -> str:
        sha = _sha("blob", content)
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
        sha = _sha("tree", b"".join(rows))
        self.trees[sha] = ordered
        return sha

    def put_commit(self, tree: str, parents: tuple[str, ...], message: str, author: Person, committer: Person) -> str:
        lines = [f"tree {tree}", *(f"parent {sha}" for sha in parents)]
        lines += [f"author {author.line}", f"committer {committer.line}", "", message]
        sha = _sha("commit", "\n".join(lines).encode())
        self.commits[sha] = Commit(sha, tree, parents, message, author, committer)
        return sha

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


def _sha(kind: str, content: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()
