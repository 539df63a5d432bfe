"""
The operation that opens a pull: its steps, how each is done, and how it is undone.

    branch and commit ─▶ pull ─▶ labels         once the pull is open, it is never undone

Whoever settles one that was left looks at the host, and finishes or removes what is there. A host that did not answer
may do what it was asked minutes later, so it is looked at more than once.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from crewhall.app import Tick
from crewhall.errors import Failure
from crewhall.families.pulls.family import pulls
from crewhall.families.pulls.providers import accesses, host_at
from crewhall.families.pulls.pull_rows import StoredPull, find_pull, get_pull, note_failed, note_left, note_opened
from crewhall.families.pulls.rules_change import mark_of
from crewhall.journal import LAST_LOOK_MS, Happened, Operation, Step
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import BranchChange, FileChange, HostRepository, Pull
from crewhall.outside.hosting.wire import Access, Patience
from crewhall.stop import Part, Stop
from crewhall.store.transaction import Row

SECONDS = 10.0  # for all that is left on all hosts, in one run of the chore


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
class HostWorld:
    """A host to act on. `wanted` is known to the call that opens the pull, and to nobody who settles it later.

    Labels are not worth waiting for beyond the call's own time: `label_host` keeps to it where `host` does not.
    """

    host: Host
    labels: tuple[str, ...]
    wanted: Wanted | None = None
    label_host: Host | None = None
    progress: Callable[[float, float, str], None] = lambda done, total, text: None


Opening = Operation[HostWorld]


def _make_branch(world: HostWorld, operation: Opening) -> Row:
    row, wanted, mark = get_pull(operation), world.wanted, mark_of(operation.subject)
    assert wanted is not None, "a branch that was not made is undone, never made by another"
    world.progress(1, 4, f"{world.host.access.title}: branch {row['branch']}")
    change = BranchChange(row["base_branch"], row["branch"], f"{wanted.title}\n\n{mark}", mark, wanted.files)
    return {"commit": world.host.commit(_repository(row), change)}


def _remove_branch(world: HostWorld, operation: Opening) -> None:
    row = find_pull(operation)
    if row is not None and _has_our_branch(world.host, operation, row):
        world.host.delete_branch(_repository(row), row["branch"])


def _open_pull(world: HostWorld, operation: Opening) -> Row:
    row, wanted = get_pull(operation), world.wanted
    assert wanted is not None, "a pull that was not opened is undone, never opened by another"
    world.progress(2, 4, f"{world.host.access.title}: pull")
    return _facts(
        world.host.create_pull(_repository(row), row["branch"], row["base_branch"], wanted.title, wanted.body)
    )


def _keep_pull(world: HostWorld, operation: Opening) -> None:
    """A pull can't be taken back: where the host has it after all, it stays."""
    row = find_pull(operation)
    if row is not None and _has_our_branch(world.host, operation, row):
        pull = world.host.open_pull(_repository(row), row["branch"], row["base_branch"])
        if pull is not None:
            raise Happened(_facts(pull))


def _label(world: HostWorld, operation: Opening) -> Row:
    """Put the labels on; what goes wrong here is reported and no more, for the pull is open."""
    host = world.label_host or world.host
    try:
        if world.labels:
            host.label(_repository(get_pull(operation)), operation.data["number"], world.labels)
    except Failure as failure:
        return {"warning": f"the labels {', '.join(world.labels)} were not put on: {failure.message}"}
    return {}


def _keep_labels(world: HostWorld, operation: Opening) -> None:
    """Nothing: labels go with their pull."""


def _has_our_branch(host: Host, operation: Opening, row: StoredPull) -> bool:
    """Whether the branch is there and ours; one of the same name may be somebody else's."""
    repo = _repository(row)
    host.repository(repo.owner, repo.name)  # a token that may not see it would find no branch there either
    head = host.head(repo, row["branch"])
    return head is not None and mark_of(operation.subject) in head.message


def _repository(row: StoredPull) -> HostRepository:
    return HostRepository(row["owner"], row["name"])


def _facts(pull: Pull) -> Row:
    return {"number": pull.number, "url": pull.url, "commit_id": pull.sha}


def _reach(tick: Tick) -> Iterator[tuple[str, AbstractContextManager[HostWorld]]]:
    """Every host for which this hub has a token of its own; others are settled when a client brings one."""
    stop = Part(tick.stop, SECONDS)
    for access in accesses(tick.settings, {}).values():
        yield access.web, _world(tick, access, stop)


@contextmanager
def _world(tick: Tick, access: Access, stop: Stop) -> Iterator[HostWorld]:
    with host_at(access, Patience(stop, tick.settings["pulls.pause"])) as host:
        yield HostWorld(host, tick.settings["pulls.labels"])


OPENING = pulls.operation(
    "pull_open",
    noun="pull",
    look="list_prs",
    steps=(
        Step("branch", _make_branch, _remove_branch),
        Step("pull", _open_pull, _keep_pull, note_opened),
        Step("labels", _label, _keep_labels),
    ),
    reach=_reach,
    keeps="pull",
    late_ms=LAST_LOOK_MS,
    on_left=note_left,
    on_undone=note_failed,
)
