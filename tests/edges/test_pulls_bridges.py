"""Pull requests through bridges: what a client's own environment decides for its calls, and for nobody else's."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from crewhall.fakehosts.faults import Fault
from crewhall.fakehosts.gitea import FakeGitea
from crewhall.fakehosts.github import FakeGitHub
from crewhall.families.pulls.family import pulls
from tests.conftest import Agent, Live
from tests.edges.forked_bridge import ForkedBridge
from tests.edges.program import Program
from tests.edges.pulls import CHANGE, REPO, TOKEN, change, github, told_to_host
from tests.edges.stdio import Stdio, end_hubs, hall_of, the_hub

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
ADA, BOB = "ghp_adasVeryOwnToken", "ghp_bobsVeryOwnToken"
Start = Callable[..., Stdio]


@pytest.fixture
def host() -> Iterator[FakeGitHub]:
    with github(ada=ADA, bob=BOB) as host:
        yield host


@pytest.fixture
def live(serve: Callable[..., Live], host: FakeGitHub) -> Live:
    return serve(pulls__github_url=host.url, pulls__github_token=TOKEN, pulls__pause=0.001)


@pytest.fixture
def start(live: Live) -> Iterator[Start]:
    """Starts `crewhall mcp-server` for a client with this environment."""
    with ExitStack() as clients:

        def begin(**environment: str) -> Stdio:
            client = ForkedBridge(live.hub.settings.home, command="mcp-server", **hall_of(live), **environment)
            return clients.enter_context(closing(client))

        yield begin


def test_it_lists_the_tools_for_pulls_and_no_others(start: Start) -> None:
    client = start()
    said = client.initialize()["result"]
    tools = {tool["name"]: tool for tool in client.ask("tools/list")["result"]["tools"]}
    assert set(tools) == {"create_pr", "list_prs", "get_pr_status", "pulls_health"} and said["serverInfo"]["name"]
    assert said["instructions"] == pulls.instructions
    assert not any(word in str(tools["create_pr"]["inputSchema"]) for word in ("tier", "token", "dry"))


TIERS: dict[str | None, int] = {None: 1, "": 1, "1": 1, "2": 2, "3": 3, " 3 ": 3, "4": 1, "03": 1, "three": 1, "²": 1}
UNFILLED = ("${CLAUDEOPS_TIER}", "${CLAUDEOPS_TIER:-}")


def test_the_tier_is_what_the_bridges_environment_says_and_1_when_it_says_nothing(
    start: Start, host: FakeGitHub
) -> None:
    told = TIERS | dict.fromkeys(UNFILLED, 1)
    clients = {text: start(**({} if text is None else {"CLAUDEOPS_TIER": text})) for text in told}
    for text, tier in told.items():
        assert clients[text].call("pulls_health")["tier"] == tier, text
        four = clients[text].call("create_pr", **change(f"Four {tier}", 4))
        wanted = {
            1: "tier 1 agents cannot create PRs; minimum tier is 2",
            2: "tier 2 agents may modify at most 3 files per PR (got 4); consider escalating to tier 3",
        }
        assert four.get("message", "").startswith(wanted.get(tier, "")), (text, four)
        refused = clients[text].call("create_pr", **CHANGE, tier=3)
        assert (refused["code"], "'tier'" in refused["message"]) == ("INVALID_INPUT", True)
        assert clients[text].call("list_prs", **REPO)["total"] is not None, "reading is open to every tier"
    pulls = host.repositories["octo", "ops"].pulls
    assert len(pulls) == 1, "tier 3 opened one; a second for the same change was refused"
    assert clients["2"].call("create_pr", **change("Three", 3))["number"] == 2


def test_an_agents_token_and_the_operators_count_for_less_than_the_environment(live: Live, start: Start) -> None:
    """Who starts the bridge sets its tier, whoever the client is; without one the operator's own token has its own."""
    ada = Agent(live.hub).token
    for token, told, tier in ((ada, {"CLAUDEOPS_TIER": "2"}, 2), (ada, {}, 1)):
        assert start(CREWHALL_TOKEN=token, **told).call("pulls_health")["tier"] == tier
    for told, tier in (({"CLAUDEOPS_TIER": "1"}, 1), ({"CLAUDEOPS_TIER": "x"}, 1), ({}, 3)):
        assert start(CREWHALL_TOKEN=live.token, **told).call("pulls_health")["tier"] == tier


def test_a_dry_run_of_one_client_sends_nothing_while_another_does(start: Start, host: FakeGitHub) -> None:
    dry = {text: start(CLAUDEOPS_TIER="3", CLAUDEOPS_DRY_RUN=text, GITHUB_TOKEN=ADA) for text in ("1", "true", "no")}
    wet = {text: start(CLAUDEOPS_TIER="3", CLAUDEOPS_DRY_RUN=text, GITHUB_TOKEN=BOB) for text in ("0", "false", "")}
    host.fail(Fault(method="POST", path="/pulls$", kind="slow", seconds=0.2, times=3))
    asked: dict[str, tuple[Stdio, Any]] = {}
    for text, client in (wet | dry).items():
        arguments = change(f"By {text or 'none'}")
        asked[text] = (client, client.send("tools/call", name="create_pr", arguments=arguments))
    bodies = {text: client.answer(name)["result"]["structuredContent"] for text, (client, name) in asked.items()}
    assert {text: body["dry_run"] for text, body in bodies.items()} == dict.fromkeys(wet, False) | dict.fromkeys(
        dry, True
    )
    assert all(bodies[text]["number"] is None and bodies[text]["files"][0]["bytes"] for text in dry)
    assert {bodies[text]["number"] for text in wet} == {1, 2, 3}
    assert told_to_host(host) == {BOB}, "not one request was made for those in dry run"


