"""
What a start and a call cost against an older checkout: `python -m bench.before ../older [rounds]`.

Both trees run on this environment, in turns, so that whatever else the machine does hits both alike:

    bridge   from spawn to the answer of tools/list, with a hub running
    command  `crewhall agent list`, with a hub running
    call     500 calls of agent_get and 100 of agent_update through `Hub.call`, in one process
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
CALLS = """
import tempfile, time
from pathlib import Path
from crewhall import config
from crewhall.app import Hub
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
with tempfile.TemporaryDirectory() as home:
    flags = {"home": home, "server.port": 0, "database.path": str(Path(home) / "hall.db")}
    hub = Hub(config.load({}, flags), registry())
    agent = hub.call("agent_register", {"name": "a", "runtime": "codex"}, OPERATOR)["id"]
    for _ in range(100):
        hub.call("agent_get", {"id": agent}, OPERATOR)
    began = time.perf_counter()
    for _ in range(500):
        hub.call("agent_get", {"id": agent}, OPERATOR)
    reads = time.perf_counter() - began
    began = time.perf_counter()
    for number in range(100):
        hub.call("agent_update", {"id": agent, "status": "busy" if number % 2 else "online"}, OPERATOR)
    print(reads, time.perf_counter() - began)
    hub.close()
"""


class Side:
    """One checkout, and a hub of it."""

    def __init__(self, tree: Path, home: Path) -> None:
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CREWHALL")},
            "PYTHONPATH": str(tree / "src"),
            "CREWHALL_HOME": str(home),
            "MCP_LOG_LEVEL": "error",
        }
        words = [*self.program, "up", "--port", "0"]
        self.hub = subprocess.Popen(words, env=self.environment, stdout=subprocess.PIPE, text=True)
        assert self.hub.stdout is not None
        self.port = int(self.hub.stdout.readline().strip().rpartition(":")[2])
        self.command()

    program = (sys.executable, "-m", "crewhall")

    def bridge(self) -> dict[str, float]:
        began = time.perf_counter()
        words = [*self.program, "mcp"]
        with subprocess.Popen(words, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            for message in (HELLO, READY, LIST):
                process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            while json.loads(process.stdout.readline()).get("id") != 2:
                pass
            took = time.perf_counter() - began
            process.stdin.close()
        return {"bridge": took}

    def command(self) -> dict[str, float]:
        began = time.perf_counter()
        subprocess.run([*self.program, "agent", "list"], env=self.environment, stdout=subprocess.DEVNULL, check=True)
        return {"command": time.perf_counter() - began}

    def call(self) -> dict[str, float]:
        words = [sys.executable, "-c", CALLS]
        done = subprocess.run(words, env=self.environment, stdout=subprocess.PIPE, text=True, check=True)
        reads, writes = map(float, done.stdout.split())
        return {"call, read": reads / 500, "call, write": writes / 100}

    def end(self) -> None:
        self.hub.send_signal(signal.SIGTERM)
        self.hub.wait(30)


@contextmanager
def sides(trees: list[Path]) -> Iterator[list[Side]]:
    with tempfile.TemporaryDirectory() as top:
        both = [Side(tree, Path(top) / str(number)) for number, tree in enumerate(trees)]
        try:
            yield both
        finally:
            for side in both:
                side.end()


def main(older: str, rounds: int = 30) -> None:
    found: dict[str, list[tuple[float, float]]] = {}
    with sides([Path(older).resolve(), Path(__file__).parent.parent]) as (before, now):
        parts: list[Callable[[Side], dict[str, float]]] = [Side.bridge, Side.command, Side.call]
        for number in range(rounds):
            for part in parts:
                order = (before, now) if number % 2 else (now, before)
                took = {side: part(side) for side in order}
                for name in took[now]:
                    found.setdefault(name, []).append((took[before][name], took[now][name]))
    for name, pairs in found.items():
        old, new = (statistics.median(times) for times in zip(*pairs, strict=True))
        print(
            f"{name:12} {new / old:6.3f}   before {old * 1000:8.3f} ms, now {new * 1000:8.3f} ms, {len(pairs)} rounds"
        )


if __name__ == "__main__":
    main(sys.argv[1], *(int(word) for word in sys.argv[2:3]))
