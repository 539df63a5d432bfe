"""
What it costs a hub to watch instances that idle, in percent of one core: hubs with none, some and many, all at once.

The hub's own time, that of its children (git, tmux) and that of its tmux server count; the programs' own does not.
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.instances import make_repository
from bench.running import IDLE, RunningHub, running_hub, tmux_name

SECONDS = int(os.environ.get("BENCH_SECONDS", "120"))  # as many as four rounds of the slowest chore
SETTLING = 20
TICKS = os.sysconf("SC_CLK_TCK")
# What Claude Code and its hooks leave after some hours of work: a transcript of 1 MB, two logs, a status file.
CLAUDE = r"""
import json, os, sys, time
run, conversation = sys.argv[1:]
now = int(time.time() * 1000)
def write(name, text):
    path = os.path.join(run, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "w") as file:
        file.write(text)
    os.rename(path + ".part", path)
def hooks(count):
    kinds = ("PreToolUse", "PostToolUse")
    ends = {"at": now, "tool_name": "Bash", "gave": []}
    lines = ({"event": kinds[n % 2], "tool_use_id": f"toolu_{n // 2:024}", **ends} for n in range(count))
    return "".join(json.dumps(line) + "\n" for line in lines)
usage = {"input_tokens": 100, "cache_read_input_tokens": 40, "output_tokens": 20}
answer = {"type": "assistant", "timestamp": "2026-01-01T00:00:00.000Z"}
lines = (json.dumps({**answer, "message": {"id": f"m{n}", "usage": usage, "text": "x" * 300}}) for n in range(2000))
write(f"claude/projects/p/{conversation}.jsonl", "\n".join(lines) + "\n")
write("hooks.old.jsonl", hooks(1800))
write("hooks.jsonl", hooks(400) + json.dumps({"event": "Stop", "at": now, "gave": []}) + "\n")
status = {"sessionId": conversation, "status": "idle", "updatedAt": now, "statusUpdatedAt": now}
write(f"claude/sessions/{os.getpid()}.json", json.dumps(status))
os.execvp("sleep", ["sleep", "6000"])
"""
SIDES = (
    ("none", "idle", 0),
    ("5, silent", "idle", 5),
    ("20, silent", "idle", 20),
    ("20, Claude Code", "claude_code", 20),
)


@dataclass(frozen=True)
class Used:
    """Processor seconds of a hub, of the children that it has waited for, and of its tmux server."""

    hub: float
    children: float
    tmux: float

    @property
    def whole(self) -> float:
        return self.hub + self.children + self.tmux


def watching() -> None:
    """Hubs with 0, 5 and 20 instances that say nothing, and one with 20 that leave files as Claude Code does."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        base = Path(place)
        make_repository(base / "shop")
        (base / "claude.py").write_text(CLAUDE)
        hubs = []
        for number, (_, runtime, count) in enumerate(SIDES):
            hub = stack.enter_context(running_hub(base / f"hub-{number}", _runtimes(base)))
            given = {"prompt": "x", "runtime": runtime, "repository_path": str(base / "shop")}
            for one in range(count):
                hub.call("instance/start", title=f"side {number} {one}", **given)
            hubs.append(hub)
        time.sleep(SETTLING)
        before, began = [_used(hub) for hub in hubs], time.monotonic()
        time.sleep(SECONDS)
        after, took = [_used(hub) for hub in hubs], time.monotonic() - began
        for hub, (name, _, count) in zip(hubs, SIDES, strict=True):
            listed = hub.call("instance/list", limit=100)
            states = {one["state"]["name"] for one in listed["instances"]}
            assert listed["total"] == count and states <= {"idle" if "Claude" in name else "alive"}, states
        _report(took, [_difference(a, b, took) for a, b in zip(before, after, strict=True)])


def _runtimes(base: Path) -> str:
    words = [sys.executable, str(base / "claude.py"), "{run_directory}", "{conversation}"]
    return f"{IDLE}[crew.runtimes.claude_code]\ncommand = {words}\nresume = {words}\n"


def _used(hub: RunningHub) -> Used:
    own = _times(hub.process.pid)
    words = ["tmux", "-L", tmux_name(hub.home), "display-message", "-p", "#{pid}"]
    server = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return Used(own[0] + own[1], own[2] + own[3], sum(_times(int(server))[:2]) if server else 0.0)


def _times(pid: int) -> list[float]:
    """User and system time of a process, and of its children, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) / TICKS for field in fields[11:15]]


def _difference(before: Used, after: Used, took: float) -> Used:
    """Percent of a core."""
    pairs = zip((before.hub, before.children, before.tmux), (after.hub, after.children, after.tmux), strict=True)
    return Used(*((b - a) / took * 100 for a, b in pairs))


def _report(took: float, used: list[Used]) -> None:
    print(f"\nwatching instances that idle, {took:.0f} s, percent of one core")
    for (name, _, _), one in zip(SIDES, used, strict=True):
        parts = f"hub {one.hub:5.2f}, its children {one.children:5.2f}, tmux {one.tmux:5.2f}"
        print(f"  {name:16} {one.whole:5.2f} ({parts}); {one.whole - used[0].whole:5.2f} more than with none")


PARTS = {"watching": watching}

if __name__ == "__main__":
    watching()
