"""Events as they happen: from any cursor, each once, in order; who does not read is dropped."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from crewhall.edges.hub import doorkeeper
from crewhall.identity import OPERATOR
from crewhall.store.events import DAY_MS, newest_seen, prune
from tests.conftest import BOTH, Clock, Live, eventually
from tests.edges.conftest import SharedHubs, newcomer
from tests.edges.raw_http import http
from tests.edges.test_leaving import busy_share


@pytest.fixture(params=BOTH)
def live(request: pytest.FixtureRequest, shared_hubs: SharedHubs) -> Live:
    """The module's hub on each database; a test looks at what happens after its beginning."""
    return shared_hubs.find("hall", request.param)


@contextmanager
def watching(live: Live, query: str = "", **headers: str) -> Iterator[ClientConnection]:
    url = f"{live.url.replace('http', 'ws')}/api/v1/events{query}"
    with connect(url, additional_headers=headers, open_timeout=20, compression=None) as watcher:
        yield watcher


def seen(watcher: ClientConnection, count: int) -> list[dict[str, Any]]:
    """The next so many events of a watcher."""
    events: list[dict[str, Any]] = []
    while len(events) < count:
        page = json.loads(watcher.recv(timeout=20))
        events += page["events"]
        assert page["cursor"] >= (events[-1]["seq"] if events else 0)
    return events


def newest(live: Live) -> int:
    """The number of the last event until now, also of one that is pruned."""
    return newest_seen(live.hub.store)


def register(live: Live, count: int) -> list[str]:
    """So many new agents, by their ids."""
    asked = [{"name": f"agent {n}", "runtime": "custom"} for n in range(count)]
    return [live.hub.call("agent_register", one, OPERATOR)["id"] for one in asked]


def test_a_watcher_is_told_what_happens_from_now_on(serve: Callable[..., Live]) -> None:
    live = serve()
    register(live, 3)
    with watching(live) as watcher:
        assert json.loads(watcher.recv(timeout=20)) == {"events": [], "cursor": 3, "newest": 3}
        assert _watchers(live) == 1
        register(live, 2)
        events = seen(watcher, 2)
    assert [event["seq"] for event in events] == [4, 5]
    assert events[0] == live.hub.call("event_list", {"after": 3, "limit": 1}, OPERATOR)["events"][0]


def _watchers(live: Live) -> int:
    text = http.get(f"{live.url}/metrics").text
    return int(text.partition('crewhall_open_connections{kind="websocket"} ')[2].split()[0])


def many_events(live: Live) -> None:
    with live.hub.own_work() as tx:
        for n in range(1400):
            tx.event("agent.updated", f"ag_{n}")


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("after", [0, 1, 1200, 1399])
def test_a_watcher_may_begin_anywhere_and_misses_nothing(shared_hubs: SharedHubs, kind: str, after: int) -> None:
    live, _ = shared_hubs.furnished(kind, many_events)
    last = newest(live)
    with watching(live, f"?after={after}") as watcher:
        register(live, 5)
        assert [event["seq"] for event in seen(watcher, last + 5 - after)] == list(range(after + 1, last + 6))


def test_a_topic_is_a_noun_or_a_kind(live: Live) -> None:
    now = f"?after={newest(live)}"
    with watching(live, f"{now}&topic=agent.unregistered") as kind, watching(live, f"{now}&topic=agent") as noun:
        (agent,) = register(live, 1)
        live.hub.call("repository_register", {"path": "/r"}, OPERATOR)
        live.hub.call("agent_unregister", {"id": agent}, OPERATOR)
        assert [event["what"] for event in seen(kind, 1)] == ["agent.unregistered"]
        assert [event["what"] for event in seen(noun, 2)] == ["agent.registered", "agent.unregistered"]


def test_what_another_hub_does_is_seen_too(serve: Callable[..., Live]) -> None:
    one, other = serve(), serve()
    with watching(one, "?after=0") as watcher:
        register(other, 3)
        assert [event["seq"] for event in seen(watcher, 3)] == [1, 2, 3]


@pytest.fixture(params=BOTH)
def pruned(request: pytest.FixtureRequest, shared_hubs: SharedHubs) -> Live:
    """A hub whose log was pruned to its last event just now."""
    live = shared_hubs.find("pruned", request.param, clock=Clock())
    register(live, 3)
    assert isinstance(live.hub.clock, Clock)
    live.hub.clock.advance(40 * DAY_MS / 1000)
    with live.hub.own_work() as tx:
        prune(tx, live.hub.clock(), 30, 0)
    return live


