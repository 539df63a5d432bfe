"""
Real clients against a real hub: Claude Code, Gemini CLI and opencode connect, Claude Code and Codex call a tool.

Each check has a throw-away home and no account: `mcp list` asks no model, and where one is needed a scripted stand-in
answers. The bridge is what a client's settings start over stdio, `crewhall mcp`. `make clients`.
"""

import argparse
import json
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.edges.interfaces import CREWHALL
from tests.edges.program import Program
from tools.npm import CLIENTS, PROGRAMS, install, say
from tools.stubs import anthropic, openai

QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "GEMINI_CLI_TRUST_WORKSPACE": "true",  # Gemini starts no servers in a directory that nobody trusted
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}
LIMIT = 120  # seconds within which a client ends
STARTING = 10  # seconds within which a hub that is being started tells its pid
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

Way = str | list[str]  # to the hub: its URL, or the words that start the bridge


class Failed(Exception):
    """A client did not do what it should; the text is what it said."""


def bridge(hall: Path) -> list[str]:
    return [CREWHALL, "--home", str(hall), "mcp"]


def claude_settings(way: Way, **environment: str) -> dict[str, Any]:
    """Settings with the hall in them; the environment is what the bridge gets of its own."""
    server: dict[str, Any] = {"type": "http", "url": way}
    if not isinstance(way, str):
        server = {"command": way[0], "args": way[1:], "env": environment}
    return {"mcpServers": {"crewhall": server}}


def gemini_settings(way: Way) -> dict[str, Any]:
    server = {"httpUrl": way} if isinstance(way, str) else {"command": way[0], "args": way[1:]}
    return {"mcpServers": {"crewhall": server}, "privacy": {"usageStatisticsEnabled": False}}


def opencode_settings(way: Way) -> dict[str, Any]:
    server = {"type": "remote", "url": way} if isinstance(way, str) else {"type": "local", "command": way}
    return {"mcp": {"crewhall": server}}


def codex_settings(way: list[str], url: str) -> str:
    """Codex reads TOML, which has the strings and lists of JSON."""
    return f"""{codex_provider(url)}
        [mcp_servers]
        crewhall = {{command = {json.dumps(way[0])}, args = {json.dumps(way[1:])}}}
        """


def codex_provider(url: str) -> str:
    """Settings in which a stub serves Codex its model."""
    return f"""
        model = "scripted"
        model_provider = "scripted"
        check_for_update_on_startup = false
        analytics = {{enabled = false}}
        [model_providers.scripted]
        name = "scripted"
        base_url = "{url}/v1"
        wire_api = "responses"
        env_key = "SCRIPTED_KEY"
        supports_websockets = false
        """


SETTINGS = {
    "claude": (".claude/.claude.json", claude_settings),
    "gemini": (".gemini/settings.json", gemini_settings),
    "opencode": (".config/opencode/opencode.json", opencode_settings),
}


def surroundings(home: Path) -> dict[str, str]:
    """The environment of a client with this home, and nothing of ours."""
    paths = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
    return QUIET | paths


def run(home: Path, *words: str, **more: str) -> str:
    """Run a client to its end in this home; what it printed. Raises Failed if it says that it failed."""
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    around = surroundings(home) | more
    done = subprocess.run(words, env=around, cwd=home, text=True, timeout=LIMIT, check=False, **streams)
    if done.returncode:
        raise Failed(f"exit code {done.returncode}: {done.stdout[-2000:]}")
    return COLOURS.sub("", done.stdout)


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def connects(client: str, way: Way) -> None:
    """The client's `mcp list` says that it is connected to the hub."""
    path, settings = SETTINGS[client]
    with TemporaryDirectory() as place:
        write(Path(place) / path, json.dumps(settings(way)))
        said = run(Path(place), client, "mcp", "list")
    if not re.search(r"crewhall.*\bconnected\b", said, re.IGNORECASE):
        raise Failed(said[-2000:])


