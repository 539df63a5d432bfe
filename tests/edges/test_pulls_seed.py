"""Who comes with seed 002 in hand: its client config in a real Claude Code, and the help of the commands."""

import json
from pathlib import Path
from typing import Any

from crewhall.config import CLIENT_VARIABLES
from tests.edges.claude import claude_with
from tests.edges.interfaces import CREWHALL
from tests.edges.program import Program
from tests.edges.pulls import REPO, change, github
from tools.stubs.anthropic import Play, Use

PRINTED = """
{
  "mcpServers": {
    "claudeops": {
      "type": "stdio",
      "command": "/app/claudeops",
      "args": ["mcp-server"],
      "env": {
        "GITHUB_TOKEN": "${GITHUB_TOKEN}",
        "GITEA_URL": "${GITEA_URL}",
        "GITEA_TOKEN": "${GITEA_TOKEN}",
        "CLAUDEOPS_TIER": "${CLAUDEOPS_TIER}",
        "CLAUDEOPS_DRY_RUN": "${CLAUDEOPS_DRY_RUN}"
      }
    }
  }
}
"""
ADA = "ghp_whatTheSessionManagerGave"
OURS = "mcp__claudeops__"


def proposes(asked: str) -> Play:
    """A model that looks, tries too much, and then proposes what its tier allows."""
    before = yield Use(f"{OURS}list_prs", dict(REPO))
    refused = yield Use(f"{OURS}create_pr", change("Four", 4))
    made = yield Use(f"{OURS}create_pr", change("Three", 3))
    status = yield Use(f"{OURS}get_pr_status", REPO | {"pr_number": made["number"]})
    yield f"{before['total']}, {refused['code']}, {made['branch']}, {status['state']}"


def test_the_seeds_config_works_as_printed(tmp_path: Path) -> None:
    """Its tier and token come from Claude Code's own environment; what is unset there stays a literal ${…}."""
    settings: dict[str, Any] = json.loads(PRINTED.replace("/app/claudeops", CREWHALL))
    home = tmp_path / "home"
    around = {"GITHUB_TOKEN": ADA, "CLAUDEOPS_TIER": "2"}
    with (
        github(ada=ADA) as host,
        Program(home / ".crewhall", {"CREWHALL_PULLS_GITHUB_URL": host.url}).up(),
        claude_with(home, settings, proposes, **around) as claude,
    ):
        said = claude.ask("Propose health checks.")
        pulls = host.repositories["octo", "ops"].pulls
    assert said == "0, FORBIDDEN, claude-ops/check/three, open", claude.told()[1]
    shown = json.dumps(claude.requests[0])  # among its tools, or by name where Claude Code keeps them for later
    assert all(f"{OURS}{name}" in shown for name in ("create_pr", "list_prs", "get_pr_status", "pulls_health"))
    assert "at most 3 files per PR (got 4)" in claude.told()[1][1]["message"]
    assert len(pulls) == 1 and ADA not in json.dumps(claude.requests)


def test_help_teaches_who_has_never_seen_it(tmp_path: Path) -> None:
    program = Program(tmp_path / "home")
    create = program.here("pr", "create", "--help").out
    assert "[{path, content?, action?: create | update | delete, encoding?: utf-8 | base64}], or @FILE" in create
    assert "check | playbook | skill | manifest | fix" in create and "dry run" in create
    verbs = program.here("pr", "--help").out
    assert all(f"  {verb} " in verbs for verb in ("create", "list", "status", "health"))
    assert "mcp-server" in program.here("--help").out
    bridge = program.run("mcp-server", "--help")
    assert (bridge.code, bridge.err, bridge.out) == (0, "", program.here("help", "mcp-server").out)
    assert all(name in bridge.out for name in CLIENT_VARIABLES)
    wrong = program.run("mcp-server", "--tier", "3")
    assert wrong.code == 2 and "unexpected argument '--tier'" in wrong.err and "CLAUDEOPS_TIER" in wrong.err
    assert "did you mean 'mcp-server'" in program.here("mcp-servr").err


def test_without_a_hub_a_commands_environment_holds_it_back_too(tmp_path: Path) -> None:
    given = json.dumps(change("One"))
    program = Program(tmp_path / "home")
    for environment, code in (({"CLAUDEOPS_TIER": "1"}, 4), ({"CLAUDEOPS_TIER": "${X}"}, 7), ({}, 7)):
        assert program.here("pr", "create", "--input", given, **environment).code == code, environment
    plan = program.here("--json", "pr", "create", "--input", given, CLAUDEOPS_TIER="2", CLAUDEOPS_DRY_RUN="yes")
    assert (plan.code, json.loads(plan.out)["branch"]) == (0, "claude-ops/check/one")
