"""Requests as bytes or as another user, and what a refusal must look like."""

import re
import shutil
import socket
import subprocess
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2

from tests.conftest import Live
from tests.edges.interfaces import ACCEPT, META, MODERN
from tests.postgres import missing

# One client for all: making one reads every certificate of the machine. Hubs come and go, so it keeps no connection
# and no cookie: a cookie is for a host and all its ports.
NO_COOKIES = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
http = httpx2.Client(limits=httpx2.Limits(max_keepalive_connections=0), cookies=NO_COOKIES, timeout=30)
JSON = {"Content-Type": "application/json"}
ERAS = (MODERN, "2025-06-18")


def assert_refused(live: Live, answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The body of a refusal, which says what to do next, and after which the hub still answers."""
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert body["code"] == body["error"] == code
    assert body["message"] and body["hint"] and isinstance(body["recoverable"], bool)
    assert_alive(live)
    return body


def assert_alive(live: Live) -> None:
    assert http.get(f"{live.url}/api/v1/hub").json()["hub"] == live.hub.id


def mcp_headers(version: str, method: str = "tools/call", tool: str = "agent_list") -> dict[str, str]:
    """The headers of an MCP request in the era of this version."""
    headers = JSON | ACCEPT | {"MCP-Protocol-Version": version}
    named = {"Mcp-Name": tool} if method == "tools/call" else {}
    return headers | ({"Mcp-Method": method} | named if version == MODERN else {})


def mcp_params(version: str, **params: Any) -> dict[str, Any]:
    return params | ({"_meta": META} if version == MODERN else {})


def raw(live: Live, data: bytes) -> bytes:
    """What the hub sends for these bytes until it is silent, with our side of the connection ended."""
    with socket.create_connection(("127.0.0.1", live.port), 10) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except OSError:
            return b""  # the hub hung up on us


def raw_get(live: Live, *headers: str, path: str = "/api/v1/hub") -> httpx2.Response:
    """The answer to a GET with exactly these headers."""
    lines = [f"GET {path} HTTP/1.1", *headers, "Connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", live.port), 10) as connection:
        connection.sendall("\r\n".join(lines).encode("latin-1"))
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1.1 (\d+)", head)
    assert status, head
    return httpx2.Response(int(status[1]), content=body)


ASK = """
import sys, urllib.error, urllib.request
headers = dict(word.split("=", 1) for word in sys.argv[2:])
try:
    print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers), timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code, error.headers.get("WWW-Authenticate"))
"""


def ask_as(user: str, url: str, **headers: str) -> str:
    """The status that a process of another user gets."""
    python, runuser = shutil.which("python3", path="/usr/bin"), shutil.which("runuser")
    if python is None or runuser is None:
        missing("runuser and a Python that every user may run")
    words = [f"{name}={value}" for name, value in headers.items()]
    command = [str(runuser), "-u", user, "--", str(python), "-S", "-c", ASK, url, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd="/", timeout=60).stdout.strip()
