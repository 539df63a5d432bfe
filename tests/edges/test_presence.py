"""Presence, for real: bridges that are connected, silent, killed, and taken over by another hub."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from crewhall import __version__
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.identity import OPERATOR
from tests.conftest import Agent, Live, eventually
from tests.edges.conftest import make_home
from tests.edges.interfaces import META
from tests.edges.program import Program, ask
from tests.edges.stdio import Stdio, bridges, end, hall_of, hubs, the_hub, warm_bridges

LEASE = 1.0  # seconds
SHORT = {"agent__lease": LEASE, "agent__heartbeat": 0.9}
PLAN = {"approach": "slowly", "steps": ["one"]}
LATE: dict[str, dict[str, Any]] = {
    "task_set_plan": {"plan": PLAN},
    "task_update_status": {"status": "completed", "outcome": "too late"},
    "task_replan": {"reason": "another way", "new_plan": PLAN},
    "checkpoint_add": {"type": "progress", "summary": "too late"},
    "task_release": {},
}
Call = Callable[..., dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path, f"[agent]\nlease = {LEASE}\nheartbeat = 0.9\n")


def job(call: Call) -> str:
    """A task of a workflow that is ready."""
    made = call("workflow_create", name="job", source_type="prompt", source_content="do it")["id"]
    task = {"name": "one", "description": "…", "sequence": 1}
    call("workflow_set_plan", id=made, plan={"summary": "s", "approach": "a", "tasks": [task]})
    found: str = call("task_list", workflow_id=made)["tasks"][0]["id"]
    return found


def operator(live: Live) -> Call:
    return lambda tool, /, **given: live.hub.call(tool, given, OPERATOR)


def outlived(call: Call, agent: str, leases: int) -> int:
    """Wait until an agent's lease ends so many leases later than it does now; its end."""
    goal = call("agent_get", id=agent)["lease_expires_at"] + leases * LEASE * 1000

    def until() -> int:
        found: int = call("agent_get", id=agent)["lease_expires_at"]
        return found if found >= goal else 0

    return int(eventually(until, 30))


def test_a_killed_agents_task_goes_to_its_successor_and_its_late_writes_are_stale(
    serve: Callable[..., Live], database: str
) -> None:
    live = serve(**SHORT)
    call = operator(live)
    ada, eve = Agent(live.hub, "ada"), Agent(live.hub, "eve")
    home, hall = live.hub.settings.home, hall_of(live)
    task = job(call)
    first = Stdio(home, **hall, CREWHALL_TOKEN=ada.token)
    assert first.call("task_claim", task_id=task)["claim_epoch"] == 1
    first.call("task_update_status", id=task, status="in_progress")
    first.call("checkpoint_add", task_id=task, type="decision", summary="in Rust")
    outlived(call, ada.id, 2)
    assert call("task_get", id=task)["claimed_by"] == ada.id, "the bridge is connected, if silent"
    os.kill(first.process.pid, signal.SIGKILL)
    first.kill()
    successor = Stdio(home, **hall, CREWHALL_TOKEN=eve.token)
    taken = eventually(lambda: _taken(successor, task), 30)
    assert taken["claim_epoch"] == 2
    noted = successor.call("checkpoint_list", task_id=task)["checkpoints"]
    assert [one["type"] for one in noted] == ["decision", "recovery"]
    assert "ada" in noted[1]["summary"]
    successor.call("task_update_status", id=task, status="in_progress")
    zombie, tokenless = Stdio(home, **hall, CREWHALL_TOKEN=ada.token), Stdio(home, **hall)
    for is_done in (False, True):
        if is_done:
            done = {"status": "completed", "outcome": "by eve"}
            assert successor.call("task_update_status", id=task, **done) == {"success": True}
        for tool, more in LATE.items():
            given = {"task_id" if tool in ("task_release", "checkpoint_add") else "id": task, **more}
            assert zombie.call(tool, **given)["code"] == "STALE_CLAIM"
            named = {"agent_id": ada.id} if tool == "task_release" else {}
            assert tokenless.call(tool, claim_epoch=1, **named, **given)["code"] == "STALE_CLAIM"
    kept = call("task_get", id=task)
    assert (kept["status"], kept["outcome"], kept["plan"], kept["checkpoint_count"]) == ("completed", "by eve", None, 2)
    for client in (successor, zombie, tokenless):
        client.close()


