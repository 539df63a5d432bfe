"""Rules of repositories: no clock, no database, no world."""

import posixpath

from crewhall.errors import InvalidInput

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
