"""
Claude Code as a runtime: what it reads before its first message, and where it says what it is doing.

    RUN_DIRECTORY/settings.json   no dialogs, and a hook command for each event
    RUN_DIRECTORY/claude/         its CLAUDE_CONFIG_DIR: .claude.json, the person's login as a link,
                                  sessions/PID.json (its own word on its state), projects/*/CONVERSATION.jsonl
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crewhall.families.crew.hook_log import hook_lines, observe_hooks, open_tools, tool_evidence
from crewhall.families.crew.observation import Observation
from crewhall.families.crew.run_directory import RunDirectory, plainly
from crewhall.outside import claude_hook
from crewhall.outside.processes import identify
from crewhall.outside.program_files import plain_text, plain_time, read_object

EVENTS = (
    *("SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure"),
    *("Stop", "StopFailure", "SessionEnd"),
)
HOOK_SECONDS = 10
KEY_END = 20  # characters of a key by which Claude Code knows that a person approved of it
LINKED = (".credentials.json", "CLAUDE.md")  # the person's own, which an instance uses too
FILE_BYTES = 1_000_000
PID = re.compile("[1-9][0-9]{0,9}")


def prepare(place: RunDirectory, environment: Mapping[str, str]) -> None:
    """Write what Claude Code reads before its first message, so that no dialog is in the way.

    `environment` is what the program gets. Raises InvalidState when the disk refuses.
    """
    words = [sys.executable, "-I", "-S", claude_hook.__file__, str(place.path)]
    entry = {"hooks": [{"type": "command", "command": shlex.join(words), "timeout": HOOK_SECONDS}]}
    settings = {
        "skipDangerousModePermissionPrompt": True,
        "tui": "default",
        "hooks": {event: [entry] for event in EVENTS},
    }
    place.write("settings.json", json.dumps(settings, indent=1))
    own = RunDirectory(place.path / "claude")
    with plainly(own.path):
        for path in (own.path, *(place.path / name for name in ("outbox", "taken", "pasting"))):
            path.mkdir(mode=0o700, exist_ok=True)
        for name in ("hooks.jsonl", "hooks.old.jsonl"):  # an earlier run's last word is not this one's state
            (place.path / name).unlink(missing_ok=True)
        _link_own(own.path)
    own.write(
        ".claude.json",
        json.dumps(_with_answers(read_object(own.path / ".claude.json", FILE_BYTES), environment), indent=1),
    )


def _link_own(directory: Path) -> None:
    """Links to the person's login and instructions, where there are any."""
    theirs = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path(os.environ.get("HOME") or "/", ".claude"))
    for name in LINKED:
        link, target = directory / name, theirs / name
        if target.is_file() and not os.path.lexists(link):
            link.symlink_to(target.resolve())


def _with_answers(known: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """What Claude Code remembers, with the answers that it would ask a person for."""
    answers = {**known, "hasCompletedOnboarding": True}
    if key := environment.get("ANTHROPIC_API_KEY"):
        answers["customApiKeyResponses"] = {"approved": [key[-KEY_END:]], "rejected": []}
    return answers


def observe(place: RunDirectory, pid: int, now: int) -> Observation | None:
    """What Claude Code itself says of its state: its status file, else its hooks; None when it says nothing."""
    return _by_status_file(place, pid) or observe_hooks(place)


def _by_status_file(place: RunDirectory, pid: int) -> Observation | None:
    status = _status(place, pid)
    since = plain_time(status.get("statusUpdatedAt"))
    if status.get("status") == "idle":
        return Observation("idle", "its status file says idle,", "status file", since)
    if status.get("status") == "waiting":
        what = plain_text(status.get("waitingFor") or "an answer", 100)
        asked = "asked for permission" if what == "permission prompt" else what
        return Observation("waiting", f"waits for a person: {asked},", "status file", since)
    if status.get("status") == "busy":
        if running := open_tools([line for line in hook_lines(place) if "agent" not in line]):
            return Observation("in a tool", tool_evidence(running), "status file", running[-1]["at"])
        return Observation("working", "its status file says busy,", "status file", since)
    return None


def _status(place: RunDirectory, pid: int) -> dict[str, Any]:
    """The status file of a living process: the program's own, or of one that it started in its place."""
    directory = place.path / "claude" / "sessions"
    if (found := read_object(directory / f"{pid}.json", FILE_BYTES)) and identify(pid):
        return found
    newest: dict[str, Any] = {}
    latest = 0
    for path in sorted(directory.glob("*.json"))[:100]:
        if not PID.fullmatch(path.stem) or identify(int(path.stem)) is None:
            continue
        one = read_object(path, FILE_BYTES)
        if one and (at := plain_time(one.get("updatedAt")) or 0) >= latest:
            newest, latest = one, at
    return newest


def transcript_path(place: RunDirectory, conversation_id: str) -> Path | None:
    """The file in which Claude Code keeps the conversation; None while there is none."""
    return next(iter(sorted((place.path / "claude" / "projects").glob(f"*/{conversation_id}.jsonl"))), None)
