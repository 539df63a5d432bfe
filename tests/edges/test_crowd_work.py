"""A crowd at work: many clients create, claim and write at once, and whole fleets work a plan down."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.edges.conftest import make_home
from tests.edges.fleet import Connection, Drainer, assert_drained, drain_together, layered_plan, planned_workflow, rows
from tests.edges.program import Program
from tests.edges.stdio import Stdio, end_hubs, hubs, warm_bridges
from tests.sizes import size

EACH = size(15, full=200)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path, '[log]\nlevel = "warning"\n')


class Client:
    """A client of the crowd: what it was told."""

    def __init__(self, bridge: Stdio, number: int) -> None:
        self.number = number
        self.bridge = bridge
        self.agent: str = bridge.call("agent_register", name=f"agent {number}", runtime="custom")["id"]
        self.workflows: list[str] = []
        self.tasks: list[str] = []
        self.messages: list[tuple[str, str]] = []
        self.wrong: list[dict[str, object]] = []

    def create(self) -> None:
        for step in range(EACH):
            name = f"{self.number} {step}"
            body = self.bridge.call("workflow_create", name=name, source_type="prompt", source_content="a test")
            self._note(body, self.workflows)

    def _note(self, body: dict[str, str], told: list[str]) -> None:
        if "code" in body:
            self.wrong.append(dict(body))
        else:
            told.append(body["id"])

    def claim(self, rounds: list[list[str]]) -> None:
        """One task of every round, in an order of its own: there is one for each client."""
        chance = random.Random(self.number)
        for tasks in rounds:
            for task in chance.sample(tasks, len(tasks)):
                body = self.bridge.call("task_claim", task_id=task, agent_id=self.agent)
                if body.get("success"):
                    self.tasks.append(task)
                    break
                if body.get("already_claimed_by") is None:
                    self.wrong.append(body)

    def write(self, agents: list[str]) -> None:
        chance = random.Random(self.number)
        for step in range(EACH):
            told: list[str] = []
            to = chance.choice(agents)
            who = {"sender_id": self.agent, "recipient_id": to}
            self._note(self.bridge.call("message_send", message_type="query", body=f"{step}", **who), told)
            self.messages += [(one, to) for one in told]


def test_eight_clients_create_claim_and_write_at_once_and_each_answer_is_true(home: Path) -> None:
    with warm_bridges(home, 8) as some, ThreadPoolExecutor(24) as threads:
        clients = list(threads.map(Client, some, range(8)))
        plan = layered_plan(8 * EACH, 8 * EACH)
        workflow = planned_workflow(some[0].call, plan, "claimed")
        database = str(home / "hall.db")
        tasks = [task for (task,) in rows(database, "SELECT id FROM task ORDER BY place")]
        rounds = [tasks[first : first + 8] for first in range(0, len(tasks), 8)]
        agents = [client.agent for client in clients]
        works = [work for c in clients for work in (threads.submit(c.create), threads.submit(c.claim, rounds),
                                                    threads.submit(c.write, agents))]  # fmt: skip
        for work in works:
            work.result(120)
        assert len(hubs(home)) == 1
    assert [client.wrong for client in clients] == [[]] * 8
    assert [len(told) for c in clients for told in (c.workflows, c.tasks, c.messages)] == [EACH] * 24
    _assert_created(database, clients, workflow)
    _assert_claimed(database, clients)
    _assert_sent(database, clients)


def _assert_created(database: str, clients: list[Client], other: str) -> None:
    """Every workflow is there once, under the id that its client was told."""
    told = sorted((f"{c.number} {step}", id) for c in clients for step, id in enumerate(c.workflows))
    assert sorted(rows(database, f"SELECT name, id FROM workflow WHERE id <> '{other}'")) == told


def _assert_claimed(database: str, clients: list[Client]) -> None:
    """Every task has one holder, who was told so, and one claim, the first."""
    told = sorted((task, c.agent) for c in clients for task in c.tasks)
    assert len({task for task, _ in told}) == len(told)
    assert rows(database, "SELECT id, claimed_by FROM task ORDER BY id") == told
    claims = rows(database, "SELECT task_id, agent_id, epoch, ended_at FROM claim ORDER BY task_id")
    assert claims == [(task, agent, 1, None) for task, agent in told]


def _assert_sent(database: str, clients: list[Client]) -> None:
    """Every message is there once, in the inbox it was sent to, and the inboxes' counters are right."""
    told = sorted((id, c.agent, to) for c in clients for id, to in c.messages)
    assert rows(database, "SELECT id, sender_id, recipient_id FROM message ORDER BY id") == told
    unread = Counter(to for _, _, to in told)
    counted = rows(database, "SELECT agent_id, messages FROM inbox_tally WHERE status = 'unread'")
    assert sorted(counted) == sorted(unread.items())
    places = rows(database, "SELECT recipient_id, count(*), max(place), count(DISTINCT place) FROM message GROUP BY 1")
    assert all(number == highest == different for _, number, highest, different in places)
    assert sorted((to, highest) for to, _, highest, _ in places) == sorted(
        rows(database, "SELECT agent_id, last_place FROM inbox")
    )


