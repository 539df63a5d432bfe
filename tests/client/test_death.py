"""Servers that die: it is told at once, the next call reconnects, and no process is left."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from crewhall.client import Client, child
from crewhall.errors import Unavailable
from tests.client.clients import is_waiting, single_server_client, stdio_command
from tests.conftest import eventually
from tests.edges.stdio import is_alive


def test_a_server_killed_during_a_call_is_told_at_once_and_reconnected() -> None:
    with single_server_client("x") as client, ThreadPoolExecutor(1) as threads:
        pid = client.call_tool("x")["pid"]
        waits = threads.submit(client.call_tool, "wait")
        eventually(lambda: is_waiting(client))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Unavailable) as died:
            waits.result(20)
        assert "the server one died during wait: it was ended by SIGKILL; it may have happened" in died.value.message
        again = client.call_tool("x")["pid"]
        assert again != pid and client.servers()["one"].connected
        os.kill(again, signal.SIGKILL)  # with nobody calling
        eventually(lambda: not is_alive(again))
        eventually(lambda: client.servers()["one"].connected)
        # The process may be gone a moment before the client hears of it: that call tells of the death.
        assert eventually(lambda: _pid(client)) not in (pid, again)


def _pid(client: Client) -> int | None:
    with suppress(Unavailable):
        found: int = client.call_tool("x")["pid"]
        return found
    return None


def test_the_last_words_of_a_server_are_told_without_its_secrets() -> None:
    words = stdio_command()
    entry = {"command": words[0], "args": words[1:], "env": {"API_KEY": "open sesame"}}
    with Client({"one": entry}) as client:
        with pytest.raises(Unavailable, match=r"it ended with exit code 3, and had said: the key was \[hidden\]"):
            client.call_tool("leave", {"code": 3, "words": "the key was open sesame"})
        assert client.call_tool("pid")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('no such hall')", "it ended with exit code 1, and had said: no such hall"),
        ("print('Welcome!')", "it ended with exit code 0, and had said: Welcome!"),
        ("import os, sys; os.close(1); sys.stdin.read()", "it closed its output"),
        ("import sys; sys.stdin.read()", "it did not answer within 0.3 s"),
    ],
)
def test_a_server_that_never_served_is_told_of_with_the_reason(code: str, why: str) -> None:
    with Client({"one": [sys.executable, "-Sc", code]}, connect_timeout=0.3 if "0.3" in why else 30) as client:
        with pytest.raises(Unavailable) as refused:
            client.call_tool("x")
        assert why in refused.value.message


@pytest.mark.parametrize("kills", [False, True])
def test_what_a_server_started_ends_with_it(kills: bool) -> None:
    """Also one that is deaf to SIGTERM and holds the server's pipes."""
    with single_server_client() as client:
        pid = client.call_tool("pid")["pid"]
        below = client.call_tool("bring_up")["pid"]
        assert is_alive(below)
        if kills:
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: not is_alive(below))
            assert client.call_tool("pid")["pid"] != pid
    assert not is_alive(pid) and not is_alive(below)


SCRIPT = """
import sys
from crewhall.client import Client, child
client = Client({"one": sys.argv[1:]})
print(client.call_tool("pid")["pid"], client.call_tool("bring_up")["pid"], flush=True)
raise SystemError("the script is over")
"""


def test_a_script_that_ends_by_an_exception_leaves_no_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *stdio_command()], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1 and "the script is over" in done.stderr, done.stderr
    assert not [pid for pid in done.stdout.split() if is_alive(int(pid))]


def test_a_client_that_is_forgotten_ends_its_processes() -> None:
    pid = Client({"one": stdio_command()}).call_tool("pid")["pid"]
    eventually(lambda: not is_alive(pid))
    eventually(lambda: "crewhall-client" not in [thread.name for thread in threading.enumerate()])


def test_a_large_answer_comes_whole_and_one_without_end_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "ä" * (1 << 20)
    with single_server_client() as client:
        assert client.call_tool("answer", {"result": {"content": [{"type": "text", "text": text}]}}) == text
        monkeypatch.setattr(child, "MOST_BYTES", 1 << 20)
        with pytest.raises(Unavailable, match="it sent a message of over 1048576 bytes"):
            client.call_tool("answer", {"result": {"content": [{"type": "text", "text": text}]}})
        assert client.call_tool("pid")
