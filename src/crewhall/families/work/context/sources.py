"""What the hall knows of a worktree: open tasks of its repository, and files that agents have reserved there."""

from datetime import UTC, datetime

from crewhall.app import Call
from crewhall.bounded import rows_and_total
from crewhall.errors import NotFound
from crewhall.families.work.family import work
from crewhall.families.work.repository.tools import site_of
from crewhall.families.work.task.model import TaskAround, shown_status
from crewhall.outside.files import Top
from crewhall.store.transaction import Row
from crewhall.tool import SourceLines

TASKS = RESERVATIONS = 100


@work.source("tasks", priority=20, weight=10)
def tasks(call: Call, top: Top) -> SourceLines:
    """Open tasks of the repository's workflows, those of this worktree first, and who holds them."""
    site = site_of(top.root).path
    with call.begin() as tx:
        rows = tx.all("repository_tasks", repository_path=site, node=call.settings.node, path=top.root, limit=TASKS)
    if not rows:
        raise NotFound("the hall has no open task for this repository", hint="workflow_create begins one.")
    return SourceLines([_task(row, top.root) for row in rows], rows[0]["total"] - len(rows))


def _task(row: TaskAround, root: str) -> str:
    holder = f", held by {row['agent_name']} ({row['agent_id']})" if row["agent_id"] else ""
    path = row["workspace_path"]
    where = "" if path is None else ", in this worktree" if path == root else f", in {path}"
    workflow = f"workflow {row['workflow_name']} ({row['workflow_id']}, {row['workflow_status']})"
    return f"{row['id']} {shown_status(row)}: {row['name']}{holder}{where}; {workflow}"


@work.source("reservations", priority=30, weight=5)
def reservations(call: Call, top: Top) -> SourceLines:
    """Files of the repository that agents are about to change."""
    chosen = {"repository_path": site_of(top.root).path, "agent_id": None, "now": call.now}
    with call.begin() as tx:
        rows, total = rows_and_total(tx, "reservations", chosen, limit=RESERVATIONS, offset=0)
    if not rows:
        raise NotFound("nothing is reserved in this repository", hint="file_reserve does that.")
    return SourceLines([_reservation(row) for row in rows], total - len(rows))


def _reservation(row: Row) -> str:
    until = datetime.fromtimestamp(row["expires_at"] // 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    reason = f": {row['reason']}" if row["reason"] else ""
    way = "reserved" if row["exclusive"] else "shared"
    return f"{row['path']} {way} by {row['agent_name']} ({row['agent_id']}) until {until}{reason}"
