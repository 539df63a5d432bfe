"""
The one sandbox: files and directories below a root, and nothing else, whoever changes what meanwhile.

    with open_root(root) as top:
        with top.file("src/a.py") as found: …       Found(descriptor, path, stat); a regular file, open for reading
        with top.directory("src") as found: …       the same of a directory, to list it or to write below it
    pieces(found) -> Iterator[bytes]    read_start(found, most) -> bytes

A path is walked name by name, each looked at and opened in the directory that is open already:

    a directory  is opened, never by a link              a link  is read, and its words are put before the rest
    ..           is the one that was open before         the last one  is looked at again when it is open

So no string is checked and then opened: what is swapped between two steps ends in a refusal, or in a file that is
inside. Links are followed, absolute ones too, as long as they stay inside. A hard link is the file itself.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from crewhall.errors import Failure, InvalidInput, InvalidState, NotFound, PathOutsideRoot, Unavailable

MOST_LINKS = 40  # on one way, as in Linux
DEEPEST = 128  # directories that are open at once
LONGEST = 4096  # bytes of a path
PIECE = 1024 * 1024
SHOWN = 200  # letters of a path in a message
PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW  # may be one that can't be listed
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
    """An open root. Both methods raise PathOutsideRoot, and what `_Walk.refusal` tells; they never wait."""

    root: str
    descriptor: int

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
def open_root(root: str) -> Iterator[Top]:
    """Open a root by its absolute path. Raises InvalidState when the path is missing, a file or a link."""
    try:
        descriptor = os.open(root, PASS)
    except OSError as error:
        raise InvalidState(
            f"the root {root} can't be opened: {error.strerror}", hint="Was it moved? Open it anew."
        ) from None
    with _closing(descriptor):
        yield Top(root, descriptor)


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
        for root in (self._top.root, os.path.realpath(self._top.root)):
            above = _words(root)
            if words[: len(above)] == above:
                return words[len(above) :]
        raise PathOutsideRoot(self._asked)

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
