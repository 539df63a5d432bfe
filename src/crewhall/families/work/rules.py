"""Pure rules of family work: no clock, no database, no world."""

import json
import posixpath
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from crewhall.errors import InvalidInput, LimitExceeded

METADATA_BYTES = 16_000
LIST_BYTES = 20_000
ItemT = TypeVar("ItemT", bound=BaseModel)


def repository_path(path: str) -> str:
    """The one spelling under which a repository is kept. Raises InvalidInput for a relative path."""
    if not path.startswith("/"):
        raise InvalidInput(
            f"path '{path}' is not absolute",
            hint="Give the repository's path from the root, as pwd prints it.",
        )
    return posixpath.normpath("/" + path.lstrip("/"))


def cargo(name: str, value: dict[str, Any]) -> str:
    """An object as the text that is stored. Raises InvalidInput when it is too large."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if len(text.encode()) > METADATA_BYTES:
        raise InvalidInput(
            f"{name} is {len(text.encode())} bytes of JSON, and {METADATA_BYTES} are allowed",
            hint="Keep large things in files and name their paths here.",
        )
    return text


def status_after_beat(before: str, asked: str | None) -> str:
    """A beating agent is never offline."""
    return asked or ("online" if before == "offline" else before)


def refuse_more_agents(live: int, most: int) -> None:
    """Raise LimitExceeded when as many agents are in the hall as it may hold at once."""
    if live >= most:
        raise LimitExceeded(
            f"{live} agents are in the hall, and agent.max is {most}",
            hint="Unregister the ones that are gone (agent_unregister), or raise agent.max.",
        )


def page(items: Sequence[ItemT], total: int, offset: int) -> tuple[list[ItemT], int | None]:
    """As many items as fit in a list's bytes, one at least, and where the next page begins."""
    fitting: list[ItemT] = []
    size = 0
    for item in items:
        size += len(item.model_dump_json().encode())
        if fitting and size > LIST_BYTES:
            break
        fitting.append(item)
    end = offset + len(fitting)
    return fitting, end if fitting and end < total else None
