"""
Every setting of a hall, each declared once.

A value comes from, first found first: a flag, `CREWHALL_<KEY>`, the seed's own variable, the file
`config.toml` in the hall's directory, the default. `docs/settings.md` is made from this list.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from crewhall.errors import InvalidInput
from crewhall.hall_directory import refuse_open_home

SECRET_VARIABLE = re.compile(
    "TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY", re.IGNORECASE
)  # in a name
LOG_LEVELS = ("debug", "info", "warning", "error")
# What the seeds' clients put into their server's environment; it counts for that client's calls alone.
CLIENT_VARIABLES = ("GITHUB_TOKEN", "GITEA_URL", "GITEA_TOKEN", "CLAUDEOPS_TIER", "CLAUDEOPS_DRY_RUN")
OWN_PREFIXES = ("CREWHALL_", "MCP_")


def text(raw: Any) -> str:
    return str(raw)


def variable_value(variables: Mapping[str, str], name: str) -> str | None:
    """A variable's value, or None. Clients pass "${NAME}" literally when NAME is unset in their own environment."""
    value = variables.get(name)
    return None if value is None or value.strip().startswith("${") else value


def number(raw: Any) -> int:
    """A whole number of zero or more."""
    if not re.fullmatch(r"[0-9]{1,18}", str(raw).strip()):
        raise ValueError("it must be a whole number, zero or more")
    return int(str(raw).strip())


def count(raw: Any) -> int:
    """A whole number of one or more."""
    if number(raw) == 0:
        raise ValueError("it must be a whole number, one or more")
    return number(raw)


def port(raw: Any) -> int:
    if number(raw) > 65_535:
        raise ValueError("it must be a port, 0 to 65535")
    return number(raw)


def switch(raw: Any) -> bool:
    """On or off, in the usual words."""
    words = {"1": True, "true": True, "yes": True, "on": True, "": False, "0": False, "false": False}
    words |= {"no": False, "off": False}
    try:
        return words[str(raw).strip().lower()]
    except KeyError:
        raise ValueError("it must be true or false") from None


def careful(raw: Any) -> bool:
    """On or off, where the safe side is on: empty, `false` and `0` are off, and anything else is on."""
    return raw is not False and str(raw).strip() not in ("", "false", "0")


def tier(raw: Any) -> int:
    if str(raw).strip() not in ("1", "2", "3"):
        raise ValueError("it must be 1, 2 or 3")
    return int(str(raw).strip())


def seconds(raw: Any) -> float:
    """A time: `90`, `90s`, `1500ms`, `2m`, `1h`. A bare number from 10,000 up is milliseconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?", str(raw).strip().lower())
    if not match or float(match[1]) == 0:
        raise ValueError("it must be a time such as 90, 90s, 1500ms, 2m or 1h, and not zero")
    amount, unit = float(match[1]), match[2]
    if unit is None:  # Claude Code uses MCP_TOOL_TIMEOUT for milliseconds; nobody waits three hours for a call
        unit = "ms" if amount >= 10_000 else "s"
    return amount * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[unit]


def hours(raw: Any) -> float:
    """Hours, also parts of one: `24`, `0.5`."""
    if not re.fullmatch(r"\d{1,6}(?:\.\d{1,9})?", str(raw).strip()) or not float(raw):
        raise ValueError("it must be a number of hours such as 24 or 0.5, and not zero")
    return float(raw)


def log_level(raw: Any) -> str:
    level = {"warn": "warning", "trace": "debug"}.get(str(raw).lower(), str(raw).lower())
    if level not in LOG_LEVELS:
        raise ValueError(f"it must be one of {', '.join(LOG_LEVELS)}")
    return level


def words(raw: Any) -> tuple[str, ...]:
    """A list, from TOML or separated by commas."""
    items = raw if isinstance(raw, list) else str(raw).split(",")
    return tuple(str(item).strip() for item in items if str(item).strip())


def patterns(raw: Any) -> tuple[str, ...]:
    """A list of paths in which `*` stands for letters within a segment. What looks like more would match nothing."""
    for pattern in words(raw):
        if re.search(r"\*\*|[\[\]{}!\\]|\A\.?/|/\Z|//|(?:\A|/)\.\.?(?:/|\Z)", pattern):
            raise ValueError(f"'{pattern[:60]}' is no path from the top with `*` in it, such as checks/*.md")
    return words(raw)


def command(raw: Any) -> tuple[str, ...]:
    """A command's words: a list, or a line as a shell reads it. It is run in directories of others."""
    import json  # neither of which the bridge needs
    import shlex

    if isinstance(raw, str) and raw.lstrip().startswith("["):
        raw = json.loads(raw)
    found = tuple(map(str, raw)) if isinstance(raw, list | tuple) else tuple(shlex.split(str(raw)))
    if not found or not all(found):
        raise ValueError("it must be a command, such as claude")
    program = os.path.expanduser(found[0])
    if "/" in program and not os.path.isabs(program):
        raise ValueError("it must be a name that PATH finds, or a path from the root")
    return (program, *found[1:])


