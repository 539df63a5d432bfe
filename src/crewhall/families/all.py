"""The list of families; a new one is a line here."""

from crewhall.families.work import prompts, tools_agent, tools_event, tools_repository
from crewhall.families.work.family import work
from crewhall.tool import Family, Registry

FAMILIES: list[Family] = [work]
DECLARING = (tools_repository, tools_agent, tools_event, prompts)


def registry() -> Registry:
    """Every tool and prompt of the product."""
    return Registry(FAMILIES)
