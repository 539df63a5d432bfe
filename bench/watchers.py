"""
A thousand WebSocket watchers of one hub while four clients send messages: what the clients notice, and what it takes.

Sides take turns: nobody watches, processes of the hub's own user watch, agents with a token each watch. The watchers
are two processes that share the machine's cores with the hub; `crowd.py` keeps them cheap and counts what each is told.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cluster import postgres
from bench.running import RunningHub, running_hub

WATCHERS = int(os.environ.get("BENCH_WATCHERS", "1000"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "15"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
DATABASES = os.environ.get("BENCH_DATABASES", "sqlite postgres").split()
PROCESSES, CLIENTS, RATE = 2, 4, 50
SIDES = ("nobody", "own processes", "with tokens")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Side:
    """What was found with these watchers, over all rounds."""

    times: list[float] = field(default_factory=list)  # of message_send, in seconds
    rates: list[float] = field(default_factory=list)
    hub: list[float] = field(default_factory=list)  # cores
    crowd: list[float] = field(default_factory=list)
    machine: list[float] = field(default_factory=list)  # of all processes, those that have nothing to do with this too
    late: list[int] = field(default_factory=list)  # milliseconds from an event to a watcher
    memory: int = 0
    messages: int = 0
    lost: int = 0
    wrong: int = 0

    @property
    def p50(self) -> float:
        return statistics.median(self.times) * 1e3


def watchers() -> None:
    """The same on each database."""
    for database in DATABASES:
        with tempfile.TemporaryDirectory() as place, postgres() if database == "postgres" else nullcontext("") as url:
            settings = "[agent]\nlease = 36000\n" + (f'[database]\nurl = "{url}"\n' if url else "")
            with running_hub(Path(place) / "home", settings) as hub:
                _report(database, _measure(hub, Path(place) / "tokens"))


def _measure(hub: RunningHub, file: Path) -> dict[str, Side]:
    tokens = [hub.call("agent/token", name=f"watcher {n}")["token"] for n in range(WATCHERS)]
    senders = [hub.call("agent/token", name=f"client {n}") for n in range(CLIENTS)]
    texts = {"nobody": "", "own processes": "\n" * WATCHERS, "with tokens": "\n".join(tokens)}
    sides = {name: Side() for name in SIDES}
    for number in range(ROUNDS + 1):
        for name, side in sides.items():
            file.write_text(texts[name])
            found = side if number else Side()  # the first round warms up
            _round(hub, found, senders, file if texts[name] else None, SECONDS if number else 3)
    return sides


def _round(hub: RunningHub, side: Side, senders: list[dict[str, str]], file: Path | None, seconds: int) -> None:
    before = _newest(hub)
    with _crowd(hub.port, before, file) as processes:
        time.sleep(1)
        used, busy, began = _seconds(hub.process.pid), _busy_seconds(), time.monotonic()
        times = _send(hub.port, senders, seconds)
        took = time.monotonic() - began
        side.hub.append((_seconds(hub.process.pid) - used) / took)
        side.machine.append((_busy_seconds() - busy) / took)
        side.times += times
        side.rates.append(len(times) / took)
        side.memory = max(side.memory, _memory(hub.process.pid))
        last = _newest(hub)
        written = _count(hub, before, last)
        for process in processes:
            found = _findings(process, last)
            side.lost += sum(abs(written - count) for count in found["counts"])
            side.wrong += found["wrong"]
            side.messages += found["messages"]
            side.late += found["late"]
            side.crowd.append(found["seconds"] / took)


@contextmanager
def _crowd(port: int, after: int, file: Path | None) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of the watchers, connected; none without a file of their tokens."""
    each = WATCHERS // PROCESSES
    command = [sys.executable, "-m", "bench.crowd", str(port), str(after), str(file)]
    processes = [
        subprocess.Popen([*command, str(n * each), str(each)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for n in range(PROCESSES if file else 0)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _findings(process: subprocess.Popen[str], last: int) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"until {last}\n")
    process.stdin.flush()
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def _send(port: int, senders: list[dict[str, str]], seconds: int) -> list[float]:
    """How long each call took of clients that send RATE messages a second together, as far as the hub lets them."""
    times: list[float] = []

    def client(number: int) -> None:
        own, other = senders[number], senders[number - 1]
        given = {"sender_id": own["agent_id"], "recipient_id": other["agent_id"], "message_type": "notification"}
        text = json.dumps(given | {"body": "x" * 100})
        headers = {"Authorization": f"Bearer {own['token']}", "Content-Type": "application/json"}
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            for n in range(seconds * RATE // CLIENTS):
                due = began + (n + number / CLIENTS) * CLIENTS / RATE
                time.sleep(max(0.0, due - time.perf_counter()))
                asked = time.perf_counter()
                connection.request("POST", "/api/v1/message/send", text, headers)
                answer = connection.getresponse()
                body = answer.read()
                times.append(time.perf_counter() - asked)
                assert answer.status == 200, body

    began = time.perf_counter()
    clients = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return times


def _newest(hub: RunningHub) -> int:
    newest: int = hub.call("event/list", after=0, limit=1)["newest"]
    return newest


def _count(hub: RunningHub, after: int, last: int) -> int:
    """How many events the log has after one and up to another."""
    count = 0
    while after < last:
        page = hub.call("event/list", after=after, limit=500)
        count += sum(event["seq"] <= last for event in page["events"])
        after = page["cursor"]
    return count


def _seconds(pid: int) -> float:
    """Processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _busy_seconds() -> float:
    """Processor seconds of the machine that were not idle."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS


def _memory(pid: int) -> int:
    """Resident MiB of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


def _report(database: str, sides: dict[str, Side]) -> None:
    print(f"\n{WATCHERS} watchers, {CLIENTS} clients that send {RATE} messages a second, {database}")
    quiet = sides["nobody"].p50
    for name, side in sides.items():
        times = sorted(side.times)
        p99 = times[int(len(times) * 0.99)] * 1e3
        written = " ".join(f"{rate:.1f}" for rate in side.rates)
        print(f"  {name:14} message_send p50 {side.p50:6.1f} ms ({side.p50 / quiet:.1f} x), p99 {p99:6.1f} ms", end="")
        print(f"; written {written} a second; hub {statistics.mean(side.hub):.2f} cores, {side.memory} MiB", end="")
        print(f"; the whole machine {statistics.mean(side.machine):.2f} cores")
        if side.late:
            late = sorted(side.late)
            p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
            print(f"{'':17}lost {side.lost}, messages that repeat or reorder {side.wrong} of {side.messages};", end="")
            print(f" seen after p50 {p50} ms, p99 {p99} ms;", end="")
            print(f" the watchers' processes {PROCESSES * statistics.mean(side.crowd):.2f} cores")


PARTS: dict[str, Any] = {"watchers": watchers}

if __name__ == "__main__":
    watchers()
