"""What is too large, broken or hostile is refused with its reason, and the hub goes on answering."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Live, serve_for_module
from tests.edges.raw_http import ERAS, JSON, assert_alive, assert_refused, http, mcp_headers, mcp_params, raw
from tests.sizes import size

LIST = "/api/v1/agent/list"
MIB = 1024 * 1024
LIMIT = 4 * MIB
MODERN = ERAS[0]
ROUTES: list[tuple[str, dict[str, str]]] = [(LIST, JSON), *(("/mcp", mcp_headers(version)) for version in ERAS)]


MISSING = object()
ENVELOPES: list[tuple[dict[str, Any], int | None, str]] = [
    ({"jsonrpc": MISSING}, 7, 'The message lacks "jsonrpc": "2.0".'),
    ({"jsonrpc": "1.0"}, 7, 'The message lacks "jsonrpc": "2.0".'),
    ({"jsonrpc": MISSING, "id": MISSING}, None, 'The message lacks "jsonrpc": "2.0".'),
    ({"id": MISSING}, None, 'The request lacks an "id".'),
    ({"id": None}, None, '"id" is neither a text nor a whole number.'),
    ({"id": 1.5}, None, '"id" is neither a text nor a whole number.'),
    ({"method": MISSING}, 7, 'The message has no "method", "result" or "error" that can be read.'),
    ({"method": 3}, 7, '"method" is no text.'),
    ({"params": [1]}, 7, '"params" is no object.'),
]


def refused_envelope(url: str, change: dict[str, Any], id: int | None, words: str, version: str) -> None:
    """A request that is changed so is refused as no message, with a sentence about it and nothing else."""
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": mcp_params(version)} | change
    sent = {name: value for name, value in message.items() if value is not MISSING}
    answer = http.post(url, json=sent, headers=mcp_headers(version, "tools/list"))
    error = {"code": -32600, "message": f"{words} Send one JSON-RPC 2.0 message by each POST."}
    assert (answer.status_code, answer.json()) == (400, {"jsonrpc": "2.0", "id": id, "error": error})


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The hub of all these tests, none of which changes anything: it goes on answering after the last one too."""
    with serve_for_module(tmp_path_factory.mktemp("bodies")) as live:
        yield live


def post(live: Live, path: str, content: Any, headers: dict[str, str] = JSON) -> httpx2.Response:
    return http.post(live.url + path, content=content, headers=headers)


def pieces(body: bytes) -> Iterator[bytes]:
    """A body that does not tell its length."""
    for start in range(0, len(body), MIB):
        yield body[start : start + MIB]


@pytest.mark.parametrize(("path", "headers"), ROUTES)
def test_a_body_of_50_mib_is_too_large_with_and_without_its_length(
    live: Live, path: str, headers: dict[str, str]
) -> None:
    body = b"{" + b" " * (50 * MIB)
    for content in (body, pieces(body)):
        found = assert_refused(live, post(live, path, content, headers), 413, "LIMIT_EXCEEDED")
        assert str(LIMIT) in found["message"]


def test_a_length_over_the_limit_is_refused_before_any_of_it_comes(live: Live) -> None:
    for path in (LIST, "/mcp", "/"):
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LIMIT + 1}\r\n\r\n"
        assert raw(live, head.encode()).startswith(b"HTTP/1.1 413 ")
    assert_alive(live)


def test_a_body_at_the_limit_passes_and_one_byte_more_does_not(live: Live) -> None:
    body = b"{}" + b" " * (LIMIT - 2)
    for content in (body, pieces(body)):
        assert post(live, LIST, content).status_code == 200
    for content in (body + b" ", pieces(body + b" ")):
        assert_refused(live, post(live, LIST, content), 413, "LIMIT_EXCEEDED")


@pytest.mark.parametrize("version", ERAS)
def test_an_mcp_message_at_the_limit_passes(live: Live, version: str) -> None:
    message = json.dumps(called(version, {})).encode()
    body = message + b" " * (LIMIT - len(message))
    for content in (body, pieces(body)):
        assert result(post(live, "/mcp", content, mcp_headers(version)))["total"] == 0


