"""
Processes of crewhall that start at once: each is forked from a process that has imported all of it.

    test ── words, environment, files ──▶ this module's own process ── fork ──▶ `crewhall` with those words
      ▲                                                │
      └────────── its pid, later its exit code ────────┘

Each process has its own connection. It differs from a started one in three ways: its imports and the schemas of the
tools are already there, `ps` shows another command line, and it ends without freeing its memory. Tests of those start
the real command.

With `environment()`, what a test's own processes start comes from here too: a hub of a bridge, the commands of a page.
"""

import atexit
import functools
import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

ROOT = Path(__file__).parents[2]
HANDOVER = Path(__file__).with_name("handover")
REAL = {"TEST_PREFORK": ""}  # after environment(): what is started is not forked
LARGEST = 1 << 17  # a request: words and environment


class Process:
    """A forked crewhall, as far as tests use a Popen."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid = int(connection.recv(100))
        self.returncode: int | None = None
        self._connection = connection
        weakref.finalize(self, connection.close)

    def poll(self) -> int | None:
        return self._hear(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._hear(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("crewhall", timeout or 0.0)
        return code

    def _hear(self, seconds: float | None) -> int | None:
        """Its exit code, if it comes in time. The message stays in place for other threads."""
        listening = select.poll()
        listening.register(self._connection, select.POLLIN)
        if self.returncode is None and listening.poll(None if seconds is None else seconds * 1000):
            self.returncode = int(self._connection.recv(100, socket.MSG_PEEK))
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and its code is on its way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@dataclass
class Done:
    code: int
    out: str
    err: str


class Prefork:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        self._directory = TemporaryDirectory(prefix="prefork-")
        self.address = f"{self._directory.name}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(self.address)
            listening.listen(100)
            words = [sys.executable, "-m", "tests.edges.prefork", str(listening.fileno())]
            self._server = subprocess.Popen(words, cwd=ROOT, pass_fds=[listening.fileno()], stdin=subprocess.PIPE)

    def start(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        files: Sequence[int],
        **more: Any,
    ) -> Process:
        """`crewhall` with these words; `files` are its standard ones and what else it shall have, by their numbers."""
        request = {"words": list(words), "environment": dict(environment), "numbers": [0, 1, 2, *files[3:]], **more}
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self.address)
        socket.send_fds(connection, [json.dumps(request).encode()], list(files))
        return Process(connection)

    def run(self, words: Sequence[str], environment: Mapping[str, str], text: str = "") -> Done:
        """`crewhall` with these words, to its end."""
        with (
            TemporaryFile("w+") as into,
            TemporaryFile("w+") as out,
            TemporaryFile("w+") as err,
        ):
            into.write(text)
            into.seek(0)
            files = [into.fileno(), out.fileno(), err.fileno()]
            process = self.start(words, environment, files, cwd=os.getcwd())
            try:
                code = process.wait(40)
            finally:
                process.kill()
            out.seek(0)
            err.seek(0)
            return Done(code, out.read(), err.read())

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(10)
        self._directory.cleanup()


@functools.cache
def prefork() -> Prefork:
    """The one of this worker process."""
    made = Prefork()
    atexit.register(made.close)
    return made


def environment() -> dict[str, str]:
    """The variables by which commands and hubs that a process starts are forked too."""
    path = [str(HANDOVER), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"TEST_PREFORK": prefork().address, "PYTHONPATH": os.pathsep.join(path)}


class Server:
    """Forks a child for each request, and tells of the child's end."""

    def __init__(self, listening: socket.socket) -> None:
        self._woken, self._wake = socket.socketpair()
        for end in (self._woken, self._wake):
            end.setblocking(False)
        self._listening = listening
        self._asking: set[socket.socket] = set()
        self._waiting: dict[int, socket.socket] = {}

    def serve(self) -> None:
        """Until the tests are over."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        while True:
            watched: list[Any] = [sys.stdin, self._listening, self._woken, *self._asking]
            ready, _, _ = select.select(watched, [], [])
            if sys.stdin in ready:
                return
            if self._woken in ready:
                self._woken.recv(4096)
                self._tell_ends()
            if self._listening in ready:
                self._asking.add(self._listening.accept()[0])
            for connection in self._asking & set(ready):
                self._asking.remove(connection)
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        request, files, _, _ = socket.recv_fds(connection, LARGEST, 16)
        if not request:
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            for ours in (self._listening, self._woken, self._wake, connection, *self._asking, *self._waiting.values()):
                ours.close()
            become(json.loads(request), files)
        self._waiting[pid] = connection
        with suppress(OSError):
            connection.send(str(pid).encode())
        for file in files:
            os.close(file)

    def _tell_ends(self) -> None:
        while self._waiting:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._waiting.pop(pid) as connection, suppress(OSError):
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(request: dict[str, Any], files: list[int]) -> None:
    """Be `crewhall` with these words, in this environment, with these files; does not come back."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request.get("session"):
        os.setsid()
    _place(files, request["numbers"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.stdin, sys.stdout, sys.stderr = _text(0, "r"), _text(1, "w"), _text(2, "w")
    sys.argv = ["crewhall", *request["words"]]
    from crewhall.__main__ import main

    try:
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    _end(code)


def _end(code: int) -> None:
    """End as Python does, but leave its memory alone: to free what is shared would copy all of it first."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _place(files: list[int], numbers: list[int]) -> None:
    """Give each file its number. First all move out of the way: a number may be another file's."""
    away = [os.dup2(file, 500 + place) for place, file in enumerate(files)]
    for file in files:
        os.close(file)
    for file, number in zip(away, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def _text(number: int, mode: str) -> Any:
    """A standard stream as Python opens it: by line at a terminal; what goes wrong is told at once."""
    stream = open(number, mode + "b", closefd=False)  # noqa: SIM115 - the process has it to its end
    by_line = number == 2 or os.isatty(number)
    return io.TextIOWrapper(stream, line_buffering=by_line, errors="strict" if number < 2 else "backslashreplace")


def main() -> None:
    import crewhall.edges.cli.main
    import crewhall.edges.hub.embedded
    import crewhall.edges.hub.serve
    import crewhall.store.postgres  # noqa: F401
    from crewhall.edges.cli.in_process import tool_descriptions

    tool_descriptions()  # with the schemas of all tools, which each process would make
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
