"""
The operation that opens an instance's pull request: its steps, how each is done, and how it is undone.

    clean: no feedback file on the branch ─▶ push ─▶ pull        once the host has the pull, it stays
"""

import json
from contextlib import AbstractContextManager
from typing import cast

from crewhall.errors import InvalidState
from crewhall.families.crew.instance_rows import locked_row
from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.steps import COMMON, Change, NodeWorld, end_later
from crewhall.families.pulls.providers import host_at
from crewhall.families.pulls.rules_scope import refuse_branch_paths
from crewhall.families.review.family import review
from crewhall.families.review.feedback_file import NAME
from crewhall.families.review.items import write_states
from crewhall.families.review.model import RoundRow
from crewhall.families.review.pull_target import PullTarget, changed_paths, pull_target, refuse_unseen, target_at
from crewhall.families.review.review_rows import set_status, tell_approval
from crewhall.families.review.rules import PULL
from crewhall.journal import Happened, Step
from crewhall.outside.file_commits import Hindered, OneFileChange, advance
from crewhall.outside.git import GitRepository, open_repository
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import HostRepository, Pull
from crewhall.outside.hosting.wire import Patience
from crewhall.outside.pushing import delete_remote_branch, push_branch
from crewhall.stop import Stop
from crewhall.store.transaction import Row, Tx

SECONDS = 30.0  # for a host, when a chore settles what was left


def _clean(world: NodeWorld, operation: Change) -> None:
    coder, repo, _ = _place(world, operation)
    if not _has_feedback(repo, f"refs/heads/{coder['branch']}"):
        return
    change = OneFileChange(
        NAME, None, "Remove the review feedback", f"{operation.id}-clean", operation.row["created_at"]
    )
    try:
        advance(repo, coder["worktree"], coder["branch"], change)
    except Hindered as hindered:
        raise InvalidState(hindered.message, hint=hindered.hint, instance_id=coder["id"]) from None


def _has_feedback(repo: GitRepository, rev: str) -> bool:
    """Whether a commit has the file; a directory of that name is the coder's own."""
    return repo.git("cat-file", "-t", f"{rev}:{NAME}").out == b"blob\n"


def _stay(world: NodeWorld, operation: Change) -> None:
    """Nothing: the file is not needed any more."""


def _push(world: NodeWorld, operation: Change) -> Row:
    coder, repo, target = _place(world, operation)
    with _host(world, target) as host:
        there = host.head(_repository(target), coder["branch"])
    tip = repo.commit_of(f"refs/heads/{coder['branch']}")
    if tip is not None:
        _refuse_feedback(repo, coder, tip)
        refuse_unseen(repo, coder, operation.data.get("reviewed"), tip)
        _refuse_paths(world, operation, coder, repo, target, tip)
    token = target.access.token
    push_branch(repo, target.url, coder["branch"], token=token, expected=None, stop=world.stop, commit=tip)
    return {"pushed": tip, "was": operation.data.get("was", there and there.sha)}


def _refuse_feedback(repo: GitRepository, coder: InstanceRow, tip: str) -> None:
    """Raise InvalidState if the feedback is on the branch again: some that waited may be merged at any time."""
    if _has_feedback(repo, tip):
        raise InvalidState(
            f"{NAME} was put on {coder['branch']} just now",
            hint="Read it; then call create_pull_request again, or fix what it asks for first.",
            instance_id=coder["id"],
        )


def _refuse_paths(
    world: NodeWorld, operation: Change, coder: InstanceRow, repo: GitRepository, target: PullTarget, tip: str
) -> None:
    """Raise Forbidden for what the very commit that is pushed may not change: its branch may have moved since."""
    base, base_commit = operation.data["base_branch"], operation.data.get("base_commit", "")
    paths = changed_paths(repo, target, coder, base, base_commit, tip)
    refuse_branch_paths(paths, world.settings["pulls.branch_deny"], world.settings["pulls.branch_allow"])


def _delete_pushed(world: NodeWorld, operation: Change) -> None:
    """Remove a branch that the push made; one that the host had before stays."""
    coder, repo, target = _place(world, operation)
    with _host(world, target) as host:
        there = host.head(_repository(target), coder["branch"])
    ours = operation.data.get("pushed") or repo.commit_of(f"refs/heads/{coder['branch']}")
    if there is not None and there.sha == ours and operation.data.get("was") is None and ours:
        delete_remote_branch(
            repo, target.url, coder["branch"], token=target.access.token, expected=ours, stop=world.stop
        )


def _open(world: NodeWorld, operation: Change) -> Row:
    coder, _, target = _place(world, operation)
    data, there = operation.data, _repository(target)
    with _host(world, target) as host:
        found = host.open_pull(there, coder["branch"], data["base_branch"])
        return _facts(
            found or host.create_pull(there, coder["branch"], data["base_branch"], data["title"], data["description"])
        )


def _keep_pull(world: NodeWorld, operation: Change) -> None:
    coder, _, target = _place(world, operation)
    with _host(world, target) as host:
        found = host.open_pull(_repository(target), coder["branch"], operation.data["base_branch"])
    if found is not None:
        raise Happened(_facts(found))


def _facts(pull: Pull) -> Row:
    return {"number": pull.number, "url": pull.url}


def _repository(target: PullTarget) -> HostRepository:
    return HostRepository(target.remote.owner, target.remote.name)


def _host(world: NodeWorld, target: PullTarget) -> AbstractContextManager[Host]:
    return host_at(target.access, Patience(world.stop or Stop(SECONDS), world.settings["pulls.pause"]))


def _place(world: NodeWorld, operation: Change) -> tuple[InstanceRow, GitRepository, PullTarget]:
    coder = cast(InstanceRow, operation.journal.store.one("instance_get", id=operation.subject))
    repo = open_repository(coder["repository_path"], world.stop)
    pinned = target_at(operation.data.get("remote_url", ""), world.settings)  # an agent can move its remote meanwhile
    return coder, repo, pinned or pull_target(repo, world.settings)


def note_pull(tx: Tx, operation: Change) -> None:
    """The host has the pull: the instance says so, and whoever reviewed it is ended."""
    data = operation.data
    under_way: RoundRow | None = tx.one("review_open", coder=operation.subject)
    child = under_way and under_way["child_instance"]
    reviewer: InstanceRow | None = tx.one("instance_lock", id=child) if child else None  # before its coder
    coder = locked_row(tx, operation.subject)
    own = {"number": data["number"], "url": data["url"], "now": tx.now}
    tx.run("instance_pull_set", id=coder["id"], **own)
    set_status(tx, coder, "pr_created")
    facts = {"before": coder["status"], "after": "pr_created", "commit": data["pushed"]}
    tx.event("instance.pull_opened", coder["id"], **facts, data=json.dumps({"number": data["number"]}))
    if child is None:
        return
    outcome = "approved" if data["by"] == child else "withdrawn"
    is_open = tx.count("review_end", reviewer=child, outcome=outcome, type="spawned_review", now=tx.now)
    if not is_open or reviewer is None:
        return
    if outcome == "approved":
        tx.run("review_converged", reviewer=reviewer["id"], converged=1)
        write_states(tx, data.get("states", ()))
        tell_approval(tx, coder, operation)
    tx.run("instance_pull_set", id=reviewer["id"], **own)
    if not tx.all("operations_on", subject=reviewer["id"]):
        end_later(operation.journal, tx, reviewer, "terminated")


PULLING = review.operation(
    PULL,
    steps=(
        Step("clean", _clean, _stay),
        Step("push", _push, _delete_pushed),
        Step("pull", _open, _keep_pull, note_pull),
    ),
    **COMMON,
)
