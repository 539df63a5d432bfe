"""Other programs are run to their end, whatever they do."""

import os
import pty
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewhall.errors import Cancelled, Failure, InvalidInput, NotFound, TimedOut, Unavailable
from crewhall.outside.child_pipes import BoundedOutput
from crewhall.outside.run import Ended, run, run_long
from crewhall.stop import Stop
from tests.conftest import eventually
from tests.outside.descendants import marked_environment

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


def read_pid(path: Path) -> int:
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
    assert not is_running(read_pid(tmp_path / "shell"))
    eventually(lambda: not is_running(read_pid(tmp_path / "sleeper")))


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
    sleeper = read_pid(tmp_path / "sleeper")
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
    eventually(lambda: not is_running(read_pid(tmp_path / "sleeper")))


def test_one_that_left_the_group_does_not_hold_up_the_answer(tmp_path: Path) -> None:
    ended = sh("mkfifo gone; setsid sh -c 'echo $$ > away; : > gone; exec sleep 60' & : < gone; echo done", tmp_path)
    away = read_pid(tmp_path / "away")
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


def long(text: str, cwd: Path, seconds: float = 20, most_bytes: int = 100_000, **more: object) -> Ended:
    return run_long(["sh", "-c", text], cwd=str(cwd), seconds=seconds, most_bytes=most_bytes, **more)  # type: ignore[arg-type]


@given(pieces=st.lists(st.binary(max_size=40), max_size=12), most=st.integers(0, 99))
def test_of_too_much_the_middle_is_left_out(pieces: list[bytes], most: int) -> None:
    kept, whole = BoundedOutput(most), b"".join(pieces)
    for piece in pieces:
        kept.add(piece)
    text = whole if len(whole) <= most else whole[: most // 2] + whole[len(whole) - (most - most // 2) :]
    assert (kept.text(), kept.left_out, kept.total) == (text, len(whole) - len(text), len(whole))


def test_a_long_output_costs_no_memory(tmp_path: Path) -> None:
    kept, piece = BoundedOutput(1000), bytes(65_536)
    for _ in range(200):
        kept.add(piece)
        assert len(kept._head) + len(kept._tail) <= 3  # pieces
    kept.add(b"end")
    assert kept.text() == bytes(997) + b"end"


def test_both_streams_come_in_their_order_when_merged(tmp_path: Path) -> None:
    text = "echo a; echo b >&2; echo c; exit 3"
    assert long(text, tmp_path, merged=True) == Ended(3, b"a\nb\nc\n", b"")
    assert long(text, tmp_path) == Ended(3, b"a\nc\n", b"b\n")


def test_the_end_of_a_long_one_s_time_is_an_answer(tmp_path: Path) -> None:
    ended = long("echo begun; " + FAMILY, tmp_path, seconds=0.3)
    assert (ended.out, ended.is_late) == (b"begun\n", True)
    assert ended.code < 0 and ended.seconds > 0.3
    assert not is_running(read_pid(tmp_path / "shell")) and not is_running(read_pid(tmp_path / "sleeper"))


# Each leaves a sleeper, and ends at once.
LEAVING = {
    "in its group": "sleep 3600 &",
    "deaf to a hangup": "nohup sleep 3600 > /dev/null 2>&1 &",
    "in a session of its own": "setsid sleep 3600 &",
    "with its output closed": "setsid sleep 3600 > /dev/null 2>&1 < /dev/null &",
    "by a double fork": "(setsid sh -c 'sleep 3600 &' > /dev/null 2>&1 < /dev/null &)",
    "by many forks": """(setsid sh -c '(setsid sh -c "(setsid sleep 3600 &) &" &) &' &)""",
    "two of them": "setsid sleep 3600 & sleep 3600 > /dev/null &",
}


@pytest.mark.parametrize("leaving", LEAVING)
def test_what_a_long_one_leaves_behind_is_ended_wherever_it_went(tmp_path: Path, leaving: str) -> None:
    with marked_environment() as (env, alive):
        ended = long(LEAVING[leaving] + "\necho done", tmp_path, env=env)
        assert not alive()
    assert ended.out == b"done\n" and not ended.is_late
    assert ended.left_behind == 2 if leaving == "two of them" else ended.left_behind >= 1


def test_a_stray_may_clean_up_and_one_that_will_not_end_is_killed(tmp_path: Path) -> None:
    tidy = "setsid sh -c 'trap \"rm lock; exit\" TERM; touch lock; while :; do sleep 0.02; done' &"
    deaf = "trap '' TERM; setsid sh -c 'while :; do sleep 0.02; done' > /dev/null 2>&1 &"
    with marked_environment() as (env, alive):
        ended = long(f"{tidy}\n{deaf}\nwhile :; do sleep 0.02; done", tmp_path, seconds=0.5, env=env, grace=0.6)
        assert not alive()
    assert ended.is_late and ended.code == -signal.SIGKILL
    assert not (tmp_path / "lock").exists()


# It takes a while to end, and would notice a second request.
SLOW = "trap 'echo >> asked; sleep 0.1; echo >> done; exit' TERM; touch begun; while :; do sleep 0.02; done"


@pytest.mark.parametrize(
    "text", [SLOW, f'setsid sh -c "{SLOW}" > /dev/null 2>&1 &\nwhile [ ! -e begun ]; do sleep 0.01; done']
)
def test_who_is_asked_to_end_is_asked_once(tmp_path: Path, text: str) -> None:
    ended = long(text, tmp_path, seconds=0.4)
    assert ended.is_late == (text == SLOW)
    assert (tmp_path / "asked").read_text() == (tmp_path / "done").read_text() == "\n"


def test_a_cancel_ends_the_strays_too(tmp_path: Path) -> None:
    stop = Stop(60)
    with marked_environment() as (env, alive):
        with pytest.raises(Cancelled):
            long("setsid sleep 3600 & echo said; wait", tmp_path, env=env, stop=stop, heard=lambda *_: stop.cancel())
        assert not alive()


def test_who_listens_is_told_the_last_line_and_may_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crewhall.outside.run.NEWS", 0.1)
    told: list[tuple[int, str]] = []

    def hear(total: int, line: str) -> None:
        told.append((total, line))
        if len(told) == 2:
            raise Cancelled("enough", hint="")

    with pytest.raises(Cancelled, match="enough"):
        long("echo one; echo; while :; do sleep 0.02; printf 'two\\n\\n'; done", tmp_path, heard=hear)
    assert [line for _, line in told] in (["one", "two"], ["two", "two"])
    assert told[0][0] < told[1][0]
