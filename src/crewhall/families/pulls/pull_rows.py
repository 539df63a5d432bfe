"""
Pulls in the hall's own table: a row from before the first change on the host.

    opening ── the host has it ──▶ open ── it is closed or merged ──▶ ended
       └── left: it blocks nobody, and is settled later (steps.py); a row of which nothing came goes
"""

import json
from collections.abc import Collection
from typing import Any, Literal, TypedDict, cast

from crewhall.app import Call
from crewhall.errors import Conflict
from crewhall.identity import new_id
from crewhall.journal import LAST_LOOK_MS, Kind, Operation
from crewhall.outside.hosting.model import HostRepository
from crewhall.store.transaction import Row, Tx


class StoredPull(TypedDict):
    """A pull as the database has it."""

    id: str
    provider: str
    host: str
    owner: str
    name: str
    branch: str
    base_branch: str
    title: str
    change_type: str
    digest: str
    paths: str
    state: Literal["opening", "left", "open", "ended"]
    number: int | None
    url: str | None
    commit_id: str | None
    actor: str
    holder: str
    lease_until: int
    created_at: int
    updated_at: int


def begin(call: Call, kind: Kind[Any], fields: Row, ended: Collection[str]) -> Operation[Any]:
    """The operation that opens a pull, noted with its row. Raises Conflict when another call opens the same change.

    `ended` are the rows of pulls with the same files that are open no longer.
    """
    id = new_id("pl")
    same = {key: fields[key] for key in ("host", "owner", "name", "digest")}
    with call.begin_midway() as tx:
        now = tx.now
        # Hubs of the release before this one know no journal, and take what has an old lease for dead.
        old = {"holder": call.id, "lease_until": now + LAST_LOOK_MS}
        if tx.one("pull_begin", id=id, actor=call.actor.id, **fields, **old, now=now) is None:
            raise busy(tx.one("pull_in_the_way", **same, branch=fields["branch"]), now, fields["branch"])
        for other in tx.all("pulls_beside", **place_of(fields)):
            if other["state"] == "open" and other["digest"] == fields["digest"] and other["id"] not in ended:
                raise second(other["number"], other["url"], other["branch"], "with the same files")
        for one in ended:
            tx.run("pull_ended", id=one, now=now)
        place = place_on(fields["host"], HostRepository(fields["owner"], fields["name"]))
        return call.hub.journal.begin(tx, kind, id, place=place, data={}, holder=call.id)


def place_of(row: Row) -> Row:
    """Into which branch of which repository a pull is to be merged."""
    return {key: row[key] for key in ("host", "owner", "name", "base_branch")}


def place_on(host: str, repo: HostRepository) -> str:
    """Where operations on a repository are settled."""
    return f"{host}/{repo.owner}/{repo.name}"


def beside(call: Call, place: Row) -> list[Row]:
    """The pulls into the same branch that are being opened, or were open when the hall last looked; newest first."""
    with call.look() as tx:
        return tx.all("pulls_beside", **place)


def is_known(call: Call, id: str) -> bool:
    """Whether this hall has a pull of this id, in whichever state."""
    with call.look() as tx:
        return tx.one("pull_get", id=id) is not None


def find_pull(operation: Operation[Any]) -> StoredPull | None:
    """The row of the pull that an operation opens; None when a hub without a journal has settled it."""
    return cast(StoredPull | None, operation.journal.store.one("pull_get", id=operation.subject))


def get_pull(operation: Operation[Any]) -> StoredPull:
    """The row of the pull that an operation opens, while it is being opened."""
    row = find_pull(operation)
    assert row is not None, "the pull's row goes with its operation"
    return row


def note_opened(tx: Tx, operation: Operation[Any]) -> None:
    """Note that the host has it, and announce it."""
    data = {key: operation.data[key] for key in ("number", "url", "commit_id")}
    row = tx.one("pull_opened", id=operation.subject, now=tx.now, **data)
    if row is not None:
        about = {**_description(row), "number": row["number"], "url": row["url"]}
        tx.event("pull.opened", operation.subject, before="opening", after="open", data=json.dumps(about))


def note_left(tx: Tx, operation: Operation[Any]) -> None:
    """Let others open the same change: it is settled later."""
    tx.run("pull_leave", id=operation.subject, now=tx.now)


def note_failed(tx: Tx, operation: Operation[Any]) -> None:
    """Forget the pull: nothing of it is on the host."""
    row = tx.one("pull_given_up", id=operation.subject)
    if row is not None:
        tx.event("pull.failed", operation.subject, before="opening", data=json.dumps(_description(row)))


def _description(row: StoredPull) -> Row:
    return {key: value for key, value in row.items() if key in ("provider", "owner", "name", "branch", "title")}


def second(number: int, url: str, branch: str, why: str) -> Conflict:
    """The refusal of a second pull for a change that has one."""
    return Conflict(
        f"pull {number} is open {why}: {url}",
        hint="Look at it with get_pr_status. Another change takes another title and other files.",
        number=number,
        url=url,
        branch=branch,
    )


def elsewhere(branch: str) -> Conflict:
    """The refusal of a change for which another hall has made the branch, and not yet the pull."""
    return Conflict(
        f"another hall is opening a pull for the same change: it has made the branch '{branch}'",
        hint="Try again in a minute. If no hall is opening it, because its hub died, delete that branch.",
        branch=branch,
    )


def busy(there: Row | None, now: int, branch: str | None = None) -> Conflict:
    """The refusal of a change that another call is opening."""
    if there is None:  # it has ended between the two looks
        hint = "Look with list_prs, then try again."
        return Conflict("the same pull was being opened just now", hint=hint, branch=branch)
    seconds = max(1, (there["lease_until"] - now + 999) // 1000)
    return Conflict(
        f"{there['actor']} is opening a pull for the same change: '{there['title']}' on {there['branch']}",
        hint=f"See with list_prs what comes of it. If its hub has died, it is settled in {seconds} s.",
        branch=there["branch"],
    )
