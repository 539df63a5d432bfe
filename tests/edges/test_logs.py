"""Logs: a line has its fields, stays one line, and tells no token."""

import json
import logging
import re
import socket
import sys
import urllib.parse
from pathlib import Path

import pytest

from crewhall.edges.hub.logs import LogLine
from tests.edges.program import Program, ask
from tests.edges.raw_http import ERAS, http, mcp_headers, mcp_params

TOKEN = "ch_agent_" + "aB3-_" * 8 + "xyz"


def line(message: str, *args: object, **extra: object) -> str:
    record = logging.makeLogRecord(
        {"name": "crewhall.x", "levelno": 20, "levelname": "INFO", "msg": message, "args": args, "created": 1.5}
        | {"msecs": 500.0}
        | extra
    )
    return LogLine().format(record)


def test_a_line_is_time_level_logger_message_and_fields() -> None:
    written = line("hub is %s", "up", url="http://127.0.0.1:1", hub="hu_1", note="two words", empty="")
    assert written == (
        '1970-01-01T00:00:01.500Z info crewhall.x hub is up url=http://127.0.0.1:1 hub=hu_1 note="two words" empty=""'
    )


@pytest.mark.parametrize("kind", ["operator", "agent", "browser", "link"])
def test_a_token_is_masked_in_message_fields_and_traceback(kind: str) -> None:
    token = TOKEN.replace("agent", kind)
    try:
        raise ValueError(f"bad {token}")
    except ValueError:
        written = line(f"got {token}", header=f"Bearer {token}", exc_info=sys.exc_info())
    assert written.count(f"ch_{kind}_…") == 3 and token[-20:] not in written


def test_a_message_from_outside_stays_on_its_line() -> None:
    written = line("asked for %s", "/x\n1970-01-01T00:00:00.000Z info crewhall forged\r\x1b[2J\u2028", field="a\nb")
    assert len(written.splitlines()) == 1 and written.isprintable()
    assert "forged" in written and 'field="a\\nb"' in written


def test_a_traceback_is_kept_whole() -> None:
    try:
        raise ZeroDivisionError("why")
    except ZeroDivisionError:
        written = line("a bug in a tool", exc_info=sys.exc_info())
    assert written.splitlines()[-1] == "ZeroDivisionError: why" and "Traceback" in written


def test_a_hub_that_tells_all_tells_no_token(tmp_path: Path) -> None:
    program = Program(tmp_path / "home")
    with program.up(MCP_LOG_LEVEL="debug") as up:
        made = ask(up, "agent/token", name="ada")["token"]
        operators = (program.home / "operator.token").read_text().strip()
        key = up.link.partition("key=")[2]
        cookie = http.get(up.link).headers["set-cookie"].partition("=")[2].partition(";")[0]
        secrets = [made, operators, key, cookie]
        for secret in (*secrets, "ch_agent_" + "W" * 43):
            good_and_bad_calls(up.url, secret)
            half_a_call(up.url, secret)
        assert up.end() == 0
    log = up.log.read_text()
    assert "hub is up" in log and "hub is down" in log
    for secret in secrets:
        assert secret.split("_", 2)[2] not in log and secret not in log
    assert "W" * 43 not in log and "Traceback" not in log
    stamped = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error) \S+ "
    assert all(re.match(stamped, one) for one in log.splitlines()), log


def good_and_bad_calls(url: str, secret: str) -> None:
    """Calls that carry the secret wherever a client might put it."""
    for headers in ({"Authorization": f"Bearer {secret}"}, {"Cookie": f"crewhall={secret}"}, {}):
        http.get(f"{url}/api/v1/agent/list", headers=headers)
        http.get(f"{url}/api/v1/agent/list", params={secret: secret}, headers=headers)
        http.get(f"{url}/{secret}", headers=headers)
        http.post(f"{url}/api/v1/agent/register", json={secret: secret}, headers=headers)
        http.post(f"{url}/api/v1/agent/get", json={"id": secret}, headers=headers)
        http.get(f"{url}/", params={"key": secret}, headers=headers)
        for version in ERAS:
            for tool in ("agent_get", secret):
                params = mcp_params(version, name=tool, arguments={"id": secret})
                message = {"jsonrpc": "2.0", "id": secret, "method": "tools/call", "params": params}
                http.post(f"{url}/mcp", json=message, headers=headers | mcp_headers(version, tool=tool))
                http.post(f"{url}/mcp", content=json.dumps([message]), headers=headers | mcp_headers(version))
                message["method"] = secret
                http.post(f"{url}/mcp", json=message, headers=headers | mcp_headers(version, secret))
        http.post(f"{url}/mcp/{secret}", json={}, headers=headers)
        http.post(f"{url}/mcp", json={}, headers=headers | {"MCP-Protocol-Version": secret})


def half_a_call(url: str, secret: str) -> None:
    """A call whose client goes away in the middle of it: no fault of the hub's, so no traceback either."""
    place = urllib.parse.urlsplit(url)
    head = f"POST /api/v1/agent/get HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {secret}\r\n"
    head += "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 99\r\n\r\n"
    with socket.create_connection((place.hostname or "", place.port or 0), 10) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith((b"HTTP/1.1 100", b"HTTP/1.1 401"))
        connection.sendall(f'{{"id": "{secret}'[:60].encode())
