"""
Asking git about a worktree that may have come from anywhere, so that none of what it brings along is run.

    what a repository could run, or show of others         why it does not here
    core.fsmonitor, hooks, pagers                          outside/git.py turns them off
    filter.*.clean and .process, when a file changed       git is asked for its settings first, and those that the
    core.excludesFile, core.attributesFile: any file       repository says itself are replaced by the person's
    diff.external, textconv, gpg for signatures            options of the command
    a fetch of objects that a partial clone lacks          no protocol is allowed
    core.worktree: another directory's files               GIT_WORK_TREE is the top that we found
    `.git`, commondir: another repository                  it must name this working tree as one of its own
    links in `.git` to another's HEAD, index, shallow …    they must stay in the worktree, or the repository
    objects of another repository, by links or alternates  the same
    a bare repository among the files                      safe.bareRepository, and only `.git` at the top counts
    what a submodule's configuration says                  git does not look into submodules

Nobody but git reads its settings: `git config` answers under the very environment in which `git status` runs next, in
every call. Filters that the person set up for all repositories, such as git-lfs, run as in their own `git status`.
Objects that replace others and grafts don't count, so a commit's id tells all that is behind it but a shallow end.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crewhall.app import Call
from crewhall.errors import InvalidState
from crewhall.families.project.family import ANSWERS
from crewhall.families.project.foreign_git import STATE_FILES, refuse_foreign, refuse_foreign_objects, refuse_links
from crewhall.families.project.git_layout import GitLayout, layout_of
from crewhall.families.project.rules_config import (
    ATTRIBUTES,
    EXCLUDES,
    filters_off,
    replacements,
)
from crewhall.families.project.rules_git import GitStatus, StatusEntry, status_in
from crewhall.outside.files import Top
from crewhall.outside.git import git, refusal
from crewhall.outside.git_settings import LIST, config_variables, settings_in

SYSTEM_ATTRIBUTES = "/etc/gitattributes"
STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=dirty")


@dataclass(frozen=True)
class GitSetup:
    """How git is run in a working tree: `settings` is a digest of all of git's settings.

    `off` are filters that are not run; `attributes` is the user's own attributes file.
    """

    layout: GitLayout
    settings: str
    off: tuple[str, ...]
    attributes: str
    env: dict[str, str] = field(repr=False)

    def attribute_files(self, entries: Sequence[StatusEntry]) -> list[str]:
        """All files that say how these are to be compared, whether they are there or not."""
        names = [name for entry in entries for name in (entry.path, entry.before) if name is not None]
        directories: set[str] = {self.layout.top}
        for name in names:
            directory = os.path.dirname(self.layout.path(name))
            while directory not in directories:
                directories.add(directory)
                directory = os.path.dirname(directory)
        whole = [SYSTEM_ATTRIBUTES, self.attributes, os.path.join(self.layout.common, "info", "attributes")]
        return whole + [os.path.join(directory, ".gitattributes") for directory in sorted(directories)]


@dataclass(frozen=True)
class WorktreeStatus:
    """A worktree's status, and how git was run for it."""

    setup: GitSetup
    status: GitStatus

    @property
    def layout(self) -> GitLayout:
        return self.setup.layout

    def notes(self) -> list[str]:
        """What a reader must know to read the status right."""
        filters = [
            f"the filter {name} of this repository was not run: its files may show as changed"
            for name in self.setup.off
        ]
        has_submodules = os.path.lexists(os.path.join(self.layout.top, ".gitmodules"))
        return filters + (["changes inside submodules are not looked at"] if has_submodules else [])


def status_of(call: Call, top: Top) -> WorktreeStatus:
    """The worktree's status. Within one call git runs once, and every caller gets the same result."""
    return call.state(ANSWERS).make_once(
        (call.id, "status", top.root), lambda: _read_status(call, setup_at(call, top)), call.stop
    )


def _read_status(call: Call, setup: GitSetup) -> WorktreeStatus:
    out = run_git(call, setup, [*STATUS, "--", *setup.layout.below])
    status = status_in(out, setup.layout.prefix)
    if status.branch == "(null)":  # git's word for a HEAD that is at another kind of name, which may be a link
        raise InvalidState("HEAD is at a name that is no branch", hint="Check out a branch, or a commit.")
    refuse_links(setup.layout, [os.path.join("refs", "heads", status.branch or "")])
    return WorktreeStatus(setup, status)


def setup_at(call: Call, top: Top) -> GitSetup:
    """How to run git at a root that is held; worked out once per call.

    Raises InvalidState when it is in no working tree, or in one of another repository's making.
    """
    return call.state(ANSWERS).make_once(
        (call.id, "setup", top.root), lambda: _setup(call, layout_of(top.root)), call.stop
    )


def _setup(call: Call, layout: GitLayout) -> GitSetup:
    refuse_links(layout, STATE_FILES)
    refuse_foreign_objects(layout)
    out = _run(call, layout, LIST, _with_values({}))
    settings = settings_in(out)
    refuse_foreign(layout, settings)
    values = replacements(settings, {EXCLUDES: _user_file("ignore"), ATTRIBUTES: _user_file("attributes")})
    effective = {one.key: one.value for one in settings} | values
    attributes = os.path.expanduser(effective.get(ATTRIBUTES, _user_file("attributes")))
    return GitSetup(
        layout,
        hashlib.sha256(out).hexdigest(),  # there may be passwords in it
        filters_off(settings),
        os.path.join(layout.top, attributes),
        _with_values(values),
    )


def _user_file(name: str) -> str:
    """The user's own file that git reads when no setting names one."""
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "git", name)


def run_git(call: Call, setup: GitSetup, arguments: Sequence[str]) -> bytes:
    """Git's output at the top of the working tree. Raises InvalidState with git's message, and what `git` raises."""
    return _run(call, setup.layout, arguments, setup.env)


def _run(call: Call, layout: GitLayout, arguments: Sequence[str], env: Mapping[str, str]) -> bytes:
    variables = {
        "GIT_WORK_TREE": layout.top,
        "GIT_COMMON_DIR": layout.common,
        "GIT_CEILING_DIRECTORIES": os.path.dirname(layout.top),
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
    }
    ended = git(arguments, cwd=layout.top, env=variables | dict(env), stop=call.stop)
    if ended.code != 0:
        raise refusal(ended, f"tell its {arguments[0]}")
    return ended.out


def _with_values(values: Mapping[str, str]) -> dict[str, str]:
    """Settings for git as variables, which come before those in files."""
    return config_variables({"safe.bareRepository": "explicit"} | dict(values))
