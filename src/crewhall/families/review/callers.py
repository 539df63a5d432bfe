"""Which instance a call of the review loop is made for: the caller itself, or the one that the operator names."""

from collections.abc import Mapping
from typing import Any, cast

from crewhall.app import Call
from crewhall.app.checks import refuse_unproven
from crewhall.errors import Failure, Forbidden, InvalidInput
from crewhall.families.crew.changes import find_instance
from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.rules import ID_PATTERN
from crewhall.outside.git import open_repository


def calling_instance(call: Call, given: str | None, types: tuple[str, ...]) -> InstanceRow:
    """The instance that a call is made for. Raises Forbidden, InvalidInput or NotFound.

    An agent is itself only, and must be an instance of one of these types; the operator names one, and proves itself:
    a review starts a program, and a pull request approves one.
    """
    own = call.actor.instance
    if call.actor.kind == "agent" and (own is None or given not in (None, own)):
        reason = "you are no instance" if own is None else f"you are {own}"
        raise Forbidden(
            f"{call.tool.name} is for instances themselves, and {reason}",
            hint="Leave instance_id out." if own else "Only agents that the hall started can call it.",
            **({"instance_id": given} if given else {}),
        )
    if own is None and given is None:
        raise InvalidInput(
            "missing argument 'instance_id'", hint="The operator says for which instance; `crewhall instance list`."
        )
    if own is None:
        refuse_unproven(call)
    row = find_instance(call, own or given or "")
    if row["type"] not in types:
        raise Forbidden(
            f"{call.tool.name} is for {' and '.join(types)} instances, and {row['id']} is a {row['type']} one",
            hint="Let an instance of that type do it.",
            instance_id=row["id"],
        )
    return row


def note_caller(call: Call, arguments: Mapping[str, Any]) -> None:
    """Let the call log say which instance the call is made for, and which commit it is at; refused calls too."""
    given = arguments.get("instance_id")
    name = call.actor.instance or (given if isinstance(given, str) and ID_PATTERN.fullmatch(given) else None)
    if name is None:
        return
    call.note(instance=name)
    row = cast(InstanceRow | None, call.one("instance_get", id=name))
    if row is not None and row["node"] == call.settings.node:
        call.note(commit=head_of(row))


def head_of(row: InstanceRow) -> str | None:
    """The commit that an instance's branch is at; None when its repository can't tell."""
    try:
        return open_repository(row["repository_path"]).commit_of(f"refs/heads/{row['branch']}")
    except Failure:
        return None
