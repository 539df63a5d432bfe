"""The words that all nouns of family work share: ids, names, paths, texts, and the base of what callers hand over."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import to_json

from crewhall.declaration import ActingAgent, Suggest
from crewhall.tool import Result

PATH_BYTES = 4096
NAME_LETTERS = 200

Name = Annotated[str, Field(min_length=1, max_length=NAME_LETTERS)]


def check_path_length(path: str) -> str:
    """The path. Raises ValueError for one that is too long for a file; that keeps lists of paths short."""
    if len(to_json(path)) > PATH_BYTES + 2:
        raise ValueError(f"A path has at most {PATH_BYTES} bytes")
    return path


Path = Annotated[str, Field(min_length=1, max_length=PATH_BYTES), AfterValidator(check_path_length)]
AgentId = Annotated[str, Suggest("agent_ids"), Field(max_length=100, description="An agent's id, ag_…")]
TaskId = Annotated[str, Suggest("task_ids"), Field(max_length=100, description="A task's id, tk_…")]
Me = Annotated[
    str,
    ActingAgent(),
    Field(max_length=100, description="Your agent id; left out if you are known here."),
]
Word = Annotated[str, Field(min_length=1, max_length=100)]
WorkflowId = Annotated[str, Suggest("workflow_ids"), Field(max_length=100, description="A workflow's id, wf_…")]
Text = Annotated[str, Field(max_length=100_000)]
Short = Annotated[str, Field(min_length=1, max_length=2_000)]
Files = Annotated[list[Path], Field(max_length=500)]
Words = Annotated[list[Word], Field(max_length=50)]
Cargo = dict[str, Any]
IncludeArchived = bool
Restore = Annotated[bool, Field(description="Put it back into the lists.")]
PageCursor = Annotated[str, Field(min_length=1, max_length=200, description="next_cursor of the page before.")]


def _none_is_empty(value: Any) -> Any:
    """Models write null where they have nothing to say."""
    return [] if value is None else value


IfAny = BeforeValidator(_none_is_empty)


class Done(Result):
    success: bool
