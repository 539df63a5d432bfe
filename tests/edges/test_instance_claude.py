"""Real Claude Code as an instance: a real hub, a real tmux, and a model that plays a script."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from crewhall.families.crew.site import tmux_of
from crewhall.outside.processes import marked_by
from crewhall.outside.tmux import Tmux
from crewhall.token_file import read_operator_token
from tests.conftest import eventually
from tests.edges.claude import asking, use
from tests.edges.program import Program, Up
from tests.edges.raw_http import http
from tests.edges.stdio import Stdio
from tests.families.work.workflows import Ask
from tests.npm import need
from tests.outside.repos import make_repository
from tools.npm import CLAUDE_CODE, PROGRAMS
from tools.stubs.anthropic import Play, Script, Use, plays

Json = dict[str, Any]
LONG = "-x 'one' \"two\" `three` $HOME \\ {prompt} ünï 🌲\n" + "a line with words in it\n" * 850 + "the very end"
USAGE = {"input_tokens": 100, "cache_read_input_tokens": 40, "output_tokens": 20}


@dataclass
class Site:
    """A hub with Claude Code as its runtime, and the model behind it."""

    program: Program
    up: Up
    ask: Ask
    tmux: Tmux
    repository: str
    requests: list[Json]
    gate: threading.Event = field(default_factory=threading.Event)

    def start(self, prompt: str, **more: Any) -> str:
        path = {"repository_path": self.repository}
        return str(self.ask("instance_start", prompt=prompt, **path, **more)["instance_id"])

    def state(self, instance: str) -> Json:
        state: Json = self.ask("instance_get", id=instance)["state"]
        return state

    def await_state(self, instance: str, *names: str) -> Json:
        def has_state() -> Json | None:
            state = self.state(instance)
            return state if state["name"] in names else None

        try:
            found: Json = eventually(has_state, 20)
        except AssertionError:
            raise AssertionError(f"{self.state(instance)}\n{self.tmux.capture(instance, 60)}") from None
        return found

    def await_rounds(self, number: int) -> None:
        """Wait until the hub has looked after messages so many times more."""
        for _ in range(number):
            self._await_round(self._last_round())

    def _await_round(self, before: Any) -> None:
        eventually(lambda: self._last_round() != before)

    def _last_round(self) -> Any:
        chores = http.get(f"{self.up.url}/api/v1/chores").json()["chores"]
        return next(one for one in chores if one["name"] == "instance_messages")

    def told(self, instance: str) -> list[tuple[str, str]]:
        """The ids of the messages that have arrived, and how."""
        found = self.ask("event_list", subject=instance, limit=50)["events"]
        data = [one["data"] for one in found if one["what"] == "instance.told"]
        facts = [json.loads(one) if isinstance(one, str) else one for one in data]
        return [(one["message_id"], one["by"]) for one in facts]

    def texts(self) -> str:
        """The conversation as the model was sent it last."""
        return json.dumps(self.requests[-1]["messages"], ensure_ascii=False)


@contextmanager
def site(
    directory: Path, permission: str = "skip", script: Script | None = None, more_settings: str = ""
) -> Iterator[Site]:
    need(CLAUDE_CODE)
    home, gate = directory / "hall", threading.Event()
    requests: list[Json] = []
    home.mkdir()
    (home / "config.toml").write_text(f'[crew.runtimes.claude_code]\npermission = "{permission}"\n{more_settings}')
    with plays(script or (lambda asked: play(asked, gate, directory)), requests, USAGE) as url:
        key = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "a-key-of-more-than-twenty-characters"}
        around = key | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(directory)}
        program = Program(home, around)
        tmux = tmux_of(program.settings)
        with program.up() as up:
            ask = asking(up, read_operator_token(home))
            try:
                yield Site(program, up, ask, tmux, make_repository(directory / "shop").root, requests, gate)
            finally:
                gate.set()
                for session in tmux.panes():
                    tmux.kill(session)


def play(asked: str, gate: threading.Event, directory: Path) -> Play:
    """The model works as long as the gate is closed; what it does follows from what it was asked."""
    if "join" in asked:
        yield use("message_send", recipient_id="operator", message_type="notification", body="here")
    if "wait at the gate" in asked:
        yield Use("Bash", {"command": f"until [ -e {directory}/open ]; do sleep 0.05; done", "description": "wait"})
    if "make a file" in asked:
        yield Use("Bash", {"command": f"touch {directory}/made", "description": "make"})
    yield "done"


@pytest.mark.timeout(90)
def test_claude_code_works_hears_and_ends(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        instance = here.start(f"join, then wait at the gate\n{LONG}", title="colours")
        eventually(lambda: here.state(instance)["evidence"].startswith("busy: PreToolUse of Bash"), 20)
        busy = here.state(instance)
        assert (busy["name"], busy["source"]) == ("in a tool", "status file"), busy
        assert json.dumps(LONG, ensure_ascii=False)[1:-1] in here.texts()
        agent = here.ask("instance_get", id=instance)["agent_id"]
        calls = here.ask("call_list", tool="message_send")["calls"]
        assert agent in [one["actor"] for one in calls]

        sent = here.ask("instance_send", id=instance, text="!W-1 while you work: 'ü'\nand more")
        eventually((tmp_path / "hall" / "instances" / instance / "outbox" / f"{sent['message_id']}.json").exists)
        (tmp_path / "open").touch()
        eventually(lambda: here.told(instance) == [(sent["message_id"], "hook")], 15)
        assert here.texts().count("W-1 while you work: 'ü'\\nand more") == 1
        idle = here.await_state(instance, "idle")
        assert idle["source"] == "status file", idle

        long = here.ask("instance_send", id=instance, text=f"/W-2 while you idle\n{LONG}")
        eventually(lambda: (long["message_id"], "paste") in here.told(instance), 15)
        here.await_state(instance, "idle")
        assert here.texts().count("W-2 while you idle") == 1
        assert json.dumps(LONG, ensure_ascii=False)[1:-1] in here.texts().partition("W-2 while you idle")[2]
        assert len(here.told(instance)) == 2
        answers = eventually(lambda: here.ask("instance_get", id=instance)["output_tokens"] // 20, 10)
        assert here.ask("instance_get", id=instance)["input_tokens"] == answers * 140

        for file in (tmp_path / "hall" / "instances" / instance / "claude" / "sessions").iterdir():
            file.unlink()
        assert (here.state(instance)["name"], here.state(instance)["source"]) == ("idle", "hooks")
        here.ask("instance_stop", id=instance)
        eventually(lambda: not marked_by("CREWHALL_INSTANCE", f"CREWHALL_HOME={tmp_path / 'hall'}"))
        assert instance not in here.tmux.panes()


@pytest.mark.timeout(90)
def test_nothing_is_typed_into_a_dialog(tmp_path: Path) -> None:
    with site(tmp_path, "ask") as here:
        instance = here.start("make a file", title="ask")
        waiting = here.await_state(instance, "waiting")
        assert waiting["evidence"].startswith("waits for a person: asked for permission"), waiting
        screen = here.tmux.capture(instance, 60)
        sent = [here.ask("instance_send", id=instance, text=f"W-{number}") for number in (1, 2)]
        outbox = tmp_path / "hall" / "instances" / instance / "outbox"
        eventually(lambda: len(list(outbox.iterdir())) == 2)
        here.await_rounds(2)
        assert here.tmux.capture(instance, 60) == screen and not (tmp_path / "made").exists()
        assert here.state(instance)["name"] == "waiting" and here.told(instance) == []
        here.tmux.paste(instance, "")  # a person says yes
        eventually((tmp_path / "made").exists)
        eventually(lambda: [one for one, _ in here.told(instance)] == [one["message_id"] for one in sent], 15)
        assert here.texts().count("W-1") == here.texts().count("W-2") == 1


@pytest.mark.timeout(90)
def test_the_same_holds_over_mcp_and_by_hand(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        token = {"CREWHALL_TOKEN": read_operator_token(here.program.home) or ""}
        with closing(Stdio(here.program.home, **token)) as client:
            words = {"prompt": "join", "title": "by-mcp", "repository_path": here.repository}
            name = client.call("instance_start", **words)["instance_id"]
            assert name == "work-by-mcp-a1" and here.await_state(name, "idle")["source"] == "status file"
            sent = client.call("instance_send", id=name, text="W-1")
            eventually(lambda: [one for one, _ in here.told(name)] == [sent["message_id"]], 30)
            assert here.await_state(name, "idle") and here.texts().count("W-1") == 1
            assert client.call("instance_get", id=name)["state"]["name"] == "idle"
            assert "Claude Code" in client.call("instance_output", id=name)["text"]
            assert client.call("instance_stop", id=name)["status"] == "terminated" and name not in here.tmux.panes()
        done = here.program.run("instance", "start", "join", "--title", "by-hand", "--repository-path", here.repository)
        assert done.code == 0, done
        here.await_state("work-by-hand-a1", "idle")
