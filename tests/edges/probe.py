"""
A client of every interface, of the standard library only, so that it can run inside an instance's session.

    python probe.py < {"url", "home", "socket", "program", "version", "commands", "calls"}

A call is [interface, token or null, tool, arguments]; `commands` has the noun and the verb of each tool. It prints the
body that each call gets.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
Json = dict[str, Any]
Lines = tuple[IO[str], IO[str]]


class Probe:
    def __init__(self, asked: Json) -> None:
        self.asked = asked
        self.place = urllib.parse.urlsplit(asked["url"])
        self.stack = ExitStack()
        # Conversations that the calls of an interface with a token share.
        self.open: dict[tuple[str, str | None], Lines] = {}
        self.streams: dict[str | None, tuple[http.client.HTTPResponse, str]] = {}

    def call(self, interface: str, token: str | None, tool: str, arguments: Json) -> Json:
        found: Json = getattr(self, f"by_{interface}")(token, tool, arguments)
        return found

    def by_rest(self, token: str | None, tool: str, arguments: Json) -> Json:
        return self._post(f"/api/v1/{'/'.join(self.asked['commands'][tool])}", token, arguments)

    def by_mcp(self, token: str | None, tool: str, arguments: Json) -> Json:
        more = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        accept = {"Accept": "application/json, text/event-stream"}
        return body_of(self._post("/mcp", token, request(tool, arguments), **more, **accept))

    def by_sse(self, token: str | None, tool: str, arguments: Json) -> Json:
        if token not in self.streams:
            self._open_stream(token)
        events, path = self.streams[token]
        plain = {"name": tool, "arguments": arguments}
        self._post(path, token, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": plain})
        return body_of(json.loads(next_data(events)))

    def _open_stream(self, token: str | None) -> None:
        stream = self._connection()
        stream.request("GET", "/sse", headers=self._headers(token))
        events = stream.getresponse()
        path = next_data(events)
        first = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "p", "version": "1"}}
        self._post(path, token, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": first})
        next_data(events)
        self._post(path, token, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.streams[token] = (events, path)

    def by_socket(self, token: str | None, tool: str, arguments: Json) -> Json:
        if ("socket", token) not in self.open:
            os.chdir(self.asked["home"])  # a socket's path has about 100 characters at most
            connection = self.stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(self.asked["socket"])
            lines = connection.makefile("rw")
            say(lines, {"crewhall": self.asked["version"], "token": token})
            lines.readline()
            self.open["socket", token] = (lines, lines)
        return self._by_lines("socket", token, tool, arguments)

    def by_bridge(self, token: str | None, tool: str, arguments: Json, *words: str) -> Json:
        name = " ".join(("bridge", *words))
        if (name, token) not in self.open:
            self.open[name, token] = self.stack.enter_context(bridge(self.asked, token, *words))
        return self._by_lines(name, token, tool, arguments)

    def by_standalone(self, token: str | None, tool: str, arguments: Json) -> Json:
        return self.by_bridge(token, tool, arguments, "--standalone")

    def _by_lines(self, name: str, token: str | None, tool: str, arguments: Json) -> Json:
        into, out = self.open[name, token]
        say(into, request(tool, arguments))
        return body_of(json.loads(out.readline()))

    def by_cli(self, token: str | None, tool: str, arguments: Json) -> Json:
        command = self.asked["commands"][tool]
        words = ["--home", self.asked["home"], "--json", *command, "--input", json.dumps(arguments)]
        done = subprocess.run(
            [self.asked["program"], *words], env=around(token), capture_output=True, text=True, check=False
        )
        return json.loads(done.stdout) if done.stdout else {"err": done.stderr}

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.place.hostname or "", self.place.port, timeout=30)

    def _headers(self, token: str | None) -> dict[str, str]:
        return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def _post(self, path: str, token: str | None, body: Json, **headers: str) -> Json:
        connection = self._connection()
        connection.request("POST", path, json.dumps(body), self._headers(token) | headers)
        text = connection.getresponse().read().decode()
        connection.close()
        found: Json = json.loads(text.rpartition("data: ")[2]) if text else {}
        return found


def around(token: str | None) -> dict[str, str]:
    """This process's environment, with another token or none."""
    own = {name: value for name, value in os.environ.items() if name != "CREWHALL_TOKEN"}
    return own | ({} if token is None else {"CREWHALL_TOKEN": token})


@contextmanager
def bridge(asked: Json, token: str | None, *words: str) -> Iterator[Lines]:
    command = [asked["program"], "--home", asked["home"], "mcp", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=around(token), stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process.stdin, process.stdout
        process.stdin.close()


def request(tool: str, arguments: Json) -> Json:
    params = {"name": tool, "arguments": arguments, "_meta": META}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def say(lines: IO[str], message: Json) -> None:
    lines.write(json.dumps(message) + "\n")
    lines.flush()


def next_data(events: http.client.HTTPResponse) -> str:
    while line := events.readline().decode():
        if line.startswith("data: "):
            return line[6:].strip()
    raise EOFError


def body_of(answer: Json) -> Json:
    """The body of a tool's result; a refusal of the whole request is one itself."""
    if "result" not in answer:
        return answer
    found: Json = json.loads(answer["result"]["content"][0]["text"])
    return found


if __name__ == "__main__":
    probe = Probe(json.load(sys.stdin))
    with probe.stack:
        print(json.dumps([probe.call(*one) for one in probe.asked["calls"]]))
