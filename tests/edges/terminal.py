"""A terminal as a person has one: an interactive shell that owns it, typed into, with all that it printed."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.conftest import eventually

# A shell has a terminal of its own only if the terminal is made its own, and that is the new process's to do.
OWNING = "import fcntl, os, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp('bash', {words})"
SHELL = ["bash", "--noprofile", "--norc", "--noediting", "-i"]
CODES = re.compile(r"\x1b(\[[0-9;?<>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\)|[=>78])|\r|\x07")
LIMIT = 60  # seconds that a command may take


class Terminal:
    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._keys, inside = pty.openpty()
        words = [sys.executable, "-c", OWNING.format(words=SHELL)]
        quiet = {"PS1": "", "PS2": "", "HISTFILE": "", "TERM": "xterm", "BASH_SILENCE_DEPRECATION_WARNING": "1"}
        streams: dict[str, Any] = {"stdin": inside, "stdout": inside, "stderr": inside}
        self.process = subprocess.Popen(words, cwd=directory, env=environment | quiet, **streams)
        os.close(inside)
        self._printed = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._type('stty -echo; set -o pipefail -o errtrace; trap \'echo "@failed: $BASH_COMMAND"\' ERR; echo @rea""dy')
        eventually(lambda: self.printed.count("@ready\n"), LIMIT)
        self._seen = len(self.printed)

    def _read(self) -> None:
        while True:
            try:
                self._printed += os.read(self._keys, 65536)
            except OSError:
                return  # the shell has ended

    def _type(self, line: str) -> None:
        os.write(self._keys, f"{line}\n".encode())

    @property
    def printed(self) -> str:
        """Everything so far, as plain text."""
        return CODES.sub("", self._printed.decode("utf-8", "replace"))

    @property
    def lately(self) -> str:
        """What was printed since the last command was typed."""
        return self.printed[self._seen :]

    def begin(self, script: Path) -> None:
        """Type the commands of a file, and do not wait for them."""
        self._seen = len(self.printed)
        self._type(f". {script}")

    def run(self, script: Path) -> str:
        """What the commands of a file print until they have ended. One that fails fails the test."""
        self._seen = len(self.printed)
        self._type(f". {script}; echo @ended")
        eventually(lambda: self.lately.endswith("@ended\n") or self.process.poll() is not None, LIMIT)
        assert "@failed" not in self.lately, self.lately
        return self.lately.removesuffix("@ended\n")

    def close(self) -> None:
        """End what runs with Ctrl-C, then the shell, which may throw away what is typed while it hears of that."""
        os.write(self._keys, b"\x03")
        try:
            eventually(self._has_left, 30)
        finally:
            self.process.kill()
            self.process.wait(10)
            self._reader.join(10)
            os.close(self._keys)

    def _has_left(self) -> bool:
        self._type("exit")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.5)
        return self.process.returncode is not None
