"""The family's name, under which its tools declare themselves."""

from crewhall.tool import Family

work = Family(
    "work",
    "Workflows, tasks, claims, checkpoints, messages, agents, repositories and the hall's event log.",
    "crewhall.families.work",
)
