"""
Who else could put something in a path's place: whoever owns or may write a directory on the way to it.

    /home/ada/.crewhall -> /disk/hall      every directory and link here is looked at, /disk and /disk/hall too
    /tmp/hall                              in a sticky directory only the owner of an entry can replace it

Standard library only: the bridge starts with this.
"""

import errno
import grp
import os
import pwd
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

MOST_LINKS = 40  # the kernel's own limit
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH


class PathStep(NamedTuple):
    """A directory, a link or a last name that a path leads through, and the directory that it is in."""

    path: str
    parent: str
    facts: os.stat_result

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.facts.st_mode)


class Weakness(NamedTuple):
    """What lets another user change where a path leads, and a sentence that tells how to repair it."""

    path: str
    problem: str
    repair: str


class Way:
    """All that a path leads through, from `/` on; it ends at the first name that is not there.

    Who has iterated over it to the end knows by the same looks where it leads: `end` is the path without links, and
    `is_whole` tells whether all of it is there. A second look could be led elsewhere. Raises OSError for what can't be
    looked at, and for links without end.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self.end, self.is_whole = self._path, False

    def __iter__(self) -> Iterator[PathStep]:
        here, names, links = "/", deque(self._path.split("/")), 0
        yield PathStep(here, here, os.lstat(here))
        while names:
            name = names.popleft()
            if name in ("", "."):
                continue
            if name == "..":
                here = os.path.dirname(here)
                continue
            try:
                step = PathStep(os.path.join(here, name), here, os.lstat(os.path.join(here, name)))
            except (FileNotFoundError, NotADirectoryError):
                self.end = os.path.normpath(os.path.join(here, name, *names))
                return
            yield step
            if not step.is_link:
                here = step.path
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self._path)
            target = os.readlink(step.path)
            here = "/" if target.startswith("/") else here
            names.extendleft(reversed(target.split("/")))
        self.end, self.is_whole = here, True


def trusted_owners() -> frozenset[int]:
    """This user and root; in a user namespace root may have another number, which `/` tells."""
    return frozenset((os.geteuid(), 0, os.lstat("/").st_uid))


def owner_weakness(path: str, facts: os.stat_result, owners: Collection[int]) -> Weakness | None:
    """That the thing at a path belongs to none of these."""
    if facts.st_uid in owners:
        return None
    kind = "link" if stat.S_ISLNK(facts.st_mode) else "directory" if stat.S_ISDIR(facts.st_mode) else "file"
    own = user_name(os.geteuid())
    repairs = {
        "link": f"Remove it: `rm {path}`.",
        "file": f"Unless you wrote it, remove it: `rm {path}`. If it is yours, run `chown {own} {path}`.",
        "directory": f"If it and all that is in it are to be yours, run `chown -R {own} {path}`.",
    }
    return Weakness(path, f"the {kind} {path} belongs to {user_name(facts.st_uid)}", repairs[kind])


def mode_weakness(path: str, facts: os.stat_result, *, may_be_sticky: bool, allowed: int = 0) -> Weakness | None:
    """That others may write a directory, by bits that are not `allowed`. A group of the owner alone is nobody else."""
    if may_be_sticky and facts.st_mode & stat.S_ISVTX:
        return None
    open_bits = facts.st_mode & OTHERS_WRITE & ~allowed
    if open_bits & stat.S_IWGRP and is_own_group(facts.st_gid):
        open_bits &= ~stat.S_IWGRP
    if not open_bits:
        return None
    who = "every user" if open_bits & stat.S_IWOTH else f"the group {_group_name(facts.st_gid)}"
    return Weakness(path, f"{who} may write {path} ({stat.S_IMODE(facts.st_mode):o})", f"Run `chmod go-w {path}`.")


def way_weakness(way: Way, owners: Collection[int]) -> Weakness | None:
    """What lets others replace the thing at a path, or that it is theirs. Its own mode is not looked at."""
    seen: PathStep | None = None
    for step in way:
        found = None if seen is None else _step_weakness(seen, owners)
        if found is not None:
            return found
        seen = step
    if seen is None or not way.is_whole or seen.is_link:
        return None if seen is None else _step_weakness(seen, owners)
    return owner_weakness(seen.path, seen.facts, owners)


def _step_weakness(step: PathStep, owners: Collection[int]) -> Weakness | None:
    found = owner_weakness(step.path, step.facts, owners)
    if found is None and stat.S_ISDIR(step.facts.st_mode):
        found = mode_weakness(step.path, step.facts, may_be_sticky=True)
    return found


def place_weakness(path: str, counts: Callable[[str], object]) -> Weakness | None:
    """What lets others change a directory, where it is, or the files in it whose names count.

    Raises FileNotFoundError for one that is not there, if nothing on the way to it is weak.
    """
    owners, way = trusted_owners(), Way(path)
    found = way_weakness(way, owners)
    if found is not None:
        return found
    if not way.is_whole:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    facts = os.stat(way.end)
    found = mode_weakness(path, facts, may_be_sticky=False)
    return found or next(_file_weaknesses(path, counts, owners, is_closed=not facts.st_mode & OTHERS_ENTER), None)


def _file_weaknesses(
    directory: str, counts: Callable[[str], object], owners: Collection[int], *, is_closed: bool
) -> Iterator[Weakness]:
    """Others' files in a directory, which may be older than its mode, and those that others may write and can reach."""
    with os.scandir(directory) as entries:
        paths = [entry.path for entry in entries if counts(entry.name)]
    for path in paths:
        with suppress(FileNotFoundError):
            facts = os.lstat(path)
            if stat.S_ISLNK(facts.st_mode):
                yield from filter(None, [way_weakness(Way(path), owners)])
                facts = os.stat(path)
            yield from filter(None, [owner_weakness(path, facts, owners)])
            if not is_closed and not stat.S_ISSOCK(facts.st_mode):  # who connects to a socket asks who listens
                yield from filter(None, [mode_weakness(path, facts, may_be_sticky=False)])


def make_private(path: str) -> None:
    """Make a directory for its owner alone, and those above it; whatever the umask, others may write none of them."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(each, 0o700 if each == missing[0] else 0o755)


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file of ours, or make it; never through a link, and no other user's. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    owner = os.fstat(descriptor).st_uid
    if owner not in trusted_owners():
        os.close(descriptor)
        raise PermissionError(errno.EPERM, f"it belongs to {user_name(owner)}", os.fspath(path))
    return descriptor


def user_name(uid: int) -> str:
    """A user's name, or the number of one that has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def is_own_group(gid: int) -> bool:
    """Whether nobody but this user and root is in a group: root's, or the one that many systems make for each user."""
    if gid == 0:
        return True
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    if (gid, group.gr_name) != (user.pw_gid, user.pw_name) or not set(group.gr_mem) <= {user.pw_name}:
        return False
    return all(other.pw_gid != gid or other.pw_uid in (0, user.pw_uid) for other in pwd.getpwall())
