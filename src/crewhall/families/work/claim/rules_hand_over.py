"""Rules of handing a task over: who may, who may get it, and what both are told. No clock, no database, no world."""

from dataclasses import dataclass

from crewhall.bindings import BoundAgent
from crewhall.errors import Forbidden, InvalidState
from crewhall.families.work.agent.model import AgentLocked
from crewhall.families.work.task.model import TaskRow
from crewhall.identity import Actor
from crewhall.notices import full_name, quotation, with_quote

NAME_LETTERS = 40  # of a task's name, in a notice


@dataclass(frozen=True)
class HandOver:
    """A task that goes from one agent to another."""

    task: TaskRow
    holder: AgentLocked
    to: AgentLocked
    by: str  # the caller, as agents read it
    reason: str
    is_paused: bool  # its workflow

    @property
    def epoch(self) -> int:
        """Of the new holder's claim."""
        return self.task["claim_epoch"] + 1

    @property
    def summary(self) -> str:
        """What the task's checkpoint says."""
        names = [f"{agent['name']} ({agent['id']})" for agent in (self.holder, self.to)]
        return f"Handed over from {names[0]} to {names[1]} by {self.by}: {self.reason}"

    def handed_notice(self) -> str:
        """What the new holder is told."""
        task_id, whose = self.task["id"], full_name(self.holder["name"], self.holder["id"])
        held = "which it held" if self.by == whose else f"which {whose} held"
        pause = "Its workflow is paused: begin and finish nothing in it. " if self.is_paused else ""
        return with_quote(
            f"Task {task_id} {self._name} is yours now: {self.by} handed it over, {held}:",
            self.reason,
            f'Your claim_epoch is {self.epoch}. {pause}Call task_load_context(task_id="{task_id}") before you go on.',
        )

    def taken_notice(self) -> str:
        """What the old holder is told."""
        to = full_name(self.to["name"], self.to["id"])
        return with_quote(
            f"Task {self.task['id']} {self._name} is no longer yours: {self.by} handed it to {to}:",
            self.reason,
            "Stop working on it: your writes to it are STALE_CLAIM.",
        )

    @property
    def _name(self) -> str:
        return quotation(self.task["name"], NAME_LETTERS)


def directs_others(actor: Actor, bound: BoundAgent | None) -> bool:
    """Whether a caller may hand over what others hold: the operator, with or without a token, or a coordinator."""
    if actor.kind == "agent":
        return "coordinator" in actor.kinds
    return bound is None or bound.role == "coordinator"


def refuse_unheld(task: TaskRow) -> str:
    """The holder of a task. Raises InvalidState when nobody holds it."""
    if task["claimed_by"] is None:
        raise InvalidState(
            f"nobody holds task {task['id']}", hint="task_claim takes it; there is nothing to hand over."
        )
    return task["claimed_by"]


def not_the_holder(task: TaskRow, caller: str) -> Forbidden:
    """The error for an agent that would hand over what another holds."""
    return Forbidden(
        f"{task['claimed_by']} holds task {task['id']}, and you are {caller}",
        hint="Only its holder, a coordinator or the operator hands it over; message_send asks the holder.",
    )


def refuse_recipient(task: TaskRow, to: AgentLocked) -> None:
    """Raise InvalidState for an agent that holds the task already, or is not here to take it."""
    if to["id"] == task["claimed_by"]:
        raise InvalidState(f"agent {to['id']} holds task {task['id']} already", hint="agent_list shows other agents.")
    if to["has_left"] or to["status"] == "offline":
        gone = "has left" if to["has_left"] else "is offline"
        raise InvalidState(
            f"agent {to['id']} {gone}, and would not see task {task['id']}",
            hint="agent_list with status online or busy shows who is here; task_release makes the task anybody's.",
        )