def port_range(raw: Any) -> tuple[int, int]:
    """Two ports, the first and the last: `42000-42999`."""
    match = re.fullmatch(r"\s*(\d{1,5})\s*-\s*(\d{1,5})\s*", str(raw))
    if not match or not 0 < int(match[1]) <= int(match[2]) <= 65_535:
        raise ValueError("it must be two ports such as 42000-42999")
    return int(match[1]), int(match[2])


def tables(raw: Any) -> dict[str, dict[str, Any]]:
    """Tables by name, from TOML or as JSON."""
    import json  # the bridge does without

    found = json.loads(raw) if isinstance(raw, str) else raw
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise ValueError("it must be tables by name, such as [crew.runtimes.custom]")
    return found


class Setting(NamedTuple):
    """One setting: its file key, what it is without being set, what it does, how its text is read."""

    key: str
    default: Any
    help: str
    read: Callable[[Any], Any] = text
    seed_names: tuple[str, ...] = ()
    is_live: bool = False  # the table user_config may change it while hubs run

    @property
    def variable(self) -> str:
        return "CREWHALL_" + re.sub(r"[^A-Z0-9]", "_", self.key.upper())

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.variable, *self.seed_names)


MIB = 1024 * 1024
DENIED = ("prompts/*.md", "CLAUDE.md", "entrypoint.sh", "*.yaml", "*.yml", "Dockerfile*", "*.go", "*.env*")
ALLOWED = (
    *("checks/*.md", "playbooks/*.md", "CLAUDE-OPS.md"),
    *(".claude-ops/checks/*.md", ".claude-ops/playbooks/*.md", ".claude-ops/skills/*.md"),
)

BRANCH_DENIED = (".github/workflows/*", ".gitea/workflows/*", ".forgejo/workflows/*")

