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
from crewhall.families.work import prompts
from crewhall.families.work.agent import tools as tools_agent
from crewhall.families.work.checkpoint import tools as tools_checkpoint
from crewhall.families.work.claim import leases as claims
from crewhall.families.work.context import sources, tools_text
from crewhall.families.work.context import tools as tools_context
from crewhall.families.work.event import tools as tools_event
from crewhall.families.work.family import work
from crewhall.families.work.message import chores as chores_message
from crewhall.families.work.message import tools as tools_message
from crewhall.families.work.repository import tools as tools_repository
from crewhall.families.work.reservation import tools as tools_file
from crewhall.families.work.task import tools as tools_task
from crewhall.families.work.template import tools as tools_template
from crewhall.families.work.workflow import tools as tools_workflow
from crewhall.families.work.workflow import tools_progress
from crewhall.families.work.workspace import creation as workspaces
from crewhall.families.work.workspace import tools as tools_workspace
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
