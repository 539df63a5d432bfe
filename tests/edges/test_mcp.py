"""The MCP edge as a client meets it: lists, annotations, progress, cancellation, profiles."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jsonschema_rs
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from crewhall.edges.mcp.server import INSTRUCTIONS
from crewhall.families.pulls.family import pulls
from crewhall.identity import OPERATOR
from crewhall.store import calls
from tests.conftest import BOTH, Live, eventually
from tests.edges.conftest import SharedHubs, newcomer
from tests.edges.interfaces import ACCEPT, META, MODERN, mcp
from tests.edges.sample_arguments import needed
from tests.edges.sample_family import SampleFamily
from tests.outside.repos import make_repository

ERAS = (MODERN, "2025-11-25", "2025-06-18")
Serve = Callable[..., Live]
sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture
def live(shared_hubs: SharedHubs) -> Live:
    """One hub for all tests that ask the product's tools; it is on SQLite."""
    return shared_hubs.find("hall", "sqlite")


@pytest.fixture
def lab_hub(shared_hubs: SharedHubs) -> Live:
    """One hub for all tests of tools that answer at once; it is on SQLite."""
    return shared_hubs.find("lab", "sqlite", tools=SampleFamily().registry)


def names(live: Live, version: str = MODERN, **headers: str) -> list[str]:
    return [tool["name"] for tool in mcp(live, version, "tools/list", {}, **headers)["result"]["tools"]]


def test_both_eras_discover_the_hall_and_its_instructions(live: Live) -> None:
    found = mcp(live, MODERN, "server/discover", {})["result"]
    assert MODERN in found["supportedVersions"] and found["instructions"] == INSTRUCTIONS
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    begun = mcp(live, "2025-06-18", "initialize", client)["result"]
    assert begun["protocolVersion"] == "2025-06-18" and begun["instructions"] == INSTRUCTIONS
    assert len(INSTRUCTIONS) <= 2000


def test_who_sees_pulls_alone_is_told_of_pulls(live: Live) -> None:
    alone = {"X-Crewhall-Families": "pulls"}
    found = mcp(live, MODERN, "server/discover", {}, **alone)["result"]
    listed = mcp(live, MODERN, "tools/list", {}, **alone)["result"]["tools"]
    named = {tool["name"] for tool in listed}
    assert found["instructions"] == pulls.instructions and len(pulls.instructions) <= 2000
    assert named == {tool.name for tool in pulls.tools} and all(name in found["instructions"] for name in named)
    assert {tool["annotations"]["openWorldHint"] for tool in listed} == {True}
    assert "agent_list" not in found["instructions"]
    both = mcp(live, MODERN, "server/discover", {}, **{"X-Crewhall-Families": "work,pulls"})["result"]
    assert both["instructions"] == INSTRUCTIONS


@pytest.mark.parametrize("era", ERAS)
def test_the_list_has_a_fixed_order_schemas_and_annotations(live: Live, era: str) -> None:
    first = mcp(live, era, "tools/list", {})["result"]
    assert first["tools"] == mcp(live, era, "tools/list", {})["result"]["tools"]
    by_name = {tool["name"]: tool for tool in first["tools"]}
    for tool in first["tools"]:
        jsonschema_rs.meta.validate(tool["inputSchema"] | {"$schema": "https://json-schema.org/draft/2020-12/schema"})
        assert tool["inputSchema"]["additionalProperties"] is False
        assert tool["outputSchema"]["type"] == "object"
        assert "title" not in json.dumps(tool["inputSchema"]) + json.dumps(tool["outputSchema"])
    assert by_name["agent_list"]["annotations"]["readOnlyHint"] is True
    assert by_name["agent_register"]["annotations"]["readOnlyHint"] is False
    if era == MODERN:
        assert first["ttlMs"] > 0 and first["cacheScope"] == "private"


