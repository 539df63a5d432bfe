"""Chores of instances: living processes keep their agents, dead ones are noted at once, ended ones are cleared away."""

import json
import logging

from crewhall.app import Tick
from crewhall.config import Settings
from crewhall.errors import Failure
from crewhall.families.crew.delivery import deliver
from crewhall.families.crew.family import crew
from crewhall.families.crew.instance_rows import disconnect
from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.observation import end_text, end_time
from crewhall.families.crew.rules import LIVE
from crewhall.families.crew.run_directory import run_directory
from crewhall.families.crew.site import is_running, left_program
from crewhall.families.crew.steps import remove_instance_worktree
from crewhall.outages import log_failure

WATCH_SECONDS = 2.0
log = logging.getLogger(__name__)


@crew.chore("instances", seconds=WATCH_SECONDS, everywhere=True)
def watch_instances(tick: Tick) -> None:
    """A living process keeps its agent's lease; one that is gone is noted, and its agent is offline at once."""
    alive = 0
    for row in _rows(tick):
        if row["ended_how"] is not None or row["status"] not in LIVE:
            continue
        if row["pid"] is None:
            alive += 1  # it is being started
        elif _is_alive(tick.settings, row):
            tick.hub.presence.note_call(row["agent_id"], None, tick.now)
            alive += 1
        else:
            note_end(tick, row)
    tick.hub.presence.instances = alive


def _is_alive(settings: Settings, row: InstanceRow) -> bool:
    """Whether its program lives, or is about to start."""
    if is_running(row):
        return not run_directory(settings, row["id"]).read("ended.json")
    return left_program(settings, row) is not None


def _rows(tick: Tick) -> list[InstanceRow]:
    with tick.look() as look:
        return look.all("instances_on_node", node=tick.settings.node)


def note_end(tick: Tick, row: InstanceRow) -> None:
    """Write down that an instance's process is gone, and how, unless an operation on it is under way."""
    tick.hub.presence.forget(row["agent_id"])
    ended = run_directory(tick.settings, row["id"]).read("ended.json")
    how, at = end_text(ended), end_time(ended)
    with tick.begin() as tx:
        fresh: InstanceRow | None = tx.one("instance_lock", id=row["id"])  # None: its start was undone just now
        if fresh is not None and fresh["pid"] == row["pid"] and not tx.all("operations_on", subject=row["id"]):
            disconnect(tx, fresh, how, tick.now + int(tick.settings["agent.grace"] * 1000), at)


@crew.chore("instance_messages", seconds=WATCH_SECONDS, everywhere=True)
def deliver_messages(tick: Tick) -> None:
    """Bring messages into the conversations of programs that run here, and note the tokens that those took."""
    for row in _rows(tick):
        if row["status"] not in LIVE or row["ended_how"] is not None or not is_running(row):
            continue
        try:
            deliver(tick, row)
        except Failure as failure:
            log_failure(log, "messages could not be delivered", failure, instance=row["id"])


@crew.chore("instance_worktrees", seconds=30.0, everywhere=True, limit_seconds=120.0)
def clear_worktrees(tick: Tick) -> None:
    """Try again to remove the worktrees of abandoned instances that something hindered."""
    for row in _rows(tick):
        if row["status"] != "abandoned" or row["problem"] is None:
            continue
        try:
            changed = remove_instance_worktree(row, tick.stop)
        except Failure as failure:
            log_failure(log, "a worktree could not be cleared away", failure, instance=row["id"])
            continue
        with tick.begin() as tx:
            tx.run("instance_saved_set", id=row["id"], saved_refs=json.dumps(changed["saved_refs"]), now=tick.now)
            tx.run("instance_problem_set", id=row["id"], problem=changed["problem"], now=tick.now)
