"""
The operation that makes one issue on a host: found again by a mark in its text, so that no retry makes a second one.

    issue: looked for, then made      a host that has it after all keeps it
"""

import json
from contextlib import AbstractContextManager
from typing import Any, cast

from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.steps import COMMON, Change, NodeWorld
from crewhall.families.pulls.providers import host_at
from crewhall.families.review.family import review
from crewhall.families.review.model import IssueRow
from crewhall.families.review.pull_target import pull_target
from crewhall.journal import LAST_LOOK_MS, Happened, Step
from crewhall.outside.git import open_repository
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import HostIssue, HostRepository
from crewhall.outside.hosting.wire import Patience
from crewhall.stop import Stop
from crewhall.store.transaction import Row, Tx

SECONDS = 30.0  # for a host, when a chore settles what was left


def mark_of(issue_id: str) -> str:
    """What an issue's text ends with, unseen by a reader of the page."""
    return f"<!-- crewhall:{issue_id} -->"


def _make(world: NodeWorld, operation: Change) -> Row:
    row = _row(operation)
    with _host(world, operation) as host:
        there = host.repository(*row["repository"].split("/"))
        found = host.find_issue(there, mark_of(row["id"]))
        text = f"{row['body']}\n\n{mark_of(row['id'])}".lstrip()
        return _facts(found or host.create_issue(there, row["title"], text, json.loads(row["labels"])))


def _keep(world: NodeWorld, operation: Change) -> None:
    row = _row(operation)
    with _host(world, operation) as host:
        found = host.find_issue(HostRepository(*row["repository"].split("/")), mark_of(row["id"]))
    if found is not None:
        raise Happened(_facts(found))


def _row(operation: Change) -> IssueRow:
    return cast(IssueRow, operation.journal.store.one("issue_get", id=operation.subject))


def _host(world: NodeWorld, operation: Change) -> AbstractContextManager[Host]:
    instance = cast(InstanceRow, operation.journal.store.one("instance_get", id=operation.data["instance_id"]))
    target = pull_target(open_repository(instance["repository_path"], world.stop), world.settings)
    return host_at(target.access, Patience(world.stop or Stop(SECONDS), world.settings["pulls.pause"]))


def _facts(issue: HostIssue) -> Row:
    return {"number": issue.number, "url": issue.url}


def note_issue(tx: Tx, operation: Change) -> None:
    """The host has the issue."""
    facts = {name: operation.data[name] for name in ("number", "url")}
    tx.run("issue_made", id=operation.subject, **facts)
    tx.event("issue.created", operation.data["instance_id"], data=json.dumps({"number": facts["number"]}))


def forget_issue(tx: Tx, operation: Change) -> None:
    """The host does not have the issue."""
    tx.run("issue_delete", id=operation.subject)


_OWN: dict[str, Any] = {**COMMON, "noun": "issue", "look": "create_issues"}
OPENING_ISSUE = review.operation(
    "issue_open",
    steps=(Step("issue", _make, _keep, note_issue),),
    late_ms=LAST_LOOK_MS,
    on_undone=forget_issue,
    **_OWN,
)
