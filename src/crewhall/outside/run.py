"""
Other programs, run to their end: no shell, no terminal, a limit of time and of output, and nothing left running.

    run(words, *, cwd, env=None, stdin=b"", seconds, most_bytes, stop=None, keep=(), called=None)
        -> Ended(code, out, err, left_out)

A child leads a session and a process group of its own, so it can't ask for a password at a terminal. When its time is
over or its caller gives up, the group is asked to end (git then removes its lock files) and killed GRACE seconds later.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from crewhall.errors import InvalidInput, NotFound, TimedOut, Unavailable

GRACE = 2.0  # seconds between the request to end and the kill
TICK = 0.05  # seconds between two looks at whether the caller has given up
CHUNK = 65_536


class Stop(Protocol):
    """Whether the caller still wants the result; both raise a Failure when not."""

    def check(self) -> None: ...
    def wait(self, seconds: float, /) -> None: ...


@dataclass(frozen=True)
class Ended:
    """A child's end: its exit code (minus the signal that ended it), what it wrote, how many bytes were left out."""

    code: int
    out: bytes
    err: bytes
    left_out: int = 0


def run(
    words: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    seconds: float,
    most_bytes: int,
    stop: Stop | None = None,
    keep: Sequence[int] = (),
    called: str | None = None,
) -> Ended:
    """Run a program until it ends; `out` and `err` have at most `most_bytes` each, the rest is read and dropped.

    `keep` are file descriptors that the child holds too; `called` is its name in messages. What it started in its
    group ends with it. Raises Unavailable when the program is not there, NotFound for the directory, TimedOut, or what
    `stop` raises.
    """
    name = called or words[0]
    if stop is not None:
        stop.check()
    with _started(words, cwd, env, keep, name) as child:
        talk = _Talk(child, stdin, most_bytes)
        try:
            _attend(talk, name, time.monotonic() + seconds, seconds, stop)
        finally:
            _sweep(talk)
        return Ended(child.returncode, bytes(talk.out), bytes(talk.err), talk.left_out)


def _started(
    words: Sequence[str], cwd: str, env: Mapping[str, str] | None, keep: Sequence[int], name: str
) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            words,
            cwd=cwd,
            env=env,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            pass_fds=keep,
            start_new_session=True,
        )
    except ValueError as error:  # a NUL byte, or half a character
        raise InvalidInput(f"{name}: a word can't be given to a program: {error}", hint="Use plain text.") from None
    except OSError as error:
        if not os.path.isdir(cwd):
            raise NotFound(f"there is no directory {cwd}", hint="Check the path.") from None
        raise Unavailable(
            f"{words[0]} can't be started: {error.strerror}", hint=f"Install {words[0]}, and see that it is in PATH."
        ) from None


class _Talk:
    """A child's three pipes: what is still to be written, and what was read."""

    def __init__(self, child: subprocess.Popen[bytes], stdin: bytes, most: int) -> None:
        self.child, self.most = child, most
        self.out, self.err, self.left_out = bytearray(), bytearray(), 0
        self._rest = memoryview(stdin)
        self._open = selectors.DefaultSelector()
        assert child.stdin and child.stdout and child.stderr
        self._watch(child.stdout, selectors.EVENT_READ, self.out)
        self._watch(child.stderr, selectors.EVENT_READ, self.err)
        if stdin:
            self._watch(child.stdin, selectors.EVENT_WRITE, None)
        else:
            child.stdin.close()

    def _watch(self, pipe: IO[bytes], event: int, into: bytearray | None) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._open.register(pipe, event, into)

    def go_on(self, seconds: float) -> bool:
        """Move what can be moved, waiting so long at most. False once the child ended and its pipes are closed."""
        if not self._open.get_map():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(seconds)
            return self.child.poll() is None
        for key, _ in self._open.select(seconds):
            self._read(key.fileobj, key.data) if key.data is not None else self._write(key.fileobj)  # type: ignore[arg-type]
        return True

    def _read(self, pipe: IO[bytes], into: bytearray) -> None:
        piece = os.read(pipe.fileno(), CHUNK)
        if not piece:
            self._close(pipe)
        fits = piece[: self.most - len(into)]
        into += fits
        self.left_out += len(piece) - len(fits)

    def _write(self, pipe: IO[bytes]) -> None:
        try:
            self._rest = self._rest[os.write(pipe.fileno(), self._rest[:CHUNK]) :]
        except BrokenPipeError:  # it does not want the rest
            self._rest = self._rest[:0]
        if not self._rest:
            self._close(pipe)

    def _close(self, pipe: IO[bytes]) -> None:
        self._open.unregister(pipe)
        pipe.close()

    def close(self) -> None:
        """Let go of the pipes, whoever may still hold the other ends."""
        for key in list(self._open.get_map().values()):
            self._close(key.fileobj)  # type: ignore[arg-type]
        self._open.close()


def _attend(talk: _Talk, name: str, deadline: float, seconds: float, stop: Stop | None) -> None:
    """Be with the child until it has ended. Raises TimedOut, or what `stop` raises."""
    while talk.go_on(TICK) and talk.child.poll() is None:
        if stop is not None:
            stop.check()
        if time.monotonic() > deadline:
            raise TimedOut(f"{name} took longer than {seconds:g} s", hint="It was ended. Try again, or give it less.")


def _sweep(talk: _Talk) -> None:
    """Read the rest, and end what is left of the group: asked first, killed GRACE seconds later."""
    deadline = time.monotonic() + GRACE
    is_left = _signal(talk.child, signal.SIGTERM)
    while talk.go_on(TICK) and time.monotonic() < deadline:
        pass
    if is_left:
        _signal(talk.child, signal.SIGKILL)
    talk.child.wait()
    talk.close()


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    """Send a signal to the child's group; False when nobody is in it."""
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):  # macOS says the latter when all who are left have ended
        return False
    return True
