"""
Opening a pull: all of it, or nothing that stays.

    repository ─▶ is there one already? ─▶ begin ─▶ branch and commit ─▶ pull ─▶ labels        (steps.py)
                                                       └── a failure here removes the branch
"""

import itertools
import json
from dataclasses import dataclass

from crewhall.app import Call
from crewhall.errors import Failure
from crewhall.families.pulls.providers import accesses
from crewhall.families.pulls.providers import host as host_of
from crewhall.families.pulls.pull_rows import begin, beside, busy, elsewhere, get_pull, is_known, place_on, second
from crewhall.families.pulls.rules_change import (
    branch_name,
    branches_by_number,
    digest,
    is_same_title,
    marked_for,
    stem,
)
from crewhall.families.pulls.rules_rival import Rival, rivals
from crewhall.families.pulls.steps import OPENING, HostWorld, Opening, Wanted
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import HostRepository, Pull
from crewhall.outside.hosting.wire import Access
from crewhall.stop import Stop
from crewhall.store.transaction import Row

UNDO_SECONDS = 30.0
MOST_RIVALS = 10  # pulls with the same files that the host is asked about
MOST_HEADS = 10  # branches without an open pull that the host is asked about


@dataclass(frozen=True)
class OpenedPull:
    """A pull that is open now."""

    number: int
    url: str
    branch: str
    base: str
    commit: str
    labels: list[str]
    warnings: list[str]


def open_pull(call: Call, access: Access, wanted: Wanted) -> OpenedPull:
    """A new pull on the host. Raises Conflict when there is an open one for the same change, else what the host says.

    After a failure the message says whether anything is left; what is, the hub removes later (steps.py).
    """
    held: list[Opening] = []

    def beat(seconds: float) -> None:
        for operation in held:
            operation.beat(seconds)

    with host_of(call, access, beat=beat) as host:
        repo = host.repository(wanted.owner, wanted.name)
        base = wanted.base or repo.default_branch
        operation, warnings = _begin(call, host, repo, wanted, base)
        branch = str(get_pull(operation)["branch"])
        held.append(operation)
        try:
            call.hub.journal.carry_out(operation, HostWorld(host, wanted.labels, wanted, progress=call.progress))
        except Failure as failure:
            held.clear()
            _undo(call, host, operation, wanted, branch, failure)
        return _to_result(operation.data, wanted, branch, base, warnings)


def _to_result(data: Row, wanted: Wanted, branch: str, base: str, warnings: list[str]) -> OpenedPull:
    unlabelled = [data["warning"]] if "warning" in data else []
    return OpenedPull(
        number=data["number"],
        url=data["url"],
        branch=branch,
        base=base,
        commit=data["commit"] if "commit" in data else data["commit_id"],
        labels=[] if unlabelled else list(wanted.labels),
        warnings=[*warnings, *unlabelled],
    )


def _begin(call: Call, host: Host, repo: HostRepository, wanted: Wanted, base: str) -> tuple[Opening, list[str]]:
    """The operation for a branch whose name is free, and what is worth a warning. Raises Conflict."""
    place = {"host": host.access.web, "owner": repo.owner, "name": repo.name, "base_branch": base}
    call.hub.journal.settle_left(OPENING, place_on(host.access.web, repo), HostWorld(host, wanted.labels))
    taken = _branches_taken(host, repo, wanted)
    others = beside(call, place)  # before the host is asked: who is done by then has a pull there
    pulls = host.open_pulls(repo, list(taken.values()), base)
    _refuse_title(pulls, wanted.title)
    paths = {file.path: file.action for file in wanted.files}
    summed = digest(base, [(file.path, file.action, file.content) for file in wanted.files])
    ended, warnings = _refuse_rivals(host, repo, rivals(wanted.title, summed, paths, others), call.later())
    _refuse_elsewhere(call, host, repo, wanted.title, base, _without_pull(taken, pulls))
    free = next(n for n in itertools.count(1) if n not in taken)
    row = {"branch": _name_branch(wanted, free), "title": wanted.title, "change_type": wanted.change_type}
    kept = {"provider": host.access.kind, "digest": summed, "paths": json.dumps(paths)}
    return begin(call, OPENING, {**place, **row, **kept}, ended), warnings


def _name_branch(wanted: Wanted, n: int) -> str:
    return branch_name(wanted.prefix, wanted.change_type, wanted.title, n)


