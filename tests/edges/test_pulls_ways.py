"""Pull requests: the same body through every way in, one route that a seed asks for, and no header that helps."""

import json
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.fakehosts.faults import Fault
from crewhall.fakehosts.github import FakeGitHub
from crewhall.families.all import registry
from tests.conftest import Agent, Live
from tests.edges.forked_bridge import ForkedBridge
from tests.edges.interfaces import MODERN, Interface, announce, by_input, by_mcp, by_rest, by_words, http, mcp, run_here
from tests.edges.pulls import CHANGE, REPO, TOKEN, change, github, told_to_host
from tests.edges.raw_http import assert_refused
from tests.edges.stdio import hall_of

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
SCRIPT: list[tuple[str, dict[str, Any], str | None]] = [
    ("pulls_health", {}, None),
    ("pulls_health", {"tier": 3}, "INVALID_INPUT"),
    ("create_pr", {"title": "two\nlines"}, "INVALID_INPUT"),
    ("create_pr", {"tier": 3}, "INVALID_INPUT"),
    ("create_pr", {"files": [{"path": "checks/../CLAUDE.md", "content": ""}]}, "INVALID_INPUT"),
    ("create_pr", {"files": [{"path": "checks/b.md", "content": "", "mode": "100755"}]}, "INVALID_INPUT"),
    ("create_pr", {"files": [{"path": "CLAUDE.md", "content": ""}]}, "FORBIDDEN"),
    ("create_pr", {"files": [{"path": "notes/ü.md", "content": ""}]}, "FORBIDDEN"),
    ("create_pr", {"clone_url": "git@elsewhere.example:octo/{repo}.git"}, "UNAVAILABLE"),
    ("create_pr", {"base_branch": "nope"}, "NOT_FOUND"),
    ("create_pr", {}, None),
    ("create_pr", {}, "CONFLICT"),
    ("create_pr", {"title": "The same under another name"}, "CONFLICT"),
    ("list_prs", {}, None),
    ("list_prs", {"state": "all", "limit": 1, "offset": 0}, None),
    ("list_prs", {"state": "lost"}, "INVALID_INPUT"),
    ("list_prs", {"repo_name": "nope"}, "NOT_FOUND"),
    ("get_pr_status", {"pr_number": 1}, None),
    ("get_pr_status", {"pr_number": 2}, "NOT_FOUND"),
    ("get_pr_status", {"pr_number": 0}, "INVALID_INPUT"),
]
BASE = {"create_pr": CHANGE, "list_prs": REPO, "get_pr_status": REPO, "pulls_health": {}}
WAYS = ("mcp-2026", "mcp-2025", "rest", "prs", "words", "input", "bridge", "mcp-server")


def by_prs(live: Live, tool: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
    """At /api/v1/prs, where the seed has two of the tools; the others at their own routes."""
    headers = {"Authorization": f"Bearer {token}"}
    if tool == "create_pr":
        answer = http.post(f"{live.url}/api/v1/prs", json=arguments, headers=headers)
    elif tool == "list_prs":
        answer = http.get(f"{live.url}/api/v1/prs", params=arguments, headers=headers)
    else:
        return by_rest(live, tool, arguments, token)
    body: dict[str, Any] = answer.json()
    assert (answer.status_code == 200) == ("code" not in body)
    return body


@pytest.fixture
def host() -> Iterator[FakeGitHub]:
    with github("ops", *WAYS) as host:
        yield host


@pytest.fixture
def live(serve: Callable[..., Live], host: FakeGitHub) -> Live:
    return serve(pulls__github_url=host.url, pulls__github_token=TOKEN, pulls__pause=0.001)


@pytest.fixture
def interfaces(live: Live) -> Iterator[dict[str, Interface]]:
    environment = hall_of(live) | {"CREWHALL_TOKEN": live.token, "CLAUDEOPS_TIER": "3"}
    clients = {
        name: ForkedBridge(live.hub.settings.home, command=name, **environment) for name in ("mcp", "mcp-server")
    }
    clients["mcp-server"].initialize()

    def through(name: str) -> Interface:
        return lambda _, tool, arguments, token: clients[name].call(tool, **arguments)

    yield {
        "mcp-2026": by_mcp(MODERN),
        "mcp-2025": by_mcp("2025-06-18"),
        "rest": by_rest,
        "prs": by_prs,
        "words": by_words,
        "input": by_input,
        "bridge": through("mcp"),
        "mcp-server": through("mcp-server"),
    }
    for client in clients.values():
        client.close()


def told(live: Live, name: str, interface: Interface) -> list[Any]:
    """The script by one way, in a repository of its own, and without what differs from one pull to the next."""
    bodies = []
    for tool, given, code in SCRIPT:
        arguments = {**BASE[tool], **({"repo_name": name} if BASE[tool] else {}), **given}
        if "clone_url" in arguments:
            arguments["clone_url"] = arguments["clone_url"].format(repo=name)
        body = interface(live, tool, arguments, live.token)
        assert body.get("code") == code, (name, tool, given, body)
        bodies.append((tool, body))
    text = json.dumps(bodies).replace(f"octo/{name}", "octo/ops").replace(f"octo:{name}", "octo:ops")
    return [(tool, steady(body)) for tool, body in json.loads(text)]


def steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: steady(item) for key, item in value.items() if key not in ("commit", "rate_limit")}
    return [steady(item) for item in value] if isinstance(value, list) else value