SETTINGS = (
    Setting("home", "~/.crewhall", "The hall's directory: database, tokens, config.toml."),
    Setting("database.path", "", "SQLite file; empty is hall.db in home.", text, ("MCP_DATABASE_PATH",)),
    Setting("database.url", "", "postgresql://… to keep the hall in PostgreSQL, for many hubs on many nodes."),
    Setting("database.pool", 8, "Connections a hub keeps to PostgreSQL at the most.", count),
    Setting("server.host", "127.0.0.1", "Address the hub binds."),
    Setting("server.port", 3001, "Port of the hub; 0 takes any free one.", port, ("MCP_SERVER_PORT",)),
    Setting("server.hosts", (), "Further Host names that the hub answers to.", words),
    Setting("server.max_body_bytes", 4 * MIB, "Largest request on any edge.", number),
    Setting("server.shutdown_seconds", 10.0, "How long a stopping hub lets running calls finish.", seconds),
    Setting("server.idle", 600.0, "A hub that a bridge started ends after this time without a client.", seconds),
    Setting("auth.local_without_token", True, "A process of the hub's own user needs no token (Linux).", switch),
    Setting("auth.browser_days", 30, "How long the dashboard's cookie is good.", number),
    Setting("node.name", "", "This machine's name among a hall's nodes; empty: its host name, on SQLite `local`."),
    Setting("log.level", "info", "debug, info, warning or error.", log_level, ("MCP_LOG_LEVEL",)),
    Setting("tool.timeout", 300.0, "Time limit of a call.", seconds, ("MCP_TOOL_TIMEOUT",)),
    Setting("tool.threads", 16, "Calls that run at once in a hub; a client may have a quarter of them.", count),
    Setting("tool.long_threads", 16, "Long calls that run at once, beside the short ones.", count),
    Setting("tool.progress", 15.0, "A running call reports progress at least this often.", seconds),
    Setting("events.keep_days", 30, "Age at which events are pruned; 0 keeps them for ever.", number),
    Setting("events.slow_seconds", 15.0, "A watcher that reads nothing for this long is dropped.", seconds),
    Setting("calls.keep_days", 7, "Age at which the call log's rows are pruned; 0 keeps them for ever.", number),
    Setting("agent.heartbeat", 30.0, "How often an agent is asked to beat.", seconds),
    Setting("agent.missed_beats", 3, "An agent that beats is offline after so many missed ones.", count),
    Setting("agent.lease", 1800.0, "An agent that never beats is offline after this time without a call.", seconds),
    Setting("agent.grace", 120.0, "How long a disconnected agent keeps its tasks; agent.lease at most.", seconds),
    Setting("work.enforce_parallelism", True, "A claim past max_parallel_tasks is refused.", switch, is_live=True),
    Setting("crew.default_tier", 2, "Tier of an instance that is started without one.", tier),
    Setting("crew.port_range", (42_000, 42_999), "Ports that instances get, first and last.", port_range),
    Setting("crew.ports", 3, "Ports that an instance gets: CREWHALL_PORT, CREWHALL_PORT_2 …; 0 for none.", number),
    Setting("crew.setup", "worktree-setup", "Recipe of the justfile that sets a new worktree up, if it has it."),
    Setting("crew.setup_seconds", 600.0, "Time limit of that recipe.", seconds),
    Setting("crew.runtimes", {}, "Agent programs that instances run; docs/instances.md shows how.", tables),
    Setting("review.max_iterations", 3, "Rounds of review that a coding instance gets.", count, is_live=True),
    Setting("review.auto_abandon_after", 5, "Rounds and refusals after which it is abandoned.", count, is_live=True),
    Setting("review.timeout_hours", 24.0, "A review that takes longer is ended.", hours, is_live=True),
    Setting("workspace.serve", False, "Serve the worktrees of claims to MCP clients, each on a port.", switch),
    Setting("project.port", 3000, "First port for the servers of open worktrees; taken ones are skipped.", port),
    Setting("project.file_bytes", 256 * 1024, "Largest file, or part of one, that read_file reads at once.", count),
    Setting("project.allow", (), "Names that look secret and may be read all the same, such as .env.example.", words),
    Setting("project.just_seconds", 240.0, "Time limit of a `just` recipe; tool.timeout is to be longer.", seconds),
    Setting("project.just_bytes", 100_000, "Output of a recipe that is given; more is cut in the middle.", count),
    Setting("pulls.github_token", "", "Token for GitHub; a client's own goes first.", text, ("GITHUB_TOKEN",)),
    Setting("pulls.github_url", "https://github.com", "Your GitHub's address; of an Enterprise server, its own."),
    Setting("pulls.gitea_token", "", "Token for Gitea or Forgejo; a client's own goes first.", text, ("GITEA_TOKEN",)),
    Setting("pulls.gitea_url", "", "Your Gitea's or Forgejo's address, if you have one.", text, ("GITEA_URL",)),
    Setting("pulls.dry_run", False, "Plan pulls, send nothing; false and 0 are off.", careful, ("CLAUDEOPS_DRY_RUN",)),
    Setting("pulls.operator_tier", 3, "Tier of the operator's own token and dashboard; 1 opens no pulls.", tier),
    Setting("pulls.deny", DENIED, "Paths that no pull may touch; `*` is within one segment.", patterns),
    Setting("pulls.allow", ALLOWED, "Paths that pulls may touch, and no others.", patterns),
    Setting("pulls.branch_deny", BRANCH_DENIED, "Paths that no instance's own pull request may touch.", patterns),
    Setting("pulls.branch_allow", (), "Paths that it may touch; empty: every other path.", patterns),
    Setting("pulls.repositories", (), "Where instances open pulls and issues, as OWNER/*; empty: all.", patterns),
    Setting("pulls.branch_prefix", "claude-ops", "Branches of pulls are named `<prefix>/<type>/<title>`."),
    Setting("pulls.labels", ("claude-ops", "automated"), "Labels that a pull gets.", words),
    Setting("pulls.pause", 0.5, "First pause before a request to a host is repeated; it doubles each time.", seconds),
    Setting("judge.command", ("claude",), "The Claude CLI, with words before its own options if need be.", command),
    Setting("judge.model", "", "Model that judges, as the CLI names it; empty: the CLI's own choice."),
    Setting("judge.at_once", 2, "Runs of the CLI at once in a hub; the others wait in line.", count),
    Setting("judge.prompt_bytes", 400_000, "Bytes of files that a prompt holds; the rest is named, to be read.", count),
    Setting("judge.skip_permissions", False, "Run the CLI with --dangerously-skip-permissions, all tools.", switch),
    Setting("programs.variables", (), "More of the hub's variables for recipes, instances and the CLI.", words),
    Setting("agent.max", 1000, "Agents that may be in the hall at once, offline ones not counted.", number),
)  # fmt: skip

