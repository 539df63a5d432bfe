"""
What Claude Code's hooks wrote down, and the state that follows from it.

    UserPromptSubmit ─▶ working ── PreToolUse ─▶ in a tool ── PostToolUse ─▶ working ── Stop ─▶ idle
                                       └── PermissionRequest ─▶ waiting
"""

import contextlib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from crewhall.families.crew.observation import Observation
from crewhall.families.crew.run_directory import RunDirectory
from crewhall.outside.program_files import open_plain, plain_text, plain_time

TAIL_BYTES = 256_000
STEP_BYTES = 4_000_000  # read at one time; the hook keeps the log far smaller
NOTED = ("event", "agent", "tool_name", "tool_use_id")
MOST_MESSAGES = 100  # of one prompt
MESSAGE_ID = re.compile("im_[a-z0-9]{1,40}")
AFTER_TOOL = ("PostToolUse", "PostToolUseFailure")
TURN_ENDS = ("Stop", "StopFailure")

Line = dict[str, Any]


def hook_lines(place: RunDirectory) -> list[Line]:
    """The last lines of the log, the oldest first; of a log that was just moved, the older part too."""
    current = _lines(place.path / "hooks.jsonl")
    return current if len(current) > 500 else [*_lines(place.path / "hooks.old.jsonl"), *current]


def _lines(path: Path) -> list[Line]:
    found: list[Line] = []
    with contextlib.suppress(OSError), open_plain(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        found = _parse(file.read(TAIL_BYTES))
    return found


def _parse(data: bytes) -> list[Line]:
    found = []
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict) and (at := plain_time(value.get("at"))):
                found.append({**_texts(value), "at": at, "messages": _message_ids(value.get("messages"))})
    return found


def _texts(value: Line) -> Line:
    """What a line says beside its time, on one line each."""
    return {name: plain_text(value[name], 200) for name in NOTED if value.get(name) is not None}


def _message_ids(value: object) -> list[str]:
    ids = value[:MOST_MESSAGES] if isinstance(value, list) else ()
    return [one for one in ids if isinstance(one, str) and MESSAGE_ID.fullmatch(one)]


@dataclass
class HookLog:
    """What the log of one run has told so far, read on as it grows: it is looked at every few seconds.

    `messages` were in a prompt which the program took; `last_at` is the time of the last event.
    """

    messages: set[str] = field(default_factory=set)
    last_at: int | None = None
    _inode: int = 0
    _offset: int = 0

    def read_on(self, place: RunDirectory) -> None:
        """Read what was added; of a log that was moved since, the rest of the older part first."""
        with contextlib.suppress(OSError), open_plain(place.path / "hooks.jsonl") as file:
            inode = os.fstat(file.fileno()).st_ino
            if inode != self._inode:
                with contextlib.suppress(OSError), open_plain(place.path / "hooks.old.jsonl") as older:
                    self._read(older, self._offset if os.fstat(older.fileno()).st_ino == self._inode else 0)
                self._inode, self._offset = inode, 0
            self._offset = self._read(file, self._offset)

    def _read(self, file: BinaryIO, offset: int) -> int:
        """Note the whole lines from an offset on; where they end."""
        file.seek(offset)
        data = file.read(STEP_BYTES)
        whole = data.rfind(b"\n") + 1 or (len(data) if len(data) == STEP_BYTES else 0)
        for line in _parse(data[:whole]):
            self.messages.update(line["messages"])
            self.last_at = line["at"]
        return offset + whole


def open_tools(lines: list[Line]) -> list[Line]:
    """The tools that were begun in this turn and have not ended, the latest last."""
    running: dict[str, Line] = {}
    for line in lines:
        key = str(line.get("tool_use_id"))
        if line.get("event") == "PreToolUse":
            running[key] = line
        elif line.get("event") in AFTER_TOOL:
            running.pop(key, None)
        elif line.get("event") in ("UserPromptSubmit", *TURN_ENDS):
            running.clear()
    return list(running.values())


def observe_hooks(place: RunDirectory) -> Observation | None:
    """The state by the last hook that counts; None when there was none."""
    lines = [line for line in hook_lines(place) if "agent" not in line]
    telling = [line for line in lines if line.get("event") not in (None, "SessionStart", "Notification")]
    if not telling or telling[-1].get("event") == "SessionEnd":
        return None
    last = telling[-1]
    if last["event"] == "PermissionRequest":
        evidence = f"waits for a person: asked for permission for {last.get('tool_name', 'a tool')},"
        return Observation("waiting", evidence, "hooks", last["at"])
    if last["event"] in TURN_ENDS:
        return Observation("idle", f"the turn ended: {last['event']}", "hooks", last["at"])
    if running := open_tools(lines):
        return Observation("in a tool", tool_evidence(running), "hooks", running[-1]["at"])
    return Observation("working", f"busy: {last['event']}", "hooks", last["at"])


def tool_evidence(running: list[Line]) -> str:
    """Which tool runs, in words."""
    return f"busy: PreToolUse of {running[-1].get('tool_name', 'a tool')}"
