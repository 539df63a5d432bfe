"""Servers of open worktrees: one sandboxed MCP server each, on ports of their own, for as long as they are open."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from crewhall.app import Call, Origin
from crewhall.edges.worktree import server
from crewhall.errors import Failure
from crewhall.families.project.open_worktrees import LISTENER, open_worktree
from crewhall.families.work.model import Done
from crewhall.identity import OPERATOR
from crewhall.store import calls
from crewhall.store.transaction import Work
from crewhall.tool import Family, Registry
from tests.conftest import Agent, Live, eventually
from tests.edges.conftest import SharedHubs
from tests.edges.interfaces import MODERN
from tests.edges.program import Program, Up
from tests.edges.program import ask as ask_up
from tests.edges.raw_http import ERAS, http, mcp_headers, mcp_params
from tests.edges.sse import Sse
from tests.edges.test_bodies import ENVELOPES, refused_envelope
from tests.outside.repos import git, make_repository

SEED_TOOLS = {"read_file", "list_directory", "get_project_context", "run_just_task"}
sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def is_free(port: int) -> bool:
    """Whether a program that asks for nothing special gets this port at once."""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with closing(socket.socket(family)) as probe:
            try:
                probe.bind((host, port))
                probe.listen(1)
            except OSError:
                return False
    return True


@pytest.fixture
def first_port() -> int:
    """The first of six free ports in a row, which no other test process looks at."""
    start = 20_000 + os.getpid() % 500 * 20
    return next(port for port in range(start, 32_000, 10) if all(is_free(port + more) for more in range(6)))


@pytest.fixture
def trees(tmp_path: Path) -> list[Path]:
    """Three directories, each with a file that says which it is."""
    made = [tmp_path / f"tree{number}" for number in range(3)]
    for path in made:
        path.mkdir()
        (path / "name.txt").write_text(f"{path.name}\n")
    return made


@pytest.fixture
def start(serve: Callable[..., Live], first_port: int) -> Callable[..., Live]:
    """A hub that has its node's place, so that what is opened is served when the answer is there."""

    def ready(**more: Any) -> Live:
        live = serve(**{"project__port": first_port} | more)
        eventually(lambda: live.hub.state(LISTENER).servers)
        return live

    return ready


@pytest.fixture
def standing_hub(shared_hubs: SharedHubs, first_port: int) -> Live:
    """One hub for the tests that ask a worktree's server for what it does not do, or open nothing; it is on SQLite."""
    live = shared_hubs.find("hall", "sqlite", project__port=first_port)
    eventually(lambda: live.hub.state(LISTENER).servers)
    return live


