"""Resources, prompts and completion as a client meets them, in both eras."""

import json
from typing import Annotated, Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import PromptReference

from crewhall.app import Call
from crewhall.declaration import Suggest
from crewhall.edges.mcp.resources import addresses, is_told
from crewhall.errors import InvalidState
from crewhall.families.all import registry
from crewhall.families.work.family import work
from crewhall.families.work.model import Done
from crewhall.identity import OPERATOR
from crewhall.store import calls
from crewhall.tool import Family, Registry
from tests.conftest import BOTH, Agent, Live, eventually
from tests.edges.conftest import SharedHubs, newcomer
from tests.edges.interfaces import ACCEPT, META, MODERN, mcp
from tests.edges.raw_http import ERAS, assert_alive
from tests.edges.sample_arguments import furnish

sqlite = pytest.mark.parametrize("live", ["sqlite"], indirect=True)
on_both = pytest.mark.parametrize("kind", BOTH)
each_era = pytest.mark.parametrize("era", ERAS)
AGENT = "crewhall://agents/{id}"


@pytest.fixture(params=BOTH)
def live(request: pytest.FixtureRequest, shared_hubs: SharedHubs) -> Live:
    """The module's hub on each database: what one test leaves there does not matter to the others."""
    return shared_hubs.find("hall", request.param)


@pytest.fixture
def shelves(shared_hubs: SharedHubs) -> Live:
    """A hub with the shelf, for as many tests."""
    return shared_hubs.find("shelf", "sqlite", tools=shelf())


def shelf() -> Registry:
    """The family work, and one whose resources refuse, break, report, and are not for everyone."""
    family = Family("shelf", "Resources for tests.", "tests")
    family.queries = ""

    @family.tool("shelf_refuse", profiles=("standard",), resources=("crewhall://shelf/refuse",))
    def shelf_refuse(call: Call) -> Done:
        """Refuse."""
        raise InvalidState("it is not the time", hint="Come back later.", suggestions=["wait"])

    @family.tool("shelf_break", profiles=("standard",), resources=("crewhall://shelf/break",))
    def shelf_break(call: Call) -> Done:
        """Fail with a bug."""
        raise ZeroDivisionError("secret detail")

    @family.tool("shelf_count", profiles=("standard",), resources=("crewhall://shelf/count",))
    def shelf_count(call: Call) -> Done:
        """Report progress."""
        call.progress(1, 1, "half way")
        return Done(success=True)

    @family.tool(
        "shelf_own", who=("operator",), resources=("crewhall://shelf/own", "crewhall://shelf/own/{book}/{page}")
    )
    def shelf_own(call: Call, book: Annotated[str, Suggest("agent_ids")] = "", page: int = 0) -> dict[str, Any]:
        """What is the operator's alone."""
        return {"book": book, "page": page}

    @family.prompt("shelf_tidy")
    def shelf_tidy() -> str:
        """Tidy the shelf."""
        return "Tidy the shelf."

    return Registry([work, family])


def bearer(agent: Agent) -> dict[str, str]:
    return {"Authorization": f"Bearer {agent.token}"}


def read(live: Live, era: str, uri: str, **headers: str) -> Any:
    """What stands at an address."""
    (content,) = mcp(live, era, "resources/read", {"uri": uri}, **headers)["result"]["contents"]
    assert content["uri"] == uri and content["mimeType"] == "application/json"
    return json.loads(content["text"])


def refusal(answer: dict[str, Any], code: int, kind: str) -> dict[str, Any]:
    """The body in a protocol error, which says what to do next."""
    error = answer["error"]
    body: dict[str, Any] = error["data"]
    assert (error["code"], body["code"], body["error"]) == (code, kind, kind), error
    assert error["message"] == f"{body['message']}. {body['hint']}" and isinstance(body["recoverable"], bool)
    return body


def not_read(live: Live, era: str, uri: str, code: int, kind: str, **headers: str) -> dict[str, Any]:
    return refusal(mcp(live, era, "resources/read", {"uri": uri}, **headers), code, kind)


