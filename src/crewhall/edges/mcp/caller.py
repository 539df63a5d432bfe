"""Who makes an MCP request, and what of the hall it wants to see."""

from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext
from starlette.datastructures import Headers, QueryParams
from starlette.types import Scope

from crewhall.app import NOWHERE, Origin
from crewhall.errors import InvalidInput
from crewhall.identity import Actor
from crewhall.tool import PROFILES, Registry

WORKTREE = "crewhall.worktree"  # in a request's scope: root and identity of the worktree whose server it came to


@dataclass(frozen=True)
class Caller:
    """Who asks, by which way in, and which tools it wants to see."""

    actor: Actor
    families: tuple[str, ...]
    profile: str
    edge: str = "mcp"
    origin: Origin = NOWHERE


def caller_by(registry: Registry, actor: Actor, scope: Scope, edge: str = "mcp") -> Caller:
    """The caller of an HTTP request, by its path, query and headers. Raises InvalidInput as `caller` does.

    On the server of a worktree it sees all there is, which is little, whatever its role.
    """
    headers = Headers(scope=scope)
    named = scope.get("path_params", {}).get("families") or headers.get("x-crewhall-families", "")
    profile, worktree = profile_in_query(scope) or headers.get("x-crewhall-profile"), scope.get(WORKTREE)
    if worktree is None:
        return caller(registry, actor, named, profile, edge=edge)
    root, identity = worktree
    origin = Origin(worktree=root, identity=identity)
    return caller(registry, actor, "", profile or "all", edge=edge, origin=origin)


def caller(
    registry: Registry, actor: Actor, named: str, profile: str | None, *, edge: str, origin: Origin = NOWHERE
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
    return Caller(actor.reading_only() if profile == "readonly" else actor, families, profile, edge, origin)


def profile_in_query(scope: Scope) -> str | None:
    """The profile that the URL of an HTTP request names."""
    return QueryParams(scope.get("query_string", b"")).get("profile")


def families_in(named: str) -> tuple[str, ...]:
    """The families that a client names, separated by commas."""
    return tuple(name.strip() for name in named.split(",") if name.strip())


def caller_of(ctx: ServerRequestContext[Any]) -> Caller:
    """Who sent this request: a conversation says so itself, an HTTP request carries it."""
    assert ctx.request is not None
    found: Caller = ctx.request if isinstance(ctx.request, Caller) else ctx.request.scope["crewhall"]
    return found
