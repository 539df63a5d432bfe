"""
What git's settings say, and which of them a repository may not decide by itself. Pure; names are as os has them.

    filter.*                    its programs would run
    core.excludesFile           a file of anybody's is read as patterns, and what is ignored tells its lines
    core.attributesFile         the same by what is counted as binary

In place of such a one the person's own setting counts, as if the repository had said nothing.
"""

from collections.abc import Mapping, Sequence

from crewhall.outside.git_settings import GitSetting

EXCLUDES, ATTRIBUTES = "core.excludesfile", "core.attributesfile"


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
