"""Many bridges and watchers at once: nothing is lost, nothing is doubled, nobody hangs, memory stays level."""

import asyncio
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.conftest import eventually
from tests.edges.conftest import make_home
from tests.edges.program import Program
from tests.edges.raw_http import http
from tests.edges.stdio import Stdio, end, hubs, the_hub, warm_bridges
from tests.sizes import size

WATCHERS = size(50, full=200)
EVENTS = size(100, full=500)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path, "[agent]\nmax = 100000\n")


@pytest.mark.parametrize("count", [8, 32])
def test_many_bridges_write_at_once_and_each_write_is_there_once(home: Path, count: int) -> None:
    with warm_bridges(home, count) as clients, ThreadPoolExecutor(count) as threads:
        paths = [[f"/bridge/{n}/{step}" for step in range(size(200, full=6400) // count)] for n in range(count)]
        refused = list(threads.map(_write_all, clients, paths))
        assert refused == [[]] * count
        assert _repositories(clients[0]) == sorted(path for some in paths for path in some)


def _write_all(client: Stdio, paths: list[str]) -> list[Any]:
    """Register each path, one after the other; what was not done."""
    bodies = [client.call("repository_register", path=path) for path in paths]
    return [body for body in bodies if "id" not in body]


def _repositories(client: Stdio) -> list[str]:
    """Every repository's path."""
    found: list[str] = []
    offset = 0
    while offset is not None:
        page = client.call("repository_list", limit=500, offset=offset)
        found += [repository["path"] for repository in page["repositories"]]
        offset = page["next_offset"]
    return sorted(found)


class Busy:
    """A client that registers paths until it is told to stop, and notes how each of them went."""

    def __init__(self, client: Stdio, number: int) -> None:
        self._client = client
        self._number = number
        self.done: list[str] = []
        self.unsure: list[str] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        step = 0
        while not self.stop.is_set():
            path = f"/busy/{self._number}/{step}"
            step += 1
            body = self._client.call("repository_register", path=path)
            if "id" in body:
                self.done.append(path)
            else:
                assert body["code"] == "UNAVAILABLE" and "may have happened" in body["message"], body
                self.unsure.append(path)


def each_does(busy: list[Busy], more: int) -> None:
    """Wait until each has done so much more."""
    goals = [len(one.done) + more for one in busy]
    eventually(lambda: all(len(one.done) >= goal for one, goal in zip(busy, goals, strict=True)), 60)


def _others(home: Path, first: int) -> list[int]:
    return [pid for pid in hubs(home) if pid != first]


def test_a_hub_killed_under_eight_busy_bridges_loses_nothing_that_was_acknowledged(home: Path) -> None:
    with warm_bridges(home, 8) as clients:
        for client in clients:
            client.count()
        busy = [Busy(client, n) for n, client in enumerate(clients)]
        for _ in range(size(2, full=3)):
            each_does(busy, 20)
            first = the_hub(home)
            end(first, signal.SIGKILL)
            eventually(partial(_others, home, first), 60)
            came = time.monotonic()
            each_does(busy, 1)
            assert time.monotonic() - came < 5, "each goes on within a second; other tests may keep the machine busy"
        for one in busy:
            one.stop.set()
        for one in busy:
            one.thread.join(60)
            assert not one.thread.is_alive(), "a call hangs"
        kept = _repositories(clients[0])
        assert len(kept) == len(set(kept))
        acknowledged = {path for one in busy for path in one.done}
        assert acknowledged <= set(kept)
        assert set(kept) - acknowledged <= {path for one in busy for path in one.unsure}
        assert all(len(one.unsure) <= 3 for one in busy), "a dying hub had one call of each"


def test_many_watchers_each_see_every_event_once_and_in_order(home: Path) -> None:
    program = Program(home)
    with program.up("--port", "0") as up:
        http.post(f"{up.url}/api/v1/repository/register", json={"path": "/warm"})
        before = _memory(up.process.pid)
        events = asyncio.run(_watch(up.url, WATCHERS, EVENTS))
        assert [len(some) for some in events] == [EVENTS] * WATCHERS
        assert all(some == events[0] for some in events) and events[0] == sorted(set(events[0]))
        eventually(lambda: 'kind="websocket"} 0' in http.get(f"{up.url}/metrics").text)
        assert _memory(up.process.pid) - before < 64, "MiB"


async def _watch(url: str, watchers: int, count: int) -> list[list[int]]:
    """What each watcher saw while so many events happened, a hundred a second."""
    address = url.replace("http", "ws") + "/api/v1/events?after=1"

    async def watch(ready: asyncio.Semaphore) -> list[int]:
        async with connect(address, compression=None, open_timeout=60) as watcher:
            ready.release()
            seen: list[int] = []
            while len(seen) < count:
                seen += [event["seq"] for event in json.loads(await watcher.recv())["events"]]
            return seen

    ready = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(watch(ready)) for _ in range(watchers)]
    for _ in range(watchers):
        await ready.acquire()
    await asyncio.to_thread(_happen, url, count)
    return list(await asyncio.wait_for(asyncio.gather(*tasks), 120))


def _happen(url: str, count: int) -> None:
    """Make so many events, a hundred a second."""
    pace = threading.Event()
    began = time.monotonic()
    for n in range(count):
        answer = http.post(f"{url}/api/v1/repository/register", json={"path": f"/made/{n}"})
        assert answer.status_code == 200, answer.text
        pace.wait(max(0.0, began + (n + 1) / 100 - time.monotonic()))


def _memory(pid: int) -> int:
    """A process's resident memory in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


def test_a_bridge_takes_little_memory(home: Path) -> None:
    with warm_bridges(home) as (client,):
        for n in range(50):
            client.call("repository_register", path=f"/r/{n}")
        assert _memory(client.process.pid) <= 20
        assert len(os.listdir(f"/proc/{client.process.pid}/task")) == 1
