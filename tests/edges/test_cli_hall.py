"""The commands about the hall itself: up and down, status, link, backup, restore, doctor."""

import http.client
import json
import os
import signal
import socket
import threading
import urllib.parse
from pathlib import Path
from typing import Any

import pysqlite3.dbapi2 as sqlite3
import pytest

from crewhall import config
from crewhall.edges.bridge.address_files import running_hubs
from tests.conftest import eventually
from tests.edges.program import Program, Up, ask
from tests.edges.raw_http import http as client
from tests.edges.test_cli import assert_error, body


def port_of(up: Up) -> int:
    port = urllib.parse.urlsplit(up.url).port
    assert port is not None
    return port


def test_up_prints_a_link_that_works_once(program: Program) -> None:
    program.real = True
    with program.up() as up:
        told = json.loads((program.home / f"hub-{up.process.pid}.json").read_text())
        assert (told["url"], told["pid"]) == (up.url, up.process.pid)
        assert f"{up.url}/mcp" in up.greeting and str(program.home) in up.greeting
        answers = [client.get(up.link).status_code for _ in range(2)]
        assert answers == [303, 401]
        another = program.run("link").out.strip()
        assert another.startswith(f"{up.url}/?key=") and another != up.link
        assert client.get(another).status_code == 303


def test_a_second_hub_on_the_port_says_that_it_is_taken(program: Program, tmp_path: Path) -> None:
    with program.up() as up:
        port = str(port_of(up))
        assert_error(program.run("up", "--port", port), 7, f"cannot listen on 127.0.0.1:{port}: Address already in use")
        assert_error(Program(tmp_path / "other").run("up", MCP_SERVER_PORT=port), 7, "cannot listen on")
        assert running_hubs(program.settings) == [up.url]
        assert up.end() == 0


class Running:
    """A call that a hub is at: it waits for the database, which we hold."""

    def __init__(self, up: Up, home: Path) -> None:
        self._database = sqlite3.connect(home / "hall.db", isolation_level=None, check_same_thread=False)
        self._database.execute("BEGIN IMMEDIATE")
        content = b'{"name": "ada", "runtime": "codex"}'
        self._connection = socket.create_connection(("127.0.0.1", port_of(up)), 20)
        head = "POST /api/v1/agent/register HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Expect: 100-continue\r\nContent-Length: {len(content)}\r\n\r\n"
        self._connection.sendall(head.encode())
        assert self._connection.recv(1000).startswith(b"HTTP/1.1 100")  # the hub has it in hand
        self._connection.sendall(content)

    def let_go(self) -> None:
        self._database.rollback()
        self._database.close()

    def answer(self) -> dict[str, Any]:
        response = http.client.HTTPResponse(self._connection)
        response.begin()
        found: dict[str, Any] = json.loads(response.read())
        self._connection.close()
        return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_calls_finish_and_leaves_nothing_behind(program: Program, number: int) -> None:
    program.real = True
    with program.up(MCP_LOG_LEVEL="debug") as up:
        running = Running(up, program.home)
        up.process.send_signal(number)
        eventually(lambda: "Waiting for connections to close" in up.log.read_text())
        assert running_hubs(program.settings) == [] and up.process.poll() is None
        running.let_go()
        assert running.answer()["name"] == "ada"
        assert up.process.wait(30) == 0
    assert [path for path in program.home.glob("hub-*") if path.suffix != ".lock"] == []
    assert "hub is down" in up.log.read_text() and "Traceback" not in up.log.read_text()
    assert body(program.run("--json", "agent", "list"))["total"] == 1


