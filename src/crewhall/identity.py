"""
Who is calling: the operator or an agent, told by what comes with each request and by nothing else.

    process of an instance's session ──▶ that instance, whatever it brings along
    bearer token ──▶ operator | agent          cookie of the dashboard ──▶ operator
    no token     ──▶ operator, when it is a process of the hub's own user and no browser; refused otherwise
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from crewhall.errors import Unauthorized
from crewhall.hall_directory import make_home
from crewhall.outside.processes import ProcessId, lineage
from crewhall.outside.processes import identify as identify_process
from crewhall.store.transaction import Look, QueuedStatement, Row, Rows, Store, Tx
from crewhall.token_file import TOKEN_FILE, read_operator_token

ID_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
LINK_MS = 15 * 60_000


def new_id(prefix: str) -> str:
    """A prefix and twelve random letters or digits."""
    number, letters = secrets.randbelow(36**12), ""
    for _ in range(12):
        number, digit = divmod(number, 36)
        letters += ID_LETTERS[digit]
    return f"{prefix}_{letters}"


@dataclass(frozen=True)
class Actor:
    """Who makes a call. `proof` says how it is known: token, cookie, local or process.

    An agent that the hall itself started has its `instance` id, and the `tier` that it was started with.
    """

    kind: str
    id: str
    role: str | None = None
    type: str | None = None
    proof: str = "local"
    readonly: bool = False
    instance: str | None = None
    tier: int | None = None
    unproven: "SeenToken | None" = field(default=None, compare=False, repr=False)

    @property
    def kinds(self) -> frozenset[str]:
        """The words that a tool's `who` may name; an instance is held to its type, whatever its role."""
        return frozenset(word for word in (self.kind, self.type or self.role) if word)

    @property
    def profile(self) -> str:
        """The list of tools that this actor sees unless it asks for another."""
        if self.kind == "operator":
            return "standard"
        if self.instance is not None and self.type is not None:
            return self.type
        return "reviewer" if self.type == "review" else self.role or "worker"

    def reading_only(self) -> "Actor":
        return replace(self, readonly=True)


OPERATOR = Actor("operator", "operator")


@dataclass(frozen=True)
class SeenToken:
    """A token's hash, and the row that it had when it was looked up last.

    An actor that is known by it alone is a guess: the call looks the row up again, in its own first trip.
    """

    hash: str
    row: Row

    def refuse_changed(self, rows: Rows) -> None:
        """Raise Unauthorized for a token that is worthless now, TokenChanged for one that stands for another."""
        now = next(iter(rows.rows), None)
        if now is None:
            raise _unknown_token(("operator", "agent"))
        if now != self.row:
            raise TokenChanged


class TokenChanged(Exception):
    """A token stands for another actor than it did: identify the caller again."""


class TokenMemory:
    """The tokens that were looked up, by their hashes: what they stood for then."""

    def __init__(self, most: int = 10_000) -> None:
        self._rows: dict[str, Row] = {}
        self._most = most

    def put(self, token_hash: str, row: Row) -> None:
        if len(self._rows) >= self._most:
            self._rows.clear()
        self._rows[token_hash] = row

    def guess(self, token: str) -> Actor | None:
        """The actor that a bearer token stood for, to be proven by the call."""
        token_hash = hash_of(token)
        row = self._rows.get(token_hash)
        if row is None or row["kind"] not in ("operator", "agent"):
            return None
        return replace(_actor_of(row), unproven=SeenToken(token_hash, row))


class Sender:
    """The process at the other end of a connection, and the instance that it belongs to.

    `pids` names the processes that hold that end; it is called once at most, and only while an instance lives. An
    instance's process is recorded before its program runs, so a connection that is nobody's stays nobody's.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self.is_known = False
        self.instance: str | None = None

    def trace(self, store: Store, node: str) -> None:
        """Find out which of the node's living instances it belongs to, if any."""
        with store.read() as tx:
            rows = tx.all("instances_alive", node=node)
        leaders = {ProcessId(row["pid"], row["process_started"]): row["id"] for row in rows}
        self.instance = self._instance_of(leaders) if leaders else None
        self.is_known = True

    def _instance_of(self, leaders: Mapping[ProcessId, str]) -> str | None:
        pids = {leader.pid for leader in leaders}
        above = (identify_process(pid) for own in self._pids() for pid in lineage(own) if pid in pids)
        return next((leaders[one] for one in above if one is not None and one in leaders), None)