@pytest.fixture
def open_port(standing_hub: Live, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The port of its one open worktree."""
    listed = ask(standing_hub, "worktree_list")["worktrees"]
    return port_of(standing_hub, Path(listed[0]["path"]) if listed else tmp_path_factory.mktemp("tree"))


def ask(live: Live, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return live.hub.call(tool, arguments, OPERATOR, edge="rest")


def opened(live: Live, path: Path) -> dict[str, Any]:
    return ask(live, "worktree_open", path=str(path))


def port_of(live: Live, path: Path) -> int:
    port: int = opened(live, path)["mcp"]["port"]
    return port


def events(live: Live) -> list[tuple[str, Any, Any]]:
    told = ask(live, "event_list", limit=500)["events"]
    return [
        (one["what"], one["before_status"], one["after_status"]) for one in told if one["what"].startswith("worktree.")
    ]


def rpc(port: int, method: str, version: str = "2025-06-18", /, **params: Any) -> dict[str, Any]:
    """One JSON-RPC message to a worktree's server, and its answer."""
    name = params.get("name", params.get("uri", ""))
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": mcp_params(version, **params)}
    headers = mcp_headers(version, method, name) | ({"Mcp-Name": name} if name else {})
    answer = http.post(f"http://localhost:{port}/mcp", json=message, headers=headers)
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        text = next(line[6:] for line in text.splitlines() if line.startswith("data: {"))
    body: dict[str, Any] = json.loads(text)
    return body


def read(port: int, path: str, version: str = "2025-06-18") -> dict[str, Any]:
    answer = rpc(port, "tools/call", version, name="read_file", arguments={"path": path})
    body: dict[str, Any] = answer["result"]["structuredContent"]
    return body


# Opened and closed


def test_three_worktrees_get_the_first_three_ports_and_serve_their_own_files(
    start: Callable[..., Live], trees: list[Path], first_port: int
) -> None:
    live = start()
    ports = [port_of(live, path) for path in trees]
    assert ports == [first_port, first_port + 1, first_port + 2]
    for version in ("2025-06-18", MODERN):
        assert [read(port, "name.txt", version)["content"] for port in ports] == ["tree0\n", "tree1\n", "tree2\n"]
    outside = read(ports[0], str(trees[1] / "name.txt"))
    assert (outside["code"], outside["message"]) == ("PATH_OUTSIDE_ROOT", "Path outside project root")


def test_a_second_open_is_an_answer_and_no_second_server(start: Callable[..., Live], trees: list[Path]) -> None:
    live = start()
    first = opened(live, trees[0])
    assert first["url"] == f"http://localhost:{first['mcp']['port']}/mcp" and first["mcp"]["server_running"] is True
    assert opened(live, trees[0] / ".") == opened(live, trees[0]) == first
    assert events(live) == [("worktree.opened", None, "open"), ("worktree.served", None, str(first["mcp"]["port"]))]
    assert ask(live, "worktree_list")["total"] == 1


@sqlite
def test_many_who_open_the_same_at_once_get_the_same(start: Callable[..., Live], trees: list[Path]) -> None:
    live = start()
    answers: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: answers.append(opened(live, trees[0]))) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({(one["id"], one["mcp"]["port"]) for one in answers}) == 1 and len(answers) == 30


@sqlite
def test_ports_that_others_have_are_passed_over_on_either_address(
    start: Callable[..., Live], trees: list[Path], first_port: int
) -> None:
    with socket.create_server(("127.0.0.1", first_port)), closing(socket.socket(socket.AF_INET6)) as other:
        other.bind(("::1", first_port + 1))
        other.listen()
        live = start(server__port=first_port + 2)
        assert port_of(live, trees[0]) == first_port + 3, "the hub's own counts, too"


