"""The list of families; a new one is a line here. Each loads its own modules."""

from crewhall.families.crew.family import crew
from crewhall.families.judge.family import judge
from crewhall.families.project.family import project
from crewhall.families.pulls.family import pulls
from crewhall.families.review.family import review
from crewhall.families.work.family import work
from crewhall.tool import Family, Registry

FAMILIES: list[Family] = [work, crew, review, project, pulls, judge]


def registry() -> Registry:
    """Every tool, prompt, chore and source of the product."""
    for family in FAMILIES:
        family.load()
    return Registry(FAMILIES)
