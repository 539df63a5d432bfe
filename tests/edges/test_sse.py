"""HTTP+SSE, as clients of 2024-11-05 speak it."""

from collections.abc import Callable

import httpx2
import pytest

from crewhall.identity import OPERATOR
from tests.conftest import BOTH, Live, eventually
from tests.edges.conftest import SharedHubs, newcomer
from tests.edges.raw_http import http as client
from tests.edges.sse import OLDEST, Sse


@pytest.fixture(params=BOTH)
def live(request: pytest.FixtureRequest, shared_hubs: SharedHubs) -> Live:
    """The module's hub on each database."""
    return shared_hubs.find("hall", request.param)


def test_an_old_client_shakes_hands_and_calls(live: Live) -> None:
    old = Sse(live, open_session=False)
    assert old.endpoint.startswith("/sse/")
    assert old.initialize()["result"]["protocolVersion"] == OLDEST
    assert old.call("agent_register", name="ada", runtime="codex")["name"] == "ada"
    assert old.ask("ping")["result"] == {}
    old.close()


def test_a_stream_answers_to_whoever_opened_it(live: Live) -> None:
    ada, bob = newcomer(live), newcomer(live)
    old = Sse(live, ada.token)
    message = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
    for headers in ({"Authorization": f"Bearer {bob.token}"}, {"Authorization": f"Bearer {live.token}"}):
        assert old.post(message, **headers).status_code == 404
    assert old.post(message, Authorization="Bearer wrong").status_code == 401
    live.hub.call("agent_token_revoke", {"agent_id": ada.id}, OPERATOR)
    assert old.post(message).status_code == 401
    old.close()


def test_the_profile_of_a_streams_url_holds_for_its_messages(live: Live) -> None:
    old = Sse(live, path="/sse?profile=readonly")
    listed = old.ask("tools/list")["result"]["tools"]
    assert listed and not any(live.hub.registry.find(tool["name"]).changes for tool in listed)
    assert old.call("repository_register", path="/r")["code"] == "FORBIDDEN"
    old.close()
    assert client.get(f"{live.url}/sse?profile=boss").status_code == 400


def test_what_is_no_message_is_answered_on_the_stream(live: Live) -> None:
    old = Sse(live)
    old.post(b"{")
    assert old.next_answer()["error"]["code"] == -32700
    old.post({"jsonrpc": "2.0", "id": 4})
    assert old.next_answer()["error"]["code"] == -32600
    old.post({"jsonrpc": "2.0", "id": 4, "method": "ping", "params": dict.fromkeys(map(str, range(1001)))})
    assert old.next_answer()["error"]["message"] == '"params" has 1001 fields, and at most 1000 are read'
    assert old.post(b"x" * 5_000_000).status_code == 413
    old.post(b'{"jsonrpc": "2.0",\n "id": 5,\r\n "method": "ping"}')
    assert old.next_answer() == {"jsonrpc": "2.0", "id": 5, "result": {}}
    old.close()


def test_a_stream_that_is_not_there_takes_no_message(live: Live) -> None:
    answer = client.post(f"{live.url}/sse/nothing", json={})
    assert answer.status_code == 404 and answer.json()["code"] == "NOT_FOUND"
    assert client.post(f"{live.url}/sse", json={}).status_code == 405
    old = Sse(live)
    old.close()
    eventually(lambda: old.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}).status_code == 404)


def test_strangers_open_no_stream(live: Live) -> None:
    with pytest.raises(httpx2.HTTPStatusError):
        client.get(f"{live.url}/sse", headers={"Authorization": "Bearer wrong"}).raise_for_status()
    assert client.get(f"{live.url}/sse", headers={"Origin": "http://evil.example"}).status_code == 403


def test_a_stopping_hub_ends_the_streams(serve: Callable[..., Live]) -> None:
    live = serve(server__shutdown_seconds="30")
    old = Sse(live)
    live.stop()
    eventually(old.has_ended)
    old.close()
