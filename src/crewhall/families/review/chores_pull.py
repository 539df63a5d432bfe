"""A chore that follows the pull requests of instances: merged ones are done, closed ones can go on."""

import json
import logging

from crewhall.app import Tick
from crewhall.errors import Failure
from crewhall.families.crew.instance_rows import locked_row
from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.rules import LIVE
from crewhall.families.crew.steps import end_later
from crewhall.families.pulls.providers import host_at
from crewhall.families.review.family import review
from crewhall.families.review.pull_target import PullTarget, pull_target, target_at
from crewhall.families.review.review_rows import set_status
from crewhall.outside.git import open_repository
from crewhall.outside.hosting.model import HostRepository
from crewhall.outside.hosting.wire import Patience
from crewhall.stop import Part

HOST_SECONDS = 10.0  # for one pull
log = logging.getLogger(__name__)


@review.chore("instance_pulls", seconds=60.0, everywhere=True, limit_seconds=300.0)
def follow_pulls(tick: Tick) -> None:
    """End the instances whose pull request was merged, and note those whose was closed."""
    with tick.look() as look:
        rows: list[InstanceRow] = look.all("instances_with_pulls")
    for row in rows:
        if row["node"] != tick.settings.node:
            continue
        try:
            _note(tick, row, _state(tick, row))
        except Failure as failure:
            log.info("a pull can't be followed", extra={"instance": row["id"], "reason": failure.message})


def _state(tick: Tick, row: InstanceRow) -> str | None:
    target = _target(tick, row)
    patience = Patience(Part(tick.stop, HOST_SECONDS), tick.settings["pulls.pause"])
    assert row["pull_number"] is not None
    with host_at(target.access, patience) as host:
        found = host.brief(HostRepository(target.remote.owner, target.remote.name), row["pull_number"])
    return None if found is None else found.state


def _target(tick: Tick, row: InstanceRow) -> PullTarget:
    """Where the pull was opened: any agent may have led the remote elsewhere since."""
    opened_at = (row["pull_url"] or "").rsplit("/", 2)[0]
    found = target_at(opened_at, tick.settings)  # none if the host has another address for browsers
    return found or pull_target(open_repository(row["repository_path"], tick.stop), tick.settings)


def _note(tick: Tick, row: InstanceRow, state: str | None) -> None:
    if state not in ("merged", "closed"):
        return
    with tick.begin() as tx:
        fresh = locked_row(tx, row["id"])
        if fresh["status"] not in LIVE or tx.all("operations_on", subject=row["id"]):
            return
        if state == "merged":
            end_later(tick.hub.journal, tx, fresh, "pr_merged")
            return
        if fresh["status"] != "pr_created":
            return  # it works on: the next pull request is another
        set_status(tx, fresh, "pr_closed")
        data = json.dumps({"number": row["pull_number"]})
        tx.event("instance.pull_closed", row["id"], before="pr_created", after="pr_closed", data=data)
