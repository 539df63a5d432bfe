"""
Files that agents are about to change: reserved for a while, so that others keep off (ours).

    reserve ──▶ held ── release, its time is over, its agent leaves or goes quiet ──▶ free

It is advice: nobody is kept from writing. Whoever changes an agent's reservations holds the agent's row; whoever
makes one holds the row of the repository first, so that of two who want the same files one comes second.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from crewhall.app import Call
from crewhall.bounded import Limit, Offset, page, rows_and_total, short_list, take_fitting
from crewhall.errors import InvalidInput
from crewhall.families.work.agent.model import AgentLocked
from crewhall.families.work.agent.names import welcome
from crewhall.families.work.agent.rules import status_after_beat
from crewhall.families.work.claim.leases import lease_from
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get, get_locked, hint_get, hint_get_locked, no_such
from crewhall.families.work.model import AgentId, Me, Path, TaskId
from crewhall.families.work.repository.tools import site_of
from crewhall.families.work.reservation.model import (
    FileConflict,
    FileReservation,
    FileReservations,
    FilesReleased,
    FilesReserved,
    Paths,
    Reason,
    ReservationHeld,
    ReservedPath,
    Seconds,
)
from crewhall.families.work.reservation.rules import WHOLE, PathIndex, refuse_more_reserved, reserved_path
from crewhall.identity import new_id
from crewhall.outside.repository_paths import below_top, is_directory, place_of
from crewhall.store.transaction import Row, Tx

NAMED = 20  # conflicts in one answer
EVENT_BYTES = 1_000  # of the paths in an event
ALL = 2**31 - 1


@work.tool(
    "file_reserve", ours=True, changes=True, idempotent=True, profiles=("worker", "coordinator", "standard", "coding")
)
def file_reserve(
    call: Call,
    agent_id: Me,
    paths: Annotated[Paths, Field(description="Files, dirs/ or globs, from the repository's root.")],
    exclusive: bool = True,
    reason: Reason | None = None,
    seconds: Seconds = 3600,
    repository_path: Path | None = None,
    task_id: TaskId | None = None,
) -> FilesReserved:
    """Reserve files that you will change, all or none, so that others keep off.

    success is false when others have some: conflicts says who. Asking again sets a new end.
    """
    area = _known_area(call, repository_path, task_id)
    wanted = area.spell_all(paths)
    with call.begin() as tx:
        hint_get(tx, "task", task_id)
        who = {"area_id": _lock_area(tx, area.root), "agent_id": agent_id}
        others = {**who, "exclusive": int(exclusive), "now": call.now}
        if task_id is not None:
            get(tx, "task", task_id)
        hint_get_locked(tx, "agent", agent_id)
        tx.ahead("reservations_of_others", **others)
        tx.ahead("reservations_elsewhere_count", **_elsewhere(wanted, who, call.now))
        agent = get_locked(tx, "agent", agent_id)
        conflicts = _conflicts(tx, wanted, others)
        if conflicts:
            return _answer(area, [], conflicts)
        until = call.now + seconds * 1000
        fields = {"exclusive": int(exclusive), "reason": reason, "task_id": task_id, "until": until}
        _put(tx, wanted, who, fields, call.now)
        _renew_lease(call, tx, agent)
        tx.event("file.reserved", agent_id, data=_event_data(wanted, area.root))
    return _answer(area, [ReservedPath(path=path, expires_at=until) for path in wanted], [])


def _lock_area(tx: Tx, root: str) -> str:
    """Lock a repository's row, so that two agents reserve one after the other; its id."""
    row = tx.one("area_lock", repository_path=root)
    if row is None:
        tx.run("area_insert", id=new_id("fa"), repository_path=root)
        row = tx.one("area_lock", repository_path=root)
    assert row is not None
    area_id: str = row["id"]
    return area_id


def _conflicts(tx: Tx, wanted: list[str], others: Row) -> list[tuple[ReservationHeld, str]]:
    """What others have reserved that meets one of the paths, each with that path."""
    index = PathIndex(wanted)
    met = ((row, index.find_overlap(row["path"])) for row in tx.all("reservations_of_others", **others))
    return [(row, path) for row, path in met if path is not None]


def _elsewhere(wanted: list[str], who: Row, now: int) -> Row:
    return {"paths": json.dumps(wanted), "now": now, **who}


def _put(tx: Tx, wanted: list[str], who: Row, fields: Row, now: int) -> None:
    """The paths are the agent's. Raises LimitExceeded."""
    there = tx.value("reservations_elsewhere_count", **_elsewhere(wanted, who, now))
    refuse_more_reserved(there, len(wanted))
    tx.run("reservations_dead_drop", agent_id=who["agent_id"], now=now)
    tx.many("reservation_put", [{"path": path, "now": now, **who, **fields} for path in wanted])


def _renew_lease(call: Call, tx: Tx, agent: AgentLocked) -> None:
    """Renew the lease of an agent that reserves; otherwise nobody would notice when it is gone."""
    status = status_after_beat(agent["status"], None)
    if agent["status"] == "offline":
        welcome(tx, agent, call.now)
    here = {"until": lease_from(call, agent), "has_left": 0, "workspace_path": None, "metadata": None}
    tx.run("agent_set", id=agent["id"], status=status, task=agent["current_task_id"], now=call.now, **here)
    if status != agent["status"]:
        tx.event("agent.updated", agent["id"], before=agent["status"], after=status)


