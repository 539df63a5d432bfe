"""The bridge: it starts a hub, outlives it, and carries every message whole."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pysqlite3.dbapi2 as sqlite3
import pytest

from crewhall import config
from crewhall.app import Origin
from crewhall.edges.bridge.bridge import Bridge
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.edges.bridge.launch import EmbeddedHub, NoHub
from crewhall.errors import InvalidInput
from crewhall.identity import OPERATOR
from crewhall.token_file import read_operator_token
from tests.conftest import Agent, Live, eventually
from tests.edges.conftest import make_home
from tests.edges.interfaces import CREWHALL, MODERN
from tests.edges.prefork import REAL
from tests.edges.prefork import environment as prefork_environment
from tests.edges.program import PASSED_ON, Program
from tests.edges.raw_http import http
from tests.edges.sample_family import SampleFamily
from tests.edges.stdio import LEGACY, Stdio, bridges, end, hall_of, hubs, is_alive, the_hub, thread_states, warm_bridges


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home whose hub is up, for tests that need one to be there and change nothing."""
    home = tmp_path_factory.mktemp("bridge")
    (home / "config.toml").write_text("[server]\nport = 0\n")
    with warm_bridges(home) as (client,):
        client.call("agent_list")
        yield home


@contextmanager
def bridge(home: Path, *words: str, **environment: str) -> Iterator[Stdio]:
    """A client that leaves the hub as it is."""
    client = Stdio(home, *words, **environment)
    try:
        yield client
    finally:
        client.kill()


def python_path(first: Path) -> str:
    """PYTHONPATH with this directory first: Python runs the sitecustomize.py in it."""
    return os.pathsep.join([str(first), PASSED_ON.get("PYTHONPATH", "")])


def test_a_bridge_starts_the_hub_that_it_needs_and_leaves_it_running(home: Path) -> None:
    with bridges(home, 1, **REAL) as (client,):
        assert hubs(home) == []
        assert client.call("agent_register", name="ada", runtime="codex")["name"] == "ada"
        pid = the_hub(home)
        assert client.close() == 0
        assert is_alive(pid)


@pytest.mark.parametrize("version", [MODERN, LEGACY])
def test_both_eras_speak_through_it(served: Path, version: str) -> None:
    with bridge(served) as client:
        if version == LEGACY:
            assert client.initialize()["result"]["protocolVersion"] == LEGACY
        else:
            client.ask("tools/list")  # a hub that is still starting would leave the next question to the bridge
            assert MODERN in client.ask("server/discover")["result"]["supportedVersions"]
        names = [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]]
        assert "agent_register" in names


def test_twenty_bridges_at_once_start_one_hub(home: Path) -> None:
    with bridges(home, 20, **REAL) as clients:
        asked = [client.send("tools/call", name="agent_register", arguments=_me(n)) for n, client in enumerate(clients)]
        bodies = [
            client.answer(name)["result"]["structuredContent"] for client, name in zip(clients, asked, strict=True)
        ]
        assert sorted(body["name"] for body in bodies) == sorted(f"agent {n}" for n in range(20))
        assert len(hubs(home)) == 1
        assert (home / "hub.log").read_text().count("hub is up") == 1
        assert clients[0].count() == 20


def _register(client: Stdio, n: int) -> str:
    name: str = client.send("tools/call", name="agent_register", arguments=_me(n))
    return name


def _me(n: int) -> dict[str, str]:
    return {"name": f"agent {n}", "runtime": "custom"}


@pytest.mark.parametrize("version", [MODERN, LEGACY])
def test_a_killed_hub_costs_one_answer_and_no_more(home: Path, version: str) -> None:
    with warm_bridges(home) as (client,):
        if version == LEGACY:
            client.initialize()
        client.call("agent_register", name="ada", runtime="codex")
        first = the_hub(home)
        end(first, signal.SIGKILL)
        assert client.count() == 1
        assert the_hub(home) != first