def workflow_with_a_task(live: Live, **more: Any) -> tuple[str, str]:
    """A workflow that is ready, and its only task."""
    asked = {"name": "w", "source_type": "prompt", "source_content": "x", **more}
    made: str = live.hub.call("workflow_create", asked, OPERATOR)["id"]
    tasks = [{"name": "t", "description": "x", "sequence": 1}]
    live.hub.call(
        "workflow_set_plan", {"id": made, "plan": {"summary": "s", "approach": "a", "tasks": tasks}}, OPERATOR
    )
    return made, live.hub.call("task_list", {"workflow_id": made}, OPERATOR)["tasks"][0]["id"]


def test_results_fit_their_output_schemas(live: Live, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository").root
    agent = live.hub.call("agent_register", {"name": "a", "runtime": "codex"}, OPERATOR)["id"]
    other = live.hub.call("agent_register", {"name": "b", "runtime": "codex"}, OPERATOR)["id"]
    made, task = workflow_with_a_task(live)
    message = {"sender_id": agent, "recipient_id": "operator", "message_type": "query", "body": {"a": 1}}
    sent = live.hub.call("message_send", message, OPERATOR)["id"]
    plan = {"approach": "a", "steps": []}
    more = {"name": "more", "description": "x", "sequence": 1}
    spare = live.hub.call("workflow_add_tasks", {"id": made, "tasks": [{**more, "name": "spare"}]}, OPERATOR)
    begin = {"name": "w", "source_type": "prompt", "source_content": "x"}
    placed, placed_task = workflow_with_a_task(live, repository_path=repository)
    unplanned, unwanted = (live.hub.call("workflow_create", begin, OPERATOR)["id"] for _ in range(2))
    calls: dict[str, dict[str, Any]] = {
        "agent_heartbeat": {"agent_id": agent},
        "repository_register": {"path": "/r"},
        "repository_get": {"path": "/r"},
        "workflow_create": begin,
        "workflow_set_plan": {"id": unplanned, "plan": {"summary": "s", "approach": "a", "tasks": [more]}},
        "workflow_get": {"id": made, "include_tasks": True},
        "workflow_add_tasks": {"id": made, "tasks": [more]},
        "workflow_remove_task": {"id": made, "task_id": spare["task_ids"][0]},
        "workflow_set_parallelism": {"id": made, "max_parallel_tasks": 2},
        "task_claim": {"task_id": task, "agent_id": agent},
        "task_set_plan": {"id": task, "plan": plan},
        "task_update_status": {"id": task, "status": "in_progress"},
        "checkpoint_add": {"task_id": task, "type": "decision", "summary": "s", "detail": {"a": [1]}},
        "task_get": {"id": task, "include_checkpoints": True},
        "text_read": {"id": task, "field": "description"},
        "task_load_context": {"task_id": task, "include": {"prior_task_full": True}},
        "workspace_create": {"workflow_id": placed, "branch": "b"},
        "workspace_list": {"workflow_id": placed},
        "workspace_forecast": {"workflow_id": placed},
        "task_assign_workspace": {"task_id": placed_task, "workspace_id": "$workspace"},
        "workspace_update": {"id": "$workspace", "status": "abandoned"},
        "file_reserve": {"agent_id": agent, "paths": ["a.py"], "repository_path": repository},
        "file_reservations": {},
        "file_release": {"agent_id": agent},
        "template_create": {"name": "t", "from_workflow_id": made},
        "template_get": {"id": "$template"},
        "template_apply": {"template_id": "$template", "workflow_name": "w"},
        "task_replan": {"id": task, "reason": "r", "new_plan": plan},
        "task_hand_over": {"task_id": task, "to": other, "reason": "r"},
        "task_release": {"task_id": task, "agent_id": other},
        "message_send": message,
        "message_broadcast": {"sender_id": agent, "message_type": "notification", "body": "all"},
        "message_list": {"agent_id": "operator"},
        "message_get": {"id": sent},
        "message_mark_read": {"message_ids": [sent]},
        "message_archive": {"message_ids": [sent]},
        "message_count_unread": {"agent_id": "operator"},
        "workflow_update_status": {"id": unwanted, "status": "abandoned"},
        "workflow_archive": {"id": unwanted},
        "agent_token_create": {"agent_id": agent},
        "agent_token_revoke": {"agent_id": agent},
        "agent_update": {"id": agent},
        "agent_unregister": {"id": agent},
        "agent_archive": {"id": agent},
        "agent_register": {"name": "b", "runtime": "custom"},
        "hall_pause": {"reason": "r"},
        "hall_resume": {},
    }
    declared = [tool for tool in live.hub.registry.tools if tool.family == "work"]
    ids = {"wf": made, "tk": task, "ag": agent, "ms": sent}
    calls |= {tool.name: needed(tool, ids) for tool in declared if not tool.changes and tool.name not in calls}
    for name in {tool.name for tool in declared} - set(calls):
        raise AssertionError(f"{name} changes the hall: add a call of it to `calls` in tests/edges/test_mcp.py")
    learnt: dict[str, str] = {}
    for name, arguments in calls.items():
        filled = {
            key: learnt.get(value, value) if isinstance(value, str) else value for key, value in arguments.items()
        }
        own = {"Authorization": f"Bearer {live.token}"} if name.startswith("hall_") else {}
        result = mcp(live, MODERN, "tools/call", {"name": name, "arguments": filled}, **own)["result"]
        advice = f"{name} was called with {filled}: if it needs others, add them to `calls` in tests/edges/test_mcp.py"
        assert not result["isError"], (advice, result)
        jsonschema_rs.validate(live.hub.registry.find(name).output_schema, result["structuredContent"])
        if name in ("workspace_create", "template_create"):
            learnt[f"${name.removesuffix('_create')}"] = result["structuredContent"]["id"]
    nothing = mcp(live, MODERN, "tools/call", {"name": "repository_get", "arguments": {"path": "/x"}})["result"]
    jsonschema_rs.validate(live.hub.registry.find("repository_get").output_schema, nothing["structuredContent"])


def test_what_a_caller_sees_depends_on_who_it_is_and_what_it_asked_for(live: Live) -> None:
    worker, boss = newcomer(live), newcomer(live, "coordinator")
    as_worker, as_boss = f"Bearer {worker.token}", f"Bearer {boss.token}"
    assert "agent_token_create" in names(live, **{"X-Crewhall-Profile": "all"})
    assert "agent_token_create" not in names(live, Authorization=as_worker, **{"X-Crewhall-Profile": "all"})
    assert "event_list" in names(live, Authorization=as_boss)
    assert "event_list" not in names(live, Authorization=as_worker)
    assert "agent_heartbeat" in names(live, Authorization=as_worker) and "event_list" in names(live)
    reading = names(live, **{"X-Crewhall-Profile": "readonly"})
    assert reading and not any(live.hub.registry.find(name).changes for name in reading)


def test_a_profile_shortens_the_list_and_not_what_may_be_called(live: Live) -> None:
    worker = newcomer(live)
    bearer = f"Bearer {worker.token}"
    called = mcp(live, MODERN, "tools/call", {"name": "event_list", "arguments": {}}, Authorization=bearer)
    assert called["result"]["isError"] is False
    change = {"name": "repository_register", "arguments": {"path": "/r"}}
    refused = mcp(live, MODERN, "tools/call", change, **{"X-Crewhall-Profile": "readonly"})["result"]
    assert refused["structuredContent"]["code"] == "FORBIDDEN"


def test_a_family_is_picked_by_path_or_header_and_a_wrong_one_is_named(live: Live) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    headers = ACCEPT | {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
    picked = httpx2.post(f"{live.url}/mcp/work", json=body, headers=headers)
    assert [tool["name"] for tool in picked.json()["result"]["tools"]] == names(live)
    wrong = httpx2.post(f"{live.url}/mcp/works", json=body, headers=headers)
    assert wrong.status_code == 400 and "there is no family 'works'" in wrong.json()["message"]
    header = httpx2.post(f"{live.url}/mcp", json=body, headers=headers | {"X-Crewhall-Profile": "boss"})
    query = httpx2.post(f"{live.url}/mcp?profile=boss", json=body, headers=headers)
    assert header.status_code == query.status_code == 400 and header.json() == query.json()
    assert "there is no profile 'boss'" in query.json()["message"]


def test_a_profile_is_picked_by_header_or_query_and_the_query_counts(live: Live) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    headers = ACCEPT | {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list", "X-Crewhall-Profile": "worker"}

    def listed(query: str) -> list[str]:
        answer = httpx2.post(f"{live.url}/mcp{query}", json=body, headers=headers)
        return [tool["name"] for tool in answer.json()["result"]["tools"]]

    everything = names(live, **{"X-Crewhall-Profile": "all"})
    assert listed("?profile=all") == everything and "agent_token_create" in everything
    assert listed("") == listed("?profile=") == names(live, **{"X-Crewhall-Profile": "worker"}) != everything
    assert not any(live.hub.registry.find(name).changes for name in listed("/work?profile=readonly"))


@pytest.mark.parametrize("era", ERAS)
def test_an_unknown_tool_is_a_protocol_error_that_names_the_nearest(live: Live, era: str) -> None:
    answer = mcp(live, era, "tools/call", {"name": "agent_lists", "arguments": {}})
    assert answer["error"]["code"] == -32602
    assert "Did you mean 'agent_list'?" in answer["error"]["message"]


@pytest.mark.parametrize("era", ERAS)
def test_a_refusal_carries_its_fields_and_a_bug_carries_none(lab_hub: Live, era: str) -> None:
    refused = mcp(lab_hub, era, "tools/call", {"name": "lab_refuse", "arguments": {}})["result"]
    assert refused["isError"] is True
    assert refused["structuredContent"]["instance_id"] == "work-1-a1"
    assert refused["structuredContent"]["suggestions"] == ["wait"]
    broken = mcp(lab_hub, era, "tools/call", {"name": "lab_break", "arguments": {}})["result"]["structuredContent"]
    assert broken["code"] == "INTERNAL" and "secret detail" not in json.dumps(broken)


@pytest.mark.parametrize("era", ERAS)
def test_progress_reaches_the_client_in_order(lab_hub: Live, era: str) -> None:
    params: dict[str, Any] = {"name": "lab_count", "arguments": {}, "_meta": {"progressToken": "p"}}
    assert [one["message"] for one in progress(lab_hub, era, params)] == ["step 1", "step 2", "step 3"]


def progress(live: Live, era: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    """The progress notifications of a call, read from its stream."""
    if era == MODERN:
        params = params | {"_meta": META | params["_meta"]}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = ACCEPT | {"MCP-Protocol-Version": era}
    if era == MODERN:
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": params["name"]}
    answer = httpx2.post(f"{live.url}/mcp", json=message, headers=headers, timeout=30)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert events[-1]["result"]["isError"] is False
    return [event["params"] for event in events if event.get("method") == "notifications/progress"]


@sqlite
@pytest.mark.parametrize("era", ERAS)
def test_a_silent_call_still_shows_signs_of_life(serve: Serve, era: str) -> None:
    lab = SampleFamily()
    live = serve(tools=lab.registry, tool__progress="20ms")
    letting_go = threading.Timer(0.2, lab.proceed.set)

    def when_it_runs() -> None:
        assert lab.started.wait(20)
        letting_go.start()

    threading.Thread(target=when_it_runs).start()
    params: dict[str, Any] = {"name": "lab_quiet", "arguments": {}, "_meta": {"progressToken": 7}}
    beats = progress(live, era, params)
    assert len(beats) >= 2 and all(beat["message"] == "still running" for beat in beats)
    assert [beat["progress"] for beat in beats] == sorted({beat["progress"] for beat in beats})


@pytest.fixture
def quick_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are in the log soon after they ended."""
    monkeypatch.setattr(calls, "BATCH_SECONDS", 0.05)


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_goes_away_stops_its_call_and_undoes_it(serve: Serve, era: str, quick_log: None) -> None:
    lab = SampleFamily()
    live = serve(tools=lab.registry)
    meta = {"_meta": META} if era == MODERN else {}
    params = {"name": "lab_wait", "arguments": {}} | meta
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = ACCEPT | {"MCP-Protocol-Version": era, "Content-Type": "application/json"}
    if era == MODERN:
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "lab_wait"}
    post_and_leave(f"{live.url}/mcp", message, headers, lab)
    stopped_and_undone(live, lab)


def test_a_rest_client_that_goes_away_stops_its_call_and_undoes_it(serve: Serve, quick_log: None) -> None:
    lab = SampleFamily()
    live = serve(tools=lab.registry)
    post_and_leave(f"{live.url}/api/v1/lab/wait", "{}", {"Content-Type": "application/json"}, lab)
    stopped_and_undone(live, lab)


def post_and_leave(url: str, body: str, headers: dict[str, str], lab: SampleFamily) -> None:
    async def leave() -> None:
        async with httpx2.AsyncClient() as client, anyio.create_task_group() as group:
            group.start_soon(lambda: client.post(url, content=body, headers=headers, timeout=60))
            assert await anyio.to_thread.run_sync(lab.started.wait, 10)
            group.cancel_scope.cancel()

    anyio.run(leave)


def stopped_and_undone(live: Live, lab: SampleFamily) -> None:
    eventually(lambda: lab.ended == ["Cancelled"])
    with live.hub.store.read() as tx:
        assert tx.one("repository_get", path="/lab") is None
        assert tx.value("event_newest") == 0
    logged = eventually(lambda: logged_calls(live))
    assert [(row["tool"], row["error"]) for row in logged] == [("lab_wait", "CANCELLED")]


def logged_calls(live: Live) -> list[dict[str, Any]]:
    with live.hub.store.read() as tx:
        return tx.all("calls", tool=None, actor=None, success=None, at=2**53, id="", limit=100)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("era", ERAS)
def test_a_call_past_its_time_is_undone_and_says_so(shared_hubs: SharedHubs, kind: str, era: str) -> None:
    live = shared_hubs.find("short", kind, tools=SampleFamily().registry, tool__timeout="200ms")
    body = mcp(live, era, "tools/call", {"name": "lab_wait", "arguments": {}})["result"]["structuredContent"]
    assert body["code"] == "TIMED_OUT"
    with live.hub.store.read() as tx:
        assert tx.value("event_newest") == 0


def test_a_stopping_hub_finishes_what_runs(serve: Serve) -> None:
    lab = SampleFamily()
    live = serve(tools=lab.registry)
    answers: list[dict[str, Any]] = []
    ask = lambda: answers.append(mcp(live, MODERN, "tools/call", {"name": "lab_wait", "arguments": {}}))  # noqa: E731
    client = threading.Thread(target=ask)
    client.start()
    assert lab.started.wait(10)
    stopping = threading.Thread(target=live.stop)
    stopping.start()
    eventually(lambda: refuses(live))
    lab.proceed.set()
    client.join(10)
    stopping.join(20)
    assert answers[0]["result"]["structuredContent"] == {"success": True}
    with live.hub.store.read() as tx:
        assert tx.one("repository_get", path="/lab") is not None


def refuses(live: Live) -> bool:
    try:
        httpx2.get(f"{live.url}/api/openapi.json")
    except httpx2.TransportError:  # refused, or taken by the kernel just before and reset
        return True
    return False


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_connects_and_calls(live: Live, mode: str) -> None:
    async def use() -> None:
        headers = {"Authorization": f"Bearer {newcomer(live).token}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(f"{live.url}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                tools = await client.list_tools()
                assert "agent_heartbeat" in [tool.name for tool in tools.tools]
                result = await client.call_tool("agent_heartbeat", {})
                assert result.structured_content == {"success": True, "next_heartbeat_ms": 30_000}

    anyio.run(use)


def test_a_large_answer_arrives_whole(lab_hub: Live) -> None:
    for era in ERAS:
        result = mcp(lab_hub, era, "tools/call", {"name": "lab_big", "arguments": {"size": 3_000_000}})["result"]
        assert len(result["structuredContent"]["text"]) == 3_000_000
