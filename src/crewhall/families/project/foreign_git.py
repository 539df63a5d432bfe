"""
Refusals of a repository whose parts, or whose objects, are another's: what it tells would be told of that one.

Whoever can write into a worktree can make links in its `.git`, or alternates, to any repository of the hub's user.
"""

import contextlib
import os
from collections.abc import Sequence

from crewhall.errors import InvalidState
from crewhall.families.project.git_layout import GitLayout, read_own
from crewhall.families.project.rules_config import own_value
from crewhall.outside.git_settings import GitSetting
from crewhall.outside.hostile_repository import refuse_strangers
from crewhall.outside.root_path import real_path
from crewhall.paths import is_below

STATE_FILES = (
    *("HEAD", "index", "packed-refs", "refs", "reftable", "logs", "shallow", "config", "config.worktree"),
    *("info/exclude", "info/attributes", "info/sparse-checkout", "objects", "objects/info", "objects/pack"),
)
ALTERNATES = "info/alternates"  # in objects: other directories of objects, one in a line
MOST_ALTERNATES = 5  # as in git


def refuse_links(layout: GitLayout, names: Sequence[str]) -> None:
    """Raise InvalidState when a part of the repository that is told of is another's."""
    for directory in {layout.git_dir, layout.common}:
        for name in names:
            path = os.path.join(directory, name)
            if not layout.holds(real_path(path)):
                raise InvalidState(f"a link leads elsewhere: {path}", hint="Put a file of its own there.")


def refuse_foreign_objects(layout: GitLayout) -> None:
    """Raise InvalidState when objects are another repository's: who knows a commit's id would be told what it says."""
    left = [os.path.join(layout.common, "objects")]
    for number, objects in enumerate(left):
        if number > MOST_ALTERNATES or not layout.holds(real_path(objects)):
            raise InvalidState(
                f"its objects are those of another repository (`git repack -a -d` copies them): {objects}",
                hint="If they are yours, run that, and remove objects/info/alternates from its git directory.",
            )
        refuse_links(layout, _links_in(layout, objects))
        left += _alternates(layout, objects)


def _links_in(layout: GitLayout, objects: str) -> list[str]:
    """The links among the directories of objects and the packs, as paths from the common directory."""
    links: list[str] = []
    for directory in (objects, os.path.join(objects, "info"), os.path.join(objects, "pack")):
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            links += [entry.path for entry in entries if entry.is_symlink()]
    return [os.path.relpath(path, layout.common) for path in links]


def _alternates(layout: GitLayout, objects: str) -> list[str]:
    text = read_own(real_path(objects), ALTERNATES)
    if text is None or '"' in text:  # git reads escapes in quotes
        raise InvalidState(f"{objects}/{ALTERNATES} can't be read", hint="Check that file.")
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    return [os.path.join(objects, line) for line in lines]


def refuse_foreign(layout: GitLayout, settings: Sequence[GitSetting]) -> None:
    """Raise InvalidState for a repository outside that does not name this working tree as one of its own."""
    if is_below(layout.git_dir, layout.top) and is_below(layout.common, layout.top):
        return
    refuse_strangers(layout.top, layout.git_dir, layout.common, own_value(settings, "core.worktree"))
