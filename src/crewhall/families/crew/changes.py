"""What is done to instances, begun and carried out: used by the tools of this family and of reviews."""

import json
import os
from contextlib import suppress
from typing import Any, cast

from crewhall.app import Call
from crewhall.errors import Failure, NotFound
from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.rules import choose_ports, numbered_id
from crewhall.families.crew.steps import RESTARTING, STARTING, Change, NodeWorld
from crewhall.families.work.agent.model import Role
from crewhall.families.work.agent.record import insert_agent
from crewhall.families.work.claim.leases import lease_ms
from crewhall.families.work.workspace.creation import worktree_path, worktrees_directory
from crewhall.journal import Kind
from crewhall.outside.free_ports import free_ports
from crewhall.outside.git import GitRepository
from crewhall.outside.processes import own_name
from crewhall.stop import Stop
from crewhall.store.transaction import Row, Tx

KNOWN_TO_AGENTS = ("claude_code", "codex", "gemini", "opencode")  # runtimes that an agent's row can name
SPARE_PORTS = 40  # times as many ports as one start needs are looked at: so many may start at once


def begin_start(
    call: Call,
    tx: Tx,
    kind: Kind[NodeWorld],
    stem: str,
    names: list[str],
    fields: Row,
    role: Role,
    capabilities: list[str] | None,
    candidates: list[int],
    **data: Any,
) -> tuple[Change, InstanceRow]:
    """The row, the agent and the operation of a new instance, whose id, branch and session nobody has."""
    tx.run("hall_lock")
    taken = [one["id"] for one in tx.all("instance_ids_with", stem=f"{stem}-a")]
    instance_id = numbered_id(stem, [*taken, *names])
    while tx.all("agents_named", names=json.dumps([instance_id]), now=tx.now):
        taken.append(instance_id)
        instance_id = numbered_id(stem, [*taken, *names])
    known = fields["runtime"] if fields["runtime"] in KNOWN_TO_AGENTS else "custom"
    path = worktree_path(fields["repository_path"], instance_id)
    own = {"name": instance_id, "runtime": known, "workspace_path": path, "metadata": None}
    own["capabilities"] = json.dumps(capabilities) if capabilities else None
    agent = insert_agent(call, tx, own, role, fields["type"], "offline")
    placed = {"id": instance_id, "branch": instance_id, "session": instance_id, "worktree": path}
    ports = choose_ports(candidates, _ports_taken(tx, call.settings.node), call.settings["crew.ports"])
    tx.run("instance_insert", agent_id=agent["id"], ports=json.dumps(ports), now=tx.now, **placed, **fields)
    row: InstanceRow | None = tx.one("instance_get", id=instance_id)
    assert row is not None
    return begin(call, tx, kind, row, **data), row


def candidate_ports(call: Call) -> list[int]:
    """Ports on which nobody listens, more than needed: another start may take some of them at the same moment."""
    first, last = call.settings["crew.port_range"]
    with call.look() as tx:
        taken = _ports_taken(tx, call.settings.node)
    return free_ports(range(first, last + 1), taken, call.settings["crew.ports"] * SPARE_PORTS)


def _ports_taken(tx: Tx, node: str) -> set[int]:
    return {port for row in tx.all("instance_ports", node=node) for port in json.loads(row["ports"])}


def names_taken(repo: GitRepository, stem: str) -> list[str]:
    """Branches and directories where a new instance's would be; a person's own among them are left alone.

    `work-7-a1/fix` keeps git from making `work-7-a1`, and some disks take `Work-7-A1` for the same name.
    """
    patterns = (f"refs/heads/{stem}-a*", f"refs/heads/{stem}-a*/**")
    listed = repo.text("for-each-ref", "--ignore-case", "--format=%(refname)", *patterns).split()
    branches = [name.removeprefix("refs/heads/").partition("/")[0] for name in listed]
    with suppress(OSError):  # there is no such directory yet, or git will say what is wrong with it
        return branches + os.listdir(worktrees_directory(repo.root))
    return branches


def begin(call: Call, tx: Tx, kind: Kind[NodeWorld], row: InstanceRow, **data: Any) -> Change:
    """Note in the journal what is about to be done to an instance, with the times that its steps write."""
    times = {
        "lease_until": tx.now + lease_ms(call.settings, beats=False),
        "until": tx.now + int(call.settings["agent.grace"] * 1000),
    }
    return call.hub.journal.begin(tx, kind, row["id"], place=row["node"], data=times | data, holder=own_name())


def carry_out(call: Call, operation: Change) -> None:
    """Do all steps. If one fails, undo the earlier ones, or leave the rest to the chore; raises the failure."""
    journal, world = call.hub.journal, NodeWorld(call.settings, call.stop)
    call.hub.presence.instances += operation.kind in (STARTING, RESTARTING)  # from now on senders are looked at
    try:
        journal.carry_out(operation, world)
    except Failure as failure:
        failure.fields.setdefault("instance_id", operation.subject)
        if operation.is_kept:
            operation.leave()
        else:
            _take_back(call, operation)
        raise


def _take_back(call: Call, operation: Change) -> None:
    try:
        call.hub.journal.take_back(operation, NodeWorld(call.settings, Stop(60.0)))
    except Failure:
        operation.leave()


def find_instance(call: Call, instance_id: str) -> InstanceRow:
    """The row of an instance. Raises NotFound."""
    row = cast(InstanceRow | None, call.one("instance_get", id=instance_id))
    if row is None:
        raise NotFound(
            f"there is no instance '{instance_id}'",
            hint="`crewhall instance list` shows the instances.",
            instance_id=instance_id,
        )
    return row
