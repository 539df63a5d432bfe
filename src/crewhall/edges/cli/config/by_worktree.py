"""A worktree's server as a client's settings name it."""

from crewhall.edges.cli.config.by_url import _profile
from crewhall.edges.cli.hall_client import Hall, called
from crewhall.errors import Unavailable
from crewhall.outside.clients.catalog import HallTransport


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