def listed(live: Live, era: str, **headers: str) -> list[str]:
    """The addresses and prompts that a caller is shown."""
    fixed = mcp(live, era, "resources/list", {}, **headers)["result"]["resources"]
    templates = mcp(live, era, "resources/templates/list", {}, **headers)["result"]["resourceTemplates"]
    prompts = mcp(live, era, "prompts/list", {}, **headers)["result"]["prompts"]
    return [one["uri"] for one in fixed] + [one["uriTemplate"] for one in templates] + [one["name"] for one in prompts]


OF_WORK = [
    "crewhall://agents",
    "crewhall://events",
    "crewhall://repositories",
    "crewhall://templates",
    "crewhall://workflows",
    "crewhall://agents/{id}",
    "crewhall://tasks/{task_id}/checkpoints",
    "crewhall://events/{after}",
    "crewhall://agents/{agent_id}/inbox",
    "crewhall://tasks/{id}",
    "crewhall://workflows/{workflow_id}/tasks",
    "crewhall://tasks/{task_id}/context",
    "crewhall://templates/{id}",
    "crewhall://workflows/{id}",
    "crewhall://workflows/{id}/summary",
    "crewhall://workflows/{workflow_id}/progress",
    "crewhall://workflows/{workflow_id}/workspaces",
    "join_hall",
    "plan_workflow",
    "take_next_task",
    "resume_task",
    "catch_up",
    "leave_hall",
]
FIRST_PROMPT = OF_WORK.index("join_hall")
OF_ALL = [
    *OF_WORK[: OF_WORK.index("crewhall://agents/{id}")],
    "crewhall://instances",
    *OF_WORK[OF_WORK.index("crewhall://agents/{id}") : FIRST_PROMPT],
    *("crewhall://instances/{id}", "crewhall://reports/{id}"),
    *OF_WORK[FIRST_PROMPT:],
]


@sqlite
@each_era
def test_the_lists_have_a_fixed_order_descriptions_and_a_time_to_live(live: Live, era: str) -> None:
    assert listed(live, era) == listed(live, era) == OF_ALL
    for method in ("resources/list", "resources/templates/list", "prompts/list"):
        result = mcp(live, era, method, {})["result"]
        (items,) = (value for value in result.values() if isinstance(value, list))
        assert all(item["name"] and item["description"] for item in items)
        if era == MODERN:
            assert result["ttlMs"] > 0 and result["cacheScope"] == "private"


@sqlite
def test_what_is_read_is_stale_at_once(live: Live) -> None:
    result = mcp(live, MODERN, "resources/read", {"uri": "crewhall://agents"})["result"]
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


@sqlite
def test_both_eras_are_told_of_resources_prompts_and_completion(live: Live) -> None:
    told = mcp(live, MODERN, "server/discover", {})["result"]["capabilities"]
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    for capabilities in (told, mcp(live, "2025-06-18", "initialize", client)["result"]["capabilities"]):
        assert {"tools", "resources", "prompts", "completions"} <= set(capabilities)


@each_era
def test_a_resource_is_the_body_of_its_tool(live: Live, era: str) -> None:
    ada = live.hub.call("agent_register", {"name": "ada ü", "runtime": "codex"}, OPERATOR)["id"]
    live.hub.call("repository_register", {"path": "/srv/app"}, OPERATOR)
    for uri, tool, arguments in (
        ("crewhall://agents", "agent_list", {}),
        (f"crewhall://agents/{ada}", "agent_get", {"id": ada}),
        (f"crewhall://agents/%61%67{ada[2:]}", "agent_get", {"id": ada}),
        ("crewhall://repositories", "repository_list", {}),
        ("crewhall://events", "event_list", {}),
        ("crewhall://events/1", "event_list", {"after": 1}),
    ):
        assert read(live, era, uri) == live.hub.call(tool, arguments, OPERATOR), uri


@each_era
def test_what_is_not_there_is_a_wrong_parameter_that_repeats_its_address(live: Live, era: str) -> None:
    for uri, message in {
        "crewhall://nothing": "there is no resource 'crewhall://nothing'",
        "crewhall://agents/a/b": "there is no resource 'crewhall://agents/a/b'",
        "crewhall://agents/ag_1?x=1": "there is no resource",
        "Crewhall://agents": "there is no resource",
        AGENT: "there is no agent '{id}'",
        "crewhall://agents/ag_nobody": "there is no agent 'ag_nobody'",
        "crewhall://agents/a%2Fb": "there is no agent 'a/b'",
    }.items():
        body = not_read(live, era, uri, -32602, "NOT_FOUND")
        assert message in body["message"] and body["uri"] == uri


