"""Real clients with exactly what `crewhall config --write` wrote: by bridge and by URL, with a token and without."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.edges.interfaces import CREWHALL, run_here
from tests.edges.program import Program, Up, ask
from tests.npm import need
from tests.outside.repos import git, make_repository
from tests.postgres import free_port
from tools.clients import Failed, run
from tools.npm import CLAUDE_CODE, CODEX, GEMINI, OPENCODE

PACKAGES = {"claude": CLAUDE_CODE, "codex": CODEX, "gemini": GEMINI, "opencode": OPENCODE}


@dataclass
class Desk:
    """Somebody with a home of their own, who works in a linked worktree of a repository beside a hub that runs."""

    hall: Path
    up: Up
    tree: Path
    around: dict[str, str]

    def config(self, client: str, *words: str) -> None:
        whole = ["--home", str(self.hall), "config", "--client", client, "--write", *words]
        code, out = run_here(whole, **self.around)
        assert code == 0 and " is in " in out, out

    def run(self, *words: str) -> str:
        return run(self.tree, *words, **self.around)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Up]]:
    home = tmp_path_factory.mktemp("config") / "hall"
    with Program(home, {"CREWHALL_PROJECT_PORT": str(free_port())}).up() as up:
        yield home, up


@pytest.fixture
def desk(hub: tuple[Path, Up], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    repository = make_repository(tmp_path / "shop").root
    git(repository, "worktree", "add", "-q", "../fix")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(tmp_path / "fix")
    return Desk(*hub, tmp_path / "fix", {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")})


def are_connected(said: str, *names: str) -> None:
    for name in names:
        assert re.search(rf"\b{name}:? .*\bconnected\b", said, re.IGNORECASE), f"{name} is not connected:\n{said}"


WAYS = {
    "crewhall": ["--agent", "ada"],
    "by-url": ["--agent", "ada", "--url"],
    "tree": ["--worktree", "."],
    "tree-url": ["--worktree", ".", "--url"],
}


@pytest.mark.parametrize("client", ["claude", "gemini", "opencode"])
def test_a_client_connects_with_what_was_written(desk: Desk, client: str) -> None:
    """A worktree's entries have no other shape than the hall's, so one client is enough for them."""
    need(PACKAGES[client])
    names = [name for name in WAYS if client == "claude" or "tree" not in name]
    for name in names:
        desk.config(client, "--name", name, *WAYS[name])
    are_connected(desk.run(client, "mcp", "list"), *names)


def test_claude_code_speaks_for_the_operator_or_by_its_token_alone(desk: Desk) -> None:
    """Without a token it is let in; with one that is revoked it is not, although the hub runs as the same user."""
    need(CLAUDE_CODE)
    desk.config("claude")
    desk.config("claude", "--url", "--name", "by-url")
    desk.config("claude", "--agent", "eve", "--name", "eve")
    (eve,) = [one["id"] for one in ask(desk.up, "agent/list")["agents"] if one["name"] == "eve"]
    ask(desk.up, "agent/revoke", agent_id=eve)
    said = desk.run("claude", "mcp", "list")
    are_connected(said, "crewhall", "by-url")
    assert re.search(r"^eve: .*(✘|✗|Failed)", said, re.MULTILINE), said


@pytest.mark.parametrize("text", ["\ufeff{%s}", "{%s // why\n}", "{%s,}"])
def test_what_claude_code_cannot_read_is_refused(desk: Desk, text: str) -> None:
    need(CLAUDE_CODE)
    file = Path(desk.around["CLAUDE_CONFIG_DIR"]) / ".claude.json"
    file.parent.mkdir()
    file.write_text(text % '"mcpServers": {}')
    code, _ = run_here(["--home", str(desk.hall), "config", "--client", "claude", "--write", "--url"], **desk.around)
    if code == 0:
        are_connected(desk.run("claude", "mcp", "list"), "crewhall")
        return
    with pytest.raises(Failed, match="is corrupted"):
        desk.run("claude", "mcp", "list")


def test_codex_reads_what_was_written(desk: Desk) -> None:
    need(CODEX)
    for name, words in WAYS.items():
        desk.config("codex", "--name", name, *words)
    said = desk.run("codex", "mcp", "list", "--json")
    read: dict[str, Any] = {one["name"]: one["transport"] for one in json.loads(said[said.index("[") :])}
    bridge = ["--home", str(desk.hall), "mcp"]
    assert (read["crewhall"]["command"], read["crewhall"]["args"]) == (CREWHALL, bridge)
    assert read["crewhall"]["env"]["CREWHALL_TOKEN"].startswith("ch_agent_")
    assert read["by-url"]["url"] == f"{desk.up.url}/mcp"
    assert read["by-url"]["http_headers"]["Authorization"].startswith("Bearer ch_agent_")
    assert read["tree"]["args"] == [*bridge, "--profile", "worktree", "--directory", str(desk.tree)]
    assert re.fullmatch(r"http://localhost:\d+/mcp", read["tree-url"]["url"]) and not read["tree-url"]["http_headers"]
