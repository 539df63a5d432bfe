"""A launcher in a real terminal starts a program and records how it ended."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.outside.launch_spec import LAUNCHER, LaunchSpec, launcher_words, write_spec
from crewhall.outside.processes import ProcessId, identify, marked_processes, trees
from crewhall.outside.tmux import Tmux
from tests.conftest import eventually
from tests.outside.written import written

SHOW = "import json, os, sys; json.dump([sys.argv, os.getcwd(), dict(os.environ)], open('shown', 'w'))"
# Says which signals it ignores, and whether it is in the foreground of its terminal.
STATE = """
import json, os, signal
ignored = [s.name for s in signal.Signals if s not in (9, 19) and signal.getsignal(s) == signal.SIG_IGN]
blocked = [s.name for s in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
json.dump([ignored, blocked, os.tcgetpgrp(0) == os.getpgrp(), os.isatty(1)], open("shown", "w"))
"""


class Terminal:
    """One start in a session `ada`: the run directory, and what the launcher wrote into it."""

    def __init__(self, tmux: Tmux, place: Path) -> None:
        self.tmux, self.place, self.run = tmux, place, place / "run"
        self.mark = f"TEST_{secrets.token_hex(6)}"
        self.run.mkdir()
        self.pid = 0

    def start(self, *argv: str, goes: bool = True, environment: dict[str, str] | None = None, **more: Any) -> None:
        given = {"PATH": os.environ["PATH"], self.mark: "1", **(environment or {})}
        more.setdefault("directory", str(self.place))
        spec = LaunchSpec(list(argv), given, run_directory=str(self.run), **more)
        write_spec(str(self.run / "spec.json"), spec)
        if goes:
            (self.run / "go").touch()
        self.pid = self.tmux.start("ada", launcher_words(str(self.run / "spec.json")), "/")

    def record(self, name: str) -> dict[str, Any]:
        path = self.run / f"{name}.json"
        found: dict[str, Any] = json.loads(eventually(lambda: written(path)))
        return found

    def ended(self) -> dict[str, Any]:
        """The record of the end, with a time that is now."""
        record = self.record("ended")
        assert abs(record.pop("at") - time.time() * 1000) < 20_000
        eventually(lambda: identify(self.pid) is None)
        return record

    def screen(self) -> str:
        return self.tmux.capture("ada", 50)

    def exit_code(self) -> int:
        """What tmux knows of the launcher's own end; it reaps a process when another one ends."""
        words = ["tmux", "-L", self.tmux.name, "run-shell", "true", ";", "display-message", "-p", "-t", "=ada:"]

        def status() -> bytes:
            asked = subprocess.run([*words, "#{pane_dead_status}"], capture_output=True, timeout=20, check=True)
            return asked.stdout.strip()

        return int(eventually(status))


@pytest.fixture
def terminal(tmux: Tmux, tmp_path: Path) -> Iterator[Terminal]:
    one = Terminal(tmux, tmp_path)
    yield one
    for left in marked_processes(one.mark, "1"):
        os.kill(left.process.pid, signal.SIGKILL)


def test_a_program_gets_exactly_what_the_spec_says(terminal: Terminal) -> None:
    words = ["x" * 60_000, "a\nb", 'it\'s "so"', "ü漢", "--", "-rf", "", ";", "$HOME"]
    terminal.start(sys.executable, "-c", SHOW, *words, environment={"WHO": "ada\nü"})
    assert terminal.ended() == {"how": "exit", "code": 0, "signal": None}
    argv, cwd, environment = json.loads((terminal.place / "shown").read_text())
    assert argv == ["-c", *words] and cwd == str(terminal.place)
    environment.pop("LC_CTYPE", None)  # Python sets it for itself
    expected = {"PATH": os.environ["PATH"], terminal.mark: "1", "WHO": "ada\nü", "TERM": "tmux-256color"}
    assert environment == expected


def test_the_steps_are_recorded_for_our_user_alone(terminal: Terminal) -> None:
    (terminal.run / "ended.json").write_text("old")
    (terminal.run / "setup.json").write_text("old")
    terminal.start("sh", "-c", "echo $$ > pid; read line; exit 7")
    assert terminal.record("launcher") == {"pid": terminal.pid}
    started = terminal.record("started")
    pid = started["pid"]
    assert identify(pid) == ProcessId(pid, started["started"])
    assert pid == int(eventually(lambda: written(terminal.place / "pid").strip()))
    assert not (terminal.run / "ended.json").exists() and not (terminal.run / "setup.json").exists()
    terminal.tmux.paste("ada", "")
    assert terminal.ended() == {"how": "exit", "code": 7, "signal": None} and terminal.exit_code() == 7
    modes = {path.name: path.stat().st_mode & 0o777 for path in terminal.run.iterdir() if path.name != "go"}
    assert modes == dict.fromkeys(("spec.json", "launcher.json", "started.json", "ended.json"), 0o600)


def test_nothing_starts_before_it_is_released(terminal: Terminal) -> None:
    terminal.start("true", goes=False)
    assert terminal.record("launcher") == {"pid": terminal.pid}
    assert not (terminal.run / "started.json").exists() and identify(terminal.pid)
    (terminal.run / "go").touch()
    assert terminal.ended()["how"] == "exit"


def test_a_launcher_that_is_not_released_gives_up(terminal: Terminal) -> None:
    terminal.start("touch", "ran", goes=False, release_seconds=0.1)
    assert terminal.ended() == {"how": "not released", "signal": None} and terminal.exit_code() == 3
    assert not (terminal.place / "ran").exists()


def test_a_launcher_that_waits_ends_when_it_is_told_to(terminal: Terminal) -> None:
    terminal.start("true", goes=False)
    terminal.record("launcher")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.ended() == {"how": "not released", "signal": 15} and terminal.exit_code() == 143


def test_the_setup_runs_first_in_the_same_terminal(terminal: Terminal) -> None:
    setup = ["sh", "-c", "read line; echo made $line in $PWD; echo $WHO > made"]
    terminal.start("cat", "made", setup=setup, environment={"WHO": "ada"})
    eventually(lambda: "crewhall: setup: sh -c read line" in terminal.screen())
    terminal.tmux.paste("ada", "it")
    assert terminal.ended() == {"how": "exit", "code": 0, "signal": None}
    assert "made it in" in terminal.screen() and terminal.screen().endswith("\nada")
    assert terminal.record("setup")["code"] == 0 and terminal.record("setup")["seconds"] > 0


def test_the_program_is_in_the_foreground_and_ignores_no_signal(terminal: Terminal) -> None:
    terminal.start(sys.executable, "-S", "-c", STATE, setup=["true"])
    terminal.ended()
    ignored, blocked, is_foreground, is_terminal = json.loads((terminal.place / "shown").read_text())
    assert set(ignored) <= {"SIGPIPE", "SIGXFSZ"}  # which this Python ignores by itself
    assert (blocked, is_foreground, is_terminal) == ([], True, True)


def test_a_broken_pipe_ends_the_program(terminal: Terminal) -> None:
    terminal.start("bash", "-c", "yes | head -n 1 > /dev/null; exit ${PIPESTATUS[0]}")
    assert terminal.ended()["code"] == 128 + signal.SIGPIPE


@pytest.mark.parametrize(
    ("setup", "code"), [(["sh", "-c", "exit 9"], 9), (["sh", "-c", "kill -9 $$"], 137), (["no-such-program"], 127)]
)
def test_after_a_failed_setup_nothing_starts(terminal: Terminal, setup: list[str], code: int) -> None:
    terminal.start("touch", "ran", setup=setup)
    assert terminal.ended() == {"how": "setup failed", "code": code} and terminal.exit_code() == code
    assert terminal.record("setup")["code"] == code
    assert not (terminal.place / "ran").exists() and not (terminal.run / "started.json").exists()


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_a_setup_that_takes_too_long_is_ended_with_its_group(terminal: Terminal, trap: str) -> None:
    terminal.start("touch", "ran", setup=["sh", "-c", f"{trap}sleep 3600 & sleep 3600"], setup_seconds=0.3)
    assert terminal.ended() == {"how": "setup failed", "code": 124}
    assert "longer than 0.3 s" in terminal.screen() and not (terminal.place / "ran").exists()
    eventually(lambda: marked_processes(terminal.mark, "1") == [])


def test_a_signal_during_the_setup_reaches_it_and_nothing_starts(terminal: Terminal) -> None:
    terminal.start("touch", "ran", setup=["sh", "-c", "trap 'exit 0' TERM; touch up; while :; do sleep 0.02; done"])
    eventually((terminal.place / "up").exists)
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.ended() == {"how": "setup failed", "code": 143} and terminal.record("setup")["code"] == 0
    assert not (terminal.place / "ran").exists()


@pytest.mark.parametrize(
    ("argv", "more", "reason"),
    [
        (["no-such-program"], {}, "No such file"),
        (["/etc/passwd"], {}, "Permission denied"),
        (["true"], {"directory": "/no/such/place"}, "/no/such/place"),
        (["echo", "x" * 200_000], {}, "too long"),
        (["a\0b"], {}, "null"),
    ],
)
def test_a_program_that_cannot_start_is_recorded_with_the_reason(
    terminal: Terminal, argv: list[str], more: dict[str, Any], reason: str
) -> None:
    terminal.start(*argv, **more)
    ended = terminal.ended()
    assert reason in ended.pop("message") and ended == {"how": "not found", "code": 127}
    assert reason in terminal.screen().replace("\n", "") and not (terminal.run / "started.json").exists()


def test_a_killed_program_is_recorded_as_such(terminal: Terminal) -> None:
    terminal.start("sleep", "3600")
    os.kill(terminal.record("started")["pid"], signal.SIGKILL)
    assert terminal.ended() == {"how": "signal", "code": None, "signal": 9} and terminal.exit_code() == 137


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_is_passed_on(terminal: Terminal, number: signal.Signals) -> None:
    terminal.start("sleep", "3600")
    terminal.record("started")
    os.kill(terminal.pid, number)
    assert terminal.ended() == {"how": "signal", "code": None, "signal": int(number)}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_the_launcher_survives_what_a_person_types(terminal: Terminal, number: signal.Signals) -> None:
    terminal.start("sh", "-c", "trap 'echo caught; exit 5' INT QUIT; touch up; while :; do sleep 0.02; done")
    eventually((terminal.place / "up").exists)
    os.kill(terminal.pid, number)  # alone: no program, no end
    key = "C-c" if number == signal.SIGINT else "C-\\"
    subprocess.run(["tmux", "-L", terminal.tmux.name, "send-keys", "-t", "=ada:", key], check=True, timeout=20)
    assert terminal.ended() == {"how": "exit", "code": 5, "signal": None} and "caught" in terminal.screen()


def test_a_killed_session_leaves_a_record_and_no_process(terminal: Terminal) -> None:
    terminal.start("sh", "-c", "sleep 3600 & sleep 3600")
    terminal.record("started")
    eventually(lambda: len(marked_processes(terminal.mark, "1")) == 3)
    assert terminal.tmux.kill("ada")
    assert terminal.ended() == {"how": "signal", "code": None, "signal": 1}
    eventually(lambda: marked_processes(terminal.mark, "1") == [])


def test_a_secret_of_the_environment_is_in_no_command_line(terminal: Terminal) -> None:
    terminal.start("sh", "-c", "sleep 3600 & wait", environment={"HALL_TOKEN": "s3cret-token"})
    terminal.record("started")
    root = identify(terminal.pid)
    assert root
    eventually(lambda: len(trees([root])[root]) == 3)
    shown = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert LAUNCHER in shown and "s3cret-token" not in shown


def test_a_launcher_imports_nothing_of_ours_and_little_else() -> None:
    script = f"import sys; sys.argv = ['x']; sys.path.insert(0, {os.path.dirname(LAUNCHER)!r}); import launcher; "
    words = [sys.executable, "-I", "-S", "-c", script + "print(*sys.modules)"]
    modules = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert not {"crewhall", "site", "subprocess", "pathlib", "asyncio", "logging"} & set(modules)


def test_a_spec_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    write_spec(str(path), LaunchSpec(["one"], {}, "/", "/"))
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_spec(str(path), LaunchSpec([object()], {}, "/", "/"))  # type: ignore[list-item]
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600
