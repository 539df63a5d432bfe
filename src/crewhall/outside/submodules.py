"""
Submodules of a worktree that is about to go: what only they have is copied into the repository's own objects.

    module_dirs(git_dir) -> [path]                                  their git directories, also of nested ones
    repositories_below(path) -> [path]                              directories with a `.git` of their own
    module_of(path) -> path                                         the git directory that one of these leads to
    save_modules(repo, path, git_dir, ref, message) -> [ref]        refs that keep their work, `ref-submodule-lib`

    shop-worktrees/fix/lib/.git             a file that leads to
    shop/.git/worktrees/fix/modules/lib     which goes with the worktree, pushed or not

What a branch of a remote has is not copied. Stashes are kept; tags, and what only a reflog knows, are not. Of a shallow
submodule the files are kept without the commits: those lead to some that it does not have.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from crewhall.outside.git import GitRepository, refusal
from crewhall.outside.hostile_repository import leads_to
from crewhall.outside.root_path import real_path
from crewhall.outside.run import Ended
from crewhall.outside.saving import keep_under, save_staged, save_work

GOING = "refs/crewhall/going"  # in the submodule: what is copied out of it
MOST_NAME = 60  # characters of its name in a ref


@dataclass(frozen=True)
class _Submodule(GitRepository):
    """A submodule. Its configuration names a directory that may have been moved, so each command says where it is."""

    def git(
        self, *words: str, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Ended:
        return super().git(*words, cwd=cwd, env={"GIT_WORK_TREE": self.root} | dict(env or {}), stdin=stdin)


def module_dirs(git_dir: str) -> list[str]:
    """The git directories of the submodules that were set up in a worktree, by the worktree's own git directory."""
    found: list[str] = []
    modules = os.path.join(git_dir, "modules")
    if os.path.islink(modules):
        return found  # it leads to repositories of somebody else
    for top, names, files in os.walk(modules):
        if "HEAD" in files and "objects" in names:
            found += [real_path(top), *module_dirs(top)]
            names.clear()
    return found


def repositories_below(path: str, onerror: Callable[[OSError], None] | None = None) -> list[str]:
    """The directories below a path that are working trees of their own."""
    walk = os.walk(path, onerror=onerror)
    return [top for top, names, files in walk if top != path and (".git" in names or ".git" in files)]


def module_of(top: str) -> str:
    """The git directory that a working tree leads to; empty when its `.git` can't be read."""
    try:
        return leads_to(top)
    except OSError:
        return ""


def save_modules(repo: GitRepository, path: str | None, git_dir: str, ref: str, message: str) -> list[str]:
    """Keep what only the submodules of a worktree have; the refs, each named by `ref` and the submodule.

    Doing it twice makes no second ref. `path` is None when the worktree's directory is gone. Raises InvalidState when
    a submodule can't be read or copied.
    """
    modules = module_dirs(git_dir)
    tops = {module_of(top): top for top in repositories_below(path)} if path and modules else {}
    refs = []
    for module in modules:
        top = tops.get(module)
        inner = _Submodule(top or module, module, repo.stop, repo.seconds, repo.keep)
        _forget_path(repo, module)
        commit = _unpushed_work(inner, top, ref, message)
        if commit is not None:
            name = os.path.relpath(module, os.path.join(real_path(git_dir), "modules"))
            _copy(repo, inner, commit, name)
            plain = re.sub("[^A-Za-z0-9_]+", "-", name)[:MOST_NAME]
            refs.append(keep_under(repo, f"{ref}-submodule-{plain}", commit))
    return refs


def _forget_path(repo: GitRepository, module: str) -> None:
    """Take away the noted path of a submodule, which will be moved; git then takes the place where it finds it."""
    for name in ("config", "config.worktree"):
        repo.git("config", "--file", os.path.join(module, name), "--unset-all", "core.worktree")


def _unpushed_work(inner: _Submodule, top: str | None, ref: str, message: str) -> str | None:
    """A commit with everything that no branch of a remote has; None when there is no such thing."""
    saved = save_work(inner, top, ref, message) if top else save_staged(inner, inner.git_dir, ref, message)
    files = inner.commit_of(saved.ref) if saved.ref else saved.commit
    branches = inner.text("for-each-ref", "--format=%(objectname)", "refs/heads").split()
    stashes = inner.git("rev-list", "--walk-reflogs", "refs/stash", "--").out.decode().split()  # none: it fails
    tips = dict.fromkeys(tip for tip in (files, *branches, *stashes) if tip)
    lost = [tip for tip in tips if not inner.text("for-each-ref", "--count=1", f"--contains={tip}", "refs/remotes")]
    if not lost:
        return None
    apart = inner.text("merge-base", "--independent", *lost).split()
    if inner.text("rev-parse", "--is-shallow-repository") == "true":
        apart = [_commit(inner, tip, [], f"The files of {tip}, whose history was shallow") for tip in apart]
    return apart[0] if len(apart) == 1 else _commit(inner, files or apart[0], apart, message)


def _commit(inner: _Submodule, like: str, parents: list[str], message: str) -> str:
    """A commit with another one's files and date, so that making it again gives the same one."""
    date = inner.text("show", "--no-patch", "--format=%cI", like)
    words = [word for parent in parents for word in ("-p", parent)]
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    return inner.text(
        "commit-tree", "--no-gpg-sign", *words, f"{like}^{{tree}}", stdin=message.encode("utf-8", "replace"), env=dates
    )


def _copy(repo: GitRepository, inner: _Submodule, commit: str, name: str) -> None:
    """Bring a submodule's commit and all before it into the repository."""
    inner.text("update-ref", "--no-deref", GOING, commit)
    quietly = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
    ended = repo.git("fetch", *quietly, inner.git_dir, GOING, env={"GIT_ALLOW_PROTOCOL": "file"})
    if ended.code != 0:
        raise refusal(
            ended, f"save the commits of the submodule {name}", f"Push them from {inner.root}, then try again."
        )
