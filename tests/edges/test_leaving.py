"""Clients that leave, handlers that do not listen, databases that hang: what the hub does all the same."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from crewhall.app import Call
from crewhall.edges.http.feed import Feed
from crewhall.edges.hub.dispatch import Dispatcher, ProgressRelay
from crewhall.edges.hub.threads import Job, Threads
from crewhall.edges.mcp.caller import Caller, caller
from crewhall.edges.mcp.line_transport import Conversation
from crewhall.edges.mcp.server import McpEdge
from crewhall.edges.mcp.subscriptions import Listening
from crewhall.families.work.model import Done
from crewhall.identity import OPERATOR
from crewhall.tool import Family, Registry
from tests.conftest import Live, eventually
from tests.edges.interfaces import ACCEPT
from tests.edges.program import Program
from tests.edges.sample_family import SampleFamily

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
Serve = Callable[..., Live]


class Deaf:
    """A tool that does not look at its client until the test lets it go."""

    def __init__(self) -> None:
        self.started, self.proceed = threading.Event(), threading.Event()
        family = Family("deaf", "", "crewhall.families.work")

        @family.tool("deaf_wait", profiles=("standard",))
        def deaf_wait(call: Call) -> Done:
            """Hear nothing."""
            self.started.set()
            self.proceed.wait(30)
            return Done(success=True)

        @family.tool("deaf_exit", profiles=("standard",))
        def deaf_exit(call: Call) -> Done:
            """Leave altogether."""
            raise SystemExit(3)

        self.registry = Registry([family])


def test_a_client_that_leaves_a_deaf_call_costs_nothing(serve: Serve, database: str) -> None:
    """anyio cancels a task again with every turn of the loop; a waiting that swallows that spins for ever."""
    deaf = Deaf()
    live = serve(tools=deaf.registry)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "deaf_wait", "arguments": {}}}
    body = json.dumps(message).encode()
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in (ACCEPT | {"MCP-Protocol-Version": "2025-06-18"}).items())
    with socket.create_connection(("127.0.0.1", live.port)) as client:
        client.sendall(head.encode() + b"\r\n" + body)
        assert deaf.started.wait(10)
    busy = busy_share(seconds=0.5)
    deaf.proceed.set()
    assert busy < 0.2, f"the hub was busy {busy:.0%} of a time in which nothing happened"


def busy_share(seconds: float) -> float:
    """How much of a while this process, with the hub in it, spends on the processor."""
    threading.Event().wait(0.2)  # the hub notices that its client is gone
    began, used = time.monotonic(), time.process_time()
    threading.Event().wait(seconds)
    return (time.process_time() - used) / (time.monotonic() - began)


def test_a_handler_that_exits_does_not_take_the_hub_along(serve: Serve, database: str) -> None:
    live = serve(tools=Deaf().registry)
    answer = httpx2.post(f"{live.url}/api/v1/deaf/exit", json={})
    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL")
    assert httpx2.get(f"{live.url}/api/v1/hub").status_code == 200


def test_a_call_that_cannot_be_stopped_is_answered_all_the_same(serve: Serve, database: str) -> None:
    deaf = Deaf()
    live = serve(tools=deaf.registry, tool__timeout="100ms")
    answer = httpx2.post(f"{live.url}/api/v1/deaf/wait", json={}, timeout=20)
    deaf.proceed.set()
    assert answer.json()["code"] == "TIMED_OUT" and "may still happen" in answer.json()["hint"]


def test_no_sign_of_life_comes_after_the_end(database: str) -> None:
    async def tell() -> tuple[int, int]:
        reports: list[str | None] = []
        slow = asyncio.Event()

        async def report(done: float, total: float | None, message: str | None) -> None:
            reports.append(message)
            await slow.wait()

        told = ProgressRelay(report, 0.01)
        while not reports:
            await asyncio.sleep(0.01)
        told.end()
        at_the_end = len(reports)
        slow.set()
        await asyncio.sleep(0.15)
        return at_the_end, len(reports)

    at_the_end, later = asyncio.run(tell())
    assert at_the_end == later == 1


def test_a_client_that_does_not_hear_progress_still_gets_its_answer(serve: Serve, database: str) -> None:
    live = serve(tools=SampleFamily().registry)

    async def use() -> dict[str, Any]:
        async def report(done: float, total: float | None, message: str | None) -> None:
            raise ConnectionError("the stream is gone")

        dispatcher = Dispatcher(live.hub)
        answer = await dispatcher.answer("lab_count", {}, OPERATOR, "test", report)
        assert await dispatcher.close(1)
        return answer.body

    assert asyncio.run(use()) == {"success": True}


def test_a_client_that_goes_away_before_its_answer_ends_its_conversation(live: Live) -> None:
    async def use() -> None:
        async def say(line: str) -> None:
            raise ConnectionResetError("the client is gone")

        async def who(_: bool) -> Caller:
            return caller(live.hub.registry, OPERATOR, "", None, edge="test")

        dispatcher = Dispatcher(live.hub)
        edge = McpEdge(dispatcher, Listening(dispatcher, Feed(dispatcher), live.hub.registry))
        talk = Conversation(edge, who, say)
        talking = asyncio.create_task(talk.run())
        await talk.receive(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
        await asyncio.wait_for(talking, 10)
        assert await dispatcher.close(1)

    asyncio.run(use())


def test_threads_that_do_not_end_are_told_of(database: str) -> None:
    proceed = threading.Event()

    async def use() -> bool:
        threads = Threads(1, "test")
        threads.start(Job(lambda: proceed.wait(30)))
        return threads.close(0.05)

    assert asyncio.run(use()) is False
    proceed.set()


HOLDER = """
import sys
from pathlib import Path
from crewhall.store.open import open_store
from crewhall.store.sql import Queries
from crewhall.store.transaction import Work
store = open_store(sys.argv[1], Queries([]))
with store.write(Work("operator", None, 0)) as tx:
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Another process that stops in the middle of its transaction, as Ctrl-Z makes one."""
    holders: list[subprocess.Popen[str]] = []

    def hold(path: Path) -> None:
        command = [sys.executable, "-c", HOLDER, str(path)]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        holders.append(holder)
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        os.kill(holder.pid, signal.SIGSTOP)

    yield hold
    for holder in holders:
        holder.kill()
        holder.wait(10)


def test_a_hub_whose_database_hangs_answers_and_can_be_stopped(
    held: Callable[[Path], None], tmp_path: Path, database: str
) -> None:
    program = Program(tmp_path / "home")
    with program.up(MCP_TOOL_TIMEOUT="500ms", CREWHALL_SERVER_SHUTDOWN_SECONDS="1") as up:
        held(program.home / "hall.db")
        body = {"name": "ada", "runtime": "codex"}
        answer = httpx2.post(f"{up.url}/api/v1/agent/register", json=body, timeout=20)
        assert answer.json()["code"] == "TIMED_OUT"
        assert httpx2.get(f"{up.url}/api/v1/agent/get?id=x").json()["code"] == "NOT_FOUND", "reads go on"
        up.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: up.process.poll() is not None, 20)
    assert "could not be ended" in up.log.read_text()