def test_a_call_that_was_with_a_dying_hub_may_have_happened(home: Path) -> None:
    with warm_bridges(home) as (client,):
        client.call("agent_list")
        pid = the_hub(home)
        os.kill(pid, signal.SIGSTOP)
        called = _register(client, 1)
        listed = client.send("tools/list")
        eventually(lambda: _has_passed_on(client))
        os.kill(pid, signal.SIGKILL)
        result = client.answer(called)["result"]
        body = result["structuredContent"]
        assert result["isError"] and json.loads(result["content"][0]["text"]) == body
        assert body["code"] == "UNAVAILABLE" and "may have happened" in body["message"] and body["hint"]
        assert client.answer(listed)["result"]["tools"], "what changes nothing is asked again"
        eventually(lambda: unknown_calls(home, the_hub(home)) == {"client_gone": 0, "hub_died": 1, "stuck": 0})


def unknown_calls(home: Path, pid: int) -> dict[str, int]:
    """What the hub's metrics say of calls whose clients do not know how they ended, by reason."""
    url = json.loads((home / f"hub-{pid}.json").read_text())["url"]
    text = http.get(f"{url}/metrics", headers={"Authorization": f"Bearer {read_operator_token(home)}"}).text
    return {name: int(count) for name, count in re.findall(r'calls_unknown_total\{reason="(\w+)"\} (\d+)', text)}


@pytest.mark.parametrize(("tool", "expected"), [("lab_wait", 1), ("lab_quiet", 0)])
def test_a_change_whose_bridge_is_killed_is_counted(serve: Callable[..., Live], tool: str, expected: int) -> None:
    lab = SampleFamily()
    live = serve(tools=lab.registry)
    client = Stdio(live.hub.settings.home, **hall_of(live))
    client.send("tools/call", name=tool, arguments={})
    assert lab.started.wait(20)
    client.kill()
    eventually(lambda: lab.ended, 20)
    assert live.hub.meter.unknown == {"client_gone": expected, "hub_died": 0, "stuck": 0}


def _has_passed_on(client: Stdio) -> bool:
    """Whether the bridge has sent on all that its client wrote: its input is empty, and then it waits again."""
    assert client.process.stdin is not None
    is_empty = _pending(client.process.stdin.fileno()) == b"\0\0\0\0"
    return is_empty and set(thread_states(client.process.pid)) == {"S"}


def _pending(descriptor: int) -> bytes:
    import fcntl
    import termios

    return fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0")


def test_a_hub_that_is_told_to_stop_answers_first_and_loses_nothing(home: Path) -> None:
    with warm_bridges(home, 4) as clients:
        clients[0].call("agent_list")
        asked = [
            [client.send("tools/call", name="agent_register", arguments=_me(n)) for n in range(50)]
            for client in clients
        ]
        os.kill(the_hub(home), signal.SIGTERM)
        for client, names in zip(clients, asked, strict=True):
            bodies = [client.answer(name)["result"]["structuredContent"] for name in names]
            assert [body.get("code") for body in bodies] == [None] * 50
        assert clients[0].count() == 200


def test_a_bridge_waits_for_a_reason_to_start_a_hub_again(home: Path) -> None:
    with warm_bridges(home) as (client,):
        client.call("agent_list")
        client.send("subscriptions/listen", notifications={"resourceSubscriptions": ["crewhall://agents"]})
        eventually(lambda: client.notices)
        end(the_hub(home), signal.SIGTERM)
        with Program(home).up("--port", "0") as up:
            eventually(lambda: len(client.notices) == 2)  # it listens again, at the person's hub
            assert hubs(home) == [up.process.pid]


def test_a_persons_hub_takes_the_place_of_one_that_a_bridge_started(home: Path) -> None:
    with warm_bridges(home) as (client,):
        client.call("agent_register", name="ada", runtime="codex")
        first = the_hub(home)
        with Program(home).up("--port", "0") as up:
            eventually(lambda: not is_alive(first))
            assert client.count() == 1
            assert hubs(home) == [up.process.pid]


def test_a_second_hub_takes_the_bridges_when_the_first_one_ends(home: Path) -> None:
    program = Program(home)
    with program.up("--port", "0") as first, program.up("--port", "0") as second, bridges(home) as (client,):
        client.call("agent_register", name="ada", runtime="codex")
        first.end()
        assert client.count() == 1
        assert hubs(home) == [second.process.pid]