# In the small run an agent does ten on average; how evenly is the machine's doing. At full size it shows the hall's.
AGENTS = size(8, full=32)
TASKS = size(80, full=2000)
WIDTH = TASKS // 20


def test_agents_on_four_hubs_over_one_postgresql_drain_a_plan(tmp_path: Path, postgres_url: str) -> None:
    program = Program(tmp_path / "home", {"CREWHALL_DATABASE_URL": postgres_url, "MCP_LOG_LEVEL": "warning"})
    with ExitStack() as stack:
        urls = [stack.enter_context(program.up()).url for _ in range(4)]
        operator = Connection(urls[0])
        stack.callback(operator.close)
        workflow = planned_workflow(operator.call, layered_plan(TASKS, WIDTH))
        drainers: dict[str, Drainer] = {}
        began = time.monotonic()
        for number in range(AGENTS):
            made = operator.call("agent_token_create", name=f"agent {number}", role="worker")
            connection = Connection(urls[number % 4], made["token"])
            stack.callback(connection.close)
            drainers[made["agent_id"]] = Drainer(connection.call, workflow, number, began + 240, looks_at=20)
        drain_together(list(drainers.values()))
        report("4 hubs, PostgreSQL", drainers, began)
        assert_drained(postgres_url, drainers, TASKS, least=size(1, full=10))
    assert rows(postgres_url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]


def test_eight_bridges_on_sqlite_drain_a_plan(home: Path) -> None:
    with fleet(home, 8) as (operator, agents):
        workflow = planned_workflow(operator.call, layered_plan(TASKS, WIDTH))
        began = time.monotonic()
        drainers = {
            agent: Drainer(bridge.call, workflow, number, began + 240, looks_at=8)
            for number, (agent, bridge) in enumerate(agents.items())
        }
        drain_together(list(drainers.values()))
        report("8 bridges, SQLite", drainers, began)
        assert len(hubs(home)) == 1
    assert_drained(str(home / "hall.db"), drainers, TASKS, least=size(1, full=50))


@contextmanager
def fleet(home: Path, count: int) -> Iterator[tuple[Stdio, dict[str, Stdio]]]:
    """The operator's bridge, and a bridge for each of so many agents, each with that agent's token."""
    with warm_bridges(home) as (operator,), ExitStack() as stack:
        agents: dict[str, Stdio] = {}
        for number in range(count):
            made = operator.call("agent_token_create", name=f"agent {number}", role="worker")
            agents[made["agent_id"]] = Stdio(home, CREWHALL_TOKEN=made["token"])
            stack.callback(agents[made["agent_id"]].kill)
        yield operator, agents
    end_hubs(home)


def report(where: str, drainers: dict[str, Drainer], began: float) -> None:
    """What `pytest -s` or a failure shows."""
    took = time.monotonic() - began
    calls = sum(one.calls for one in drainers.values())
    beaten = sum((one.beaten for one in drainers.values()), Counter())
    did = sorted(len(one.completed) for one in drainers.values())
    print(f"{where}: {took:.1f} s, {calls / took:.0f} calls/s, {calls} calls, beaten {dict(beaten)}, each did {did}")