def _event_data(paths: list[str], root: str | None) -> str:
    few = short_list(paths, EVENT_BYTES)
    return json.dumps({"paths": few, "count": len(paths), "repository_path": root}, ensure_ascii=False)


def _answer(area: "Area", reserved: list[ReservedPath], conflicts: list[tuple[ReservationHeld, str]]) -> FilesReserved:
    return FilesReserved(
        success=not conflicts,
        repository_path=area.root,
        reserved=take_fitting(reserved),
        reserved_total=len(reserved),
        conflicts=take_fitting(FileConflict.from_row(row, path) for row, path in conflicts[:NAMED]),
        conflicts_total=len(conflicts),
    )


@work.tool("file_release", ours=True, changes=True, idempotent=True, profiles=("coordinator",))
def file_release(
    call: Call, agent_id: Me, paths: Paths | None = None, repository_path: Path | None = None
) -> FilesReleased:
    """Give up what you have reserved: some paths, or all of it in your repository. Nothing happens twice."""
    area = _area(call, repository_path)
    root = None if area is None else area.root
    spelled = None if paths is None else (area or NOWHERE).spell_all(paths)
    both = None if spelled is None else [one for path in spelled for one in (path.rstrip("/"), path.rstrip("/") + "/")]
    chosen = {"repository_path": root, "paths": None if both is None else json.dumps(both)}
    with call.begin() as tx:
        get_locked(tx, "agent", agent_id)
        gone = tx.all("reservations_release", agent_id=agent_id, **chosen)
        live = sorted(row["path"] for row in gone if row["expires_at"] > call.now)
        if live:
            tx.event("file.released", agent_id, data=_event_data(live, root))
    return FilesReleased(success=True, released=len(live))


@work.tool("file_reservations", ours=True, profiles=("coordinator", "reviewer"))
def file_reservations(
    call: Call,
    repository_path: Path | None = None,
    path: Path | None = None,
    agent_id: AgentId | None = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> FileReservations:
    """Who has reserved which files: in the hall, in a repository, or in the way of a path or glob."""
    where = None if repository_path is None else site_of(repository_path).path
    index = None
    if path is not None:
        area = _known_area(call, where)
        where, index = area.root, PathIndex(area.spell_all([path]))
    chosen = {"repository_path": where, "agent_id": agent_id, "now": call.now}
    with call.begin() as tx:
        hint_get(tx, "agent", agent_id)
        if index is None:
            rows, total = rows_and_total(tx, "reservations", chosen, limit=limit, offset=offset)
        else:
            there = tx.all("reservations", limit=ALL, offset=0, **chosen)
            met = [row for row in there if index.find_overlap(row["path"]) is not None]
            rows, total = met[offset : offset + limit], len(met)
        if agent_id is not None:
            get(tx, "agent", agent_id)
    items, following = page((FileReservation.from_row(row) for row in rows), total, offset)
    return FileReservations(reservations=items, total=total, next_offset=following)


# Where a path is


@dataclass(frozen=True)
class Area:
    """A repository, and the tops of its working trees that absolute paths may be below; the caller's own first."""

    root: str
    tops: tuple[str, ...]

    def spell_all(self, paths: Iterable[str]) -> list[str]:
        """The paths in their one spelling, each once; an existing directory ends with a slash."""
        return list(dict.fromkeys(self.spell(path) for path in paths))

    def spell(self, path: str) -> str:
        seen = below_top(path, self.root) if path.startswith("/") else None
        spelled = reserved_path(path if seen is None else seen, self.tops)
        if spelled == WHOLE or spelled.endswith("/"):
            return spelled
        return f"{spelled}/" if any(is_directory(top, spelled) for top in self.tops) else spelled


NOWHERE = Area("", ())


def _known_area(call: Call, repository_path: str | None, task_id: str | None = None) -> Area:
    """The repository that is meant. Raises InvalidInput when nothing tells."""
    area = _area(call, repository_path, task_id)
    if area is None:
        raise InvalidInput(
            "it is not clear in which repository the paths are",
            hint="Give repository_path, the repository's absolute path.",
        )
    return area


def _area(call: Call, repository_path: str | None, task_id: str | None = None) -> Area | None:
    """The repository that is given, or a task's, or the one that the client's directory is in, if any."""
    here = None if call.origin.directory is None else place_of(call.origin.directory)
    given = repository_path or (None if task_id is None else _repository_of(call, task_id))
    if given is None:
        return None if here is None else Area(here.root, (here.top, here.root))
    root = site_of(given).path
    return Area(root, (root,) if here is None or here.root != root else (here.top, root))


def _repository_of(call: Call, task_id: str) -> str | None:
    row = call.one("task_repository", id=task_id)
    if row is None:
        raise no_such("task", task_id)
    path: str | None = row["repository_path"]
    return path