@sqlite
def test_a_client_in_a_repository_means_its_working_tree(start: Callable[..., Live], tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo")
    inside = Path(repo.root, "src/deep")
    inside.mkdir(parents=True)
    linked = tmp_path / "linked"
    git(repo.root, "worktree", "add", "-q", str(linked))
    live = start()
    assert opened(live, linked)["path"] == str(linked.resolve())
    here = live.hub.call("worktree_open", {}, OPERATOR, edge="rest", origin=Origin(str(inside)))
    assert here["path"] == repo.root and ask(live, "worktree_list")["total"] == 2
    assert live.hub.call("worktree_get", {"path": "."}, OPERATOR, edge="rest", origin=Origin(str(inside))) == here


def test_a_part_of_a_worktree_is_not_opened_and_the_refusal_names_the_whole(
    start: Callable[..., Live], tmp_path: Path
) -> None:
    repo = make_repository(tmp_path / "repo")
    part = Path(repo.root, "pkg")
    part.mkdir()
    (tmp_path / "link").symlink_to(part)
    live = start()
    for path in (part, tmp_path / "link"):
        answer = http.post(f"{live.url}/api/v1/worktree/open", json={"path": str(path)})
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_INPUT")
        assert f"{part} is a part of the worktree {repo.root}" in answer.json()["message"]
        assert f"Name {repo.root} " in answer.json()["hint"]
    with pytest.raises(Failure, match="is a part of"):
        live.hub.call("worktree_open", {"path": "."}, OPERATOR, edge="rest", origin=Origin(str(part)))
    assert ask(live, "worktree_list")["total"] == 0
    assert opened(live, Path(repo.root))["mcp"]["server_running"]
    with pytest.raises(Failure, match="is a part of"):
        opened(live, part)


def test_the_command_says_that_all_would_be_served_before_it_opens_anything(tmp_path: Path) -> None:
    repo, program = make_repository(tmp_path / "repo"), Program(tmp_path / "home")
    Path(repo.root, "pkg").mkdir()
    refused = program.run("worktree", "open", f"{repo.root}/pkg")
    assert refused.code == 2 and f"is a part of the worktree {repo.root}" in refused.err, refused
    assert json.loads(program.run("--json", "worktree", "list").out)["total"] == 0


def standing(port: int) -> Iterator[None]:
    """Clients of every kind: one that stays, one that says it closes, a stream, one that never said anything."""
    with contextlib.ExitStack() as stack:
        stays = stack.enter_context(httpx2.Client(timeout=30))
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
        for connection in ("keep-alive", "close"):
            headers = mcp_headers("2025-06-18", "ping") | {"Connection": connection}
            assert stays.post(f"http://localhost:{port}/mcp", json=message, headers=headers).status_code == 200
        stays.post(f"http://127.0.0.1:{port}/mcp", json=message, headers=mcp_headers("2025-06-18", "ping"))
        stack.enter_context(
            stays.stream("GET", f"http://localhost:{port}/mcp", headers={"Accept": "text/event-stream"})
        )
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        yield


def test_after_close_the_port_can_be_bound_at_once(
    start: Callable[..., Live], trees: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.3)
    live = start()
    port = port_of(live, trees[0])
    kept = port_of(live, trees[1])
    for _ in standing(port):
        closed = ask(live, "worktree_close", path=str(trees[0]))
        assert (closed["success"], closed["path"], closed["port"]) == (True, str(trees[0]), port)
        assert f"port {port} must forget it" in closed["note"]
        assert is_free(port)
    assert read(kept, "name.txt")["content"] == "tree1\n", "another's server goes on"
    assert events(live)[-1] == ("worktree.closed", "open", "closed")
    with pytest.raises(Failure, match="no open worktree"):
        ask(live, "worktree_close", path=str(trees[0]))
    assert port_of(live, trees[2]) == port, "and it is the first free one again"


@sqlite
def test_closing_closes_that_one_and_never_one_around_it(start: Callable[..., Live], trees: list[Path]) -> None:
    live, inner = start(), trees[0] / "inner"
    inner.mkdir()
    outer = opened(live, trees[0])
    opened(live, inner)
    ask(live, "worktree_close", path=str(inner))
    for path in (inner, trees[0] / "name.txt", trees[0] / "nowhere"):
        with pytest.raises(Failure, match="no open worktree"):
            ask(live, "worktree_close", path=str(path))
    assert ask(live, "worktree_get", path=str(inner))["id"] == outer["id"], "to look at it, a path inside will do"


@sqlite
def test_the_halls_own_directory_and_one_that_is_no_text_are_not_opened(
    start: Callable[..., Live], tmp_path: Path
) -> None:
    live = start()
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    odd.mkdir()
    (tmp_path / "link").symlink_to(odd)
    for path, words in ((live.hub.settings.home, "hall's own"), (tmp_path / "link", "not UTF-8")):
        with pytest.raises(Failure, match=words) as refused:
            opened(live, path)
        assert refused.value.code == "INVALID_INPUT"
        with pytest.raises(Failure, match=words):
            live.hub.call("list_directory", {}, OPERATOR, edge="bridge", origin=Origin(str(path)))


@pytest.mark.parametrize(
    ("path", "code"),
    [("/nope/nowhere", "NOT_FOUND"), ("/", "INVALID_INPUT"), ("~", "INVALID_INPUT"), ("/proc/self", "INVALID_INPUT")],
)
def test_what_is_no_project_is_not_opened(standing_hub: Live, path: str, code: str) -> None:
    before = ask(standing_hub, "worktree_list")["total"]
    with pytest.raises(Failure) as refused:
        ask(standing_hub, "worktree_open", path=path)
    assert refused.value.code == code and ask(standing_hub, "worktree_list")["total"] == before
    with pytest.raises(Failure, match="relative"):
        ask(standing_hub, "worktree_open", path="src")


def test_only_the_operator_opens_and_closes_and_all_may_look(start: Callable[..., Live], trees: list[Path]) -> None:
    live = start()
    agent = Agent(live.hub)
    made = opened(live, trees[0])
    for tool in ("worktree_open", "worktree_close"):
        with pytest.raises(Failure) as refused:
            agent.call(tool, path=str(trees[0]))
        assert refused.value.code == "FORBIDDEN"
    assert agent.call("worktree_get", id=made["id"])["path"] == str(trees[0])
    assert ask(live, "worktree_list", limit=1)["next_offset"] is None


# The state


@sqlite
def test_the_state_is_the_seeds_and_its_results_fit_their_schemas(
    start: Callable[..., Live], trees: list[Path]
) -> None:
    live = start()
    for path in trees:
        opened(live, path)
    answer = http.get(f"{live.url}/api/v1/worktree/list?limit=2").json()
    state = answer["worktrees"][0]["mcp"]
    assert set(state) == {"server_running", "port", "connected_clients", "tools", "last_error"}
    assert {tool["name"] for tool in state["tools"]} == SEED_TOOLS
    assert all(set(tool) == {"name", "description", "parameters"} for tool in state["tools"])
    assert (answer["total"], answer["next_offset"], state["last_error"]) == (3, 2, None)
    calls = {"worktree_list": {}, "worktree_get": {"path": str(trees[0])}, "worktree_open": {"path": str(trees[0])}}
    for name, arguments in (calls | {"worktree_close": {"path": str(trees[1])}}).items():
        jsonschema_rs.validate(live.hub.registry.find(name).output_schema, ask(live, name, **arguments))


def test_a_server_that_listens_shows_its_port_before_the_hall_has_noted_it(
    start: Callable[..., Live], trees: list[Path], first_port: int
) -> None:
    live = start()
    servers = live.hub.state(LISTENER).servers
    assert servers is not None
    with live.hub.store.write(Work("test", None, 1)) as tx:
        row = open_worktree(tx, live.hub.settings.node, str(trees[0]), 1)
    state = {"server_running": True, "port": first_port, "connected_clients": 0, "last_error": None}
    with live.hub.store.write(Work("test", None, 2)) as tx:
        tx.run("worktree_served", id=row["id"], port=None, is_served=0, last_error=None, now=2)  # the row is ours now
        servers.nudge()
        eventually(lambda: ask(live, "worktree_get", id=row["id"])["mcp"]["server_running"])
        shown = http.get(f"{live.url}/api/v1/worktree/get?id={row['id']}").json()
    assert {name: shown["mcp"][name] for name in state} == state and str(first_port) in shown["url"]
    servers.settle()
    assert events(live)[-1] == ("worktree.served", None, str(first_port))


@sqlite
def test_twenty_clients_at_once_are_served_and_counted(start: Callable[..., Live], trees: list[Path]) -> None:
    live = start()
    port = port_of(live, trees[0])
    assert opened(live, trees[0])["mcp"]["connected_clients"] == 0
    seen: list[int] = []

    async def client(number: int, together: asyncio.Barrier) -> str:
        mode = "auto" if number % 2 else "legacy"
        async with Client(streamable_http_client(f"http://localhost:{port}/mcp"), mode=mode) as one:
            await together.wait()
            contents = [await one.call_tool("read_file", {"path": "name.txt"}) for _ in range(5)]
            await together.wait()  # who waited on a slow machine may have been let go, and connects again
            contents.append(await one.call_tool("read_file", {"path": "name.txt"}))
            await together.wait()
            if number == 0:
                seen.append((await asyncio.to_thread(opened, live, trees[0]))["mcp"]["connected_clients"])
            await together.wait()
            assert {tool.name for tool in (await one.list_tools()).tools} == SEED_TOOLS
        (text,) = {result.structured_content["content"] for result in contents if result.structured_content}
        return str(text)

    async def all_at_once() -> list[str]:
        together = asyncio.Barrier(20)
        return await asyncio.gather(*(client(number, together) for number in range(20)))

    assert asyncio.run(all_at_once()) == ["tree0\n"] * 20
    assert seen[0] >= 20, "a client may hold a second connection"


@sqlite
def test_who_is_not_let_in_is_no_client_and_an_old_one_is(start: Callable[..., Live], trees: list[Path]) -> None:
    live = start()
    port = port_of(live, trees[0])
    with httpx2.Client() as stranger:
        headers = mcp_headers("2025-06-18", "ping") | {"Authorization": "Bearer wrong"}
        assert stranger.post(f"http://localhost:{port}/mcp", json={}, headers=headers).status_code == 401
        assert opened(live, trees[0])["mcp"]["connected_clients"] == 0
    old = Sse(live, at=port, path="/mcp")
    assert opened(live, trees[0])["mcp"]["connected_clients"] == 1
    old.close()


@sqlite
def test_a_client_of_2024_counts_by_its_stream_whatever_connections_its_messages_take(
    start: Callable[..., Live], trees: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = start()
    port = port_of(live, trees[0])
    silent = Sse(live, at=port, path="/mcp", open_session=False)
    old = [Sse(live, at=port, path="/mcp") for _ in range(4)]  # their messages go by one connection
    assert old[0].post({"jsonrpc": "2.0", "id": 9, "method": "ping"}, Connection="close").status_code == 202
    assert opened(live, trees[0])["mcp"]["connected_clients"] == 4, "and one that asks nothing is none"
    assert read(port, "name.txt")["content"] == "tree0\n"
    assert http.get(f"{live.url}/api/v1/worktree/list").json()["worktrees"][0]["mcp"]["connected_clients"] == 5
    for one in (silent, *old):
        one.close()
    monkeypatch.setattr(server, "MINUTE", 0.0)
    eventually(lambda: opened(live, trees[0])["mcp"]["connected_clients"] <= 1)  # the reader's connection may stay


# What a worktree's server is, and is not


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
def test_a_worktrees_server_knows_its_four_tools_and_nothing_of_the_hall(open_port: int, version: str) -> None:
    assert {tool["name"] for tool in rpc(open_port, "tools/list", version)["result"]["tools"]} == SEED_TOOLS
    refused = rpc(open_port, "tools/call", version, name="agent_list", arguments={})
    assert "there is no tool" in refused["error"]["message"]
    assert rpc(open_port, "resources/list", version)["result"]["resources"] == []
    assert rpc(open_port, "prompts/list", version)["result"]["prompts"] == []
    assert "error" in rpc(open_port, "resources/read", version, uri="crewhall://agents")


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(("change", "id", "words"), ENVELOPES)
def test_a_message_that_is_no_json_rpc_is_told_what_it_lacks(
    open_port: int, change: dict[str, Any], id: int | None, words: str, version: str
) -> None:
    refused_envelope(f"http://localhost:{open_port}/mcp", change, id, words, version)


@sqlite
def test_a_client_of_2024_gets_its_stream_at_the_same_address(start: Callable[..., Live], trees: list[Path]) -> None:
    live = start()
    old = Sse(live, at=port_of(live, trees[0]), path="/mcp")
    assert {tool["name"] for tool in old.ask("tools/list")["result"]["tools"]} == SEED_TOOLS
    assert old.call("read_file", path="name.txt")["content"] == "tree0\n"
    old.close()


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 404),
        ("GET", "/api/v1/hub", {}, 404),
        ("POST", "/api/v1/agent/list", {}, 404),
        ("DELETE", "/mcp", {}, 405),
        ("POST", "/mcp/nope", {}, 404),
        ("POST", "/mcp", {"Origin": "http://evil.example"}, 403),
        ("POST", "/mcp", {"Host": "evil.example"}, 421),
        ("POST", "/mcp", {"Authorization": "Bearer wrong"}, 401),
        ("GET", "/mcp", {}, 405),
        ("GET", "/mcp", {"Accept": "text/event-stream", "Authorization": "Bearer wrong"}, 401),
        ("POST", "/mcp", {"X-Forwarded-For": "10.0.0.1"}, 401),
    ],
)
def test_strangers_and_other_paths_are_refused(
    open_port: int, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = http.request(method, f"http://127.0.0.1:{open_port}{path}", headers=headers)
    assert answer.status_code == status and answer.json()["hint"], answer.text


@sqlite
def test_an_agents_token_is_good_and_a_read_only_client_runs_nothing(
    start: Callable[..., Live], trees: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "BATCH_SECONDS", 0.05)
    live = start()
    port, agent = port_of(live, trees[0]), Agent(live.hub)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    headers = mcp_headers("2025-06-18") | {"Authorization": f"Bearer {agent.token}"}

    def asked(tool: str, arguments: dict[str, Any], **more: str) -> Any:
        params = {"name": tool, "arguments": arguments}
        answer = http.post(f"http://localhost:{port}/mcp", json=message | {"params": params}, headers=headers | more)
        return json.loads(answer.text.partition("data: ")[2] or answer.text)["result"]["structuredContent"]

    assert asked("read_file", {"path": "name.txt"})["content"] == "tree0\n"
    (logged,) = eventually(lambda: ask(live, "call_list", tool="read_file")["calls"])
    assert (logged["actor"], logged["edge"]) == (agent.id, "mcp")
    refused = asked("run_just_task", {"task_name": "x"}, **{"X-Crewhall-Profile": "readonly"})
    assert refused["code"] == "FORBIDDEN"


# Hubs come and go


def test_a_new_hub_serves_all_that_is_open_on_their_ports(
    start: Callable[..., Live], make_hub: Callable[..., Any], trees: list[Path], first_port: int
) -> None:
    first = start()
    ports = [port_of(first, path) for path in trees]
    ids = [opened(first, path)["id"] for path in trees]
    first.stop()
    assert all(is_free(port) for port in ports)
    ask(first, "worktree_close", id=ids[0])  # whoever closes or opens without a hub is heeded by the next one
    with socket.create_server(("127.0.0.1", ports[1])):
        second = start()
        assert eventually(lambda: opened(second, trees[2])["mcp"]["port"]) == ports[2]
        assert port_of(second, trees[1]) == ports[0], "its own is another's now"
        assert ("worktree.moved", str(ports[1]), str(ports[0])) in events(second)
    assert read(ports[2], "name.txt")["content"] == "tree2\n"


def test_a_killed_hub_takes_no_worktree_with_it(tmp_path: Path, trees: list[Path], first_port: int) -> None:
    program = Program(tmp_path / "home", {"CREWHALL_PROJECT_PORT": str(first_port)})

    def state(up: Up) -> list[tuple[str, int]]:
        return [(one["path"], one["mcp"]["port"]) for one in ask_up(up, "worktree/list")["worktrees"]]

    done = json.loads(program.run("--json", "worktree", "open", str(trees[0])).out)
    assert (done["url"], done["mcp"]["server_running"], done["mcp"]["port"]) == (None, False, None)
    assert "no hub runs here" in done["mcp"]["last_error"]
    with program.up() as up:
        wanted = [(str(path), first_port + number) for number, path in enumerate(trees)]
        eventually(lambda: state(up) == wanted[:1])
        for path in trees[1:]:
            assert ask_up(up, "worktree/open", path=str(path))["mcp"]["server_running"]
        assert state(up) == wanted
        up.end(signal.SIGKILL)
    gone = json.loads(program.run("--json", "worktree", "list").out)["worktrees"]
    assert [one["mcp"]["server_running"] for one in gone] == [False] * 3
    with program.up() as up:
        eventually(lambda: state(up) == wanted)
        assert read(first_port + 1, "name.txt")["content"] == "tree1\n"
        shown = program.run("worktree", "list").out
        assert "/tree1 " in shown and f"server running yes, port {first_port + 1}" in shown


def test_a_hub_that_is_told_to_stop_lets_running_calls_answer(
    tmp_path: Path, trees: list[Path], first_port: int
) -> None:
    program = Program(tmp_path / "home", {"CREWHALL_PROJECT_PORT": str(first_port)})
    (trees[0] / "justfile").write_text("slow:\n    @touch begun; sleep 1; echo done\n")
    with program.up() as up:
        ask_up(up, "worktree/open", path=str(trees[0]))
        answers: list[Any] = []
        calling = {"name": "run_just_task", "arguments": {"task_name": "slow"}}
        client = threading.Thread(target=lambda: answers.append(rpc(first_port, "tools/call", **calling)))
        client.start()
        eventually((trees[0] / "begun").exists)
        assert up.end() == 0
        client.join(20)
    assert answers[0]["result"]["structuredContent"]["output"] == "done\n"


@sqlite
def test_of_two_hubs_one_serves_and_the_other_goes_on_when_it_ends(
    start: Callable[..., Live], serve: Callable[..., Live], trees: list[Path], first_port: int
) -> None:
    first = start()
    second = serve(project__port=first_port)
    port = port_of(first, trees[0])
    assert port_of(second, trees[0]) == port and second.hub.state(LISTENER).servers is None
    late = opened(second, trees[1])
    assert late["mcp"]["server_running"] is False, "the first hub looks at its next tick"
    first.hub.chores.run_due()
    assert port_of(second, trees[1]) == first_port + 1
    first.stop()
    eventually(lambda: second.hub.state(LISTENER).servers)
    assert eventually(lambda: opened(second, trees[0])["mcp"]["server_running"])
    assert port_of(second, trees[0]) == port


@sqlite
def test_a_directory_above_that_is_swapped_leads_nobody_elsewhere(start: Callable[..., Live], tmp_path: Path) -> None:
    live, above = start(), tmp_path / "above"
    for name in ("above", "elsewhere"):
        (tmp_path / name / "tree").mkdir(parents=True)
        (tmp_path / name / "tree/name.txt").write_text(name)
    port = port_of(live, above / "tree")
    above.rename(tmp_path / "away")
    above.symlink_to(tmp_path / "elsewhere")
    with contextlib.suppress(httpx2.HTTPError):  # the hub may have looked just now
        assert read(port, "name.txt")["code"] == "INVALID_STATE"
    above.unlink()
    (tmp_path / "elsewhere").rename(above)
    live.hub.state(LISTENER).servers.settle()  # type: ignore[union-attr]
    assert read(port_of(live, above / "tree"), "name.txt")["content"] == "elsewhere", "it is served as what it is now"


@sqlite
@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's directories")
def test_where_another_user_may_rename_directories_no_other_one_is_served(
    start: Callable[..., Live], tmp_path: Path
) -> None:
    live, theirs = start(), tmp_path / "theirs"
    for name in ("tree", "private"):
        (theirs / name).mkdir(parents=True)
        (theirs / name / "name.txt").write_text(name)
    os.chown(theirs, 65534, 65534)
    port_of(live, theirs / "tree")
    for old, new in (("tree", "aside"), ("private", "tree")):
        (theirs / old).rename(theirs / new)
    state = opened(live, theirs / "tree")["mcp"]
    assert not state["server_running"] and "another directory than the one opened" in state["last_error"]
    for old, new in (("tree", "private"), ("aside", "tree")):
        (theirs / old).rename(theirs / new)
    assert read(port_of(live, theirs / "tree"), "name.txt")["content"] == "tree", "it is back"
    (theirs / "tree").rename(theirs / "aside")
    (theirs / "private").rename(theirs / "tree")
    ask(live, "worktree_close", path=str(theirs / "tree"))
    assert read(port_of(live, theirs / "tree"), "name.txt")["content"] == "private", "it is opened as what it is now"


@sqlite
def test_a_directory_that_is_gone_is_told_and_served_again_when_it_is_back(
    start: Callable[..., Live], trees: list[Path]
) -> None:
    live = start()
    port = port_of(live, trees[0])
    trees[0].rename(trees[0].with_name("away"))
    live.hub.state(LISTENER).servers.settle()  # type: ignore[union-attr]
    state = ask(live, "worktree_list")["worktrees"][0]["mcp"]
    assert state["server_running"] is False and str(trees[0]) in state["last_error"] and is_free(port)
    trees[0].symlink_to(trees[1])
    live.hub.state(LISTENER).servers.settle()  # type: ignore[union-attr]
    assert ask(live, "worktree_list")["worktrees"][0]["mcp"]["server_running"] is False, "nor by a link to elsewhere"
    trees[0].unlink()
    trees[0].with_name("away").rename(trees[0])
    assert opened(live, trees[0])["mcp"] | {"tools": []} == {
        "server_running": True,
        "port": port,
        "connected_clients": 0,
        "tools": [],
        "last_error": None,
    }


def test_a_workspaces_worktree_is_opened_and_closed_with_it(start: Callable[..., Live], tmp_path: Path) -> None:
    live, repo = start(workspace__serve=True), make_repository(tmp_path / "repo")
    begin = {"name": "w", "source_type": "prompt", "source_content": "x", "repository_path": repo.root}
    workflow = ask(live, "workflow_create", **begin)["id"]
    made = ask(live, "workspace_create", workflow_id=workflow, branch="b")
    (tree,) = eventually(lambda: [one for one in ask(live, "worktree_list")["worktrees"] if one["url"]])
    assert (tree["path"], tree["workspace_id"]) == (made["path"], made["id"])
    port = tree["mcp"]["port"]
    assert read(port, "file-0")["path"] == "file-0"
    ask(live, "workspace_update", id=made["id"], status="abandoned")
    assert ask(live, "worktree_list")["total"] == 0
    eventually(lambda: is_free(port))


@sqlite
def test_a_running_call_may_finish_and_one_that_does_not_is_ended(
    start: Callable[..., Live], trees: list[Path]
) -> None:
    family = Family("slow", "", "tests.edges")
    begun, ended, proceed = threading.Event(), threading.Event(), threading.Event()

    @family.tool("slow_wait", pace="long", profiles=("worktree",))
    def slow_wait(call: Call) -> Done:
        """Wait."""
        begun.set()
        try:
            while not proceed.is_set():
                call.stop.wait(0.02)
        finally:
            ended.set()
        return Done(success=True)

    live = start(tools=Registry([*_families(), family]))
    port = port_of(live, trees[0])
    answers: list[Any] = []

    def wait() -> None:
        with contextlib.suppress(httpx2.HTTPError):
            answers.append(rpc(port, "tools/call", name="slow_wait", arguments={}))

    client = threading.Thread(target=wait)
    client.start()
    assert begun.wait(10)
    ask(live, "worktree_close", path=str(trees[0]))
    assert ended.is_set() and is_free(port)
    client.join(10)
    assert answers[0]["result"]["structuredContent"]["code"] == "CANCELLED", "it is told"


def _families() -> list[Family]:
    from crewhall.families.all import FAMILIES

    return FAMILIES
