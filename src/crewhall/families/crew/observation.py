"""
What an instance is doing, derived from facts each time somebody looks, with its evidence and its age.

    its process lives? ── no ──▶ ended: what the launcher wrote down, or that nobody knows how
      │ yes
      the program's own word (status file, hooks, state file) ──▶ working | in a tool | waiting | idle
      otherwise                                               ──▶ starting | alive
"""

from dataclasses import dataclass
from typing import Any

from crewhall.families.crew.model import InstanceRow, InstanceState, StateName, StateSource
from crewhall.families.crew.run_directory import RunDirectory
from crewhall.outside.program_files import plain_number, plain_text, plain_time

WORDS: dict[str, StateName] = {
    "starting": "starting",
    "working": "working",
    "tool": "in a tool",
    "waiting": "waiting",
    "idle": "idle",
}


@dataclass(frozen=True)
class Observation:
    """A state, how it is known, and since when, in UTC milliseconds."""

    name: StateName
    evidence: str
    source: StateSource
    since: int | None = None


def to_state(observation: Observation, now: int) -> InstanceState:
    """The observation as a result, its age in words."""
    age = "" if observation.since is None else f" {age_text(now - observation.since)}"
    return InstanceState(
        name=observation.name,
        evidence=f"{observation.evidence}{age}",
        source=observation.source,
        since=observation.since,
    )


def age_text(milliseconds: int) -> str:
    """An age in words: `12 s ago`, `4 min ago`, `3 h ago`."""
    seconds = max(0, milliseconds // 1000)
    if seconds < 120:
        return f"{seconds} s ago"
    return f"{seconds // 60} min ago" if seconds < 7200 else f"{seconds // 3600} h ago"


def by_state_file(place: RunDirectory) -> Observation | None:
    """What a program wrote to the file named in CREWHALL_STATE_FILE; None when it wrote nothing that counts."""
    told = place.read("state.json")
    name = WORDS.get(str(told.get("state")))
    if name is None:
        return None
    detail = plain_text(told.get("detail") or "", 200)
    evidence = f"the program wrote '{told['state']}{f': {detail}' if detail else ''}'"
    return Observation(name, evidence, "state file", plain_time(told.get("at")))


def end_text(ended: dict[str, Any]) -> str:
    """How a program ended, by the launcher's word: `exit 1`, `killed by signal 9`, `setup failed with 2`."""
    if ended.get("how") == "exit":
        return f"exit {_number_text(ended.get('code'))}"
    if ended.get("how") == "signal":
        return f"killed by signal {_number_text(ended.get('signal'))}"
    if ended.get("how") == "setup failed":
        return f"setup failed with {_number_text(ended.get('code'))}"
    if ended.get("how") == "not found":
        return f"could not be started: {plain_text(ended.get('message') or 'exit 127', 200)}"
    return plain_text(ended.get("how") or "nobody knows how", 100)


def _number_text(value: object) -> str:
    number = plain_number(value)
    return "?" if number is None else str(number)


def end_time(ended: dict[str, Any]) -> int | None:
    """When a program ended, by the launcher's word; None when it could not write that down."""
    return plain_time(ended.get("at"))


def ended_observation(row: InstanceRow) -> Observation:
    """The end that the hall has written down."""
    return Observation("ended", f"gone: {row['ended_how']},", "database", row["ended_at"])
