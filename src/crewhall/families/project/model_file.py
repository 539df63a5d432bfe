"""The shapes of files and directories as family project tells them."""

from typing import Annotated, Literal

from pydantic import Field

from crewhall.tool import Result

PATH_CHARACTERS = 4096
EntryType = Literal["file", "directory", "symlink", "submodule", "other"]

FilePath = Annotated[
    str, Field(max_length=PATH_CHARACTERS, description="From the worktree's top, or absolute inside it.")
]
Lines = Annotated[int, Field(ge=1, le=2**31, description="Lines at the most; a large file needs it.")]
LineOffset = Annotated[int, Field(ge=0, le=2**31, description="Lines to pass over.")]
EntryLimit = Annotated[int, Field(ge=1, le=5000, description="How many at the most.")]
EntryOffset = Annotated[int, Field(ge=0, le=2**31, description="How many to pass over.")]


class FileText(Result):
    path: str = Field(description="From the worktree's top, links resolved.")
    size: int = Field(description="Bytes of the whole file.")
    encoding: str
    lines: int = Field(description="Of the whole file.")
    offset: int
    content: str
    next_offset: int | None = Field(description="Where the next part begins; null when this is the end.")
    left_out: int = Field(description="Characters cut from the end of a line that is longer than an answer.")


class DirectoryEntry(Result):
    name: str
    type: EntryType
    size: int | None = Field(description="Bytes of a file; null for what is none.")


class Directory(Result):
    path: str = Field(description="From the worktree's top, links resolved.")
    entries: list[DirectoryEntry]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")
    ignored: int = Field(description="How many are left out because git ignores them.")
    note: str | None = Field(description="What else is to be known of this list.")
