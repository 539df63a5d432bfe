"""
Git directories that came with somebody's files: their configuration would run what its writer likes.

    refuse_planted(git_dir) -> None     leads_to(top) -> str    the git directory that `top/.git` is or names

    clone/.git                          fine: git never puts a file into a directory of that name
    clone/docs/fixture                  refused: it may be one of the files that were cloned
    project/.bare, project/.git         fine: the second names the first, and no clone brings a `.git`
"""

import os

from crewhall.errors import InvalidState
from crewhall.outside.root_path import real_path


def leads_to(top: str) -> str:
    """The git directory of a directory: its `.git`, or what that file names; it need not be there."""
    link = os.path.join(top, ".git")
    if os.path.isfile(link):
        with open(os.open(link, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            link = os.path.join(top, os.fsdecode(file.read(65_536)).removeprefix("gitdir: ").rstrip("\r\n"))
    return real_path(link)


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
