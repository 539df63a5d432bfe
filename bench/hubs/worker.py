"""Processes that make load: they get an order, say that they are ready, are let go, and tell what they did."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

Done = tuple[str, float, float]  # tool and role, when it ended after the start, how long it took


@dataclass(frozen=True)
class Answer:
    """The calls that were made, the failures by what they said, and how many tasks each agent took."""

    done: list[Done]
    failures: dict[str, int]
    taken: list[int]


class Worker:
    """One such process; it serves one order after another."""

    def __init__(self, module: str) -> None:
        words = [sys.executable, "-m", module]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def prepare(self, order: dict[str, Any]) -> None:
        self._tell(json.dumps(order))
        assert self._hear() == "ready\n", "the worker ended"

    def go(self) -> None:
        self._tell("go")

    def answer(self) -> Answer:
        return Answer(**json.loads(self._hear()))

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


def tell(line: str) -> None:
    """The worker's side of it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