@pytest.mark.parametrize("body", [b"{", b"[]", b'[{"limit": 1}]', b'"x"', b"null", b"7", b"\xff\xfe", b"{}{}"])
def test_a_body_that_is_no_json_object_is_invalid(live: Live, body: bytes) -> None:
    found = assert_refused(live, post(live, LIST, body), 400, "INVALID_INPUT")
    assert "the body is not" in found["message"] and found["tool_name"] == "agent_list"


def test_an_empty_body_is_no_arguments(live: Live) -> None:
    assert post(live, LIST, b"").status_code == 200
    found = assert_refused(live, post(live, "/api/v1/agent/register", b""), 400, "INVALID_INPUT")
    assert "missing argument 'name'; missing argument 'runtime'" in found["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_of_another_content_type_is_invalid(live: Live, kind: str) -> None:
    found = assert_refused(live, post(live, LIST, b"{}", {"Content-Type": kind}), 400, "INVALID_INPUT")
    assert "application/json" in found["hint"]


DEEP = "[" * 10_000 + "]" * 10_000
HOSTILE = {
    '{"limits": 3}': "unknown argument 'limits', did you mean 'limit'?",
    '{"qqqq": 3}': "unknown argument 'qqqq'",
    '{"runtime": "a\\u0000b"}': "a text holds a NUL character",
    '{"\\u0000": 1}': "a text holds a NUL character",
    '{"limit": NaN}': "nan is not a number",
    '{"limit": -Infinity}': "-inf is not a number",
    '{"limit": 1e400}': "inf is not a number",
    f'{{"limit": {10**30}}}': "argument 'limit': input should be less than or equal to 500",
    '{"limit": "5"}': "argument 'limit': input should be a valid integer",
    '{"limit": true}': "argument 'limit': input should be a valid integer",
    '{"status": ["asleep"]}': "argument 'status.0'",
    f'{{"status": {"[" * 100 + "]" * 100}}}': "nested deeper than 64 levels",
}


@pytest.mark.parametrize(("arguments", "message"), HOSTILE.items())
def test_hostile_arguments_are_refused_by_rest_and_both_eras_of_mcp(live: Live, arguments: str, message: str) -> None:
    assert message in assert_refused(live, post(live, LIST, arguments), 400, "INVALID_INPUT")["message"]
    for version in ERAS:
        body = json.dumps(called(version, {})).replace('"arguments": {}', f'"arguments": {arguments}')
        found = result(post(live, "/mcp", body, mcp_headers(version)))
        assert found["code"] == "INVALID_INPUT" and message in found["message"]


# A 2025-era message is parsed by the SDK, which calls half a surrogate and deep nesting a parse error.
@pytest.mark.parametrize(
    ("arguments", "message"), [('{"runtime": "\\ud800"}', "half of a surrogate"), (f'{{"status": {DEEP}}}', "not JSON")]
)
def test_what_no_parser_takes_is_refused_everywhere(live: Live, arguments: str, message: str) -> None:
    assert message in assert_refused(live, post(live, LIST, arguments), 400, "INVALID_INPUT")["message"]
    for version in ERAS:
        body = json.dumps(called(version, {})).replace('"arguments": {}', f'"arguments": {arguments}')
        answer = post(live, "/mcp", body, mcp_headers(version))
        if answer.status_code == 200:
            assert result(answer)["code"] == "INVALID_INPUT"
        else:
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32700)
        assert_alive(live)


def test_deep_nesting_in_a_query_is_refused(live: Live) -> None:
    assert_refused(live, http.get(live.url + LIST, params={"status": "[" * 10_000}), 400, "INVALID_INPUT")
    assert_refused(live, http.get(live.url + LIST, params={"limit": "[" * 10_000}), 400, "INVALID_INPUT")


