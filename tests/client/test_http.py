"""Servers by Streamable HTTP: on the SDK, in a process that is killed, and of the last era, with sessions."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crewhall.client import Client
from crewhall.errors import Unavailable
from tests.client.clients import HERE
from tests.client.old_http_server import TOKEN, old_server
from tests.conftest import eventually
from tests.postgres import free_port


class SdkServer:
    """A server on the SDK, in a process of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        words = [sys.executable, str(HERE / "sdk_server.py"), str(self.port)]
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        eventually(self.answers, 30)

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def sdk_server() -> Iterator[SdkServer]:
    server = SdkServer()
    yield server
    server.kill()


def entry(port: int) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"Authorization": f"Bearer {TOKEN}"}}


def test_a_cancelled_task_cancels_its_call_at_the_server(sdk_server: SdkServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    ticks: list[float] = []

    async def hear(done: float, *_: object) -> None:
        ticks.append(done)

    async def cancel() -> None:
        async with Client({"sdk": entry(sdk_server.port)}) as client:
            answer = await client.call_tool("tick", {"times": 3, "seconds": 0.01}, progress=hear)
            assert (answer, ticks) == ({"result": "done"}, [0.0, 1.0, 2.0])
            call = asyncio.create_task(client.call_tool("wait", {"path": str(state)}))
            while not state.exists():
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while state.read_text() != "cancelled":
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(cancel(), 20))


def test_a_server_killed_during_a_call_is_told_of_and_reconnected(sdk_server: SdkServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Client({"sdk": entry(sdk_server.port)}) as client, ThreadPoolExecutor(1) as threads:
        assert client.call_tool("tick", {"times": 8, "seconds": 0.1}, timeout=0.6) == {"result": "done"}
        waits = threads.submit(client.call_tool, "wait", {"path": str(state)})
        eventually(state.exists)
        sdk_server.kill()
        with pytest.raises(Unavailable, match=r"the server sdk died during wait: .*; it may have happened"):
            waits.result(20)
        for _ in range(6):  # the client's own tries are ever rarer
            with pytest.raises(Unavailable, match="the server sdk is not connected: All connection attempts failed"):
                client.call_tool("who")
        assert not client.servers()["sdk"].connected
        with old_server(sdk_server.port):  # another in its place, with another tool
            assert threads.submit(client.call_tool, "count").result(5) == {"calls": 1}


def test_a_server_that_forgot_the_session_is_asked_again_and_does_it_once() -> None:
    with old_server() as server, Client({"old": entry(server.server_port)}) as client:
        assert client.call_tool("count") == {"calls": 1}
        server.forget_sessions()
        assert client.call_tool("count") == {"calls": 2}
        assert server.asked.count("initialize") == 2


def test_a_refusal_by_http_is_told_of_without_the_token() -> None:
    with old_server() as server:
        wrong = {"url": f"{server.url}?key=sesame1", "headers": {"Authorization": "Bearer sesame2"}}
        with Client({"old": wrong}) as client, pytest.raises(Unavailable) as refused:
            client.call_tool("count")
        assert "(HTTP 401 Unauthorized)" in refused.value.message
        assert "sesame" not in f"{refused.value!r} {client!r}"
