"""The family's name, under which its tools declare themselves."""

from crewhall.cache import AnswerCache
from crewhall.tool import Family

project = Family(
    "project",
    "One worktree's files, context and `just` tasks, and the servers of open worktrees.",
    "crewhall.families.project",
)

ANSWERS = project.state(lambda _: AnswerCache())  # what git and others said of a worktree, while it is still true