BY_KEY = {setting.key: setting for setting in SETTINGS}


class Settings:
    """The settings of one hall, read once. `settings["server.port"]` is typed by its declaration."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    @property
    def home(self) -> Path:
        return Path(self["home"]).expanduser().absolute()

    @property
    def node(self) -> str:
        """The machine on which this hub's worktrees are."""
        # A SQLite hall is on one machine, whose host name may change under it.
        return str(self["node.name"]) or (os.uname().nodename if self["database.url"] else "local")

    @property
    def instances(self) -> Path:
        """The run directories of this node's instances; each is there before its program starts."""
        return self.home / "instances"

    @property
    def database(self) -> str:
        """Where the hall is kept: a PostgreSQL URL, or the path of a SQLite file."""
        return str(self["database.url"] or Path(self["database.path"] or self.home / "hall.db").expanduser().absolute())


def load(environ: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings as these flags, this environment and the hall's config.toml give them.

    Raises InvalidInput naming the setting, the source and what it must be, and Forbidden for a directory that others
    can change.
    """
    found: dict[str, tuple[Any, str]] = {key: (value, "the flag") for key, value in (flags or {}).items()}
    for setting in SETTINGS:
        for name in setting.variables:
            if setting.key not in found and variable_value(environ, name):
                found[setting.key] = (environ[name], name)
    home = Path(found.get("home", (BY_KEY["home"].default, ""))[0]).expanduser().absolute()
    file = _from_file(home / "config.toml") if refuse_open_home(home) else {}
    for key, value in file.items():
        found.setdefault(key, (value, "config.toml"))
    return Settings({s.key: _read(s, *found[s.key]) if s.key in found else s.default for s in SETTINGS})


def _read(setting: Setting, raw: Any, source: str) -> Any:
    try:
        return setting.read(raw)
    except ValueError as error:
        raise InvalidInput(
            f"setting {setting.key} from {source} is {str(raw)[:80]!r}: {error}",
            hint=f"{setting.help} The default is {setting.default!r}.",
        ) from None


def _from_file(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    import tomllib  # a third of what the bridge imports, and most halls have no file

    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}", hint="Mend the file, or move it away.") from None
    flat = {
        key if not isinstance(value, dict) else f"{key}.{inner}": item
        for key, value in tables.items()
        for inner, item in (value.items() if isinstance(value, dict) else [("", value)])
    }
    unknown = sorted(set(flat) - set(BY_KEY))
    if unknown:
        raise InvalidInput(f"{path} has no such setting: {', '.join(unknown)}", hint="docs/settings.md lists them.")
    return flat


def from_environment(flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of this process: its flags, its environment."""
    return load(os.environ, flags)