def test_a_clients_token_is_used_for_its_own_calls_alone(start: Start, host: FakeGitHub) -> None:
    clients = {"ada": start(GITHUB_TOKEN=ADA), "bob": start(GITHUB_TOKEN=BOB), "octocat": start(GITHUB_TOKEN="${X}")}
    tokens = {"ada": ADA, "bob": BOB, "octocat": TOKEN}
    for name in ("ada", "bob", "octocat", "ada", "octocat"):
        host.exchanges.clear()
        clients[name].call("list_prs", **REPO)
        assert told_to_host(host) == {tokens[name]}
    strange = start(GITHUB_TOKEN="ghp_unknownToTheHost").call("list_prs", **REPO)
    assert strange["code"] == "FORBIDDEN" and "the client's GITHUB_TOKEN" in strange["hint"]
    assert "ghp_" not in str(strange)


def test_a_hub_that_a_bridge_started_has_nothing_of_that_bridges_and_tells_no_token(
    database: str, tmp_path: Path, host: FakeGitHub
) -> None:
    """Two tokens of a client, one of the hub's own: in no log at its loudest, no notice, no table and no answer."""
    home, hubs, theirs = tmp_path / "hall", "gt_theHubsOwnToken", "gt_theClientsOwnToken"
    home.mkdir()
    with FakeGitea(tokens={hubs: "hub", theirs: "ada"}) as gitea, ExitStack() as stack:
        for owner in ("octo", "hub"):
            gitea.add_repository(owner, "ops", files={"checks/a.md": b"# A\n"})
        settings = f'github_url = "{host.url}"\ngitea_url = "{gitea.url}"\ngitea_token = "{hubs}"\npause = "1ms"\n'
        (home / "config.toml").write_text(f'[server]\nport = 0\n[log]\nlevel = "debug"\n[pulls]\n{settings}')
        own = {"GITHUB_TOKEN": ADA, "GITEA_URL": gitea.url, "GITEA_TOKEN": theirs, "CLAUDEOPS_TIER": "3"}
        own |= {"CREWHALL_PULLS_GITHUB_TOKEN": ADA, "CREWHALL_PULLS_ALLOW": "*"}
        stack.callback(end_hubs, home)
        first = stack.enter_context(closing(Stdio(home, command="mcp-server", **own)))
        said: list[Any] = [first.call("create_pr", **CHANGE), *all_but_creating(first, gitea.url)]
        second = stack.enter_context(closing(Stdio(home, command="mcp-server")))
        health = second.call("pulls_health")
        assert [one["enabled"] for one in health["providers"]] == [False, True]
        assert (health["tier"], health["dry_run"], "*" in health["allow"]) == (1, False, False)
        said += all_but_creating(second, gitea.url)
        said.append(Program(home).here("--json", "pr", "list", "octo", "ops", GITHUB_TOKEN=BOB).out)
        environment = Path(f"/proc/{the_hub(home)}/environ").read_bytes()
        assert {hubs, theirs} == {exchange.headers["authorization"].split()[-1] for exchange in gitea.exchanges}
        assert told_to_host(host) == {ADA, BOB}
    secrets = (ADA, BOB, hubs, theirs)
    kept = b"".join(path.read_bytes() for path in home.iterdir() if path.is_file() and path.name != "config.toml")
    assert b"debug crewhall.outside.hosting" in kept and b"pull.opened" in kept, "it was at its loudest, and wrote"
    assert dumped(home / "hall.db").count("create_pr") >= 1
    for secret in secrets:
        assert secret.encode() not in kept and secret.encode() not in environment
        assert secret not in str(said) and secret not in dumped(home / "hall.db")


def all_but_creating(client: Stdio, gitea: str) -> list[dict[str, Any]]:
    """Calls that succeed, and calls that each host refuses."""
    at = {"clone_url": f"{gitea}/octo/ops"}
    return [
        client.call("list_prs", **REPO, **at),
        client.call("get_pr_status", **REPO, pr_number=1),
        client.call("get_pr_status", **REPO, pr_number=99, **at),
        client.call("list_prs", repo_owner="octo", repo_name="nope"),
        client.call("create_pr", **change("One with a base", base_branch="nope")),
        client.call("pulls_health"),
    ]


def dumped(path: Path) -> str:
    """Every row of a database, as text."""
    with closing(sqlite3.connect(path)) as connection:
        return "\n".join(connection.iterdump())