def test_a_killed_hub_is_not_asked_even_when_a_stranger_has_its_port(program: Program) -> None:
    with program.up() as up:
        port = port_of(up)
        up.process.kill()
        up.process.wait(30)
    (left,) = program.home.glob("hub-*.json")
    left.rename(program.home / f"hub-{os.getpid()}.json")  # another process has the pid by now
    facts = json.loads((program.home / f"hub-{os.getpid()}.json").read_text())
    (program.home / f"hub-{os.getpid()}.json").write_text(json.dumps(facts | {"pid": os.getpid()}))
    came: list[bytes] = []
    with socket.create_server(("127.0.0.1", port)) as stranger:

        def listen() -> None:
            connection, _ = stranger.accept()
            with connection:
                came.append(connection.recv(10_000))

        thread = threading.Thread(target=listen)
        thread.start()
        status = body(program.run("--json", "status"))
        with socket.create_connection(("127.0.0.1", port)) as ours:
            ours.sendall(b"ours")
        thread.join(20)
    assert (status["running"], came) == (False, [b"ours"])


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"url": "http://127.0.0.1:1", "pid": "x"}', "\udcff"])
def test_a_damaged_notice_is_no_hub(tmp_path: Path, text: str) -> None:
    (tmp_path / "hub-1.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert running_hubs(config.load({}, {"home": str(tmp_path)})) == []


def test_hubs_of_one_hall_do_not_hide_each_other(program: Program, tmp_path: Path) -> None:
    assert program.here("backup", str(tmp_path / "b")).code == 0
    with program.up() as first:
        with program.up() as second:
            assert running_hubs(program.settings) == [first.url, second.url]
            assert body(program.run("--json", "status"))["other_hubs"] == [second.url]
            assert second.end() == 0
        assert body(program.run("--json", "status"))["url"] == first.url
        assert program.run("link").out.startswith(first.url)
        assert_error(
            program.run("restore", str(tmp_path / "b"), "--replace"), 7, f"a hub of this hall runs at {first.url}"
        )
        first.process.kill()
        first.process.wait(30)
    with program.up() as third:
        assert [path.name for path in program.home.glob("hub-*.json")] == [f"hub-{third.process.pid}.json"]


def test_the_halls_own_commands_are_the_operators(program: Program, tmp_path: Path) -> None:
    """Whoever has an agent's token in its environment does not become the operator by these commands."""
    token = body(program.here("--json", "agent", "token", "--name", "ada"))["token"]
    file = str(tmp_path / "b")
    for words in (("backup", file), ("restore", file, "--replace")):
        assert_error(
            program.run(*words, CREWHALL_TOKEN=token), 4, f"{words[0]} is for the operator, and CREWHALL_TOKEN is"
        )
        assert_error(program.here(*words, CREWHALL_TOKEN=""), 4, "the token is empty")
    assert not (tmp_path / "b").exists()
    with program.up():
        assert_error(program.run("link", CREWHALL_TOKEN=token), 4, "link is for the operator")
        assert_error(program.run("agent", "list", CREWHALL_TOKEN=""), 4, "the token is empty")
        assert body(program.run("--json", "link"))["url"].startswith("http://")
    assert_error(program.here("agent", "list", CREWHALL_TOKEN=""), 4, "the token is empty")
    assert_error(program.here("backup", str(tmp_path / "nowhere" / "b")), 3, "there is no directory")
    assert_error(program.here("restore", file, "--replce"), 2, "unexpected argument '--replce'")


def test_status_tells_of_the_hall_with_and_without_a_hub(program: Program) -> None:
    alone = body(program.run("--json", "status"))
    assert alone["running"] is False and alone["database"] == "sqlite" and alone["home"] == str(program.home)
    with program.up("--host", "0.0.0.0", "--port=0") as up:
        assert up.url.startswith("http://127.0.0.1:")
        served = body(program.run("--json", "status"))
        assert (served["running"], served["url"], served["hall"]) == (True, up.url, alone["hall"])
        assert served["pid"] == up.process.pid
        assert f"url               {up.url}" in program.run("status").out
    assert_error(program.run("link"), 7, "no hub of this hall runs here")


def test_a_backup_of_a_running_hall_is_restored_into_another(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "hall.backup"
    with program.up() as up:
        agent = ask(up, "agent/register", name="ada", runtime="codex")["id"]
        assert body(program.run("--json", "backup", str(file)))["rows"] > 0
        assert_error(program.run("backup", str(file)), 5, "exists")
        assert_error(program.run("restore", str(file), "--replace"), 7, "a hub of this hall runs at")
    other = Program(tmp_path / "other" / "home")
    assert "rows are back" in other.run("restore", str(file)).out
    assert body(other.here("--json", "agent", "get", agent))["name"] == "ada"
    assert_error(other.here("restore", str(file)), 5, " 1 events")
    assert other.run("restore", str(file), "--replace").code == 0
    assert_error(other.here("restore", str(tmp_path / "nowhere")), 3, "there is no file")


def found(program: Program, what: str) -> tuple[int, str, str]:
    """The doctor's exit code, and the state and text of one finding."""
    done = program.run("--json", "doctor")
    row = next(row for row in body(done)["findings"] if row["what"] == what)
    assert row["hint"] or row["state"] == "ok"
    return done.code, row["state"], row["finding"]


def test_the_doctor_finds_nothing_wrong_with_a_hall_that_is_not_there_or_is_well(program: Program) -> None:
    assert found(program, "hall")[:2] == (0, "note")
    assert not program.home.exists()
    with program.up() as up:
        assert found(program, "hub") == (0, "ok", f"runs at {up.url}")
        assert found(program, "token")[:2] == (0, "ok")
        code, state, text = found(program, "database")
        assert (code, state) == (0, "ok") and "schema" in text


def test_the_doctor_asks_the_running_hub_how_its_chores_went(program: Program) -> None:
    assert "chores" not in program.run("doctor").out
    with program.up():
        eventually(lambda: "have run in this hub" in program.run("doctor").out)


def test_the_doctor_finds_settings_that_cannot_be_read(program: Program) -> None:
    done = program.run("doctor", MCP_SERVER_PORT="many")
    assert done.code == 1 and "setting server.port from MCP_SERVER_PORT is 'many'" in done.out
    assert program.run("doctor").code == 0


def test_the_doctor_finds_open_permissions(program: Program) -> None:
    with program.up():
        pass
    (program.home / "operator.token").chmod(0o644)
    assert found(program, "token")[:2] == (1, "wrong")
    program.home.chmod(0o755)
    code, state, text = found(program, "hall")
    assert (code, state) == (1, "wrong") and "755" in text
    assert "chmod 700" in program.run("doctor").out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
def test_nothing_is_obeyed_in_a_directory_that_another_user_wrote_to(program: Program, tmp_path: Path) -> None:
    """The token would make another user the operator, and the settings run a program."""
    program.home.mkdir(mode=0o700)
    marker = tmp_path / "ran"
    planted = {"operator.token": f"ch_operator_{'x' * 43}\n", "config.toml": f'judge.command = ["touch", "{marker}"]\n'}
    for name, text in planted.items():
        (program.home / name).write_text(text)
        os.chown(program.home / name, 65534, 65534)
        words = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"agent_list","arguments":{}}}\n'
        for command in (["up", "--port", "0"], ["agent", "list"], ["judge", "health"], ["link"], ["backup", "x.db"]):
            assert_error(program.here(*command), 4, f"{name} belongs to")
        for options in ([], ["--standalone"]):
            told = program.run("mcp", *options, text=words)
            assert f"{name} belongs to" in told.out + told.err and "rm " in told.err
        assert found(program, "settings")[:2] == (1, "wrong")
        assert sorted(path.name for path in program.home.iterdir()) == [name]
        (program.home / name).unlink()
    assert not marker.exists()


