"""
Git directories that came with somebody's files: their configuration would run what its writer likes.

    refuse_planted(git_dir) -> None     leads_to(top) -> str    the git directory that `top/.git` is or names
    refuse_strangers(top, git_dir, common, named) -> None       the repository must name this working tree

    clone/.git                          fine: git never puts a file into a directory of that name
    clone/docs/fixture                  refused: it may be one of the files that were cloned
    project/.bare, project/.git         fine: the second names the first, and no clone brings a `.git`
"""

import os

from crewhall.errors import Failure, InvalidState
from crewhall.outside.files import open_root, read_start
from crewhall.outside.root_path import real_path

LINE_BYTES = 8192


def leads_to(top: str) -> str:
    """The git directory of a directory: its `.git`, or what that file names; it need not be there."""
    link = os.path.join(top, ".git")
    if os.path.isfile(link):
        with open(os.open(link, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            link = os.path.join(top, os.fsdecode(file.read(65_536)).removeprefix("gitdir: ").rstrip("\r\n"))
    return real_path(link)


def refuse_strangers(top: str, git_dir: str, common: str, named: str | None) -> None:
    """Raise InvalidState when a repository elsewhere does not name this working tree as one of its own.

    `named` is its core.worktree. All paths are without links.
    """
    if git_dir != common:
        is_linked = os.path.dirname(git_dir) == os.path.join(common, "worktrees")
        back, command = (_back_link(git_dir) if is_linked else ""), "git worktree repair"
    else:
        back, command = "" if named is None else os.path.join(named, ".git"), "git config core.worktree"
    link = os.path.join(git_dir, back)
    if os.path.basename(link) != ".git" or real_path(os.path.dirname(link)) != top:
        raise InvalidState(
            f"its repository does not name this as its working tree (`{command}` mends that): {git_dir}",
            hint="If it is yours, mend it; if not, remove the `.git` that leads there.",
        )


def _back_link(git_dir: str) -> str:
    try:
        with open_root(git_dir) as root, root.file("gitdir") as file:
            return os.fsdecode(read_start(file, LINE_BYTES)).rstrip("\r\n")
    except Failure:
        return ""


def refuse_planted(git_dir: str) -> None:
    """Raises InvalidState for a git directory among the files of another repository."""
    below = git_dir
    while os.path.basename(below) != ".git" and below != os.path.dirname(below):
        below = os.path.dirname(below)
        if os.path.lexists(os.path.join(below, ".git")):
            if leads_to(below) == git_dir:
                return
            raise InvalidState(
                f"{git_dir} is a bare repository among the files of the repository at {below}",
                hint="Such a one can run programs. If you made it, move it away from there, or write a file .git "
                f"beside it that says 'gitdir: {os.path.basename(git_dir)}'.",
            )