def test_a_name_of_a_megabyte_is_refused_with_a_short_answer(live: Live) -> None:
    body = json.dumps({"name": "x" * MIB, "runtime": "codex"})
    found = assert_refused(live, post(live, "/api/v1/agent/register", body), 400, "INVALID_INPUT")
    assert "at most 200 characters" in found["message"] and len(json.dumps(found)) < 1000


def test_an_argument_with_a_name_of_a_megabyte_gets_a_short_answer(live: Live) -> None:
    body = json.dumps({"x" * MIB: 1})
    assert len(json.dumps(assert_refused(live, post(live, LIST, body), 400, "INVALID_INPUT"))) < 1000


def test_ten_thousand_wrong_items_get_a_short_answer(live: Live) -> None:
    body = json.dumps({"status": ["asleep"] * 10_000})
    assert len(json.dumps(assert_refused(live, post(live, LIST, body), 400, "INVALID_INPUT"))) < 5000


@pytest.mark.parametrize(("body", "code"), [(b"{", -32700), (b"", -32700), (b"[]", -32600), (b'"x"', -32600)])
def test_what_is_no_message_is_a_protocol_error(live: Live, body: bytes, code: int) -> None:
    for version in ERAS:
        answer = post(live, "/mcp", body, mcp_headers(version))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert_alive(live)


@pytest.mark.parametrize("path", ["/mcp", "/mcp/work"])
@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(("change", "id", "words"), ENVELOPES)
def test_a_message_that_is_no_json_rpc_is_told_what_it_lacks(
    live: Live, change: dict[str, Any], id: int | None, words: str, version: str, path: str
) -> None:
    refused_envelope(live.url + path, change, id, words, version)
    assert_alive(live)


CROWD: dict[str, Any] = {str(number): {} for number in range(1001)}
CROWDS: list[tuple[str, dict[str, Any]]] = [
    ("message", CROWD),
    ("params", {"params": CROWD}),
    ("arguments", {"params": {"name": "agent_get", "arguments": CROWD}}),
    ("_meta", {"params": {"_meta": CROWD}}),
    ("experimental", {"params": {"capabilities": {"experimental": CROWD}}}),
]


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(("name", "change"), CROWDS)
def test_an_object_that_would_take_long_to_read_is_refused_unread(
    live: Live, name: str, change: dict[str, Any], version: str
) -> None:
    count = 1005 if name == "message" else 1001
    refused_envelope(live.url + "/mcp", change, 7, f'"{name}" has {count} fields, and at most 1000 are read.', version)


def test_what_is_in_an_argument_may_have_as_many_fields_as_it_likes(live: Live) -> None:
    for version in ERAS:
        arguments = {"id": "ms_none", "mark_read": CROWD}
        answer = post(
            live,
            "/mcp",
            json.dumps(called(version, arguments, "message_get")),
            mcp_headers(version, tool="message_get"),
        )
        assert "mark_read" in result(answer)["message"]


@pytest.mark.parametrize("version", ERAS)
def test_a_batch_is_refused_and_none_of_it_is_done(live: Live, version: str) -> None:
    message = called(version, {"name": "a", "runtime": "codex"}, "agent_register")
    answer = post(live, "/mcp", json.dumps([message, message]), mcp_headers(version, tool="agent_register"))
    assert answer.status_code == 400 and "error" in answer.json()
    assert http.get(live.url + LIST).json()["total"] == 0


def test_an_unknown_method_is_not_found(live: Live) -> None:
    for version, status in zip(ERAS, (404, 200), strict=True):
        message = {"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": mcp_params(version)}
        answer = post(live, "/mcp", json.dumps(message), mcp_headers(version, "no/such"))
        assert answer.status_code == status and '"code":-32601' in answer.text
    assert_alive(live)


@pytest.mark.parametrize("version", ERAS)
def test_a_notification_is_accepted_and_answered_by_nothing(live: Live, version: str) -> None:
    method = "notifications/initialized"
    answer = post(live, "/mcp", json.dumps({"jsonrpc": "2.0", "method": method}), mcp_headers(version, method))
    assert (answer.status_code, answer.content) == (202, b"")


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_mcp_is_spoken_by_post_only(live: Live, version: str, method: str) -> None:
    answer = http.request(method, live.url + "/mcp", headers=mcp_headers(version))
    assert_refused(live, answer, 405, "INVALID_INPUT")