@dataclass(frozen=True)
class Credentials:
    """What a request brought: a bearer token, a cookie, or being a local process that is no browser; and its sender."""

    token: str | None = None
    cookie: str | None = None
    is_local: bool = False
    sender: Sender | None = None

    @property
    def needs_no_look(self) -> bool:
        """Whether nothing has to be looked up: it is the operator's own process, and of no instance."""
        is_nobodys = self.sender is None or (self.sender.is_known and self.sender.instance is None)
        return self.is_local and self.token is None and self.cookie is None and is_nobodys

    @property
    def is_instances(self) -> bool:
        """Whether it comes from an instance's process, and so is that instance's, whatever it brought."""
        return self.sender is not None and self.sender.instance is not None

    @cached_property
    def hash(self) -> str | None:
        """What the hall has of the token or cookie that it brought; None when it brought neither."""
        brought = self.token if self.token is not None else self.cookie
        return None if brought is None else hash_of(brought)


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def identify(look: Look, credentials: Credentials, now: int, memory: TokenMemory | None = None) -> Actor:
    """The actor these credentials stand for. Raises Unauthorized; a wrong token is never taken for none.

    The sender has been traced. If it belongs to an instance, no token or cookie makes it another.
    """
    if credentials.sender is not None and credentials.sender.instance is not None:
        return _by_process(look, credentials.sender.instance)
    if credentials.token is not None:
        return _by_token(look, credentials.token, ("operator", "agent"), now, memory)
    if credentials.cookie is not None:
        return _by_token(look, credentials.cookie, ("browser",), now)
    if credentials.is_local:
        return OPERATOR
    raise Unauthorized(
        "this request carries no token",
        hint="Send `Authorization: Bearer <token>`; a browser opens the link that `crewhall up` prints.",
    )


def hashes_gone(store: Store, hashes: Collection[str], now: int) -> set[str]:
    """Those of these tokens, given by their hashes, that open nothing any more: one query, however many they are."""
    (found,) = store.ask([QueuedStatement("tokens_gone", {"hashes": json.dumps(list(hashes)), "now": now})])
    return {row["hash"] for row in found.rows}


def _by_process(look: Look, instance_id: str) -> Actor:
    row = look.one("instance_alive", id=instance_id)
    if row is None:
        raise Unauthorized(
            f"this process belongs to {instance_id}, which has ended",
            hint="The operator can restart the instance with `crewhall instance restart`.",
        )
    return _agent_actor(row, "process")


def guard_against_end(tx: Tx, actor: Actor) -> None:
    """Let the transaction end with Unauthorized for an instance that the hall has ended since it was identified."""
    if actor.instance is not None:
        tx.guard("instance_token", partial(_refuse_ended, actor), agent_id=actor.id)


def _refuse_ended(actor: Actor, tokens: Rows) -> None:
    if not tokens.rows:
        raise Unauthorized(
            f"instance {actor.instance} has ended",
            hint="The operator can restart the instance with `crewhall instance restart`.",
        )


def _agent_actor(row: Row, proof: str) -> Actor:
    own = {"instance": row["instance_id"], "tier": row["tier"]}
    return Actor("agent", row["agent_id"], row["role"], row["type"], proof=proof, **own)


def _by_token(look: Look, token: str, kinds: tuple[str, ...], now: int, memory: TokenMemory | None = None) -> Actor:
    row = look.one("token_find", hash=hash_of(token), now=now)
    if row is None or row["kind"] not in kinds:
        if not token:
            raise Unauthorized("the token is empty", hint="Give one, or leave CREWHALL_TOKEN or the header out.")
        raise _unknown_token(kinds)
    if memory is not None:
        memory.put(hash_of(token), row)
    return _actor_of(row)


def by_hash(look: Look, token_hash: str, now: int, memory: TokenMemory) -> Actor:
    """The actor that a bearer token with this hash stands for now. Raises Unauthorized."""
    row = look.one("token_find", hash=token_hash, now=now)
    if row is None:
        raise _unknown_token(("operator", "agent"))
    memory.put(token_hash, row)
    return _actor_of(row)


def _unknown_token(kinds: tuple[str, ...]) -> Unauthorized:
    new = "Open a new link (`crewhall link`)." if "browser" in kinds else "`crewhall agent token` makes a new one."
    return Unauthorized("this token is wrong, expired or revoked", hint=new)


def _actor_of(row: Row) -> Actor:
    """The actor that a token's row stands for."""
    if row["kind"] == "agent":
        return _agent_actor(row, "token")
    return Actor("operator", "operator", proof="cookie" if row["kind"] == "browser" else "token")


def make_token(
    tx: Tx,
    kind: str,
    label: str,
    now: int,
    *,
    agent_id: str | None = None,
    expires_at: int | None = None,
    known: str | None = None,
) -> str:
    """A new token, or one that is known already; the hall keeps its hash alone."""
    token = known or f"ch_{kind}_{secrets.token_urlsafe(32)}"
    tx.run(
        "token_put",
        id=new_id("to"),
        hash=hash_of(token),
        kind=kind,
        agent_id=agent_id,
        label=label,
        now=now,
        expires_at=expires_at,
    )
    return token


def operator_token(tx: Tx, home: Path, now: int) -> str:
    """This node's operator token, made at the first start and kept in a file that only its owner may read.

    A second hall in the same directory takes the same token, and so does a database that was put in the place of one.
    """
    path = home / TOKEN_FILE
    kept = read_operator_token(home)
    if kept is not None and tx.one("token_find", hash=hash_of(kept), now=now) is not None:
        return kept
    is_ours = kept is not None and re.fullmatch(r"ch_operator_[\w-]{43}", kept) is not None
    token = make_token(tx, "operator", "operator", now, known=kept if is_ours else None)
    if is_ours:
        return token
    make_home(home)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    return token
