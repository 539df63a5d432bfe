"""Memory: what an agent must know to go on after its own was cleared, and a workflow in short (seed 003)."""

from typing import Annotated

from pydantic import Field
from pydantic_core import to_json

from crewhall.app import Call
from crewhall.errors import InvalidInput, InvalidState
from crewhall.families.work.context.compose import load_context
from crewhall.families.work.context.model import Context, Include, MaxTokens, SummaryFormat, WorkflowPage
from crewhall.families.work.context.summary import summarize, to_markdown
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get
from crewhall.families.work.model import AgentId, TaskId, WorkflowId
from crewhall.outside import tokens
from crewhall.store.transaction import Tx
from crewhall.token_budget import MOST, cost


@work.tool(
    "task_load_context",
    profiles=("worker", "coordinator", "reviewer", "standard", "coding", "review"),
    resources=("crewhall://tasks/{task_id}/context",),
)
def task_load_context(
    call: Call,
    task_id: Annotated[TaskId, Field(description="Left out: the task that you hold.")] | None = None,
    include: Include | None = None,
    max_tokens: MaxTokens = 8000,
    agent_id: Annotated[AgentId, Field(description="Whose task, when task_id is left out: yours if known.")]
    | None = None,
) -> Context:
    """All you need to go on with a task, after your memory was cleared or when you take it over: its workflow and
    plan, what was noted last, what others finished and what it depends on, within max_tokens."""
    with call.begin() as tx:
        return load_context(
            tx, task_id or _held_by(call, tx, agent_id), include or Include(), min(max_tokens, MOST), call.now
        )


def _held_by(call: Call, tx: Tx, agent_id: str | None) -> str:
    """The task that the agent holds who calls, or of whom it is asked. Raises InvalidInput, InvalidState."""
    asked = agent_id or _caller(call, tx)
    tx.ahead("task_in_hand", agent_id=asked)
    get(tx, "agent", asked)
    held = tx.one("task_in_hand", agent_id=asked)
    if held is None:
        raise InvalidState(
            f"agent {asked} holds no task", hint="task_get_available shows tasks to take; or give task_id."
        )
    task_id: str = held["id"]
    return task_id


def _caller(call: Call, tx: Tx) -> str:
    """The agent that calls: by its token, or because it alone speaks through this bridge."""
    if call.agent_id is not None:
        return call.agent_id
    bridges = [] if call.origin.bridge is None else [call.origin.bridge]
    here = tx.all("agents_at_bridges", bridges=to_json(bridges).decode())
    if len(here) != 1:
        raise InvalidInput(
            "give task_id, or agent_id: which agent you are is not known here",
            hint="agent_list shows the agents with their names, directories and current tasks.",
        )
    agent_id: str = here[0]["id"]
    return agent_id


@work.tool(
    "workflow_get_summary",
    profiles=("coordinator",),
    resources=("crewhall://workflows/{id}/summary",),
)
def workflow_get_summary(call: Call, id: WorkflowId, format: SummaryFormat = "json") -> WorkflowPage:
    """A workflow on one page: its aim and plan, how far it is, who is at what, what is next, what failed.

    As markdown it is made for a CLAUDE.md or AGENTS.md.
    """
    with call.begin() as tx:
        page = summarize(tx, id)
    if format == "json":
        return WorkflowPage(summary=page, token_estimate=cost(page))
    text = to_markdown(page)
    return WorkflowPage(summary=text, token_estimate=tokens.count(text))