@pytest.mark.parametrize("path", ["/nope", "/api/v1/agent", "/api/v1/agent/nope", "/api/v2/agent/list", "/web/../x"])
def test_an_unknown_path_is_not_found(live: Live, path: str) -> None:
    assert_refused(live, http.get(live.url + path), 404, "NOT_FOUND")
    assert_refused(live, http.post(live.url + path), 404, "NOT_FOUND")


def test_an_unknown_method_of_http_is_refused(live: Live) -> None:
    for method in ("DELETE", "PUT", "PATCH", "OPTIONS"):
        assert_refused(live, http.request(method, live.url + LIST), 405, "INVALID_INPUT")


def test_get_never_changes_anything(live: Live) -> None:
    for method in ("GET", "HEAD"):
        answer = http.request(method, f"{live.url}/api/v1/agent/register?name=a&runtime=codex")
        assert answer.status_code == 400
    assert "GET never does" in http.get(f"{live.url}/api/v1/agent/register?name=a&runtime=codex").json()["message"]
    assert http.get(live.url + LIST).json()["total"] == 0


HEAD = b"POST /api/v1/agent/list HTTP/1.1\r\nHost: 127.0.0.1\r\n"
BYTES = st.one_of(
    st.binary(max_size=300),
    st.binary(max_size=100).map(lambda tail: b"GET /" + tail + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    st.binary(max_size=100).map(lambda tail: HEAD + tail + b"\r\n\r\n"),
    st.binary(max_size=100).map(lambda tail: HEAD + b"Content-Length: 99\r\n\r\n" + tail),
    st.binary(max_size=100).map(lambda tail: HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + tail),
    st.sampled_from(
        [b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 100, HEAD + b"A: " + b"a" * 99_999]
    ),
    st.text(max_size=40).map(lambda text: HEAD + f"Upgrade: websocket\r\n{text}\r\n\r\n".encode("utf-8", "ignore")),
)


def test_no_bytes_end_the_hub(live: Live) -> None:
    @settings(max_examples=size(70, 200), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(BYTES)
    def send(data: bytes) -> None:
        assert not raw(live, data).startswith(b"HTTP/1.1 5"), data

    send()
    assert_alive(live)


def called(version: str, arguments: dict[str, Any], tool: str = "agent_list") -> dict[str, Any]:
    params = mcp_params(version, name=tool, arguments=arguments)
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def result(answer: httpx2.Response) -> dict[str, Any]:
    """The body in a tool's result, in either era."""
    assert answer.status_code == 200, answer.text
    line = next(line for line in answer.text.splitlines() if line.startswith(("{", "data: {")))
    body: dict[str, Any] = json.loads(line.removeprefix("data: "))["result"]["structuredContent"]
    return body


def test_nothing_that_was_said_is_ignored(live: Live) -> None:
    """Strict arguments: a query on a POST, or one argument twice, is refused and not passed over."""
    found = assert_refused(live, http.post(live.url + LIST + "?limit=1", json={}), 400, "INVALID_INPUT")
    assert "query" in found["message"]
    found = assert_refused(live, http.get(live.url + LIST + "?limit=5&limit=1"), 400, "INVALID_INPUT")
    assert "argument 'limit'" in found["message"]
    assert http.get(live.url + LIST + "?status=online&status=busy").status_code == 200


def test_a_read_that_brings_an_endless_body_gets_a_body_of_ours(live: Live) -> None:
    """Nobody reads it: the answer may come before the limit is passed, or the refusal; never a bare fault."""
    for _ in range(10):
        chunks = (b"x" * 65_536 for _ in range(100))
        answer = http.request("GET", live.url + LIST, content=chunks)
        assert answer.status_code in (200, 413) and ("agents" in answer.json() or answer.json()["code"])
    assert_alive(live)
