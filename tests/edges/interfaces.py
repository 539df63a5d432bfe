"""The ways into a hub, each as a function from a tool and its arguments to the body that comes back."""

import contextlib
import io
import json
import os
import sys
import weakref
from collections.abc import Callable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.shared.inbound import encode_header_value

from crewhall.edges.bridge.address_files import AddressFile
from crewhall.edges.cli import main
from crewhall.edges.cli.tool_command import RULED_NO
from crewhall.errors import every_failure
from tests.conftest import Live
from tests.edges.prefork import prefork

MODERN = "2026-07-28"
ACCEPT = {"Accept": "application/json, text/event-stream"}
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
CREWHALL = str(Path(sys.executable).with_name("crewhall"))
# One client for all, as in wire.py: making one reads every certificate of the machine.
http = httpx2.Client(
    limits=httpx2.Limits(max_keepalive_connections=0),
    cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    timeout=60,
)


def mcp(live: Live, version: str, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
    """A JSON-RPC answer over Streamable HTTP, in the era of this protocol version."""
    headers |= ACCEPT | {"MCP-Protocol-Version": version}
    if version == MODERN:
        params = params | {"_meta": META | params.get("_meta", {})}
        name = params.get("name", params.get("uri"))
        headers |= {"Mcp-Method": method} | ({"Mcp-Name": _header(name)} if name is not None else {})
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    # Sent as ASCII, with \u escapes, so that hostile text travels as JSON has it.
    headers["Content-Type"] = "application/json"
    answer = http.post(f"{live.url}/mcp", content=json.dumps(message), headers=headers)
    return _message(answer)


def _header(name: str) -> str:
    """A name as a header can say it; half a surrogate pair it cannot."""
    return encode_header_value(name.encode("utf-8", "replace").decode())


def _message(answer: httpx2.Response) -> dict[str, Any]:
    """The response in an answer, which may be JSON or a stream of events."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        found: dict[str, Any] = answer.json()
        return found
    datas = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    last: dict[str, Any] = json.loads(datas[-1])
    return last


def by_mcp(version: str) -> Any:
    def ask(live: Live, tool: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        result = mcp(live, version, "tools/call", params, Authorization=f"Bearer {token}")["result"]
        body: dict[str, Any] = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == body, "the text says what the structure says"
        assert result["isError"] == ("code" in body)
        return body

    return ask


def by_rest(live: Live, tool: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
    noun, verb = live.hub.registry.find(tool).command
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    url = f"{live.url}/api/v1/{noun}/{verb}"
    answer = http.post(url, content=json.dumps(arguments), headers=headers)
    body: dict[str, Any] = answer.json()
    assert (answer.status_code == 200) == ("code" not in body)
    return body


def by_get(live: Live, tool: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
    noun, verb = live.hub.registry.find(tool).command
    query = {name: value if isinstance(value, str) else json.dumps(value) for name, value in arguments.items()}
    headers = {"Authorization": f"Bearer {token}"}
    body: dict[str, Any] = http.get(f"{live.url}/api/v1/{noun}/{verb}", params=query, headers=headers).json()
    return body


def by_cli(live: Live, tool: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
    """The command line as a process of its own, asking the running hub."""
    home = announce(live)
    words = ["--home", str(home), "--json", *live.hub.registry.find(tool).command, "--input", "-"]
    environment = {"CREWHALL_TOKEN": token, "PATH": "/usr/bin:/bin"}
    done = prefork().run(words, environment, json.dumps(arguments))
    body: dict[str, Any] = json.loads(done.out)
    assert done.code == exit_code(tool, body), done.err
    return body


def announce(live: Live) -> Path:
    """The hall's home, where a command now finds the hub of the test's own process."""
    home = live.hub.settings.home
    address_file = AddressFile(live.hub.settings)
    address_file.write(live.url)
    facts = {"url": live.url, "pid": os.getpid()}  # no hall: for a command that is not told of the database
    address_file.path.write_text(json.dumps(facts))
    weakref.finalize(live, address_file.remove)
    return home


def by_words(live: Live, tool: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
    """The command line in the test's own process, with each argument in words; it asks the running hub."""
    return _by_command(live, tool, in_words(arguments), token)


def by_input(live: Live, tool: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
    """The same with all arguments as JSON, which says what words cannot: a number where a text belongs."""
    return _by_command(live, tool, [f"--input={json.dumps(arguments)}"], token)


def _by_command(live: Live, tool: str, words: list[str], token: str) -> dict[str, Any]:
    whole = ["--home", str(announce(live)), "--json", *live.hub.registry.find(tool).command, *words]
    code, out = run_here(whole, CREWHALL_TOKEN=token)
    body: dict[str, Any] = json.loads(out)
    assert code == exit_code(tool, body), (code, body)
    return body


def exit_code(tool: str, body: dict[str, Any]) -> int:
    """What a command ends with that has this answer: one that was given nothing, such as a claim, must not go on."""
    if "code" in body or body.get("success") is False:
        return EXIT_CODES[body.get("code", "CONFLICT")]
    is_no = body.get("verdict", "PASS") != "PASS" or False in (body.get("valid"), body.get("available"))
    return RULED_NO if tool.startswith("claude_") and (is_no or body.get("findings")) else 0


EXIT_CODES = {failure.code: failure.exit_code for failure in every_failure()}


def in_words(arguments: dict[str, Any]) -> list[str]:
    """`--name=value` for each argument; an object where a text may stand too can only be said by --input."""
    whole = {name: value for name, value in arguments.items() if name == "body" and isinstance(value, dict)}
    rest = {name: value for name, value in arguments.items() if name not in whole}
    words = [f"--{name.replace('_', '-')}={v if isinstance(v, str) else json.dumps(v)}" for name, v in rest.items()]
    return [*words, f"--input={json.dumps(whole)}"] if whole else words


def run_here(words: list[str], **environment: str) -> tuple[int, str]:
    """A command's exit code and output, without a process of its own."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        for name, value in environment.items():
            patch.setenv(name, value)
        return main.run(words), out.getvalue()


Interface = Callable[[Live, str, dict[str, Any], str], dict[str, Any]]
INTERFACES: dict[str, Interface] = {
    "mcp-2026": by_mcp(MODERN),
    "mcp-2025-11": by_mcp("2025-11-25"),
    "mcp-2025-06": by_mcp("2025-06-18"),
    "rest": by_rest,
    "cli": by_cli,
}
