"""Who may ask the judge: the operator and coordinators. All others don't see the menu, and are refused."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from crewhall.identity import OPERATOR, Credentials
from tests.conftest import Agent, Live
from tests.edges.interfaces import MODERN, by_mcp, by_rest, http, mcp
from tests.families.judge.judge_site import CONTRACT, JudgeSite
from tests.families.work.claims import rows

pytestmark = pytest.mark.slow

MENU = {
    "claude_judge_review",
    "claude_validate_proposal",
    "claude_security_audit",
    "claude_resolve_conflict",
    "claude_health",
}
READING = {"judge_report_list", "judge_report_get"}
# name: role, type, and whether they may ask
AGENTS = {
    "worker": ("worker", None, False),
    "coder": ("worker", "coding", False),
    "reviewer": ("worker", "review", False),
    "coding coordinator": ("coordinator", "coding", False),
    "reviewing coordinator": ("coordinator", "review", False),
    "coordinator": ("coordinator", None, True),
}


@dataclass
class Door:
    live: Live
    site: JudgeSite
    tokens: dict[str, str]

    def visible_tools(self, name: str, **headers: str) -> set[str]:
        """The family's tools that they see by MCP."""
        headers |= {"Authorization": f"Bearer {self.tokens[name]}"}
        tools = mcp(self.live, MODERN, "tools/list", {}, **headers)["result"]["tools"]
        return {tool["name"] for tool in tools} & (MENU | READING)

    def calls(self) -> dict[str, dict[str, Any]]:
        """Calls of the menu that would be right, by absolute paths."""
        path = str(self.site.root / CONTRACT)
        about = {"contract_path": path}
        return {
            "claude_judge_review": about,
            "claude_review": about,
            "claude_validate_proposal": {"proposal_path": path},
            "claude_security_audit": {"working_directory": str(self.site.root), "files": ["src/a.py"]},
            "claude_resolve_conflict": {**about, "rebuttal_path": path, "judge_report_path": path},
            "claude_health": {},
        }


@pytest.fixture
def door(live_judge: Callable[..., Live], site_in: Callable[..., JudgeSite], database: str) -> Door:
    live = live_judge()
    site = site_in(live.hub)
    live.hub.call("repository_register", {"path": str(site.root)}, OPERATOR)
    tokens = {"operator": live.token}
    for name, (role, kind, _) in AGENTS.items():
        agent = Agent(live.hub, name, role)
        tokens[name] = agent.token
        if kind is not None:  # as an instance is kept
            rows(database, f"UPDATE agent SET type = '{kind}' WHERE id = '{agent.id}'")
    return Door(live, site, tokens)


def test_the_menu_is_seen_and_used_by_those_alone_who_may(door: Door) -> None:
    alone, everything = {"X-Crewhall-Families": "judge"}, {"X-Crewhall-Profile": "all"}
    for name, (_, _, may) in {**AGENTS, "operator": (None, None, True)}.items():
        seen = MENU | READING if may else READING
        assert door.visible_tools(name, **alone) == door.visible_tools(name, **everything) == seen, name
        if may:
            continue
        for tool, arguments in door.calls().items():
            for way in (by_mcp(MODERN), by_rest):
                body = way(door.live, tool, arguments, door.tokens[name])
                assert (body["code"], body["recoverable"]) == ("FORBIDDEN", False), (name, tool)
                assert "operator and coordinator" in body["message"] and body["hint"]
    assert door.site.cli.runs() == []
    assert door.live.hub.call("judge_report_list", {}, OPERATOR)["reports"] == []


@pytest.mark.parametrize("name", ["coordinator", "operator"])
def test_who_may_ask_is_answered_and_named_and_all_may_read(door: Door, name: str) -> None:
    for way in (by_mcp(MODERN), by_rest):
        answer = way(door.live, "claude_review", door.calls()["claude_review"], door.tokens[name])
        assert answer["verdict"] == "PASS", answer
    assert way(door.live, "claude_health", {}, door.tokens[name])["available"] is True
    for reader in ("worker", "coder", "reviewer"):
        (row,) = by_rest(door.live, "judge_report_list", {}, door.tokens[reader])["reports"]
        assert row["verdict"] == "PASS" and (row["actor"] == "operator") == (name == "operator")
        report = by_mcp(MODERN)(door.live, "judge_report_get", {"id": row["id"]}, door.tokens[reader])
        assert report["ruling"]["verdict"] == "PASS"
        read = {"uri": f"crewhall://reports/{row['id']}"}
        told = mcp(door.live, MODERN, "resources/read", read, Authorization=f"Bearer {door.tokens[reader]}")
        assert row["id"] in told["result"]["contents"][0]["text"]


def test_a_coordinator_has_no_more_of_the_disk_than_the_hall_knows(door: Door) -> None:
    """What the header says is no proof: a token from elsewhere reaches what is registered or open."""
    token = {"Authorization": f"Bearer {door.tokens['coordinator']}", "X-Crewhall-Directory": str(door.site.root)}
    url = f"{door.live.url}/api/v1/judge/review"
    assert http.post(url, json={"contract_path": CONTRACT}, headers=token).json()["code"] == "FORBIDDEN"
    assert door.site.cli.runs() == []
    agent = door.live.hub.identify(Credentials(token=door.tokens["coordinator"]))
    other = door.site.root.with_name("other")
    shutil.copytree(door.site.root, other, symlinks=True)
    door.live.hub.call("repository_register", {"path": str(other)}, agent)
    answer = http.post(url, json={"contract_path": str(other / CONTRACT)}, headers=token).json()
    assert answer["code"] == "PATH_OUTSIDE_ROOT", "that an agent made it known opens nothing to it"
    door.live.hub.call("worktree_open", {"path": str(door.site.root)}, OPERATOR)
    assert http.post(url, json={"contract_path": CONTRACT}, headers=token).json()["verdict"] == "PASS"
