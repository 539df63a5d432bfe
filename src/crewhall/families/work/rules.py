"""Pure rules of family work: no clock, no database, no world."""

import posixpath
from collections.abc import Iterable

from crewhall.bounded import ItemT, fitting
from crewhall.errors import InvalidInput, LimitExceeded

METADATA_BYTES = 16_000
REPOSITORY_BYTES = 2_000  # of a path that is looked up; PostgreSQL finds nothing by a text over 2,704


def repository_path(path: str) -> str:
    """The one spelling under which a repository is kept. Raises InvalidInput for a relative path, or one too long."""
    if not path.startswith("/"):
        raise InvalidInput(
            f"path '{path}' is not absolute",
            hint="Give the repository's path from the root, as pwd prints it.",
        )
    if len(path.encode()) > REPOSITORY_BYTES:
        raise InvalidInput(
            f"the path has {len(path.encode())} bytes, and {REPOSITORY_BYTES} are allowed",
            hint="Give the repository a shorter path, by a link perhaps.",
        )
    return posixpath.normpath("/" + path.lstrip("/"))


def status_after_beat(before: str, asked: str | None) -> str:
    """A beating agent is never offline."""
    return asked or ("online" if before == "offline" else before)


def refuse_more_agents(live: int, most: int) -> None:
    """Raise LimitExceeded when as many agents are in the hall as it may hold at once."""
    if live >= most:
        raise LimitExceeded(
            f"{live} agents are in the hall, and agent.max is {most}",
            hint="Unregister the ones that are gone (agent_unregister), or raise agent.max.",
        )


def page(items: Iterable[ItemT], total: int, offset: int) -> tuple[list[ItemT], int | None]:
    """As many items as fit in a list's bytes, one at least, and where the next page begins."""
    kept = fitting(items)
    end = offset + len(kept)
    return kept, end if kept and end < total else None