@sqlite
@each_era
def test_a_variable_is_typed_as_its_argument_and_refused_by_the_tool(live: Live, era: str) -> None:
    for after in ("x", "-1", "1.5", "[1]", "9" * 40, "9" * 5000):
        body = not_read(live, era, f"crewhall://events/{after}", -32602, "INVALID_INPUT")
        assert body["tool_name"] == "event_list" and "argument 'after'" in body["message"]


HOSTILE = {
    "crewhall://agents/%2e%2e": "NOT_FOUND",
    "crewhall://agents/..": "NOT_FOUND",
    "crewhall://agents/%2e%2e%2fevents": "NOT_FOUND",
    "crewhall://agents/": "NOT_FOUND",
    "crewhall://agents/%": "NOT_FOUND",
    "crewhall://agents/%ff": "NOT_FOUND",
    "crewhall://agents/%ed%a0%80": "NOT_FOUND",
    "crewhall://agents/' OR 1=1 --": "NOT_FOUND",
    "crewhall://agents/%00": "INVALID_INPUT",
    "crewhall://agents/\0": "INVALID_INPUT",
    "crewhall://agents/" + "x" * 101: "INVALID_INPUT",
    "crewhall://agents/" + "x" * 1_000_000: "NOT_FOUND",
    "crewhall://" + "/" * 1_000_000: "NOT_FOUND",
    "file:///etc/passwd": "NOT_FOUND",
    "http://127.0.0.1/": "NOT_FOUND",
    "": "NOT_FOUND",
    "crewhall://ägents": "NOT_FOUND",
}


@each_era
def test_a_hostile_address_is_refused_with_a_short_answer(live: Live, era: str) -> None:
    for uri, kind in HOSTILE.items():
        if era == MODERN and len(uri) > 10_000:
            continue  # no header is that long
        assert len(json.dumps(not_read(live, era, uri, -32602, kind))) < 3000, uri[:100]
    assert_alive(live)


@sqlite
def test_half_a_surrogate_pair_is_refused_wherever_it_stands(live: Live) -> None:
    """The SDK's 2025-era parser refuses it before us, and no header can say it."""
    half = "\ud800"
    asked: list[tuple[str, dict[str, Any]]] = [
        ("prompts/get", {"name": "join_hall", "arguments": {"name": half}}),
        ("prompts/get", {"name": "join_hall", "arguments": {half: "x"}}),
        ("completion/complete", completing({"type": "ref/prompt", "name": half}, "name", "")),
        ("completion/complete", completing({"type": "ref/resource", "uri": AGENT}, "id", half)),
    ]
    for method, params in asked:
        body = refusal(mcp(live, MODERN, method, params), -32602, "INVALID_INPUT")
        assert "half of a surrogate" in body["message"]
        assert mcp(live, ERAS[1], method, params)["error"]["code"] == -32700
    address = {"uri": f"crewhall://agents/{half}"}
    assert [mcp(live, era, "resources/read", address)["error"]["code"] for era in ERAS] == [-32020, -32700]
    assert_alive(live)


@each_era
def test_other_failures_are_faults_that_carry_their_body(shelves: Live, era: str) -> None:
    body = not_read(shelves, era, "crewhall://shelf/refuse", -32603, "INVALID_STATE")
    assert body["suggestions"] == ["wait"] and body["tool_name"] == "shelf_refuse"
    broken = not_read(shelves, era, "crewhall://shelf/break", -32603, "INTERNAL")
    assert "secret detail" not in json.dumps(broken)


