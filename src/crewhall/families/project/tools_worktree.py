"""Worktrees: open one, and the hub serves it to MCP clients on a port of its own (seed 001)."""

import os
from typing import Annotated

from pydantic import Field

from crewhall.app import Call, Tick
from crewhall.bounded import Limit, rows_and_total
from crewhall.errors import InvalidInput, NotFound
from crewhall.families.project.family import project
from crewhall.families.project.model import ClosedWorktree, McpState, OpenWorktree, OpenWorktrees, ToolInfo, WorktreeId
from crewhall.families.project.open_worktrees import (
    LISTENER,
    Serving,
    close_worktree,
    open_worktree,
    refuse_no_project,
    refuse_undecodable,
    served_above,
)
from crewhall.outside.repository_paths import working_tree
from crewhall.outside.root_path import real_path
from crewhall.store.transaction import Look, Row
from crewhall.tool import OPERATOR

FORGET = "crewhall config --client … --worktree … --remove"
Directory = Annotated[
    str, Field(min_length=1, max_length=4096, description="A directory; left out, where the client is.")
]
Top = Annotated[
    str, Field(min_length=1, max_length=4096, description="Its top; left out, the worktree that the client is in.")
]
Offset = Annotated[int, Field(ge=0, le=1_000_000, description="How many to pass over.")]


@project.tool("worktree_open", ours=True, changes=True, idempotent=True, who=OPERATOR)
def worktree_open(call: Call, path: Top | None = None) -> OpenWorktree:
    """Serve a worktree to MCP clients at http://localhost:<port>/mcp, sandboxed; one that is open stays as it is.

    All of it is served, so a directory inside it is refused; without a path it is the one that the client is in. It
    stays open until worktree_close, also when the hub restarts.
    """
    directory = _absolute(call, path)
    root = _top(directory)
    if path is not None:
        _refuse_inner(directory, root)
    refuse_no_project(root, call.settings.home)
    with call.begin() as tx:
        row = open_worktree(tx, call.settings.node, root, call.now)
    _settle(call)
    return _get(call, row["id"])


@project.tool("worktree_close", ours=True, changes=True, idempotent=True, who=OPERATOR)
def worktree_close(call: Call, path: Directory | None = None, id: WorktreeId | None = None) -> ClosedWorktree:
    """End a worktree's server and free its port; nothing on the disk changes."""
    with call.begin() as tx:
        row = _require(id or path, tx.one("worktree_get", id=id) if id else _at(call, tx, path))
        close_worktree(tx, row["id"])
    _settle(call)
    note = None if row["port"] is None else f"A client that was given port {row['port']} must forget it: {FORGET}"
    return ClosedWorktree(success=True, path=row["path"], port=row["port"], note=note)


@project.tool("worktree_list", ours=True)
def worktree_list(call: Call, limit: Limit = 20, offset: Offset = 0) -> OpenWorktrees:
    """The open worktrees, the oldest first: where each is, and the state of its server."""
    with call.begin() as tx:
        rows, total = rows_and_total(tx, "worktrees", {}, limit=limit, offset=offset)
    following, tools = offset + len(rows), _tools(call)
    worktrees = [_worktree_of(call, row, tools) for row in rows]
    return OpenWorktrees(worktrees=worktrees, total=total, next_offset=following if following < total else None)


@project.tool("worktree_get", ours=True)
def worktree_get(call: Call, path: Directory | None = None, id: WorktreeId | None = None) -> OpenWorktree:
    """One open worktree, and the state of its server."""
    with call.begin() as tx:
        row = tx.one("worktree_get", id=id) if id else _above(call, tx, path)
        return _worktree_of(call, _require(id or path, row), _tools(call))