def _taken(client: Stdio, task: str) -> dict[str, Any] | None:
    body = client.call("task_claim", task_id=task)
    return body if body["success"] else None


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_agents_without_a_token_are_kept_by_the_bridge_that_they_came_by_until_it_ends(
    serve: Callable[..., Live], database: str
) -> None:
    live = serve(**SHORT)
    call = operator(live)
    home, hall = live.hub.settings.home, hall_of(live)
    client, other = Stdio(home, **hall), Stdio(home, **hall)
    joined = client.call("agent_register", name="joined", runtime="custom")["id"]
    told = call("agent_register", name="told", runtime="custom")["id"]
    client.call("agent_heartbeat", agent_id=told)
    left = client.call("agent_register", name="left", runtime="custom")["id"]
    tasks = {agent: job(call) for agent in (joined, told)}
    for agent, task in tasks.items():
        assert client.call("task_claim", task_id=task, agent_id=agent)["success"]
    other.call("agent_unregister", id=left)
    for agent in tasks:
        outlived(call, agent, 2)
    assert [call("task_get", id=task)["claimed_by"] for task in tasks.values()] == [joined, told]
    assert call("agent_get", id=left)["status"] == "offline", "its bridge does not bring it back"
    assert client.close() == 0
    eventually(lambda: [call("task_get", id=task)["claimed_by"] for task in tasks.values()] == [None, None], 30)
    assert [call("agent_get", id=agent)["status"] for agent in tasks] == ["offline", "offline"]
    other.close()


def test_a_silent_bridge_keeps_its_task_when_its_hub_is_killed_and_another_takes_over(tmp_path: Path) -> None:
    """The other hub takes the dead one's chores at once: the bridge has the rest of its lease to come back."""
    home = make_home(tmp_path, "[agent]\nlease = 8.0\nheartbeat = 0.9\n")
    program = Program(home)
    with program.up("--port", "0") as first, program.up("--port", "0") as second, bridges(home) as (client,):
        agent = client.call("agent_register", name="bob", runtime="custom")["id"]
        task = job(client.call)
        assert client.call("task_claim", task_id=task, agent_id=agent)["success"]

        def call(tool: str, **given: Any) -> dict[str, Any]:
            body: dict[str, Any] = ask(second, tool.replace("_", "/", 1), **given)
            return body

        outlived(call, agent, 1)
        assert hubs(home) and first.end(signal.SIGKILL) == -signal.SIGKILL
        outlived(call, agent, 3)
        assert call("task_get", id=task)["claimed_by"] == agent
        assert call("agent_get", id=agent)["status"] == "busy"


def test_a_silent_bridge_finds_the_hub_that_someone_else_starts(home: Path) -> None:
    """It starts none for itself while it has nothing to ask, and no hub means that nobody is missed."""
    with warm_bridges(home) as (client,):
        agent = client.call("agent_register", name="bob", runtime="custom")["id"]
        task = job(client.call)
        client.call("task_claim", task_id=task, agent_id=agent)
        end(the_hub(home), signal.SIGKILL)
        with bridges(home) as (other,):
            outlived(other.call, agent, 3)
            assert other.call("task_get", id=task)["claimed_by"] == agent


def test_a_hall_served_in_the_bridges_own_process_beats_for_its_agent_too(home: Path) -> None:
    with bridges(home, 1, "--standalone") as (client,):
        me = {"name": "bob", "runtime": "custom"}
        agent = eventually(lambda: client.call("agent_register", **me).get("id"), 60)  # a busy machine starts it slowly
        outlived(client.call, agent, 2)
        assert client.call("agent_get", id=agent)["status"] == "online"


ODD_NAMES = ["br_\0", "br_\ud800", "x" * 10_000, 7, ["br_1"], {}, "", "br_Ä"]


def test_a_bridge_with_a_name_that_no_database_holds_gets_another(serve: Callable[..., Live], database: str) -> None:
    """It can work, and the chore that notes who is here goes on for all the others."""
    live = serve(**SHORT)
    with ExitStack() as stack:
        for name in ODD_NAMES:
            lines = stack.enter_context(_connected(live))
            _say(lines, {"crewhall": __version__, "bridge": name})
            assert json.loads(lines.readline())["max_bytes"]
            me = {"name": "agent_register", "arguments": {"name": "odd", "runtime": "custom"}, "_meta": META}
            _say(lines, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": me})
            agent = json.loads(lines.readline())["result"]["structuredContent"]["id"]
        outlived(operator(live), agent, 2)
        assert live.hub.call("agent_list", {"status": ["online"]}, OPERATOR)["total"] == len(ODD_NAMES)


@contextmanager
def _connected(live: Live) -> Iterator[BinaryIO]:
    connection = HubSocket(live.hub.settings).connect()
    with closing(connection), connection.makefile("rwb") as lines:
        yield cast(BinaryIO, lines)


def _say(lines: BinaryIO, message: dict[str, Any]) -> None:
    lines.write(json.dumps(message).encode() + b"\n")
    lines.flush()
