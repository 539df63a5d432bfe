"""
A process of the second floor: threads of bare psycopg, each call one pipeline of the statements that a hub runs.

It keeps as many connections as a hub does, from one order to the next.
"""

import json
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import psycopg

from bench.hubs.recorded import Replay, Statement
from bench.hubs.worker import Answer, Done, tell

POOL = 8  # as the setting database.pool has it
Pool = queue.SimpleQueue[Any]


class Threads:
    """The agents of one order, each a thread."""

    def __init__(self, order: dict[str, Any], pool: Pool) -> None:
        self.order, self.pool = order, pool
        self.steps = [(step["kind"], _replay(step)) for step in order["steps"]]
        self.done: list[Done] = []
        self.failures: Counter[str] = Counter()
        self.gate = threading.Barrier(len(order["agents"]) + 1)

    def run(self) -> Answer:
        agents = self.order["agents"]
        had = [len(agent["tasks"]) for agent in agents]
        threads = [threading.Thread(target=self._work, args=(agent,)) for agent in agents]
        for thread in threads:
            thread.start()
        tell("ready")
        sys.stdin.readline()
        self.began = time.perf_counter()
        self.gate.wait()
        for thread in threads:
            thread.join()
        taken = [before - len(agent["tasks"]) for before, agent in zip(had, agents, strict=True)]
        return Answer(self.done, dict(self.failures), taken)

    def _work(self, agent: dict[str, Any]) -> None:
        self.gate.wait()
        try:
            for values in self._rounds(agent):
                for kind, replay in self.steps:
                    if time.perf_counter() - self.began >= self.order["seconds"]:
                        return
                    self._call(kind, replay.fill(values))
        except psycopg.Error as error:
            self.failures[str(error)[:160]] += 1

    def _rounds(self, agent: dict[str, Any]) -> Iterator[dict[str, str]]:
        values = {"agent": agent["id"], "peer": agent["peer"], "hash": agent["hash"], "workflow": "", "task": ""}
        while not self.order["takes"]:
            yield values
        while agent["tasks"]:
            workflow, task = agent["tasks"].pop()
            yield values | {"workflow": workflow, "task": task}

    def _call(self, kind: str, statements: Iterator[Statement]) -> None:
        """Wait for a connection, and make one trip. Raises psycopg.Error."""
        began = time.perf_counter()
        connection = self.pool.get()
        try:
            _trip(connection, statements)
        finally:
            self.pool.put(connection)
        ended = time.perf_counter()
        self.done.append((kind, ended - self.began, ended - began))


def _trip(connection: Any, statements: Iterator[Statement]) -> None:
    with connection.pipeline() as pipeline:
        is_open = False
        for one in statements:
            connection.execute(one.text, one.parameters or None)
            is_open = one.text.startswith("BEGIN") or (is_open and one.text != "COMMIT")
            if one.ends and not is_open:
                pipeline._enqueue_sync()  # ends an implicit transaction; `sync` would wait for the answer


def _replay(step: dict[str, Any]) -> Replay:
    recording = [Statement(text, tuple(parameters), ends) for text, parameters, ends in step["recording"]]
    return Replay(recording, step["given"], step["made"])


def _pool(url: str) -> Pool:
    pool: Pool = queue.SimpleQueue()
    for _ in range(POOL):
        pool.put(psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor))
    return pool


def main() -> None:
    pool: Pool | None = None
    for line in sys.stdin:
        order = json.loads(line)
        pool = pool or _pool(order["url"])
        tell(json.dumps(asdict(Threads(order, pool).run())))


if __name__ == "__main__":
    main()
