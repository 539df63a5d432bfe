"""
Whatever is sent to a hub, by every way in: it answers, it has no bug to report, and it does not grow.

    make test: some hundred requests    make soak: 100,000
"""

import http.client
import json
import os
import re
import socket
import struct
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import pytest

from crewhall import __version__
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.families.all import registry
from crewhall.tool import Tool
from tests.edges.grammar import TEXTS, Grammar, Known
from tests.edges.interfaces import META, MODERN
from tests.edges.program import Program, Up, ask
from tests.edges.raw_http import ERAS
from tests.edges.sample_arguments import Arguments
from tests.sizes import size

PARTS = size(1, 50)
REQUESTS = size(400, 2_000)  # of a part
COMMANDS = size(1, 6)
SEED = os.environ.get("CREWHALL_FUZZ_SEED", "crewhall")
ROUND = 25  # requests by one way in, before it is the next one's turn
PATIENCE_SECONDS = 30.0
GROWTH_MIB, GROWTH = 48, 40  # of memory; of threads and descriptors, which are few for each thread
# Not for a fuzz: these start programs, open ports, change settings for all and end its tokens, as they are meant to.
LEFT_OUT = re.compile(
    r"instance_(start|restart|send|repair|check)|worktree_(open|close)|workspace_create|setting_set"
    r"|agent_(token_revoke|unregister)"
)
REACHING = ("pulls", "review")  # families whose outward tools ask hosts on the network, which takes its time
TOOLS = [
    tool for tool in registry().tools if not (LEFT_OUT.match(tool.name) or (tool.outward and tool.family in REACHING))
]
IN_WORKTREE = [tool for tool in TOOLS if "worktree" in tool.profiles]


class Bug(AssertionError):
    """An answer that no request should have."""


def judge(text: str, sent: Any) -> None:
    """Raise Bug for an answer that tells of a fault of ours, or nothing that a caller could act on."""
    if '"INTERNAL"' in text or "Traceback" in text or "Internal Server Error" in text:
        raise Bug(f"{text[:2000]} to {str(sent)[:4000]}")
    if '"code":-32603' in text.replace(" ", "") and '"hint"' not in text:
        raise Bug(f"{text[:2000]} to {str(sent)[:4000]}")


class Way(Protocol):
    """A way into the hub: one hostile request by it."""

    def __call__(self, grammar: Grammar) -> str: ...


class Http:
    """Requests over HTTP on a connection that is kept, as the operator, an agent, or a stranger."""

    def __init__(self, port: int, tokens: list[str]) -> None:
        self.port, self.tokens = port, tokens
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)

    def ask(self, grammar: Grammar, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> str:
        token = grammar.choice.choice(self.tokens)
        headers = headers | ({"Authorization": f"Bearer {token}"} if token else {"Origin": "http://x"})
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            text = answer.read().decode()
        except (http.client.RemoteDisconnected, ConnectionError, BrokenPipeError):
            self._connection.close()
            return "closed"
        judge(text, (method, path, headers, body))
        if answer.status == 500:
            raise Bug(f"500 to {method} {path} {body!r}: {text}")
        return str(answer.status)

    def rest(self, grammar: Grammar) -> str:
        tool = grammar.tool()
        kind = "text/plain" if grammar.choice.random() < 0.02 else "application/json"
        accept = grammar.choice.choice(["*/*", "text/event-stream"])
        body = grammar.raw(grammar.arguments(tool))
        return self.ask(grammar, "POST", _path_of(tool), body, {"Content-Type": kind, "Accept": accept})

    def query(self, grammar: Grammar) -> str:
        tool = grammar.tool()
        words = grammar.arguments(tool)
        found = words if isinstance(words, dict) else {"id": words}
        pairs = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in found.items()]
        path = (
            _path_of(tool)
            if grammar.choice.random() < 0.95
            else quote("/" + grammar.choice.choice(TEXTS), errors="replace")
        )
        return self.ask(grammar, "GET", f"{path}?{urlencode(pairs, errors='replace')}"[:60_000], None, {})

    def mcp(self, grammar: Grammar, version: str, path: str = "/mcp") -> str:
        method, message = grammar.message()
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        headers |= {"MCP-Protocol-Version": version}
        if version == MODERN:
            params = message.get("params")
            if isinstance(params, dict):
                message["params"] = params | {"_meta": META}
            headers["Mcp-Method"] = quote(method)
            name = params.get("name", params.get("uri")) if isinstance(params, dict) else None
            if isinstance(name, str):
                headers["Mcp-Name"] = f"=?base64?{b64encode(name.encode('utf-8', 'replace')).decode()}?="
        return self.ask(grammar, "POST", path, grammar.raw(message), headers)


def _path_of(tool: Tool) -> str:
    return f"/api/v1/{tool.command[0]}/{tool.command[1]}"


