"""Claude Code as a runtime: its settings, and where it says what it is doing."""

from crewhall.families.crew.observation import Observation
from crewhall.families.crew.run_directory import RunDirectory


def prepare(place: RunDirectory) -> None:
    """Write what Claude Code reads before its first message, so that no dialog is in the way."""


def observe(place: RunDirectory, pid: int, now: int) -> Observation | None:
    """What Claude Code itself says of its state; None when it says nothing."""
    return None
