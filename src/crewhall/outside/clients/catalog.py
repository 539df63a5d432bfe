"""
The clients that Crewhall knows: where each keeps its servers, and how it writes one down.

What they read was tried with the programs themselves, where they can be had (tests/edges/test_config_clients.py).
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crewhall.outside.clients.jsonc_read import COMMENT, EXTRAS, MARK

Entry = dict[str, Any]
Keys = tuple[str, ...]


@dataclass(frozen=True)
class HallTransport:
    """How a client reaches the hall: the command that starts a bridge, or a URL; with variables and headers."""

    words: tuple[str, ...] = ()
    url: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KnownClient:
    """A client: its files by scope, the table of servers in them, and the shape of an entry there."""

    title: str
    runtime: str
    files: Callable[[str, Path], list[Path]]
    check: str
    servers: Keys = ("mcpServers",)
    scopes: Keys = ("user", "project")
    stdio: Mapping[str, Any] = field(default_factory=dict)
    http: Mapping[str, Any] = field(default_factory=lambda: {"type": "http"})
    variables: str = "env"
    headers: str = "headers"
    extras: Keys = EXTRAS  # what it reads besides plain JSON
    is_toml: bool = False
    takes_words: bool = False  # the whole command as one list
    takes_url: bool = True

    def entry(self, way: HallTransport) -> Entry:
        """The way in as this client has it written."""
        if way.url is not None:
            return {**self.http, "url": way.url} | ({self.headers: dict(way.headers)} if way.headers else {})
        words = list(way.words)
        entry = {**self.stdio, "command": words} if self.takes_words else self._split(words)
        return entry | ({self.variables: dict(way.variables)} if way.variables else {})

    def _split(self, words: list[str]) -> Entry:
        return {**self.stdio, "command": words[0], "args": words[1:]}

    def table(self, told: Any) -> Keys:
        """Where the servers are in a file that says this; newer opencode has them a step further down."""
        inner = _table(_table(told, self.servers[0]), "servers")
        return (*self.servers, "servers") if inner and "type" not in inner and self.takes_words else self.servers

    def words(self, entry: Mapping[str, Any]) -> list[str]:
        """The words that an entry starts; none when it has a URL."""
        command, more = entry.get("command", []), entry.get("args", [])
        words = [command] if isinstance(command, str) else command
        return [str(word) for part in (words, more) if isinstance(part, list) for word in part]

    def token(self, entry: Mapping[str, Any]) -> str | None:
        """The token in an entry, if there is one."""
        held = {**_table(entry, self.variables), **_table(entry, self.headers)}
        bearer = str(held.get("Authorization", "")).removeprefix("Bearer ")
        return str(held["CREWHALL_TOKEN"]) if "CREWHALL_TOKEN" in held else bearer or None


def _table(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = entry.get(name)
    return found if isinstance(found, Mapping) else {}


# What an entry of ours has from us; all else in it is the user's own, and stays.
OURS = ("type", "command", "args", "url", "httpUrl", "oauth")
OUR_VARIABLES = ("CREWHALL_TOKEN", "CREWHALL_DATABASE_PATH", "CREWHALL_DATABASE_URL")
OUR_HEADERS = ("Authorization", "X-Crewhall-Profile")


def merge_entries(client: KnownClient, old: Mapping[str, Any], new: Entry) -> Entry:
    """The new entry with the user's own fields of the old one, in the order of the old one."""
    kept = {key: value for key, value in old.items() if key not in OURS}
    for name, ours in ((client.variables, OUR_VARIABLES), (client.headers, OUR_HEADERS)):
        own = {key: value for key, value in _table(old, name).items() if key not in ours}
        kept.pop(name, None)
        if own and (name == client.headers) == ("url" in new):
            kept[name] = own | new.get(name, {})
    whole = new | kept
    return {key: whole[key] for key in (*(key for key in old if key in whole), *whole)}


# Where the files are


def _home(variable: str, default: str) -> Path:
    named = os.environ.get(variable)
    return Path(named) if named else Path.home() / default


def _settings(name: str) -> Path:
    """Where programs with windows keep their settings."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / name
    return _home("XDG_CONFIG_HOME", ".config") / name


def _claude(scope: str, directory: Path) -> list[Path]:
    return [directory / ".mcp.json" if scope == "project" else _home("CLAUDE_CONFIG_DIR", "") / ".claude.json"]


def _opencode(scope: str, directory: Path) -> list[Path]:
    """All are read, and the later ones win; the last is the one that opencode makes itself."""
    if scope == "project":
        return [directory / "opencode.json", directory / "opencode.jsonc"]
    place = _home("XDG_CONFIG_HOME", ".config") / "opencode"
    return [place / "config.json", place / "opencode.json", place / "opencode.jsonc"]


def _files(user: Callable[[], Path], project: str) -> Callable[[str, Path], list[Path]]:
    return lambda scope, directory: [directory / project if scope == "project" else user()]


CLIENTS = {
    "claude": KnownClient(
        "Claude Code",
        "claude_code",
        _claude,
        "claude mcp list",
        scopes=("user", "local", "project"),
        stdio={"type": "stdio"},
        extras=(MARK,),
    ),
    "claude-desktop": KnownClient(
        "Claude Desktop",
        "custom",
        lambda scope, directory: [_settings("Claude") / "claude_desktop_config.json"],
        "quit and start it again; Settings, Developer lists its servers",
        scopes=("user",),
        extras=(MARK,),
        takes_url=False,
    ),
    "cursor": KnownClient(
        "Cursor",
        "custom",
        _files(lambda: Path.home() / ".cursor" / "mcp.json", ".cursor/mcp.json"),
        "Customize, MCPs in the sidebar; there it is switched on",
        stdio={"type": "stdio"},
        http={},
        extras=(MARK, COMMENT),
    ),
    "vscode": KnownClient(
        "VS Code",
        "custom",
        _files(lambda: _settings("Code") / "User" / "mcp.json", ".vscode/mcp.json"),
        "the command “MCP: List Servers”; there it is started",
        servers=("servers",),
        stdio={"type": "stdio"},
    ),
    "codex": KnownClient(
        "Codex",
        "codex",
        _files(lambda: _home("CODEX_HOME", ".codex") / "config.toml", ".codex/config.toml"),
        "codex mcp list",
        servers=("mcp_servers",),
        http={},
        headers="http_headers",
        is_toml=True,
    ),
    "gemini": KnownClient(
        "Gemini CLI",
        "gemini",
        _files(lambda: _home("GEMINI_CLI_HOME", "") / ".gemini" / "settings.json", ".gemini/settings.json"),
        "gemini mcp list, in a folder that it trusts",
        extras=(COMMENT,),
    ),
    "opencode": KnownClient(
        "opencode",
        "opencode",
        _opencode,
        "opencode mcp list",
        servers=("mcp",),
        stdio={"type": "local"},
        http={"type": "remote", "oauth": False},
        variables="environment",
        takes_words=True,
    ),
}
