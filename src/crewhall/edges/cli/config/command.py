"""`crewhall config`: a client's entry for the hall, printed, written or removed, with notes for the operator."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from crewhall.config import Settings, from_environment
from crewhall.edges.cli.config.by_url import by_url
from crewhall.edges.cli.config.by_worktree import by_worktree
from crewhall.edges.cli.config.options import USAGE, ConfigRequest, parse_request
from crewhall.edges.cli.hall_client import Hall
from crewhall.errors import Conflict, InvalidInput
from crewhall.outside.clients.by_bridge import by_bridge
from crewhall.outside.clients.catalog import CLIENTS, HallTransport, merge_entries
from crewhall.outside.clients.entry import EntryLocation, default_location, find, is_ours
from crewhall.outside.clients.settings_file import SettingsChange
from crewhall.outside.repository_paths import place_of
from crewhall.paths import is_below


@dataclass(frozen=True)
class Guest:
    """The way in that the client gets, and who it is then: an agent, or the operator."""

    way: HallTransport
    agent_id: str | None = None
    is_new: bool = False

    @property
    def is_secret(self) -> bool:
        return self.agent_id is not None or "CREWHALL_DATABASE_URL" in self.way.variables


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    """Do what the words after `config` say; the exit code."""
    if "--help" in flags or "-h" in flags:
        sys.stdout.write(USAGE)
        return 0
    request = parse_request(rest)
    hall = Hall(from_environment(settings_flags))
    if request.has("--remove"):
        return remove(request, hall, flags)
    return (write if request.has("--write") else show)(request, hall, flags)


# The three things that it does


def show(request: ConfigRequest, hall: Hall, flags: dict[str, str]) -> int:
    """Print the entry; a file that cannot be read is no hindrance."""
    asked = (request.client, request.name, request.scope, request.directory, request.of("--file"))
    try:
        place = find(*asked)
    except (InvalidInput, OSError):
        place = default_location(*asked)
    guest = _guest(request, hall, _way(request, hall), place.entry)
    sys.stdout.write(place.snippet(request.client.entry(guest.way)))
    _note(f"This belongs into {place.file}; --write puts it there.", *_notes(request, hall, guest, place))
    return 0


def write(request: ConfigRequest, hall: Hall, flags: dict[str, str]) -> int:
    """Put the entry into the client's file."""
    _refuse_useless(request, hall.settings)
    place, old = _find_entry(request, hall)
    place.try_put()
    way = _way(request, hall)
    if request.scope == "project" and ("--agent" in request.options or Guest(way).is_secret):
        raise InvalidInput(
            f"{place.file} is usually committed, and a token or password is no part of a project",
            hint="Leave --scope out, or what needs the secret.",
        )
    guest = _guest(request, hall, way, old)
    entry = merge_entries(request.client, old or {}, request.client.entry(guest.way))
    done = place.put(entry, is_secret=guest.is_secret)
    _tell(request, done, flags, "is in" if done.has_changed else "is already in", agent_id=guest.agent_id)
    _note(*_notes(request, hall, guest, place))
    return 0


def remove(request: ConfigRequest, hall: Hall, flags: dict[str, str]) -> int:
    """Take the entry out of the client's file."""
    place, old = _find_entry(request, hall)
    done = SettingsChange(place.file, False) if old is None else place.drop()
    _tell(request, done, flags, "is no longer in" if done.has_changed else "is not in")
    if old and request.client.token(old):
        _note("The token that stood there still counts; `crewhall agent revoke <agent id>` ends it.")
    return 0


def _find_entry(request: ConfigRequest, hall: Hall) -> tuple[EntryLocation, dict[str, Any] | None]:
    """The place for the entry, and what stands there. Raises Conflict when that is somebody else's."""
    place = find(request.client, request.name, request.scope, request.directory, request.of("--file"))
    _refuse_outside(request, place)
    old = place.entry
    if old is None or is_ours(request.client, request.name, old, hall.urls):
        return place, old
    if not request.has("--force"):
        raise Conflict(
            f"'{request.name}' in {place.file} is not Crewhall's",
            hint="Choose another with --name; --force replaces or removes it all the same.",
        )
    return place, {} if request.has("--write") else old


def _refuse_outside(request: ConfigRequest, place: EntryLocation) -> None:
    """Raise InvalidInput when a link leads the file of a project, which may be a stranger's, out of it."""
    if request.scope != "project" or request.of("--file"):
        return
    project = os.path.realpath(request.directory)
    around = place_of(project)
    target = os.path.realpath(place.file)
    if not is_below(target, around.top if around else project):
        raise InvalidInput(
            f"{place.file} leads out of the project, to {target}",
            hint=f"If you want it there, name it: --file {shlex.quote(target)}.",
        )


