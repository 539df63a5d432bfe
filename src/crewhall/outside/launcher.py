"""
The process in an agent's terminal that starts its program and records how it ended. `launch_spec.py` writes the spec.

    python -I -S launcher.py SPEC.json      reads argv, environment, directory, run_directory, setup …

    launcher.json {pid} ──▶ waits for `go` ──▶ setup.json {code, seconds} ──▶ started.json {pid, started} ──▶ ended.json
                              │                  │                              │
    how in ended.json:     "not released"     "setup failed"         "not found", else "exit" or "signal"

All files are in the run directory. A person's Ctrl-C reaches the program itself; SIGTERM and SIGHUP are passed on, and
the launcher stays until the end is recorded. It starts in a few milliseconds, so it imports little and nothing of ours.
The caller removes an old `go` before the start; the launcher removes the old records. If it is killed, the program may
live on: `started` in its record is its start time as processes.py has it, and null where there is no /proc.
"""

import contextlib
import errno
import json
import os
import signal
import sys
import time
from typing import Any

TICK = 0.02  # seconds between two looks for `go`, or at the setup
GRACE = 2.0  # seconds from the request to a setup to end, until it is killed
RECORDS = ("ended.json", "setup.json", "started.json")
ROOM = 4096  # bytes that a record may need
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
SURVIVED = (*PASSED_ON, signal.SIGINT, signal.SIGQUIT)
# Python ignores the first two of these, and tmux 3.3 the others; a program would inherit that.
RESTORED = (*SURVIVED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTIN, signal.SIGTTOU, signal.SIGTSTP)
LATE = 124  # the exit code of a setup that took too long, as `timeout` has it
NOT_FOUND = 127
NOT_RELEASED = 3


