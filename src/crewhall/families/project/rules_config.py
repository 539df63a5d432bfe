"""
What git's settings say, and which of them a repository may not decide by itself. Pure; names are as os has them.

    filter.*                    its programs would run
    core.excludesFile           a file of anybody's is read as patterns, and what is ignored tells its lines
    core.attributesFile         the same by what is counted as binary

In place of such a one the person's own setting counts, as if the repository had said nothing.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OWN_SCOPES = ("local", "worktree")
EXCLUDES, ATTRIBUTES = "core.excludesfile", "core.attributesfile"


@dataclass(frozen=True)
class GitSetting:
    """One setting of git's; `scope` says whose it is."""

    scope: str
    key: str
    value: str

    @property
    def is_own(self) -> bool:
        """Whether the repository says it."""
        return self.scope in OWN_SCOPES

    @property
    def filter(self) -> str | None:
        """The name of the filter that it is about."""
        section, _, rest = self.key.partition(".")
        name, dot, _ = rest.rpartition(".")
        return name if section == "filter" and dot else None


def settings_in(out: bytes) -> list[GitSetting]:
    """What `git config --list --show-scope -z` tells; of settings with the same key, the last one counts."""
    fields = os.fsdecode(out).split("\0")
    pairs = zip(fields[::2], fields[1::2], strict=False)
    return [GitSetting(scope, *entry.partition("\n")[::2]) for scope, entry in pairs]


def replacements(settings: Sequence[GitSetting], defaults: Mapping[str, str]) -> dict[str, str]:
    """The values that replace the repository's own settings that must not count, by key.

    `defaults` are the values for settings that name a file.
    """
    others = {one.key: one.value for one in settings if not one.is_own}
    own = [one.key for one in settings if one.is_own and (one.filter is not None or one.key in defaults)]
    return {key: others.get(key, defaults.get(key, "")) for key in own}


def filters_off(settings: Sequence[GitSetting]) -> tuple[str, ...]:
    """The filters that nobody but the repository has set up."""
    own = {one.filter for one in settings if one.is_own}
    others = {one.filter for one in settings if not one.is_own}
    return tuple(sorted(name for name in own - others if name is not None))


def own_value(settings: Sequence[GitSetting], key: str) -> str | None:
    """What the repository says of this."""
    return next((one.value for one in reversed(settings) if one.is_own and one.key == key), None)
