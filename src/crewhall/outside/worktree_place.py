"""
Where a worktree may be made: nowhere that another user leads us to, or could swap while it is filled.

    shop-worktrees -> /disk/trees      followed when the link and all on its way belong to us, root or the owner of shop
    shop-worktrees                     of another user, or writable for others though shop is not: refused
    /tmp/theirs/shop, /srv/all/shop    refused where the directory above shop is another user's, or open to all
    /srv/team, above /srv/team/shop    its group may write it: it may change the repository too
"""

import os
import stat
from collections.abc import Iterator

from crewhall.errors import Conflict, Forbidden, NotFound
from crewhall.outside.root_path import real_path
from crewhall.ownership import OTHERS_WRITE, PathStep, Way, Weakness, mode_weakness, owner_weakness, trusted_owners
from crewhall.paths import is_below


def true_path(path: str) -> str:
    """The path without links in its parents; its last part may be anything, or not there. Raises InvalidState."""
    parent, name = os.path.split(os.path.abspath(path))
    return os.path.join(real_path(parent), name)


def safe_place(root: str, path: str) -> str:
    """The path without links in its parents, for a worktree of the repository at `root`.

    Raises Forbidden where another user leads or could lead somewhere else, NotFound when there is no repository.
    """
    parent, name = os.path.split(os.path.abspath(path))
    way = Way(parent)
    _refuse_weak(root, path, way)
    return os.path.join(way.end, name)


def refuse_unmade(root: str, path: str) -> None:
    """Raise Conflict unless the directories above a safe place are there by now, Forbidden unless they are safe.

    One look tells both: another user may make one of them before us, and take it away or put a link there meanwhile.
    """
    parent = os.path.dirname(path)
    way = Way(parent)
    _refuse_weak(root, path, way)
    if not way.is_whole or way.end != parent:
        raise Conflict(f"another user changes what is above {path}", hint="Choose another path.")


def refuse_strange(root: str, path: str, handle: int) -> None:
    """Raise Conflict when a directory that we hold is another user's, who made it before git could."""
    if os.fstat(handle).st_uid not in trusted_owners() | {_facts(root).st_uid}:
        raise Conflict(f"another user has just made {path}", hint="Choose another path.")


def _facts(root: str) -> os.stat_result:
    try:
        return os.stat(root)
    except OSError as error:
        raise NotFound(f"there is no repository at {root}: {error.strerror}", hint="Check the path.") from None


def _refuse_weak(root: str, path: str, way: Way) -> None:
    weakness = next(_weaknesses(root, path, way), None)
    if weakness is not None:
        raise Forbidden(
            f"no worktree is made at {path}: {weakness.problem}",
            hint=f"Others could change what is there. {weakness.repair} Or choose another path.",
        )


def _weaknesses(root: str, path: str, way: Way) -> Iterator[Weakness]:
    repository = _facts(root)
    owners, allowed = trusted_owners() | {repository.st_uid}, repository.st_mode & OTHERS_WRITE
    for step in way:
        is_above = not step.is_link and is_below(root, step.path)
        yield from _step_weaknesses(step, owners, allowed | stat.S_IWGRP if is_above else allowed)
    place = os.path.join(way.end, os.path.basename(path))
    if os.path.isdir(place) and not os.path.islink(place):  # a link is refused later: it is no empty directory
        yield from filter(None, [owner_weakness(place, os.lstat(place), owners)])


def _step_weaknesses(step: PathStep, owners: frozenset[int], allowed: int) -> Iterator[Weakness]:
    where = (step.parent, os.lstat(step.parent)) if step.is_link else (step.path, step.facts)
    found = (owner_weakness(step.path, step.facts, owners), mode_weakness(*where, may_be_sticky=True, allowed=allowed))
    yield from filter(None, found)
