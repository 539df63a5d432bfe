"""
What others notice while a hub is attacked, against the quiet times of the same run, and what the hub's memory does.

    a hub ─▶ quiet ─▶ attacked, again and again ─▶ let go ─▶ a row of the table        one hub for each attack

Others are another agent in a process of its own: it reads by a connection that it keeps and writes by a new one each
time, every 50 ms. The attacks are in attacks.py.
"""

import contextlib
import http.client
import multiprocessing
import os
import pwd
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from bench.load import rest_request
from bench.running import IDLE, RunningHub, running_hub

QUIET_SECONDS, ATTACK_SECONDS, AFTER_SECONDS = (float(os.environ.get("BENCH_SECONDS", "20")),) * 3
EVERY_SECONDS = 0.05
PATIENCE_SECONDS = 30.0  # of a call of others
processes = multiprocessing.get_context("fork")
Strike = Callable[["Target"], object]


@dataclass(frozen=True)
class Target:
    """What an attacker has: the hub's port, a worker's token, and what `prepare` made for the attack."""

    port: int
    token: str
    agent: str
    prepared: str = ""

    def connect(self, port: int = 0) -> socket.socket:
        """A connection to the hub, or to another of its ports."""
        return socket.create_connection(("127.0.0.1", port or self.port), PATIENCE_SECONDS)

    def head(self, request: str, *headers: str) -> bytes:
        """A request without a token, up to its body."""
        return "\r\n".join([f"{request} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *headers, "", ""]).encode()

    def ask(self, *requests: bytes) -> list[bytes]:
        """What the hub says to each of these, sent at the same time, until it is silent for a moment or hangs up."""
        said = [b""] * len(requests)

        def ask_one(number: int, request: bytes) -> None:
            with self.connect(_port_of(request)) as connection, contextlib.suppress(OSError):
                connection.sendall(request)
                said[number] = connection.recv(65_536)

        asking = [threading.Thread(target=ask_one, args=each, daemon=True) for each in enumerate(requests)]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
        return said


def _port_of(request: bytes) -> int:
    """The port to which a request is addressed."""
    return int(request.partition(b"\r\nHost: 127.0.0.1:")[2].partition(b"\r\n")[0])


@dataclass(frozen=True)
class Attack:
    """An attack on a finding of this number; `files` bounds the hub's descriptors, soft and hard."""

    finding: int
    strike: Strike
    attackers: int = 1
    files: int | None = None
    prepare: Callable[[RunningHub, Path], str] = lambda hub, place: ""
    read: Callable[["Target"], bytes] = lambda target: rest_request(
        target.port, "agent/get", {"id": target.agent}, target.token
    )  # what others ask meanwhile

    @property
    def name(self) -> str:
        return self.strike.__name__.replace("_", " ")


ATTACKS: list[Attack] = []


def attack(finding: int, **more: Any) -> Callable[[Strike], Strike]:
    """Put a function into the list."""

    def declare(strike: Strike) -> Strike:
        ATTACKS.append(Attack(finding, strike, **more))
        return strike

    return declare


@dataclass
class Times:
    """How long the calls of others took, and how many failed."""

    seconds: list[float]
    failed: int = 0

    @property
    def p99(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[int(len(ordered) * 0.99)] if ordered else PATIENCE_SECONDS

    @property
    def longest(self) -> float:
        return max(self.seconds, default=PATIENCE_SECONDS)


class Others:
    """An agent in a process of its own, which reads and writes; each message asks for the times since the last one."""

    def __init__(self, target: Target, read: bytes) -> None:
        self.target = target
        self._read = read
        self._times = Times([])
        self._calls = (threading.Lock(), threading.Lock())

    def serve(self, pipe: Connection) -> None:
        write = rest_request(
            self.target.port, "agent/update", {"id": self.target.agent, "status": "busy"}, self.target.token
        )
        for lock, request, keeps in zip(self._calls, (self._read, write), (True, False), strict=True):
            threading.Thread(target=self._call, args=(lock, request, keeps), daemon=True).start()
        while pipe.recv():
            with ExitStack() as stack:
                for lock in self._calls:  # a call that takes its time belongs to this round
                    stack.enter_context(lock)
                times, self._times = self._times, Times([])
            pipe.send(times)

    def _call(self, lock: threading.Lock, request: bytes, keeps: bool) -> None:
        """The same request for ever, by one connection or by a new one each time."""
        connection: socket.socket | None = None
        while True:
            began = time.perf_counter()
            with lock:
                try:
                    connection = connection or self.target.connect(_port_of(request))
                    connection.sendall(request)
                    with closing(http.client.HTTPResponse(connection)) as answer:
                        answer.begin()
                        answer.read()
                    has_failed = answer.status != 200
                except (OSError, http.client.HTTPException):
                    has_failed = True
                self._times.seconds.append(time.perf_counter() - began)
                self._times.failed += has_failed
            if connection is not None and (has_failed or not keeps):
                connection.close()
                connection = None
            time.sleep(max(0.001, EVERY_SECONDS - (time.perf_counter() - began)))


def strike_until(over: Event, one: Attack, target: Target) -> None:
    """In a process of `nobody`: strike again and again."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
    while not over.is_set():
        with contextlib.suppress(OSError):
            one.strike(target)


def resident(pid: int) -> float:
    """A process's resident memory in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


@contextmanager
def running(*children: BaseProcess) -> Iterator[None]:
    try:
        for child in children:
            child.start()
        yield
    finally:
        for child in children:
            child.kill()
            child.join()


def _target(hub: RunningHub, name: str, prepared: str) -> Target:
    """What an agent of this name has of the hub."""
    made = hub.call("agent/token", name=name, role="worker")
    return Target(hub.port, made["token"], made["agent_id"], prepared)


def measure(one: Attack, place: Path) -> str:
    """A row of the table."""
    with running_hub(place / "home", IDLE, files=one.files) as hub:
        prepared = one.prepare(hub, place)
        target, other = (_target(hub, name, prepared) for name in ("attacker", "other"))
        ours, theirs = processes.Pipe()
        over = processes.Event()
        attackers = [processes.Process(target=strike_until, args=(over, one, target)) for _ in range(one.attackers)]

        def passed(seconds: float) -> tuple[Times, float]:
            """The times of others, and the most memory of the hub, in so many seconds."""
            end, most = time.monotonic() + seconds, 0.0
            while time.monotonic() < end:
                most = max(most, resident(hub.process.pid))
                time.sleep(0.05)
            ours.send(True)
            times: Times = ours.recv()
            return times, most

        with closing(ours), running(processes.Process(target=Others(other, one.read(other)).serve, args=(theirs,))):
            theirs.close()  # so that an end of that process is seen
            passed(2)
            quiet, before = passed(QUIET_SECONDS)
            with running(*attackers):
                attacked, during = passed(ATTACK_SECONDS)
                over.set()
            passed(AFTER_SECONDS)
            after = resident(hub.process.pid)
    failed = f"{attacked.failed} of {len(attacked.seconds)}"
    times = (f"{seconds * 1e3:.0f} ms" for seconds in (quiet.p99, attacked.p99, attacked.longest))
    memory = f"{before:.0f}, {during:.0f}, {after:.0f} MiB"
    return "| " + " | ".join((str(one.finding), one.name, *times, failed, memory)) + " |"
