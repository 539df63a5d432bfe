"""Claude Code's files without Claude Code: what the hall writes for it, its hook, and the state that follows."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crewhall.families.crew.claude_code import observe, prepare
from crewhall.families.crew.hook_log import HookLog
from crewhall.families.crew.run_directory import RunDirectory
from crewhall.families.crew.transcript import Transcript
from crewhall.outside import claude_hook

NOW = 1_800_000_000_000
Json = dict[str, Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    (tmp_path / "home" / ".claude" / ".credentials.json").write_text("{}")
    made = RunDirectory(tmp_path / "run")
    made.make()
    prepare(made, {"ANTHROPIC_API_KEY": "0123456789-the-last-twenty-of-it"})
    return made


def hook(place: RunDirectory, event: str, **more: Any) -> str:
    """Run the hook as Claude Code does; what it answers."""
    words = [sys.executable, "-I", "-S", claude_hook.__file__, str(place.path)]
    text = json.dumps({"hook_event_name": event, **more})
    return subprocess.run(words, input=text, capture_output=True, text=True, check=True, timeout=20).stdout


def put(place: RunDirectory, message_id: str, text: str, at: int = 1) -> None:
    (place.path / "outbox" / f"{message_id}.json").write_text(json.dumps({"id": message_id, "at": at, "text": text}))


def test_no_dialog_is_left_to_answer(place: RunDirectory) -> None:
    own = json.loads((place.path / "claude" / ".claude.json").read_text())
    assert own["hasCompletedOnboarding"] is True
    assert own["customApiKeyResponses"]["approved"] == ["he-last-twenty-of-it"]
    settings = json.loads((place.path / "settings.json").read_text())
    assert settings["skipDangerousModePermissionPrompt"] is True and "Stop" in settings["hooks"]
    assert (place.path / "claude" / ".credentials.json").is_symlink()
    assert not os.path.lexists(place.path / "claude" / "CLAUDE.md")
    (place.path / "claude" / ".claude.json").write_text('{"kept": 1}')
    prepare(place, {})
    again = json.loads((place.path / "claude" / ".claude.json").read_text())
    assert again == {"kept": 1, "hasCompletedOnboarding": True}


def test_a_hook_hands_a_message_over_once_and_in_order(place: RunDirectory) -> None:
    put(place, "im_b", "second 'ü'", 2)
    put(place, "im_a", "first", 1)
    answer = json.loads(hook(place, "PreToolUse", tool_name="Bash"))["hookSpecificOutput"]
    assert answer == {"hookEventName": "PreToolUse", "additionalContext": "first\n\nsecond 'ü'"}
    assert hook(place, "Stop") == ""
    assert sorted(os.listdir(place.path / "taken")) == ["im_a.json", "im_b.json"]


def test_a_long_message_waits_for_a_paste_and_later_ones_behind_it(place: RunDirectory) -> None:
    put(place, "im_a", "x" * 9_000, 1)
    put(place, "im_b", "short", 2)
    assert hook(place, "Stop") == ""
    assert len(os.listdir(place.path / "outbox")) == 2


def test_a_helper_of_the_program_is_given_nothing(place: RunDirectory) -> None:
    put(place, "im_a", "first")
    assert hook(place, "PostToolUse", agent_id="a1") == "" and hook(place, "UserPromptSubmit") == ""


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "null"])
def test_a_hook_never_stands_in_the_way(place: RunDirectory, text: str) -> None:
    words = [sys.executable, "-I", "-S", claude_hook.__file__, str(place.path)]
    assert subprocess.run(words, input=text.encode(), capture_output=True, check=True, timeout=20).stderr == b""


def test_the_log_stays_small(place: RunDirectory) -> None:
    (place.path / "hooks.jsonl").write_text("x" * (claude_hook.LOG_BYTES + 1))
    hook(place, "PreToolUse")
    assert (place.path / "hooks.jsonl").stat().st_size > claude_hook.LOG_BYTES, "others may be writing"
    hook(place, "Stop")
    assert (place.path / "hooks.jsonl").stat().st_size < 200


def test_the_log_is_read_on_and_the_rest_of_a_part_that_was_moved(place: RunDirectory) -> None:
    current, older, log = place.path / "hooks.jsonl", place.path / "hooks.old.jsonl", HookLog()

    def write(text: str) -> None:
        with current.open("a") as file:
            file.write(text)

    def read_numbers() -> list[int]:
        log.read_on(place)
        assert log.messages == {f"im_{number}" for number in range(len(log.messages))}
        return [len(log.messages), log.last_at or 0]

    lines = [json.dumps({"event": "UserPromptSubmit", "at": n + 1, "messages": [f"im_{n}"]}) + "\n" for n in range(5)]
    assert read_numbers() == [0, 0]
    write(lines[0] + "no JSON\n" + lines[1][:20])
    assert read_numbers() == [1, 1], "half a line waits for the rest"
    write(lines[1][20:])
    current.replace(older)
    write(lines[2])
    assert read_numbers() == [3, 3]
    write(lines[3])
    current.replace(older)
    assert read_numbers() == [3, 3], "a hook is about to begin the next part"
    write(lines[4])
    assert read_numbers() == [5, 5]
    again = HookLog()
    again.read_on(place)
    assert (again.messages, again.last_at) == ({"im_2", "im_3", "im_4"}, 5), "another hub has both parts"


def test_hooks_tell_the_state_where_no_status_file_does(place: RunDirectory) -> None:
    seen = []
    for event in ("UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse", "Stop"):
        hook(place, event, tool_name="Bash", tool_use_id="t1")
        state = observe(place, 0, NOW)
        assert state is not None and state.source == "hooks"
        seen.append(state.name)
    assert seen == ["working", "in a tool", "waiting", "working", "idle"]


def test_the_status_file_of_a_living_process_comes_first(place: RunDirectory) -> None:
    hook(place, "Stop")
    sessions = place.path / "claude" / "sessions"
    sessions.mkdir()
    status = {"status": "waiting", "waitingFor": "permission prompt", "statusUpdatedAt": 5}
    (sessions / f"{os.getpid()}.json").write_text(json.dumps(status))
    state = observe(place, os.getpid(), NOW)
    assert state is not None and (state.name, state.source, state.since) == ("waiting", "status file", 5)
    assert state.evidence == "waits for a person: asked for permission,"
    (sessions / f"{os.getpid()}.json").rename(sessions / "999999999.json")
    state = observe(place, 999999999, NOW)
    assert state is not None and (state.name, state.source) == ("idle", "hooks"), "its process is gone"


def test_an_answer_in_parts_is_counted_once_and_a_half_line_later(tmp_path: Path) -> None:
    usage = {"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 4, "output_tokens": 8}
    part = {"type": "assistant", "timestamp": "2026-11-18T12:00:00.000Z", "message": {"id": "msg_1", "usage": usage}}
    given = {"type": "hook_additional_context", "content": ["[Message im_a from operator, by Crewhall]\nhello"]}
    shown = {"type": "hook_success", "stdout": "[Message im_b from operator"}
    lines = [part, part, {"type": "attachment", "attachment": given}, {"type": "attachment", "attachment": shown}]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"type": "user", ')
    transcript = Transcript()
    transcript.read_on(path)
    assert (transcript.input_tokens, transcript.output_tokens, transcript.messages) == (7, 8, {"im_a"})
    with path.open("a") as file:
        file.write('"message": {"content": "[Message im_c from operator, by Crewhall]"}}\n')
    transcript.read_on(path)
    assert transcript.messages == {"im_a", "im_c"} and transcript.is_read
