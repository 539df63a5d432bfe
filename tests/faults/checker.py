"""
The checker: what the clients were told, beside what the database has in the end.

    lost      an acknowledged write is not there
    doubled   one thing is there twice
    kept      something is there that was said not to be
    held      a task was held by two, or its steps don't follow from each other
    early     a task was begun before one that it waits for
    missed    a follower was not shown an event, or was shown another one
    repeated  a follower was shown an event twice, or after a later one
    strange   an answer that no client should get
    hasty     an agent was called gone though it had just been heard (tests/faults/silent.py)
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.edges.fleet import rows
from tests.faults.record import Record

KINDS = ("lost", "doubled", "kept", "held", "early", "missed", "repeated", "strange", "hasty")
REFUSALS = ("taken", "STALE_CLAIM", "INVALID_STATE", "INVALID_TRANSITION", "TASK_BLOCKED", "LIMIT_EXCEEDED")
TEXTS = {"message_send": "body", "checkpoint_add": "summary", "workflow_create": "name"}
KEPT = {
    "message_send": "SELECT text.body, message.id FROM message JOIN message_text AS text ON text.id = text_id",
    "checkpoint_add": "SELECT summary, id FROM checkpoint",
    "workflow_create": "SELECT name, id FROM workflow",
}
Row = tuple[Any, ...]


@dataclass
class Verdict:
    """What is wrong, by kind, in sentences."""

    found: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    acknowledged: int = 0

    def add(self, kind: str, sentences: Iterable[str]) -> None:
        self.found[kind].extend(sentences)

    @property
    def is_sound(self) -> bool:
        return not any(self.found.values())

    def __str__(self) -> str:
        lines = [f"{kind}: {sentence}" for kind, all_of in self.found.items() for sentence in all_of[:10]]
        return "\n".join(lines) or f"{self.acknowledged} acknowledged, and nothing wrong"


def check(database: str, records: Sequence[Record], followers: Iterable[Path], last: int) -> Verdict:
    """The verdict on a hall whose agents rest and whose followers ended at the event `last`."""
    verdict = Verdict(acknowledged=sum(one.is_write for one in records))
    verdict.add("strange", strange(records))
    for tool, query in KEPT.items():
        _created(verdict, [one for one in records if one.tool == tool], rows(database, query))
    events = [Event(*row) for row in rows(database, EVENTS)]
    _completed(verdict, database, records, events)
    verdict.add("held", _held_at_once(database, records))
    verdict.add("held", disorder(events))
    verdict.add("early", _early(database, events))
    wanted = [(one.seq, one.what, one.subject) for one in events if one.seq <= last]
    for path in sorted(followers):
        seen = [tuple(json.loads(line)) for line in path.read_text().splitlines()]
        verdict.add("missed", (f"{path.stem}: {one}" for one in missed(wanted, seen)))
        verdict.add("repeated", (f"{path.stem}: {one}" for one in repeated(seen)))
    return verdict


def strange(records: Sequence[Record]) -> Iterator[str]:
    for one in records:
        if one.code == "INTERNAL" or (one.outcome == "refused" and one.code not in REFUSALS):
            yield f"{one.tool} by {one.agent} at hub {one.hub}: {one.answer}"


# What is created with a text of its own


def _created(verdict: Verdict, records: Sequence[Record], there: Sequence[Row]) -> None:
    """Each that was acknowledged is there once; none that was certainly not kept."""
    ids = defaultdict(list)
    for text, one in there:
        ids[text].append(one)
    attempts = defaultdict(list)
    for record in records:
        attempts[record.arguments[TEXTS[record.tool]]].append(record)
    for text, tries in attempts.items():
        told = {one.answer["id"] for one in tries if one.outcome == "ok"}
        if not told <= set(ids[text]):
            verdict.add("lost", [f"{tries[0].tool} {text}: told {told}, there is {ids[text]}"])
        if len(ids[text]) > 1 or len(told) > 1:
            verdict.add("doubled", [f"{tries[0].tool} {text}: told {told}, there are {ids[text]}"])
        if ids[text] and all(one.outcome in ("refused", "not kept") for one in tries):
            verdict.add("kept", [f"{tries[0].tool} {text}: {tries[0].answer}"])


# Tasks

EVENTS = "SELECT seq, at, actor, what, subject, before_status, after_status, data FROM event ORDER BY seq"


@dataclass(frozen=True)
class Event:
    seq: int
    at: int
    actor: str
    what: str
    subject: str
    before: str | None
    after: str | None
    data: str | None

    @property
    def claim(self) -> Any:
        """Whose claim it is about, and its epoch."""
        data = json.loads(self.data or "{}")
        return data.get("agent_id"), data.get("epoch")


def _completed(verdict: Verdict, database: str, records: Sequence[Record], events: Sequence[Event]) -> None:
    """Each completion that was acknowledged is the only one of its task, and by that agent."""
    status = dict(rows(database, "SELECT id, status FROM task"))
    by: dict[str, list[str]] = defaultdict(list)
    begun: dict[str, list[str]] = defaultdict(list)
    for event in events:
        if event.what == "task.updated":
            (by if event.after == "completed" else begun)[event.subject].append(event.actor)
    for task, agents in by.items():
        if len(agents) > 1:
            verdict.add("doubled", [f"task {task} was completed by {agents}"])
        if status[task] != "completed":
            verdict.add("lost", [f"task {task} was completed by {agents} and is {status[task]}"])
    for one in records:
        if one.tool == "task_update_status" and one.outcome == "ok":
            task, to = one.arguments["id"], one.arguments["status"]
            if one.agent not in (by if to == "completed" else begun)[task]:
                verdict.add("lost", [f"{to} of {task} by {one.agent}, {one.answer}"])


def _held_at_once(database: str, records: Sequence[Record]) -> Iterator[str]:
    """Claims that are not as they were told, or of which one began before the one before it ended."""
    claims = "SELECT task_id, epoch, agent_id, claimed_at, ended_at FROM claim ORDER BY task_id, epoch"
    there = {(task, epoch): (agent, at, ended) for task, epoch, agent, at, ended in rows(database, claims)}
    for (task, epoch), (later, after) in ((one[0], (one, two)) for one, two in pairwise(there.items())):
        if after[0][0] == task and (later[1][2] is None or later[1][2] > after[1][1]):
            yield f"{task}: claim {epoch} until {later[1][2]}, the next from {after[1][1]}"
    for one in records:
        if one.tool == "task_claim" and one.outcome == "ok":
            told = (one.arguments["task_id"], one.answer["claim_epoch"])
            if told not in there or there[told][0] != one.agent:
                yield f"{one.agent} was told that it has {told}, and {there.get(told)} has it"
    yield from _written_too_late(records)


def _written_too_late(records: Sequence[Record]) -> Iterator[str]:
    """Writes to a task that were begun after another agent had been told that it has it, and were acknowledged."""
    claimed: dict[str, list[Record]] = defaultdict(list)
    for one in records:
        if one.tool == "task_claim" and one.outcome == "ok":
            claimed[one.arguments["task_id"]].append(one)
    for one in records:
        if one.tool in ("task_update_status", "checkpoint_add") and one.outcome == "ok":
            task = one.arguments["id" if one.tool == "task_update_status" else "task_id"]
            before = [claim for claim in claimed[task] if claim.ended < one.began]
            newest = max(before, key=lambda claim: int(claim.answer["claim_epoch"]), default=None)
            if newest is not None and newest.agent != one.agent:
                yield f"{one.agent} wrote {one.arguments} after {newest.agent} had {task}"


BEGUN = ("in_progress", "completed")
ENDING = ("completed", "failed", "skipped")


def disorder(events: Sequence[Event]) -> Iterator[str]:
    """Steps of a task that don't follow from the ones before: a claim of what is held, a status from another one."""
    holder: dict[str, Any] = {}
    status: dict[str, str] = {}
    for event in events:
        task, was = event.subject, status.get(event.subject, "pending")
        if event.what in ("task.claimed", "task.renewed") and holder.get(task) is not None:
            yield f"{event.seq}: {event.claim} has {task}, which {holder[task]} holds"
        if event.before is not None and event.what.startswith("task.") and event.before != was:
            yield f"{event.seq}: {task} goes from {event.before}, and was {was}"
        if event.what == "task.updated" and holder.get(task, (None,))[0] != event.actor:
            yield f"{event.seq}: {event.actor} has {task} {event.after}, which {holder.get(task)} holds"
        _apply(event, holder, status)


