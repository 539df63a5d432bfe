"""
What Claude Code runs at each of its events: notes the event, and hands over the messages that wait.

    python -I -S claude_hook.py RUN_DIRECTORY      the event on standard input, the answer on standard output

    RUN_DIRECTORY/hooks.jsonl   gets a line {event, at, tool_name?, tool_use_id?, agent?, messages?, gave?}
    outbox/im_1.json {id, at, text} ── renamed to taken/ ──▶ in the answer, as additional context

Whoever renames a message delivers it, so it arrives once, with or without a hub. It starts in a few milliseconds, so it
imports little and nothing of ours. Whatever fails, Claude Code goes on: the exit code is 0.
"""

import contextlib
import json
import os
import re
import sys
import time
from typing import Any

GIVING = ("PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop")  # events whose answer reaches the model
QUIET = ("UserPromptSubmit", "Stop")  # events that come alone, so that the log can be moved
LOG_BYTES = 200_000
ANSWER_CHARACTERS = 9_000  # Claude Code cuts an answer at 10,000
MESSAGE = re.compile(r"^\[Message (im_[a-z0-9]+) from ", re.MULTILINE)
NOTED = ("tool_name", "tool_use_id")


def main(directory: str, event: dict[str, Any]) -> None:
    """Note an event and answer it."""
    name = str(event.get("hook_event_name"))
    line: dict[str, Any] = {"event": name, "at": int(time.time() * 1000)}
    line |= {key: str(event[key])[:200] for key in NOTED if event.get(key)}
    if event.get("agent_id"):
        line["agent"] = str(event["agent_id"])[:100]
    if name == "UserPromptSubmit":
        line["messages"] = MESSAGE.findall(str(event.get("prompt")))[:100]
    if name in GIVING and "agent" not in line:  # what a helper of its own is told, it would not see itself
        line["gave"] = _give(directory, name)
    _note(directory, line, may_move=name in QUIET)


def _give(directory: str, event: str) -> list[str]:
    """Print as many of the waiting messages as an answer holds, the oldest first; their ids."""
    taken: list[dict[str, Any]] = []
    for message in _waiting(directory):
        if len(_answer(event, [*taken, message])) > ANSWER_CHARACTERS:
            break  # a longer one is pasted once the program idles, and later ones wait for it
        if _take(directory, message["id"]):
            taken.append(message)
    if taken:
        sys.stdout.write(_answer(event, taken))
        sys.stdout.flush()
    return [message["id"] for message in taken]


def _waiting(directory: str) -> list[dict[str, Any]]:
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(os.path.join(directory, "outbox")):
            with contextlib.suppress(OSError, ValueError), open(os.path.join(directory, "outbox", name), "rb") as file:
                found.append(json.load(file))
    return sorted(found, key=lambda message: (message["at"], message["id"]))


def _take(directory: str, message_id: str) -> bool:
    """Whether the message is ours to deliver."""
    name = f"{message_id}.json"
    try:
        os.rename(os.path.join(directory, "outbox", name), os.path.join(directory, "taken", name))
    except OSError:
        return False
    return True


def _answer(event: str, messages: list[dict[str, Any]]) -> str:
    text = "\n\n".join(message["text"] for message in messages)
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}, ensure_ascii=False)


def _note(directory: str, line: dict[str, Any], *, may_move: bool) -> None:
    path = os.path.join(directory, "hooks.jsonl")
    with contextlib.suppress(FileNotFoundError):
        if may_move and os.path.getsize(path) > LOG_BYTES:
            os.replace(path, os.path.join(directory, "hooks.old.jsonl"))
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    with contextlib.suppress(Exception):
        main(sys.argv[1], json.loads(sys.stdin.buffer.read()))
