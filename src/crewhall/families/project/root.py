"""
Which worktree a call is about. It is never an argument: nobody chooses a root by asking for a file.

    by a worktree's own server   that worktree
    by a bridge, or as operator  the working tree that the client's directory is in; without git, the directory
    by an agent from elsewhere   the same, if the hall serves that worktree
"""

import os

from crewhall.app import Call, Origin
from crewhall.errors import Forbidden, InvalidState
from crewhall.families.project.open_worktrees import refuse_no_project, refuse_undecodable, served_above
from crewhall.outside.repository_paths import identity_of, working_tree


def root_of(call: Call) -> str:
    """The directory that the call may see, links in its path resolved. Raises InvalidState, Forbidden."""
    if call.origin.worktree is not None:
        _refuse_other(call.origin)
        return call.origin.worktree
    directory = call.origin.directory
    if directory is None:
        raise InvalidState(
            "it is not known which worktree this is about",
            hint="Connect by `crewhall mcp` there, or `crewhall worktree open` it and use its URL; by REST, name a "
            "directory in it by the header X-Crewhall-Directory.",
        )
    directory = os.path.realpath(directory)
    refuse_undecodable(directory)
    if call.actor.kind != "operator" and call.edge != "bridge":
        return _served_root(call, directory)
    root = working_tree(directory)
    refuse_no_project(root, call.settings.home)
    return root


def _refuse_other(origin: Origin) -> None:
    """What was opened is served, and not what somebody put in its place, or in that of a directory above it."""
    assert origin.worktree is not None
    if origin.identity not in (None, identity_of(origin.worktree)):
        raise InvalidState(
            f"{origin.worktree} is another directory by now, or gone",
            hint="The hub looks at it anew within ten seconds; `crewhall worktree list` tells what it finds.",
        )


def _served_root(call: Call, directory: str) -> str:
    """The open worktree that holds a directory. Raises Forbidden: a header proves nothing, so no other is given."""
    with call.begin() as tx:
        row = served_above(tx, call.settings.node, directory)
    if row is None:
        raise Forbidden(
            f"no open worktree holds {directory}",
            hint="Ask the operator for `crewhall worktree open`; `crewhall worktree list` shows those that are open.",
        )
    return str(row["path"])