def _branches_taken(host: Host, repo: HostRepository, wanted: Wanted) -> dict[int, str]:
    """The branches that are named as this change's would be, by number. They are older pulls', or somebody's own."""
    listed = host.branches(repo, stem(wanted.prefix, wanted.change_type, wanted.title))
    return branches_by_number(wanted.prefix, wanted.change_type, wanted.title, listed)


def _refuse_title(pulls: list[Pull], title: str) -> None:
    for pull in pulls:
        if is_same_title(pull.title, title):
            raise second(pull.number, pull.url, pull.branch, "with the same title")


def _without_pull(taken: dict[int, str], pulls: list[Pull]) -> list[str]:
    """The taken branches without an open pull, the highest number first.

    A hall takes the lowest free number. That is the highest of all, unless somebody has deleted a branch before it.
    """
    opened = {pull.branch for pull in pulls}
    return [taken[n] for n in sorted(taken, reverse=True) if taken[n] not in opened]


def _refuse_elsewhere(call: Call, host: Host, repo: HostRepository, title: str, base: str, branches: list[str]) -> None:
    """Raise Conflict for a branch that another hall has made for the same title, and which has no pull yet.

    A person's branch has no mark, and one of this hall's own is known by its row: of these only the head is read.
    """
    for branch in branches[:MOST_HEADS]:
        head = host.head(repo, branch)
        id = None if head is None else marked_for(head.message, title)
        if id is None or is_known(call, id):
            continue
        pull = host.newest_pull(repo, branch)
        if pull is None:
            raise elsewhere(branch)
        if pull.state == "open" and pull.base == base:  # opened since the open ones were read
            _refuse_title([pull], title)


def _refuse_rivals(host: Host, repo: HostRepository, found: list[Rival], now: int) -> tuple[set[str], list[str]]:
    """Raise Conflict for a pull that is in the way; the rows of ended ones, and what to tell of the others."""
    ended, warnings = set(), []
    for rival in found[:MOST_RIVALS]:
        if rival.row["state"] == "opening":
            if rival.is_in_the_way and rival.row["lease_until"] > now:
                raise busy(rival.row, now)
            continue
        pull = host.brief(repo, rival.row["number"])
        if pull is None or pull.state != "open":
            ended.add(rival.row["id"])
        elif rival.is_in_the_way:
            raise second(pull.number, pull.url, pull.branch, rival.why)
        else:
            warnings.append(f"pull {pull.number} is open {rival.why}: {pull.url}")
    return ended, warnings


def _undo(call: Call, host: Host, operation: Opening, wanted: Wanted, branch: str, failure: Failure) -> None:
    """Undo what there is on the host. Raises the failure, with what became of the branch.

    It does not where the host has the pull after all.
    """
    title, is_unanswered = host.access.title, host.session.is_unanswered
    try:
        if not host.session.has_written:
            operation.drop()
        else:
            with host_of(call, host.access, Stop(UNDO_SECONDS)) as again:
                world = HostWorld(again, wanted.labels, wanted, label_host=host)
                if call.hub.journal.take_back(operation, world, is_sure=not is_unanswered):
                    return
    except Failure as worse:
        operation.leave()
        more = f"The branch '{branch}' may be left on {title}: {worse.message.rstrip('.')}. {_later(call, host)}"
        raise _with_outcome(failure, more, branch) from failure
    if is_unanswered:
        more = f"No pull is open now. {title} may still make the branch '{branch}'. {_later(call, host)}"
    else:
        more = "No pull was opened, and no branch is left"
    raise _with_outcome(failure, more, branch) from failure


def _later(call: Call, host: Host) -> str:
    """Who removes a branch that is left, or comes late: the hub itself needs a token of its own for that."""
    own = accesses(call.settings, {}).values()
    if any(access.web == host.access.web for access in own):
        return "The hub looks again, and removes it"
    return (
        f"The hub has no token of its own for {host.access.web}: it removes the branch when a client that brings one "
        "next proposes a change to this repository. Until then the branch stays, unless you delete it"
    )


def _with_outcome(failure: Failure, more: str, branch: str) -> Failure:
    return type(failure)(
        f"{failure.message.rstrip('.')}. {more}", hint=failure.hint, **{**failure.fields, "branch": branch}
    )
