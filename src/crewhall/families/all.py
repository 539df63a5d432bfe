"""The list of families; a new one is a line here."""

from crewhall.families.work import (
    chores_message,
    claims,
    prompts,
    tools_agent,
    tools_checkpoint,
    tools_event,
    tools_message,
    tools_progress,
    tools_repository,
    tools_task,
    tools_text,
    tools_workflow,
)
from crewhall.families.work.family import work
from crewhall.tool import Family, Registry

FAMILIES: list[Family] = [work]
DECLARING = (
    tools_repository,
    tools_agent,
    tools_workflow,
    tools_task,
    tools_checkpoint,
    tools_progress,
    tools_message,
    tools_event,
    tools_text,
    claims,
    chores_message,
    prompts,
)


def registry() -> Registry:
    """Every tool and prompt of the product."""
    return Registry(FAMILIES)
