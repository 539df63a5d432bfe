"""A worktree's tools: the same body through every way in, and refused alike."""

import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.families.project.open_worktrees import LISTENER
from tests.conftest import Live, eventually
from tests.edges.interfaces import MODERN, announce, by_words, http, run_here
from tests.edges.stdio import Stdio
from tests.edges.test_worktrees import rpc
from tests.outside.repos import make_repository

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
CALLS: list[tuple[str, dict[str, Any], str | None]] = [
    ("read_file", {"path": "file-0"}, None),
    ("read_file", {"path": "file-0", "offset": 0, "limit": 1}, None),
    ("read_file", {"path": "../x"}, "PATH_OUTSIDE_ROOT"),
    ("read_file", {"path": "/etc/passwd"}, "PATH_OUTSIDE_ROOT"),
    ("read_file", {"path": "nope"}, "NOT_FOUND"),
    ("read_file", {"path": "file-0", "offset": -1}, "INVALID_INPUT"),
    ("read_file", {}, "INVALID_INPUT"),
    ("list_directory", {"path": "."}, None),
    ("list_directory", {"path": "file-0"}, "INVALID_INPUT"),
    ("list_directory", {"path": "..", "include_ignored": True}, "PATH_OUTSIDE_ROOT"),
    ("get_project_context", {"sources": ["readme", "tree"]}, None),
    ("get_project_context", {"max_tokens": 1}, "INVALID_INPUT"),
    ("run_just_task", {"task_name": "hello"}, None),
    ("run_just_task", {"task_name": "--list"}, "NOT_FOUND"),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = Path(make_repository(tmp_path / "repo").root)
    (root / "justfile").write_text("hello:\n    @echo hello\n")
    return root


@pytest.fixture
def interfaces(live: Live, tree: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Ask]]:
    """By the worktree's own server in three eras, by REST, by a command, and by a bridge that runs there."""
    monkeypatch.chdir(tree)
    eventually(lambda: live.hub.state(LISTENER).servers)
    announce(live)
    where = {"X-Crewhall-Directory": urllib.parse.quote(str(tree))}
    opened = http.post(f"{live.url}/api/v1/worktree/open", json={}, headers=where).json()
    port = opened["mcp"]["port"]

    def by_server(version: str) -> Ask:
        return lambda tool, given: rpc(port, "tools/call", version, name=tool, arguments=given)["result"][
            "structuredContent"
        ]

    def by_rest(tool: str, given: dict[str, Any]) -> dict[str, Any]:
        route = "/".join(live.hub.registry.find(tool).command)
        body: dict[str, Any] = http.post(f"{live.url}/api/v1/{route}", json=given, headers=where).json()
        return body

    bridge = Stdio(live.hub.settings.home, CREWHALL_DATABASE_PATH=live.hub.settings.database)
    try:
        yield {
            "2026": by_server(MODERN),
            "2025": by_server("2025-06-18"),
            "rest": by_rest,
            "words": lambda tool, given: by_words(live, tool, given, live.token),
            "bridge": lambda tool, given: bridge.call(tool, **given),
        }
    finally:
        bridge.close()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_bridge_for_one_worktree_knows_nothing_of_the_hall(live: Live, tree: Path) -> None:
    where = ("--profile", "worktree", "--directory", str(tree / ".git"))
    bridge = Stdio(live.hub.settings.home, *where, CREWHALL_DATABASE_PATH=live.hub.settings.database)
    try:
        tools = {tool["name"] for tool in bridge.ask("tools/list")["result"]["tools"]}
        assert tools == {"read_file", "list_directory", "get_project_context", "run_just_task"}
        assert bridge.call("read_file", path="justfile")["lines"] == 2
        for tool in ("worktree_open", "agent_list"):
            refused = bridge.ask("tools/call", name=tool, arguments={})
            assert "there is no tool" in refused["error"]["message"]
        assert bridge.ask("resources/list")["result"]["resources"] == []
    finally:
        bridge.close()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_commands_are_fit_for_people_and_scripts(
    live: Live, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    Path("justfile").write_text("good:\n    @echo fine\nbad:\n    @exit 3\nkilled:\n    @kill -9 $PPID\n")
    Path("README.md").write_text("# Shop\n\nIt sells.\n")
    home = ["--home", str(announce(live))]
    codes = [
        run_here([*home, "project", "run", task], CREWHALL_TOKEN=live.token)[0] for task in ("good", "bad", "killed")
    ]
    assert codes == [0, 3, 1]
    _, shown = run_here([*home, "project", "context", "--sources", "readme"], CREWHALL_TOKEN=live.token)
    assert "  # Shop\n\n  It sells.\n" in shown and "�" not in shown


def lasting(body: dict[str, Any]) -> dict[str, Any]:
    """A body without what differs from one call to the next."""
    return body | {"duration_ms": 0}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_same_body_leaves_by_every_way(interfaces: dict[str, Ask]) -> None:
    for tool, given, code in CALLS:
        bodies = {name: lasting(ask(tool, given)) for name, ask in interfaces.items()}
        first = bodies["2026"]
        assert first.get("code") == code, (tool, given, first)
        assert all(body == first for body in bodies.values()), (tool, given, bodies)
