"""A worktree's server as a client's settings name it."""

from crewhall.edges.cli.config.by_url import profile_header
from crewhall.edges.cli.hall_client import Hall, result_of
from crewhall.errors import Unavailable
from crewhall.outside.clients.catalog import HallTransport


def by_worktree(hall: Hall, path: str, profile: str | None) -> HallTransport:
    """The server of a worktree, which the hub opens if need be. Raises Unavailable, or what the hall answers."""
    if hall.url is None:
        raise Unavailable(
            f"no hub of this hall runs here, so nothing serves {path}",
            hint="Start one with `crewhall up`; or leave --url out: a bridge starts one itself.",
        )
    opened = result_of(hall, "worktree_open", "worktree open", path=path)
    if opened["url"] is None:
        raise Unavailable(
            f"{path} is open and not served yet: {opened['mcp']['last_error']}",
            hint="`crewhall worktree list` tells when it is; then try again.",
        )
    return HallTransport(url=opened["url"], headers=profile_header(profile))
