"""
The directory that a question is about, and the input files that the judge reads there.

    a relative path         begins in the client's own directory, and stays in that working tree
    an absolute one         is in that tree too, or in a repository, a workspace or an open worktree of the hall's

All is opened by the sandbox (outside/files.py); a path that leads out is refused, also one that a contract names.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from crewhall.app import Call
from crewhall.errors import Failure, Forbidden, InvalidInput, LimitExceeded, NotFound, PathOutsideRoot
from crewhall.families.judge.rules_prompt import InputFile
from crewhall.families.project.open_worktrees import refuse_no_project, served_above
from crewhall.families.project.root import WorktreeRoot, open_root_of
from crewhall.families.project.rules_file import refuse_secret_name, text_of
from crewhall.outside.files import Found, Top, open_root, pieces
from crewhall.outside.repository_paths import working_tree
from crewhall.outside.root_path import Identity, identity_of, real_path
from crewhall.paths import is_below

DOCUMENT_BYTES = 256 * 1024  # of a contract, a proposal, a report, a rebuttal
PLAIN = re.compile(r"[A-Za-z0-9._@+/-]{1,200}")  # a directory's path below the root, in which the CLI may run
NEARER = (
    "Ask from inside its working tree (`crewhall mcp` there; by REST, the header X-Crewhall-Directory), or have the "
    "operator make it known: `crewhall repository register`, for an agent by HTTP also `crewhall worktree open`."
)
UNSEEN = "not shown, and not readable: what is called so often holds secrets"
FILE_BYTES = 128 * 1024  # of one changed file
WHOLE_BYTES = 64 * 1024 * 1024  # of a file that is looked through; a larger one is told by its times


@dataclass(frozen=True)
class InputDirectory:
    """A root, the directory below it where relative paths begin, and the directory in which the CLI runs.

    All input files must be in the latter. `is_clients`: relative paths begin where the client itself is. `identity` is
    which directory the root is: it is opened again and again, and never another.
    """

    root: str
    start: str = "."
    inside: str = "."
    is_clients: bool = False
    identity: Identity | None = None

    @property
    def path(self) -> str:
        return os.path.normpath(os.path.join(self.root, self.inside))

    @contextlib.contextmanager
    def open(self) -> Iterator[Top]:
        """The open root. Raises InvalidState when it is another directory by now, or gone."""
        with open_root(self.root, self.identity) as top:
            yield top

    def resolve(self, path: str) -> str:
        """A path as the sandbox takes it. Raises PathOutsideRoot for a path that begins with `~`."""
        if path.partition("/")[0] == "~":
            raise PathOutsideRoot(path)
        if not path.startswith("/"):
            return os.path.join(self.start, path)
        return path if is_below(os.path.normpath(path), self.root) else _resolve_parents(path)

    def below(self, call: Call, directory: str) -> "InputDirectory":
        """This directory, narrowed to one below it."""
        with self.open() as top, top.directory(self.resolve(directory)) as target:
            refuse_secret_name(target.path, call.settings["project.allow"])
            if not PLAIN.fullmatch(target.path):
                raise InvalidInput(
                    f"'{target.path[:200]}' has other letters in its name than a-z, 0-9 and ._@+-",
                    hint="The CLI tells its model this name, so it may not be words. Name a directory above it.",
                )
            return InputDirectory(self.root, target.path, target.path, identity=self.identity)

    def refuse_outside(self, file: Found, path: str) -> None:
        """Raise PathOutsideRoot for a file in the root that is outside the directory in which the CLI runs."""
        if self.inside != "." and not is_below(file.path, self.inside):
            raise PathOutsideRoot(path)


def input_directory(call: Call, path: str) -> InputDirectory:
    """The directory that holds a path. Raises PathOutsideRoot when the caller may use none that does."""
    if not path.startswith("/"):
        return _client_directory(call)
    try:
        own = _client_directory(call)
    except Failure:
        call.stop.check()
        own = None
    if own is not None and (is_below(os.path.normpath(path), own.root) or is_below(_resolve_parents(path), own.root)):
        return own
    root = _innermost_root(call, _resolve_parents(path))
    if root is None:
        raise PathOutsideRoot(path, hint=f"'{path[:200]}' is in no place that you may use. {NEARER}")
    return InputDirectory(root.path, identity=root.identity)


def _client_directory(call: Call) -> InputDirectory:
    """The client's own directory, in its working tree."""
    with open_root_of(call) as top:
        root, identity = top.root, top.opened.identity
    directory = real_path(call.origin.directory or root)
    if not is_below(directory, root):
        return InputDirectory(root, identity=identity)
    start = os.path.relpath(directory, root)
    return InputDirectory(root, start, is_clients=call.origin.directory is not None, identity=identity)


