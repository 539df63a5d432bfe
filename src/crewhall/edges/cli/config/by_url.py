"""The hub's URL as a client's settings name it."""

from crewhall.config import Settings
from crewhall.edges.cli.hall_client import Hall
from crewhall.errors import Unavailable
from crewhall.outside.clients.catalog import HallTransport


def by_url(hall: Hall, families: str | None, profile: str | None) -> HallTransport:
    """The hub that runs, or where it will be when it does. Raises Unavailable when that cannot be told."""
    url = hall.url or _configured_url(hall.settings)
    return HallTransport(url=f"{url}/mcp/{families}" if families else f"{url}/mcp", headers=profile_header(profile))


def profile_header(profile: str | None) -> dict[str, str]:
    """The header that picks a profile; empty without one."""
    return {"X-Crewhall-Profile": profile} if profile else {}


def _configured_url(settings: Settings) -> str:
    from crewhall.edges.web.pages import url_of

    if not settings["server.port"]:
        raise Unavailable(
            "no hub runs, and server.port is 0: its address is not known",
            hint="Start one with `crewhall up`, or leave --url out.",
        )
    return url_of(settings, settings["server.port"])
