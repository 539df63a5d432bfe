"""The rest of a text that an answer cut."""

from typing import Annotated

from pydantic import Field

from crewhall.app import Call
from crewhall.bounded import WHOLE_BYTES, cut
from crewhall.errors import InvalidInput, NotFound
from crewhall.families.work.family import work
from crewhall.tool import Result

# What may be long in a thing, by its id's prefix; and the query that gets it.
LONG = {
    "wf": ("workflow_get", ("source_content", "source_ref", "plan", "status_reason")),
    "tk": (
        "task_get",
        ("description", "files_likely_affected", "plan", "context", "outcome", "outcome_detail", "error"),
    ),
    "cp": ("checkpoint_get", ("summary", "detail", "files_changed")),
    "tp": ("template_get", ("definition", "variables", "description")),
    "ms": ("message_get", ("body",)),
}


class TextPiece(Result):
    text: str = Field(description="Of an object, its JSON.")
    offset: int
    length: int = Field(description="Of the whole, in characters.")
    next_offset: int | None = Field(description="Where the next piece begins; null when this is the last.")


@work.tool("text_read", ours=True, profiles=("coordinator",))
def text_read(
    call: Call,
    id: Annotated[str, Field(max_length=100, description="Of a workflow, task, checkpoint, template or message.")],
    field: Annotated[str, Field(max_length=50, description="The field that left_out names.")],
    offset: Annotated[int, Field(ge=0, le=2**31, description="How many characters to pass over.")] = 0,
) -> TextPiece:
    """Read on where an answer was cut: its left_out says of which field how many characters are missing."""
    query, fields = LONG.get(id.partition("_")[0], ("", ()))
    if field not in fields:
        known = ", ".join(fields) or "those of wf_, tk_, cp_, tp_ and ms_ ids"
        raise InvalidInput(f"'{id}' has no long text '{field}'", hint=f"The fields that can be read on are {known}.")
    row = call.one(query, id=id)
    if row is None:
        raise NotFound(f"there is no '{id}'", hint="Give the id that came with the answer.")
    whole = row[field] or ""
    piece = cut({"text": whole[offset:]}, ("text",), (), each=WHOLE_BYTES)["text"]
    end = offset + len(piece)
    return TextPiece(text=piece, offset=offset, length=len(whole), next_offset=end if end < len(whole) else None)