def _refuse_useless(request: ConfigRequest, settings: Settings) -> None:
    """Raise InvalidInput for an entry that the client could not use."""
    if not request.has("--url"):
        return
    if not request.client.takes_url:
        raise InvalidInput(
            f"{request.client.title} takes no URL from its file, it starts commands", hint="Leave --url out."
        )
    if "--agent" not in request.options and not _is_let_in(settings):
        raise InvalidInput(
            "without a token this hub lets nobody in by its URL",
            hint="--agent NAME gives the client one; a bridge needs none.",
        )


def _is_let_in(settings: Settings) -> bool:
    """Whether a client of this user needs no token over HTTP."""
    return sys.platform == "linux" and bool(settings["auth.local_without_token"])


# The way in, and who comes by it


def _guest(request: ConfigRequest, hall: Hall, way: HallTransport, old: dict[str, Any] | None) -> Guest:
    agent = request.of("--agent")
    if agent is None:
        return Guest(way)
    from crewhall.edges.cli.config.token import grant

    held = request.client.token(old) if old else None
    granted = grant(hall, agent, request.of("--role"), request.client.runtime, held)
    if way.url is None:
        way = replace(way, variables={**way.variables, "CREWHALL_TOKEN": granted.token})
    else:
        way = replace(way, headers={**way.headers, "Authorization": f"Bearer {granted.token}"})
    return Guest(way, granted.agent_id, granted.is_new)


def _way(request: ConfigRequest, hall: Hall) -> HallTransport:
    families, profile = request.of("--families"), request.of("--profile")
    if families or profile:
        from crewhall.edges.mcp.caller import caller
        from crewhall.families.all import registry
        from crewhall.identity import OPERATOR

        caller(registry(), OPERATOR, families or "", profile, edge="cli")  # which refuses what there is not
    if not request.has("--url"):
        if request.worktree and not families:
            families, profile = ("project", profile) if profile else (None, "worktree")
        return by_bridge(hall.settings, families, profile, request.worktree)
    if not request.worktree:
        return by_url(hall, families, profile)
    if families or profile not in (None, "worktree", "readonly"):
        raise InvalidInput(
            "a worktree's server has its own few tools",
            hint="Leave --families and --profile out, or --url; --profile readonly alone shortens the list.",
        )
    return by_worktree(hall, request.worktree, profile)


# What is printed


def _tell(request: ConfigRequest, done: SettingsChange, flags: dict[str, str], now: str, **more: Any) -> None:
    """Say what became of the file."""
    backup = None if done.backup is None else str(done.backup)
    facts = {"name": request.name, "file": str(done.file), "changed": done.has_changed, "backup": backup} | more
    line = f"{request.name} {now} {done.file}" + (f"; the old text is in {done.backup.name}" if done.backup else "")
    sys.stdout.write((json.dumps(facts) if "--json" in flags else line) + "\n")


def _note(*lines: str) -> None:
    """What a person should know, apart from what a program reads."""
    sys.stdout.flush()
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def _notes(request: ConfigRequest, hall: Hall, guest: Guest, place: EntryLocation) -> Iterator[str]:
    yield f"To check it: {request.client.check}."
    yield _who(request, guest)
    if request.scope == "local":
        yield f"It counts in {place.keys[1]} and in all worktrees of it."
    if request.scope == "project" and not request.has("--url"):
        yield "The path of the command is this machine's; on another one it is elsewhere."
    if request.scope == "project" and request.client is CLIENTS["claude"]:
        yield "Claude Code asks for your approval when it starts there."
    if request.has("--url"):
        yield from _doubts(request, hall, guest)
    repository = place_of(os.path.realpath(place.file.parent)) if guest.is_secret else None
    if repository is not None:
        yield f"Mind that the file is in the repository {repository.top}: what is secret in it is not to be committed."


def _who(request: ConfigRequest, guest: Guest) -> str:
    title = request.client.title
    if guest.agent_id is None:
        return f"{title} speaks for you there, the operator; --agent NAME makes it an agent with its own token."
    token = "The token is new" if guest.is_new else "The token is the one that was there"
    return f"{title} is agent {guest.agent_id} there. {token}; who reads it can act as that agent."


def _doubts(request: ConfigRequest, hall: Hall, guest: Guest) -> Iterator[str]:
    """Why a URL may not do."""
    if hall.url is None:
        yield "No hub answers there now; `crewhall up` starts one."
    if not request.client.takes_url:
        yield f"{request.client.title} starts commands only and takes no URL from its file; other clients do."
    elif guest.agent_id is None and not _is_let_in(hall.settings):
        yield "Without a token the hub lets nobody in by its URL; --agent NAME gives the client one."
