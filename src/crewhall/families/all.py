"""The list of families; a new one is a line here."""

from crewhall.families.work import (
    chores_message,
    claims,
    prompts,
    tools_agent,
    tools_checkpoint,
    tools_context,
    tools_event,
    tools_file,
    tools_message,
    tools_progress,
    tools_repository,
    tools_task,
    tools_template,
    tools_text,
    tools_workflow,
    tools_workspace,
    workspaces,
)
from crewhall.families.work.family import work
from crewhall.tool import Family, Registry

FAMILIES: list[Family] = [work]
DECLARING = (
    tools_repository,
    tools_agent,
    tools_workflow,
    tools_workspace,
    tools_task,
    tools_checkpoint,
    tools_context,
    tools_progress,
    tools_template,
    tools_message,
    tools_file,
    tools_event,
    tools_text,
    claims,
    workspaces,
    chores_message,
    prompts,
)


def registry() -> Registry:
    """Every tool and prompt of the product."""
    return Registry(FAMILIES)