def test_the_same_bodies_leave_by_every_way(live: Live, interfaces: dict[str, Interface]) -> None:
    assert set(interfaces) == set(WAYS)
    bodies = {name: told(live, name, interface) for name, interface in interfaces.items()}
    first = bodies.pop("rest")
    for name, others in bodies.items():
        for ours, theirs in zip(first, others, strict=True):
            assert ours == theirs, name


def test_the_script_has_good_and_bad_calls_of_every_tool_of_the_family(live: Live) -> None:
    wanted = {tool.name for tool in registry().tools if tool.family == "pulls"}
    assert {tool for tool, _, code in SCRIPT if code is None} == wanted
    assert {tool for tool, _, code in SCRIPT if code is not None} == wanted


# The route that the seed asks for


def test_what_is_wrong_at_the_seeds_route_is_refused_and_nothing_is_sent(live: Live, host: FakeGitHub) -> None:
    url, mine = f"{live.url}/api/v1/prs", {"Authorization": f"Bearer {live.token}"}
    for method in ("PUT", "PATCH", "DELETE"):
        assert_refused(live, http.request(method, url, json=CHANGE, headers=mine), 405, "INVALID_INPUT")
    for about, asked in {
        "'tier'": http.post(url, json=CHANGE | {"tier": 3}, headers=mine),
        "'CLAUDEOPS_TIER'": http.post(url, json=CHANGE | {"CLAUDEOPS_TIER": "3"}, headers=mine),
        "'dry_run'": http.post(url, json=CHANGE | {"dry_run": False}, headers=mine),
        "query": http.post(f"{url}?tier=3", json=CHANGE, headers=mine),
        "x-www-form": http.post(url, data={"title": "x"}, headers=mine),
        "not JSON": http.post(url, content="{", headers=mine | {"Content-Type": "application/json"}),
        "object": http.post(url, json=[CHANGE], headers=mine),
        "'repo_owner'": http.request("GET", url, json=REPO, headers=mine),
        "'title'": http.get(url, params={key: CHANGE[key] for key in (*REPO, "title")}, headers=mine),
    }.items():
        assert about in assert_refused(live, asked, 400, "INVALID_INPUT")["message"], asked.text
    assert_refused(live, http.post(url, json=CHANGE, headers={"Authorization": "Bearer wrong"}), 401, "FORBIDDEN")
    assert_refused(
        live, http.post(url, json=CHANGE, headers=mine | {"Origin": "http://evil.example"}), 403, "FORBIDDEN"
    )
    assert host.exchanges == []


def test_the_seeds_route_is_in_openapi_and_takes_head(live: Live, host: FakeGitHub) -> None:
    paths = http.get(f"{live.url}/api/openapi.json").json()["paths"]
    assert set(paths["/api/v1/prs"]) == {"post", "get"}
    for method, tool in (("post", "create"), ("get", "list")):
        at, own = paths["/api/v1/prs"][method], paths[f"/api/v1/pr/{tool}"][method]
        assert {**at, "operationId": ""} == {**own, "operationId": ""}
    head = http.head(f"{live.url}/api/v1/prs", params=REPO)
    assert (head.status_code, head.text) == (200, "") and len(host.exchanges) == 2


# No header helps

RAISING = (
    {"X-Crewhall-Variables": urllib.parse.quote('{"CLAUDEOPS_TIER": "3", "CLAUDEOPS_DRY_RUN": "false"}')},
    {"X-Crewhall-Variables": '{"CLAUDEOPS_TIER": "3"}'},
    {"CLAUDEOPS_TIER": "3", "CLAUDEOPS-TIER": "3"},
    {"X-Crewhall-Tier": "3", "X-CLAUDEOPS-TIER": "3", "X-CLAUDEOPS_TIER": "3"},
    {"X-Crewhall-Bridge": "br_1", "X-Crewhall-Variables": urllib.parse.quote('{"CLAUDEOPS_TIER": "3"}')},
)


