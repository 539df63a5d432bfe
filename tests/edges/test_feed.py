"""The feed with many who listen: it gathers longer, leaves calls their turns, and loses nothing."""

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import pytest
from websockets.sync.client import connect

from crewhall.app import Hub
from crewhall.edges.http import feed as feed_module
from crewhall.edges.http.feed import Feed, FeedEvent
from crewhall.edges.hub.dispatch import Dispatcher
from tests.conftest import Live, eventually
from tests.edges.test_live import newest, seen, watching


@asynccontextmanager
async def feeding(hub: Hub) -> AsyncIterator[Feed]:
    """A feed of the hub's events that has begun."""
    dispatcher = Dispatcher(hub)
    feed = Feed(dispatcher)
    await feed.begin()
    try:
        yield feed
    finally:
        feed.close()
        assert await dispatcher.close(5)


def write(hub: Hub, count: int, data: str | None = None) -> None:
    """So many events, in one transaction."""
    with hub.own_work() as tx:
        for n in range(count):
            tx.event("agent.updated", f"ag_{n}", data=data)


def ignore(_: list[FeedEvent]) -> None:
    """Listen to a batch."""


@pytest.mark.parametrize(("listeners", "seconds"), [(0, 0.03), (1, 0.03), (120, 0.03), (1000, 0.25), (5000, 0.5)])
def test_the_more_listen_the_longer_events_gather_within_bounds(hub: Hub, listeners: int, seconds: float) -> None:
    async def use() -> None:
        async with feeding(hub) as feed:
            ends = [feed.listen(ignore) for _ in range(listeners)]
            assert feed.gather_seconds == pytest.approx(seconds)
            for end in ends:
                end()
            assert feed.gather_seconds == pytest.approx(0.03)

    asyncio.run(use())


def test_what_comes_while_events_gather_is_one_message_and_all_of_it(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "EACH_SECONDS", 0.05)
    with ExitStack() as stack:
        after = newest(live)
        watchers = [stack.enter_context(watching(live, f"?after={after}")) for _ in range(10)]
        for watcher in watchers:
            watcher.recv(timeout=20)
        eventually(lambda: live.server.services.feed.gather_seconds == 0.5)
        for _ in range(60):
            write(live.hub, 1)
        for watcher in watchers:
            seqs: list[int] = []
            messages = 0
            while len(seqs) < 60:
                seqs += [event["seq"] for event in json.loads(watcher.recv(timeout=20))["events"]]
                messages += 1
            assert seqs == list(range(after + 1, after + 61))
            assert messages <= 20


def test_calls_have_their_turn_between_slices_and_a_batch_waits_until_the_last_is_told(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "GATHER_SECONDS", 0.0)
    monkeypatch.setattr(feed_module, "PAUSE_SECONDS", 0.05)
    told: list[tuple[int, int]] = []  # in which turn of the loop, and of which event

    async def use() -> None:
        turn = 0

        async def count_turns() -> None:
            nonlocal turn
            while len(told) < 180:
                turn += 1
                await asyncio.sleep(0)

        async with feeding(hub) as feed:
            begun = asyncio.Event()
            feed.listen(lambda _: begun.set())
            for _ in range(90):
                feed.listen(lambda events: told.extend((turn, event.seq) for event in events))
            counting = asyncio.create_task(count_turns())
            write(hub, 1)
            await asyncio.wait_for(begun.wait(), 20)
            await asyncio.to_thread(write, hub, 1)
            await asyncio.wait_for(counting, 20)

    asyncio.run(use())
    assert [seq for _, seq in told] == [told[0][1]] * 90 + [told[0][1] + 1] * 90
    assert max(Counter(turn for turn, _ in told).values()) <= feed_module.SLICE


def test_a_listener_that_ends_while_others_are_told_hears_no_more(hub: Hub) -> None:
    heard: list[int] = []

    async def use() -> None:
        async with feeding(hub) as feed:
            done = asyncio.Event()
            feed.listen(lambda _: end())
            end = feed.listen(lambda _: heard.append(1))
            feed.listen(lambda _: done.set())
            write(hub, 1)
            await asyncio.wait_for(done.wait(), 20)

    asyncio.run(use())
    assert heard == []


def test_a_listener_with_a_fault_keeps_nobody_else_from_hearing(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []

    def broken(_: list[FeedEvent]) -> None:
        raise ValueError("a bug")

    async def use() -> None:
        async with feeding(hub) as feed:
            done = asyncio.Event()
            feed.listen(broken)
            feed.listen(lambda events: heard.append(len(events)))
            feed.listen(lambda _: done.set())
            write(hub, 1)
            await asyncio.wait_for(done.wait(), 20)

    asyncio.run(use())
    assert heard == [1] and "a bug in one who listens to events" in caplog.text


def test_a_feed_that_is_closed_while_it_tells_ends_at_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "PAUSE_SECONDS", 1000)

    async def use() -> None:
        async with feeding(hub) as feed:
            begun = asyncio.Event()
            for _ in range(feed_module.SLICE * 2):
                feed.listen(lambda _: begun.set())
            write(hub, 1)
            await asyncio.wait_for(begun.wait(), 20)
            before = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - before < feed_module.WAIT_SECONDS * 1.5
        assert "crewhall-feed" not in [thread.name for thread in threading.enumerate()]

    asyncio.run(use())


def test_a_watcher_that_pauses_falls_behind_and_misses_nothing(serve: Callable[..., Live]) -> None:
    """It keeps up first; then its buffers fill, while another goes on; then it reads everything."""
    live = serve(events__slow_seconds="40")
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", live.port))
    url = f"ws://127.0.0.1:{live.port}/api/v1/events?after=0"
    with connect(url, sock=small, compression=None, max_queue=1) as pauses, watching(live, "?after=0") as other:
        write(live.hub, 1)
        assert seen(pauses, 1) and seen(other, 1)
        for _ in range(20):
            write(live.hub, 100, json.dumps({"text": "x" * 5000}))
        assert [event["seq"] for event in seen(other, 2000)] == list(range(2, 2002))
        feed = live.server.services.feed
        eventually(lambda: feed.listeners == 1)
        assert [event["seq"] for event in seen(pauses, 2000)] == list(range(2, 2002))
        eventually(lambda: feed.listeners == 2)
        write(live.hub, 1)
        assert [event["seq"] for event in seen(pauses, 1)] == [2002]