def _absolute(call: Call, path: str | None) -> str:
    """A path as seen from where the client is. Raises InvalidInput when it can't be told."""
    start = call.origin.directory
    given = os.path.expanduser(path or ".")
    if not os.path.isabs(given):
        if start is None:
            raise InvalidInput(
                f"'{path or '.'}' is relative, and nobody said to what", hint="Give the worktree's absolute path."
            )
        given = os.path.join(start, given)
    given = real_path(given)
    refuse_undecodable(given)
    return given


def _top(directory: str) -> str:
    """The top of the working tree that a directory is in; without git, the directory. Raises NotFound."""
    if not os.path.isdir(directory):
        raise NotFound(f"there is no directory {directory}", hint="Give the path of a worktree or project.")
    return working_tree(directory)


def _refuse_inner(directory: str, root: str) -> None:
    """Raise InvalidInput for a directory that was named, and is only a part of what would be served."""
    if directory != real_path(root):
        raise InvalidInput(
            f"{directory} is a part of the worktree {root}, which is served as a whole",
            hint=f"Nothing was opened. Name {root} if clients may read all of that.",
        )


def _at(call: Call, look: Look, path: str | None) -> Row | None:
    """The open worktree whose top this is, or whose working tree it is in; never one further out."""
    given = _absolute(call, path)
    tops = [given, *([working_tree(given)] if os.path.isdir(given) else [])]
    rows = (look.one("worktree_at", node=call.settings.node, path=top) for top in tops)
    return next((row for row in rows if row is not None), None)


def _above(call: Call, look: Look, path: str | None) -> Row | None:
    """The open worktree that something which is there is in."""
    given = _absolute(call, path)
    return served_above(look, call.settings.node, given) if os.path.exists(given) else _at(call, look, path)


def _require(given: str | None, row: Row | None) -> Row:
    if row is None:
        raise NotFound(f"{given or 'this directory'} is no open worktree", hint="worktree_list shows them.")
    return row


def _settle(call: Call) -> None:
    call.state(LISTENER).settle()


def _get(call: Call, id: str) -> OpenWorktree:
    row = call.one("worktree_get", id=id)
    if row is None:
        raise NotFound(f"worktree {id} was closed meanwhile", hint="Open it again if it is wanted.")
    return _worktree_of(call, row, _tools(call))


def _tools(call: Call) -> list[ToolInfo]:
    """What every worktree's server offers."""
    return [
        ToolInfo(name=tool.name, description=tool.description, parameters=tool.input_schema)
        for tool in call.hub.registry.narrow("worktree").tools
    ]


def _worktree_of(call: Call, row: Row, tools: list[ToolInfo]) -> OpenWorktree:
    """An open worktree, from its row and from what the hub knows of its server.

    For another hub's servers only the row counts. In a process without a hub, nothing on this node is served.
    """
    serving = _serving(call, row)
    port = serving.port if serving else None
    state = McpState(
        server_running=serving is not None,
        port=port,
        connected_clients=serving.clients if serving else 0,
        tools=tools,
        last_error=row["last_error"] or (None if serving else _why_not(call)),
    )
    columns = {name: row[name] for name in ("id", "path", "node", "workspace_id", "opened_at")}
    return OpenWorktree(**columns, url=f"http://localhost:{port}/mcp" if port else None, mcp=state)


def _serving(call: Call, row: Row) -> Serving | None:
    """A worktree's server; this hub's own says its port itself, since the row may not have it yet."""
    is_here, servers = row["node"] == call.settings.node, call.state(LISTENER).servers
    if is_here and servers is not None:
        return servers.serving(row["id"])
    is_served = row["is_served"] and row["port"] and not (is_here and call.edge == "cli")
    return Serving(row["port"], clients=0) if is_served else None


def _why_not(call: Call) -> str:
    if call.edge == "cli":
        return "no hub runs here; `crewhall up` starts one, and that serves it"
    return "the hub that has this node's worktrees has not looked yet; it does within ten seconds"


@project.chore("worktrees", everywhere=True)
def serve_open(tick: Tick) -> None:
    """What others opened or closed, and directories that came or went."""
    tick.hub.state(LISTENER).settle()
