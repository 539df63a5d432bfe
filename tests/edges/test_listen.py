"""`subscriptions/listen`: a client hears of the resources it named, whichever hub the change came through."""

import json
from collections.abc import Callable
from typing import Any

import httpx2

from crewhall.edges.mcp.subscriptions import MOST_ADDRESSES
from crewhall.identity import OPERATOR
from tests.conftest import Live, eventually
from tests.edges.forked_bridge import ForkedBridge
from tests.edges.interfaces import META, MODERN
from tests.edges.raw_http import mcp_headers
from tests.edges.stdio import hall_of
from tests.families.work.workflows import plan_workflow, register, task

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


def listen(live: Live, *addresses: str, **more: bool) -> ForkedBridge:
    """A client that listens to these, and has the acknowledgement."""
    client = ForkedBridge(live.hub.settings.home, **hall_of(live))
    client.send("subscriptions/listen", notifications={"resourceSubscriptions": list(addresses)} | more)
    eventually(lambda: client.notices)
    return client


def test_inboxes_lists_of_a_workflow_and_its_progress_are_told_and_no_others(serve: Serve) -> None:
    live = serve()

    def ask(tool: str, /, **given: Any) -> Any:
        return live.hub.call(tool, given, OPERATOR)

    ada, bob = register(ask, "ada"), register(ask, "bob")
    (one, ours), (_, others) = plan_workflow(ask, task("a")), plan_workflow(ask, task("b"), name="other")
    inbox, checkpoints = f"crewhall://agents/{ada}/inbox", f"crewhall://tasks/{ours['a']}/checkpoints"
    of_workflow = {f"crewhall://workflows/{one}{part}" for part in ("", "/tasks", "/progress", "/summary")}
    client = listen(live, inbox, checkpoints, *of_workflow)

    def assert_told(expected: set[str], tool: str, /, **given: Any) -> None:
        """What a call makes the client hear, after calls about others of which it hears nothing."""
        before = len(client.notices)
        ask("message_send", sender_id=ada, recipient_id=bob, message_type="notification", body="for bob")
        ask("checkpoint_add", task_id=others["b"], type="decision", summary="of another workflow")
        ask(tool, **given)
        eventually(lambda: {notice["params"]["uri"] for notice in client.notices[before:]} >= expected)
        assert {notice["params"]["uri"] for notice in client.notices[before:]} == expected

    letter = {"message_type": "notification", "body": "x"}
    assert_told({inbox}, "message_send", sender_id=bob, recipient_id=ada, **letter)
    assert_told({inbox}, "message_broadcast", sender_id=bob, **letter)
    unread = [message["id"] for message in ask("message_list", agent_id=ada)["messages"]]
    assert_told({inbox}, "message_mark_read", message_ids=unread)
    assert_told({checkpoints, *of_workflow}, "task_claim", task_id=ours["a"], agent_id=ada)
    whole = {f"crewhall://workflows/{one}", f"crewhall://workflows/{one}/summary"}
    whole |= {checkpoints, f"crewhall://workflows/{one}/progress"}
    assert_told(whole, "checkpoint_add", task_id=ours["a"], type="decision", summary="so be it")
    assert_told(of_workflow, "workflow_update_status", id=one, status="paused")
    client.close()


def test_a_stream_listens_to_so_many_addresses_and_no_more(serve: Serve) -> None:
    live = serve()
    listen(live, *["crewhall://agents"] * MOST_ADDRESSES).close()
    message = {"jsonrpc": "2.0", "id": 5, "method": "subscriptions/listen"}
    wanted = {"resourceSubscriptions": ["crewhall://agents"] * (MOST_ADDRESSES + 1)}
    message |= {"params": {"notifications": wanted, "_meta": META}}
    headers = mcp_headers(MODERN, "subscriptions/listen")
    answer = httpx2.post(f"{live.url}/mcp", json=message, headers=headers, timeout=30)
    assert "501 addresses, and a stream listens to 500" in answer.text and '"INVALID_INPUT"' in answer.text


def test_what_is_never_told_is_not_acknowledged_and_no_list_is_said_to_change(serve: Serve) -> None:
    live = serve()
    asked = ("crewhall://tasks/tk_1/context", "crewhall://events/7", "crewhall://nowhere", "crewhall://agents")
    changes = dict.fromkeys(("toolsListChanged", "promptsListChanged", "resourcesListChanged"), True)
    client = listen(live, *asked, **changes)
    assert client.notices[0]["params"]["notifications"] == {"resourceSubscriptions": ["crewhall://agents"]}
    client.close()
    message = {"jsonrpc": "2.0", "id": 5, "method": "server/discover", "params": {"_meta": META}}
    answer = httpx2.post(f"{live.url}/mcp", json=message, headers=mcp_headers(MODERN, "server/discover"), timeout=30)
    found = json.loads(answer.text.partition("data: ")[2] or answer.text)["result"]["capabilities"]
    assert found["resources"]["subscribe"] is True and "listChanged" not in json.dumps(found)
