"""The shapes of a worktree's context."""

from typing import Annotated

from pydantic import Field

from crewhall.declaration import WORD
from crewhall.tool import Result

MaxTokens = Annotated[int, Field(ge=500, le=100_000, description="Of the whole answer.")]
Sources = Annotated[
    list[Annotated[str, Field(max_length=WORD)]],
    Field(
        min_length=1,
        max_length=50,
        description="Only these: git, tasks, reservations, changes, commits, instructions, readme, tree, just, "
        "manifests, containers.",
    ),
]


class Section(Result):
    name: str
    text: str
    tokens: int
    left_out: str | None = Field(description="What did not fit, such as '312 of 412 lines'.")


class Missing(Result):
    name: str
    reason: str


class ProjectContext(Result):
    path: str | None = Field(description="Null when it alone is too long.")
    sections: list[Section] = Field(description="The most important first.")
    missing: list[Missing] = Field(description="Sources that have nothing to say, and why.")
    tokens: int = Field(description="Of this answer as JSON, by the o200k tokenizer.")
    max_tokens: int
