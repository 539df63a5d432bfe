"""Repositories: the git repositories that a hall knows (seed 003, global mode)."""

import posixpath

from crewhall.app import Call
from crewhall.families.work.family import work
from crewhall.families.work.model import Limit, Name, Offset, Path, Repositories, Repository, RepositoryId
from crewhall.families.work.rules import page, repository_path
from crewhall.identity import new_id


@work.tool("repository_register", changes=True, creates=True, idempotent=True, profiles=("coordinator",))
def repository_register(call: Call, path: Path, name: Name | None = None) -> RepositoryId:
    """Make a repository known to the hall by its absolute path. A path that is known already keeps its id."""
    path = repository_path(path)
    with call.begin() as tx:
        before = tx.one("repository_get", path=path)
        row = tx.one(
            "repository_put",
            id=new_id("rp"),
            path=path,
            name=name,
            default_name=posixpath.basename(path) or path,
            now=call.now,
        )
        assert row is not None
        if before is None:
            tx.event("repository.registered", row["id"])
        elif before["name"] != row["name"]:
            tx.event("repository.renamed", row["id"])
        return RepositoryId(id=row["id"])


@work.tool(
    "repository_list",
    profiles=("coordinator", "reviewer"),
    resources=("crewhall://repositories",),
)
def repository_list(call: Call, limit: Limit = 50, offset: Offset = 0) -> Repositories:
    """The repositories of the hall, the longest known first."""
    with call.begin() as tx:
        rows = tx.all("repositories", limit=limit, offset=offset)
        total = tx.value("repositories_count")
    items, following = page([Repository.from_row(row) for row in rows], total, offset)
    return Repositories(repositories=items, total=total, next_offset=following)


@work.tool("repository_get", quick=True, profiles=("coordinator",))
def repository_get(call: Call, path: Path) -> Repository | None:
    """The repository at an absolute path, or null when the hall does not know it."""
    row = call.one("repository_get", path=repository_path(path))
    return Repository.from_row(row) if row else None
