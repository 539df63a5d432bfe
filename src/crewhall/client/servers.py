"""
How a server is told, and what it comes to: a command to start, or an address to connect to.

    "http://127.0.0.1:3001/mcp"                      {"url": "http…", "headers": {"Authorization": "Bearer …"}}
    ["crewhall", "mcp", "--families", "judge"]       {"command": "crewhall", "args": ["mcp"], "env": {}, "cwd": "/src"}
    Path("dist/server.js")                           by node; a .py by this Python

What may be secret (arguments, environment, headers, what stands in a URL behind its path) is in no repr and no message.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from crewhall.errors import InvalidInput, NotFound
from crewhall.spelling import did_you_mean

Entry = str | Path | Sequence[str] | Mapping[str, Any]

RUNNERS = {".js": "node", ".mjs": "node", ".cjs": "node", ".ts": "node", ".py": sys.executable}
TYPES = ("stdio", "http", "streamable-http")
# What clients write beside the rest, and what means nothing here.
IGNORED = {"type", "disabled", "description", "timeout", "trust", "autoApprove", "alwaysAllow"}
SECRET = re.compile("KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|URL", re.IGNORECASE)
LEAST_SECRET = 6  # shorter values are words that stand in any text
VARIABLE = re.compile(r"\$\{(\w+)(?::-((?:[^}$]|\$(?!\{))*+))?\}")
HINT = (
    "A server is a URL, a list of words, the path of a .js, .mjs, .ts or .py file, "
    "or an object with command, args, env and cwd, or with url and headers."
)


class Command(BaseModel):
    """A program that speaks MCP on its stdin and stdout. It gets this process's environment, and `env` over it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    command: str = Field(min_length=1)
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: Path | None = Field(default=None, strict=False)

    @property
    def argv(self) -> list[str]:
        return [self.command, *self.args]

    @property
    def secrets(self) -> list[str]:
        named = [*self.env.items(), *zip(self.args, self.args[1:], strict=False)]
        joined = [arg.partition("=")[::2] for arg in self.args]
        return [value for name, value in (*named, *joined) if SECRET.search(name)]

    def __repr__(self) -> str:
        return f"<{Path(self.command).name}>"


class Address(BaseModel):
    """A URL that speaks MCP by Streamable HTTP; the headers go with every request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    url: str
    headers: dict[str, str] = {}

    @field_validator("url")
    @classmethod
    def _is_plain_http(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("a URL begins with http:// or https:// and has a host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("a URL with a password is written into logs: use headers instead")
        return url

    @property
    def secrets(self) -> list[str]:
        words = [word for value in self.headers.values() for word in (value, *value.split())]
        return [*words, urlsplit(self.url).query]

    def __repr__(self) -> str:
        parts = urlsplit(self.url)
        return f"<{parts.scheme}://{parts.netloc}{parts.path}>"


Server = Command | Address


def hide_secrets(server: Server, text: str) -> str:
    """Replace the server's secrets in a text: a program may print them, a server may return them."""
    for secret in sorted(server.secrets, key=len, reverse=True):
        if len(secret) >= LEAST_SECRET:
            text = text.replace(secret, "[hidden]")
    return text


def parse_servers(entries: Mapping[str, Entry]) -> dict[str, Server]:
    """Parse the entries into servers by name. Raises InvalidInput that names each wrong field."""
    if not isinstance(entries, Mapping) or not entries:
        raise InvalidInput('servers are told by name, as {"ollama": …}; there are none', hint=HINT)
    servers: dict[str, Server] = {}
    problems: list[str] = []
    for name, entry in entries.items():
        try:
            servers[_good_name(name)] = _server(entry)
        except ValidationError as error:
            problems += [_problem(name, entry, detail) for detail in error.errors(include_url=False)]
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise InvalidInput("; ".join(problems), hint=HINT)
    return servers


def _good_name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError("a server's name is a text")
    return name


def _server(entry: Any) -> Server:
    """What an entry means. Raises ValueError, pydantic's for a field."""
    if isinstance(entry, Mapping):
        return _from_object(entry)
    if isinstance(entry, str) and entry.startswith(("http://", "https://")):
        return Address(url=entry)
    if isinstance(entry, str | Path):
        return _from_file(Path(entry))
    if isinstance(entry, Sequence) and not isinstance(entry, bytes) and entry:
        return Command(command=entry[0], args=list(entry[1:]))
    raise ValueError(f"{type(entry).__name__} tells no server")


def _from_file(path: Path) -> Command:
    if path.suffix not in RUNNERS:
        raise ValueError(f"{str(path)!r} is no URL and no {', '.join(RUNNERS)} file; a command is a list of words")
    return Command(command=RUNNERS[path.suffix], args=[str(path)])


def _from_object(entry: Mapping[str, Any]) -> Server:
    kind = entry.get("type", TYPES[0])
    if kind not in TYPES:
        raise ValueError(f"type {kind!r} is not spoken here, only {', '.join(TYPES)}")
    if ("url" in entry) == ("command" in entry):
        raise ValueError("an object has either command or url")
    fields = {name: value for name, value in entry.items() if name not in IGNORED}
    return Address(**fields) if "url" in entry else Command(**fields)


def _problem(name: str, entry: Any, detail: Any) -> str:
    place = ".".join([name, *(str(part) for part in detail["loc"])])
    if detail["type"] != "extra_forbidden":
        return f"{place}: {detail['msg'].removeprefix('Value error, ')}"
    known = (Address if "url" in entry else Command).model_fields
    return f"{place}: unknown{did_you_mean(str(detail['loc'][-1]), known, ', did you mean {}?')}"


def read_file(path: Path) -> dict[str, Entry]:
    """The servers in a client's file, such as .mcp.json, with ${VARIABLES} put in; those that are disabled are not.

    Raises NotFound when there is no such file, InvalidInput when it is not such a file or a variable is not set.
    """
    try:
        servers = json.loads(path.read_bytes())["mcpServers"]
        return {
            name: _fill_variables(entry, [name])
            for name, entry in servers.items()
            if not (isinstance(entry, dict) and entry.get("disabled") is True)
        }
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}", hint="Name a client's file.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told_why = str(error) if isinstance(error, ValueError) else "it has no object mcpServers"
        raise InvalidInput(f"{path} tells no servers: {told_why}", hint='It is JSON: {"mcpServers": {…}}.') from None


def _fill_variables(value: Any, place: list[str]) -> Any:
    """Fill in the variables in the strings of a value. Raises InvalidInput for one that is not set."""
    if isinstance(value, str):
        return VARIABLE.sub(partial(_variable, place), value)
    if isinstance(value, dict):
        return {name: _fill_variables(each, [*place, name]) for name, each in value.items()}
    if isinstance(value, list):
        return [_fill_variables(each, [*place, str(index)]) for index, each in enumerate(value)]
    return value


def _variable(place: list[str], found: re.Match[str]) -> str:
    value = os.environ.get(found[1], found[2])
    if value is None:
        raise InvalidInput(
            f"{'.'.join(place)}: the variable {found[1]} is not set", hint=f"Set it, or write ${{{found[1]}:-default}}."
        )
    return value
