"""Where the parts of a repository are around a root, told from files alone: its working tree, its git directories."""

import os
from dataclasses import dataclass

from crewhall.errors import Failure, InvalidState, NotFound
from crewhall.outside.files import open_root
from crewhall.outside.hostile_repository import leads_to
from crewhall.outside.repository_paths import place_of
from crewhall.outside.root_path import real_path
from crewhall.paths import is_below

FILE_BYTES = 65_536
STATES = (
    ("MERGE_HEAD", "a merge is going on"),
    ("CHERRY_PICK_HEAD", "a cherry-pick is going on"),
    ("REVERT_HEAD", "a revert is going on"),
    ("BISECT_LOG", "a bisect is going on"),
    ("rebase-apply/applying", "a series of patches is being applied"),
)


@dataclass(frozen=True)
class GitLayout:
    """The working tree's top, git's directories for it and for all worktrees, and where the root is below the top.

    `prefix` is the path from the top to the root. It is empty at the top, and ends with a slash below it.
    """

    top: str
    git_dir: str
    common: str
    prefix: str

    @property
    def below(self) -> list[str]:
        return [self.prefix] if self.prefix else []

    def holds(self, path: str) -> bool:
        """Whether a real path is in the working tree, or in the repository."""
        return any(is_below(path, own) for own in (self.top, self.git_dir, self.common))

    def path(self, path: str) -> str:
        """The absolute path of a file that is named from the root."""
        return os.path.join(self.top, self.prefix, path)

    @property
    def index(self) -> str:
        return os.path.join(self.git_dir, "index")

    def operations(self) -> list[str]:
        """The operations, such as a merge or a rebase, that are not finished."""
        lines = [line for name, line in STATES if os.path.lexists(os.path.join(self.git_dir, name))]
        for kind in ("rebase-merge", "rebase-apply"):
            branch = read_own(self.git_dir, f"{kind}/head-name")
            if branch:
                lines.append(f"a rebase of {branch.strip().removeprefix('refs/heads/')} is going on")
        return lines


def layout_of(root: str) -> GitLayout:
    """The layout around a root, from files only. Raises InvalidState when it is in no working tree of git."""
    place = place_of(root)
    git_dir = "" if place is None else leads_to(place.top)
    leads_on = read_own(git_dir, "commondir") if git_dir else None
    if place is None or leads_on is None or not os.path.lexists(os.path.join(place.top, ".git")):
        raise InvalidState("this is no working tree of a git repository", hint="`git init` makes one.")
    common = real_path(os.path.join(git_dir, leads_on.rstrip("\r\n")))
    prefix = os.path.join(os.path.relpath(root, place.top), "")
    return GitLayout(place.top, git_dir, common, "" if prefix == "./" else prefix)


def read_own(directory: str, name: str) -> str | None:
    """A small file of git's own, empty when there is none; None for what is long, or a link that leads elsewhere."""
    try:
        with open_root(directory) as top, top.file(name) as file:
            data = os.read(file.descriptor, FILE_BYTES)
            return os.fsdecode(data) if len(data) < FILE_BYTES else None
    except NotFound:
        return ""
    except Failure:
        return None
