"""
The path of a root: walked from `/` name by name and never by a link, and who else could change where it leads.

    open_path("/srv/team/shop") -> OpenPath(descriptor, loose_places)       identity_of(path) -> (device, inode) | None

A place on the path is loose where another user than the hub's and root may rename the directory:

    /srv/team  drwxrwxr-x root dev      whoever is in dev may put another shop there
    /tmp       drwxrwxrwt root root     others rename what is theirs, so /tmp/shop is loose if it is another user's

A rename changes the times of the directory that it happens in, and of the one that gets another name. So a path has led
to the same directory all along if at each loose place one of the two is as it was before.
"""

import contextlib
import errno
import os
import stat
import time
from dataclasses import dataclass

from crewhall.errors import InvalidState
from crewhall.ownership import is_own_group, trusted_owners

PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW  # may be one that can't be listed
TICK_NS = 20_000_000  # what is changed twice within one tick of a file system's clock has the time of both
LOOKS = 10
FRESH = -1  # stands for a time within the last tick
Identity = tuple[int, int]


@dataclass(frozen=True)
class Stamp:
    """Which directory it is, and when its inode was last changed."""

    identity: Identity
    changed_ns: int

    @classmethod
    def of(cls, seen: os.stat_result) -> "Stamp":
        return cls((seen.st_dev, seen.st_ino), seen.st_ctime_ns)


@dataclass(frozen=True)
class LoosePlace:
    """A directory that another user may rename, and the one that it is in."""

    path: str
    above: Stamp
    here: Stamp
    is_settled: bool  # a rename after this was taken would show

    def is_same(self, later: "LoosePlace") -> bool:
        """Whether nobody renamed it since; this one is settled."""
        if (self.above.identity, self.here.identity) != (later.above.identity, later.here.identity):
            return False
        pairs = ((self.above, later.above), (self.here, later.here))
        return any(stamp == other and stamp.changed_ns != FRESH for stamp, other in pairs)


@dataclass(frozen=True)
class OpenPath:
    """An open directory, and the loose places on the path to it."""

    descriptor: int
    identity: Identity
    loose_places: tuple[LoosePlace, ...]

    def is_same(self, later: "OpenPath") -> bool:
        """Whether the path led here all the time between the two; of this one all places are settled."""
        pairs = zip(self.loose_places, later.loose_places, strict=False)
        is_alike = (self.identity, len(self.loose_places)) == (later.identity, len(later.loose_places))
        return is_alike and all(place.is_same(other) for place, other in pairs)


def open_path(path: str) -> OpenPath:
    """Open a directory by its absolute path. Raises OSError; ENOTDIR or ELOOP for a link on the way."""
    names, began = _names(path), time.time_ns()
    here = os.open("/", PASS)
    try:
        seen, places = os.fstat(here), list[LoosePlace]()
        for number, name in enumerate(names, 1):
            below = os.open(name, PASS, dir_fd=here)
            os.close(here)
            here, above = below, seen
            seen = os.fstat(here)
            if _may_be_renamed(above, seen):
                places.append(_place("/" + "/".join(names[:number]), above, seen, began))
        return OpenPath(here, (seen.st_dev, seen.st_ino), tuple(places))
    except BaseException:
        os.close(here)
        raise


def seen_path(path: str) -> OpenPath:
    """The same without an open descriptor, to compare. Raises OSError."""
    opened = open_path(path)
    os.close(opened.descriptor)
    return opened


def identity_of(path: str) -> Identity | None:
    """Which directory is at a path, however it is called; None when there is none, or a link on the way to it."""
    try:
        return seen_path(path).identity
    except OSError:
        return None


def real_path(path: str) -> str:
    """The path without links. Raises InvalidState when one on the way is replaced again and again meanwhile."""
    for _ in range(LOOKS):
        with contextlib.suppress(OSError):  # EINVAL: it was a link, and is none
            return os.path.realpath(path)
    raise InvalidState(f"a link on the path {path} changes all the time", hint="Try again.")


def loose_place(path: str) -> str | None:
    """The first directory on a path that another user may rename, None without one. Raises OSError.

    The last names may be missing: the hub's user is about to make them.
    """
    there = path
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    opened = open_path(there)
    try:
        above = os.fstat(opened.descriptor)
    finally:
        os.close(opened.descriptor)
    if opened.loose_places:
        return opened.loose_places[0].path
    return path if there != path and _may_be_renamed(above, None) else None


def _names(path: str) -> list[str]:
    names = [name for name in path.split("/") if name not in ("", ".")]
    if not path.startswith("/") or ".." in names or "\0" in path:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    return names


def _place(path: str, above: os.stat_result, seen: os.stat_result, began: int) -> LoosePlace:
    """A loose place. Only times that have settled are kept: of others one can't tell whether they stay."""
    stamps = Stamp.of(above), Stamp.of(seen)
    fresh = [stamp.changed_ns + TICK_NS >= began for stamp in stamps]
    kept = [Stamp(stamp.identity, FRESH) if is_fresh else stamp for stamp, is_fresh in zip(stamps, fresh, strict=True)]
    return LoosePlace(path, kept[0], kept[1], not all(fresh))


def _may_be_renamed(above: os.stat_result, seen: os.stat_result | None) -> bool:
    """Whether another user may rename a name in a directory; None is a directory of the hub's user.

    The owner of the directory above may, and all who may write there; in a sticky one only who owns the name.
    """
    own = trusted_owners()
    if above.st_uid not in own:
        return True
    is_open = above.st_mode & stat.S_IWOTH or (above.st_mode & stat.S_IWGRP and not is_own_group(above.st_gid))
    is_held = above.st_mode & stat.S_ISVTX and (seen is None or seen.st_uid in own)
    return bool(is_open and not is_held)