def test_no_header_raises_a_tier(serve: Callable[..., Live], host: FakeGitHub) -> None:
    """Whoever asks by HTTP: an agent, a process of the operator's, the operator's token where that has tier 2."""
    live = serve(pulls__github_url=host.url, pulls__github_token=TOKEN, pulls__operator_tier=2, pulls__dry_run="yes")
    for token, tier in ((Agent(live.hub).token, 1), (None, 1), (live.token, 2)):
        who = {} if token is None else {"Authorization": f"Bearer {token}"}
        for headers in RAISING:
            for health in (by_header(live, "rest", headers | who), by_header(live, MODERN, headers | who)):
                assert (health["tier"], health["dry_run"]) == (tier, True), (token, headers)
            created = http.post(f"{live.url}/api/v1/prs", json=change("Four", 4), headers=headers | who).json()
            assert created["code"] == "FORBIDDEN" and created["message"].startswith(f"tier {tier} agents"), created
    assert {exchange.path for exchange in host.exchanges} == {"/rate_limit"}


def by_header(live: Live, edge: str, headers: dict[str, str]) -> dict[str, Any]:
    """What pulls_health says to a request with these headers."""
    if edge == "rest":
        body: dict[str, Any] = http.post(f"{live.url}/api/v1/pr/health", json={}, headers=headers).json()
        return body
    found: dict[str, Any] = mcp(live, edge, "tools/call", {"name": "pulls_health", "arguments": {}}, **headers)
    told: dict[str, Any] = found["result"]["structuredContent"]
    return told


def test_an_agent_names_no_host_and_no_token_by_a_header(live: Live, host: FakeGitHub) -> None:
    """Else it could have the hub call any address. The operator may: the command line does."""
    own = {"GITHUB_TOKEN": "ghp_mine", "GITEA_URL": host.url, "GITEA_TOKEN": "gt_mine"}
    told = {"X-Crewhall-Variables": urllib.parse.quote(json.dumps(own))}
    host.tokens["ghp_mine"] = "ada"
    for token, known in ((Agent(live.hub).token, (TOKEN, False)), (live.token, ("ghp_mine", True))):
        host.exchanges.clear()
        health = by_header(live, "rest", told | {"Authorization": f"Bearer {token}"})
        shown = told_to_host(host) - {"gt_mine"}
        assert (shown, health["providers"][1]["enabled"]) == ({known[0]}, known[1])


def test_a_header_that_says_nothing_is_passed_over(live: Live) -> None:
    for text in ("", "{", "[]", "null", '"x"', '{"CLAUDEOPS_TIER": 2}', "[" * 5000, "%ff%00"):
        headers = {"Authorization": f"Bearer {live.token}", "X-Crewhall-Variables": urllib.parse.quote(text, safe="%")}
        assert by_header(live, "rest", headers)["tier"] == 3, text


def test_checks_that_a_token_may_not_see_are_unknown_and_the_rest_is_told(live: Live, host: FakeGitHub) -> None:
    """GitHub's fine-grained tokens have no permission for the checks of a private repository."""
    by_rest(live, "create_pr", CHANGE, live.token)
    words = {"message": "Resource not accessible by personal access token"}
    host.fail(Fault(path="/check-runs", status=403, body=words))
    status = by_rest(live, "get_pr_status", REPO | {"pr_number": 1}, live.token)
    assert (status["state"], status["checks_state"], len(status["files"])) == ("open", "unknown", 1)
    assert by_rest(live, "get_pr_status", REPO | {"pr_number": 1}, live.token)["checks_state"] == "none"


# The command line


def test_a_commands_own_environment_holds_it_back(live: Live, host: FakeGitHub, tmp_path: Path) -> None:
    (tmp_path / "files.json").write_text(json.dumps(CHANGE["files"]))
    title, text = CHANGE["title"], CHANGE["body"]
    words = ["pr", "create", "octo", "ops", title, text, f"@{tmp_path / 'files.json'}", "check"]
    home = ["--home", str(announce(live)), "--json"]
    run = lambda **environment: run_here([*home, *words], CREWHALL_TOKEN=live.token, **environment)  # noqa: E731
    for tier in ("1", "", "four", "0"):
        code, out = run(CLAUDEOPS_TIER=tier)
        assert (code, json.loads(out)["message"]) == (4, "tier 1 agents cannot create PRs; minimum tier is 2"), tier
    code, out = run(CLAUDEOPS_DRY_RUN="1")
    plan = json.loads(out)
    assert (code, plan["dry_run"], plan["files"][0]["path"], plan["number"]) == (0, True, "checks/b.md", None)
    assert host.exchanges == []
    code, out = run(CLAUDEOPS_TIER="2", CLAUDEOPS_DRY_RUN="0", GITHUB_TOKEN="${GITHUB_TOKEN}")
    assert (code, json.loads(out)["number"]) == (0, 1)
    assert run()[0] == 5, "a second one for the same change"
