"""How a bridge comes to a hub: one that runs or is started for the hall, or one in its own process."""

import os
import socket
import sys
from contextlib import suppress
from typing import Any, Protocol

from crewhall.config import CLIENT_VARIABLES, from_environment
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.errors import Failure

LOG_BYTES = 10 * 1024 * 1024
# What belongs to one client's session, and not to a hub that others will use.
SESSIONS = ("CLAUDECODE", "CLAUDE_CODE_", "CLAUDE_PROJECT_DIR", "CODEX_", "GEMINI_CLI", "OPENCODE")


class Way(Protocol):
    log: str

    def connect(self) -> socket.socket | None:
        """A connection to the hub, or None when there is no hub yet."""

    def start(self) -> None:
        """Have a hub come up, unless one is about to."""

    def trouble(self) -> str | None:
        """Why no hub comes up, told once."""

    def close(self) -> None:
        """The bridge ends."""


class NewHub:
    """The hall's hub, which runs already or is started by whichever bridge gets the lock first.

    The lock goes to the new hub as an open file, and is held as long as that lives: there is never a second one, and
    a hub that dies at its start leaves the lock to the next bridge.
    """

    def __init__(self, home: str | None) -> None:
        settings = from_environment({"home": home} if home else {})
        self._hub_socket = HubSocket(settings)
        # A relative path means the bridge's directory, not the hub's.
        self._database = {} if settings["database.url"] else {"CREWHALL_DATABASE_PATH": settings.database}
        self._child: Any = None
        self._has_come = False
        self._failure: str | None = None
        self._log_from = 0
        self.log = str(settings.home / "hub.log")

    def connect(self) -> socket.socket | None:
        try:
            found = self._hub_socket.connect()
        except OSError:
            return None
        self._has_come = True
        return found

    def start(self) -> None:
        if self._child is not None and self._child.poll() is None:
            return
        try:
            held = self._hub_socket.try_lock()
            if held is not None:
                self._spawn(held)
        except OSError as error:
            self._failure = str(error)

    def _spawn(self, held: int) -> None:
        import subprocess  # only who starts a hub needs it

        try:
            with open(self._log_file(), "ab") as log:
                self._has_come = False
                words = ["--home", str(self._hub_socket.home), "up", "--lock", str(held)]
                self._child = subprocess.Popen(
                    [sys.executable, "-P", "-m", "crewhall", *words],
                    pass_fds=[held],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._hub_socket.home,
                    env=hub_environment(os.environ) | self._database,
                    start_new_session=True,
                )
        finally:
            os.close(held)

    def _log_file(self) -> int:
        """The hub's log, opened at its end; a long one is put aside first."""
        with suppress(OSError):
            if os.path.getsize(self.log) > LOG_BYTES:
                os.replace(self.log, f"{self.log}.1")
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._log_from = os.lseek(log, 0, os.SEEK_END)
        return log

    def trouble(self) -> str | None:
        failure, self._failure = self._failure, None
        if failure is not None:
            return failure
        if self._child is None or self._child.poll() is None:
            return None
        code, self._child = self._child.returncode, None
        if self._has_come:
            return None  # it served, and has ended since
        with suppress(OSError), open(self.log, "rb") as log:
            log.seek(self._log_from)
            lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
            told = [line for line in lines if line.startswith("crewhall: ")] or lines
            if told:
                return told[-1].removeprefix("crewhall: ")
        return f"it ended with code {code}"

    def close(self) -> None:
        pass  # the hub stays for others, and ends when nobody uses it


def hub_environment(environ: Any) -> dict[str, str]:
    """The environment for a hub that a bridge starts: nothing that is one client's alone.

    Tokens, hosts and scope of pulls, and how the judge is run, are for all clients: they are in config.toml.
    """
    own = ("CREWHALL_TOKEN", *CLIENT_VARIABLES)
    theirs = (*SESSIONS, "CREWHALL_PULLS_", "CREWHALL_JUDGE_")
    return {name: value for name, value in environ.items() if name not in own and not name.startswith(theirs)}


class OwnHub:
    """The hall served in this very process, by a thread."""

    log = "stderr"

    def __init__(self, home: str | None) -> None:
        self._settings = from_environment({"home": home} if home else {})
        self._hub: Any = None

    def connect(self) -> socket.socket | None:
        if self._hub is not None and self._hub.failure is not None:
            return None
        self.close()
        from crewhall.edges.hub.embedded import Standalone

        self._hub = Standalone(self._settings)
        mine: socket.socket = self._hub.connection
        return mine

    def start(self) -> None:
        pass

    def trouble(self) -> str | None:
        failure: str | None = self._hub.failure if self._hub is not None else None
        return failure

    def close(self) -> None:
        if self._hub is not None:
            self._hub.close()


class Broken:
    """No way: the settings cannot be read."""

    log = "stderr"

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def connect(self) -> None:
        return None

    def start(self) -> None:
        pass

    def trouble(self) -> str:
        return f"{self._failure.message} ({self._failure.hint})"

    def close(self) -> None:
        pass
