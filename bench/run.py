"""
What a call costs, as ratios inside one run: blocks of each side take turns, and the median block counts.

    python -m bench.run            all
    python -m bench.run calls      one part: calls, writes, growth, hall, workflows, memory, tokens, start, crowd,
                                   recovery, watchers, listing, context, pulls, judge, instances, watching, attacks,
                                   hubs, told
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pysqlite3.dbapi2 as sqlite3

from bench import (
    attacks,
    bridges,
    hubs,
    instances,
    judge,
    memory,
    project_context,
    project_listing,
    pulls,
    told,
    watchers,
    watching,
    work,
)
from bench.load import block, rest_request, tool_request
from crewhall import config
from crewhall.app import Hub
from crewhall.families.all import registry
from crewhall.identity import OPERATOR, Credentials

BLOCKS = 9
CALLS = 400


@contextmanager
def hub_process(home: Path) -> Iterator[int]:
    """A hub in a process of its own; its port."""
    environment = os.environ | {"CREWHALL_HOME": str(home), "MCP_LOG_LEVEL": "error"}
    command = [sys.executable, "-m", "crewhall", "up", "--port", "0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        yield int(first.strip().rpartition(":")[2])
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def bare_process() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-m", "bench.bare"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(20)


def calls() -> None:
    """One read through hub and HTTP against an echo on the bare SDK, keep-alive, 1 and 32 connections."""
    home = Path(tempfile.mkdtemp())
    with hub_process(home) as port, bare_process() as floor:
        hub = Hub(config.load({}, {"home": str(home)}), registry())
        agent = hub.call("agent_register", {"name": "ada", "runtime": "codex"}, OPERATOR)["id"]
        token = hub.call("agent_token_create", {"agent_id": agent}, OPERATOR)["token"]
        hub.close()
        sides = {
            "bare SDK echo": (floor, tool_request(floor, "echo", {"id": agent})),
            "hub agent_get": (port, tool_request(port, "agent_get", {"id": agent})),
            "hub agent_get, token": (port, tool_request(port, "agent_get", {"id": agent}, token)),
            "hub REST agent_get": (port, rest_request(port, "agent/get", {"id": agent})),
        }
        for connections in (1, 32):
            seconds: dict[str, list[float]] = {name: [] for name in sides}
            single: dict[str, list[float]] = {name: [] for name in sides}
            for number in range(BLOCKS + 1):
                for name, (where, request) in sides.items():
                    average, times = block(where, request, connections, CALLS)
                    if number:  # the first round warms up
                        seconds[name].append(average)
                        single[name] += times
            report(f"{connections} connection{'s' if connections > 1 else ''}", seconds, single, "bare SDK echo")


def report(title: str, seconds: dict[str, list[float]], single: dict[str, list[float]], floor: str) -> None:
    print(f"\n{title}")
    for name, blocks in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(blocks, seconds[floor], strict=True))
        times = sorted(single[name])
        p50, p99 = times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3
        rate = 1 / statistics.median(blocks)
        print(f"  {name:28} {ratio:5.2f} x   {rate:7.0f}/s   p50 {p50:6.2f} ms   p99 {p99:6.2f} ms")


def writes() -> None:
    """A durable write through the door against a raw SQLite commit of the same rows, 1 and 32 threads."""
    home = Path(tempfile.mkdtemp())
    hub = Hub(config.load({}, {"home": str(home)}), registry())
    agent = hub.call("agent_register", {"name": "ada", "runtime": "codex"}, OPERATOR)["id"]
    raw = sqlite3.connect(home / "raw.db", isolation_level=None, check_same_thread=False)
    raw.execute("PRAGMA journal_mode=WAL")
    raw.execute("PRAGMA synchronous=FULL")
    raw.execute("CREATE TABLE t (id integer primary key, body text)")
    guard = threading.Lock()

    def commit() -> None:
        with guard:
            raw.execute("BEGIN IMMEDIATE")
            raw.execute("INSERT INTO t (body) VALUES (?)", ("x" * 200,))
            raw.execute("INSERT INTO t (body) VALUES (?)", ("x" * 200,))
            raw.execute("COMMIT")

    def through_the_door() -> None:
        hub.call("agent_update", {"id": agent, "status": "busy"}, OPERATOR)

    for threads in (1, 32):
        seconds: dict[str, list[float]] = {"raw SQLite commit": [], "hub agent_update": []}
        for number in range(BLOCKS + 1):
            for name, function in (("raw SQLite commit", commit), ("hub agent_update", through_the_door)):
                took = together(function, threads, 320)
                if number:
                    seconds[name].append(took)
        report(f"writes, {threads} thread{'s' if threads > 1 else ''}", seconds, seconds, "raw SQLite commit")
    hub.close()


def together(function: Callable[[], object], threads: int, count: int) -> float:
    """Seconds a call takes when so many threads make `count` calls in all."""
    each = count // threads

    def work() -> None:
        for _ in range(each):
            function()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return (time.perf_counter() - began) / (each * threads)


def growth() -> None:
    """How the cost of a call grows with what the hall holds."""
    home = Path(tempfile.mkdtemp())
    hub = Hub(config.load({}, {"home": str(home), "agent.max": 1_000_000}), registry())
    first = hub.call("agent_register", {"name": "ada", "runtime": "codex"}, OPERATOR)["id"]
    token = hub.call("agent_token_create", {"agent_id": first}, OPERATOR)["token"]
    probes: dict[str, Callable[[], Any]] = {
        "agent_get": lambda: hub.call("agent_get", {"id": first}, OPERATOR),
        "agent_list, 50 of all": lambda: hub.call("agent_list", {}, OPERATOR),
        "event_list, newest 100": lambda: hub.call("event_list", {"after": newest() - 100}, OPERATOR),
        "agent_update": lambda: hub.call("agent_update", {"id": first, "status": "busy"}, OPERATOR),
        "identify a token": lambda: hub.identify(Credentials(token=token)),
    }

    def newest() -> int:
        with hub.store.read() as tx:
            number: int = tx.value("event_newest")
            return max(number, 100)

    sizes = (100, 1_000, 10_000)
    found: dict[str, list[float]] = {name: [] for name in probes}
    held = 1
    for size in sizes:
        together(lambda: hub.call("agent_register", {"name": "x", "runtime": "codex"}, OPERATOR), 16, size - held)
        held = size
        for name, probe in probes.items():
            times = []
            for _ in range(20):
                probe()
            for _ in range(60):
                began = time.perf_counter()
                probe()
                times.append(time.perf_counter() - began)
            found[name].append(statistics.median(times))
    print(f"\ngrowth: cost against a hall of {sizes[0]} agents")
    for name, times in found.items():
        print(
            f"  {name:28} "
            + "   ".join(f"{size:6}: {t / times[0]:5.2f} x" for size, t in zip(sizes, times, strict=True))
        )
    hub.close()


OWN = {"calls": calls, "writes": writes, "growth": growth}
PARTS = OWN | work.PARTS | memory.PARTS | bridges.PARTS | watchers.PARTS
PARTS |= (
    project_listing.PARTS
    | project_context.PARTS
    | pulls.PARTS
    | judge.PARTS
    | instances.PARTS
    | watching.PARTS
    | attacks.PARTS
    | hubs.PARTS
    | told.PARTS
)


def main() -> None:
    chosen = sys.argv[1:] or list(PARTS)
    print(json.dumps({"python": sys.version.split()[0], "cores": os.cpu_count(), "sqlite": sqlite3.sqlite_version}))
    for name in chosen:
        PARTS[name]()


if __name__ == "__main__":
    main()
