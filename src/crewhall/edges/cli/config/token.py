"""An agent's token for a client's settings: the one that is in them, while it is good, else a new one."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from crewhall.app import Hub
from crewhall.edges.cli.hall_client import Hall, result_of
from crewhall.errors import Conflict, Unauthorized
from crewhall.families.all import registry
from crewhall.identity import Credentials

PAGE = 500


class Grant(NamedTuple):
    """A token, and the agent that it stands for."""

    agent_id: str
    token: str
    is_new: bool


def grant(hall: Hall, name: str, role: str | None, runtime: str, held: str | None) -> Grant:
    """A token of the agent with this name or id; there will be one. Raises Conflict, or what the hall answers.

    The hall keeps hashes alone: a token can be shown once, so one that a file holds is kept.
    """
    known = list(_agents(hall))
    named = [agent for agent in known if agent["id"] == name] or [agent for agent in known if agent["name"] == name]
    if len(named) > 1:
        ids = ", ".join(agent["id"] for agent in named)
        raise Conflict(f"{len(named)} agents are named '{name}': {ids}", hint="Name one by its id: --agent ag_…")
    if not named:
        made = result_of(hall, "agent_token_create", "agent token", name=name, role=role or "worker", runtime=runtime)
        return Grant(made["agent_id"], made["token"], True)
    (agent,) = named
    if role not in (None, agent["role"]):
        raise Conflict(
            f"{name} is a {agent['role']} in the hall, and stays one",
            hint=f"Leave --role out, or choose another name for a {role}.",
        )
    if held is not None and _holder(hall, held) == agent["id"]:
        return Grant(agent["id"], held, False)
    if agent["status"] != "offline" and name != agent["id"]:
        raise Conflict(
            f"an agent named '{name}' is here now: {agent['id']}",
            hint=f"Choose another name, or make this client that agent as well: --agent {agent['id']}.",
        )
    made = result_of(hall, "agent_token_create", "agent token", agent_id=agent["id"])
    return Grant(agent["id"], made["token"], True)


def _agents(hall: Hall) -> Iterator[dict[str, Any]]:
    offset: int | None = 0
    while offset is not None:
        page = result_of(hall, "agent_list", "agent list", limit=PAGE, offset=offset)
        yield from page["agents"]
        offset = page["next_offset"]


def _holder(hall: Hall, token: str) -> str | None:
    """The agent that a token stands for; None when it is no agent's, or no longer."""
    with closing(Hub(hall.settings, registry())) as hub:
        try:
            actor = hub.identify(Credentials(token=token))
        except Unauthorized:
            return None
    return actor.id if actor.kind == "agent" else None
