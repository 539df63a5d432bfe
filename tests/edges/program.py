"""crewhall as a program: run to its end, or up as a hub, in a hall of its own."""

import contextlib
import io
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from crewhall import config
from crewhall.config import Settings
from crewhall.edges.cli import main
from tests.edges.interfaces import CREWHALL
from tests.edges.prefork import Done, Process, prefork
from tests.edges.prefork import environment as prefork_environment
from tests.edges.raw_http import http

# What a process needs of ours to run at all; nothing of our own settings.
PASSED_ON = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH", "LANG") if name in os.environ}


@dataclass
class Up:
    """A hub in a process of its own."""

    process: "Process | subprocess.Popen[str]"
    greeting: str
    log: Path

    @property
    def url(self) -> str:
        found = re.search(r"up at (\S+)", self.greeting)
        assert found, self.greeting
        return found[1]

    @property
    def link(self) -> str:
        found = re.search(r"dashboard\s+(\S+)", self.greeting)
        assert found, self.greeting
        return found[1]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and wait; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)


@dataclass
class Program:
    """crewhall in a hall of its own: forked, as is what it starts (tests/edges/prefork.py); with `real`, started."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    real: bool = False

    @property
    def settings(self) -> Settings:
        return config.load(self.environment, {"home": str(self.home)})

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        return PASSED_ON | {"CREWHALL_HOME": str(self.home)} | self.environment | more

    def run(self, *words: str, text: str = "", **environment: str) -> Done:
        around = self._environment(environment)
        if not self.real:
            return prefork().run(words, prefork_environment() | around, text)
        done = subprocess.run(
            [CREWHALL, *words], check=False, input=text, env=around, capture_output=True, text=True, timeout=40
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def here(self, *words: str, **environment: str) -> Done:
        """The same without a process of its own, for set-up and for tables of cases; starting one takes a second."""
        out, err = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            for name in [name for name in os.environ if name not in PASSED_ON]:
                patch.delenv(name)
            for name, value in self._environment(environment).items():
                patch.setenv(name, value)
            return Done(main.run(list(words)), out.getvalue(), err.getvalue())

    def _start(
        self, words: Sequence[str], environment: dict[str, str], *files: IO[str]
    ) -> "Process | subprocess.Popen[str]":
        """A process with these as its standard input, output and error."""
        around = self._environment(environment)
        if not self.real:
            numbers = [file.fileno() for file in files]
            return prefork().start(words, prefork_environment() | around, numbers, cwd=os.getcwd())
        into, out, err = files
        return subprocess.Popen([CREWHALL, *words], env=around, stdin=into, stdout=out, stderr=err, text=True)

    @contextmanager
    def up(self, *words: str, **environment: str) -> Iterator[Up]:
        """A hub that is ready; it is ended with the block if it still runs."""
        self.home.parent.mkdir(parents=True, exist_ok=True)
        log = self.home.parent / f"hub-{time.monotonic_ns()}.log"
        ours, theirs = os.pipe()
        with open(ours) as out:
            with open(theirs, "w") as into, log.open("w") as errors, open(os.devnull) as nothing:
                process = self._start(["up", *(words or ("--port", "0"))], environment, nothing, into, errors)
            try:
                greeting = ""
                for line in out:
                    greeting += line
                    if line.startswith("Stop it"):
                        break
                assert "Stop it" in greeting, log.read_text()
                yield Up(process, greeting, log)
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait(30)


def ask(up: Up, path: str, /, **body: Any) -> Any:
    """A tool's result from a hub, asked by POST."""
    answer = http.post(f"{up.url}/api/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text + up.log.read_text()
    return answer.json()
