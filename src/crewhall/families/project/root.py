"""
Which worktree a call is about. It is never an argument: nobody chooses a root by asking for a file.

    by a worktree's own server   that worktree
    by a bridge, or as operator  the working tree that the client's directory is in; without git, the directory
    by an agent from elsewhere   the same, if the hall serves that worktree

Which directory that is, the hub noted when it began to serve it; else it is the one to which the path leads, no name in
it being a link.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from crewhall.app import Call
from crewhall.errors import Forbidden, InvalidState
from crewhall.families.project.open_worktrees import LISTENER, refuse_no_project, refuse_undecodable, served_above
from crewhall.outside.files import Top, open_root
from crewhall.outside.repository_paths import working_tree
from crewhall.outside.root_path import Identity, real_path


@dataclass(frozen=True)
class WorktreeRoot:
    """The path of a worktree, links in it resolved, and which directory it was when the hub began to serve it."""

    path: str
    identity: Identity | None = None


@contextlib.contextmanager
def open_root_of(call: Call) -> Iterator[Top]:
    """The open root of the worktree that the call is about. Raises InvalidState, Forbidden."""
    root = root_of(call)
    with open_root(root.path, root.identity) as top:
        yield top


def root_of(call: Call) -> WorktreeRoot:
    """The directory that the call may see. Raises InvalidState, Forbidden."""
    if call.origin.worktree is not None:
        return WorktreeRoot(call.origin.worktree, call.origin.identity)
    directory = call.origin.directory
    if directory is None:
        raise InvalidState(
            "it is not known which worktree this is about",
            hint="Connect by `crewhall mcp` there, or `crewhall worktree open` it and use its URL; by REST, name a "
            "directory in it by the header X-Crewhall-Directory.",
        )
    directory = real_path(directory)
    refuse_undecodable(directory)
    if call.actor.kind != "operator" and call.edge != "bridge":
        return _served_root(call, directory)
    root = working_tree(directory)
    refuse_no_project(root, call.settings.home)
    return WorktreeRoot(root)


def _served_root(call: Call, directory: str) -> WorktreeRoot:
    """The open worktree that holds a directory. Raises Forbidden: a header proves nothing, so no other is given."""
    with call.begin() as tx:
        row = served_above(tx, call.settings.node, directory)
    if row is None:
        raise Forbidden(
            f"no open worktree holds {directory}",
            hint="Ask the operator for `crewhall worktree open`; `crewhall worktree list` shows those that are open.",
        )
    servers = call.state(LISTENER).servers
    serving = None if servers is None else servers.serving(row["id"])
    return WorktreeRoot(row["path"], None if serving is None else serving.identity)
