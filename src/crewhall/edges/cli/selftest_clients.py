"""
The writers of a selftest: clients with a `crewhall mcp` each, who all at once create, plan, claim and send messages.

Claims contend: the clients go through rounds of as many tasks as there are clients, each in an order of its own, and
each takes one of every round. If two were told that they hold the same task, or a holder is another, it shows.
"""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from crewhall.edges.cli.throwaway import Throwaway
from crewhall.errors import Unavailable
from crewhall.store.open import connect
from crewhall.store.sql import Queries, text_of
from crewhall.store.transaction import Store

OPERATIONS = ("create", "plan", "claim", "message")
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
PLAN_TASKS = 1000  # of one shared workflow; as many as may run at once
Pair = tuple[str, str]  # what was asked for, and what came of it
Say = Callable[[str], object]


@dataclass
class OperationTally:
    """The results of one operation: what the hub acknowledged or refused, and how long each took."""

    acknowledged: list[Pair] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    taken_by_others: int = 0
    seconds: list[float] = field(default_factory=list)

    def add(self, other: "OperationTally") -> None:
        self.acknowledged += other.acknowledged
        self.codes += other.codes
        self.taken_by_others += other.taken_by_others
        self.seconds += other.seconds


class SelftestClient:
    """A client with its own `crewhall mcp`, one call at a time, and the tallies of its calls."""

    def __init__(self, hall: Throwaway, number: int) -> None:
        self.number = number
        self.agent = ""
        self.rounds = 0
        self.tallies = {name: OperationTally() for name in OPERATIONS}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "crewhall", "mcp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=hall.environment,
            cwd=hall.settings.home,
        )

    def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A tool's body; a refusal has a code."""
        assert self.process.stdin is not None and self.process.stdout is not None
        params = {"name": tool, "arguments": arguments, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
            answer: dict[str, Any] = {}
            while "id" not in answer or "method" in answer:  # a notification is for others
                answer = json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            return {"code": "GONE", "message": "a bridge has ended"}
        if "result" not in answer:
            return {"code": "INTERNAL", "message": str(answer["error"])}
        body: dict[str, Any] = answer["result"]["structuredContent"]
        return body

    def join(self) -> None:
        """Register as an agent: the first call, for which all of them need the hub. Raises Unavailable."""
        self.agent = self.must("agent_register", name=f"selftest {self.number}", runtime="custom")["id"]

    def must(self, tool: str, **arguments: Any) -> dict[str, Any]:
        body = self.ask(tool, **arguments)
        if "code" in body:
            refusal = f"{tool} answered {body['code']}: {body['message']}"
            raise Unavailable(
                f"the throw-away hall could not be set up: {refusal}", hint="`crewhall doctor` may know why."
            )
        return body

    def work(self, run: str, workflow: str, tasks: Sequence[Sequence[str]], agents: Sequence[str]) -> None:
        """Create, plan, claim and write, once for each round of tasks."""
        order = random.Random(self.number)  # noqa: S311 - no secret
        for number, wanted in enumerate(tasks):
            name = f"{run} {self.number} {number}"
            self._create(run, name)
            self._claim(order.sample(wanted, len(wanted)))
            self._write(workflow, name, agents[(self.number + number) % len(agents)])
            self.rounds += 1

    def _create(self, run: str, name: str) -> None:
        source = {"source_type": "custom", "source_ref": run, "source_content": "made by crewhall selftest"}
        made = self._timed_call("create", "workflow_create", name=name, **source)
        if made is None:
            return
        self.tallies["create"].acknowledged.append((name, made["id"]))
        if self._timed_call("plan", "workflow_set_plan", id=made["id"], plan=_plan([name])) is not None:
            self.tallies["plan"].acknowledged.append((name, made["id"]))

    def _claim(self, wanted: Sequence[str]) -> None:
        """Take the first task that nobody holds; one of them is left for each client."""
        tally = self.tallies["claim"]
        for task in wanted:
            body = self._timed_call("claim", "task_claim", task_id=task, agent_id=self.agent)
            if body is not None and body["success"]:
                tally.acknowledged.append((task, self.agent))
                return
            tally.taken_by_others += body is not None
        tally.codes["NONE_LEFT"] += 1

    def _write(self, workflow: str, name: str, recipient: str) -> None:
        letter = {"message_type": "notification", "subject": name, "body": "from crewhall selftest"}
        who = {"sender_id": self.agent, "recipient_id": recipient, "workflow_id": workflow}
        sent = self._timed_call("message", "message_send", **letter, **who)
        if sent is not None:
            self.tallies["message"].acknowledged.append((name, sent["id"]))

    def _timed_call(self, operation: str, tool: str, **arguments: Any) -> dict[str, Any] | None:
        """The body, or None for a refusal."""
        began = time.perf_counter()
        body = self.ask(tool, **arguments)
        self.tallies[operation].seconds.append(time.perf_counter() - began)
        if "code" not in body:
            return body
        self.tallies[operation].codes[body["code"]] += 1
        return None

    def close(self) -> None:
        """Wait for the process that was told to end."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


def _plan(names: Sequence[str]) -> dict[str, Any]:
    tasks = [{"name": name, "description": "for crewhall selftest", "sequence": 1} for name in names]
    return {"summary": "selftest", "approach": "claim", "tasks": tasks}


@contextmanager
def clients_of(hall: Throwaway, count: int) -> Iterator[list[SelftestClient]]:
    clients: list[SelftestClient] = []
    try:
        for number in range(count):
            clients.append(SelftestClient(hall, number))
        yield clients
    finally:
        for client in clients:
            client.process.terminate()
        for client in clients:
            client.close()


def race(
    run: str, clients: Sequence[SelftestClient], each: int, threads: ThreadPoolExecutor, hall: Throwaway, say: Say
) -> tuple[dict[str, OperationTally], float]:
    """Have all clients work at once; their tallies, and how many seconds it took."""
    list(threads.map(SelftestClient.join, clients))
    shared, tasks = _shared_tasks(run, clients, each, hall)
    agents = [client.agent for client in clients]
    say(f"selftest: {len(clients)} writers have joined, {len(hall.hubs())} hub")
    began = time.perf_counter()
    _wait([threads.submit(client.work, run, shared, tasks, agents) for client in clients], clients, each, say)
    seconds = time.perf_counter() - began
    tallies = {name: OperationTally() for name in OPERATIONS}
    for client in clients:
        for name, tally in client.tallies.items():
            tallies[name].add(tally)
    return tallies, seconds


def _wait(works: "Sequence[Future[None]]", clients: Sequence[SelftestClient], each: int, say: Say) -> None:
    """Tell how far they are, often at first, until all are done."""
    pause = 1.0
    while wait(works, timeout=pause).not_done:
        pause = min(pause + 1, 10.0)
        done = sum(client.rounds for client in clients)
        say(f"selftest: {done} of {len(clients) * each} rounds")
    for work in works:
        work.result()


def _shared_tasks(
    run: str, clients: Sequence[SelftestClient], each: int, hall: Throwaway
) -> tuple[str, list[list[str]]]:
    """A workflow, and rounds of tasks for all to claim from: in each as many as there are clients."""
    total = len(clients) * each
    workflows = []
    source: dict[str, Any] = {"source_type": "custom", "source_ref": f"{run}-shared"}
    source |= {"source_content": "made by crewhall selftest", "max_parallel_tasks": PLAN_TASKS}
    for first in range(0, total, PLAN_TASKS):
        workflows.append(clients[0].must("workflow_create", name=f"{run} shared", **source)["id"])
        names = [f"task {number}" for number in range(first, min(total, first + PLAN_TASKS))]
        clients[0].must("workflow_set_plan", id=workflows[-1], plan=_plan(names))
    with closing(open_store(hall)) as store, store.read() as tx:
        ids = [row["id"] for one in workflows for row in tx.all("selftest_tasks", workflow_id=one)]
    return workflows[0], [ids[first : first + len(clients)] for first in range(0, total, len(clients))]


def open_store(hall: Throwaway) -> Store:
    """The throw-away hall's database, with the queries of a selftest."""
    return connect(hall.settings.database, Queries([text_of("crewhall.edges.cli", "selftest.sql")]))
