"""Where a bridge gets its hub: one that all bridges of the hall share, or one in its own process."""

import os
import socket
import sys
from contextlib import suppress
from typing import Any, Protocol

from crewhall.config import CLIENT_VARIABLES, from_environment
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.errors import Failure
from crewhall.ownership import open_own

LOG_BYTES = 10 * 1024 * 1024
# What belongs to one client's session, and not to a hub that others will use.
SESSIONS = ("CLAUDECODE", "CLAUDE_CODE_", "CLAUDE_PROJECT_DIR", "CODEX_", "GEMINI_CLI", "OPENCODE")
# What the hall gave to an instance's program besides its token; where there is none, these are the person's.
INSTANCES = (
    *("CREWHALL_INSTANCE", "CREWHALL_STATE_FILE", "CREWHALL_MCP_CONFIG", "CREWHALL_PORT"),
    *("CLAUDE_CONFIG_DIR", "IS_SANDBOX"),
)


class HubSource(Protocol):
    """Connects a bridge to a hub, and starts one if need be."""

    log: str  # where a hub that fails leaves its reasons

    def connect(self) -> socket.socket | None:
        """A connection to the hub, or None if there is none yet."""

    def probe(self) -> socket.socket | None:
        """Another connection to a hub that is connected, to see whether it greets; None if none can be made."""

    def is_current(self) -> bool:
        """Whether the hub of the last connection is still the one to connect to."""

    def start(self) -> None:
        """Start a hub, unless one is starting already."""

    def trouble(self) -> str | None:
        """Why no hub could be started; None after the first time."""

    def close(self) -> None:
        """Let go of the hub; the bridge ends."""


class SharedHub:
    """The hall's one hub, started by the bridge that gets the lock first.

    That bridge hands the lock to the new hub as an open file. The hub holds it as long as it lives, so there is never
    a second one. If it dies at its start, the next bridge gets the lock.
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
            connection = self._hub_socket.connect()
        except OSError:
            return None
        self._has_come = True
        return connection

    def probe(self) -> socket.socket | None:
        return self.connect()

    def is_current(self) -> bool:
        return self._hub_socket.is_found()

    def start(self) -> None:
        if self._child is not None and self._child.poll() is None:
            return
        try:
            held = self._hub_socket.try_lock()
            if held is not None:
                self._spawn(held)
        except OSError as error:
            self._failure = str(error)
        except Failure as failure:
            self._failure = f"{failure.message} ({failure.hint})"

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
        log = open_own(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
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
            messages = [line for line in lines if line.startswith("crewhall: ")] or lines
            if messages:
                return messages[-1].removeprefix("crewhall: ")
        return f"it ended with code {code}"

    def close(self) -> None:
        pass  # the hub stays for others, and ends when nobody uses it


def hub_environment(environ: Any) -> dict[str, str]:
    """The environment for a hub that a bridge starts: nothing that is one client's alone.

    What is for all clients is in config.toml: tokens, hosts and scope of pulls, how the judge is run, and which of the
    hub's variables programs get.
    """
    own = ("CREWHALL_TOKEN", *CLIENT_VARIABLES)
    theirs = (
        *SESSIONS,
        "CREWHALL_PULLS_",
        "CREWHALL_JUDGE_",
        "CREWHALL_PROGRAMS_",
        *(INSTANCES if "CREWHALL_INSTANCE" in environ else ()),
    )
    return {name: value for name, value in environ.items() if name not in own and not name.startswith(theirs)}


class EmbeddedHub:
    """A hub in a thread of this process, for this bridge only."""

    log = "stderr"

    def __init__(self, home: str | None) -> None:
        self._settings = from_environment({"home": home} if home else {})
        self._hub: Any = None

    def connect(self) -> socket.socket | None:
        if self._hub is not None and self._hub.failure is not None:
            return None
        self.close()
        from crewhall.edges.hub.embedded import HubThread

        self._hub = HubThread(self._settings)
        mine: socket.socket = self._hub.connection
        return mine

    def probe(self) -> None:
        return None

    def is_current(self) -> bool:
        return True

    def start(self) -> None:
        pass

    def trouble(self) -> str | None:
        failure: str | None = self._hub.failure if self._hub is not None else None
        return failure

    def close(self) -> None:
        if self._hub is not None:
            self._hub.close()


class NoHub:
    """No hub at all, because the settings cannot be read."""

    log = "stderr"

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def connect(self) -> None:
        return None

    def probe(self) -> None:
        return None

    def is_current(self) -> bool:
        return True

    def start(self) -> None:
        pass

    def trouble(self) -> str:
        return f"{self._failure.message} ({self._failure.hint})"

    def close(self) -> None:
        pass
