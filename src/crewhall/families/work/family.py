"""The family's name, under which its tools declare themselves."""

from crewhall.tool import Family

work = Family("work", "Agents, repositories and the hall's event log.", "crewhall.families.work")
