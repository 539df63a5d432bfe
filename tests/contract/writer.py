"""A writer in a process of its own: it registers repositories through a hub of its own, and tells how it went."""

import time
import traceback
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

from crewhall import config
from crewhall.app import Hub
from crewhall.families.all import registry
from crewhall.identity import OPERATOR

# Real processes, forked from one that has imported everything and has no threads: each starts at once.
# There is one such server for all tests of a worker, so the modules of all their targets are named here.
SERVER = get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        *("tests.contract.line_process", "tests.contract.migration_process", "tests.families.pulls.test_settle"),
        "tests.families.crew.test_odd_disks",
        *("tests.families.work.test_workspace_crash", "tests.outside.test_removal", "tests.test_journal_walk"),
    ]
)
PATIENCE = 60.0


@dataclass(frozen=True)
class Write:
    """One write that was acknowledged: whose, which, and when it was asked for and answered (one clock for all)."""

    writer: str
    number: int
    began_at: float
    ended_at: float


@dataclass(frozen=True)
class Stall:
    """Where one writer stops: in its `number`th write, its event written and nothing committed."""

    number: int
    reached: Event
    may_go_on: Event


def path_of(writer: str, number: int) -> str:
    return f"/{writer}/{number}"


def start(
    database: str, writer: str, count: int, together: Barrier, told: "Queue[list[Write] | str]", stall: Stall | None
) -> ForkServerProcess:
    process = SERVER.Process(target=_run, args=(database, writer, count, together, told, stall), name=writer)
    process.start()
    return process


def _run(
    database: str, writer: str, count: int, together: Barrier, told: "Queue[list[Write] | str]", stall: Stall | None
) -> None:
    try:
        told.put(_writes(database, writer, count, together, stall))
    except BaseException:
        together.abort()
        told.put(traceback.format_exc())


def _writes(database: str, writer: str, count: int, together: Barrier, stall: Stall | None) -> list[Write]:
    where = "database.url" if "://" in database else "database.path"
    hub = Hub(config.load({}, {"home": str(Path("/nowhere")), where: database, "database.pool": 2}), registry())
    together.wait(PATIENCE)
    done = []
    for number in range(count):
        hub.before_commit = lambda: None
        if stall is not None and number == stall.number:
            hub.before_commit = lambda: _stop(stall)
        began_at = time.monotonic()
        hub.call("repository_register", {"path": path_of(writer, number)}, OPERATOR)
        done.append(Write(writer, number, began_at, time.monotonic()))
    hub.close()
    return done


def _stop(stall: Stall) -> None:
    stall.reached.set()
    assert stall.may_go_on.wait(PATIENCE)