class Launcher:
    """One start of a program: what was asked for, the child that runs now, and the signal that came last."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._child: int | None = None  # minus the pid if it leads a process group
        self._signal = 0

    def run(self) -> int:
        """Go through all steps; the exit code for the terminal."""
        for number in SURVIVED:
            signal.signal(number, self._pass_on)  # a handler: an ignored signal would be inherited by the program
        try:
            for name in RECORDS:
                self._reserve(name)
            self._write("launcher.json", {"pid": os.getpid()})
        except OSError as error:
            return self._give_up(f"{self._spec['run_directory']} can't be written to: {error.strerror}")
        if not self._wait_for_release():
            self._write("ended.json", {"how": "not released", "signal": self._signal or None, "at": _now()})
            return 128 + self._signal if self._signal else NOT_RELEASED
        code = self._set_up() if self._spec.get("setup") else 0
        if code:
            self._write("ended.json", {"how": "setup failed", "code": code, "at": _now()})
            return code
        return self._run_program()

    def _pass_on(self, number: int, frame: object) -> None:
        if number not in PASSED_ON:
            return
        self._signal = number
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._child, number)

    def _wait_for_release(self) -> bool:
        """Whether `go` came before the time was over, or before a request to end."""
        go = os.path.join(self._spec["run_directory"], "go")
        deadline = time.monotonic() + self._spec.get("release_seconds", 300.0)
        while not self._signal and not os.path.exists(go):
            if time.monotonic() > deadline:
                return False
            time.sleep(TICK)
        return not self._signal

    def _set_up(self) -> int:
        """Run the setup in a process group of its own; its exit code, 0 if the program may start."""
        words, began = self._spec["setup"], time.monotonic()
        _say(f"crewhall: setup: {' '.join(words)}")
        try:
            code = self._wait_for_setup(self._start(words, leads=True), began)
        except OSError as error:
            _say(f"crewhall: setup: {error.strerror}")
            code = NOT_FOUND
        _take_terminal()
        self._write("setup.json", {"code": code, "seconds": round(time.monotonic() - began, 3)})
        return code or (128 + self._signal if self._signal else 0)

    def _wait_for_setup(self, pid: int, began: float) -> int:
        deadline = began + self._spec.get("setup_seconds", 600.0)
        while (code := self._poll(pid)) is None:
            if time.monotonic() > deadline:
                _say(f"crewhall: setup: it took longer than {self._spec['setup_seconds']:g} s and was ended")
                self._end_group(pid)
                return LATE
            time.sleep(TICK)
        return code if code >= 0 else 128 - code

    def _end_group(self, pid: int) -> None:
        deadline = time.monotonic() + GRACE
        _signal_group(pid, signal.SIGTERM)
        _signal_group(pid, signal.SIGCONT)
        while self._poll(pid) is None and time.monotonic() < deadline:
            time.sleep(TICK)
        _signal_group(pid, signal.SIGKILL)
        while self._poll(pid) is None:
            time.sleep(TICK)

    def _poll(self, pid: int) -> int | None:
        """The exit code, minus the signal that ended it; None while it runs."""
        if self._child is None:
            return 0  # it has ended before
        found, status = os.waitpid(pid, os.WNOHANG)
        if not found:
            return None
        self._child = None
        return os.waitstatus_to_exitcode(status)

    def _run_program(self) -> int:
        """Start the program, wait for its end and record both; the exit code for the terminal."""
        try:
            pid = self._start(self._spec["argv"], leads=False)
        except OSError as error:
            return self._give_up(f"{self._spec['argv'][0]}: {error.strerror}")
        self._write("started.json", {"pid": pid, "started": _start_time(pid), "at": _now()})
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._child = None
        how, number = ("exit", None) if code >= 0 else ("signal", -code)
        record = {"how": how, "code": code if code >= 0 else None, "signal": number, "at": _now()}
        self._write("ended.json", record)
        return code if code >= 0 else 128 - code

    def _give_up(self, message: str) -> int:
        """Record that no program was started, as far as that can be; the exit code for the terminal."""
        _say(f"crewhall: {message}")
        with contextlib.suppress(OSError):
            self._write("ended.json", {"how": "not found", "code": NOT_FOUND, "message": message, "at": _now()})
        return NOT_FOUND

    def _start(self, words: list[str], *, leads: bool) -> int:
        """The pid of a new child once it is the wanted program. Raises OSError with the reason if it can't be.

        Signals wait meanwhile: each reaches a child that has no handler of ours any more.
        """
        told, tell = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*SURVIVED, signal.SIGTTOU))
        pid = os.fork()
        if pid == 0:
            self._become(words, tell, leads)
        self._child = -pid if leads else pid
        if leads:
            with contextlib.suppress(OSError):  # the child does the same, and may be further
                os.setpgid(pid, pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(tell)
        with os.fdopen(told, "r", errors="replace") as reason:
            problem = reason.read()
        if problem:
            os.waitpid(pid, 0)
            self._child = None
            raise OSError(0, problem)
        return pid

    def _become(self, words: list[str], tell: int, leads: bool) -> None:
        """In the child: become the program, or tell the parent why not."""
        try:
            if leads:
                os.setpgid(0, 0)
                _take_terminal()
            for number in RESTORED:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.chdir(self._spec["directory"])
            os.execvpe(words[0], words, self._environment())  # noqa: S606 - a program and no shell
        except BaseException as error:
            problem = str(error)
            if isinstance(error, OSError):  # of a program that is nowhere, it names the last place in PATH
                place = os.fsdecode(error.filename or "")
                is_program = os.path.basename(place) == os.path.basename(words[0])
                problem = f"{error.strerror}" if is_program else f"{error.strerror}: {place}"
            os.write(tell, problem.encode("utf-8", "replace")[:2000] or b"unknown")
        finally:
            os._exit(NOT_FOUND)

    def _environment(self) -> dict[str, str]:
        return {"TERM": os.environ.get("TERM", "dumb"), **self._spec["environment"]}

    def _reserve(self, name: str) -> None:
        """Remove an old record, and take the room for a new one: no disk that fills up later ends us over it."""
        path = os.path.join(self._spec["run_directory"], name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if name != "setup.json" or self._spec.get("setup"):
            self._fill(f"{path}.new", b" " * ROOM)

    def _write(self, name: str, record: dict[str, Any]) -> None:
        """Write a record whole or not at all."""
        path = os.path.join(self._spec["run_directory"], name)
        self._fill(f"{path}.new", json.dumps(record).encode())
        os.replace(f"{path}.new", path)

    def _fill(self, path: str, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            if os.write(descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)


def _take_terminal() -> None:
    """Bring our own process group to the foreground, if there is a terminal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))
    with contextlib.suppress(OSError):
        os.tcsetpgrp(0, os.getpgrp())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _start_time(pid: int) -> str | None:
    """What tells a child of ours from a later process with its pid: the boot, and the time since then."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        ticks = file.read().rpartition(b")")[2].split()[19].decode("ascii")
        return f"{_boot_id()}:{ticks}"
    return None


def _boot_id() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        os.write(1, f"{line}\n".encode("utf-8", "replace"))


def _now() -> int:
    return int(time.time() * 1000)


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as spec_file:
        wanted = json.load(spec_file)
    sys.exit(Launcher(wanted).run())
