"""Checks of every call: may the actor make it, as whom does it act, can its arguments be stored?"""

import math
from typing import Any

from crewhall.app.call import Call
from crewhall.errors import Forbidden, InvalidInput
from crewhall.identity import Actor
from crewhall.tool import Tool

DEPTH = 64
HOW_TO_PROVE = (
    "The command line and the dashboard send it. Other clients: `Authorization: Bearer` with the token in the hall's "
    "directory, or CREWHALL_TOKEN for a bridge."
)


def refuse_unallowed(tool: Tool, actor: Actor) -> None:
    """Raise Forbidden when the actor may not call the tool."""
    if not actor.kinds & set(tool.who):
        raise Forbidden(
            f"{tool.name} is for {' and '.join(tool.who)}, and you are {_description(actor)}",
            hint="Ask one who may, or the operator.",
        )
    if actor.readonly and tool.changes:
        raise Forbidden(
            f"{tool.name} changes the hall, and this client is in the read-only profile",
            hint="Connect with another profile to make changes.",
        )


def _description(actor: Actor) -> str:
    return "the operator" if actor.kind == "operator" else f"{actor.role or 'agent'} {actor.id}"


def is_proven(actor: Actor) -> bool:
    """Whether it is the operator, by token or cookie: a local client without a token may be anyone's agent."""
    return actor.kind == "operator" and actor.proof in ("token", "cookie")


def refuse_unproven(call: Call) -> None:
    """Raise Forbidden unless the call carries the operator's token or cookie: this takes a person."""
    if not is_proven(call.actor):
        raise Forbidden(f"{call.tool.name} needs the operator's token", hint=HOW_TO_PROVE)


def with_acting_agent(tool: Tool, actor: Actor, arguments: dict[str, Any], agent_id: str | None) -> dict[str, Any]:
    """The arguments, with the agent that the caller acts as: by default the one that it is, if it is known to be one.

    Raises Forbidden when an agent's token names another one, InvalidInput when the agent is not known at all.
    """
    if tool.acting is None:
        return arguments
    given = arguments.get(tool.acting)
    if actor.kind == "agent" and given not in (None, actor.id):
        raise Forbidden(
            f"{tool.acting} is {given}, and your token is that of {actor.id}",
            hint=f"Leave {tool.acting} out, or give your own id.",
        )
    given = agent_id if given is None else given
    if given is None:
        raise InvalidInput(
            f"missing argument '{tool.acting}'",
            hint="A client without an agent's token says for which agent it speaks: agent_register gives an id. "
            "In messages you may be yourself: operator.",
        )
    return arguments | {tool.acting: given}


def refuse_unstorable(arguments: Any, depth: int = DEPTH) -> None:
    """Raise InvalidInput for what no database or wire can hold: NUL, lone surrogates, NaN, endless nesting.

    It gathers nothing while it looks: arguments may have a million parts.
    """
    if depth == 0:
        raise InvalidInput(f"the arguments are nested deeper than {DEPTH} levels", hint="Send a flatter value.")
    if isinstance(arguments, str):
        _refuse_text(arguments)
    elif isinstance(arguments, dict):
        for name, value in arguments.items():
            refuse_unstorable(name, depth - 1)
            refuse_unstorable(value, depth - 1)
    elif isinstance(arguments, list):
        for value in arguments:
            refuse_unstorable(value, depth - 1)
    elif isinstance(arguments, float) and not math.isfinite(arguments):
        raise InvalidInput(f"{arguments} is not a number that JSON has", hint="Send a finite number, or null.")


def _refuse_text(value: str) -> None:
    if "\0" in value:
        raise InvalidInput("a text holds a NUL character", hint="Take U+0000 out; no text in the hall may hold it.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidInput("a text holds half of a surrogate pair", hint="Send whole Unicode characters.") from None
