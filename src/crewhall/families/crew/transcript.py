"""Claude Code's transcript, read as it grows: the messages of the hall that are in it, and the tokens that it took."""

import contextlib
import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from crewhall.outside.program_files import open_plain, plain_number

STEP_BYTES = 8_000_000  # read at one time
LINE_BYTES = 64_000_000  # a line that is longer is skipped
MOST_TOKENS = 100_000_000  # of one answer; a higher number is none
MESSAGE = re.compile(r"\[Message (im_[a-z0-9]+) from ")
INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@dataclass
class Transcript:
    """What is known of one conversation so far. Its file only grows; an answer is in it once for each of its parts."""

    offset: int = 0
    is_read: bool = False  # to the end, as it was at the last look
    messages: set[str] = field(default_factory=set)
    active_at: int | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    _uses: dict[str, tuple[int, int]] = field(default_factory=dict)

    def read_on(self, path: Path | None) -> None:
        """Read what was added, up to the last whole line and a bounded number of bytes."""
        if path is None:
            self.is_read = True
            return
        with contextlib.suppress(OSError), open_plain(path) as file:
            file.seek(self.offset)
            data = file.read(STEP_BYTES)
            whole = data.rfind(b"\n") + 1
            if not whole and len(data) == STEP_BYTES:
                whole = len(file.readline(LINE_BYTES)) + len(data)  # one line that is longer than a step
            for line in data[:whole].split(b"\n"):
                self._note(line)
            self.offset += whole
            self.is_read = len(data) < STEP_BYTES

    def _note(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, RecursionError, TypeError, AttributeError, KeyError, OverflowError):
            entry = json.loads(line)
            kind, attachment = entry.get("type"), entry.get("attachment") or {}
            if kind == "user":
                self.messages |= set(MESSAGE.findall(_plain(entry["message"]["content"])))
            elif kind == "attachment" and attachment.get("type") in ("hook_additional_context", "queued_command"):
                self.messages |= set(MESSAGE.findall(_plain(attachment.get("content") or attachment.get("prompt"))))
            elif kind == "assistant":
                self._count(entry["message"])
            if kind in ("user", "assistant"):
                self.active_at = int(datetime.fromisoformat(entry["timestamp"]).timestamp() * 1000)

    def _count(self, message: dict[str, Any]) -> None:
        """Add the use of an answer; the last of its parts counts."""
        usage, answer = message["usage"], str(message["id"])
        found = (sum(_tokens(usage, name) for name in INPUT), _tokens(usage, "output_tokens"))
        before = self._uses.get(answer, (0, 0))
        self.input_tokens += found[0] - before[0]
        self.output_tokens += found[1] - before[1]
        self._uses[answer] = found


def _tokens(usage: dict[str, Any], name: str) -> int:
    number = plain_number(usage.get(name)) or 0
    return number if number <= MOST_TOKENS else 0


def _plain(content: Any) -> str:
    """The text that a person or a hook gave, without what tools returned."""
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, str) else part.get("text", "") for part in content or ()]
    return "\n".join(str(part) for part in parts)
