"""Processes that wait in a `ProcessLine`, and leave it or are killed in it."""

import signal
from multiprocessing.context import ForkServerProcess
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path

from crewhall.store.turns import ProcessLine
from tests.contract.writer import PATIENCE, SERVER


class LineProcess:
    """A process that enters a `ProcessLine`, and leaves it on `leave()`."""

    def __init__(self, path: Path, name: str, entered: "SimpleQueue[str]") -> None:
        self._may_leave = SERVER.Event()
        self.process: ForkServerProcess = SERVER.Process(
            target=enter_and_wait, args=(path, name, entered, self._may_leave)
        )
        self.process.start()

    def leave(self) -> None:
        self._may_leave.set()

    def kill(self) -> None:
        kill(self.process)


def kill(process: ForkServerProcess) -> None:
    process.kill()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL


def enter_and_wait(path: Path, name: str, entered: "SimpleQueue[str]", may_leave: Event) -> None:
    line = ProcessLine(path)
    line.enter()
    entered.put(name)
    assert may_leave.wait(PATIENCE)
    line.leave()