@each_era
def test_a_caller_is_shown_what_it_may_read_of_the_families_it_chose(shelves: Live, era: str) -> None:
    worker = bearer(newcomer(shelves))
    own = {"crewhall://shelf/own", "crewhall://shelf/own/{book}/{page}"}
    assert own | set(OF_WORK) < set(listed(shelves, era))
    assert not own & set(listed(shelves, era, **worker))
    assert "crewhall://events" in listed(shelves, era, **worker), "a profile shortens the list of tools alone"
    assert listed(shelves, era, **worker, **{"X-Crewhall-Families": "work"}) == OF_WORK
    of_shelf = listed(shelves, era, **worker, **{"X-Crewhall-Families": "shelf"})
    assert of_shelf == [f"crewhall://shelf/{name}" for name in ("break", "count", "refuse")] + ["shelf_tidy"]


@each_era
def test_families_and_profiles_shorten_lists_and_the_door_says_who_may_read(shelves: Live, era: str) -> None:
    worker = bearer(newcomer(shelves))
    body = not_read(shelves, era, "crewhall://shelf/own", -32603, "FORBIDDEN", **worker)
    assert body["tool_name"] == "shelf_own"
    assert read(shelves, era, "crewhall://shelf/own/a%2Fb/7") == {"book": "a/b", "page": 7}
    assert "events" in read(shelves, era, "crewhall://events", **worker)
    assert "agents" in read(shelves, era, "crewhall://agents", **{"X-Crewhall-Profile": "readonly"})
    assert "agents" in read(shelves, era, "crewhall://agents", **{"X-Crewhall-Families": "shelf"})
    revoked = {"Authorization": "Bearer ch_agent_nobody"}
    assert mcp(shelves, era, "resources/read", {"uri": "crewhall://agents"}, **revoked)["code"] == "FORBIDDEN"


@each_era
def test_a_read_is_in_the_call_log_under_its_tool(live: Live, era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "BATCH_SECONDS", 0.05)
    worker = newcomer(live)
    read(live, era, "crewhall://repositories", **bearer(worker))
    not_read(live, era, "crewhall://agents/ag_nobody", -32602, "NOT_FOUND", **bearer(worker))

    def rows() -> list[tuple[Any, ...]]:
        with live.hub.store.read() as tx:
            found = tx.all("calls", tool=None, actor=worker.id, success=None, at=2**53, id="", limit=10)
        return sorted((row["tool"], row["edge"], row["error"]) for row in found)

    expected = [("agent_get", "mcp", "NOT_FOUND"), ("repository_list", "mcp", None)]
    eventually(lambda: rows() == expected)


@each_era
def test_a_read_reports_its_progress(shelves: Live, era: str) -> None:
    uri, meta = "crewhall://shelf/count", {"progressToken": "p"} | (META if era == MODERN else {})
    message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri, "_meta": meta}}
    headers = ACCEPT | {"MCP-Protocol-Version": era, "Mcp-Method": "resources/read", "Mcp-Name": uri}
    assert "half way" in httpx2.post(f"{shelves.url}/mcp", json=message, headers=headers, timeout=30).text


@pytest.mark.parametrize(
    ("what", "subject", "touched"),
    [
        ("agent.registered", "ag_1", {"crewhall://agents", "crewhall://agents/ag_1", "crewhall://events"}),
        ("agent.token_made", "a/b ü", {"crewhall://agents", "crewhall://agents/a%2Fb%20%C3%BC", "crewhall://events"}),
        ("repository.renamed", "rp_1", {"crewhall://repositories", "crewhall://events"}),
        ("unheard.of", "x", {"crewhall://events"}),
        ("event", "7", {"crewhall://events"}),
        ("", "", {"crewhall://events"}),
    ],
)
def test_an_event_touches_its_nouns_resources_its_subject_and_the_log(
    what: str, subject: str, touched: set[str]
) -> None:
    assert addresses(registry(), what, subject) == touched


def at(*places: str) -> set[str]:
    return {f"crewhall://{place}" for place in (*places, "events")}


