"""How servers are told: every way that is taken, every field that is refused, and no secret shown."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from crewhall.client import Client
from crewhall.client.servers import Address, Command, Server, hide_secrets, parse_servers, read_file
from crewhall.errors import InvalidInput, NotFound

TAKEN: list[tuple[Any, Server]] = [
    ("http://127.0.0.1:3001/mcp", Address(url="http://127.0.0.1:3001/mcp")),
    (["crewhall", "mcp"], Command(command="crewhall", args=["mcp"])),
    (("crewhall",), Command(command="crewhall")),
    (Path("dist/server.js"), Command(command="node", args=["dist/server.js"])),
    ("server.mjs", Command(command="node", args=["server.mjs"])),
    ("server.ts", Command(command="node", args=["server.ts"])),
    (Path("server.py"), Command(command=sys.executable, args=["server.py"])),
    (
        {"type": "stdio", "command": "npx", "args": ["-y"], "env": {"A": "b"}, "cwd": "/src", "autoApprove": []},
        Command(command="npx", args=["-y"], env={"A": "b"}, cwd=Path("/src")),
    ),
    (
        {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer t"}},
        Address(url="https://example.org/mcp", headers={"Authorization": "Bearer t"}),
    ),
]
REFUSED: list[tuple[Any, str]] = [
    ("crewhall mcp", "a command is a list of words"),
    ([], "list tells no server"),
    (7, "int tells no server"),
    ([1], "x.command: Input should be a valid string"),
    (["a", 2], "x.args.0: Input should be a valid string"),
    ({}, "either command or url"),
    ({"command": "a", "url": "http://b"}, "either command or url"),
    ({"command": "a", "arg": ["b"]}, "x.arg: unknown, did you mean args?"),
    ({"command": "a", "env": {"B": 1}}, "x.env.B: Input should be a valid string"),
    ({"url": "http://a/mcp", "header": {}}, "x.header: unknown, did you mean headers?"),
    ({"url": "ftp://a"}, "x.url: a URL begins with http:// or https://"),
    ({"type": "sse", "url": "http://a"}, "type 'sse' is not spoken here"),
    ("http://ada:sesame@host/mcp", "use headers instead"),
]


@pytest.mark.parametrize(("entry", "server"), TAKEN)
def test_a_server_is_told_in_any_of_these_ways(entry: Any, server: Server) -> None:
    assert parse_servers({"x": entry}) == {"x": server}


@pytest.mark.parametrize(("entry", "words"), REFUSED)
def test_a_bad_entry_is_refused_with_its_field(entry: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Client({"x": entry})
    assert words in refused.value.message and "A server is a URL" in refused.value.hint
    assert "sesame" not in refused.value.message


def test_all_bad_entries_are_named_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"a\.url: .*; b: .*"):
        parse_servers({"a": {"url": "no"}, "b": "no", "good": ["true"]})
    with pytest.raises(InvalidInput, match="there are none"):
        parse_servers({})


def test_a_file_of_a_client_is_read_with_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALL_TOKEN", "cr_1234567")
    servers = {
        "hall": {"url": "${HALL:-http://127.0.0.1:3001/mcp}", "headers": {"Authorization": "Bearer ${HALL_TOKEN}"}},
        "off": {"command": "no", "disabled": True},
    }
    path = tmp_path / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    assert parse_servers(read_file(path)) == {
        "hall": Address(url="http://127.0.0.1:3001/mcp", headers={"Authorization": "Bearer cr_1234567"})
    }
    assert repr(Client.from_file(path)) == "Client(hall=<http://127.0.0.1:3001/mcp>)"
    monkeypatch.delenv("HALL_TOKEN")
    with pytest.raises(InvalidInput, match=r"hall\.headers\.Authorization: the variable HALL_TOKEN is not set"):
        read_file(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mcpServers": 3}', '{"mcpServers": {"a"'])
def test_a_file_that_tells_no_servers_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="tells no servers"):
        Client.from_file(path)
    with pytest.raises(NotFound, match="cannot be read"):
        Client.from_file(tmp_path / "other.json")


def test_what_is_secret_is_shown_nowhere() -> None:
    command = Command(command="/bin/npx", args=["--key", "sesame1"], env={"API_KEY": "sesame2", "HOST": "127.0.0.1"})
    address = Address(url="http://host:1/mcp?key=sesame3", headers={"Authorization": "Bearer sesame4"})
    assert repr({"a": command, "b": address}) == "{'a': <npx>, 'b': <http://host:1/mcp>}"
    assert hide_secrets(command, "sesame2 at 127.0.0.1") == "[hidden] at 127.0.0.1"
    assert hide_secrets(command, "bad key sesame1") == "bad key [hidden]"
    assert hide_secrets(Command(command="x", args=["plain1", "--token=sesame6"]), "plain1 sesame6") == "plain1 [hidden]"
    assert hide_secrets(address, "POST ?key=sesame3 with sesame4") == "POST ?[hidden] with [hidden]"
    assert "sesame" not in repr(Client({"a": {"command": "a", "env": {"API_KEY": "sesame5"}}}))