def test_a_newer_bridge_replaces_an_older_hub_and_nothing_is_lost(home: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer" / "sitecustomize.py"
    newer.parent.mkdir()
    newer.write_text("import crewhall\ncrewhall.__version__ = '9.0.0'\n")
    with warm_bridges(home, 3) as clients:
        clients[0].call("agent_list")
        old = the_hub(home)
        asked = [[_register(client, n) for n in range(50)] for client in clients]
        upgraded = Stdio(home, PYTHONPATH=python_path(newer.parent))
        try:
            about = upgraded.ask("tools/list")["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]
            assert about["version"] == "9.0.0"
            for client, names in zip(clients, asked, strict=True):
                answers = [client.answer(name) for name in names]
                assert [answer.get("error") for answer in answers] == [None] * 50
                assert not any(answer["result"]["isError"] for answer in answers)
            assert clients[0].count() == 150
            assert not is_alive(old) and the_hub(home) != old
        finally:
            upgraded.kill()


def test_large_messages_arrive_whole_and_in_order(home: Path) -> None:
    with warm_bridges(home) as (client,):
        text = "ä" * 600_000
        asked = [
            client.send("tools/call", name="agent_register", arguments=_me(n) | {"metadata": {"text": text}})
            for n in range(4)
        ]
        for name in asked:
            assert (
                client.answer(name)["result"]["structuredContent"]["code"] == "INVALID_INPUT"
            )  # metadata is for 16 kB
        filler = "x" * 3_900_000
        body = client.call("agent_get", id=filler)
        assert body["code"] == "INVALID_INPUT"
        too_much = client.call("agent_get", id="x" * 4_200_000)
        assert too_much["code"] == "LIMIT_EXCEEDED" and "4194304" in too_much["message"]
        assert client.count() == 0


def test_the_agent_whose_token_is_in_the_environment_is_who_speaks(live: Live) -> None:
    agent = Agent(live.hub, "kim")
    client = Stdio(live.hub.settings.home, **hall_of(live), CREWHALL_TOKEN=agent.token)
    assert client.call("agent_heartbeat")["success"]
    assert client.call("agent_heartbeat", agent_id="ag_someoneelse0")["code"] == "FORBIDDEN"
    live.hub.call("agent_token_revoke", {"agent_id": agent.id}, OPERATOR)
    assert client.call("agent_heartbeat")["code"] == "FORBIDDEN", "a revoked token ends at once"
    assert "wrong, expired or revoked" in client.ask("tools/list")["error"]["message"]
    client.close()


def test_a_bridges_directory_and_variables_count_for_its_own_calls_alone(
    serve: Callable[..., Live], capfd: pytest.CaptureFixture[str]
) -> None:
    live = serve(tools=SampleFamily().registry, log__level="debug")
    home = live.hub.settings.home
    mine = {"GITHUB_TOKEN": "ghp_mine", "CLAUDEOPS_TIER": "2", "GITEA_TOKEN": "${GITEA_TOKEN}", "SECRET": "no"}
    one, other = Stdio(home, **hall_of(live), **mine), Stdio(home, **hall_of(live))
    told = one.call("lab_origin")
    assert told["variables"] == {"GITHUB_TOKEN": "ghp_mine", "CLAUDEOPS_TIER": "2"}
    assert (told["directory"], told["edge"]) == (os.getcwd(), "bridge")
    assert other.call("lab_origin")["variables"] == {}
    one.close()
    other.close()
    assert "ghp_mine" not in repr(Origin("/", None, variables={"GITHUB_TOKEN": "ghp_mine"})) + "".join(
        capfd.readouterr()
    )
    assert not [path for path in home.rglob("*") if path.is_file() and b"ghp_mine" in path.read_bytes()]


@pytest.mark.parametrize("token", ["", "${CREWHALL_TOKEN}", "ch_agent_wrong"])
def test_a_wrong_token_is_never_taken_for_none(served: Path, token: str) -> None:
    with bridge(served, CREWHALL_TOKEN=token) as client:
        assert client.ask("tools/list")["error"]["data"]["code"] == "FORBIDDEN"
        assert client.ask("server/discover")["error"]["data"]["code"] == "FORBIDDEN"
        assert client.call("agent_list")["code"] == "FORBIDDEN"


def test_families_and_profile_shorten_the_list(served: Path) -> None:
    with bridge(served, "--profile", "readonly", "--families=work") as client:
        names = [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]]
        assert "agent_list" in names and "agent_register" not in names
        assert client.call("agent_register", name="a", runtime="codex")["code"] == "FORBIDDEN"
    with bridge(served, "--families", "nonsense") as client:
        assert "no family 'nonsense'" in client.ask("tools/list")["error"]["message"]


def test_a_hub_that_cannot_start_is_told_with_its_reason(home: Path) -> None:
    (home / "hall.db").write_text("this is no database, and it is long enough to be taken for one " * 20)
    with bridges(home, 1, **REAL) as (client,):
        error = client.ask("tools/list")["error"]
        assert error["data"]["code"] == "UNAVAILABLE" and "cannot be opened" in error["message"]
        body = client.call("agent_list")
        assert body["code"] == "UNAVAILABLE" and "Nothing of this was done" in body["hint"]


def test_settings_that_cannot_be_read_are_told_to_the_client(home: Path) -> None:
    with bridges(home, 1, MCP_SERVER_PORT="many") as (client,):
        assert "server.port" in client.ask("initialize")["error"]["message"]


def test_words_that_mean_nothing_are_refused_and_help_explains(home: Path) -> None:
    program = Program(home)
    done = program.run("mcp", "--familie", "work")
    assert done.code == 2 and "--familie" in done.err and "usage" in done.err
    for words in (("mcp", "--home"), ("mcp", "--profile="), ("mcp", "--families")):
        assert "needs a value" in program.run(*words).err
    assert program.run("mcp", "--standalone=no").code == 2
    assert "CREWHALL_TOKEN" in program.run("mcp", "--help").out


def test_a_script_gets_its_answers_though_its_input_has_ended(home: Path) -> None:
    lines = [{"jsonrpc": "2.0", "id": n, "method": "ping", "params": {}} for n in range(3)]
    start = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines[0] |= {"method": "initialize", "params": start}
    text = "".join(json.dumps(line) + "\n" for line in lines)
    with warm_bridges(home, 0):
        done = subprocess.run(
            [CREWHALL, "--home", str(home), "mcp"],
            check=True,
            input=text,
            env=PASSED_ON,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1, 2]


def test_garbage_is_answered_and_nothing_ends(home: Path) -> None:
    with warm_bridges(home) as (client,):
        for garbage in (b"hello\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"!bye\n", b"{\n"):
            client.write(garbage)
            assert client.answer(None)["error"]["code"] == -32700
        assert client.count() == 0
        for odd in (b"[]\n", b"7\n", b'{"jsonrpc": "2.0", "id": true, "method": "ping"}\n'):
            client.write(odd)
            assert client.answer(None)["error"]["code"] == -32600
        client.write(b'{"id": 3}\n')
        assert client.answer(3)["error"]["code"] == -32600
        for odd_id in (b"1.5", b"null", b"[1]", b"{}"):
            client.write(b'{"jsonrpc": "2.0", "id": ' + odd_id + b', "method": "ping"}\n')
            assert client.answer(None)["error"]["code"] == -32600
        client.write(b"\n\r\n  \n")
        assert client.count() == 0


def test_a_cancelled_request_is_not_answered_even_by_a_dying_hub(home: Path) -> None:
    with warm_bridges(home) as (client,):
        client.call("agent_list")
        pid = the_hub(home)
        os.kill(pid, signal.SIGSTOP)
        called = _register(client, 1)
        client.notify("notifications/cancelled", requestId=called)
        eventually(lambda: _has_passed_on(client))
        end(pid, signal.SIGKILL)
        assert client.count() == 0
        assert not client.has_answer(called)


def test_a_starting_hub_does_not_keep_a_client_from_the_older_handshake(home: Path) -> None:
    """A hub that takes long to come up: the lock is held, and nobody listens."""
    lock = HubSocket(config.load({}, {"home": str(home)})).try_lock()
    assert lock is not None
    with bridges(home) as (client,):
        began = time.monotonic()
        probe = client.send("server/discover")
        assert client.answer(probe)["error"]["code"] == -32601
        assert 1.0 < time.monotonic() - began < 2.2, "Claude Code waits little more than two seconds"
        start = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        client.version = LEGACY
        asked = client.send("initialize", **start)
        os.close(lock)
        assert client.answer(asked)["result"]["protocolVersion"] == LEGACY


def test_a_hub_that_nobody_uses_ends_and_the_next_request_starts_another(home: Path) -> None:
    with warm_bridges(home, 2, CREWHALL_SERVER_IDLE="1") as (one, other):
        one.call("agent_register", name="ada", runtime="codex")
        other.call("agent_list")
        first = the_hub(home)
        other.close()
        one.close()
        eventually(lambda: not is_alive(first), 20)
        assert [path.suffix for path in home.glob("hub-*")] == [".lock"]
    with bridges(home) as (later,):
        assert later.count() == 1


def test_a_hub_that_a_bridge_started_has_nothing_of_its_client(home: Path) -> None:
    secret = {"GITHUB_TOKEN": "ghp_secret", "CLAUDEOPS_TIER": "3", "CREWHALL_TOKEN": "", "CLAUDECODE": "1"}
    with bridges(home, 1, **REAL, **secret) as (client,):
        client.ask("tools/list")
        environment = Path(f"/proc/{the_hub(home)}/environ").read_bytes()
        for name in secret:
            assert f"{name}=".encode() not in environment
        assert os.readlink(f"/proc/{the_hub(home)}/cwd") == str(home)


def test_a_home_with_a_very_long_name_works(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30)
    home.mkdir()
    (home / "config.toml").write_text("[server]\nport = 0\n")
    with warm_bridges(home) as (client,):
        assert client.count() == 0


def test_two_halls_in_one_directory_have_two_hubs(home: Path) -> None:
    with (
        warm_bridges(home) as (one,),
        warm_bridges(home, 1, MCP_DATABASE_PATH=str(home / "other.db")) as (other,),
    ):
        one.call("agent_register", name="ada", runtime="codex")
        assert other.count() == 0
        assert len(hubs(home)) == 2
        told = Program(home, {"MCP_DATABASE_PATH": str(home / "other.db")}).run("agent", "list", "--json")
        assert json.loads(told.out)["total"] == 0
        assert json.loads(Program(home).run("agent", "list", "--json").out)["total"] == 1


def test_standalone_serves_without_a_hub(home: Path) -> None:
    with bridges(home, 1, "--standalone") as (client,):
        assert client.call("agent_register", name="ada", runtime="codex")["name"] == "ada"
        assert hubs(home) == []
        assert client.close() == 0
    assert json.loads(Program(home).run("agent", "list", "--json").out)["total"] == 1


def test_standalone_tells_why_it_cannot_serve(home: Path) -> None:
    (home / "hall.db").write_text("this is no database, and it is long enough to be taken for one " * 20)
    with bridges(home, 1, "--standalone") as (client,):
        assert "cannot be opened" in client.ask("tools/list")["error"]["message"]


def test_a_hub_that_does_not_answer_is_told_and_nothing_hangs(home: Path) -> None:
    """A process stopped with Ctrl-Z: the kernel takes connections for it, and nobody says hello."""
    path = impatient(home, GREETING_SECONDS=1)
    with Program(home).up("--port", "0") as up, bridges(home, PYTHONPATH=path) as (client,):
        os.kill(up.process.pid, signal.SIGSTOP)
        try:
            assert "does not answer" in client.call("agent_list")["message"]
        finally:
            os.kill(up.process.pid, signal.SIGCONT)
        assert client.count() == 0


def impatient(home: Path, **seconds: float) -> str:
    """A PYTHONPATH with which a bridge has other times than the product's: `QUIET_SECONDS=0.2`."""
    module = home.parent / "impatient" / "sitecustomize.py"
    module.parent.mkdir()
    lines = [f"bridge.{name} = {value}\n" for name, value in seconds.items()]
    module.write_text("from crewhall.edges.bridge import bridge\n" + "".join(lines))
    return python_path(module.parent)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_what_is_with_a_hub_that_stands_still_is_answered(home: Path) -> None:
    path = impatient(home, QUIET_SECONDS=0.2, GREETING_SECONDS=1.5)
    with Program(home).up("--port", "0") as up, bridges(home, PYTHONPATH=path) as (client,):
        assert client.count() == 0
        with stopped(up.process.pid):
            called, listed = _register(client, 1), client.send("tools/list")
            body = client.answer(called)["result"]["structuredContent"]
            assert (body["code"], body["message"]) == (
                "UNAVAILABLE",
                "the hall's hub does not answer: it may still happen. Look before you repeat it",
            )
            assert "nothing of this was done" in client.answer(listed)["error"]["message"]
            assert "does not answer" in client.call("agent_list")["message"], "and what comes later"
        assert client.count() <= 1


def test_a_hub_that_stands_still_for_a_while_costs_nothing(home: Path) -> None:
    path = impatient(home, QUIET_SECONDS=0.05, GREETING_SECONDS=20)
    with Program(home).up("--port", "0") as up, bridges(home, PYTHONPATH=path) as (client,):
        assert client.count() == 0
        with stopped(up.process.pid):
            called = _register(client, 1)
            eventually(lambda: _has_passed_on(client))
            threading.Event().wait(0.5)  # it is probed
        assert not client.answer(called)["result"]["isError"]
        assert client.count() == 1


def test_a_call_that_takes_long_is_waited_for(home: Path) -> None:
    path = impatient(home, QUIET_SECONDS=0.05, GREETING_SECONDS=0.5)
    with Program(home).up("--port", "0"), bridges(home, PYTHONPATH=path) as (client,):
        assert client.count() == 0
        with closing(sqlite3.connect(home / "hall.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # a change waits
            called = _register(client, 1)
            eventually(lambda: _has_passed_on(client))
            threading.Event().wait(1.5)  # it is probed, again and again
            assert not client.has_answer(called)
            other.execute("ROLLBACK")
        assert not client.answer(called)["result"]["isError"]


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with bridges(tmp_path / "file" / "home") as (client,):
        body = client.call("agent_list")
        assert body["code"] == "UNAVAILABLE" and "file" in body["message"]


def test_a_bridge_whose_directory_is_gone_works(home: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && exec {CREWHALL} --home {home} mcp"
    question = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n"
    with warm_bridges(home, 0):
        words = ["sh", "-c", command]
        done = subprocess.run(
            words, check=True, input=question, capture_output=True, text=True, env=PASSED_ON, timeout=60
        )
        assert json.loads(done.stdout)["id"] == 1, done.stderr


def test_a_hub_that_cannot_have_its_port_sends_nobody_away(home: Path) -> None:
    with warm_bridges(home) as (client,), socket.create_server(("127.0.0.1", 0)) as other:
        client.count()
        first = the_hub(home)
        taken = str(other.getsockname()[1])
        done = Program(home).run("up", "--port", taken)
        assert done.code == 7 and "Another program has it" in done.err
        done = Program(home).run("up", "--port", "0", "--host", "192.0.2.1")
        assert done.code == 7 and "address of this machine" in done.err
        assert hubs(home) == [first]


def test_a_persons_hub_gets_the_port_of_one_that_a_bridge_started(home: Path) -> None:
    with warm_bridges(home) as (client,):
        client.count()
        first = the_hub(home)
        port = json.loads((home / f"hub-{first}.json").read_text())["url"].rpartition(":")[2]
        with Program(home).up("--port", port) as up:
            assert up.url.endswith(f":{port}")
            eventually(lambda: not is_alive(first))
            again = Program(home).run("up", "--port", port)
            assert again.code == 7 and f"served there already: {up.url}" in again.err


@pytest.mark.parametrize("version", [MODERN, LEGACY])
def test_half_a_surrogate_pair_anywhere_ends_nothing(live: Live, version: str) -> None:
    client = Stdio(live.hub.settings.home, **hall_of(live))
    if version == LEGACY:
        client.initialize()
    half = "\ud800"
    assert client.ask("tools/call", name=half, arguments={})["error"]["code"] == -32602
    assert client.ask(half)["error"]["code"] in (-32601, -32602)
    assert client.ask("prompts/get", name=half)["error"]["code"] == -32602
    assert client.ask("tools/call", name="agent_get", arguments={half: 1})["result"]["isError"]
    assert client.answer(client.send("ping" if version == LEGACY else "tools/list", half))["id"] == half
    assert client.count() == 0
    client.close()


def test_what_hubs_die_of_is_not_asked_for_ever(home: Path) -> None:
    """Something that is no hub takes the hubs' place, and hangs up on every question."""
    place = HubSocket(config.load({}, {"home": str(home)}))
    lock = place.try_lock()
    assert lock is not None
    taken: list[str] = []

    def die(listener: socket.socket) -> None:
        for _ in range(3):
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as lines:
                lines.readline()
                lines.write(b'{"version": "0.1.0", "max_bytes": 1000000}\n')
                lines.flush()
                taken.append(json.loads(lines.readline())["method"])

    with place.listen() as listener:
        dying = threading.Thread(target=die, args=(listener,))
        dying.start()
        client = Stdio(home)
        assert client.ask("tools/list")["error"]["data"]["code"] == "UNAVAILABLE"
        dying.join(20)
        client.kill()
    assert taken == ["tools/list"] * 3
    os.close(lock)


Spoil = Callable[[HubSocket, Path], Any]


def replace_by_a_link(hub_socket: HubSocket, aside: Path) -> None:
    hub_socket.socket.unlink()
    aside.write_text("somebody's")
    hub_socket.socket.symlink_to(aside)


def replace_by_a_file(hub_socket: HubSocket, aside: Path) -> None:
    hub_socket.socket.rename(aside)
    hub_socket.socket.touch()


def remove_the_lock_too(hub_socket: HubSocket, aside: Path) -> None:
    hub_socket.lock.unlink()
    hub_socket.socket.unlink()


SPOILS: dict[str, Spoil] = {
    "removed": lambda hub_socket, aside: hub_socket.socket.unlink(),
    "another listener, which is silent": lambda hub_socket, aside: hub_socket.listen(),
    "a link": replace_by_a_link,
    "a file": replace_by_a_file,
    "the lock is gone too": remove_the_lock_too,
}


def socket_of(home: Path) -> HubSocket:
    return HubSocket(config.load({}, {"home": str(home)}))


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_a_socket_that_is_removed_or_replaced_is_made_again(home: Path, tmp_path: Path, spoil: Spoil) -> None:
    with warm_bridges(home) as (early,):
        agent = early.call("agent_register", name="ada", runtime="codex")["id"]
        pid, hub_socket, aside = the_hub(home), socket_of(home), tmp_path / "aside"
        listener = spoil(hub_socket, aside)
        eventually(lambda: is_greeted(hub_socket), 10)
        assert oct(hub_socket.socket.lstat().st_mode) == "0o140600"
        assert not aside.is_file() or aside.read_text() == "somebody's"
        with bridge(home) as late:
            assert late.call("agent_get", id=agent)["name"] == "ada"
            assert early.call("agent_get", id=agent)["name"] == "ada", "who was connected has noticed nothing"
        assert the_hub(home) == pid
        if listener is not None:
            listener.close()


def is_greeted(hub_socket: HubSocket) -> bool:
    """Whether a hub greets who connects now."""
    with suppress(OSError), hub_socket.connect() as connection:
        connection.settimeout(2)
        connection.sendall(b'{"crewhall": "0"}\n')
        return b"version" in connection.recv(1000)
    return False


def test_a_bridge_that_waits_at_a_socket_which_is_made_again_turns_to_the_new_one(home: Path) -> None:
    with warm_bridges(home) as (early,):
        early.call("agent_list")
        pid, hub_socket = the_hub(home), socket_of(home)
        os.kill(pid, signal.SIGSTOP)  # so that the bridge comes first
        try:
            with hub_socket.listen() as silent, bridge(home) as late:
                called = _register(late, 1)
                silent.settimeout(20)
                with silent.accept()[0]:
                    os.kill(pid, signal.SIGCONT)
                    assert late.answer(called)["result"]["structuredContent"].get("name") == "agent 1"
        finally:
            os.kill(pid, signal.SIGCONT)


def test_the_doctor_tells_whether_bridges_can_come_in(home: Path) -> None:
    program = Program(home)

    def finding() -> dict[str, str]:
        (found,) = (
            one for one in json.loads(program.run("--json", "doctor").out)["findings"] if one["what"] == "socket"
        )
        return dict(found)

    with program.up("--port", "0"):
        hub_socket = socket_of(home)
        eventually(lambda: finding()["state"] == "ok")
        hub_socket.socket.unlink()
        hub_socket.socket.mkdir()  # the hub does not remove it
        found = finding()
        assert found["state"] == "wrong" and str(hub_socket.socket) in found["finding"], found
        assert "makes its socket again" in found["hint"]
        hub_socket.socket.rmdir()
        eventually(lambda: finding()["state"] == "ok")


def test_a_hub_whose_queue_is_full_is_not_waited_for(home: Path) -> None:
    place = HubSocket(config.load({}, {"home": str(home)}))
    lock = place.try_lock()
    assert lock is not None
    with place.listen() as listener:
        listener.listen(0)
        waiting = [place.connect()]
        with pytest.raises(OSError):
            while True:
                waiting.append(place.connect())
        for connection in waiting:
            connection.close()
    os.close(lock)


def test_standalone_serves_again_after_its_connection_was_lost(home: Path) -> None:
    way = EmbeddedHub(str(home))
    for _ in range(2):
        connection = way.connect()
        assert connection is not None
        with connection.makefile("rwb") as lines:
            lines.write(b'{"crewhall": "0.1.0"}\n')
            lines.flush()
            assert json.loads(lines.readline())["max_bytes"]
    way.close()


@pytest.mark.parametrize("words", [("--home", "./mcp", "mcp"), ("mcp", "--home", "mcp")])
def test_a_relative_home_is_the_one_in_the_clients_directory(tmp_path: Path, words: tuple[str, ...]) -> None:
    home = tmp_path / "mcp"
    home.mkdir()
    (home / "config.toml").write_text("[server]\nport = 0\n")
    question = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n"
    with bridges(home, 0):
        environment = PASSED_ON | prefork_environment() | {"MCP_DATABASE_PATH": "my.db"}
        options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "timeout": 60}
        done = subprocess.run([CREWHALL, *words], check=True, input=question, capture_output=True, text=True, **options)
        assert json.loads(done.stdout)["id"] == 1, done.stderr
        assert (tmp_path / "my.db").exists() and not (home / "mcp").exists() and not (home / "my.db").exists()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("word", ["", "--standalone"])
def test_without_a_client_it_ends_at_once(home: Path, closed: str, word: str) -> None:
    command = f"echo '{{}}' | {CREWHALL} --home {home} mcp {word} {closed}"
    assert subprocess.run(["sh", "-c", command], check=False, env=PASSED_ON, timeout=8).returncode == 0
    assert hubs(home) == []


def test_a_slow_reader_gets_everything_after_it_has_ended_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time at all for what the hub owes, what is there is still written to its end."""
    monkeypatch.setattr("crewhall.edges.bridge.bridge.LAST_SECONDS", 0.0)
    out, into = os.pipe()
    bridge = Bridge(NoHub(InvalidInput("no", hint="no")), {}, stdin=os.open(os.devnull, os.O_RDONLY), stdout=into)
    for n in range(300):
        bridge._answer(n, result={"text": "x" * 1000})
    running = threading.Thread(target=bridge.run)
    running.start()
    got = b""
    while got.count(b"\n") < 300:
        got += os.read(out, 5000)
    running.join(10)
    assert not running.is_alive() and [json.loads(line)["id"] for line in got.splitlines()] == list(range(300))
    os.close(out)
    os.close(into)


def test_notices_without_a_hub_are_not_kept(home: Path) -> None:
    with warm_bridges(home) as (client,):
        for _ in range(300):
            client.notify("notifications/progress", progressToken="x" * 100_000, progress=1)
        assert client.count() == 0
