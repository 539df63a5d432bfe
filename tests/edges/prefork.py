"""
Processes of crewhall that start at once: each is forked from a process that has imported all of it.

    test ── words, environment, three files ──▶ this module's own process ── fork ──▶ `crewhall` with those words
      ▲                                                  │
      └──────────── its pid, later its exit code ────────┘

Such a process differs from a started one in two ways: nothing is left to import, and `ps` shows another command line.
Tests of either start the real command.
"""

import atexit
import functools
import gc
import io
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

ROOT = Path(__file__).parents[2]
LARGEST = 1 << 17  # a request: words and environment


class Process:
    """A forked crewhall, as far as tests use a Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.ended = threading.Event()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired("crewhall", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if not self.ended.is_set():
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
    """The process that forks, and what became of its children."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-m", "tests.edges.prefork", str(theirs.fileno())]
            self._server = subprocess.Popen(words, cwd=ROOT, pass_fds=[theirs.fileno()])
        self._turn = threading.Lock()
        self._started: queue.SimpleQueue[Process] = queue.SimpleQueue()
        threading.Thread(target=self._hear, name="prefork", daemon=True).start()

    def _hear(self) -> None:
        processes: dict[int, Process] = {}
        while message := self._control.recv(1000):
            pid, code = json.loads(message)
            if code is None:
                processes[pid] = Process(pid)
                self._started.put(processes[pid])
            else:
                processes[pid].returncode = code
                processes.pop(pid).ended.set()

    def start(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        files: Sequence[int],
        **more: Any,
    ) -> Process:
        """`crewhall` with these words; `files` are its standard ones and what else it shall have, by their numbers."""
        request = {"words": list(words), "environment": dict(environment), "numbers": [0, 1, 2, *files[3:]], **more}
        with self._turn:
            socket.send_fds(self._control, [json.dumps(request).encode()], list(files))
            return self._started.get(timeout=30)

    def run(self, words: Sequence[str], environment: Mapping[str, str], text: str = "") -> Done:
        """`crewhall` with these words, to its end."""
        with TemporaryFile("w+") as into, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
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
        self._control.shutdown(socket.SHUT_RDWR)
        self._server.wait(10)


@functools.cache
def prefork() -> Prefork:
    """The one of this worker process."""
    made = Prefork()
    atexit.register(made.close)
    return made


def serve(control: socket.socket) -> None:
    """Fork a child for each request, and tell of each child's end, until the tests are over."""
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _tell_ended(control)
        if control in ready:
            request, files, _, _ = socket.recv_fds(control, LARGEST, 16)
            if not request:
                return
            pid = os.fork()
            if pid == 0:
                for ours in (control, woken, wake):
                    ours.close()
                become(json.loads(request), files)
            control.send(json.dumps([pid, None]).encode())
            for file in files:
                os.close(file)


def _tell_ended(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        control.send(json.dumps([pid, os.waitstatus_to_exitcode(status)]).encode())


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

    sys.exit(main())


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
    import crewhall.edges.cli
    import crewhall.edges.local
    import crewhall.edges.serve
    import crewhall.edges.standalone
    import crewhall.store.postgres  # noqa: F401
    from crewhall.families.all import registry

    registry()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
