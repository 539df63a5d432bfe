"""
Pulls on their way: a row from before the first change on the host until the pull is open, so that nothing is forgotten.

    begin ──▶ opening ── the host has it ──▶ open ── it is closed or merged ──▶ ended
                 ├── the host said no, and nothing of it is there: the row goes
                 └── left, or its hub died ── after its lease ──▶ settled (recovery.py)

Whoever works on a row holds it, and beats while it does. One that was away for longer than its lease has lost it.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from crewhall.app import Call, Hub
from crewhall.errors import Conflict, Unavailable
from crewhall.identity import new_id
from crewhall.outside.hosting.model import HostRepository, Pull
from crewhall.store.transaction import Row, Tx, Work

LEASE_MS = 120_000  # longer than any one request takes
BEAT_MS = 20_000
FIRST_LOOK_MS, LAST_LOOK_MS = 60_000, 900_000  # after its beginning, at what a host may have done late
FORGET_MS = 7 * 86_400_000  # after which nobody looks any more at a host or a repository that has gone


class Lost(Unavailable):
    """The call was away for so long that its pull was taken for dead and settled."""


@dataclass
class Entry:
    """One row in somebody's hands. It is written also after a call's end: what has happened has happened."""

    hub: Hub
    actor: str
    tool: str | None
    row: Row
    _beaten_at: int = field(init=False)

    def __post_init__(self) -> None:
        self._beaten_at = self.row["updated_at"]

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def mark(self) -> str:
        """The line of the commit's message that says whose it is."""
        return f"Crewhall-Pull: {self.id}"

    @property
    def repository(self) -> HostRepository:
        return HostRepository(self.row["owner"], self.row["name"])

    @contextmanager
    def _writing(self) -> Iterator[tuple[Tx, Row]]:
        """A transaction, and the words that say which row is meant, and who may change it."""
        now = self.hub.clock()
        with self.hub.store.write(Work(self.actor, self.tool, now)) as tx:
            yield tx, {"id": self.id, "holder": self.row["holder"], "now": now}

    def beat(self, seconds: float = 0.0) -> None:
        """Prolong the lease, beyond a pause of so many seconds. Raises Lost when another has the row by now."""
        if not seconds and self.hub.clock() - self._beaten_at < BEAT_MS:
            return
        with self._writing() as (tx, own):
            self._beaten_at = own["now"]
            if not tx.run("pull_keep", **own, lease_until=own["now"] + LEASE_MS + int(seconds * 1000)):
                raise Lost(
                    "this call was away for too long, and its pull was taken for dead",
                    hint="What it left is settled by the hub; see with list_prs what there is, then try again.",
                )

    def opened(self, pull: Pull) -> None:
        """Note that the host has it, and say so to whoever listens."""
        with self._writing() as (tx, own):
            fields = {"number": pull.number, "url": pull.url, "commit_id": pull.sha}
            if tx.one("pull_opened", id=self.id, now=own["now"], **fields) is not None:
                told = {**self._told(), "number": pull.number, "url": pull.url}
                tx.event("pull.opened", self.id, before="opening", after="open", data=json.dumps(told))

    def given_up(self) -> None:
        """Forget it: nothing of it is on the host, and nothing will be."""
        with self._writing() as (tx, own):
            if tx.one("pull_given_up", id=self.id, holder=own["holder"]) is not None:
                tx.event("pull.failed", self.id, before="opening", data=json.dumps(self._told()))

    def left(self) -> None:
        """Let go of it without being sure: it is looked at again, later each time."""
        with self._writing() as (tx, own):
            pause = min(max(FIRST_LOOK_MS, self.age_ms), LAST_LOOK_MS)
            tx.run("pull_leave", **own, lease_until=own["now"] + pause)

    @property
    def age_ms(self) -> int:
        return int(self.hub.clock() - self.row["created_at"])

    def _told(self) -> Row:
        return {key: self.row[key] for key in ("provider", "owner", "name", "branch", "title")}


def begin(call: Call, fields: Row, ended: Collection[str]) -> Entry:
    """A new row. Raises Conflict when the same change is being opened by another call, or was while we looked.

    `ended` are the rows of pulls with the same files that are open no longer.
    """
    now = call.hub.clock()
    own = {"id": new_id("pl"), "actor": call.actor.id, "holder": call.id, "created_at": now, "updated_at": now}
    entry = Entry(call.hub, call.actor.id, call.tool.name, own | fields)
    same = {key: fields[key] for key in ("host", "owner", "name", "digest")}
    call.stop.check()
    with call.hub.store.write(Work(call.actor.id, call.tool.name, now)) as tx:
        begun = {key: value for key, value in entry.row.items() if not key.endswith("_at")}
        if tx.one("pull_begin", **begun, lease_until=now + LEASE_MS, now=now) is None:
            raise busy(tx.one("pull_in_the_way", **same, branch=fields["branch"]), now)
        for other in tx.all("pulls_beside", **place_of(entry.row)):
            if other["state"] == "open" and other["digest"] == fields["digest"] and other["id"] not in ended:
                raise second(other["number"], other["url"], other["branch"], "with the same files")
        for id in ended:
            tx.run("pull_ended", id=id, now=now)
    return entry


def place_of(row: Row) -> Row:
    """Into which branch of which repository a pull is to be merged."""
    return {key: row[key] for key in ("host", "owner", "name", "base_branch")}


def beside(hub: Hub, place: Row) -> list[Row]:
    """The pulls into the same branch that are being opened, or were open when the hall last looked; newest first."""
    with hub.store.read() as tx:
        return tx.all("pulls_beside", **place)


def second(number: int, url: str, branch: str, why: str) -> Conflict:
    """What is said to who wants a pull for a change that has one."""
    return Conflict(
        f"pull {number} is open {why}: {url}",
        hint="Look at it with get_pr_status. Another change takes another title and other files.",
        number=number,
        url=url,
        branch=branch,
    )


def left_behind(hub: Hub, host: str, repo: HostRepository | None = None) -> int:
    """How many pulls are half open on a host, or in one repository there, with nobody at work on them."""
    row = hub.store.one("pulls_left", host=host, now=hub.clock(), **_where(repo))
    assert row is not None
    return int(row["total"])


def taken(hub: Hub, host: str, repo: HostRepository | None, most: int) -> list[Entry]:
    """The oldest of them, for the taker alone to settle while its lease lasts."""
    now = hub.clock()
    with hub.store.write(Work("hall", None, now)) as tx:
        fields = {"host": host, "holder": new_id("se"), "lease_until": now + LEASE_MS, "now": now, "limit": most}
        rows = tx.all("pulls_take", **fields, **_where(repo))
    return [Entry(hub, "hall", None, row) for row in rows]


def _where(repo: HostRepository | None) -> Row:
    return {"owner": repo and repo.owner, "name": repo and repo.name}


def busy(there: Row | None, now: int) -> Conflict:
    """What is said to who wants what another call is at."""
    if there is None:  # it has ended between the two looks
        return Conflict("the same pull was being opened just now", hint="Look with list_prs, then try again.")
    seconds = max(1, (there["lease_until"] - now + 999) // 1000)
    return Conflict(
        f"{there['actor']} is opening a pull for the same change: '{there['title']}' on {there['branch']}",
        hint=f"See with list_prs what comes of it. If its hub has died, it is settled in {seconds} s.",
        branch=there["branch"],
    )
