"""Bridges in processes of their own that start at once: see tests/edges/prefork.py."""

import itertools
import os
import queue
import subprocess
import threading
from pathlib import Path
from typing import IO, Any, cast

from tests.edges.prefork import Process, prefork
from tests.edges.program import PASSED_ON
from tests.edges.stdio import Stdio
from tests.edges.ways import MODERN


class Piped:
    """A forked process with our ends of its three pipes, as far as Stdio uses a Popen."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        ours_err, theirs_err = os.pipe()
        self._process: Process = prefork().start(
            words, environment, [theirs_in, theirs_out, theirs_err], cwd=os.getcwd()
        )
        for theirs in (theirs_in, theirs_out, theirs_err):
            os.close(theirs)
        self.stdin: IO[bytes] = open(ours_in, "wb")  # noqa: SIM115 - Stdio closes them
        self.stdout: IO[bytes] = open(ours_out, "rb")  # noqa: SIM115
        self.stderr: IO[bytes] = open(ours_err, "rb")  # noqa: SIM115

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)


class Bridge(Stdio):
    """A client whose bridge is forked: for tests of what goes through one, not of how it starts."""

    def __init__(
        self, home: Path, *words: str, version: str = MODERN, command: str = "mcp", **environment: str
    ) -> None:
        self.version = version
        piped = Piped(["--home", str(home), command, *words], PASSED_ON | environment)
        self.process = cast("subprocess.Popen[bytes]", piped)
        self.notices = []
        self._answers: dict[Any, queue.SimpleQueue[dict[str, Any]]] = {}
        self._ids = itertools.count(1)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
