"""The hall's pause, and what the tools say of it."""

from dataclasses import dataclass

from pydantic import Field

from crewhall.tool import Result


@dataclass(frozen=True)
class HallPause:
    """A pause of the whole hall: since when, by whom and why. Workflows that it holds have its id."""

    id: str
    since: int
    by: str
    reason: str | None

    @property
    def text(self) -> str:
        """The reason that its workflows show."""
        return "the hall is paused" if self.reason is None else f"the hall is paused: {self.reason}"


class HallPaused(Result):
    paused_since: int = Field(description="Of the first call, if the hall was paused already.")
    reason: str | None
    workflows_paused: int = Field(description="How many this call paused.")
    workflow_ids: list[str] = Field(description="Of those, the first 500.")
    workflows_held: int = Field(description="How many the pause holds in all.")


class HallResumed(Result):
    was_paused: bool
    workflows_resumed: int
    workflow_ids: list[str] = Field(description="The first 500.")