class Bridge:
    """Lines on the hub's Unix socket, by a bridge of its own now and then."""

    def __init__(self, program: Program) -> None:
        self._socket = HubSocket(program.settings)
        self._connection: socket.socket | None = None
        self._number = 0

    def __call__(self, grammar: Grammar) -> str:
        if grammar.choice.random() < 0.02:
            self._leave()
        if self._connection is None and not self._greet(grammar):
            return "refused"
        assert self._connection is not None
        self._number += 1
        line = grammar.raw(grammar.message()[1]).replace(b"\n", b" ")
        ping = {"jsonrpc": "2.0", "id": f"alive {self._number}", "method": "ping"}
        try:
            self._connection.sendall(line + b"\n" + json.dumps(ping).encode() + b"\n")
            for answer in self._lines:
                judge(answer, line)
                if f'"alive {self._number}"' in answer:
                    return "answered"
        except (BrokenPipeError, ConnectionResetError):
            pass
        self._leave()
        return "closed"

    def _greet(self, grammar: Grammar) -> bool:
        hello: Any = {"crewhall": __version__, "directory": "/", "families": "", "profile": "all", "variables": {}}
        if grammar.choice.random() < 0.5:
            name = grammar.choice.choice(
                ["directory", "families", "profile", "variables", "bridge", "token", "unknown"]
            )
            hello[name] = grammar.anything()
        self._connection = self._socket.connect()
        self._connection.settimeout(PATIENCE_SECONDS)
        self._lines = (line for line in self._connection.makefile(encoding="utf-8", errors="replace"))
        self._connection.sendall(grammar.raw(hello).replace(b"\n", b" ") + b"\n")
        answer = next(self._lines, "")
        judge(answer, hello)
        if '"version"' not in answer:
            self._leave()
            return False
        return True

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class Streams:
    """Streams that a client opens with hostile words, hears a little of, and leaves."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token

    def __call__(self, grammar: Grammar) -> str:
        kind = grammar.choice.choice(["listen", "sse", "websocket"])
        head = getattr(self, f"_{kind}")(grammar)
        with (
            socket.create_connection(("127.0.0.1", self._port), PATIENCE_SECONDS) as connection,
            suppress(ConnectionError),
        ):
            connection.sendall(head)
            answer = connection.recv(4_096).decode(errors="replace")
            judge(answer, head)
            if " 500 " in answer[:20]:
                raise Bug(f"{answer} to {head!r}")
            if kind == "websocket":
                connection.sendall(struct.pack("!BB4s", 0x81, 0x80 | 4, b"\0" * 4) + os.urandom(4))
        return kind

    def _head(self, line: str, *headers: str) -> bytes:
        said = [f"{line} HTTP/1.1", f"Host: 127.0.0.1:{self._port}", f"Authorization: Bearer {self._token}", *headers]
        return "\r\n".join([*said, "", ""]).encode("utf-8", "replace")

    def _listen(self, grammar: Grammar) -> bytes:
        wanted = {"resourceSubscriptions": [grammar.choice.choice(TEXTS) for _ in range(3)], "x": grammar.anything()}
        message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"}
        body = json.dumps(message | {"params": {"notifications": wanted, "_meta": META}}).encode()
        said = (f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: subscriptions/listen", "Content-Type: application/json")
        accept = "Accept: application/json, text/event-stream"
        return self._head("POST /mcp", *said, accept, f"Content-Length: {len(body)}") + body

    def _sse(self, grammar: Grammar) -> bytes:
        return self._head(f"GET /sse?profile={quote(grammar.choice.choice(['all', *TEXTS])[:500], errors='replace')}")

    def _websocket(self, grammar: Grammar) -> bytes:
        query = urlencode(
            {"after": str(grammar.anything())[:500], "topic": grammar.choice.choice(TEXTS)}, errors="replace"
        )
        key = b64encode(os.urandom(16)).decode()
        said = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}")
        return self._head(f"GET /api/v1/events?{query}"[:8_000], *said)


def furnish(up: Up, home: Path) -> tuple[Known, list[str], int]:
    """A little of everything in the hall: what is in it, tokens, and the port of an open worktree."""
    root = home / "worktree"
    root.mkdir()
    (root / "README.md").write_text("x\n")
    ada, eve = (
        ask(up, "agent/token", name=name, role=role) for name, role in (("ada", "coordinator"), ("eve", "worker"))
    )
    tasks = [{"name": one, "description": "", "sequence": 1} for one in ("a", "b")]
    workflow = ask(up, "workflow/create", name="w", source_type="prompt", source_content="x")["id"]
    ask(up, "workflow/set-plan", id=workflow, plan={"summary": "", "approach": "", "tasks": tasks})
    task = ask(up, "workflow/next-tasks", workflow_id=workflow)["tasks"][0]["id"]
    ask(up, "task/claim", task_id=task, agent_id=eve["agent_id"])
    letter: Arguments = {"sender_id": "operator", "recipient_id": eve["agent_id"], "message_type": "query", "body": "?"}
    message = ask(up, "message/send", **letter)
    template = ask(up, "template/create", name="t", template={"tasks": tasks})["id"]
    port = ask(up, "worktree/open", path=str(root))["mcp"]["port"]
    ids = [ada["agent_id"], eve["agent_id"], workflow, task, message["id"], message["thread_id"], template, str(root)]
    addresses = [uri for tool in registry().tools for uri in tool.resources]
    known = Known([*ids, "operator", "README.md"], addresses, [prompt.name for prompt in registry().prompts])
    return known, [eve["token"]] * 6 + [ada["token"]] * 3 + ["wrong", ""], port


def ways(program: Program, up: Up, tokens: list[str], worktree: int) -> dict[str, Way]:
    port = int(up.url.rpartition(":")[2])
    hub, site = Http(port, tokens), Http(worktree, tokens)
    return {
        "rest": hub.rest,
        "query": hub.query,
        **{f"mcp {version}": lambda grammar, version=version: hub.mcp(grammar, version) for version in ERAS},
        "families": lambda grammar: hub.mcp(grammar, ERAS[1], "/mcp/judge"),
        "worktree": lambda grammar: site.mcp(grammar.of(IN_WORKTREE), MODERN),
        "bridge": Bridge(program),
        "streams": Streams(port, tokens[0]),
    }


def state(pid: int) -> dict[str, int]:
    """What a process has of memory in MiB, of threads and of descriptors."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    threads, files = (len(os.listdir(f"/proc/{pid}/{what}")) for what in ("task", "fd"))
    return {"memory": pages * os.sysconf("SC_PAGE_SIZE") >> 20, "threads": threads, "files": files}


