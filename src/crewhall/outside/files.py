"""
The one sandbox: files and directories below a root, and nothing else, whoever changes what meanwhile.

    with open_root(root, identity) as top:
        with top.file("src/a.py") as found: …       Found(descriptor, path, stat); a regular file, open for reading
        with top.directory("src") as found: …       the same of a directory, to list it or to write below it
        with top.hold() as top: …                   a block that may also go by the path `top.root`, as git does
    pieces(found) -> Iterator[bytes]    read_start(found, most) -> bytes

The root is opened once, from `/` name by name (root_path.py), and all below it is reached by that descriptor. A path is
walked name by name, each looked at and opened in the directory that is open already:

    a directory  is opened, never by a link              a link  is read, and its words are put before the rest
    ..           is the one that was open before         the last one  is looked at again when it is open

So no string is checked and then opened: what is swapped between two steps ends in a refusal, or in a file that is
inside. Links are followed, absolute ones too, as long as they stay inside. A hard link is the file itself.
"""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from crewhall.errors import Failure, InvalidInput, InvalidState, NotFound, PathOutsideRoot, Unavailable
from crewhall.outside.root_path import PASS, TICK_NS, Identity, OpenPath, open_path, seen_path

MOST_LINKS = 40  # on one way, as in Linux
DEEPEST = 128  # directories that are open at once
LONGEST = 4096  # bytes of a path
PIECE = 1024 * 1024
SHOWN = 200  # letters of a path in a message
LOOKS = 5  # at the path of a root, until the times on it have settled
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISLNK, "a link"),
)
CHANGED = (errno.ELOOP, errno.ENOTDIR, errno.EINVAL)  # what a step says when the one before saw something else


@dataclass(frozen=True)
class Found:
    """What a path leads to: open, with its path from the root, links resolved; `.` is the root itself."""

    descriptor: int
    path: str
    stat: os.stat_result


@dataclass(frozen=True)
class Top:
    """An open root. `file` and `directory` raise PathOutsideRoot, and what `_Walk.refusal` tells; they never wait.

    `proof` is equal for two blocks only if the path has led to this root all the time between their beginnings.
    """

    root: str
    opened: OpenPath
    proof: Hashable = None

    @property
    def descriptor(self) -> int:
        return self.opened.descriptor

    @contextlib.contextmanager
    def file(self, path: str) -> Iterator[Found]:
        """A regular file, open for reading. Raises InvalidInput for what is none."""
        with _walking(self, path, "file") as walk:
            descriptor = walk.open_file()
        with _closing(descriptor):
            yield Found(descriptor, walk.path, os.fstat(descriptor))

    @contextlib.contextmanager
    def directory(self, path: str) -> Iterator[Found]:
        """A directory, open to be listed. Raises InvalidInput for what is none."""
        with _walking(self, path, "directory") as walk:
            descriptor = walk.open_directory()
        with _closing(descriptor):
            yield Found(descriptor, walk.path, os.fstat(descriptor))

    @contextlib.contextmanager
    def hold(self) -> Iterator["Top"]:
        """A block that may go by the root's path. Raises InvalidState when that may have led elsewhere within it.

        What is at the path can't change where no other user may rename a directory on it; there this costs nothing.
        """
        before = self._settled_path()
        try:
            yield replace(self, proof=before.loose_places)
        finally:
            if not (before is self.opened or before.is_same(self._path_now())):
                raise _rename_failure(self.root) from None

    @property
    def way(self) -> str:
        """How a child begins in this root: by the path, or by the descriptor where another user may change the path.

        A child that goes on by it must hold the descriptor. Without /proc it is the path, which is looked at once more.
        Raises InvalidState.
        """
        if not self.opened.loose_places:
            return self.root
        way = f"/proc/self/fd/{self.descriptor}"
        if not os.path.isdir(way):
            self._path_now()
            return self.root
        return way

    def _settled_path(self) -> OpenPath:
        """The path as it is now, with times by which any later change would show."""
        if not self.opened.loose_places:
            return self.opened
        for _ in range(LOOKS):
            now = self._path_now()
            if all(place.is_settled for place in now.loose_places):
                return now
            time.sleep(TICK_NS / 1e9)
        raise _rename_failure(self.root)

    def _path_now(self) -> OpenPath:
        with contextlib.suppress(OSError):
            now = seen_path(self.root)
            if now.identity == self.opened.identity:
                return now
        raise _rename_failure(self.root)


