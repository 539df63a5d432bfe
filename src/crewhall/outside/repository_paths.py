"""
Which repository a directory is in, by looking at files alone: no git is run.

    app/src            app/.git is a directory                                            app
    app-fix            its .git is a file that leads to app/.git/worktrees/app-fix,
                       whose commondir is app/.git                                        app
    tool-fix           its .git leads to a commondir that is a bare repository, tool.git  tool.git
    app/vendor/tool    its .git leads to app/.git/modules/tool: a submodule               app/vendor/tool
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from crewhall.outside.root_path import real_path

LONGEST = 4096  # bytes of a path that is looked at
LINE_BYTES, CONFIG_BYTES = 8192, 65_536
LINK = "gitdir: "


@dataclass(frozen=True)
class RepositoryPlace:
    """The repository and the working tree that a directory is in."""

    root: str  # the repository's main working tree; of a bare one, its own directory
    top: str


def repository_root(directory: str) -> str | None:
    """The path of the repository that a directory is in, one for all its working trees, or None.

    Links in it are resolved. The directory need not be there itself, as long as one above it is in a repository.
    """
    place = place_of(directory)
    return None if place is None else place.root


def place_of(directory: str) -> RepositoryPlace | None:
    """The repository and the working tree that a directory is in; None when there is none, or it cannot be told."""
    if not directory.startswith("/") or len(os.fsencode(directory)) > LONGEST:
        return None
    with suppress(OSError, ValueError):  # ValueError: a file that does not say what it should, or not in UTF-8
        for top in _upwards(real_path(directory)):
            place = _place_at(top)
            if place is not None:
                (place.root + place.top).encode()
                return place
    return None


def below_top(path: str, root: str) -> str | None:
    """An absolute path as seen from the top of its working tree; None when that is none of this repository's.

    Links above the last name are resolved; the last one may be a link that is meant itself.
    """
    parent, name = os.path.split(path)
    place = place_of(parent)
    if place is None or place.root != root:
        return None
    return os.path.join(real_path(parent), name).removeprefix(place.top).lstrip("/")


def working_tree(directory: str) -> str:
    """The top of the working tree that a directory is in; without one, the directory.

    A `.git` of another user's makes no working tree, as git has it: a stranger's in /tmp would make all of that one.
    """
    place = place_of(directory)
    if place is None or not os.path.isdir(place.top):
        return directory
    try:
        owner = os.lstat(os.path.join(place.top, ".git")).st_uid
    except OSError:  # a bare repository
        return place.top
    return place.top if owner in (os.getuid(), 0) else directory


def is_directory(top: str, path: str) -> bool:
    """Whether there is such a directory below the top of a working tree."""
    return os.path.isdir(os.path.join(top, path))


def _upwards(path: str) -> Iterator[str]:
    """The path and all above it."""
    yield path
    while (above := os.path.dirname(path)) != path:
        path = above
        yield path


def _place_at(top: str) -> RepositoryPlace | None:
    """The place whose working tree, or bare repository, is exactly here. Raises OSError, ValueError."""
    link = os.path.join(top, ".git")
    kind = _kind(link)
    if kind == stat.S_IFDIR and _is_repository(link):
        return RepositoryPlace(top, top)
    if kind == stat.S_IFREG:
        return RepositoryPlace(_linked_repository(top, link), top)
    if _is_repository(top):
        return RepositoryPlace(_home(top), _home(top))
    return None


def _kind(path: str) -> int | None:
    try:
        return stat.S_IFMT(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_repository(path: str) -> bool:
    """Whether a directory is what git itself takes for a repository."""
    parts = (os.path.join(path, name) for name in ("objects", "refs"))
    return os.path.lexists(os.path.join(path, "HEAD")) and all(map(os.path.isdir, parts))


def _linked_repository(top: str, link: str) -> str:
    """The repository that a `.git` file names. Raises ValueError when there is no repository."""
    line = _text(link, LINE_BYTES)
    if not line.startswith(LINK):
        raise ValueError(link)
    leads_to = real_path(os.path.join(top, line.removeprefix(LINK).rstrip("\r\n")))
    try:
        common = real_path(os.path.join(leads_to, _text(f"{leads_to}/commondir", LINE_BYTES).rstrip("\r\n")))
        root = _home(common)
    except FileNotFoundError:
        common = leads_to
        root = common if _is_bare(common) else top  # a submodule, or a repository kept elsewhere: the tree is its own
    if not _is_repository(common):
        raise ValueError(common)
    return root


def _home(repository: str) -> str:
    return os.path.dirname(repository) if os.path.basename(repository) == ".git" else repository


def _is_bare(repository: str) -> bool:
    config = _text(os.path.join(repository, "config"), CONFIG_BYTES)
    return re.search(r"^[^\S\n]*bare[^\S\n]*=[^\S\n]*true[^\S\n]*$", config, re.MULTILINE | re.IGNORECASE) is not None


def _text(path: str, most: int) -> str:
    """The beginning of a plain file; one that would keep its reader waiting is none. Raises OSError, ValueError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(path)
        return os.fsdecode(os.read(descriptor, most))
    finally:
        os.close(descriptor)
