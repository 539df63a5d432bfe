"""The bridge as a client's settings name it: the command that starts it, and the variables it needs."""

import os
import sys
from pathlib import Path

from crewhall.config import BY_KEY, Settings
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


def _program() -> list[str]:
    beside = Path(sys.executable).with_name("crewhall")
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "crewhall"]


def _variables(settings: Settings) -> dict[str, str]:
    """The variables that name the hall in this environment: a client may not pass them on to its bridge."""
    named = [BY_KEY[key] for key in HALLS if any(os.environ.get(name) for name in BY_KEY[key].variables)]
    return {setting.variable: _absolute(str(settings[setting.key])) for setting in named if settings[setting.key]}


def _absolute(place: str) -> str:
    return place if "://" in place else str(Path(place).expanduser().absolute())
