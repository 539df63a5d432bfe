"""Processes that stand in a line, and leave it, or are killed in it."""

import signal
from multiprocessing.context import ForkServerProcess
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path

from crewhall.store.turns import Line
from tests.contract.writer import PATIENCE, SERVER


class Standing:
    """A process that stands in a line, and leaves it when it is told to."""

    def __init__(self, path: Path, name: str, entered: "SimpleQueue[str]") -> None:
        self._may_leave = SERVER.Event()
        self.process: ForkServerProcess = SERVER.Process(target=stand, args=(path, name, entered, self._may_leave))
        self.process.start()

    def leave(self) -> None:
        self._may_leave.set()

    def kill(self) -> None:
        kill(self.process)


def kill(process: ForkServerProcess) -> None:
    process.kill()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL


def stand(path: Path, name: str, entered: "SimpleQueue[str]", may_leave: Event) -> None:
    line = Line(path)
    line.enter()
    entered.put(name)
    assert may_leave.wait(PATIENCE)
    line.leave()