def test_the_doctor_knows_the_hosts_and_finds_tokens_that_others_can_read(program: Program) -> None:
    assert found(program, "hosts")[:2] == (0, "note")
    program.home.mkdir(mode=0o700)
    config = program.home / "config.toml"
    config.write_text('[pulls]\ngitea_token = "gta_secret"\n')
    config.chmod(0o640)
    code, state, text = found(program, "hosts")
    assert (code, state) == (1, "wrong") and "is open to others (640)" in text
    config.chmod(0o600)
    assert found(program, "hosts") == (0, "ok", "gitea; `crewhall pr health` asks them")
    assert "gta_secret" not in program.run("doctor").out


def test_the_doctor_looks_for_the_judges_cli(program: Program, tmp_path: Path) -> None:
    cli = tmp_path / "bin" / "claude"
    program.environment["PATH"] = f"{cli.parent}:/usr/bin:/bin"
    assert found(program, "claude") == (0, "note", "not found")
    cli.parent.mkdir()
    cli.write_text("#!/bin/sh\n")
    cli.chmod(0o755)
    assert found(program, "claude") == (0, "ok", f"{cli}; `crewhall judge health` asks it")
    program.environment["CREWHALL_JUDGE_COMMAND"] = "/nowhere/claude"
    assert found(program, "claude") == (1, "wrong", "/nowhere/claude is not there")


@pytest.mark.parametrize("damage", ["no database at all", "pages", "schema"])
def test_the_doctor_finds_a_damaged_database(program: Program, damage: str) -> None:
    program.here("agent", "register", "ada", "codex")
    path = program.home / "hall.db"
    content = bytearray(path.read_bytes())
    if damage == "pages":
        content[4096 : 4096 * 8] = b"\xaa" * 4096 * 7
    elif damage == "schema":
        content[100:4096] = b"\xaa" * 3996
    path.write_bytes(bytes(content) if damage != "no database at all" else b"garbage " * 1000)
    code, state, text = found(program, "database")
    assert (code, state) == (1, "wrong") and str(path) in text


def test_the_doctor_and_the_tools_know_a_hall_that_is_newer(program: Program) -> None:
    program.here("status")
    with sqlite3.connect(program.home / "hall.db") as database:
        database.execute("INSERT INTO migration VALUES (999, 'later', 0)")
    database.close()
    code, state, text = found(program, "database")
    assert (code, state) == (1, "wrong") and "is at schema 999" in text
    assert_error(program.run("agent", "list"), 7, "this hall's database is at schema 999")
