"""What a client of the lab was told: one line for each attempt of a call, in a file that the lab reads."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["ok", "refused", "not kept", "unknown"]
WRITES = ("task_claim", "task_update_status", "checkpoint_add", "message_send")
READS = ("task_get_available", "task_get", "event_list")


@dataclass(frozen=True)
class Record:
    """One attempt. `began` and `ended` are of the machine's monotonic clock, which all its processes share.

    ok: done, by an answer; refused: certainly not done, by its state; not kept: certainly not done, for trouble;
    unknown: no answer in time, or one that leaves it open; a late answer has a record of its own.
    """

    agent: str
    home: int  # the hub that the agent belongs to
    hub: int  # the one that was asked
    tool: str
    began: float
    ended: float
    outcome: Outcome
    code: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def is_write(self) -> bool:
        """Whether it changed something, by an answer that came."""
        return self.outcome == "ok" and self.tool in WRITES

    def line(self) -> str:
        """It as a line of the file, without what a read gave."""
        told = asdict(self) | ({"answer": {}} if self.tool in READS and not self.code else {})
        return json.dumps(told) + "\n"


class History:
    """The records of a file that grows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_to = 0
        self.records: list[Record] = []

    def read(self) -> list[Record]:
        """All records until now, in the order in which their calls ended."""
        if self._file.exists():
            with self._file.open() as lines:
                lines.seek(self._read_to)
                self.records.extend(self._whole(lines.read()))
        return self.records

    def _whole(self, text: str) -> Iterator[Record]:
        whole = text[: text.rfind("\n") + 1]
        self._read_to += len(whole.encode())
        for line in whole.splitlines():
            yield Record(**json.loads(line))