WORKFLOW = ("workflows", "workflows/w", "workflows/w/summary", "workflows/w/tasks", "workflows/w/progress")
OWNED = [
    ("message.sent", "m", ("a", "b"), at("agents/a/inbox", "agents/b/inbox")),
    ("task.claimed", "t", ("w",), at(*WORKFLOW, "tasks/t", "tasks/t/checkpoints", "workflows/w/workspaces")),
    ("checkpoint.added", "t", ("w",), at("workflows", "workflows/w", "workflows/w/summary", "tasks/t/checkpoints")),
    ("workflow.updated", "w", (), at(*WORKFLOW, "workflows/w/workspaces")),
    ("review.feedback", "i", (), at("instances", "instances/i")),
]


@pytest.mark.parametrize(("what", "subject", "owners", "touched"), OWNED)
def test_an_event_touches_what_its_owners_show(
    what: str, subject: str, owners: tuple[str, ...], touched: set[str]
) -> None:
    found = addresses(registry(), what, subject, owners)
    assert touched <= found and len(found - touched) <= 2, found - touched
    assert all(is_told(registry(), uri) for uri in found)


# Prompts


def got(live: Live, era: str, name: str, /, **arguments: str) -> str:
    """The text of a prompt, which is one message of the person's."""
    (message,) = mcp(live, era, "prompts/get", {"name": name, "arguments": arguments})["result"]["messages"]
    assert message["role"] == "user" and message["content"]["type"] == "text"
    text: str = message["content"]["text"]
    return text


@sqlite
@each_era
def test_a_prompt_lists_its_arguments(live: Live, era: str) -> None:
    prompts = mcp(live, era, "prompts/list", {})["result"]["prompts"]
    joining = next(prompt for prompt in prompts if prompt["name"] == "join_hall")
    assert [(one["name"], one["required"]) for one in joining["arguments"]] == [
        ("name", True),
        ("runtime", False),
        ("role", False),
    ]
    assert all(one["description"] for prompt in prompts for one in prompt["arguments"])


@sqlite
@each_era
def test_a_prompt_says_what_to_call_with_the_values_it_was_given(live: Live, era: str) -> None:
    joining = got(live, era, "join_hall", name='ada "the 1st"', runtime="codex")
    assert r'agent_register(name="ada \"the 1st\"", runtime="codex", role="worker"' in joining
    assert "event_list(after=7, limit=100)" in got(live, era, "catch_up", after="7")
    assert 'event_list(after=0, limit=100, actor="ag_1")' in got(live, era, "catch_up", actor="ag_1")
    assert 'agent_unregister(id="ag_1")' in got(live, era, "leave_hall", agent_id="ag_1")
    assert "agent_unregister(id=your agent id" in got(live, era, "leave_hall")


NO_PROMPT: list[tuple[str, dict[str, str], str, str]] = [
    ("join_hal", {}, "NOT_FOUND", "there is no prompt 'join_hal'"),
    ("agent_list", {}, "NOT_FOUND", "there is no prompt 'agent_list'"),
    ("join_hall", {}, "INVALID_INPUT", "missing argument 'name'"),
    ("join_hall", {"name": ""}, "INVALID_INPUT", "argument 'name'"),
    ("join_hall", {"name": "x" * 201}, "INVALID_INPUT", "argument 'name'"),
    ("join_hall", {"name": "a\0b"}, "INVALID_INPUT", "a text holds a NUL character"),
    ("join_hall", {"name": "a", "runtime": "emacs"}, "INVALID_INPUT", "argument 'runtime'"),
    ("join_hall", {"name": "a", "runtimes": "codex"}, "INVALID_INPUT", "did you mean 'runtime'?"),
    ("catch_up", {"after": "soon"}, "INVALID_INPUT", "argument 'after'"),
    ("catch_up", {"after": "-1"}, "INVALID_INPUT", "argument 'after'"),
    ("catch_up", {"after": "NaN"}, "INVALID_INPUT", "argument 'after'"),
]


@sqlite
@each_era
def test_a_prompt_that_cannot_be_made_says_why(live: Live, era: str) -> None:
    for name, arguments, kind, message in NO_PROMPT:
        body = refusal(mcp(live, era, "prompts/get", {"name": name, "arguments": arguments}), -32602, kind)
        assert message in body["message"]


# Completion


def completing(ref: dict[str, str], name: str, value: str) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": name, "value": value}}