@contextlib.contextmanager
def open_root(root: str, identity: Identity | None = None) -> Iterator[Top]:
    """Open a root by its absolute path, in which nothing may be a link.

    Raises InvalidState when the path is missing, a file, or goes by a link, or when another directory is there than
    the one of this identity.
    """
    try:
        opened = open_path(root)
    except OSError as error:
        if identity is not None:
            raise _other_directory(root) from None
        told = "a link is on the way" if error.errno in CHANGED else error.strerror
        raise InvalidState(f"the root {root} can't be opened: {told}", hint="Was it moved? Open it again.") from None
    with _closing(opened.descriptor):
        if identity not in (None, opened.identity):
            raise _other_directory(root)
        yield Top(root, opened)


def _other_directory(root: str) -> InvalidState:
    return InvalidState(
        f"{root} is another directory by now, or gone",
        hint="The hub looks at it again within ten seconds; `crewhall worktree list` tells what it finds.",
    )


def _rename_failure(root: str) -> InvalidState:
    return InvalidState(
        f"a directory on the path {root} was renamed during the call, or may have been",
        hint="Try again. Where nobody but the hub's user may rename one (`chmod go-w` above it), this can't happen.",
    )


def way_to(found: Found, path: str) -> str:
    """How a child begins in an open directory, whatever is at its path by then; where there is no way, that path."""
    way = f"/proc/self/fd/{found.descriptor}"
    return way if os.path.isdir(way) else path


def pieces(found: Found) -> Iterator[bytes]:
    """The bytes of a file, piece by piece. Raises Unavailable."""
    try:
        while piece := os.read(found.descriptor, PIECE):
            yield piece
    except OSError as error:
        raise Unavailable(f"'{found.path}' can't be read: {error.strerror}", hint="Try again.") from None


def read_start(found: Found, most: int) -> bytes:
    """The first bytes of a file, or all of it. Raises Unavailable."""
    data = b""
    for piece in pieces(found):
        data += piece
        if len(data) >= most:
            break
    return data[:most]


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _walking(top: Top, path: str, wanted: str) -> Iterator["_Walk"]:
    """A walk that closes its directories, and whose errors are refusals."""
    walk = _Walk(top, path, wanted)
    try:
        yield walk
    except OSError as error:
        raise walk.refusal(error) from None
    finally:
        walk.close()


