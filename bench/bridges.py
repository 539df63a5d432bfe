"""What a bridge costs: its start against a minimal SDK server, many at once against one, and a hub's death."""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CREWHALL = str(Path(sys.executable).with_name("crewhall"))
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
STARTS = 15
WRITES = 200


class Client:
    """A server over stdio, asked one thing at a time."""

    def __init__(self, command: list[str]) -> None:
        self.began = time.perf_counter()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params | {"_meta": META}}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = {}
        while answer.get("id") != self._number:
            answer = json.loads(self.process.stdout.readline())
        return answer

    def write(self, path: str) -> tuple[float, bool]:
        """How long a durable write took, and whether it was done."""
        began = time.perf_counter()
        body = self.ask("tools/call", name="repository_register", arguments={"path": path})["result"]
        return time.perf_counter() - began, "id" in body["structuredContent"]

    def memory(self) -> int:
        """Resident memory in KiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


@contextmanager
def hall() -> Iterator[Path]:
    """A hall for bridges; the hub that they start ends with the block."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        (home / "config.toml").write_text('[server]\nport = 0\n[log]\nlevel = "error"\n')
        try:
            yield home
        finally:
            for pid in hubs(home):
                os.kill(pid, signal.SIGTERM)
            while hubs(home):
                time.sleep(0.05)


def hubs(home: Path) -> list[int]:
    return [int(path.stem.partition("-")[2]) for path in home.glob("hub-*.json")]


def bridge(home: Path) -> Client:
    return Client([CREWHALL, "--home", str(home), "mcp"])


def start() -> None:
    """From spawn to the answer of tools/list, a bridge with its hub running against a minimal SDK server, in turns."""
    with hall() as home:
        first = bridge(home)
        first.ask("tools/list")
        commands = {
            "minimal SDK server": [sys.executable, "-m", "bench.bare_stdio"],
            "bridge": [CREWHALL, "--home", str(home), "mcp"],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        memory: dict[str, list[int]] = {name: [] for name in commands}
        for number in range(STARTS + 1):
            for name, command in commands.items():
                client = Client(command)
                client.ask("tools/list")
                if number:
                    seconds[name].append(time.perf_counter() - client.began)
                    memory[name].append(client.memory())
                client.close()
        first.close()
    print("\nspawn to the answer of tools/list")
    for name, times in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(times, seconds["minimal SDK server"], strict=True))
        middle, resident = statistics.median(times) * 1e3, statistics.median(memory[name]) / 1024
        print(f"  {name:28} {ratio:5.3f} x   {middle:7.0f} ms   resident {resident:5.1f} MiB")


def crowd() -> None:
    """Durable writes through 1, 8 and 32 bridges at once, each one after the other on its own."""
    print(f"\n{WRITES} writes through each bridge, all bridges at once, in turns")
    found: dict[int, list[tuple[float, float, float]]] = {1: [], 8: [], 32: []}
    refused = 0
    for number in range(4):
        for count, runs in found.items():
            rate, times, bad = _together(count)
            refused += bad
            if number:
                runs.append((rate, times[len(times) // 2], times[int(len(times) * 0.99)]))
    for count, runs in found.items():
        rate = statistics.median(rate / one for (rate, _, _), (one, _, _) in zip(runs, found[1], strict=True))
        p50, p99 = (statistics.median(run[n] for run in runs) * 1e3 for n in (1, 2))
        print(
            f"  {count:3} bridges   throughput {rate:5.2f} x   {statistics.median(run[0] for run in runs):6.0f}/s   "
            f"p50 {p50:6.2f} ms   p99 {p99:7.2f} ms   p99/p50 {p99 / p50:5.1f}"
        )
    print(f"  refused: {refused}")


def _together(count: int) -> tuple[float, list[float], int]:
    """Writes a second, how long each took in order, and how many were refused."""
    with hall() as home, ThreadPoolExecutor(count) as threads:
        clients = [bridge(home) for _ in range(count)]
        for client in clients:
            client.ask("tools/list")
        paths = [[f"/b/{n}/{step}" for step in range(WRITES)] for n in range(count)]
        began = time.perf_counter()
        done = list(threads.map(lambda client, some: [client.write(path) for path in some], clients, paths))
        took = time.perf_counter() - began
        for client in clients:
            client.close()
    writes = [write for some in done for write in some]
    return len(writes) / took, sorted(seconds for seconds, _ in writes), sum(not good for _, good in writes)


def recovery() -> None:
    """kill -9 of the hub under 8 busy bridges: how long after the next hub is up each of them goes on."""
    waits: list[float] = []
    with hall() as home:
        clients = [bridge(home) for _ in range(8)]
        for client in clients:
            client.ask("tools/list")
        for number in range(5):
            went_on = [0.0] * len(clients)
            killed = threading.Event()

            def work(
                n: int, number: int = number, went_on: list[float] = went_on, killed: threading.Event = killed
            ) -> None:
                step = 0
                while not went_on[n]:
                    _, good = clients[n].write(f"/k/{number}/{n}/{step}")
                    step += 1
                    if killed.is_set() and good:
                        went_on[n] = time.time()

            workers = [threading.Thread(target=work, args=(n,)) for n in range(len(clients))]
            for worker in workers:
                worker.start()
            time.sleep(0.3)
            (old,) = hubs(home)
            os.kill(old, signal.SIGKILL)
            killed.set()
            for worker in workers:
                worker.join()
            new = next(path for path in home.glob("hub-*.json") if not path.stem.endswith(f"-{old}"))
            waits += [max(0.0, at - new.stat().st_mtime) for at in went_on]
        for client in clients:
            client.close()
    print("\nkill -9 of the hub under 8 busy bridges, five times: from the next hub's start until a bridge goes on")
    print(f"  median {statistics.median(waits):.3f} s, slowest {max(waits):.3f} s")


PARTS = {"start": start, "crowd": crowd, "recovery": recovery}
