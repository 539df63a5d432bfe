"""
The clients of the lab, in a process of their own: `python -m tests.faults.crowd DIRECTORY`.

    spec.json ──▶ agents, planner, followers ──▶ history.jsonl, follower-N.jsonl
    stdin: "rest": agents end after what they do; "end N": followers end at the event N; closed: all end
"""

import json
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from tests.faults.agents import TASKS, WIDTH, Agent, Lane, Planner
from tests.faults.caller import Caller
from tests.faults.followers import Follower, Watcher
from tests.faults.record import Record

END_SECONDS = 30.0


@dataclass(frozen=True)
class Spec:
    """Who the clients are, and where the hubs."""

    ports: list[int]
    agents: list[tuple[str, str]]  # id and token; the agent i belongs to the hub i % len(ports)
    planner: tuple[str, str]
    followers: list[tuple[str, str]]
    shape: str  # "many" workflows or "one"
    share: float  # of an agent's tasks that are in a lane of another
    pause: float  # seconds between two tasks of an agent
    patience: float  # seconds that half of the agents wait for an answer; the others wait for good

    def save(self, directory: Path) -> None:
        (directory / "spec.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, directory: Path) -> "Spec":
        return cls(**json.loads((directory / "spec.json").read_text()))


FOR_GOOD = 200.0


class Lines:
    """A file to which threads add lines, each at once."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w", buffering=1)
        self._lock = threading.Lock()

    def add(self, line: str) -> None:
        with self._lock:
            self._file.write(line)


class Crowd:
    def __init__(self, directory: Path) -> None:
        self.spec = Spec.load(directory)
        self._directory = directory
        self._rest, self._over = threading.Event(), threading.Event()
        self._history = Lines(directory / "history.jsonl")
        self.lanes = [self._lane() for _ in (self.spec.agents if self.spec.shape == "many" else "1")]
        self.followers = [self._follower(number) for number in range(len(self.spec.followers))]
        runs = [self._agent(number).run for number in range(len(self.spec.agents))]
        planners = [self._planner(lanes).run for lanes in (self.lanes[::2], self.lanes[1::2]) if lanes]
        self._workers = [threading.Thread(target=run, daemon=True) for run in (*runs, *planners)]
        self._watchers = [threading.Thread(target=one.run, daemon=True) for one in self.followers]

    def _lane(self) -> Lane:
        return Lane(TASKS[self.spec.shape], WIDTH[self.spec.shape])

    def _caller(self, who: Sequence[str], hub: int, patience: float, over: threading.Event) -> Caller:
        def note(record: Record) -> None:
            self._history.add(record.line())

        return Caller(who[0], who[1], self.spec.ports, hub % len(self.spec.ports), patience, note, over)

    def _agent(self, number: int) -> Agent:
        spec, hubs = self.spec, len(self.spec.ports)
        patience = FOR_GOOD if number // hubs % 2 else spec.patience
        caller = self._caller(spec.agents[number], number, patience, self._rest)
        everyone = [agent for agent, _ in spec.agents]
        if spec.shape == "one":
            return Agent(caller, self.lanes, everyone, self._rest, spec.share, spec.pause)
        lanes = [self.lanes[number], *self.lanes] if spec.share else [self.lanes[number]]
        peers = everyone if spec.share else [everyone[(number + 1) % len(everyone)]]
        return Agent(caller, lanes, peers, self._rest, spec.share, spec.pause)

    def _planner(self, lanes: list[Lane]) -> Planner:
        return Planner(self._caller(self.spec.planner, 1, self.spec.patience, self._rest), lanes, self._rest)

    def _follower(self, number: int) -> Follower:
        who, ports = self.spec.followers[number], self.spec.ports
        lines = Lines(self._directory / f"follower-{number}.jsonl")

        def note(event: dict[str, Any]) -> None:
            lines.add(json.dumps([event[name] for name in ("seq", "what", "subject")]) + "\n")

        caller = self._caller(who, number // 2, self.spec.patience, self._over)
        if number % 2:
            return Follower(caller, note, self._over)
        return Watcher(caller, note, self._over, who[1], ports, number // 2 % len(ports))

    def run(self, orders: IO[str], say: Callable[[str], None]) -> None:
        for thread in (*self._workers, *self._watchers):
            thread.start()
        say("begun")
        for order in orders:
            word, _, number = order.strip().partition(" ")
            if word == "rest":
                self._rest.set()
                say("resting" if join(self._workers, FOR_GOOD) else "stuck")
            elif word == "end":
                for one in self.followers:
                    one.last = int(number)
                say("seen" if join(self._watchers, END_SECONDS) else "behind")
        self._rest.set()
        self._over.set()


def join(threads: list[threading.Thread], seconds: float) -> bool:
    """Whether all have ended in that time, each."""
    for thread in threads:
        thread.join(seconds)
    return not any(thread.is_alive() for thread in threads)


if __name__ == "__main__":
    Crowd(Path(sys.argv[1])).run(sys.stdin, lambda word: print(word, flush=True))