class _Walk:
    """How far a path has led: the directories from the root down, their names, and the words that are left."""

    def __init__(self, top: Top, path: str, wanted: str) -> None:
        self._top, self._asked, self._wanted = top, path, wanted
        self._stack: list[int] = []
        self._names: list[str] = []
        self._links = 0
        self._rest = self._inside(path)[::-1]
        if len(os.fsencode(path)) > LONGEST:
            raise InvalidInput(f"the path has over {LONGEST} bytes", hint="No file has such a path. Shorten it.")

    @property
    def path(self) -> str:
        return "/".join(self._names) or "."

    @property
    def _here(self) -> int:
        return self._stack[-1] if self._stack else self._top.descriptor

    def open_file(self) -> int:
        """Walk to the end and open the file there."""
        found = self._go()
        self._refuse_other(found)
        descriptor = os.open(self._names[-1], READ, dir_fd=self._here)
        try:
            self._refuse_other(os.fstat(descriptor))
        except Failure:
            os.close(descriptor)
            raise
        return descriptor

    def open_directory(self) -> int:
        """Walk to the end and open the directory there."""
        self._refuse_other(self._go())
        return os.open(".", LIST, dir_fd=self._here)

    def _refuse_other(self, found: os.stat_result | None) -> None:
        """Raise InvalidInput unless it is what is wanted; None is a directory."""
        kind = "a directory" if found is None else _kind(found)
        if kind != f"a {self._wanted}":
            raise InvalidInput(
                f"'{self._asked[:SHOWN]}' is {kind}, not a {self._wanted}", hint=f"Name a {self._wanted}."
            )

    def _go(self) -> os.stat_result | None:
        """Walk to the path's end: what is there, by its last name; None in a directory."""
        while self._rest:
            word = self._rest.pop()
            if word == "..":
                self._up()
                continue
            found = os.stat(word, dir_fd=self._here, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                self._follow(word)
            elif stat.S_ISDIR(found.st_mode):
                self._down(word)
            else:
                self._names.append(word)
                self._refuse_more(found)
                return found
        return None

    def _up(self) -> None:
        if not self._stack:
            raise PathOutsideRoot(self._asked)
        os.close(self._stack.pop())
        self._names.pop()

    def _down(self, word: str) -> None:
        if len(self._stack) == DEEPEST:
            raise InvalidInput(
                f"'{self._asked[:SHOWN]}' is more than {DEEPEST} directories deep", hint="Name one that is less deep."
            )
        self._stack.append(os.open(word, PASS, dir_fd=self._here))
        self._names.append(word)

    def _follow(self, word: str) -> None:
        """Put the words of a link before those that are left; an absolute one begins at the root again."""
        self._links += 1
        if self._links > MOST_LINKS:
            raise InvalidInput(
                f"'{self._asked[:SHOWN]}' leads through more than {MOST_LINKS} links", hint="Name the file itself."
            )
        target = os.readlink(word, dir_fd=self._here)
        if target.startswith("/"):
            self.close()
            self._names.clear()
        self._rest += self._inside(target)[::-1]

    def _inside(self, path: str) -> list[str]:
        """The names in a path, of an absolute one those below the root. Raises PathOutsideRoot if they lead out."""
        words = self._below_root(_words(path)) if path.startswith("/") else _words(path)
        depth = len(self._names)
        for word in words:
            depth += -1 if word == ".." else 1
            if depth < 0:
                raise PathOutsideRoot(self._asked)
        return words

    def _below_root(self, words: list[str]) -> list[str]:
        above = _words(self._top.root)
        if words[: len(above)] != above:
            raise PathOutsideRoot(self._asked)
        return words[len(above) :]

    def _refuse_more(self, found: os.stat_result) -> None:
        """Nothing is below what is no directory."""
        if self._rest:
            raise InvalidInput(
                f"'{self.path[:SHOWN]}' is {_kind(found)}, not a directory", hint="Nothing can be below it."
            )

    def close(self) -> None:
        """Let go of all directories but the root."""
        while self._stack:
            os.close(self._stack.pop())

    def refusal(self, error: OSError) -> Failure:
        """What the kernel says, as a failure that helps."""
        shown = f"'{self._asked[:SHOWN]}'"
        if error.errno == errno.ENOENT and self._asked.startswith("~") and not self._names:
            return PathOutsideRoot(self._asked)  # a shell would have taken it for somebody's home
        if error.errno == errno.ENOENT:
            return NotFound(f"there is no {self._wanted} {shown}", hint="See what there is in the directory above it.")
        if error.errno == errno.ENAMETOOLONG:
            return InvalidInput(f"{shown} has a name that is too long", hint="No file has such a name. Shorten it.")
        if error.errno in CHANGED:
            return InvalidState(f"{shown} was replaced by something else just now", hint="Try again.")
        if error.errno in (errno.EACCES, errno.EPERM):
            return InvalidState(f"the hub's user may not read {shown}", hint="Have its permissions changed.")
        return Unavailable(f"{shown} can't be opened: {error.strerror}", hint="Try again.")


def _words(path: str) -> list[str]:
    """The names in a path. Raises InvalidInput for a text that no path of the hall's can be."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"'{path[:SHOWN]}' is not UTF-8", hint="Such a name can't be used here.") from None
    if "\0" in path:
        raise InvalidInput("a path holds a NUL character", hint="Take U+0000 out.")
    return [word for word in path.split("/") if word not in ("", ".")]


def _kind(found: os.stat_result) -> str:
    return next((name for is_such, name in KINDS if is_such(found.st_mode)), "a device")
