"""One tree's hall: a database, its hubs, its agents, and the tasks that they are given."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench.hubs.calls import path_of

AGENTS = 32
WORKFLOW = 100  # tasks in one of many
ONE = 2000  # tasks in the one that all share
JSON = {"Content-Type": "application/json"}
PARALLEL = 1000  # the most there may be


@dataclass
class Agent:
    """An agent with its token, whom it writes to, and the workflow and id of each task that is its to take."""

    id: str
    token: str
    peer: str = ""
    tasks: list[tuple[str, str]] = field(default_factory=list)


class Hall:
    """Hubs of one tree on one database."""

    def __init__(self, name: str, tree: Path, url: str, homes: Path, hubs: int) -> None:
        self.name, self.tree, self.url = name, tree, url
        self.database = url.rpartition("/")[2]
        self.hubs = [self._start(homes / f"{name}-{number}") for number in range(hubs)]
        self.agents: list[Agent] = []

    def _start(self, home: Path) -> "subprocess.Popen[str]":
        home.mkdir(parents=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CREWHALL")}
        environment |= {"PYTHONPATH": str(self.tree / "src"), "MCP_LOG_LEVEL": "error"}
        environment |= {"CREWHALL_HOME": str(home), "CREWHALL_DATABASE_URL": self.url}
        words = [sys.executable, "-m", "crewhall", "up", "--port", "0"]
        return subprocess.Popen(words, env=environment, cwd=home, stdout=subprocess.PIPE, text=True)

    def furnish(self) -> None:
        """Wait for the hubs, and register the agents: each writes to the next one."""
        self.ports = [_port(hub) for hub in self.hubs]
        for number in range(AGENTS):
            made = self.call("agent_register", name=f"agent {number}", runtime="codex")["id"]
            self.agents.append(Agent(made, self.call("agent_token", agent_id=made)["token"]))
        for agent, peer in zip(self.agents, self.agents[1:] + self.agents[:1], strict=True):
            agent.peer = peer.id

    def call(self, command: str, /, **arguments: Any) -> dict[str, Any]:
        """A command's result, for the person on this machine. Raises RuntimeError for a refusal."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=120)
        with closing(connection):
            connection.request(
                "POST", f"/api/v1/{path_of(command)}", json.dumps(arguments), {"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            body: dict[str, Any] = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"{command}: {body}")
        return body

    def supply(self, tasks: int, *, one: bool) -> None:
        """Give the agents so many fresh tasks: from workflows of each one's own, or from one that they share."""
        for agent in self.agents:
            agent.tasks.clear()
        size = ONE if one else WORKFLOW
        count = -(-tasks // size) if one else AGENTS * -(-tasks // size // AGENTS)
        with ThreadPoolExecutor(4) as pool:
            for number, found in enumerate(pool.map(lambda _: self._workflow(size), range(count))):
                shares = self.agents if one else [self.agents[number % AGENTS]]
                for place, task in enumerate(found):
                    shares[place % len(shares)].tasks.append(task)

    def _workflow(self, size: int) -> list[tuple[str, str]]:
        told = {"source_type": "prompt", "source_content": "x", "max_parallel_tasks": PARALLEL}
        made: str = self.call("workflow_create", name="w", **told)["id"]
        tasks = [{"name": f"task {n}", "description": "what is to be done " * 10, "sequence": 1} for n in range(size)]
        self.call("workflow_set_plan", id=made, plan={"summary": "s", "approach": "a", "tasks": tasks})
        with psycopg.connect(self.url) as connection:
            rows = connection.execute("SELECT id FROM task WHERE workflow_id = %s ORDER BY id", (made,)).fetchall()
        return [(made, row[0]) for row in rows]

    def analyze(self) -> None:
        """Tell the planner what there is, as autovacuum does within a minute."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("ANALYZE")

    def stop(self) -> None:
        for hub in self.hubs:
            hub.terminate()
        for hub in self.hubs:
            hub.wait(30)


def _port(hub: "subprocess.Popen[str]") -> int:
    assert hub.stdout is not None
    return int(hub.stdout.readline().strip().rpartition(":")[2])


def spread(agents: list[Agent], over: int) -> Iterator[list[Agent]]:
    """Equal shares of the agents."""
    return (agents[place::over] for place in range(over))