def completed(live: Live, era: str, ref: str, name: str, value: str, **headers: str) -> dict[str, Any]:
    """The whole answer to a completion, of a resource when the reference is an address."""
    named = {"type": "ref/resource", "uri": ref} if "://" in ref else {"type": "ref/prompt", "name": ref}
    return mcp(live, era, "completion/complete", completing(named, name, value), **headers)


def suggested(live: Live, era: str, ref: str, name: str, value: str) -> list[str]:
    completion = completed(live, era, ref, name, value)["result"]["completion"]
    assert completion["total"] == len(completion["values"]) and completion["hasMore"] is False
    values: list[str] = completion["values"]
    return values


@sqlite
@each_era
def test_what_is_one_of_a_few_words_completes_from_them(live: Live, era: str) -> None:
    runtimes = ["claude_code", "codex", "gemini", "opencode", "custom"]
    assert suggested(live, era, "join_hall", "runtime", "") == runtimes
    assert suggested(live, era, "join_hall", "runtime", "c") == ["claude_code", "codex", "custom"]
    assert suggested(live, era, "join_hall", "runtime", "emacs") == []
    assert suggested(live, era, "join_hall", "name", "a") == []
    assert suggested(live, era, "catch_up", "after", "1") == []
    assert suggested(live, era, "crewhall://events/{after}", "after", "1") == []


def four_agents(live: Live) -> dict[str, str]:
    return {
        name: live.hub.call("agent_register", {"name": name, "runtime": "codex"}, OPERATOR)["id"]
        for name in ("ada", "adam", "übel", "a%b")
    }


@each_era
@on_both
def test_an_agent_completes_by_its_id_or_its_name(shared_hubs: SharedHubs, kind: str, era: str) -> None:
    live, ids = shared_hubs.furnished(kind, four_agents)
    for ref, argument in ((AGENT, "id"), ("catch_up", "actor"), ("leave_hall", "agent_id")):
        assert set(suggested(live, era, ref, argument, "")) == set(ids.values())
        assert set(suggested(live, era, ref, argument, "ada")) == {ids["ada"], ids["adam"]}
        assert suggested(live, era, ref, argument, "üb") == [ids["übel"]]
        assert suggested(live, era, ref, argument, ids["adam"][:-1]) == [ids["adam"]]
        assert suggested(live, era, ref, argument, "a%") == [ids["a%b"]]
        for nothing in ("_d", "ad_", "' OR 1=1 --", "ada" * 100_000):
            assert suggested(live, era, ref, argument, nothing) == []


def two_workflows(live: Live) -> list[tuple[str, str, dict[str, str]]]:
    """A reference, its argument, and all ids that it may be, by name."""

    def ask(tool: str, **arguments: Any) -> dict[str, Any]:
        return live.hub.call(tool, arguments, OPERATOR)

    workflow, other = (
        ask("workflow_create", name=name, source_type="prompt", source_content="x")["id"] for name in ("shop", "boat")
    )
    tasks = [{"name": name, "description": "", "sequence": 1} for name in ("api", "app", "übung")]
    ask("workflow_set_plan", id=workflow, plan={"summary": "", "approach": "", "tasks": tasks})
    named = {task["name"]: task["id"] for task in ask("task_list", workflow_id=workflow)["tasks"]}
    template = ask("template_create", name="again", from_workflow_id=workflow)["id"]
    return [
        ("resume_task", "task_id", named),
        ("crewhall://tasks/{task_id}/context", "task_id", named),
        ("take_next_task", "workflow_id", {"shop": workflow, "boat": other}),
        ("crewhall://workflows/{id}/summary", "id", {"shop": workflow, "boat": other}),
        ("crewhall://templates/{id}", "id", {"again": template}),
    ]


@each_era
@on_both
def test_workflows_tasks_and_templates_complete_by_id_or_name(shared_hubs: SharedHubs, kind: str, era: str) -> None:
    live, completions = shared_hubs.furnished(kind, two_workflows)
    for ref, argument, known in completions:
        assert set(suggested(live, era, ref, argument, "")) == set(known.values())
        for name, found in known.items():
            assert suggested(live, era, ref, argument, name) == [found]
            assert suggested(live, era, ref, argument, found[:-1]) == [found]
    tasks = completions[0][2]
    assert set(suggested(live, era, "resume_task", "task_id", "ap")) == {tasks["api"], tasks["app"]}


