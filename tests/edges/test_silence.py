"""The command line and a hub that stands still: told within seconds; a call that only takes long is waited for."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pysqlite3.dbapi2 as sqlite3
import pytest

from crewhall.edges.bridge.address_files import HubAddress
from crewhall.edges.cli import silence
from crewhall.edges.cli.hall_client import Hall
from crewhall.errors import Unavailable
from tests.conftest import eventually
from tests.edges.program import Program, Up, ask
from tests.edges.raw_http import http

pytestmark = pytest.mark.slow

SOON = 5.0


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "home")


@contextmanager
def stopped(up: Up) -> Iterator[int]:
    pid: int = up.process.pid
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: silence.is_stopped(HubAddress("", pid)))
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_command_says_within_seconds_that_the_hub_is_stopped(program: Program) -> None:
    with program.up() as up:
        with stopped(up) as pid:
            for words in (("status",), ("agent", "list")):
                began = time.monotonic()
                done = program.here(*words)
                assert time.monotonic() - began < SOON
                assert (done.code, done.err.splitlines()) == (
                    7,
                    [
                        f"crewhall: the hub at {up.url} (pid {pid}) does not answer",
                        f"  Nothing was changed. It is stopped: `kill -CONT {pid}` lets it go on, `kill -KILL {pid}` "
                        "ends it, and costs nothing that it has acknowledged.",
                    ],
                )
        assert program.here("status").code == 0


def test_a_hub_that_is_stopped_is_passed_over_for_one_that_is_not(program: Program) -> None:
    with program.up() as first, program.up() as second:
        assert Hall(program.settings).urls == [first.url, second.url]
        with stopped(first):
            assert Hall(program.settings).urls == [second.url, first.url]
            assert program.here("agent", "list").code == 0


@pytest.fixture
def alert(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that looks at once and often."""
    monkeypatch.setattr(silence, "FIRST_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(silence, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(silence, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(silence, "PATIENCE_SECONDS", 0.5)


@contextmanager
def stuck_writer(program: Program) -> Iterator[None]:
    """Another program holds SQLite's one writer, so a change waits."""
    with closing(sqlite3.connect(program.home / "hall.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_call_that_takes_long_is_waited_for_and_one_with_a_hub_that_is_stopped_is_not(
    program: Program, alert: None
) -> None:
    with program.up() as up, ThreadPoolExecutor(1) as pool:
        hall = Hall(program.settings)
        tool = {"name": "repository_register", "command": ["repository", "register"]}
        with stuck_writer(program):
            coming = pool.submit(hall.call, tool, {"path": "/a"})
            threading.Event().wait(3 * silence.ANSWER_SECONDS)  # many looks
            assert not coming.done()
        assert coming.result(20)[1]
        with stuck_writer(program):
            coming = pool.submit(hall.call, tool, {"path": "/b"})
            eventually(lambda: "calls_running 1" in metrics(up))
            with stopped(up) as pid:
                failure = coming.exception(SOON)
        assert isinstance(failure, Unavailable) and f"(pid {pid}) does not answer" in failure.message
        assert failure.hint.startswith("What was asked may still happen: look before you repeat it. It is stopped:")
        assert ask(up, "repository/list")["total"] >= 1


def metrics(up: Up) -> str:
    return str(http.get(f"{up.url}/metrics").text)


def test_a_hub_that_is_not_stopped_is_given_more_time(alert: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(silence, "PATIENCE_SECONDS", 1.0)
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as mute:
        hub = HubAddress(f"http://127.0.0.1:{mute.getsockname()[1]}", os.getpid())
        began = time.monotonic()
        with silence.SilenceWatch(hub, ours) as watch:
            ours.settimeout(SOON)
            assert ours.recv(1) == b"", "it is cut"
            assert watch.is_silent and time.monotonic() - began >= 1.0


def test_a_hub_that_takes_no_connection_any_more_may_be_finishing_ours(alert: None) -> None:
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as gone:
        hub = HubAddress(f"http://127.0.0.1:{gone.getsockname()[1]}", os.getpid())
    with ours, theirs, silence.SilenceWatch(hub, ours) as watch:
        ours.settimeout(3 * silence.PATIENCE_SECONDS)
        with pytest.raises(TimeoutError):
            ours.recv(1)
        assert not watch.is_silent
