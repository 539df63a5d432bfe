"""The family's name, under which its tools declare themselves."""

from crewhall.tool import Family

crew = Family(
    "crew",
    "Instances: agents that the hall itself starts, each in a git worktree and a tmux session.",
    "crewhall.families.crew",
)
