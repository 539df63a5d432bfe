"""Issues that a planning instance makes on its repository's host, from a list or a plan file (seed 000)."""

import json
from collections.abc import Sequence
from typing import Annotated, cast

from pydantic import Field

from crewhall.app import Call
from crewhall.errors import Failure, InvalidInput, TimedOut, Unavailable
from crewhall.families.crew.model import InstanceId, InstanceRow
from crewhall.families.crew.rules import LIVE, refuse_status
from crewhall.families.crew.site import refuse_elsewhere
from crewhall.families.crew.steps import Change, NodeWorld
from crewhall.families.project.rules_file import refuse_secret_name, refuse_secret_text, text_of
from crewhall.families.pulls.rules_remote import refuse_names
from crewhall.families.review.callers import calling_instance, note_caller
from crewhall.families.review.family import review
from crewhall.families.review.issue_steps import OPENING_ISSUE
from crewhall.families.review.model import IssueFailed, IssueGiven, IssueMade, IssueRow, IssuesMade
from crewhall.families.review.pull_target import pull_target, refuse_repository
from crewhall.families.review.rules_plan_file import MOST, issues_in
from crewhall.identity import new_id
from crewhall.outside.files import open_root, read_start
from crewhall.outside.git import open_repository
from crewhall.outside.processes import own_name
from crewhall.stop import Stop

PLAN_BYTES = 1_000_000
UNDO_SECONDS = 15.0

Issues = Annotated[list[IssueGiven], Field(min_length=1, max_length=MOST)]
PlanFile = Annotated[str, Field(min_length=1, max_length=1_000, description="In your worktree; each ## is an issue.")]
HostName = Annotated[str, Field(min_length=1, max_length=100)]


@review.tool(
    "create_issues",
    changes=True,
    pace="long",
    outward=True,
    who=("operator", "planning"),
    profiles=("planning", "coordinator"),
    notes=note_caller,
    command="issue create",
)
def create_issues(
    call: Call,
    issues: Issues | None = None,
    plan_file: PlanFile | None = None,
    repo_owner: HostName | None = None,
    repo_name: HostName | None = None,
    instance_id: InstanceId | None = None,
) -> IssuesMade:
    """Make issues on your repository's host, from a list or from a plan file. Safe to repeat: a title is made once.

    Give issues or plan_file. Without repo_owner and repo_name it is the repository of your remote. Only the operator
    gives instance_id.
    """
    planner = calling_instance(call, instance_id, ("planning",))
    refuse_elsewhere(call.settings, planner)
    refuse_status(planner["id"], planner["status"], LIVE, "given issues")
    wanted = _issues_to_make(call, planner, issues, plan_file)
    repository = _repository(call, planner, repo_owner, repo_name)
    made: list[IssueMade] = []
    failures: list[tuple[str, Failure]] = []
    for number, one in enumerate(wanted, 1):
        call.progress(number, len(wanted), one.title[:100])
        try:
            made.append(_make_once(call, planner, repository, one))
        except Failure as failure:
            failures.append((one.title, failure))
    if failures and not made:
        failures[0][1].fields.setdefault("instance_id", planner["id"])
        raise failures[0][1]
    failed = [IssueFailed(title=title, code=one.code, message=one.message[:500]) for title, one in failures]
    return IssuesMade(issues=made, failed=failed)


def _issues_to_make(
    call: Call, planner: InstanceRow, issues: list[IssueGiven] | None, plan_file: str | None
) -> list[IssueGiven]:
    if (issues is None) == (plan_file is None):
        raise InvalidInput("give either issues or plan_file", hint="A list of titles and texts, or a file with them.")
    if plan_file is None:
        return issues or []
    return issues_in(_read_plan(planner["worktree"], plan_file, call.settings["project.allow"]), plan_file)


def _read_plan(worktree: str, plan_file: str, allow: Sequence[str]) -> str:
    """The plan's text. A link is judged by what it leads to: its text goes to the host."""
    with open_root(worktree) as top, top.file(plan_file) as file:
        refuse_secret_name(file.path, allow)
        data = read_start(file, PLAN_BYTES + 1)
    try:
        text = data.decode() if len(data) <= PLAN_BYTES else ""
    except UnicodeDecodeError:
        text = ""
    if not text:
        raise InvalidInput(
            f"{plan_file[:200]} is no text of 1 to {PLAN_BYTES} bytes", hint="Give a Markdown file in UTF-8."
        )
    refuse_secret_text(text_of(data, file.path), file.path, allow)
    return text


def _repository(call: Call, planner: InstanceRow, owner: str | None, name: str | None) -> str:
    """The repository on the host, as owner/name. Raises Unavailable when no host is set up for it."""
    if (owner is None) != (name is None):
        raise InvalidInput("repo_owner and repo_name go together", hint="Give both, or neither.")
    target = pull_target(open_repository(planner["repository_path"], call.stop), call.settings)
    if owner is None or name is None:
        return f"{target.remote.owner}/{target.remote.name}"
    refuse_names(owner, name)
    refuse_repository(call.settings, owner, name)
    return f"{owner}/{name}"


def _make_once(call: Call, planner: InstanceRow, repository: str, one: IssueGiven) -> IssueMade:
    """The issue of that title, made now or by an earlier call. Raises Conflict while another call makes it."""
    key = {"instance_id": planner["id"], "repository": repository, "title": one.title}
    with call.begin_midway() as tx:
        tx.run("hall_lock")
        known = cast(IssueRow | None, tx.one("issue_find", **key))
        if known is not None and known["number"] is not None and known["url"] is not None:
            return IssueMade(title=one.title, number=known["number"], url=known["url"], created=False)
        issue_id = known["id"] if known else new_id("is")
        if known is None:
            tx.run("issue_insert", id=issue_id, body=one.body, labels=json.dumps(one.labels), now=tx.now, **key)
        data = {"instance_id": planner["id"]}
        operation = call.hub.journal.begin(
            tx, OPENING_ISSUE, issue_id, place=planner["node"], data=data, holder=own_name()
        )
    try:
        call.hub.journal.carry_out(operation, NodeWorld(call.settings, call.stop))
    except Failure as failure:
        _settle(call, operation, is_sure=not isinstance(failure, Unavailable | TimedOut))
        raise
    return IssueMade(title=one.title, number=operation.data["number"], url=operation.data["url"], created=True)


def _settle(call: Call, operation: Change, *, is_sure: bool) -> None:
    """Undo what may have happened; a chore looks again where the host may still do it."""
    try:
        call.hub.journal.take_back(operation, NodeWorld(call.settings, Stop(UNDO_SECONDS)), is_sure=is_sure)
    except Failure:
        operation.leave()
