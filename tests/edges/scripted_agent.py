"""
The program of a `custom` instance: an MCP client of the bridge that the hall gave it, which does what messages say.

    {"call": [TOOL, ARGUMENTS]}      its result is a line of results.jsonl
    {"run": COMMAND}                 a shell command in its worktree; its exit code and output are a line there too
    {"state": NAME, "detail": TEXT}  its state, in the file named in CREWHALL_STATE_FILE
    {"exit": CODE}                   its end

Any other message is a line of heard.jsonl. Each run is a line of runs.jsonl, with the words that the program was
started with, and one of tools.jsonl, the tools that it is shown. These files are in its run directory. It needs the
standard library only.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
STATE_FILE = Path(os.environ["CREWHALL_STATE_FILE"])


class Client:
    """The bridge that the MCP config names, asked line by line."""

    def __init__(self, config: str) -> None:
        entry = json.loads(Path(config).read_text())["mcpServers"]["crewhall"]
        words, around = [entry["command"], *entry["args"]], {**os.environ, **entry["env"]}
        pipe = subprocess.PIPE
        self._bridge = subprocess.Popen(words, env=around, stdin=pipe, stdout=pipe, text=True)
        self._ids = itertools.count(1)

    def ask(self, method: str, **params: Any) -> Any:
        assert self._bridge.stdin is not None and self._bridge.stdout is not None
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": META}}
        self._bridge.stdin.write(json.dumps(message) + "\n")
        self._bridge.stdin.flush()
        return json.loads(self._bridge.stdout.readline())["result"]

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.ask("tools/call", name=tool, arguments=arguments)["structuredContent"]


def note(name: str, record: Any) -> None:
    with STATE_FILE.with_name(name).open("a") as file:
        file.write(json.dumps(record) + "\n")


def say(state: str, detail: str) -> None:
    part = STATE_FILE.with_suffix(".part")
    part.write_text(json.dumps({"state": state, "detail": detail, "at": int(time.time() * 1000)}))
    part.rename(STATE_FILE)


def obey(client: Client, order: dict[str, Any]) -> None:
    if "exit" in order:
        sys.exit(order["exit"])
    if "state" in order:
        say(order["state"], order["detail"])
    if "call" in order:
        tool, arguments = order["call"]
        note("results.jsonl", client.call(tool, **arguments))
    if "run" in order:
        done = subprocess.run(order["run"], shell=True, capture_output=True, text=True, check=False)
        note("results.jsonl", {"code": done.returncode, "output": done.stdout + done.stderr})


def hear(client: Client, text: str) -> None:
    """Obey an order; note what is none."""
    try:
        order = json.loads(text)
    except ValueError:
        note("heard.jsonl", {"text": text})
    else:
        obey(client, order)


def main() -> None:
    note("runs.jsonl", {"pid": os.getpid(), "directory": os.getcwd(), "words": sys.argv[1:]})
    client = Client(os.environ["CREWHALL_MCP_CONFIG"])
    tools = [one["name"] for one in client.ask("tools/list")["tools"]]
    note("tools.jsonl", tools)
    say("idle", "connected" if "message_list" in tools else f"{tools}")
    while True:
        # The newest is shown first; there is none while a hub is gone.
        for message in reversed(client.call("message_list").get("messages", [])):
            whole = client.call("message_get", id=message["id"])  # from now on it counts as read
            hear(client, whole["body"])
        time.sleep(0.05)


if __name__ == "__main__":
    main()
