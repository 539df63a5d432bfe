"""Bridges in processes of their own that start at once: see tests/edges/prefork.py."""

import os
import subprocess
from typing import IO, Any, cast

from tests.edges.prefork import Process, prefork
from tests.edges.stdio import Stdio


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


class ForkedBridge(Stdio):
    """A client whose bridge is forked: for tests of what goes through one, not of how it starts."""

    def _start(self, words: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        return cast("subprocess.Popen[bytes]", Piped(words, environment))
