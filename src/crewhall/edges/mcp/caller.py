"""Who makes an MCP request, and what of the hall it wants to see."""

from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import ServerRequestContext
from starlette.datastructures import Headers, QueryParams
from starlette.types import Message, Receive, Scope, Send

from crewhall.app import NOWHERE, Origin
from crewhall.edges.http.guard import refusal
from crewhall.errors import InvalidInput
from crewhall.identity import Actor, Credentials
from crewhall.tool import PROFILES, Registry

UNAUTHORIZED = "crewhall.unauthorized"  # in a request's scope: why a guess turned out to be wrong
WORKTREE = "crewhall.worktree"  # in a request's scope: root and identity of the worktree whose server it came to


@dataclass(frozen=True)
class Caller:
    """Who asks, by which way in, and which tools it wants to see.

    What it came in with is looked at again while it has a stream open; None needs no look. `told` gets the ids of the
    notices that the answer to this request tells.
    """

    actor: Actor
    families: tuple[str, ...]
    profile: str
    edge: str = "mcp"
    origin: Origin = NOWHERE
    credentials: Credentials | None = None
    told: list[str] = field(default_factory=list, compare=False)


def caller_by(registry: Registry, actor: Actor, scope: Scope, edge: str, credentials: Credentials) -> Caller:
    """The caller of an HTTP request, by its path, query and headers. Raises InvalidInput as `caller` does.

    On the server of a worktree it sees all there is, which is little, whatever its role.
    """
    headers = Headers(scope=scope)
    named = scope.get("path_params", {}).get("families") or headers.get("x-crewhall-families", "")
    profile, worktree = profile_in_query(scope) or headers.get("x-crewhall-profile"), scope.get(WORKTREE)
    if worktree is None:
        return caller(registry, actor, named, profile, edge=edge, credentials=credentials)
    root, identity = worktree
    origin = Origin(worktree=root, identity=identity)
    return caller(registry, actor, "", profile or "all", edge=edge, origin=origin, credentials=credentials)


def caller(
    registry: Registry,
    actor: Actor,
    named: str,
    profile: str | None,
    *,
    edge: str,
    origin: Origin = NOWHERE,
    credentials: Credentials | None = None,
) -> Caller:
    """An actor that sees these families under this profile. Raises InvalidInput for one there is not."""
    families = families_in(named)
    profile = profile or actor.profile
    known = [family.name for family in registry.families]
    unknown = [name for name in families if name not in known]
    if unknown:
        raise InvalidInput(f"there is no family '{unknown[0][:50]}'", hint=f"The families are {', '.join(known)}.")
    if profile not in PROFILES:
        raise InvalidInput(f"there is no profile '{profile[:50]}'", hint=f"The profiles are {', '.join(PROFILES)}.")
    actor = actor.reading_only() if profile == "readonly" else actor
    return Caller(actor, families, profile, edge, origin, credentials)


def profile_in_query(scope: Scope) -> str | None:
    """The profile that the URL of an HTTP request names."""
    return QueryParams(scope.get("query_string", b"")).get("profile")


def families_in(named: str) -> tuple[str, ...]:
    """The families that a client names, separated by commas."""
    return tuple(name.strip() for name in named.split(",") if name.strip())


def caller_of(ctx: ServerRequestContext[Any]) -> Caller:
    """Who sent this request: a conversation says so itself, an HTTP request carries it."""
    found = tool_caller_of(ctx)
    assert found.actor.unproven is None, "a guess calls tools, and nothing else"
    return found


def tool_caller_of(ctx: ServerRequestContext[Any]) -> Caller:
    """Who sent this call of a tool; it may be a guess, which the call proves."""
    assert ctx.request is not None
    found: Caller = ctx.request if isinstance(ctx.request, Caller) else ctx.request.scope["crewhall"]
    return found


class HeldStart:
    """A way to send an HTTP response whose beginning waits for its first bytes: a wrong guess is answered with 401."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._start: Message | None = None
        self._is_over = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        refused = self._scope.get(UNAUTHORIZED)
        if self._start is not None and refused is not None:
            self._is_over = True
            await refusal(refused)(self._scope, self._receive, self._send)
        elif self._start is not None:
            await self._send(self._start)
        self._start = None
        if not self._is_over:
            await self._send(message)
