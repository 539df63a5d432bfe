"""Real Claude Code in the tests: a throw-away home, a hall to join, and a model that plays a script."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crewhall.families.all import registry
from tests.edges.program import Program, Up
from tests.edges.raw_http import http
from tests.families.work.workflows import Ask
from tests.npm import need
from tools.clients import bridge, claude_settings, run, surroundings, write
from tools.npm import CLAUDE_CODE
from tools.stubs.anthropic import Play, Script, Turn, Use, plays, told

Json = dict[str, Any]
TOOLS = registry()
SERVER = "mcp__crewhall"  # what Claude Code calls the hall's tools and prompts, with two more underscores


def use(tool: str, /, **arguments: Any) -> Use:
    """The model calls a tool of the hall."""
    return Use(f"{SERVER}__{tool}", arguments)


@dataclass
class Claude:
    """Claude Code in a directory, which is its home too, with the hall among its servers."""

    home: Path
    environment: dict[str, str]
    requests: list[Json]
    server: str = SERVER

    @property
    def words(self) -> list[str]:
        servers = ["--mcp-config", str(self.home / "servers.json"), "--strict-mcp-config"]
        return ["claude", "-p", *servers, "--allowedTools", self.server]

    def ask(self, prompt: str) -> str:
        """A session that knows of nothing but this; what it said at its end."""
        return run(self.home, *self.words, "--", prompt, **self.environment).strip()

    def told(self) -> tuple[str, list[Any]]:
        """What the model was asked last, and what the tools then gave it: all that it had before it."""
        return told(self.requests[-1])

    @contextmanager
    def conversation(self) -> "Iterator[Conversation]":
        """One session in which a person says one thing after another."""
        words = [*self.words, "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
        around = surroundings(self.home) | self.environment
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(words, env=around, cwd=self.home, **pipes) as process:
            try:
                yield Conversation(process)
            finally:
                process.terminate()


@dataclass
class Conversation:
    process: "subprocess.Popen[str]"

    def say(self, prompt: str) -> str:
        """Say it, and wait; what the model said at the end of its turn."""
        assert self.process.stdin is not None and self.process.stdout is not None
        said = {"type": "user", "message": {"role": "user", "content": prompt}}
        self.process.stdin.write(json.dumps(said) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer["type"] == "result":
                assert not answer["is_error"], answer
                return str(answer["result"])
        raise AssertionError("Claude Code ended")


@contextmanager
def claude_code(home: Path, hall: Program, script: Script, token: str | None = None) -> Iterator[Claude]:
    """Claude Code with a model that plays this script; with a token, whatever it does in the hall is that agent's."""
    own = hall.environment | ({} if token is None else {"CREWHALL_TOKEN": token})
    with claude_with(home, claude_settings(bridge(hall.home), **own), script) as claude:
        yield claude


@contextmanager
def claude_with(home: Path, settings: Json, script: Script, **environment: str) -> Iterator[Claude]:
    """Claude Code with these servers among its settings, in this environment, and a model that plays this script."""
    need(CLAUDE_CODE)
    requests: list[Json] = []
    write(home / "servers.json", json.dumps(settings))
    (name,) = settings["mcpServers"]
    with plays(script, requests) as url:
        around = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", **environment}
        yield Claude(home, around, requests, f"mcp__{name}")


def asking(up: Up, token: str | None = None) -> Ask:
    """Calls of a hub in a process of its own, as the operator or by a token: `ask("task_get", id=…)`."""
    return asking_at(up.url, token)


def asking_at(url: str, token: str | None = None) -> Ask:
    """The same of a hub at this URL."""

    def ask(tool: str, /, **arguments: Any) -> Json:
        noun, verb = TOOLS.find(tool).command
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        answer = http.post(f"{url}/api/v1/{noun}/{verb}", json=arguments, headers=headers)
        body: Json = answer.json()
        assert answer.status_code == 200, body
        return body

    return ask


@dataclass
class Model:
    """A scripted model that can be given another script at any time; `requests` is what it was sent since."""

    url: str = ""
    requests: list[Json] = field(default_factory=list)
    script: Script = field(default=lambda _: turns())

    def play(self, asked: str) -> Play:
        return self.script(asked)

    def plays(self, *said: Turn) -> None:
        """Play these turns, whatever is asked."""
        self.script = lambda _: turns(*said)
        self.requests.clear()

    def told(self) -> tuple[str, list[Any]]:
        """What it was asked last, and what its tools then gave it."""
        return told(self.requests[-1])


def turns(*said: Turn) -> Play:
    """A play of these turns, whatever the tools give."""
    left = list(said)
    while left:
        yield left.pop(0)


@contextmanager
def scripted(usage: Json) -> Iterator[Model]:
    """A model whose every answer takes the tokens of `usage`."""
    model = Model()
    with plays(model.play, model.requests, usage) as model.url:
        yield model
