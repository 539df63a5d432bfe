"""Who is let in: Host, Origin, tokens, cookies and the user of the process at the other end."""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator

import httpx2
import pytest

from crewhall.edges.bridge.hub_socket import HubSocket
from tests.conftest import Agent, Live, serve_for_module
from tests.edges.interfaces import MODERN
from tests.edges.raw_http import (
    ERAS,
    JSON,
    ask_as,
    assert_alive,
    assert_refused,
    http,
    mcp_headers,
    mcp_params,
    raw_get,
)

on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

HUB = "/api/v1/hub"
NAMES_OF_OTHERS = ("evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "[::2]", "")
NO_NAMES = (
    "127.0.0.1:80@evil.example",
    "localhost:evil.example",
    "[::1].evil.example:80",
    "localhost/",
    "localhost:1:",
)
KEY = "MDEyMzQ1Njc4OWFiY2RlZg=="
PLACES = (HUB, "/api/v1/agent/list", "/mcp", "/mcp/work", "/", "/api/docs", "/web/hall.js", "/api/openapi.json")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The hub at whose door all these tests stand; none needs it to be empty."""
    with serve_for_module(tmp_path_factory.mktemp("guard")) as live:
        yield live


@pytest.mark.parametrize("host", [*NAMES_OF_OTHERS, *NO_NAMES])
def test_a_foreign_host_is_misdirected_on_every_path(live: Live, host: str) -> None:
    for path in PLACES:
        answer = http.get(live.url + path, headers={"Host": host.format(port=live.port)})
        assert "server.hosts" in assert_refused(live, answer, 421, "FORBIDDEN")["hint"]


def test_no_host_and_two_hosts_are_misdirected(live: Live) -> None:
    assert_refused(live, raw_get(live), 421, "FORBIDDEN")
    assert_refused(live, raw_get(live, f"Host: 127.0.0.1:{live.port}", "Host: evil.example"), 421, "FORBIDDEN")


def test_the_machines_own_names_are_answered(live: Live) -> None:
    for host in (f"127.0.0.1:{live.port}", f"localhost:{live.port}", "LOCALHOST", f"[::1]:{live.port}", "127.0.0.1"):
        assert http.get(live.url + HUB, headers={"Host": host}).status_code == 200, host


@on_sqlite
def test_a_name_from_the_settings_is_answered(serve: Callable[..., Live]) -> None:
    live = serve(server__hosts="hall.lan, other")
    token = {"Authorization": f"Bearer {live.token}"}
    assert http.get(live.url + HUB, headers={"Host": "hall.lan:80"} | token).status_code == 200
    assert_refused(live, http.get(live.url + HUB, headers={"Host": "hall.lan:80"}), 401, "FORBIDDEN")
    assert_refused(live, http.get(live.url + HUB, headers={"Host": "hall.lan.evil"}), 421, "FORBIDDEN")


@on_sqlite
def test_a_hub_answers_to_the_address_that_it_binds(serve: Callable[..., Live]) -> None:
    live = serve(server__host="127.0.0.2")
    assert live.url.startswith("http://127.0.0.2:")
    assert http.get(live.url + HUB).status_code == 200


@pytest.mark.parametrize("header", ["Authorization: Bearer {token}", "Cookie: a=b", "Origin: {url}"])
def test_what_says_who_sends_stands_there_once(live: Live, header: str) -> None:
    """The first of two would count here, and the second for a reader in between."""
    line = header.format(token=live.token, url=live.url)
    host = f"Host: 127.0.0.1:{live.port}"
    assert_refused(live, raw_get(live, host, line, line.partition(" ")[0] + " other"), 400, "INVALID_INPUT")


@pytest.mark.parametrize("target", ["http://evil.example/api/v1/hub", "http://127.0.0.1/api/v1/hub", "*"])
def test_a_request_names_a_path_and_no_place(live: Live, target: str) -> None:
    host = f"Host: 127.0.0.1:{live.port}"
    assert_refused(live, raw_get(live, host, path=target), 400, "INVALID_INPUT")
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}")
    assert exchange(live, head(live, "GET", target.replace(HUB, "/api/v1/events"), *upgrade))[9:12] == b"400"


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost:{port}", ""]
)
def test_a_foreign_origin_is_refused_on_every_path(live: Live, origin: str) -> None:
    headers = {"Origin": origin.format(port=live.port), "Authorization": f"Bearer {live.token}"}
    for path in PLACES:
        assert_refused(live, http.get(live.url + path, headers=headers), 403, "FORBIDDEN")
        assert_refused(live, http.post(live.url + path, headers=headers | JSON, content="{}"), 403, "FORBIDDEN")


def test_the_hubs_own_origin_passes_with_a_token_and_is_a_browser_without(live: Live) -> None:
    own = {"Origin": live.url}
    for path in (HUB, "/api/openapi.json"):
        assert http.get(live.url + path, headers=own | {"Authorization": f"Bearer {live.token}"}).status_code == 200
        assert_refused(live, http.get(live.url + path, headers=own), 401, "FORBIDDEN")


def test_no_answer_allows_another_origin_to_read_it(live: Live) -> None:
    for origin in ("https://evil.example", "null", live.url):
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        for method in ("OPTIONS", "GET", "POST"):
            answer = http.request(method, live.url + "/api/v1/agent/list", headers=headers)
            assert answer.status_code >= 400
            assert not [name for name in answer.headers if name.startswith("access-control")]


AUTHORIZATIONS = ["Bearer ch_operator_wrong", "Bearer", "", "Basic b3A6b3A=", "{token}", "Token {token}"]


@pytest.mark.parametrize("given", AUTHORIZATIONS)
def test_what_is_no_good_bearer_token_is_unauthorized(live: Live, given: str) -> None:
    for path in (HUB, "/api/v1/agent/list", "/api/v1/tools"):
        answer = http.get(live.url + path, headers={"Authorization": given.format(token=live.token)})
        assert_refused(live, answer, 401, "FORBIDDEN")
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("version", ERAS)
def test_a_wrong_token_is_unauthorized_over_mcp(live: Live, version: str) -> None:
    headers = mcp_headers(version) | {"Authorization": "Bearer wrong"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": mcp_params(version, name="agent_list")}
    answer = http.post(f"{live.url}/mcp", json=message, headers=headers)
    assert_refused(live, answer, 401, "FORBIDDEN")
    assert "www-authenticate" in answer.headers


def test_the_scheme_is_read_in_any_case(live: Live) -> None:
    for scheme in ("bearer", "BEARER", "Bearer "):
        assert http.get(live.url + HUB, headers={"Authorization": f"{scheme} {live.token}"}).status_code == 200


def test_a_revoked_token_is_unauthorized_at_once(live: Live) -> None:
    ada = Agent(live.hub)
    headers = {"Authorization": f"Bearer {ada.token}"}
    assert http.get(live.url + HUB, headers=headers).status_code == 200
    http.post(f"{live.url}/api/v1/agent/revoke", json={"agent_id": ada.id})
    assert_refused(live, http.get(live.url + HUB, headers=headers), 401, "FORBIDDEN")


def test_a_token_in_the_query_is_not_a_token(live: Live) -> None:
    browser = {"Sec-Fetch-Site": "none"}
    for name in ("token", "access_token", "key", "authorization"):
        answer = http.get(live.url + HUB, params={name: live.token}, headers=browser)
        assert_refused(live, answer, 401, "FORBIDDEN")


def test_a_cookie_that_is_made_up_is_unauthorized(live: Live) -> None:
    for value in ("made-up", "", "ch_browser_x"):
        assert_refused(
            live, http.get(live.url + HUB, headers={"Cookie": f"crewhall-{live.port}={value}"}), 401, "FORBIDDEN"
        )


def test_tokens_and_cookies_do_not_stand_in_for_each_other(live: Live) -> None:
    link = live.link_key()
    for token in (live.token, Agent(live.hub, "bob").token, link):
        assert_refused(
            live, http.get(live.url + HUB, headers={"Cookie": f"crewhall-{live.port}={token}"}), 401, "FORBIDDEN"
        )
    assert_refused(live, http.get(live.url + HUB, headers={"Authorization": f"Bearer {link}"}), 401, "FORBIDDEN")


def test_other_cookies_are_nobodys_business(live: Live) -> None:
    assert http.get(live.url + HUB, headers={"Cookie": "session=abc; theme=dark"}).status_code == 200


def test_a_browser_of_the_same_user_needs_a_token(live: Live) -> None:
    assert_refused(live, http.get(live.url + HUB, headers={"Sec-Fetch-Site": "same-origin"}), 401, "FORBIDDEN")


def test_node_is_no_browser_though_it_sends_one_of_their_headers(live: Live) -> None:
    assert http.get(live.url + HUB, headers={"Sec-Fetch-Mode": "cors"}).status_code == 200


def test_space_around_a_headers_value_is_none_of_it(live: Live) -> None:
    headers = mcp_headers(MODERN, "tools/call", "agent_list")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": mcp_params(MODERN, name="agent_list")}
    body = json.dumps(message).encode()
    lines = [f"{name}:  {value} \t " for name, value in headers.items()]
    lines += ["Host: 127.0.0.1", f"Content-Length: {len(body)}", "Connection: close"]
    with socket.create_connection(("127.0.0.1", live.port), 10) as connection:
        connection.sendall("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b'"isError":false' in answer


def test_a_process_of_the_hubs_user_is_the_operator(live: Live) -> None:
    made = http.post(f"{live.url}/api/v1/agent/token", json={"name": "fay"})
    assert made.status_code == 200 and made.json()["token"].startswith("ch_agent_")


@on_sqlite
def test_a_setting_makes_every_process_bring_a_token(serve: Callable[..., Live]) -> None:
    live = serve(auth__local_without_token=False)
    answer = http.get(live.url + HUB)
    assert (answer.status_code, answer.json()["code"]) == (401, "FORBIDDEN")
    assert http.get(live.url + HUB, headers={"Authorization": f"Bearer {live.token}"}).status_code == 200


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run a process as another user")
def test_another_users_process_needs_a_token(live: Live) -> None:
    cleo = Agent(live.hub, "cleo")
    assert ask_as("nobody", live.url + HUB) == '401 Bearer realm="crewhall"'
    assert (
        ask_as("nobody", live.url + HUB, **{"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"})[:3] == "401"
    )
    assert ask_as("nobody", live.url + HUB, Authorization=f"Bearer {cleo.token}") == "200"
    assert ask_as("nobody", live.url + HUB, Authorization="Bearer wrong")[:3] == "401"
    assert_alive(live)


def test_a_token_counts_before_being_local(live: Live) -> None:
    dora = Agent(live.hub, "dora")
    answer = http.post(
        f"{live.url}/api/v1/agent/token", json={"name": "eve"}, headers={"Authorization": f"Bearer {dora.token}"}
    )
    assert "is for operator, and you are worker" in assert_refused(live, answer, 403, "FORBIDDEN")["message"]


def test_each_request_on_a_connection_says_anew_who_it_is(live: Live) -> None:
    with httpx2.Client(base_url=live.url) as client:
        assert client.get(HUB, headers={"Authorization": f"Bearer {live.token}"}).status_code == 200
        assert client.get(HUB, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get(HUB).status_code == 200
        assert client.get(HUB, headers={"Sec-Fetch-Site": "none"}).status_code == 401


PROXIES = ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Port", "X-Real-IP", "X-Client-IP", "CF-Connecting-IP"]


@pytest.mark.parametrize("header", PROXIES)
def test_what_came_through_a_proxy_is_not_local(live: Live, header: str) -> None:
    """The process at the other end is the proxy, of our own user; who is behind it may be anyone."""
    assert_refused(live, http.get(live.url + HUB, headers={header: "10.0.0.1"}), 401, "FORBIDDEN")
    token = {"Authorization": f"Bearer {live.token}"}
    assert http.get(live.url + HUB, headers={header: "10.0.0.1"} | token).status_code == 200


def exchange(live: Live, data: bytes) -> bytes:
    """What the hub sends for these bytes until it closes the connection, which the last request asks for."""
    answer = b""
    with socket.create_connection(("127.0.0.1", live.port), 10) as client, contextlib.suppress(ConnectionError):
        client.sendall(data)
        while piece := client.recv(65536):
            answer += piece
    return answer


def head(live: Live, method: str = "GET", path: str = HUB, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{live.port}", *lines, "", ""]).encode()


def cut_off_after(live: Live, begin: bytes, piece: bytes, most: int = 40_000_000) -> int:
    """How many bytes of a request without end the hub took, those in the system's buffers too."""
    with socket.create_connection(("127.0.0.1", live.port), 10) as client:
        client.sendall(begin)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < most:
                client.sendall(piece)
                sent += len(piece)
        assert sent < most, "a request without end was read"
    assert_alive(live)
    return sent


def test_headers_have_a_limit_too(live: Live) -> None:
    assert http.get(live.url + HUB, headers={"X-Long": "a" * 30_000}).status_code == 200
    for large, status in ((60_000, b"200"), (70_000, b"431"), (100_000, b"431"), (150_000, b"431")):
        answer = exchange(live, head(live, "GET", HUB, "Connection: close", f"X-Long: {'a' * large}"))
        assert answer[9:12] == status, large
    cut_off_after(live, head(live)[:-2], b"X-More: " + b"a" * 8000 + b"\r\n")


def chunked(live: Live, *chunks: str, path: str = "/api/v1/agent/list") -> bytes:
    lines = ("Content-Type: application/json", "Transfer-Encoding: chunked", "Connection: close")
    return head(live, "POST", path, *lines) + "".join(chunks).encode()


LAST = "0\r\n"


def test_a_trailer_is_no_header(live: Live) -> None:
    trailers = "Authorization: Bearer wrong\r\nOrigin: http://evil.example\r\nContent-Type: text/plain\r\n\r\n"
    assert exchange(live, chunked(live, "2\r\n{}\r\n", LAST, trailers)).startswith(b"HTTP/1.1 200")


def test_what_is_beside_the_bytes_of_a_body_has_a_limit(live: Live) -> None:
    """Trailers, one trailer without end, and extensions of chunks; many small chunks are a body like any other."""
    begin = chunked(live, "1\r\n{\r\n")
    cut_off_after(live, begin + LAST.encode(), b"X-More: " + b"a" * 8000 + b"\r\n")
    cut_off_after(live, begin + LAST.encode() + b"X-More: ", b"a" * 8000)
    cut_off_after(live, begin + b"1;", b"a" * 8000)
    cut_off_after(live, begin, b"1;" + b"a" * 2000 + b"\r\n \r\n")
    blanks = "1\r\n \r\n" * 100_000
    assert exchange(live, chunked(live, blanks, "2\r\n{}\r\n", LAST, "\r\n")).startswith(b"HTTP/1.1 200")
    assert b"431" in exchange(live, chunked(live, f"{LAST}X-More: {'a' * 70_000}\r\n\r\n", path="/healthz"))[:20]


def test_requests_ahead_of_their_answers_have_a_limit(live: Live) -> None:
    """Fifty long ones in one piece are answered; thousands would be kept in memory."""
    fifty = head(live, "GET", "/healthz", f"X-Long: {'a' * 2000}") * 50
    last = head(live, "GET", "/healthz", "Connection: close")
    assert exchange(live, fifty + last).count(b"HTTP/1.1 200") == 51
    cut_off_after(live, b"", head(live, "GET", "/healthz") * 1000)


NO_HELLOS = (
    {"families": ["work"]},
    {"profile": ["worker"]},
    {"variables": ["GITHUB_TOKEN"]},
    {"crewhall": 7},
    {"crewhall": "1" * 5000},
    {"token": "x" * 300_000},
)


def test_what_is_no_hello_is_answered_and_no_bug(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    for more in NO_HELLOS:
        with HubSocket(live.hub.settings).connect() as connection, connection.makefile("rwb") as lines:
            connection.settimeout(20)
            lines.write(json.dumps({"crewhall": "0.1.0"} | more).encode() + b"\n")
            lines.flush()
            assert json.loads(lines.readline())["error"]["code"] == "INVALID_INPUT", str(more)[:100]
            assert lines.readline() == b""
    assert not [record for record in caplog.records if record.exc_info]
