"""Two hundred WebSocket watchers and a hundred events a second: how late an event is, and what the hub takes for it."""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2
from websockets.asyncio.client import connect

WATCHERS, EVENTS, RATE = 200, 2000, 100


def watchers() -> None:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "crewhall", "--home", home, "up", "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            asyncio.run(_watched(url, process.pid))
        finally:
            process.terminate()
            process.wait(20)


async def _watched(url: str, pid: int) -> None:
    print(f"\n{WATCHERS} watchers, one more that never reads, {RATE} events a second for {EVENTS // RATE} s")
    address = url.replace("http", "ws") + "/api/v1/events?after=0"
    late: list[float] = []
    wrong = 0

    async def watch() -> None:
        nonlocal wrong
        async with connect(address, compression=None) as watcher:
            seen: list[int] = []
            while len(seen) < EVENTS:
                events = json.loads(await watcher.recv())["events"]
                late.extend(time.time() - event["at"] / 1000 for event in events)
                seen += [event["seq"] for event in events]
            wrong += seen != list(range(1, EVENTS + 1))

    async with connect(address, compression=None, max_queue=1):
        tasks = [asyncio.create_task(watch()) for _ in range(WATCHERS)]
        await asyncio.sleep(2)
        before, used = _facts(pid)
        began = time.monotonic()
        memory: list[int] = []
        async with httpx2.AsyncClient() as client:
            for n in range(EVENTS):
                (await client.post(f"{url}/api/v1/repository/register", json={"path": f"/{n}"})).raise_for_status()
                await asyncio.sleep(max(0.0, began + (n + 1) / RATE - time.monotonic()))
                if n % RATE == 0:
                    memory.append(_facts(pid)[0])
        await asyncio.gather(*tasks)
        took = time.monotonic() - began
    late.sort()
    after, used_then = _facts(pid)
    half = statistics.mean(memory[len(memory) // 2 :])
    p50, p99 = late[len(late) // 2] * 1e3, late[int(len(late) * 0.99)] * 1e3
    print(f"  watchers that missed, repeated or reordered: {wrong}")
    print(f"  an event is seen after p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    cores = (used_then - used) / took
    print(f"  hub: {before} MiB before, {half:.0f} in the second half, {after} after; {cores:.2f} cores")


def _facts(pid: int) -> tuple[int, float]:
    """A process's resident MiB, and the processor seconds it has used."""
    status = Path(f"/proc/{pid}/status").read_text()
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024, (int(times[11]) + int(times[12])) / 100


PARTS: dict[str, Any] = {"watchers": watchers}
