"""What one client takes of a hub leaves enough for the others: threads, large requests, streams."""

import asyncio
import gc
import json
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx2
import pytest
from websockets.exceptions import InvalidStatus

from crewhall.app import Call, Hub
from crewhall.edges.hub import lanes
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.families.all import registry
from crewhall.families.work.model import Done
from crewhall.identity import OPERATOR
from crewhall.tool import Family, Registry
from tests.conftest import Agent, Live, eventually
from tests.edges.conftest import newcomer
from tests.edges.interfaces import META, MODERN
from tests.edges.raw_http import JSON, http, mcp_headers
from tests.edges.test_live import watching

Serve = Callable[..., Live]
LARGE = 200_000


class Holding:
    """A registry with a long tool that runs until the test lets go."""

    def __init__(self) -> None:
        self.callers: list[str] = []
        self.proceed = threading.Event()
        family = Family("lab", "Tools for tests.", "crewhall.families.work")

        @family.tool("lab_hold", pace="long", profiles=("standard", "worker"))
        def lab_hold(call: Call) -> Done:
            """Wait until the test lets go."""
            self.callers.append(call.actor.id)
            assert self.proceed.wait(20)
            return Done(success=True)

        family.tools += [tool for tool in registry().tools if tool.family == "work"]
        self.registry = Registry([family])

    @property
    def began(self) -> Counter[str]:
        return Counter(self.callers)


@pytest.fixture(params=["rest", MODERN])
def hold(request: pytest.FixtureRequest) -> Callable[[Live, str], int]:
    """A call of the long tool over REST or MCP; returns the status of its answer."""

    def by_rest(live: Live, token: str) -> int:
        headers = JSON | {"Authorization": f"Bearer {token}"}
        return http.post(f"{live.url}/api/v1/lab/hold", content="{}", headers=headers).status_code

    def by_mcp(live: Live, token: str) -> int:
        params = {"name": "lab_hold", "arguments": {}, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = mcp_headers(MODERN, tool="lab_hold") | {"Authorization": f"Bearer {token}"}
        return http.post(f"{live.url}/mcp", json=message, headers=headers).status_code

    return by_rest if request.param == "rest" else by_mcp


def test_one_agents_long_calls_leave_threads_for_others(serve: Serve, hold: Callable[[Live, str], int]) -> None:
    lab = Holding()
    live = serve(tools=lab.registry, tool__long_threads=8)
    eve, ada = newcomer(live), newcomer(live)
    with ThreadPoolExecutor(10) as pool:
        theirs = [pool.submit(hold, live, eve.token) for _ in range(9)]
        eventually(lambda: lab.began[eve.id] == 2)
        others = pool.submit(hold, live, ada.token)
        eventually(lambda: lab.began == {eve.id: 2, ada.id: 1})
        lab.proceed.set()
        assert {one.result(20) for one in (*theirs, others)} == {200}
    assert lab.began == {eve.id: 9, ada.id: 1}


@pytest.fixture(params=["/api/v1/agent/get", "/mcp"])
def stalled(request: pytest.FixtureRequest, live: Live) -> Iterator[tuple[Live, socket.socket, Agent]]:
    """A large request of an agent's, of which half has been sent, and which has its place."""
    eve = newcomer(live)
    head = f"POST {request.param} HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\nAuthorization: Bearer {eve.token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {LARGE}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", live.port), 20) as half:
        half.sendall(head.encode() + b" " * (LARGE // 2))
        eventually(lambda: not live.server.services.dispatcher._large_bodies.is_empty)
        yield live, half, eve


def large_request(live: Live, token: str) -> int:
    body = json.dumps({"id": "ag_none"}).ljust(LARGE)
    headers = JSON | {"Authorization": f"Bearer {token}"}
    return http.post(f"{live.url}/api/v1/agent/get", content=body, headers=headers).status_code


def test_an_agent_has_one_large_request_at_once_and_the_next_waits(stalled: tuple[Live, socket.socket, Agent]) -> None:
    live, half, eve = stalled
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(large_request, live, eve.token)
        assert large_request(live, newcomer(live).token) == 404, "another's does not wait"
        small = JSON | {"Authorization": f"Bearer {eve.token}"}
        assert http.post(f"{live.url}/api/v1/agent/list", content="{}", headers=small).status_code == 200
        assert not following.done()
        half.sendall(b" " * (LARGE // 2))
        assert following.result(20) == 404


def test_an_agent_has_so_many_streams_of_all_kinds(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_STREAMS", 2)
    eve, ada = newcomer(live), newcomer(live)

    def opened(agent: Agent) -> httpx2.Response:
        request = client.build_request("GET", f"{live.url}/sse", headers={"Authorization": f"Bearer {agent.token}"})
        return client.send(request, stream=True)

    def listened(agent: Agent) -> httpx2.Response:
        params = {"notifications": {"resourceSubscriptions": ["crewhall://agents"]}, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 5, "method": "subscriptions/listen", "params": params}
        headers = mcp_headers(MODERN, "subscriptions/listen") | {"Authorization": f"Bearer {agent.token}"}
        return client.send(client.build_request("POST", f"{live.url}/mcp", json=message, headers=headers), stream=True)

    with closing(httpx2.Client(timeout=20)) as client, watching(live, Authorization=f"Bearer {eve.token}"):
        first = opened(eve)
        refused = opened(eve)
        assert (first.status_code, refused.status_code) == (200, 429)
        assert "you have 2 streams open, and 2 are allowed" in refused.read().decode()
        assert "LIMIT_EXCEEDED" in listened(eve).read().decode()
        with pytest.raises(InvalidStatus) as full, watching(live, Authorization=f"Bearer {eve.token}"):
            pass
        assert full.value.response.status_code == 429
        assert opened(ada).status_code == 200
        first.close()
        eventually(lambda: opened(eve).status_code == 200)


class Arguments(dict[str, object]):
    """Arguments of which one can tell whether they are still there."""


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("agent_list", {"status": ["wrong"]}), ("agent_list", {}), ("task_get", {"id": "tk_none"})],
)
def test_a_hub_keeps_no_arguments_when_a_call_is_over(hub: Hub, tool: str, arguments: dict[str, object]) -> None:
    """Not even until the garbage collector comes, which is rare: they may be large, and the hub has many threads."""

    async def use() -> None:
        dispatcher = Dispatcher(hub)
        given = Arguments(arguments)
        kept = weakref.ref(given)
        await dispatcher.answer(tool, given, OPERATOR, "test")
        del given
        end = time.monotonic() + 5
        while kept() is not None and time.monotonic() < end:
            await asyncio.sleep(0.01)
        assert kept() is None, gc.get_referrers(kept())
        await dispatcher.close(1)

    gc.collect()
    gc.disable()
    try:
        asyncio.run(use())
    finally:
        gc.enable()
