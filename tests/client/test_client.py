"""The client in a script, in threads and in async functions: names, time limits, cancelling."""

import asyncio
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from crewhall.client import Client, fleet
from crewhall.errors import Cancelled, InvalidInput, InvalidState, NotFound, TimedOut, Unavailable
from tests.client.clients import is_waiting, single_server_client, stdio_command
from tests.conftest import eventually

MUTE = [sys.executable, "-Sc", "import sys; sys.stdin.read()"]


def cancels(client: Client) -> list[str]:
    """The reasons of the cancellations that the server was told of."""
    notices = client.call_tool("heard")["notices"]
    return [one["params"]["reason"] for one in notices if one["method"] == "notifications/cancelled"]


def test_tools_are_listed_with_their_servers_and_called_by_name_or_alias() -> None:
    with Client({"a": stdio_command("x", "judge_review=review", "b.z"), "b": stdio_command("x", "y")}) as client:
        listed = {(tool.server, tool.name) for tool in client.list_tools()}
        assert {("a", "x"), ("b", "x"), ("b", "y"), ("a", "judge_review")} <= listed
        assert client.call_tool("review")["name"] == "judge_review"
        with pytest.raises(InvalidInput, match="'x' is a tool of a and of b"):
            client.call_tool("x")
        b = client.call_tool("y")["pid"]
        assert client.call_tool("x", server="b")["pid"] == client.call_tool("b.x")["pid"] == b
        assert client.call_tool("a.x")["pid"] != b
        with pytest.raises(NotFound, match="no tool 'z' in b"):  # though a has one of that very name
            client.call_tool("b.z")
        assert client.call_tool("b.z", server="a")["pid"] != b
        with pytest.raises(NotFound) as unknown:
            client.call_tool("judge_revue")
        assert "judge_review" in unknown.value.hint
        with pytest.raises(NotFound, match="there is no server 'c'"):
            client.call_tool("x", server="c")
        with pytest.raises(NotFound, match="no tool 'y' in a"):
            client.call_tool("y", server="a")


def test_a_tool_that_came_later_is_found() -> None:
    with single_server_client() as client:
        with pytest.raises(NotFound):
            client.call_tool("late")
        client.call_tool("grow", {"name": "late"})
        assert client.call_tool("late")["name"] == "late"


def test_calls_to_two_servers_go_on_at_once(tmp_path: Path) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    with Client({"a": stdio_command(), "b": stdio_command()}) as client, ThreadPoolExecutor(2) as threads:
        # Each end of the pipe can only be opened while the other is being opened.
        calls = [
            threads.submit(client.call_tool, "meet", {"fifo": fifo, "reads": server == "a"}, server=server)
            for server in ("a", "b")
        ]
        assert [call.result(10)["name"] for call in calls] == ["meet", "meet"]


def test_calls_to_one_server_go_on_at_once_in_async_functions_too(tmp_path: Path) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)

    async def both() -> None:
        async with Client({"one": stdio_command("x")}) as client, asyncio.timeout(10):
            await asyncio.gather(*(client.call_tool("meet", {"fifo": fifo, "reads": reads}) for reads in (True, False)))
            assert "x" in [tool.name for tool in await client.list_tools()]
            assert (await client.servers())["one"].connected

    asyncio.run(both())


def test_silence_ends_a_call_and_progress_does_not() -> None:
    with single_server_client(timeout=0.6) as client:
        heard: list[tuple[float, float | None, str | None]] = []
        threads = set()

        def hear(*told: float | str | None) -> None:
            heard.append(told)  # type: ignore[arg-type]
            threads.add(threading.current_thread())

        assert client.call_tool("tick", {"times": 8, "seconds": 0.1}, progress=hear)["name"] == "tick"
        assert heard == [(float(number), None, "on") for number in range(8)]
        assert threads == {threading.current_thread()}
        with pytest.raises(TimedOut, match=r"wait of one was silent for 0\.2 s"):
            client.call_tool("wait", timeout=0.2)
        eventually(lambda: cancels(client) == ["caller cancelled"])


def test_an_interrupt_or_an_exception_in_progress_cancels_the_call() -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with single_server_client() as client:
        with pytest.raises(ZeroDivisionError):
            client.call_tool("tick", {"times": 1000, "seconds": 0.01}, progress=fail)
        eventually(lambda: len(cancels(client)) == 1)
        main = threading.get_ident()

        def interrupt() -> None:
            eventually(lambda: is_waiting(client))
            signal.pthread_kill(main, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("wait")
        eventually(lambda: len(cancels(client)) == 2)


def test_closing_ends_calls_and_a_closed_client_says_so() -> None:
    client = Client({"one": stdio_command()})
    client.call_tool("pid")
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(client.call_tool, "wait")
        eventually(lambda: is_waiting(client))
        client.close()
        with pytest.raises(Cancelled, match="the client was closed during the call"):
            call.result(10)
    client.close()
    with pytest.raises(InvalidState, match="this client is closed"):
        client.call_tool("pid")


def test_a_child_of_the_script_is_told_to_make_its_own() -> None:
    with single_server_client() as client:
        pid = client.call_tool("pid")["pid"]
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # which ends it if it hangs
            code = 1
            try:
                client.call_tool("pid")
            except InvalidState as refused:
                code = 0 if "another process" in refused.message else 2
            finally:
                client.close()
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert client.call_tool("pid")["pid"] == pid, "and ours goes on"


def test_a_server_gets_the_environment_and_directory_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_SCRIPT", "yes")
    words = stdio_command()
    entry = {"command": words[0], "args": words[1:], "env": {"OWN": "too"}, "cwd": tmp_path}
    with Client({"one": entry}) as client:
        shown = client.call_tool("show")
    assert (shown["environment"]["FROM_SCRIPT"], shown["environment"]["OWN"]) == ("yes", "too")
    assert shown["directory"] == str(tmp_path)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True, "3"])
def test_a_limit_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="timeout is"):
        Client({"one": stdio_command()}, timeout=seconds)


def test_a_server_that_never_answers_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "PATIENCE", 0.2)
    with Client({"good": stdio_command("x"), "mute": MUTE}, connect_timeout=600) as client:
        assert client.call_tool("x", server="good")["name"] == "x"
        assert client.call_tool("good.x")["name"] == client.call_tool("x")["name"] == "x"
        assert client.servers()["mute"].why == "it is being connected"


def test_servers_that_are_not_there_are_told_of_and_the_others_serve() -> None:
    nothing = {"none": ["no-such-program"], "refused": "http://127.0.0.1:9/mcp"}
    servers = {"good": stdio_command("x"), "bare": stdio_command("no tools"), **nothing}
    with Client(servers) as client:
        assert client.call_tool("x")["name"] == "x"
        stands = client.servers()
        assert {name for name, status in stands.items() if status.connected} == {"good", "bare"}
        assert stands["none"].why == "No such file or directory: no-such-program"
        assert stands["refused"].why == "All connection attempts failed" and stands["good"].why is None
        assert stands["good"].since <= datetime.now(UTC) and stands["good"].tools > 1
        with pytest.raises(Unavailable, match="none is not connected: No such file"):
            client.call_tool("y", server="none")
        with pytest.raises(Unavailable, match=r"no tool 'y' in .* refused is not connected"):
            client.call_tool("y")