def _apply(event: Event, holder: dict[str, Any], status: dict[str, str]) -> None:
    if not event.what.startswith("task."):
        return
    if event.what in ("task.claimed", "task.renewed"):
        holder[event.subject] = event.claim
    elif event.what in ("task.released", "task.expired") or event.after in ENDING:
        holder.pop(event.subject, None)
    status[event.subject] = event.after or status.get(event.subject, "pending")


def _early(database: str, events: Sequence[Event]) -> Iterator[str]:
    """Tasks that were claimed or begun before all that they wait for was completed."""
    done = {one.subject: one.seq for one in events if one.what == "task.updated" and one.after == "completed"}
    begun: dict[str, int] = {}
    for one in events:
        if one.what == "task.claimed" or (one.what == "task.updated" and one.after in BEGUN):
            begun.setdefault(one.subject, one.seq)
    for task, wanted in rows(database, "SELECT task_id, depends_on_id FROM task_dependency"):
        if task in begun and done.get(wanted, begun[task]) >= begun[task]:
            yield f"{task} began at {begun[task]}, {wanted} was done at {done.get(wanted)}"


# Followers


def missed(wanted: Sequence[Row], seen: Sequence[Row]) -> Iterator[str]:
    """Events that a follower was not shown, and others that it was."""
    there, shown = set(wanted), set(seen)
    last = wanted[-1][0] if wanted else 0  # what came later, a follower may have been shown or not
    yield from (f"{one} was not shown" for one in sorted(there - shown))
    yield from (f"{one} was shown and is not there" for one in sorted(shown - there) if one[0] <= last)


def repeated(seen: Sequence[Row]) -> Iterator[str]:
    yield from (f"{later} after {one}" for one, later in pairwise(seen) if later[0] <= one[0])
