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
from collections.abc import Collection, Iterator
from typing import NamedTuple

MOST_LINKS = 40  # the kernel's own limit
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class PathStep(NamedTuple):
    """A directory, a link or a last name that a path leads through, and the directory that it is in."""

    path: str
    parent: str
    facts: os.stat_result

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.facts.st_mode)


class Weakness(NamedTuple):
    """What lets another user change where a path leads, and the command that repairs it."""

    path: str
    problem: str
    repair: str


def steps(path: str) -> Iterator[PathStep]:
    """All that a path leads through, from `/` on; it ends at the first name that is not there.

    Raises OSError for what can't be looked at, and for links without end.
    """
    here, names, links = "/", deque(os.path.abspath(path).split("/")), 0
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
            return
        yield step
        if not step.is_link:
            here = step.path
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(step.path)
        here = "/" if target.startswith("/") else here
        names.extendleft(reversed(target.split("/")))


def trusted_owners() -> frozenset[int]:
    """This user and root; in a user namespace root may have another number, which `/` tells."""
    return frozenset((os.geteuid(), 0, os.lstat("/").st_uid))


def owner_weakness(path: str, facts: os.stat_result, owners: Collection[int]) -> Weakness | None:
    """That the thing at a path belongs to none of these."""
    if facts.st_uid in owners:
        return None
    kind = "link" if stat.S_ISLNK(facts.st_mode) else "directory" if stat.S_ISDIR(facts.st_mode) else "file"
    own = f"chown {'-R ' if kind == 'directory' else ''}{user_name(os.geteuid())} {path}"
    problem = f"the {kind} {path} belongs to {user_name(facts.st_uid)}"
    return Weakness(path, problem, f"rm {path}" if kind == "link" else own)


def mode_weakness(path: str, facts: os.stat_result, *, may_be_sticky: bool, allowed: int = 0) -> Weakness | None:
    """That others may write a directory, by bits that are not `allowed`. A group of the owner alone is nobody else."""
    if may_be_sticky and facts.st_mode & stat.S_ISVTX:
        return None
    open_bits = facts.st_mode & OTHERS_WRITE & ~allowed
    if open_bits & stat.S_IWGRP and _is_own_group(facts.st_gid):
        open_bits &= ~stat.S_IWGRP
    if not open_bits:
        return None
    who = "every user" if open_bits & stat.S_IWOTH else f"the group {_group_name(facts.st_gid)}"
    return Weakness(path, f"{who} may write {path} ({stat.S_IMODE(facts.st_mode):o})", f"chmod go-w {path}")


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


def _is_own_group(gid: int) -> bool:
    """Whether nobody but this user and root is in a group: root's, or the one that many systems make for each user."""
    if gid == 0:
        return True
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return (gid, group.gr_name) == (user.pw_gid, user.pw_name) and set(group.gr_mem) <= {user.pw_name}
