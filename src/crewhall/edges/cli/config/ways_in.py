"""The ways into a hall as a client's settings name them: the command that starts a bridge, or a URL."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crewhall.config import BY_KEY, Settings
from crewhall.edges.cli.hall_client import Hall
from crewhall.errors import Unavailable, every_failure
from crewhall.outside.clients.catalog import HallTransport

HALLS = ("database.path", "database.url")  # which hall it is, besides its directory


def by_bridge(settings: Settings, families: str | None, profile: str | None, directory: str | None) -> HallTransport:
    """The bridge of this installation, for this hall, wherever the client starts it; perhaps for one directory."""
    home = [] if settings.home == Path(BY_KEY["home"].default).expanduser() else ["--home", str(settings.home)]
    words = [*_program(), *home, "mcp"]
    words += ["--families", families] if families else []
    words += ["--profile", profile] if profile else []
    words += ["--directory", directory] if directory else []
    return HallTransport(words=tuple(words), variables=_variables(settings))


def by_url(hall: Hall, families: str | None, profile: str | None) -> HallTransport:
    """The hub that runs, or where it will be when it does. Raises Unavailable when that cannot be told."""
    url = hall.url or _settled_url(hall.settings)
    return HallTransport(url=f"{url}/mcp/{families}" if families else f"{url}/mcp", headers=_profile(profile))


def _profile(profile: str | None) -> dict[str, str]:
    return {"X-Crewhall-Profile": profile} if profile else {}


def by_worktree(hall: Hall, path: str, profile: str | None) -> HallTransport:
    """The server of a worktree, opened if it is not. Raises Unavailable, or what the hall answers."""
    if hall.url is None:
        raise Unavailable(
            f"no hub of this hall runs here, so nothing serves {path}",
            hint="Start one with `crewhall up`; or leave --url out: a bridge starts one itself.",
        )
    told = called(hall, "worktree_open", "worktree open", path=path)
    if told["url"] is None:
        raise Unavailable(
            f"{path} is open and not served yet: {told['mcp']['last_error']}",
            hint="`crewhall worktree list` tells when it is; then try again.",
        )
    return HallTransport(url=told["url"], headers=_profile(profile))


def called(hall: Hall, tool: str, command: str, **arguments: Any) -> dict[str, Any]:
    """A tool's result. Raises the failure that the hall answers with."""
    described: Mapping[str, Any] = {"name": tool, "command": command.split()}
    body, has_succeeded = hall.call(described, arguments)
    if has_succeeded:
        return body
    kinds = {kind.code: kind for kind in every_failure()}
    raise kinds.get(body["code"], Unavailable)(body["message"], hint=body["hint"])


def _program() -> list[str]:
    beside = Path(sys.executable).with_name("crewhall")
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "crewhall"]


def _variables(settings: Settings) -> dict[str, str]:
    """What names the hall in this environment alone: a client does not pass its own on to a bridge, or has another."""
    told = [BY_KEY[key] for key in HALLS if any(os.environ.get(name) for name in BY_KEY[key].variables)]
    return {setting.variable: _absolute(str(settings[setting.key])) for setting in told if settings[setting.key]}


def _absolute(place: str) -> str:
    return place if "://" in place else str(Path(place).expanduser().absolute())


def _settled_url(settings: Settings) -> str:
    from crewhall.edges.web.pages import url_of

    if not settings["server.port"]:
        raise Unavailable(
            "no hub runs, and server.port is 0: its address is not known",
            hint="Start one with `crewhall up`, or leave --url out.",
        )
    return url_of(settings, settings["server.port"])
