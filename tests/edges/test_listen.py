"""`subscriptions/listen`: a client hears of the resources it named, whichever hub the change came through."""

import json
from collections.abc import Callable

import httpx2

from crewhall.identity import OPERATOR
from tests.conftest import Live, eventually
from tests.edges.forked_bridge import ForkedBridge
from tests.edges.interfaces import META, MODERN
from tests.edges.raw_http import mcp_headers
from tests.edges.stdio import hall_of

Serve = Callable[..., Live]
WANTED = {"resourceSubscriptions": ["crewhall://agents", "crewhall://events"]}


def _messages(client: ForkedBridge) -> list[str]:
    """The addresses of which the client was told, after the acknowledgement."""
    return [notice["params"]["uri"] for notice in client.notices[1:]]


def test_a_change_through_one_hub_is_heard_at_another(serve: Serve) -> None:
    one, other = serve(), serve()
    client = ForkedBridge(one.hub.settings.home, **hall_of(one))
    name = client.send("subscriptions/listen", notifications=WANTED)
    eventually(lambda: client.notices)
    assert client.notices[0]["method"] == "notifications/subscriptions/acknowledged"
    for hub in (one.hub, other.hub):
        before = len(client.notices)
        hub.call("agent_register", {"name": "ada", "runtime": "codex"}, OPERATOR)
        eventually(lambda before=before: len(client.notices) >= before + 2)  # type: ignore[misc]
    assert set(_messages(client)) == {"crewhall://agents", "crewhall://events"}
    for notice in client.notices:
        assert notice["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == name
    client.close()


def test_only_what_was_asked_for_is_told(serve: Serve) -> None:
    live = serve()
    agent = live.hub.call("agent_register", {"name": "ada", "runtime": "codex"}, OPERATOR)["id"]
    client = ForkedBridge(live.hub.settings.home, **hall_of(live))
    client.send("subscriptions/listen", notifications={"resourceSubscriptions": [f"crewhall://agents/{agent}"]})
    eventually(lambda: client.notices)
    live.hub.call("repository_register", {"path": "/r"}, OPERATOR)
    live.hub.call("agent_register", {"name": "bob", "runtime": "codex"}, OPERATOR)
    live.hub.call("agent_update", {"id": agent, "status": "busy"}, OPERATOR)
    eventually(lambda: len(client.notices) == 2)
    assert _messages(client) == [f"crewhall://agents/{agent}"]
    client.close()


def test_a_cancelled_stream_ends_and_the_connection_goes_on(serve: Serve) -> None:
    live = serve()
    client, other = (ForkedBridge(live.hub.settings.home, **hall_of(live)) for _ in range(2))
    name, _ = (one.send("subscriptions/listen", notifications=WANTED) for one in (client, other))
    eventually(lambda: client.notices and other.notices)
    client.notify("notifications/cancelled", requestId=name)
    assert client.count() == 0  # answered after the hub has read the cancellation
    live.hub.call("agent_register", {"name": "ada", "runtime": "codex"}, OPERATOR)
    eventually(lambda: len(_messages(other)) == 2)
    assert client.count() == 1
    assert _messages(client) == []
    client.close()
    other.close()


def test_over_http_the_answer_is_the_stream_and_a_stopping_hub_ends_it(serve: Serve) -> None:
    live = serve(server__shutdown_seconds="30")
    message = {"jsonrpc": "2.0", "id": 5, "method": "subscriptions/listen"}
    message |= {"params": {"notifications": WANTED, "_meta": META}}
    headers = mcp_headers(MODERN, "subscriptions/listen")
    with httpx2.stream("POST", f"{live.url}/mcp", json=message, headers=headers, timeout=30) as stream:
        datas = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: {"))
        assert next(datas)["method"] == "notifications/subscriptions/acknowledged"
        live.hub.call("agent_register", {"name": "ada", "runtime": "codex"}, OPERATOR)
        assert {next(datas)["params"]["uri"], next(datas)["params"]["uri"]} == set(WANTED["resourceSubscriptions"])
        live.stop()
        assert next(datas)["id"] == 5, "the answer that says that it has ended"
