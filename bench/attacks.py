"""
Attacks on a hub: small functions that strike once.

`@attack` puts one into the list, with the number of its finding. It is called again and again, by as many processes of
`nobody` as it asks for, until its time is over (under_attack.py). What it needs of a hub, such as an open worktree, its
`prepare` makes as the operator.

    python -m bench.attacks              all
    python -m bench.attacks idle heads   those whose functions have such a word in their names
"""

import contextlib
import json
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import bench.attacks_by_calls  # noqa: F401  it declares attacks, too
from bench.load import tool_request
from bench.under_attack import ATTACKS, Target, attack, measure

LONG = "a" * 4_000_000
FILES = 1024  # descriptors that many systems give a process


def hold(target: Target, count: int, *words: bytes) -> None:
    """Open so many connections, send each of the words on all of them, a second apart, and hold them for a while."""
    with ExitStack() as stack:
        held: list[socket.socket] = []
        with contextlib.suppress(OSError):
            for _ in range(count):
                held.append(stack.enter_context(target.connect()))
        for word in words:
            for one in held:
                with contextlib.suppress(OSError):
                    one.sendall(word)
            time.sleep(1)
        time.sleep(3)


@attack(5, files=FILES)
def idle_connections(target: Target) -> None:
    hold(target, 4 * FILES)


@attack(5, files=FILES)
def slow_heads(target: Target) -> None:
    hold(target, 2 * FILES, b"GET / HTTP/1.1\r\n", *[b"X-More: 1\r\n"] * 5)


@attack(5, files=FILES)
def slow_bodies(target: Target) -> None:
    hold(target, 2 * FILES, target.head("POST /mcp", "Content-Length: 1000"), *[b"x"] * 5)


@attack(5, files=FILES)
def answers_that_nobody_reads(target: Target) -> None:
    hold(target, 2 * FILES, (target.head("GET /web/hall.js") + target.head("GET /api/openapi.json")) * 2)


@attack(5)
def idle_connections_with_descriptors_enough(target: Target) -> None:
    hold(target, 10_000)


def send(target: Target, head: bytes, piece: bytes, size: int) -> None:
    """A request whose pieces go on up to this size, or until the hub hangs up."""
    with target.connect() as connection, contextlib.suppress(OSError):
        connection.sendall(head)
        for _ in range(size // len(piece)):
            connection.sendall(piece)


@attack(6, attackers=2)
def trailers(target: Target) -> None:
    head = target.head("POST /mcp", "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n"
    send(target, head, b"X-Trailer: aaaaaaaa\r\n" * 3000, 60_000_000)


@attack(6, attackers=2)
def chunk_extensions(target: Target) -> None:
    head = target.head("POST /mcp", "Transfer-Encoding: chunked")
    send(target, head, b"1;" + b"x" * 60_000 + b"\r\na\r\n", 60_000_000)


@attack(14, attackers=8)
def long_tool_names(target: Target) -> None:
    target.ask(tool_request(target.port, LONG, {}, target.token).replace(b"Mcp-Name: " + LONG.encode(), b"Mcp-Name: x"))


@attack(14, attackers=8)
def long_tool_names_of_2025(target: Target) -> None:
    target.ask(of_2025(target, "tools/call", {"name": LONG, "arguments": {}}))


@attack(14, attackers=8)
def long_prompt_names(target: Target) -> None:
    target.ask(of_2025(target, "prompts/get", {"name": LONG}))


def of_2025(target: Target, method: str, params: dict[str, object]) -> bytes:
    """A message as a client of 2025 sends it."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    more = ("Content-Type: application/json", "Accept: application/json, text/event-stream")
    said = (*more, f"Authorization: Bearer {target.token}", f"Content-Length: {len(body)}")
    return target.head("POST /mcp", *said) + body


def attacks(*words: str) -> None:
    """A row for each attack, those with such a word in their names if there are any."""
    print("\n| | attack | p99, quiet | p99, attacked | longest | failed | memory: before, during, after |")
    print("|--:|---|--:|--:|--:|--:|--:|")
    for one in sorted(ATTACKS, key=lambda one: one.finding):
        if not words or any(word in one.strike.__name__ for word in words):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
                print(measure(one, Path(place)), flush=True)


PARTS = {"attacks": attacks}

if __name__ == "__main__":
    attacks(*sys.argv[1:])
