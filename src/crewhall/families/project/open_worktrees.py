"""
Open worktrees: directories that the hub of their node serves, each on a port of its own.

    open ── a row ──▶ the node's hub sees it ──▶ served on the first free port from 3000 up
    close ── no row ──▶ the server ends ──▶ the port is free

The rows say what is wanted, and outlive the hub; `Servers` is how the process that listens is told to look at them.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from crewhall.errors import InvalidInput
from crewhall.families.project.family import project
from crewhall.identity import new_id
from crewhall.outside.root_path import Identity, real_path
from crewhall.paths import is_below
from crewhall.store.transaction import Look, Row, Tx

KERNEL = ("/proc", "/sys", "/dev")  # what looks like files there is none


@dataclass(frozen=True)
class Serving:
    """A server that listens: its port, how many clients it has seen at once in the last minute, and its directory."""

    port: int
    clients: int
    identity: Identity | None = None


class Servers(Protocol):
    """The listening side of a hub."""

    def settle(self) -> None:
        """Serve what is open and end what is not. It has happened when this returns, or a row tells why not."""

    def nudge(self) -> None:
        """The same, soon."""

    def serving(self, worktree_id: str) -> Serving | None:
        """The state of a worktree's server; None when there is no such server."""


class Listener:
    """The listening side of this hub, while it is the one that serves its node's worktrees; else nobody listens."""

    servers: Servers | None = None

    def settle(self) -> None:
        if self.servers is not None:
            self.servers.settle()

    def nudge(self) -> None:
        if self.servers is not None:
            self.servers.nudge()


LISTENER = project.state(lambda _: Listener())


def open_worktree(tx: Tx, node: str, path: str, now: int, workspace_id: str | None = None) -> Row:
    """The row of an open worktree; one that is open already stays as it is."""
    id = new_id("wt")
    if tx.count("worktree_insert", id=id, node=node, path=path, workspace_id=workspace_id, now=now):
        tx.event("worktree.opened", id, after="open")
    row: Row | None = tx.one("worktree_at", node=node, path=path)
    assert row is not None
    return row


def close_worktree(tx: Tx, id: str) -> None:
    """A worktree is open no more."""
    if tx.count("worktree_delete", id=id):
        tx.event("worktree.closed", id, before="open", after="closed")


def note_served(
    tx: Tx, id: str, port: int | None, now: int, *, is_served: bool, before: int | None, error: str | None
) -> None:
    """The state of a worktree's server, also as an event: one that says so when it has another port than before."""
    if not tx.count("worktree_served", id=id, port=port, is_served=int(is_served), last_error=error, now=now):
        return  # it was closed meanwhile
    state = json.dumps({"mcp": {"server_running": is_served, "port": port, "last_error": error}})
    if not is_served:
        tx.event("worktree.failed" if error else "worktree.stopped", id, data=state)
    elif before in (None, port):
        tx.event("worktree.served", id, after=str(port), data=state)
    else:
        tx.event("worktree.moved", id, before=str(before), after=str(port), data=state)


def close_of_workspace(tx: Tx, workspace_id: str) -> None:
    """The worktree of a workspace goes with it."""
    for row in tx.all("worktrees_of_workspace", workspace_id=workspace_id):
        close_worktree(tx, row["id"])


def served_above(look: Look, node: str, directory: str) -> Row | None:
    """The innermost open worktree that a directory is in."""
    return look.one("worktree_above", node=node, directory=directory)


def refuse_no_project(root: str, hall: Path | None = None) -> None:
    """Raise InvalidInput for what is no project: all files, all of a person's, none, the hall's own, or no text."""
    refuse_undecodable(root)
    home = real_path(os.path.expanduser("~"))
    if hall is not None and is_below(root, real_path(str(hall))):
        raise InvalidInput(f"{root} is the hall's own directory", hint="Nobody reads that but you: it has your token.")
    if is_below(home, root) or _is_kernels(root):
        raise InvalidInput(
            f"{root} is no project", hint="Go into a project's directory, or name one: not /, a home, or the kernel's."
        )


def _is_kernels(path: str) -> bool:
    if path.startswith("/dev/shm/"):  # noqa: S108 - files in memory, which are as good as any
        return False
    return any(is_below(path, top) for top in KERNEL)


def refuse_undecodable(path: str) -> None:
    """Raise InvalidInput for a path that is not text, which no answer can hold."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{path} is not UTF-8", hint="Rename the directory, or work by another path that leads to it."
        ) from None
