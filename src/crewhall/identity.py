"""
Who is calling: the operator or an agent, told by what comes with each request and by nothing else.

    bearer token ──▶ operator | agent          cookie of the dashboard ──▶ operator
    no token     ──▶ operator, when it is a process of the hub's own user and no browser; refused otherwise
"""

import hashlib
import os
import re
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from crewhall.errors import Unauthorized
from crewhall.store.transaction import Look, Tx
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

    @property
    def kinds(self) -> frozenset[str]:
        """The words that a tool's `who` may name; an instance is held to its type, whatever its role."""
        return frozenset(word for word in (self.kind, self.type or self.role) if word)

    @property
    def profile(self) -> str:
        """The list of tools that this actor sees unless it asks for another."""
        if self.kind == "operator":
            return "standard"
        return "reviewer" if self.type == "review" else self.role or "worker"

    def reading_only(self) -> "Actor":
        return replace(self, readonly=True)


OPERATOR = Actor("operator", "operator")


@dataclass(frozen=True)
class Credentials:
    """What a request brought: a bearer token, a cookie, or being a local process that is no browser."""

    token: str | None = None
    cookie: str | None = None
    is_local: bool = False

    @property
    def needs_no_look(self) -> bool:
        """Whether no token has to be looked up: it is the operator's own process."""
        return self.is_local and self.token is None and self.cookie is None


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def identify(look: Look, credentials: Credentials, now: int) -> Actor:
    """The actor these credentials stand for. Raises Unauthorized; a wrong token is never taken for none."""
    if credentials.token is not None:
        return _by_token(look, credentials.token, ("operator", "agent"), now)
    if credentials.cookie is not None:
        return _by_token(look, credentials.cookie, ("browser",), now)
    if credentials.is_local:
        return OPERATOR
    raise Unauthorized(
        "this request carries no token",
        hint="Send `Authorization: Bearer <token>`; a browser opens the link that `crewhall up` prints.",
    )


def _by_token(look: Look, token: str, kinds: tuple[str, ...], now: int) -> Actor:
    row = look.one("token_find", hash=hash_of(token), now=now)
    if row is None or row["kind"] not in kinds:
        if not token:
            raise Unauthorized("the token is empty", hint="Give one, or leave CREWHALL_TOKEN or the header out.")
        new = "Open a new link (`crewhall link`)." if "browser" in kinds else "`crewhall agent token` makes a new one."
        raise Unauthorized("this token is wrong, expired or revoked", hint=new)
    if row["kind"] == "agent":
        own = {"instance": row["instance_id"], "tier": row["tier"]}
        return Actor("agent", row["agent_id"], row["role"], row["type"], proof="token", **own)
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
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    return token