def open_files(pid: int) -> Counter[str]:
    """The kinds of what a process has open."""
    links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    return Counter(re.sub(r"\d+", "", Path(link).name) for link in links)


def settled(pid: int, before: dict[str, int]) -> dict[str, int]:
    """The state once what was left open is closed, at the latest after some seconds."""
    end = time.monotonic() + 20
    while (now := state(pid))["files"] > before["files"] + GROWTH and time.monotonic() < end:
        time.sleep(0.1)
    return now


def assert_steady(before: dict[str, int], after: dict[str, int]) -> None:
    assert after["memory"] <= before["memory"] + GROWTH_MIB, (before, after)
    assert after["threads"] <= before["threads"] + GROWTH, (before, after)
    assert after["files"] <= before["files"] + GROWTH, (before, after)


class Fuzz:
    """A hub in a process of its own, with nothing outside it that a fuzz could reach."""

    def __init__(self, program: Program, up: Up, place: Path) -> None:
        self.program, self.up = program, up
        self._known, tokens, worktree = furnish(up, place)
        self._ways = ways(program, up, tokens, worktree)
        self.before: dict[str, int] | None = None  # its state when threads and caches were there
        self.ended: Counter[str] = Counter()

    def grammar(self, number: int) -> Grammar:
        return Grammar(TOOLS, self._known, f"{SEED} {number}")

    def send(self, numbers: range) -> None:
        """The requests of these numbers, by each way in turn."""
        names = list(self._ways)
        for number in numbers:
            name = names[number // ROUND % len(names)]
            self.ended[f"{name}: {self._ways[name](self.grammar(number))}"] += 1

    def command(self, number: int) -> None:
        """The command line, which asks the hub."""
        grammar = self.grammar(number)
        tool = grammar.tool()
        done = self.program.here("--json", *tool.command, "--input", json.dumps(grammar.arguments(tool)))
        judge(done.out + done.err, (tool.name, done))


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzz]:
    place = tmp_path_factory.mktemp("fuzz")
    around = {"CREWHALL_JUDGE_COMMAND": "/nonexistent/claude", "CREWHALL_LOG_LEVEL": "warning"}
    program = Program(place / "home", around)
    with program.up() as up:
        fuzz = Fuzz(program, up, place)
        yield fuzz
        print(fuzz.before, state(up.process.pid), dict(sorted(fuzz.ended.items())), open_files(up.process.pid))
        assert up.end() == 0


@pytest.mark.parametrize("part", range(PARTS))
def test_no_request_finds_a_bug_or_makes_the_hub_grow(fuzz: Fuzz, part: int) -> None:
    numbers = range(part * REQUESTS, (part + 1) * REQUESTS)
    fuzz.send(numbers[: REQUESTS // 2])
    fuzz.before = fuzz.before or state(fuzz.up.process.pid)
    fuzz.send(numbers[REQUESTS // 2 :])
    for number in numbers[:COMMANDS]:
        fuzz.command(number)
    assert_steady(fuzz.before, settled(fuzz.up.process.pid, fuzz.before))
    refused = sum(count for end, count in fuzz.ended.items() if end.endswith("401"))
    assert refused < fuzz.ended.total() / 3, "a stranger's requests come to nothing: are the tokens revoked?"
    assert ask(fuzz.up, "agent/list", limit=1)["total"] > 0
    assert "Traceback" not in fuzz.up.log.read_text(), fuzz.up.log.read_text()[:4000]
