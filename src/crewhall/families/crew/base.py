"""
What a new instance's branch starts from.

    base_branch is given            that branch, tag or commit
    on a branch                     the branch of the caller's worktree, without what is not committed
    detached                        its commit
    in a rebase or a bisect         refused: the commit that is checked out is a passing one
"""

import contextlib
import os

from crewhall.errors import InvalidInput, InvalidState
from crewhall.outside.git import GitRepository, git_dir_at
from crewhall.outside.program_files import read_plain

HERE = (None, "HEAD", "@")
UNDER_WAY = (("rebase-merge/head-name", "rebase"), ("rebase-apply/head-name", "rebase"), ("BISECT_START", "bisect"))


def choose_base(repo: GitRepository, path: str, given: str | None) -> str:
    """The branch or commit to start from, for a caller in a directory of the repository.

    Raises InvalidInput when there is no such commit, InvalidState in the middle of a rebase or a bisect.
    """
    base = _branch_here(repo, path) if given in HERE else str(given)
    if repo.commit_of(base) is None:
        raise InvalidInput(
            f"{repo.root} has no branch or commit '{base}'", hint="Give base_branch, one that `git branch` shows."
        )
    return base


def _branch_here(repo: GitRepository, path: str) -> str:
    git_dir = git_dir_at(path, repo.stop)
    found = repo.current_branch({"GIT_DIR": git_dir})
    if repo.branch_exists(found):
        return found
    for name, doing in UNDER_WAY:
        with contextlib.suppress(OSError):
            branch = read_plain(os.path.join(git_dir, name), 1000).decode("utf-8", "replace").strip()
            branch = branch.removeprefix("refs/heads/")
            raise InvalidState(
                f"{path} is in the middle of a {doing} that began on {branch}",
                hint=f"Give base_branch, such as '{branch}', or finish the {doing} first.",
            )
    return found
