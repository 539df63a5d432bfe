"""
Other programs, run to their end: no shell, no terminal, a limit of time and of output, and nothing left running.

    run(words, *, cwd, env=None, stdin=b"", seconds, most_bytes, stop=None, keep=(), called=None)
        -> Ended(code, out, err, left_out, …)       a quick helper such as git; its time being over is a failure
    run_long(words, *, cwd, env=None, stdin=b"", seconds, most_bytes, stop=None, keep=(), called=None, merged=False,
             heard=None, grace=GRACE, guarded=False)
        -> Ended(…, is_late, left_behind)           a program of strangers that may take long; that is an answer

A child leads a session and a process group of its own, so it can't ask for a password at a terminal. When its time is
over or its caller gives up, the group is asked to end (git then removes its lock files) and killed after some grace.
What a long one started outside its group is found by a mark and ended too (leftovers.py; on macOS the group alone).
Of a guarded one that happens also when its caller is killed with -9: a process beside it waits for that.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

from crewhall.errors import InvalidInput, NotFound, TimedOut, Unavailable
from crewhall.outside import leftovers
from crewhall.outside.child_pipes import ChildPipes
from crewhall.outside.leftovers import Leftovers, new_mark
from crewhall.stop import Stop

GRACE = 2.0  # seconds between the request to end and the kill
TICK = 0.05  # seconds between two looks at whether the caller has given up
HUNT = 0.5  # seconds after the kill, in which what was killed should be gone
LOOK = 0.005  # seconds between two looks for strays
MISSES = 8  # looks in a row that find no stray, but may have missed one
NEWS = 1.0  # seconds between two reports of what a child says
Heard = Callable[[int, str], None]  # is told the bytes so far and the last line


@dataclass(frozen=True)
class Ended:
    """A child's end: its exit code (minus the signal that ended it), what it wrote, how many bytes were left out.

    What is left out is from the exact middle of `out` or `err`. `is_late`: its time was over, and it was ended.
    `left_behind`: so many processes that it had started outlived it, and were ended.
    """

    code: int
    out: bytes
    err: bytes
    left_out: int = 0
    is_late: bool = False
    left_behind: int = 0
    seconds: float = field(default=0.0, compare=False)


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
    began = time.monotonic()
    if stop is not None:
        stop.check()
    with _start(words, cwd, env, name, keep=keep) as child:
        pipes = ChildPipes(child, stdin, most_bytes)
        try:
            if not _attend(pipes, began + seconds, stop):
                hint = "It was ended. Try again, or give it less."
                raise TimedOut(f"{name} took longer than {seconds:g} s", hint=hint)
        finally:
            _sweep(pipes)
        return _result(pipes, began)


def run_long(
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
    merged: bool = False,
    heard: Heard | None = None,
    grace: float = GRACE,
    guarded: bool = False,
) -> Ended:
    """Run a program until it ends or its time is over, and end whatever it has started, wherever that went.

    `merged`: `out` has both streams, in the order they came. `heard` is told about once a second what is new. Raises
    what `run` raises, but not TimedOut of its own, and what `heard` raises.
    """
    began, mark = time.monotonic(), new_mark()
    if stop is not None:
        stop.check()
    marking = {**(os.environ if env is None else env), mark: "1"}
    with (
        _guard(mark, grace) if guarded else nullcontext() as guard,
        _start(words, cwd, marking, called or words[0], keep=keep, merged=merged) as child,
    ):
        if guard is not None:
            _tell_group(guard, child.pid)
        pipes, left_behind = ChildPipes(child, stdin, most_bytes), 0
        try:
            is_in_time = _attend(pipes, began + seconds, stop, heard)
        finally:
            left_behind = _sweep(pipes, mark, grace)
        return _result(pipes, began, is_late=not is_in_time, left_behind=left_behind)


def _start(
    words: Sequence[str],
    cwd: str,
    env: Mapping[str, str] | None,
    name: str,
    *,
    keep: Sequence[int] = (),
    merged: bool = False,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
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


@contextmanager
def _guard(mark: str, grace: float) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends all that carries the mark, when this one ends within the block."""
    words = [sys.executable, "-I", "-S", leftovers.__file__, mark, str(grace)]
    with _start(words, "/", {}, "the guard of a child") as guard:
        try:
            yield guard
        finally:
            guard.kill()


def _tell_group(guard: subprocess.Popen[bytes], group: int) -> None:
    """Tell a guard the child's group; its input stays open for as long as this process lives."""
    assert guard.stdin is not None
    with suppress(BrokenPipeError):  # somebody has killed it
        guard.stdin.write(f"{group}\n".encode())


def _attend(pipes: ChildPipes, deadline: float, stop: Stop | None, heard: Heard | None = None) -> bool:
    """Be with the child until it has ended; False when its time was over first. Raises what `stop` and `heard` do."""
    told, tell_at = 0, 0.0
    while pipes.go_on(TICK) and pipes.child.poll() is None:
        now = time.monotonic()
        if stop is not None:
            stop.check()
        if now > deadline:
            return False
        if heard is not None and now > tell_at and pipes.total > told:
            told, tell_at = pipes.total, now + NEWS
            heard(told, pipes.out.last_line)
    return True


def _sweep(pipes: ChildPipes, mark: str | None = None, grace: float = GRACE) -> int:
    """Read the rest, and end what is left: asked first, killed `grace` seconds later. How many with the mark were left.

    Without a mark that is the child's group alone.
    """
    deadline, strays = time.monotonic() + grace, Leftovers(mark) if mark else None
    if pipes.child.poll() is None:
        _signal(pipes.child, signal.SIGTERM)
        if strays:
            strays.end(signal.SIGTERM, spared=pipes.child.pid)
        while pipes.child.poll() is None and pipes.go_on(TICK) and time.monotonic() < deadline:
            pass
    left_behind = _hunt(pipes, strays, deadline) if strays else 0
    is_left = _signal(pipes.child, signal.SIGTERM)
    while pipes.go_on(TICK) and time.monotonic() < deadline:
        pass
    if is_left:
        _signal(pipes.child, signal.SIGKILL)
    pipes.child.wait()
    pipes.close()
    return left_behind


def _hunt(pipes: ChildPipes, strays: Leftovers, deadline: float) -> int:
    """End what carries the mark, and what comes up meanwhile. How many there were, the child not counted."""
    met, misses = {pipes.child.pid}, 0
    while misses < MISSES and time.monotonic() < deadline + HUNT:
        is_late = time.monotonic() > deadline
        left, is_sure = strays.end(signal.SIGKILL if is_late else signal.SIGTERM)
        if not left and is_sure:
            break
        met |= left
        misses = 0 if left else misses + 1
        if not pipes.go_on(LOOK):
            time.sleep(LOOK)
    return len(met) - 1


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    """Send a signal to the child's group; False when nobody is in it."""
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):  # macOS says the latter when all who are left have ended
        return False
    return True


def _result(pipes: ChildPipes, began: float, *, is_late: bool = False, left_behind: int = 0) -> Ended:
    return Ended(
        pipes.child.returncode,
        pipes.out.text(),
        pipes.err.text(),
        pipes.out.left_out + pipes.err.left_out,
        is_late,
        left_behind,
        time.monotonic() - began,
    )
