"""
Where a question is asked: a directory that holds everything it is about, and the papers that are read there.

    a relative path         begins in the client's own directory, and stays in that working tree
    an absolute one         is in that tree too, or in a repository, a workspace or an open worktree of the hall's

All is opened by the sandbox (outside/files.py); a path that leads out is refused, also one that a contract names.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crewhall.app import Call
from crewhall.errors import Failure, Forbidden, InvalidInput, LimitExceeded, NotFound, PathOutsideRoot
from crewhall.families.judge.rules_prompt import Paper
from crewhall.families.project.open_worktrees import refuse_no_project, served_above
from crewhall.families.project.root import root_of
from crewhall.families.project.rules_file import refuse_secret_name, text_of
from crewhall.outside.files import Found, Top, open_root, pieces
from crewhall.outside.repository_paths import working_tree

PAPER_BYTES = 256 * 1024  # of a contract, a proposal, a report, a rebuttal
PLAIN = re.compile(r"[A-Za-z0-9._@+/-]{1,200}")  # a directory's path below the root, in which the CLI may run
NEARER = (
    "Ask from inside its working tree (`crewhall mcp` there; by REST, the header X-Crewhall-Directory), or have the "
    "operator make it known: `crewhall repository register`, for an agent by HTTP also `crewhall worktree open`."
)
UNSEEN = "not shown, and not readable: what is called so often holds secrets"
FILE_BYTES = 128 * 1024  # of one changed file
WHOLE_BYTES = 64 * 1024 * 1024  # of a file that is looked through; a larger one is told by its times


@dataclass(frozen=True)
class Desk:
    """A root, the directory below it where relative paths begin, and the one in which the CLI runs and all must be."""

    root: str
    start: str = "."
    inside: str = "."

    @property
    def directory(self) -> str:
        return os.path.normpath(os.path.join(self.root, self.inside))

    def path(self, path: str) -> str:
        """A path as the sandbox takes it. Raises PathOutsideRoot for what a shell takes for somebody's home."""
        if path.partition("/")[0] == "~":
            raise PathOutsideRoot(path)
        if not path.startswith("/"):
            return os.path.join(self.start, path)
        return path if _is_in(path, self.root) else _resolved(path)

    def below(self, call: Call, directory: str) -> "Desk":
        """The same, narrowed to one of its directories."""
        with open_root(self.root) as top, top.directory(self.path(directory)) as found:
            refuse_secret_name(found.path, call.settings["project.allow"])
            if not PLAIN.fullmatch(found.path):
                raise InvalidInput(
                    f"'{found.path[:200]}' has other letters in its name than a-z, 0-9 and ._@+-",
                    hint="The CLI tells its model this name, so it may not be words. Name a directory above it.",
                )
            return Desk(self.root, found.path, found.path)

    def refuse_outside(self, found: Found, asked: str) -> None:
        """Raise PathOutsideRoot for what is in the root, and not in the part of it that was named."""
        if self.inside != "." and not _is_in(f"/{found.path}", f"/{self.inside}"):
            raise PathOutsideRoot(asked)


def desk_for(call: Call, path: str) -> Desk:
    """Where a path is to be looked for. Raises PathOutsideRoot when it is nowhere that the caller may look."""
    if not path.startswith("/"):
        return _own(call)
    try:
        own = _own(call)
    except Failure:
        call.stop.check()
        own = None
    if own is not None and (_is_in(path, own.root) or _is_in(_resolved(path), own.root)):
        return own
    root = _known(call, _resolved(path))
    if root is None:
        raise PathOutsideRoot(path, hint=f"'{path[:200]}' is in no place that you may use. {NEARER}")
    return Desk(root)


def _own(call: Call) -> Desk:
    """The client's own directory, in its working tree."""
    root = root_of(call)
    directory = os.path.realpath(call.origin.directory or root)
    return Desk(root, os.path.relpath(directory, root) if _is_in(directory, root) else ".")


