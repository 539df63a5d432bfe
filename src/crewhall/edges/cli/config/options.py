"""The words after `crewhall config`, and the request that they make."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from crewhall.errors import InvalidInput, NotFound
from crewhall.options import read_words
from crewhall.outside.clients.catalog import CLIENTS, KnownClient
from crewhall.outside.repository_paths import working_tree
from crewhall.spelling import did_you_mean

USAGE = f"""\
usage: crewhall config --client C [--write | --remove] [--url] [--agent NAME [--role R]] [--worktree PATH] …

Prints what a client's settings need to join this hall; --write puts it there and keeps all else in the file.

  --client C       {", ".join(CLIENTS)}
  --write          merge it into the client's file; the old text is kept beside it, and twice changes nothing
  --remove         take the entry out again
  --bridge         the client starts `crewhall mcp`, which starts a hub if none runs; this is the default
  --url            the client connects to the hub's URL; a hub has to run
  --operator       the client speaks for you; this is the default
  --agent NAME     the client is this agent, by a token of its own; the agent is made if there is none
  --role R         of a new agent: worker (the default) or coordinator
  --worktree PATH  the files and recipes of this worktree, instead of the whole hall
  --families A,B   show the tools of these families alone
  --profile P      worker, coordinator, reviewer, standard, worktree, readonly or all
  --name N         what the client calls it: crewhall, or crewhall-<directory> for a worktree
  --scope S        user (the default) or project; for Claude Code also local: for you, in one repository
  --file F         another file than the client's own
  --force          replace or remove an entry of that name that is not Crewhall's
"""
SWITCHES = ("--write", "--remove", "--bridge", "--url", "--operator", "--force")
VALUES = ("--client", "--agent", "--role", "--worktree", "--families", "--profile", "--name", "--scope", "--file")
APART = (("--write", "--remove"), ("--bridge", "--url"), ("--operator", "--agent"))
HINT = "`crewhall config --help` tells what there is."


@dataclass(frozen=True)
class ConfigRequest:
    """What `crewhall config` is asked to do."""

    client: KnownClient
    name: str
    scope: str
    directory: Path
    options: dict[str, str]
    switches: frozenset[str]

    def of(self, option: str) -> str | None:
        return self.options.get(option)

    def has(self, switch: str) -> bool:
        return switch in self.switches

    @property
    def worktree(self) -> str | None:
        return str(self.directory) if "--worktree" in self.options else None


def parse_request(rest: list[str]) -> ConfigRequest:
    """The words as a request. Raises InvalidInput, NotFound."""
    options, switches = _split(rest)
    for one, other in APART:
        if {one, other} <= options.keys() | switches:
            raise InvalidInput(f"{one} and {other} exclude each other", hint=HINT)
    if "--role" in options and "--agent" not in options:
        raise InvalidInput("--role is for a new agent", hint="Give --agent NAME with it.")
    client = _client(options.get("--client"))
    _one_of("--role", options.get("--role", "worker"), ("worker", "coordinator"))
    is_local = "local" in client.scopes and "--worktree" in options and "--file" not in options
    scope = _one_of("--scope", options.get("--scope", "local" if is_local else "user"), client.scopes)
    if scope == "local" and "--file" in options:
        raise InvalidInput("--scope local has a file of its own", hint="Leave --scope or --file out.")
    directory = _worktree(options["--worktree"]) if "--worktree" in options else _directory(".")
    name = options.get("--name") or _name(directory if "--worktree" in options else None)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise InvalidInput(f"'{name}' is no name for a server", hint="Use letters, digits, - and _, at most 64.")
    return ConfigRequest(client, name, scope, directory, options, frozenset(switches))


def _split(rest: list[str]) -> tuple[dict[str, str], set[str]]:
    options: dict[str, str] = {}
    switches: set[str] = set()
    for word in read_words(rest, lambda name, following: name in VALUES and not following.startswith("--")):
        if word.text in SWITCHES and word.is_option:
            switches.add(word.text)
        elif word.name not in VALUES:
            meant = did_you_mean(word.name, (*SWITCHES, *VALUES), ", did you mean {}?")
            raise InvalidInput(f"unexpected argument '{word.text}'{meant}", hint=HINT)
        elif word.value is None or word.text == f"{word.name}=":
            raise InvalidInput(f"{word.name} needs a value", hint=HINT)
        else:
            options[word.name] = word.value
    return options, switches


def _client(name: str | None) -> KnownClient:
    if name is None:
        raise InvalidInput("which client?", hint=f"--client is one of {', '.join(CLIENTS)}.")
    return CLIENTS[_one_of("--client", name, tuple(CLIENTS))]


def _one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        wrong = f"{option} is '{value}'{did_you_mean(value, known, ', did you mean {}?')}"
        raise InvalidInput(wrong, hint=f"Here it is one of {', '.join(known)}.")
    return value


def _directory(path: str) -> Path:
    """The top of the working tree that a path is in; without git, the path. Raises NotFound."""
    directory = os.path.realpath(os.path.expanduser(path))
    if not os.path.isdir(directory):
        raise NotFound(f"there is no directory {directory}", hint="--worktree takes the path of a worktree or project.")
    return Path(working_tree(directory))


def _worktree(path: str) -> Path:
    """As _directory, for one that is to be served. Raises InvalidInput for one that is too wide, too."""
    from crewhall.families.project.open_worktrees import refuse_no_project

    directory = _directory(path)
    refuse_no_project(str(directory))
    return directory


def _name(worktree: Path | None) -> str:
    return "crewhall" if worktree is None else f"crewhall-{re.sub(r'[^A-Za-z0-9_-]+', '-', worktree.name)}"[:64]