@each_era
def test_what_an_agent_wants_to_look_at_is_a_resource(live: Live, era: str) -> None:
    ids = furnish(live.hub)
    for uri, tool, arguments in (
        (f"crewhall://workflows/{ids['wf']}", "workflow_get", {"id": ids["wf"]}),
        (f"crewhall://workflows/{ids['wf']}/summary", "workflow_get_summary", {"id": ids["wf"]}),
        (f"crewhall://workflows/{ids['wf']}/workspaces", "workspace_list", {"workflow_id": ids["wf"]}),
        (f"crewhall://tasks/{ids['tk']}", "task_get", {"id": ids["tk"]}),
        (f"crewhall://tasks/{ids['tk']}/context", "task_load_context", {"task_id": ids["tk"]}),
        (f"crewhall://agents/{ids['ag']}/inbox", "message_list", {"agent_id": ids["ag"]}),
        (f"crewhall://templates/{ids['tp']}", "template_get", {"id": ids["tp"]}),
    ):
        assert read(live, era, uri) == live.hub.call(tool, arguments, OPERATOR), uri


def a_hundred_and_one_agents(live: Live) -> list[str]:
    return [live.hub.call("agent_register", {"name": "a", "runtime": "codex"}, OPERATOR)["id"] for _ in range(101)]


@each_era
@on_both
def test_a_hundred_values_are_shown_and_all_are_counted(shared_hubs: SharedHubs, kind: str, era: str) -> None:
    live, ids = shared_hubs.furnished(kind, a_hundred_and_one_agents)
    assert len(suggested(live, era, AGENT, "id", ids[-1])) == 1
    completion = completed(live, era, AGENT, "id", "ag_")["result"]["completion"]
    assert len(set(completion["values"])) == 100 and set(completion["values"]) < set(ids)
    assert (completion["total"], completion["hasMore"]) == (101, True)


@each_era
def test_a_completion_of_nothing_says_why(live: Live, era: str) -> None:
    for ref, argument, kind, message in (
        ("join_hal", "name", "NOT_FOUND", "there is no prompt 'join_hal'"),
        ("crewhall://agents/ag_1", "id", "NOT_FOUND", "there is no resource"),
        ("crewhall://nothing/{id}", "id", "NOT_FOUND", "there is no resource"),
        ("crewhall://agents", "status", "INVALID_INPUT", "unknown argument 'status'"),
        (AGENT, "call", "INVALID_INPUT", "unknown argument 'call'"),
        ("join_hall", "return", "INVALID_INPUT", "unknown argument 'return'"),
    ):
        assert message in refusal(completed(live, era, ref, argument, ""), -32602, kind)["message"]
    refusal(completed(live, era, AGENT, "id", "a\0"), -32602, "INVALID_INPUT")


@each_era
def test_no_one_completes_what_it_may_not_read(shelves: Live, era: str) -> None:
    worker = newcomer(shelves)
    own = "crewhall://shelf/own/{book}/{page}"
    agents = [agent["id"] for agent in shelves.hub.call("agent_list", {}, OPERATOR)["agents"]]
    assert worker.id in agents and set(suggested(shelves, era, own, "book", "")) == set(agents)
    refusal(completed(shelves, era, own, "book", "", **bearer(worker)), -32602, "NOT_FOUND")


@sqlite
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_reads_prompts_and_completes(live: Live, mode: str) -> None:
    ada = newcomer(live)

    async def use() -> None:
        async with httpx2.AsyncClient(headers=bearer(ada)) as http:
            transport = streamable_http_client(f"{live.url}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                (content,) = (await client.read_resource(f"crewhall://agents/{ada.id}")).contents
                assert json.loads(content.model_dump()["text"])["name"].startswith("newcomer ")
                prompt = await client.get_prompt("join_hall", {"name": "ada"})
                assert prompt.messages[0].role == "user"
                found = await client.complete(PromptReference(name="join_hall"), {"name": "role", "value": "w"})
                assert found.completion.values == ["worker"]

    anyio.run(use)