def test_a_cursor_whose_events_are_gone_is_told_where_to_begin(pruned: Live) -> None:
    with watching(pruned, "?after=1") as watcher:
        watcher.recv(timeout=20)
        body = json.loads(watcher.recv(timeout=20))
        assert body["code"] == "CURSOR_EXPIRED" and body["oldest_cursor"] == newest(pruned)
        with pytest.raises(ConnectionClosed) as closed:
            watcher.recv(timeout=20)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 4410


@pytest.mark.parametrize(
    "query", ["?after=-1", "?after=x", "?after=²", "?after=99999999999999999999", "?topic=", "?since=3"]
)
def test_a_question_that_makes_no_sense_is_refused(live: Live, query: str) -> None:
    with pytest.raises(InvalidStatus) as refused, watching(live, query):
        pass
    assert refused.value.response.status_code == 400
    assert json.loads(refused.value.response.body or b"")["code"] == "INVALID_INPUT"


def test_a_plain_get_is_told_where_to_go(live: Live) -> None:
    answer = http.get(f"{live.url}/api/v1/events")
    assert answer.status_code == 426 and "/api/v1/event/list" in answer.json()["hint"]


@pytest.mark.parametrize("query", ["?after=0", "?after=0&topic=agent", "?after={last}"])
def test_a_log_that_was_pruned_to_the_last_event_keeps_nobody_busy(pruned: Live, query: str) -> None:
    last = newest(pruned)
    with watching(pruned, query.format(last=last)) as watcher:
        watcher.recv(timeout=20)
        assert busy_share(seconds=0.3) < 0.3
        register(pruned, 1)
        assert [event["seq"] for event in seen(watcher, 1)] == [last + 1]


def test_strangers_see_nothing(live: Live) -> None:
    for headers, status in (
        ({"Authorization": "Bearer ch_agent_wrong"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": live.url}, 401),  # a page of ours, and not signed in
    ):
        with pytest.raises(InvalidStatus) as refused, watching(live, "?after=0", **headers):
            pass
        assert refused.value.response.status_code == status
    agent = newcomer(live)
    with watching(live, "?after=0", Authorization=f"Bearer {agent.token}") as watcher:
        assert seen(watcher, 1)


def test_a_watcher_whose_token_is_revoked_is_sent_away(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorkeeper, "CHECK_SECONDS", 0.1)
    agent = newcomer(live)
    with watching(live, Authorization=f"Bearer {agent.token}") as watcher:
        live.hub.call("agent_token_revoke", {"agent_id": agent.id}, OPERATOR)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                watcher.recv(timeout=20)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401


def test_neither_a_refusal_nor_odd_words_are_faults_in_the_log(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidStatus), watching(live, Authorization="Bearer wrong"):
        pass
    with watching(live) as watcher:
        watcher.send(b"\xd6", text=True)
        register(live, 1)
        assert seen(watcher, 1)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_what_a_watcher_says_is_of_no_interest(live: Live) -> None:
    with watching(live, f"?after={newest(live)}") as watcher:
        for n in range(100):
            watcher.send("x" * n * 100)
        register(live, 1)
        assert seen(watcher, 1)
        watcher.send("x" * 100_000)
        with pytest.raises(ConnectionClosed, match="1009"):
            while True:
                watcher.recv(timeout=20)


def test_a_watcher_that_stops_reading_is_dropped_and_the_others_go_on(serve: Callable[..., Live]) -> None:
    """Nobody takes the messages of the one, and its library stops reading after some; its buffers are small."""
    live = serve(events__slow_seconds="1")
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", live.port))
    url = f"ws://127.0.0.1:{live.port}/api/v1/events?after=0"
    stuck = connect(url, sock=small, compression=None, max_queue=1, close_timeout=0)
    with stuck, watching(live, "?after=0") as other:
        eventually(lambda: _watchers(live) == 2)
        got: list[int] = []
        reader = threading.Thread(target=lambda: got.extend(event["seq"] for event in seen(other, 4000)))
        reader.start()
        big = json.dumps({"text": "x" * 5000})
        for _ in range(40):
            with live.hub.own_work() as tx:
                for n in range(100):
                    tx.event("agent.updated", f"ag_{n}", data=big)
        reader.join(60)
        assert got == list(range(1, 4001))
        eventually(lambda: _watchers(live) == 1, 20)
