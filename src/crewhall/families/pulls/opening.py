"""
Opening a pull: all of it, or nothing that stays.

    repository ─▶ is there one already? ─▶ journal ─▶ branch and commit ─▶ pull ─▶ journal ─▶ labels
                                                            └── a failure here removes the branch
"""

import itertools
import json
from dataclasses import dataclass

from crewhall.app import Call
from crewhall.errors import Failure
from crewhall.families.pulls.journal import Entry, begin, beside, busy, second
from crewhall.families.pulls.providers import host as host_of
from crewhall.families.pulls.recovery import settle, settle_left
from crewhall.families.pulls.rules_change import branch_name, digest, is_same_title, stem
from crewhall.families.pulls.rules_change import branches_by_number as numbered
from crewhall.families.pulls.rules_rival import Rival, rivals
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import BranchChange, FileChange, HostRepository, Pull
from crewhall.outside.hosting.wire import Access
from crewhall.stop import Stop

UNDO_SECONDS = 30.0
MOST_RIVALS = 10  # pulls with the same files that the host is asked about


@dataclass(frozen=True)
class Wanted:
    """What a pull is to be."""

    owner: str
    name: str
    title: str
    body: str
    change_type: str
    base: str | None
    files: tuple[FileChange, ...]
    labels: tuple[str, ...]
    prefix: str


@dataclass(frozen=True)
class Opened:
    pull: Pull
    commit: str
    labels: list[str]
    warnings: list[str]


def open_pull(call: Call, access: Access, wanted: Wanted) -> Opened:
    """A new pull on the host. Raises Conflict when there is an open one for the same change, else what the host says.

    After a failure the message says whether anything is left; what is, the hub removes later (recovery.py).
    """
    held: list[Entry] = []

    def beat(seconds: float) -> None:
        for entry in held:
            entry.beat(seconds)

    with host_of(call, access, beat=beat) as host:
        repo = host.repository(wanted.owner, wanted.name)
        base = wanted.base or repo.default_branch
        entry, warnings = _begun(call, host, repo, wanted, base)
        held.append(entry)
        try:
            call.progress(1, 4, f"{access.title}: branch {entry.row['branch']}")
            commit = host.commit(repo, _change(entry, wanted, base))
            call.progress(2, 4, f"{access.title}: pull")
            pull = host.create_pull(repo, entry.row["branch"], base, wanted.title, wanted.body)
            entry.opened(pull)
        except Failure as failure:
            held.clear()
            pull = _undone(call, host, entry, failure)
            commit = pull.sha
        held.clear()
        unlabelled = _labelled(host, repo, pull, wanted.labels)
        return Opened(pull, commit, [] if unlabelled else list(wanted.labels), [*warnings, *unlabelled])


def _change(entry: Entry, wanted: Wanted, base: str) -> BranchChange:
    return BranchChange(base, entry.row["branch"], f"{wanted.title}\n\n{entry.mark}", entry.mark, wanted.files)


def _begun(call: Call, host: Host, repo: HostRepository, wanted: Wanted, base: str) -> tuple[Entry, list[str]]:
    """The journal's row for a branch whose name is free, and what is worth a warning. Raises Conflict."""
    place = {"host": host.access.web, "owner": repo.owner, "name": repo.name, "base_branch": base}
    settle_left(host, call.hub, repo)
    taken = _taken(host, repo, wanted)
    others = beside(call.hub, place)  # before the host is asked: who is done by then has a pull there
    _refuse_title(host.open_pulls(repo, list(taken.values()), base), wanted.title)
    paths = {file.path: file.action for file in wanted.files}
    summed = digest(base, [(file.path, file.action, file.content) for file in wanted.files])
    ended, warnings = _refuse_rivals(host, repo, rivals(wanted.title, summed, paths, others), call.hub.clock())
    free = next(n for n in itertools.count(1) if n not in taken)
    row = {"branch": _named(wanted, free), "title": wanted.title, "change_type": wanted.change_type}
    kept = {"provider": host.access.kind, "digest": summed, "paths": json.dumps(paths)}
    return begin(call, {**place, **row, **kept}, ended), warnings


def _named(wanted: Wanted, n: int) -> str:
    return branch_name(wanted.prefix, wanted.change_type, wanted.title, n)


def _taken(host: Host, repo: HostRepository, wanted: Wanted) -> dict[int, str]:
    """The branches that are named as this change's would be, by number. They are older pulls', or somebody's own."""
    listed = host.branches(repo, stem(wanted.prefix, wanted.change_type, wanted.title))
    return numbered(wanted.prefix, wanted.change_type, wanted.title, listed)


def _refuse_title(pulls: list[Pull], title: str) -> None:
    for pull in pulls:
        if is_same_title(pull.title, title):
            raise second(pull.number, pull.url, pull.branch, "with the same title")


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


def _undone(call: Call, host: Host, entry: Entry, failure: Failure) -> Pull:
    """The pull that the host made all the same; else the failure is raised, and says what became of the branch."""
    branch, title = entry.row["branch"], host.access.title
    try:
        pull = None
        if host.session.has_written:
            with host_of(call, host.access, Stop(UNDO_SECONDS)) as again:
                pull = settle(again, entry)
    except Failure as worse:
        entry.left()
        told = f"The branch '{branch}' may be left on {title}, and the hub will look again: {worse.message}"
        raise _told(failure, told, branch) from failure
    if pull is not None:
        return pull
    if host.session.is_unanswered:
        entry.left()
        told = f"No pull is open now. {title} may still make the branch '{branch}'; the hub will look and remove it"
        raise _told(failure, told, branch) from failure
    entry.given_up()
    raise _told(failure, "No pull was opened, and no branch is left", branch) from failure


def _told(failure: Failure, more: str, branch: str) -> Failure:
    return type(failure)(
        f"{failure.message.rstrip('.')}. {more}", hint=failure.hint, **{**failure.fields, "branch": branch}
    )


def _labelled(host: Host, repo: HostRepository, pull: Pull, labels: tuple[str, ...]) -> list[str]:
    """Put the labels on; what goes wrong here is told, for the pull is open."""
    try:
        if labels:
            host.label(repo, pull.number, labels)
    except Failure as failure:
        return [f"the labels {', '.join(labels)} were not put on: {failure.message}"]
    return []
