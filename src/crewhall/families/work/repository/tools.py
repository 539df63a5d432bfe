"""Repositories: the git repositories that a hall knows (seed 003, global mode)."""

import posixpath
from dataclasses import dataclass
from typing import cast

from crewhall.app import Call
from crewhall.bounded import Limit, Offset, page, rows_and_total
from crewhall.families.work.family import work
from crewhall.families.work.model import Name, Path
from crewhall.families.work.repository.model import Repositories, Repository, RepositoryId, RepositoryRow
from crewhall.families.work.repository.rules import repository_path
from crewhall.identity import new_id
from crewhall.outside.repository_paths import repository_root
from crewhall.store.transaction import Tx


@dataclass(frozen=True)
class Site:
    """Where work is done: a repository of this machine, or a path that the hall takes as it is."""

    path: str
    is_repository: bool


def site_of(path: str) -> Site:
    """The repository that an absolute path is in, one for all its working trees; a path in none is itself."""
    spelling = repository_path(path)
    root = repository_root(spelling)
    return Site(spelling, False) if root is None else Site(repository_path(root), True)


def make_known(tx: Tx, path: str, name: str | None, now: int) -> str:
    """The id of the repository at a path, which the hall knows from now on."""
    before, made = tx.one("repository_get", path=path), new_id("rp")
    default = posixpath.basename(path) or path
    assert tx.work is not None
    fields = {"path": path, "name": name, "default_name": default, "actor": tx.work.actor}
    row = tx.one("repository_put", id=made, now=now, **fields)
    assert row is not None
    repository_id: str = row["id"]
    if repository_id == made:
        tx.event("repository.registered", repository_id)
    elif before is not None and before["name"] != row["name"]:
        tx.event("repository.renamed", repository_id)
    return repository_id


@work.tool("repository_register", changes=True, creates=True, idempotent=True, profiles=("coordinator",))
def repository_register(call: Call, path: Path, name: Name | None = None) -> RepositoryId:
    """Make a repository known to the hall by its absolute path. A path that is known already keeps its id."""
    path = repository_path(path)
    with call.begin() as tx:
        return RepositoryId(id=make_known(tx, path, name, call.now))


@work.tool(
    "repository_list",
    profiles=("coordinator", "reviewer", "planning"),
    resources=("crewhall://repositories",),
)
def repository_list(call: Call, limit: Limit = 50, offset: Offset = 0) -> Repositories:
    """The repositories of the hall, the longest known first."""
    with call.begin() as tx:
        rows, total = rows_and_total(tx, "repositories", {}, limit=limit, offset=offset)
    items, following = page([Repository.from_row(row) for row in rows], total, offset)
    return Repositories(repositories=items, total=total, next_offset=following)


@work.tool("repository_get", pace="quick", profiles=("coordinator",))
def repository_get(call: Call, path: Path) -> Repository | None:
    """The repository at an absolute path, or null when the hall does not know it."""
    row = cast("RepositoryRow | None", call.one("repository_get", path=repository_path(path)))
    return Repository.from_row(row) if row else None
