"""Hubs in processes of their own that serve one hall, each at a port that it keeps when it is started again."""

import os
import signal
import time
from contextlib import ExitStack
from email.utils import parsedate_to_datetime
from pathlib import Path

from tests.edges.program import Program, Up
from tests.edges.raw_http import http
from tests.faults.proxy import Proxy
from tests.postgres import free_port, missing

FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


def other_clock(hours: int) -> dict[str, str]:
    """Variables of a process whose wall clock is so many hours off; its monotonic clock is as ever."""
    if not FAKETIME:
        missing("faketime")
    return {"LD_PRELOAD": str(FAKETIME[0]), "FAKETIME": f"{hours:+d}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class HubProcess:
    """One hub, with a home of its own, which reaches the database through a proxy of its own if it has one."""

    def __init__(self, home: Path, database: str, settings: dict[str, str], proxy: Proxy | None, hours: int) -> None:
        self.port = free_port()
        self.proxy = proxy
        variables = {"CREWHALL_DATABASE_URL": database, "CREWHALL_LOG_LEVEL": "warning", **settings}
        variables |= other_clock(hours) if hours else {}
        self._program = Program(home, variables, real=bool(hours))  # what is forked keeps its libraries
        self._stack = ExitStack()
        self.start()
        assert round(self.hours_ahead) == hours

    @property
    def hours_ahead(self) -> float:
        """How far its wall clock is from ours, as it says itself."""
        told = http.get(f"{self.up.url}/healthz").headers["date"]
        return (parsedate_to_datetime(told).timestamp() - time.time()) / 3600

    def start(self) -> None:
        self.up: Up = self._stack.enter_context(self._program.up("--port", str(self.port)))

    def stop(self) -> None:
        os.kill(self.up.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self.up.process.poll() is None:
            os.kill(self.up.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.up.process.kill()
        self.up.process.wait(30)
        self._stack.close()

    def end(self) -> None:
        """End it as a person would; it may be stopped."""
        self.resume()
        self._stack.close()
        if self.proxy is not None:
            self.proxy.close()
