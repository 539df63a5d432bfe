"""The second floor: what this tree's hub asks the database for, by bare psycopg without a hub."""

import http.client
import json
import time
from contextlib import closing
from dataclasses import asdict
from typing import Any

import psycopg

from bench.hubs.block import Block, Order, Watch
from bench.hubs.calls import Told, path_of, task
from bench.hubs.hall import AGENTS, Agent, Hall, spread
from bench.hubs.recorded import MARK, Replay, replay_of, split, statements
from bench.hubs.worker import Worker
from crewhall.identity import hash_of

TIMES = 4  # that each call is recorded; the first warms up
STEPS = {"messages": slice(4, 5), "claims": slice(1, 2)}  # of the five calls of a task


class FloorSide:
    """As many processes as hubs, with a thread for each agent, on a hall whose own hub only makes the tasks."""

    def __init__(self, hall: Hall, watch: Watch) -> None:
        self.hall, self.watch = hall, watch
        self.workers: list[Worker] = []
        self.steps: list[tuple[str, Replay]] = []

    def record(self) -> None:
        """See what the hub asks for in each of a task's five calls."""
        self.hall.supply(AGENTS * TIMES, one=False)
        agent = self.hall.agents[0]
        rounds = [(taken, list(task(agent.id, agent.peer, *taken))) for taken in agent.tasks[-TIMES:]]
        parts = iter(self._logged(agent, [told for _, calls in rounds for told in calls]))
        found = [[(statements(next(parts)), _given(agent, *taken)) for _ in calls] for taken, calls in rounds]
        for place, told in enumerate(rounds[0][1]):
            replay = replay_of([calls[place] for calls in found[1:]])
            self.steps.append(("write" if told.writes else "read", replay))

    def _logged(self, agent: Agent, calls: list[Told]) -> list[list[list[str]]]:
        """The rows of the database's log for each call."""
        cluster = self.watch.cluster
        with cluster.logging(), psycopg.connect(self.hall.url, autocommit=True) as marks:
            for told in calls:
                marks.execute(MARK)
                self._ask(agent, told)
            marks.execute(MARK)
        deadline = time.monotonic() + 30
        while len(parts := split(cluster.log(self.hall.database))) < len(calls) + 2:
            assert time.monotonic() < deadline, "the server's log lacks statements"
            time.sleep(0.1)
        return parts[1:-1]

    def _ask(self, agent: Agent, told: Told) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.hall.ports[0], timeout=60)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {agent.token}"}
        with closing(connection):
            connection.request("POST", f"/api/v1/{path_of(told.tool)}", json.dumps(told.arguments), headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()

    def block(self, order: Order) -> Block:
        while len(self.workers) < order.hubs:
            self.workers.append(Worker("bench.hubs.bare"))
        workers = self.workers[: order.hubs]
        steps = self.steps[STEPS.get(order.workload, slice(None))]
        told: dict[str, Any] = {"steps": [_step(kind, replay) for kind, replay in steps], "url": self.hall.url}
        told |= {"seconds": order.seconds, "takes": order.workload != "messages"}
        for worker, agents in zip(workers, spread(self.hall.agents, order.hubs), strict=True):
            worker.prepare(told | {"agents": [asdict(one) | {"hash": hash_of(one.token)} for one in agents]})
        pids = [worker.process.pid for worker in workers]
        return self.watch.block(order, self.hall.database, workers, pids, self.hall.agents)

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()


def _given(agent: Agent, workflow: str, taken: str) -> dict[str, str]:
    named = {agent.id: "agent", agent.peer: "peer", hash_of(agent.token): "hash"}
    return named | {workflow: "workflow", taken: "task"}


def _step(kind: str, replay: Replay) -> dict[str, Any]:
    recording = [(one.text, one.parameters, one.ends) for one in replay.recording]
    return {"kind": kind, "recording": recording, "given": replay.given, "made": replay.made}
