"""Open streams are looked at again: the tokens of all by one query, and those that open nothing any more are ended."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from crewhall.edges.hub import doorkeeper
from crewhall.edges.hub.doorkeeper import Doorkeeper, Refused
from crewhall.errors import Failure, Unavailable
from crewhall.identity import OPERATOR, Credentials
from crewhall.store.transaction import QueuedStatement, Rows
from tests.conftest import BOTH, Agent, Live, eventually
from tests.edges.conftest import SharedHubs, newcomer
from tests.edges.forked_bridge import ForkedBridge
from tests.edges.interfaces import META, MODERN
from tests.edges.raw_http import mcp_headers
from tests.edges.stdio import hall_of
from tests.edges.test_live import register, seen, watching

AGENTS = {"resourceSubscriptions": ["crewhall://agents"]}


@pytest.fixture(params=BOTH)
def live(request: pytest.FixtureRequest, shared_hubs: SharedHubs, monkeypatch: pytest.MonkeyPatch) -> Live:
    monkeypatch.setattr(doorkeeper, "CHECK_SECONDS", 0.1)
    return shared_hubs.find("hall", request.param)


@pytest.fixture
def asked(live: Live, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The queries for tokens that are made from now on outside transactions: by which name, and for how many."""
    found: list[tuple[str, int]] = []
    store = type(live.hub.store)
    ask = store.ask

    def noting(self: Any, steps: Sequence[QueuedStatement]) -> list[Rows]:
        hashes = [(step.name, json.loads(step.params.get("hashes", "[0]"))) for step in steps]
        found.extend((name, len(each)) for name, each in hashes if name.startswith("token"))
        return ask(self, steps)

    monkeypatch.setattr(store, "ask", noting)
    if "one" in vars(store):  # SQLite has a shorter way for one query
        shorter = store.one

        def noting_one(self: Any, name: str, /, **params: Any) -> Any:
            if name.startswith("token"):
                found.append((name, 1))
            return shorter(self, name, **params)

        monkeypatch.setattr(store, "one", noting_one)
    return found


def revoke(live: Live, agent: Agent) -> None:
    live.hub.call("agent_token_revoke", {"agent_id": agent.id}, OPERATOR)


def end_of(watcher: ClientConnection) -> tuple[str, int]:
    """The code of the refusal that a watcher is sent at last, and the code that it is closed with."""
    last = ""
    try:
        while True:
            last = str(watcher.recv(timeout=20))
    except ConnectionClosed as closed:
        assert closed.rcvd is not None
        return json.loads(last)["code"], closed.rcvd.code


def test_the_tokens_of_all_watchers_are_looked_up_by_one_query(live: Live, asked: list[tuple[str, int]]) -> None:
    agents = [newcomer(live) for _ in range(20)]
    with ExitStack() as stack:
        for agent in agents:
            stack.enter_context(watching(live, Authorization=f"Bearer {agent.token}"))
            stack.enter_context(watching(live, Authorization=f"Bearer {agent.token}"))
        assert asked.count(("token_find", 1)) == 40, "who connects is looked up by itself"
        asked.clear()
        eventually(lambda: len(asked) >= 4)
        assert asked[1:4] == [("tokens_gone", 20)] * 3


def test_a_revoked_token_ends_its_watchers_and_no_others(live: Live) -> None:
    gone, stays = newcomer(live), newcomer(live)
    with (
        watching(live, Authorization=f"Bearer {gone.token}") as one,
        watching(live, Authorization=f"Bearer {gone.token}") as two,
        watching(live, f"?after={live.hub.call('event_list', {}, OPERATOR)['newest']}&topic=repository") as local,
        watching(live, "?topic=repository", Authorization=f"Bearer {stays.token}") as other,
    ):
        for watcher in (local, other):
            watcher.recv(timeout=20)
        revoke(live, gone)
        assert end_of(one) == end_of(two) == ("FORBIDDEN", 4401)
        live.hub.call("repository_register", {"path": f"/{gone.id}"}, OPERATOR)
        assert seen(local, 1) and seen(other, 1)


def test_a_revoked_token_ends_what_listens_over_http(live: Live) -> None:
    agent = newcomer(live)
    message = {"jsonrpc": "2.0", "id": 5, "method": "subscriptions/listen"}
    message |= {"params": {"notifications": AGENTS, "_meta": META}}
    headers = mcp_headers(MODERN, "subscriptions/listen") | {"Authorization": f"Bearer {agent.token}"}
    with httpx2.stream("POST", f"{live.url}/mcp", json=message, headers=headers, timeout=30) as stream:
        datas = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: {"))
        assert next(datas)["method"] == "notifications/subscriptions/acknowledged"
        revoke(live, agent)
        last = list(datas)[-1]
    assert last["id"] == 5 and last["error"]["data"]["code"] == "FORBIDDEN"
    eventually(lambda: live.server.services.listening.streams == 0)


def test_a_revoked_token_ends_what_listens_through_a_bridge(live: Live) -> None:
    gone = newcomer(live)
    one = ForkedBridge(live.hub.settings.home, **hall_of(live), CREWHALL_TOKEN=gone.token)
    other = ForkedBridge(live.hub.settings.home, **hall_of(live))
    name, _ = (client.send("subscriptions/listen", notifications=AGENTS) for client in (one, other))
    eventually(lambda: one.notices and other.notices)
    revoke(live, gone)
    assert one.answer(name)["error"]["data"]["code"] == "FORBIDDEN"
    before = len(other.notices)
    register(live, 1)
    eventually(lambda: len(other.notices) > before)
    one.close()
    other.close()


def refusal_when(live: Live, asking: Callable[[Callable[[], Refused]], Any]) -> Failure:
    """What a stream with a token is refused with if this asks the hall."""

    async def use() -> Failure:
        told: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        with Doorkeeper(live.hub, asking).watch(Credentials(token="x"), told.set_result):
            return await asyncio.wait_for(told, 10)

    return asyncio.run(use())


def test_a_stream_whose_token_cannot_be_looked_at_is_ended(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    async def away(_: Callable[[], Refused]) -> Refused:
        raise Unavailable("the database is away", hint="Wait.")

    async def broken(_: Callable[[], Refused]) -> Refused:
        raise ValueError("a bug")

    assert refusal_when(live, away).code == "UNAVAILABLE"
    assert refusal_when(live, broken).code == "INTERNAL"
    assert "a bug in looking at the tokens of streams" in caplog.text
