"""What may be wrong with a hall on this machine, each with its finding and a way out."""

import json
import os
import platform
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pysqlite3.dbapi2 as sqlite3

from crewhall.config import BY_KEY, Settings
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.errors import Failure
from crewhall.store.migrate import migrations
from crewhall.store.open import connect
from crewhall.store.sql import Queries
from crewhall.store.transaction import Store
from crewhall.token_file import TOKEN_FILE

Finding = dict[str, str]
GREETING_SECONDS = 5.0
SAFE_SQLITE = (3, 51, 3)


def examine(settings: Settings, hubs: list[str], chores: list[dict[str, Any]] | None = None) -> list[Finding]:
    """All findings: ok, note (worth knowing) or wrong."""
    checks: list[Callable[[], Finding]] = [
        _python,
        _sqlite,
        lambda: _program("git", "agents' worktrees need it"),
        lambda: _program("tmux", "instances need it"),
        lambda: _home(settings.home),
        lambda: _database(settings),
        lambda: _token(settings.home),
        lambda: _hosts(settings),
        lambda: _claude(settings),
        lambda: _hub(hubs),
        *([lambda: _socket(HubSocket(settings))] if hubs else []),
    ]
    return [check() for check in checks] + ([] if chores is None else [_chores(chores)])


def misread(failure: Failure) -> list[Finding]:
    """What is found when the settings themselves cannot be read."""
    return [_python(), _sqlite(), _finding("wrong", "settings", failure.message, failure.hint)]


def _finding(state: str, what: str, finding: str, hint: str = "") -> Finding:
    return {"state": state, "what": what, "finding": finding, "hint": hint}


def _python() -> Finding:
    return _finding("ok", "python", platform.python_version())


def _sqlite() -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SAFE_SQLITE:
        return _finding("wrong", "sqlite", f"{version} can damage a file that two processes write",
                        "Install pysqlite3 0.6.1 or newer.")  # fmt: skip
    return _finding("ok", "sqlite", version)


def _program(name: str, reason: str) -> Finding:
    path = shutil.which(name)
    return _finding("ok", name, path) if path else _finding("note", name, "not found", f"Install it: {reason}.")


def _home(home: Path) -> Finding:
    if not home.exists():
        return _finding("note", "hall", f"{home} is not there yet", "`crewhall up` makes it.")
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & 0o077:
        return _finding("wrong", "hall", f"{home} is open to others ({mode:o})", f"chmod 700 {home}")
    return _finding("ok", "hall", str(home))


def _database(settings: Settings) -> Finding:
    where = "PostgreSQL" if "://" in settings.database else settings.database
    if "://" not in settings.database and not Path(settings.database).exists():
        return _finding("note", "database", f"{where} is not there yet", "`crewhall up` makes it.")
    try:
        store = connect(settings.database, Queries([]))
        try:
            return _schema(where, store.tables(), _schema_number(store), store.check(), store.dialect.name)
        finally:
            store.close()
    except Failure as failure:
        return _finding("wrong", "database", failure.message, failure.hint)
    except sqlite3.DatabaseError as error:
        return _damage_finding(where, str(error))


def _damage_finding(where: str, damage: str) -> Finding:
    way_out = "Move the file away, then put a backup in its place: crewhall restore FILE"
    return _finding("wrong", "database", f"{where} is damaged: {damage}", way_out)


def _schema_number(store: Store) -> int:
    if "migration" not in store.tables():
        return 0
    with store.read() as tx:
        return max((row["number"] for row in tx.all("migrations_applied")), default=0)


def _schema(where: str, tables: list[str], applied: int, damage: str | None, dialect: str) -> Finding:
    newest = max(migration.number for migration in migrations(dialect))
    if damage:
        return _damage_finding(where, damage)
    if applied > newest:
        return _finding("wrong", "database", f"{where} is at schema {applied}; this crewhall knows {newest}",
                        "Upgrade crewhall.")  # fmt: skip
    if applied < newest:
        return _finding(
            "note",
            "database",
            f"{where} is at schema {applied} of {newest}",
            "`crewhall up` brings it up to date.",
        )
    return _finding("ok", "database", f"{where}, schema {applied}, {len(tables)} tables")


def _token(home: Path) -> Finding:
    path = home / TOKEN_FILE
    if not path.exists():
        return _finding("note", "token", "there is no operator token yet", "`crewhall up` makes it.")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return _finding("wrong", "token", f"{path} is open to others ({mode:o})", f"chmod 600 {path}")
    return _finding("ok", "token", str(path))


def _hosts(settings: Settings) -> Finding:
    """Which hosts pulls can be opened on, by the settings alone; `crewhall pr health` asks them."""
    path = settings.home / "config.toml"
    named = [name for name in ("github", "gitea") if settings[f"pulls.{name}_token"]]
    mode = stat.S_IMODE(path.stat().st_mode) if named and path.exists() else 0
    if mode & 0o077 and "token" in path.read_text("utf-8"):
        return _finding("wrong", "hosts", f"{path} has a token, and is open to others ({mode:o})", f"chmod 600 {path}")
    if not named:
        return _finding("note", "hosts", "none is set up for pulls here", "docs/operating.md says how.")
    return _finding("ok", "hosts", f"{' and '.join(named)}; `crewhall pr health` asks them")


def _claude(settings: Settings) -> Finding:
    """Whether the judge's CLI is there, by its name alone; `crewhall judge health` asks it."""
    command = settings["judge.command"]
    path = shutil.which(command[0])
    if path is None and command != BY_KEY["judge.command"].default:
        return _finding("wrong", "claude", f"{command[0]} is not there", "Mend the setting judge.command.")
    if path is None:
        return _finding(
            "note", "claude", "not found", "Install Claude Code and log in: the judge and instances run it."
        )
    if settings["judge.skip_permissions"] and os.geteuid() == 0 and len(command) == 1:
        return _finding("note", "claude", f"{path} does not skip permissions for root",
                        "docs/operating.md says how it runs as another user.")  # fmt: skip
    return _finding("ok", "claude", f"{path}; `crewhall judge health` asks it")


def _hub(urls: list[str]) -> Finding:
    if urls:
        return _finding("ok", "hub", f"runs at {', '.join(urls)}")
    return _finding("note", "hub", "none runs here", "crewhall up")


def _socket(hub_socket: HubSocket) -> Finding:
    """Whether a bridge that comes now would be greeted. The hello is of no version, so no hub leaves for it."""
    try:
        with hub_socket.connect() as connection, connection.makefile("rwb") as lines:
            connection.settimeout(GREETING_SECONDS)
            lines.write(b'{"crewhall": "0"}\n')
            lines.flush()
            version = json.loads(lines.readline())["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "it does not greet as a hub does"
        hint = "The hub makes its socket again within seconds. If this stays, its log says why; restart it."
        return _finding("wrong", "socket", f"no bridge can come in by {hub_socket.socket}: {reason}", hint)
    return _finding("ok", "socket", f"{hub_socket.socket}: a hub of version {version} greets bridges")


def _chores(records: list[dict[str, Any]]) -> Finding:
    """How the running hub's chores went."""
    stuck = [
        f"{one['name']} has run for longer than {one['limit_seconds']:.0f} s" for one in records if one["is_stuck"]
    ]
    failed = [f"{one['name']}: {one['error']}" for one in records if one["error"] is not None]
    if stuck or failed:
        hint = "The hub's log has the details. If one stays stuck, restart the hub."
        return _finding("wrong", "chores", "; ".join([*stuck, *failed]), hint)
    return _finding("ok", "chores", f"{sum(one['runs'] > 0 for one in records)} of {len(records)} have run in this hub")