def claude_registers(hall: Path) -> None:
    """Claude Code registers an agent through the bridge, told to by a scripted model."""
    tool = "mcp__crewhall__agent_register"
    model = anthropic.calls_once(tool, {"name": "ada", "runtime": "claude_code"})
    with TemporaryDirectory() as place, model as url:
        servers = write(Path(place) / "servers.json", json.dumps(claude_settings(bridge(hall))))
        words = ["-p", "Join the hall.", "--mcp-config", servers, "--strict-mcp-config", "--allowedTools", tool]
        said = run(Path(place), "claude", *words, ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="none")
    is_in_hall(hall, "ada", said)


def codex_registers(hall: Path) -> None:
    """Codex registers an agent through the bridge, told to by a scripted model."""
    model = openai.calls_once("mcp__crewhall", "agent_register", {"name": "bob", "runtime": "codex"})
    with TemporaryDirectory() as place, model as url:
        write(Path(place) / ".codex/config.toml", codex_settings(bridge(hall), url))
        said = run(Path(place), "codex", "exec", "--skip-git-repo-check", "Join the hall.", SCRIPTED_KEY="none")
    is_in_hall(hall, "bob", said)


def is_in_hall(hall: Path, name: str, said: str) -> None:
    listed = Program(hall, real=True).run("agent", "list", "--json")
    if name not in [agent["name"] for agent in json.loads(listed.out)["agents"]]:
        raise Failed(f"{name} is not in {listed.out}{said[-2000:]}")


def connects_with_no_hub() -> None:
    """Claude Code connects by the bridge to a new hall with no hub, which the bridge starts and we end."""
    with TemporaryDirectory() as place:
        hall = Path(place) / "hall"
        try:
            connects("claude", bridge(hall))
        finally:
            for record in hub_records(hall):
                end(int(record.stem.removeprefix("hub-")))


def hub_records(hall: Path) -> list[Path]:
    """The files of the hall's hubs, which have their pids; one that still starts is waited for."""
    until = time.monotonic() + STARTING
    while not (found := list(hall.glob("hub-*.json"))) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def end(process: int) -> None:
    """End a process that is not our child, and wait for it."""
    handle = os.pidfd_open(process)
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not select.select([handle], [], [], 30)[0]:
            raise Failed(f"the hub with pid {process} did not end within 30 s of SIGTERM")
    finally:
        os.close(handle)


@contextmanager
def busy() -> Iterator[None]:
    """Keep every core busy during the block."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def passes(title: str, check: Callable[..., None], *arguments: Any, times: int = 1) -> bool:
    """Do a check, perhaps several times, and print a line about it; whether it passed each time."""
    seconds, failures = [], []
    for _ in range(times):
        began = time.monotonic()
        try:
            check(*arguments)
        except (Failed, subprocess.TimeoutExpired) as failure:
            failures.append(str(failure).strip())
        seconds.append(time.monotonic() - began)
    passed = f"{times - len(failures)} of {times}, median {statistics.median(seconds):.1f} s, slowest "
    say(f"{'FAIL' if failures else 'ok  '} {title}: {passed if times > 1 else ''}{max(seconds):.1f} s")
    for text in failures:
        say("     " + text.replace("\n", "\n     "))
    return not failures


def with_hub() -> Iterator[bool]:
    """The checks with a hub running; whether each passed."""
    with TemporaryDirectory() as place, Program(Path(place) / "hall", real=True).up() as up:
        hall = Path(place) / "hall"
        for client in SETTINGS:
            yield passes(f"{client} connects by URL", connects, client, f"{up.url}/mcp")
            yield passes(f"{client} connects by bridge", connects, client, bridge(hall))
        yield passes("claude registers an agent by bridge", claude_registers, hall)
        yield passes("codex registers an agent by bridge", codex_registers, hall)


def without_hub(times: int) -> Iterator[bool]:
    """The checks with no hub running, each done so many times; whether each passed every time."""
    yield passes("claude connects by bridge with no hub", connects_with_no_hub, times=times)
    with busy():
        yield passes("claude connects by bridge with no hub and no idle core", connects_with_no_hub, times=times)


def main() -> int:
    options = argparse.ArgumentParser(prog="tools.clients")
    options.add_argument("--no-hub-runs", type=int, default=10, help="how often to connect with no hub running")
    times = options.parse_args().no_hub_runs
    install(CLIENTS)
    passed = [*with_hub(), *(without_hub(times) if times else ())]
    say(f"{sum(passed)} of {len(passed)} checks passed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
