"""Other programs are run to their end, whatever they do."""

import os
import pty
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from crewhall.app import Stop
from crewhall.errors import Cancelled, Failure, InvalidInput, NotFound, TimedOut, Unavailable
from crewhall.outside.run import Ended, run
from tests.conftest import eventually

# A shell that says where it is, and a sleeper in its group that would live on for an hour.
FAMILY = "echo $$ > shell; sleep 3600 & echo $! > sleeper; wait"
STUBBORN = "trap '' TERM; " + FAMILY


def sh(text: str, cwd: Path, seconds: float = 20, most_bytes: int = 100_000, **more: object) -> Ended:
    return run(["sh", "-c", text], cwd=str(cwd), seconds=seconds, most_bytes=most_bytes, **more)  # type: ignore[arg-type]


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def noted(path: Path) -> int:
    return int(eventually(lambda: path.exists() and path.read_text().strip()))


@pytest.mark.parametrize(
    ("text", "stdin", "ended"),
    [
        ("echo out; echo err >&2; exit 3", b"", Ended(3, b"out\n", b"err\n")),
        ("cat", b"x" * 99_999, Ended(0, b"x" * 99_999, b"")),
        ("cat", b"", Ended(0, b"", b"")),  # nothing to read is the end, not a wait
        ("exit 0", b"x" * 900_000, Ended(0, b"", b"")),  # it need not read what it is given
        ("kill -9 $$", b"", Ended(-9, b"", b"")),
        ("head -c 250000 /dev/zero", b"", Ended(0, bytes(100_000), b"", 150_000)),
    ],
)
def test_what_a_program_says_comes_back(tmp_path: Path, text: str, stdin: bytes, ended: Ended) -> None:
    assert sh(text, tmp_path, stdin=stdin) == ended


def test_a_program_has_no_terminal_to_ask_at(tmp_path: Path) -> None:
    inner = "import os, sys; from crewhall.outside.run import run; "
    inner += "sys.exit(run(['sh', '-c', 'echo < /dev/tty'], cwd='/', seconds=9, most_bytes=99).code)"
    pid, terminal = pty.fork()  # a process that has one itself
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", inner])
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) not in (0, 1)
    finally:
        os.close(terminal)


def test_words_are_words_and_not_a_shell_s(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import sys; print(sys.argv[1:])", "$HOME; ls", "a\nb", "--", "ü"]
    ended = run(words, cwd=str(tmp_path), env={"PYTHONUTF8": "1"}, seconds=20, most_bytes=1000)
    assert ended.out.decode() == "['$HOME; ls', 'a\\nb', '--', 'ü']\n"


@pytest.mark.parametrize(
    ("words", "cwd", "failure"),
    [
        (["no-such-program"], ".", Unavailable),
        (["true"], "no/such/directory", NotFound),
        (["echo", "a\0b"], ".", InvalidInput),
        (["echo", "\ud800"], ".", InvalidInput),
    ],
)
def test_what_can_t_be_started_is_refused(words: list[str], cwd: str, failure: type[Failure]) -> None:
    with pytest.raises(failure) as refused:
        run(words, cwd=cwd, seconds=20, most_bytes=1000)
    assert refused.value.hint


@pytest.mark.parametrize("text", [FAMILY, STUBBORN])
def test_at_the_end_of_its_time_the_whole_group_ends(tmp_path: Path, text: str) -> None:
    with pytest.raises(TimedOut, match=r"sh took longer than 0\.3 s"):
        sh(text, tmp_path, seconds=0.3)
    assert not is_running(noted(tmp_path / "shell"))
    eventually(lambda: not is_running(noted(tmp_path / "sleeper")))


def test_a_program_that_is_asked_to_end_may_clean_up(tmp_path: Path) -> None:
    with pytest.raises(TimedOut):
        sh("trap 'rm lock; exit' TERM; touch lock; while :; do sleep 0.05; done", tmp_path, seconds=0.5)
    assert not (tmp_path / "lock").exists()


def test_a_cancel_ends_it_at_once(tmp_path: Path) -> None:
    stop = Stop(60)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            sh(FAMILY, tmp_path, seconds=60, stop=stop)
        except Cancelled as failure:
            caught.append(failure)

    waiter = threading.Thread(target=wait)
    waiter.start()
    sleeper = noted(tmp_path / "sleeper")
    began = time.monotonic()
    stop.cancel()
    waiter.join(10)
    assert caught and time.monotonic() - began < 1.5
    eventually(lambda: not is_running(sleeper))


def test_a_call_that_is_over_starts_nothing(tmp_path: Path) -> None:
    stop = Stop(60)
    stop.cancel()
    with pytest.raises(Cancelled):
        sh("touch started", tmp_path, stop=stop)
    assert not (tmp_path / "started").exists()


def test_what_it_leaves_in_the_background_ends_with_it(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = sh("sleep 3600 & echo $! > sleeper; echo done", tmp_path)
    assert ended == Ended(0, b"done\n", b"")
    assert time.monotonic() - began < 1.5
    eventually(lambda: not is_running(noted(tmp_path / "sleeper")))


def test_one_that_left_the_group_does_not_hold_up_the_answer(tmp_path: Path) -> None:
    ended = sh("mkfifo gone; setsid sh -c 'echo $$ > away; : > gone; exec sleep 60' & : < gone; echo done", tmp_path)
    away = noted(tmp_path / "away")
    try:
        assert ended.out == b"done\n"
    finally:
        os.kill(away, signal.SIGKILL)


def test_file_descriptors_are_kept_by_the_child_alone_when_named(tmp_path: Path) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        question = f"test -e /proc/self/fd/{handle}"
        assert sh(question, tmp_path).code != 0
        assert sh(question, tmp_path, keep=[handle]).code == 0
    finally:
        os.close(handle)
