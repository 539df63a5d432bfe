"""
The bare repository below a fake one: what the API makes is written there, and what was pushed is read from there.

    API ── Objects.unwritten, branches ──▶ loose objects, refs ──▶ git: fetch, diff, merge
    API ◀── cat-file, for-each-ref ── objects, refs ◀── git push

The directory is made when git is first needed. Loose objects are written without a git process: most tests never push.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from crewhall.fakehosts.objects import Objects
from crewhall.fakehosts.records import FileDifference
from crewhall.outside import git as outside_git
from crewhall.outside.run import Ended

NO_SETTINGS = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}  # the developer's own have no say
CONFIG = """[core]
\trepositoryformatversion = 0
\tbare = true
[http]
\treceivepack = true
[receive]
\tautogc = false
[gc]
\tauto = 0
"""
STATUS = {"A": "added", "D": "removed"}  # all others are modified
HEADS = "refs/heads/"


class BareRepository:
    """A git directory in step with the objects and branches of a fake repository, whose lock its callers hold."""

    def __init__(self, place: Callable[[], Path], objects: Objects, default_branch: str) -> None:
        self._place, self._objects, self._default = place, objects, default_branch
        self._written: dict[str, str] = {}  # the branches as the directory has them
        self._differences: dict[tuple[str, str], list[FileDifference]] = {}
        self._merges: dict[tuple[str, str], str | None] = {}

    @cached_property
    def path(self) -> Path:
        """The git directory, made now if it is not there."""
        path = self._place()
        for below in ("objects", "refs/heads", "hooks"):
            (path / below).mkdir(parents=True)
        (path / "HEAD").write_text(f"ref: {HEADS}{self._default}\n")
        (path / "config").write_text(CONFIG)
        return path

    def git(self, *words: str, stdin: bytes = b"") -> Ended:
        """Run a git command that sees all objects; any exit code is an answer."""
        self.write_objects()
        env = {"GIT_DIR": str(self.path), **NO_SETTINGS}
        return outside_git.git(words, cwd=str(self.path), env=env, stdin=stdin)

    def _output(self, *words: str, stdin: bytes = b"") -> bytes:
        ended = self.git(*words, stdin=stdin)
        assert ended.code == 0, ended.err.decode()
        return ended.out

    def write_objects(self) -> None:
        for sha, stored in self._objects.unwritten.items():
            file = self.path / "objects" / sha[:2] / sha[2:]
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(zlib.compress(stored, 1))
        self._objects.unwritten.clear()

    def write_branches(self, branches: Mapping[str, str]) -> None:
        gone = [f"delete {HEADS}{name}\n" for name in self._written.keys() - branches.keys()]
        moved = [f"update {HEADS}{name} {sha}\n" for name, sha in branches.items() - self._written.items()]
        for lines in filter(None, (gone, moved)):  # in one go git would not make `a/b` where `a` was
            self._output("update-ref", "--stdin", stdin="".join(lines).encode())
        self._written = dict(branches)

    def read_branches(self) -> dict[str, str]:
        """The branches as a push has left them; their objects are read too."""
        lines = self._output("for-each-ref", "--format=%(objectname) %(refname)", HEADS).decode().splitlines()
        self._written = {ref.removeprefix(HEADS): sha for sha, ref in (line.split(" ", 1) for line in lines)}
        self.read_objects()
        return dict(self._written)

    def read_objects(self) -> None:
        """Read what git has made: two processes, however many objects."""
        known = self._output("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").decode().split()
        new = [sha for sha in known if sha not in self._objects]
        rest = self._output("cat-file", "--batch", stdin="".join(f"{sha}\n" for sha in new).encode()) if new else b""
        at = 0
        while at < len(rest):
            end = rest.index(b"\n", at)
            sha, kind, size = rest[at:end].decode().split(" ")
            at = end + 1 + int(size) + 1
            self._objects.add_stored(sha, kind, rest[end + 1 : at - 1])

    def differences(self, base: str, head: str) -> list[FileDifference]:
        """The files that differ between two commits, by path, with the lines that git counts."""
        if (base, head) not in self._differences:
            words = ("diff-tree", "-r", "-z", "--no-renames", "--raw", "--numstat", base, head)
            output = b"" if base == head else self._output(*words)
            self._differences[base, head] = list(_read_differences(output.decode("utf-8", "surrogateescape")))
        return self._differences[base, head]

    def merge_tree(self, base: str, head: str) -> str | None:
        """The tree of a merge of two commits; None when they conflict."""
        if (base, head) not in self._merges:
            ended = self.git("merge-tree", "--write-tree", "--no-messages", base, head)
            self._merges[base, head] = ended.out.decode().strip() if ended.code == 0 else None
        return self._merges[base, head]


def _read_differences(output: str) -> Iterator[FileDifference]:
    """Of each path git first tells the modes and names, then, after all of those, the counts."""
    fields = iter(output.split("\0")[:-1])
    named: dict[str, tuple[str, str]] = {}
    for field in fields:
        if field.startswith(":"):
            _, _, old, new, letter = field.split(" ")
            named[next(fields)] = (STATUS.get(letter, "modified"), old if letter == "D" else new)
        else:
            added, gone, path = field.split("\t", 2)
            yield FileDifference(path, *named[path], *(0 if one == "-" else int(one) for one in (added, gone)))
