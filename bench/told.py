"""
What a call of an agent that may be told something costs, against the commit before agents were told anything.

    hub of this tree ───┐    each with a database, an agent with a token, and an agent bound by its bridge
    hub of the older ───┴─── blocks of calls take turns: over HTTP with the token, and through the bridge

Hubs work on one core and clients on another. The ratio of a hub's processor time per call, its threads counted, is what
to look at; the time that a client sees has the client's own work in it. `python -m bench.told TREE` takes another
checkout; this tree's own shows what the ratios are when nothing has changed.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from bench import before, bridges
from bench.load import tool_request

ROOT = Path(__file__).parent.parent
OLDER = "8a60445"  # the commit before notices
ROUNDS = 25
READS, WRITES = 250, 120  # calls in a block
CORES = sorted(os.sched_getaffinity(0))
Probe = tuple[str, str]  # the way in, and the tool
Pair = tuple[float, float]  # seconds a call, before and now
PROBES: list[Probe] = [(way, tool) for way in ("HTTP", "bridge") for tool in ("agent_get", "agent_update")]


class Connection:
    """A connection to a hub over HTTP by which an agent calls with its token, one thing at a time."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def call(self, tool: str, arguments: dict[str, Any]) -> None:
        self._socket.sendall(tool_request(self._port, tool, arguments, self._token))
        length = 0
        while (line := self._file.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        _refuse_refusal(json.loads(self._file.read(length)))

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Bridge(bridges.Client):
    """A bridge without a token, through which an agent has registered."""

    def call(self, tool: str, arguments: dict[str, Any]) -> None:
        _refuse_refusal(self.ask("tools/call", name=tool, arguments=arguments))


def _refuse_refusal(answer: dict[str, Any]) -> None:
    if answer["result"]["isError"]:
        raise RuntimeError(f"refused: {answer}")


class Side(before.Side):
    """A hub of one tree, and its two agents."""

    def join(self, stack: ExitStack) -> None:
        """Let the agents join; the stack ends their connections."""
        made = self._ask("agent/token", name="ada")
        self.ada: str = made["agent_id"]
        self.by_http = stack.enter_context(closing(Connection(self.port, made["token"])))
        words = [f"{name}={value}" for name, value in self.environment.items()]
        self.by_bridge = stack.enter_context(closing(Bridge(["env", *words, *self.program, "mcp"])))
        registered = self.by_bridge.ask(
            "tools/call", name="agent_register", arguments={"name": "bob", "runtime": "codex"}
        )
        self.bob: str = registered["result"]["structuredContent"]["id"]

    def _ask(self, path: str, **body: Any) -> dict[str, Any]:
        url, headers = f"http://127.0.0.1:{self.port}/api/v1/{path}", {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def block(self, way: str, tool: str) -> tuple[float, float]:
        """Seconds by the clock, and of the hub's processor, that a call takes in a block of them."""
        call, agent = (self.by_http.call, self.ada) if way == "HTTP" else (self.by_bridge.call, self.bob)
        count = READS if tool == "agent_get" else WRITES
        arguments = {"id": agent} | ({} if tool == "agent_get" else {"status": "busy"})
        began, used = time.perf_counter(), self._used()
        for _ in range(count):
            call(tool, arguments)
        return (time.perf_counter() - began) / count, (self._used() - used) / count

    def _used(self) -> float:
        """The processor time of the hub until now, as the kernel's clock of that process has it."""
        return time.clock_gettime((~self.hub.pid << 3) | 2)


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """This repository's files as they were at a commit."""
    words = ["git", "-C", str(ROOT), "archive", commit, "src"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
    with tempfile.TemporaryDirectory() as place, tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(place, filter="data")
        yield Path(place)


@contextmanager
def on_core(number: int) -> Iterator[None]:
    """We, and what we start in the block, keep to one core: the other of two, if there are two."""
    were = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CORES[number % len(CORES)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, were)


def told() -> None:
    """Reads and writes of agents against the commit before they were told anything."""
    with checkout(OLDER) as older:
        against(older, f"the commit {OLDER}")


def against(older: Path, name: str) -> None:
    """The same against a checkout."""
    with tempfile.TemporaryDirectory() as homes, ExitStack() as stack:
        sides = []
        with on_core(0):
            for number, tree in enumerate((older, ROOT)):
                sides.append(Side(tree, Path(homes) / str(number)))
                stack.callback(sides[-1].end)
        stack.enter_context(on_core(1))
        for side in sides:
            side.join(stack)
        found = {probe: rounds(sides, probe) for probe in PROBES}
    print(f"\nwhat an agent's call costs against {name}, medians of {ROUNDS} rounds")
    for (way, tool), pairs in found.items():
        clock, hub = zip(*pairs, strict=True)
        print(f"  {way + ' ' + tool:22} {_line('hub', hub)}   {_line('clock', clock)}")


def rounds(sides: list[Side], probe: Probe) -> list[tuple[Pair, Pair]]:
    """For each round the older and the newer side's time by the clock, and that of their hubs."""
    found = []
    for number in range(ROUNDS + 1):
        order = sides if number % 2 else sides[::-1]
        took = {side: side.block(*probe) for side in order}
        (old_clock, old_hub), (new_clock, new_hub) = (took[side] for side in sides)
        if number:  # the first round warms up
            found.append(((old_clock, new_clock), (old_hub, new_hub)))
    return found


def _line(what: str, pairs: Sequence[Pair]) -> str:
    ratio = statistics.median(new / old for old, new in pairs)
    old, new = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
    return f"{what} {ratio:5.3f} x ({old:.3f} ms, now {new:.3f})"


PARTS = {"told": told}


if __name__ == "__main__":
    against(Path(sys.argv[1]).resolve(), sys.argv[1])