def _innermost_root(call: Call, path: str) -> WorktreeRoot | None:
    """The innermost working tree that holds a path, of those on this node that the hall knows.

    A repository that an agent made known is not opened by that to one who is elsewhere.
    """
    node, is_here = call.settings.node, call.actor.kind == "operator" or call.edge == "bridge"
    with call.look() as tx:
        known = tx.all("judge_roots", path=path, node=node, is_here=int(is_here))
        rows = [*known, served_above(tx, node, path)]
    for root in sorted({str(row["path"]) for row in rows if row is not None}, key=len, reverse=True):
        identity = identity_of(root)
        if identity is not None and working_tree(root) == root:
            refuse_no_project(root, call.settings.home)
            return WorktreeRoot(root, identity)
    return None


def _resolve_parents(path: str) -> str:
    """The path with the links before its last name resolved; the sandbox checks the result again."""
    above, name = os.path.split(os.path.normpath(path))
    return os.path.join(real_path(above), name)


def read(call: Call, directory: InputDirectory, path: str) -> InputFile:
    """A file that must be there and be text. Raises what the sandbox raises, Forbidden, LimitExceeded, InvalidInput."""
    with directory.open() as top, top.file(directory.resolve(path)) as file:
        refuse_secret_name(file.path, call.settings["project.allow"])
        data, digest = _content(call, file, DOCUMENT_BYTES)
    if data is None:
        raise LimitExceeded(f"'{file.path}' has more than {DOCUMENT_BYTES} bytes", hint="Make it shorter.")
    return InputFile(file.path, _decode(data, file.path), digest=digest)


def input_files(call: Call, directory: InputDirectory, paths: Sequence[str], *, may_be_gone: bool) -> list[InputFile]:
    """The files for a prompt, until it is full; a file without its text has a note that says why.

    Raises what the sandbox raises; NotFound only unless `may_be_gone`.
    """
    left = int(call.settings["judge.prompt_bytes"])
    files: list[InputFile] = []
    with directory.open() as top:
        for path in dict.fromkeys(paths):
            files.append(_input_file(call, top, directory, path, left, may_be_gone))
            left -= len((files[-1].text or "").encode())
    return files


def _input_file(call: Call, top: Top, directory: InputDirectory, path: str, left: int, may_be_gone: bool) -> InputFile:
    try:
        with top.file(directory.resolve(path)) as file:
            directory.refuse_outside(file, path)
            data, digest = _content(call, file, min(left, FILE_BYTES))
    except NotFound:
        if not may_be_gone:
            raise
        if directory.start != ".":  # a contract may name its files from the top
            return _input_file(call, top, replace(directory, start="."), path, left, may_be_gone)
        return InputFile(path, None, "not there; it may have been deleted")
    try:
        refuse_secret_name(file.path, call.settings["project.allow"])
        if data is None:
            return InputFile(path, None, "too long to be shown; read it with your tools", digest)
        return InputFile(file.path, _decode(data, file.path), digest=digest)
    except Forbidden:
        return InputFile(path, None, UNSEEN, digest)
    except InvalidInput:
        return InputFile(path, None, "no text", digest)


def _content(call: Call, file: Found, most: int) -> tuple[bytes | None, str]:
    """What is in a file, None if that is more than so many bytes; and what tells whether it is the same."""
    if file.stat.st_size > WHOLE_BYTES:
        return None, f"{file.stat.st_size} {file.stat.st_mtime_ns} {file.stat.st_ctime_ns}"
    digest, data = hashlib.sha256(), bytearray()
    for piece in pieces(file):
        call.stop.check()
        digest.update(piece)
        data += piece[: max(0, most + 1 - len(data))]
    return bytes(data) if len(data) <= most else None, digest.hexdigest()


def _decode(data: bytes, path: str) -> str:
    text = text_of(data, path)
    return text.data.decode("latin-1" if text.encoding == "latin-1" else "utf-8")
