"""
Which live workspaces would conflict if they were merged now, asked of git; for a person, and for what to begin next.

Git is asked outside of any transaction, and only about workspaces on this node.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from crewhall.app import Call
from crewhall.bounded import take_fitting
from crewhall.errors import Failure, Unavailable
from crewhall.families.work.task.model import FINISHED
from crewhall.families.work.workspace.model import BaseClash, Clash, UnreadableWorkspace, WorkspaceForecast
from crewhall.outside import forecast
from crewhall.outside.git import open_repository
from crewhall.stop import Part, Stop
from crewhall.store.transaction import Row

MOST = 40  # workspaces in one forecast: 780 pairs
CONSIDERED = 20  # ready tasks with a workspace, and as many running ones, looked at to tell what to begin
NAMED = 20
SECONDS = 15.0  # for git to tell what to begin; who asks that often does not wait for it
CLASH_BYTES, BASE_BYTES, UNREAD_BYTES = 12_000, 4_000, 2_000
Pairs = list[tuple[str, str]]
log = logging.getLogger(__name__)


def forecast_of(call: Call, workflow_id: str) -> WorkspaceForecast:
    """The conflicts between a workflow's workspaces, with others of its repository, and with their bases."""
    with call.begin() as tx:
        chosen = {"workflow_id": workflow_id, "statuses": '["active"]'}
        first = tx.all("workspaces", limit=1, offset=0, **chosen)
        here = {"node": call.settings.node, "repository_path": first[0]["repository_path"] if first else None}
        rows = tx.all("workspaces_live", workflow_id=workflow_id, limit=MOST, **here) if first else []
        total = tx.value("workspaces_live_count", **here) if first else 0
        tasks = tx.all("workspace_tasks", ids=json.dumps([row["id"] for row in rows]), limit=MOST * NAMED)
    if not rows:  # or none of them is on this node, or made yet
        return WorkspaceForecast(conflicts=[], conflicts_total=0, with_base=[], compared=0, total=0, unreadable=[])
    own = [row for row in rows if row["workflow_id"] == workflow_id]
    pairs = [(a["id"], b["id"]) for a, b in combinations(rows, 2) if a in own or b in own]
    bases = sorted({row["base_branch"] for row in own})
    pairs += [(row["id"], _base_id(row["base_branch"])) for row in own]
    call.progress(0, None, f"merging {len(pairs)} pairs on trial")
    found = _run_forecast(call.stop, rows, pairs, bases)
    return _to_model(found, rows, tasks, bases, total)


def _base_id(branch: str) -> str:
    return f"base {branch}"


def _run_forecast(stop: Stop, rows: Sequence[Row], pairs: Pairs, bases: Sequence[str] = ()) -> forecast.MergeForecast:
    """Let git merge these pairs on trial. All rows are of one repository. Raises Unavailable if git cannot run."""
    places = [forecast.MergeCandidate(row["id"], row["path"], row["branch"]) for row in rows]
    places += [forecast.MergeCandidate(_base_id(branch), None, branch) for branch in bases]
    try:
        return forecast.forecast(open_repository(rows[0]["repository_path"], stop), places, pairs)
    except OSError as error:
        raise Unavailable(
            f"git's forecast can't be made: {error.strerror or error}",
            hint="See that the hub can write to its temporary directory and read the worktrees; then try again.",
        ) from None


def _to_model(
    found: forecast.MergeForecast, rows: list[Row], tasks: list[Row], bases: list[str], total: int
) -> WorkspaceForecast:
    by_id = {row["id"]: row for row in rows}
    at_base = {_base_id(branch): branch for branch in bases}
    inside: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        if task["status"] not in FINISHED:
            inside[task["workspace_id"]].append(task["id"])
    clashes = [
        Clash(
            workspaces=[pair.a, pair.b],
            branches=[by_id[pair.a]["branch"], by_id[pair.b]["branch"]],
            task_ids=[*inside[pair.a], *inside[pair.b]][:NAMED],
            files=list(pair.files),
            files_total=pair.total,
        )
        for pair in found.conflicts
        if pair.b not in at_base
    ]
    with_base = [
        BaseClash(workspace_id=pair.a, base_branch=at_base[pair.b], files=list(pair.files), files_total=pair.total)
        for pair in found.conflicts
        if pair.b in at_base
    ]
    unreadable = [UnreadableWorkspace(workspace_id=name, why=why) for name, why in found.unreadable if name in by_id]
    return WorkspaceForecast(
        conflicts=take_fitting(clashes, CLASH_BYTES),
        conflicts_total=len(clashes),
        with_base=take_fitting(with_base, BASE_BYTES),
        compared=len(rows),
        total=total,
        unreadable=take_fitting(unreadable, UNREAD_BYTES),
    )


def clashes_between(
    call: Call, ready: Sequence[Row], running: Sequence[Row], live: Sequence[Row]
) -> dict[str, set[str]]:
    """Of tasks that could be begun: the tasks, ready or running, whose work would conflict with what theirs has so far.

    Tasks in one workspace are in each other's way. Only tasks that have a live workspace are asked about, so git is
    not started at all in most calls; where it cannot tell, or not soon, nothing is said.
    """
    rows = {row["id"]: row for row in live}
    placed = [
        task for some in (ready, running) for task in [one for one in some if one["workspace_id"] in rows][:CONSIDERED]
    ]
    free = {task["id"] for task in ready}
    clashing: dict[str, set[str]] = defaultdict(set)
    pairs: list[tuple[Row, Row]] = [(a, b) for a, b in combinations(placed, 2) if a["id"] in free or b["id"] in free]
    bad = _conflicting_pairs(call, [rows[one["workspace_id"]] for one in placed], pairs)
    for a, b in pairs:
        if a["workspace_id"] == b["workspace_id"] or frozenset((a["workspace_id"], b["workspace_id"])) in bad:
            clashing[a["id"]].add(b["id"])
            clashing[b["id"]].add(a["id"])
    return clashing


def _conflicting_pairs(call: Call, rows: Sequence[Row], tasks: Sequence[tuple[Row, Row]]) -> set[frozenset[str]]:
    """Pairs of workspaces that would conflict; a workflow's are all of one repository."""
    by_id = {row["id"]: row for row in rows}
    pairs = sorted({tuple(sorted((a["workspace_id"], b["workspace_id"]))) for a, b in tasks})
    pairs = [(a, b) for a, b in pairs if a != b]
    if not pairs:
        return set()
    named = sorted({name for pair in pairs for name in pair})
    try:
        found = _run_forecast(Part(call.stop, SECONDS), [by_id[name] for name in named], pairs)
    except Failure as failure:
        call.stop.check()
        log.warning("no forecast for what to begin", extra={"why": failure.message})
        return set()
    return {frozenset((pair.a, pair.b)) for pair in found.conflicts}
