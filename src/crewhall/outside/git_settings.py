"""
Git's settings as git tells them, whose each is, and how a read runs no program that a repository's own name.

    settings_in(out) -> [GitSetting(scope, key, value)]     from `git config --list --show-scope -z`
    without_own_programs(repo, git_dir) -> variables        for a git that merges or takes a snapshot to look at

    filter.*.clean, .process     the person's own, or none: the file counts as it is
    merge.*.driver               the person's own, or git's merge of texts
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from crewhall.outside.git import GitRepository, refusal

OWN_SCOPES = ("local", "worktree")
LIST = ("config", "--list", "--show-scope", "-z")
TEXT_MERGE = "git merge-file -q %A %O %B || false"


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

    @property
    def is_merge_driver(self) -> bool:
        return self.key.startswith("merge.") and self.key.endswith(".driver") and self.key.count(".") > 1


def settings_in(out: bytes) -> list[GitSetting]:
    """What `git config --list --show-scope -z` tells; of settings with the same key, the last one counts."""
    fields = os.fsdecode(out).split("\0")
    pairs = zip(fields[::2], fields[1::2], strict=False)
    return [GitSetting(scope, *entry.partition("\n")[::2]) for scope, entry in pairs]


def config_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Settings for git as variables, which come before those in files."""
    env = {"GIT_CONFIG_COUNT": str(len(values))}
    for number, (key, value) in enumerate(values.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


def without_own_programs(repo: GitRepository, git_dir: str) -> dict[str, str]:
    """Variables with which git runs no filter and no merge driver of the repository's own settings.

    Raises InvalidState when git can't tell them.
    """
    ended = repo.git(*LIST, env={"GIT_DIR": git_dir})
    if ended.code != 0:
        raise refusal(ended, "tell its settings")
    settings = settings_in(ended.out)
    others = {one.key: one.value for one in settings if not one.is_own}
    own = {one.key: TEXT_MERGE if one.is_merge_driver else "" for one in settings if one.is_own and _runs(one)}
    return config_variables({key: others.get(key, value) for key, value in own.items()})


def _runs(setting: GitSetting) -> bool:
    return setting.is_merge_driver or setting.filter is not None
