"""A hall whose judge is real Claude Code, and the model behind that, which plays a script."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
from crewhall.stop import Stop
from tests.conftest import settings_for
from tests.edges.claude import Json, Model, scripted
from tests.npm import need
from tools.clients import surroundings, write
from tools.npm import CLAUDE_CODE
from tools.stubs.anthropic import Turn, Use

CONTRACT = "_handoff/TASK_CONTRACT.json"
MODEL = "claude-opus-5-5"
USAGE = {
    "input_tokens": 1200,
    "output_tokens": 340,
    "cache_read_input_tokens": 5000,
    "cache_creation_input_tokens": 60,
}
# What a hub has around it that was started inside a session of Claude Code.
OUTER = {
    "CLAUDECODE": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
    "CLAUDE_CODE_SESSION_ID": "5d7c0f2e-95d4-4d0e-9e43-2f3d9b0b6a11",
    "CLAUDE_CODE_CHILD_SESSION": "1",
    "CLAUDE_CODE_SSE_PORT": "9",
    "CLAUDE_CODE_EXTRA_BODY": '{"metadata": {"user_id": "MARK-outer"}}',
    "CLAUDE_PROJECT_DIR": "/",
    "CREWHALL_TOKEN": "MARK-token",
}


@dataclass
class Judge:
    """A hall whose judge is Claude Code, and the model behind that."""

    database: str
    home: Path
    model: Model
    hub: Hub

    def ask(self, tool: str, /, where: Path | None = None, stop: Stop | None = None, **arguments: Any) -> Json:
        origin = Origin(directory=str(where) if where else None)
        return self.hub.call(tool, arguments, OPERATOR, origin=origin, stop=stop)

    def review(self, where: Path, *turns: Turn, stop: Stop | None = None, **arguments: Any) -> Json:
        """Have the contract there reviewed by a model that takes these turns."""
        if turns:
            self.model.plays(*turns)
        given = {"contract_path": CONTRACT, "fresh": True, **arguments}  # trees of other tests may be the same
        return self.ask("claude_judge_review", where, stop, **given)

    @contextmanager
    def with_settings(self, **more: Any) -> "Iterator[Judge]":
        """The same hall by a hub with other settings."""
        hub = Hub(settings_for(self.database, self.home.parent / "hall", judge__model=MODEL, **more), registry())
        try:
            yield Judge(self.database, self.home, self.model, hub)
        finally:
            hub.close()

    @property
    def processes(self) -> list[str]:
        """The CLI's that run, and those that they have started: who was told of our model."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"ANTHROPIC_BASE_URL={self.model.url}".encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_text().replace("\0", " "))
        return found


@contextmanager
def judging(place: Path, fresh_hall: Path) -> Iterator[Judge]:
    """Such a hall, by a hub in this process; its files are in `place`, where BUN_OPTIONS would make one named early."""
    need(CLAUDE_CODE)
    write(place / "early.js", f'require("fs").writeFileSync("{place}/early", "")')
    database = shutil.copy(fresh_hall, str(place / "hall.db"))
    with pytest.MonkeyPatch.context() as patch, scripted(USAGE) as model:
        its = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_MAX_RETRIES": "0"}
        around = {"BUN_OPTIONS": f"--preload {place}/early.js", **surroundings(place / "home"), **OUTER, **its}
        for name, value in around.items():
            patch.setenv(name, value)
        hub = Hub(settings_for(database, place / "hall", judge__model=MODEL), registry())
        try:
            yield Judge(database, place / "home", model, hub)
        finally:
            hub.close()


def contract_in(root: Path, **more: Any) -> None:
    asks = {"specification": {"requirements": ["a dark mode"]}, "acceptance_criteria": ["dark"]}
    write(root / CONTRACT, json.dumps({"task_id": "dark-mode", **asks, "changed_files": ["file-0"]} | more))


def verdict(word: str = "PASS", blocking: int = 0, task_id: str = "dark-mode") -> Use:
    """A verdict as the model gives it: by the tool that the CLI has for the shape it was told of."""
    issues = [{"file": "file-0", "line": one + 1, "issue": f"issue {one}"} for one in range(blocking)]
    said = {"task_id": task_id, "verdict": word, "summary": "In short.", "blocking_issues": issues}
    return Use("StructuredOutput", said)
