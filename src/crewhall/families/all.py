"""The list of families; a new one is a line here."""

from crewhall.families.judge import tools as judge_tools
from crewhall.families.judge.family import judge
from crewhall.families.project import sources_files, sources_git, sources_programs, tools_just, tools_worktree
from crewhall.families.project import tools_context as project_context
from crewhall.families.project import tools_file as project_file
from crewhall.families.project.family import project
from crewhall.families.pulls import recovery as pulls_recovery
from crewhall.families.pulls import tools as pulls_tools
from crewhall.families.pulls.family import pulls
from crewhall.families.work import (
    chores_message,
    claims,
    prompts,
    sources,
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

FAMILIES: list[Family] = [work, project, pulls, judge]
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
    sources,
    sources_git,
    sources_files,
    sources_programs,
    tools_worktree,
    project_file,
    project_context,
    tools_just,
    pulls_tools,
    pulls_recovery,
    judge_tools,
)


def registry() -> Registry:
    """Every tool and prompt of the product."""
    return Registry(FAMILIES)