def _known(call: Call, path: str) -> str | None:
    """The innermost working tree of this node around a path, of those that the hall knows.

    A repository that an agent made known is not opened by that to one who is elsewhere.
    """
    node, is_here = call.settings.node, call.actor.kind == "operator" or call.edge == "bridge"
    with call.hub.store.read() as tx:
        known = tx.all("judge_roots", path=path, node=node, is_here=int(is_here))
        rows = [*known, served_above(tx, node, path)]
    for one in sorted({str(row["path"]) for row in rows if row is not None}, key=len, reverse=True):
        root = os.path.realpath(one)
        if os.path.isdir(root) and working_tree(root) == root:
            refuse_no_project(root, call.settings.home)
            return root
    return None


def _resolved(path: str) -> str:
    """The same place, by a path without links before its last name; the sandbox looks at it once more."""
    above, name = os.path.split(os.path.normpath(path))
    return os.path.join(os.path.realpath(above), name)


def _is_in(path: str, root: str) -> bool:
    return f"{os.path.normpath(path)}/".startswith(f"{root}/")


def read(call: Call, desk: Desk, path: str) -> Paper:
    """A file that must be there and be text. Raises what the sandbox raises, Forbidden, LimitExceeded, InvalidInput."""
    with open_root(desk.root) as top, top.file(desk.path(path)) as found:
        refuse_secret_name(found.path, call.settings["project.allow"])
        data, digest = _content(call, found, PAPER_BYTES)
    if data is None:
        raise LimitExceeded(f"'{found.path}' has more than {PAPER_BYTES} bytes", hint="Make it shorter.")
    return Paper(found.path, _decoded(data, found.path), digest=digest)


def shown(call: Call, desk: Desk, paths: Sequence[str], *, may_be_gone: bool) -> list[Paper]:
    """Files for a prompt, until it is full; what is not shown has a note that says why.

    Raises what the sandbox raises, but NotFound only if they may not be gone.
    """
    left = int(call.settings["judge.prompt_bytes"])
    papers: list[Paper] = []
    with open_root(desk.root) as top:
        for path in dict.fromkeys(paths):
            papers.append(_shown(call, top, desk, path, left, may_be_gone))
            left -= len((papers[-1].text or "").encode())
    return papers


def _shown(call: Call, top: Top, desk: Desk, path: str, left: int, may_be_gone: bool) -> Paper:
    try:
        with top.file(desk.path(path)) as found:
            desk.refuse_outside(found, path)
            data, digest = _content(call, found, min(left, FILE_BYTES))
    except NotFound:
        if not may_be_gone:
            raise
        if desk.start != ".":  # a contract may name its files from the top
            return _shown(call, top, replace(desk, start="."), path, left, may_be_gone)
        return Paper(path, None, "not there; it may have been deleted")
    try:
        refuse_secret_name(found.path, call.settings["project.allow"])
        if data is None:
            return Paper(path, None, "too long to be shown; read it with your tools", digest)
        return Paper(found.path, _decoded(data, found.path), digest=digest)
    except Forbidden:
        return Paper(path, None, UNSEEN, digest)
    except InvalidInput:
        return Paper(path, None, "no text", digest)


def _content(call: Call, found: Found, most: int) -> tuple[bytes | None, str]:
    """What is in a file, None if that is more than so many bytes; and what tells whether it is the same."""
    if found.stat.st_size > WHOLE_BYTES:
        return None, f"{found.stat.st_size} {found.stat.st_mtime_ns} {found.stat.st_ctime_ns}"
    whole, data = hashlib.sha256(), bytearray()
    for piece in pieces(found):
        call.stop.check()
        whole.update(piece)
        data += piece[: max(0, most + 1 - len(data))]
    return bytes(data) if len(data) <= most else None, whole.hexdigest()


def _decoded(data: bytes, path: str) -> str:
    text = text_of(data, path)
    return text.data.decode("latin-1" if text.encoding == "latin-1" else "utf-8")
