"""Terminals on the hall's own tmux server, with a real tmux."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crewhall.errors import Conflict, InvalidState, NotFound, TimedOut, Unavailable
from crewhall.outside.tmux import LISTED, Tmux
from tests.conftest import eventually
from tests.outside.written import written

SLEEPER = ["sleep", "3600"]
# Writes its words, its directory and its variables into a file.
SHOW = "import json, os, sys; json.dump([sys.argv[1:], os.getcwd(), dict(os.environ)], open(sys.argv[1], 'w'))"
# A program that reads its terminal as agents do: raw, with bracketed paste.
RAW = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"\\x1b[?2004hready")
with open(sys.argv[1], "ab", 0) as file:
    while piece := os.read(0, 65536):
        file.write(piece)
"""


def show(tmux: Tmux, path: Path, cwd: Path, *words: str) -> list[object]:
    """What a program in a new session gets: its words, its directory, its variables."""
    tmux.start("shown", [sys.executable, "-c", SHOW, str(path), *words], str(cwd))
    eventually(lambda: tmux.panes()["shown"].is_dead)
    found: list[object] = json.loads(path.read_text())
    return found


def test_a_program_runs_in_its_session_until_it_is_killed(tmux: Tmux) -> None:
    assert tmux.panes() == {} and not tmux.kill("ada")
    pid = tmux.start("ada", SLEEPER, "/")
    pane = tmux.panes()["ada"]
    assert (pane.session, pane.pid, pane.is_dead) == ("ada", pid, False)
    assert Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x003600\x00"
    assert tmux.kill("ada") and not tmux.kill("ada")
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    assert tmux.panes() == {}


def test_a_name_means_one_session_and_none_that_begins_like_it(tmux: Tmux) -> None:
    tmux.start("ada-2", SLEEPER, "/")
    assert not tmux.kill("ada")
    with pytest.raises(NotFound, match="no session ada"):
        tmux.capture("ada", 10)
    with pytest.raises(NotFound):
        tmux.paste("ada", "hello")
    assert list(tmux.panes()) == ["ada-2"] and b"crewhall" not in raw(tmux, "list-buffers")


def raw(tmux: Tmux, *words: str) -> bytes:
    return subprocess.run(["tmux", "-L", tmux.name, *words], capture_output=True, timeout=20, check=True).stdout


def server_pid(tmux: Tmux) -> int:
    return int(raw(tmux, "display-message", "-p", "#{pid}"))


def test_a_second_session_of_the_same_name_is_refused(tmux: Tmux) -> None:
    pid = tmux.start("ada", SLEEPER, "/")
    with pytest.raises(Conflict, match="ada"):
        tmux.start("ada", SLEEPER, "/")
    assert tmux.panes()["ada"].pid == pid


def test_words_directory_and_environment_arrive_as_they_are(
    tmux: Tmux, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "s3cret")
    monkeypatch.setenv("TMUX", "/elsewhere,1,0")
    odd = tmp_path / "a #{pid} ##[b] #S 'c' %Y;"
    odd.mkdir()
    words = ("two words", "it's", "-x", ";", "end;", "back\\;", "#{pid}", "ü", "", "$HOME", "a\nb")
    found, cwd, environment = show(tmux, tmp_path / "shown", odd, *words)
    assert found == [str(tmp_path / "shown"), *words] and cwd == str(odd)
    assert isinstance(environment, dict) and environment["TERM"] == "tmux-256color"
    assert "s3cret" not in environment.values() and tmux.name in environment["TMUX"]
    assert b"/elsewhere" not in Path(f"/proc/{server_pid(tmux)}/environ").read_bytes()


def test_a_hub_with_another_directory_for_sockets_finds_the_same_server(
    tmux: Tmux, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmux.start("ada", SLEEPER, "/")
    assert tmux.attach_words("ada") == ("tmux", "-L", tmux.name, "attach-session", "-t", "=ada")
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    assert tmux.panes()["ada"].pid == pid and list(tmp_path.iterdir()) == []
    assert tmux.attach_words("ada")[:4] == ("env", "-u", "TMUX_TMPDIR", "tmux")


def test_a_single_word_is_a_program_and_no_shell_command(tmux: Tmux, tmp_path: Path) -> None:
    program = tmp_path / "my $program; true"
    program.write_text("#!/bin/sh\necho it ran\nread line\n")
    program.chmod(0o755)
    tmux.start("ada", [str(program)], "/")
    eventually(lambda: tmux.capture("ada", 10) == "it ran")


def test_without_tmux_the_failure_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="tmux") as caught:
        Tmux("none").start("ada", SLEEPER, "/")
    assert "Install tmux" in caught.value.hint


def test_what_tmux_refuses_is_told_in_its_words(tmux: Tmux) -> None:
    with pytest.raises(InvalidState, match="too long"):
        tmux.start("ada", ["echo", "x" * 40_000], "/")


def test_a_server_that_hangs_is_a_timeout(tmux: Tmux) -> None:
    tmux.start("ada", SLEEPER, "/")
    server = server_pid(tmux)
    os.kill(server, signal.SIGSTOP)
    try:
        with pytest.raises(TimedOut, match=r"0\.5 s"):
            Tmux(tmux.name, seconds=0.5).panes()
    finally:
        os.kill(server, signal.SIGCONT)
    assert "ada" in tmux.panes()


def test_a_persons_own_sessions_and_settings_stay_out_of_it(
    tmux: Tmux, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".tmux.conf").write_text("set -g remain-on-exit off\nset -g history-limit 5\n")
    person = Tmux("default")
    subprocess.run(["tmux", "new-session", "-d", "-s", "ada", "sleep 3600"], check=True, timeout=20)
    try:
        theirs = person.panes()["ada"]
        ours = tmux.start("ada", ["echo", "bye"], "/")
        eventually(lambda: tmux.panes()["ada"].is_dead)
        assert raw(tmux, "show-options", "-gv", "history-limit") == b"20000\n"
        assert theirs.pid != ours and tmux.kill("ada") and person.panes() == {"ada": theirs}
    finally:
        subprocess.run(["tmux", "kill-server"], check=True, timeout=20)


def test_twenty_sessions_start_at_once(tmux: Tmux) -> None:
    with ThreadPoolExecutor(20) as threads:
        pids = list(threads.map(lambda number: tmux.start(f"a{number}", SLEEPER, "/"), range(20)))
    panes = tmux.panes()
    assert [panes[f"a{number}"].pid for number in range(20)] == pids


def test_a_start_whose_server_ends_meanwhile_is_tried_again(tmux: Tmux) -> None:
    tmux.start("old", SLEEPER, "/")
    server = server_pid(tmux)
    os.kill(server, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(tmux.start, "new", SLEEPER, "/")
        eventually(lambda: is_connected("new", tmux))
        os.kill(server, signal.SIGKILL)
        pid = starting.result(20)
    assert {name: pane.pid for name, pane in tmux.panes().items()} == {"new": pid}


def is_connected(session: str, tmux: Tmux) -> bool:
    """Whether a tmux command that names the session has a socket, which is its connection to the server."""
    wanted = {session.encode(), tmux.name.encode(), b"new-session"}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted <= set((process / "cmdline").read_bytes().split(b"\0")):
                return any(os.readlink(link).startswith("socket:") for link in (process / "fd").iterdir())
    return False


def test_a_start_succeeds_while_the_last_session_ends(tmux: Tmux) -> None:
    for number in range(25):
        tmux.start(f"old{number}", SLEEPER, "/")
        ending = threading.Thread(target=tmux.kill, args=(f"old{number}",))
        ending.start()
        tmux.start(f"new{number}", SLEEPER, "/")
        ending.join()
        assert list(tmux.panes()) == [f"new{number}"] and tmux.kill(f"new{number}")


def test_the_last_screen_of_a_dead_program_can_be_read(tmux: Tmux) -> None:
    tmux.start("ada", ["sh", "-c", "stty -echo; seq 1 500; echo '  ünd  Schluß'; echo; read line; exit 3"], "/")
    eventually(lambda: "Schluß" in tmux.capture("ada", 10))
    tmux.paste("ada", "")
    eventually(lambda: tmux.panes()["ada"].is_dead)
    assert tmux.capture("ada", 3) == "499\n500\n  ünd  Schluß"
    assert tmux.capture("ada", 10_000).splitlines()[:2] == ["1", "2"]


def test_no_title_of_a_program_stands_in_the_list(tmux: Tmux, tmp_path: Path) -> None:
    """A title is a text of the program's, hundreds of kilobytes long, with what Python takes for the end of a line."""
    forged = "9 0 %0 9 bob"
    (tmp_path / "title").write_text(f"\x1b]2;{'x' * 300_000}\u2028{forged}\x07\x1b]2;{forged}\x07ready")
    tmux.start("ada", ["sh", "-c", f"cat {tmp_path}/title; sleep 3600"], "/")
    eventually(lambda: "ready" in tmux.capture("ada", 5))
    for end in ("\n", "\u2028", "\x85", "\r"):
        assert list(tmux.panes()) == ["ada"] and forged.encode() not in raw(tmux, "list-panes", "-aF", LISTED)
        raw(tmux, "select-pane", "-t", "=ada:", "-T", f"it{end}{forged}")


def test_a_persons_split_is_neither_read_nor_typed_into(tmux: Tmux, tmp_path: Path) -> None:
    pid = tmux.start("ada", [sys.executable, "-c", RAW, str(tmp_path / "read")], "/")
    eventually(lambda: "ready" in tmux.capture("ada", 5))
    tmux.start("bob", SLEEPER, "/")
    for way in ("split-window", "new-window"):  # which is the active one then
        raw(tmux, way, "-t", "=ada:", f"echo secret; exec cat > {tmp_path}/shell")
    eventually(lambda: b"secret" in raw(tmux, "capture-pane", "-p", "-t", "=ada:"))
    raw(tmux, "join-pane", "-s", "=bob:", "-t", "=ada:")
    for given in (pid, None):
        tmux.paste("ada", "touch it", given)
        assert "ready" in tmux.capture("ada", 20, given) and "secret" not in tmux.capture("ada", 20, given)
    eventually(lambda: written(tmp_path / "read").count("touch it") == 2)
    assert written(tmp_path / "shell") == ""
    with pytest.raises(NotFound, match="no pane of process 1"):
        tmux.paste("ada", "touch it", 1)


def test_a_long_paste_arrives_whole_and_is_entered(tmux: Tmux, tmp_path: Path) -> None:
    lines = [f"-{number} 'single' \"double\" $HOME `id` \\ ü 漢 #{{pid}} ;" for number in range(450)]
    text = "\n".join(lines)
    assert len(text.encode()) > 20_000
    tmux.start("ada", [sys.executable, "-c", RAW, str(tmp_path / "read")], "/")
    eventually(lambda: "ready" in tmux.capture("ada", 5))
    tmux.paste("ada", text)
    whole = b"\x1b[200~" + text.encode() + b"\x1b[201~\r"
    eventually(lambda: written(tmp_path / "read").endswith("\r"))
    assert (tmp_path / "read").read_bytes() == whole and raw(tmux, "list-buffers") == b""


def test_a_program_without_bracketed_paste_gets_plain_lines(tmux: Tmux, tmp_path: Path) -> None:
    tmux.start("ada", ["sh", "-c", 'exec cat > "$0"', str(tmp_path / "read")], "/")
    tmux.paste("ada", "-first\nsecond ü")
    eventually(lambda: written(tmp_path / "read") == "-first\nsecond ü\n")


def test_a_text_can_press_no_keys(tmux: Tmux, tmp_path: Path) -> None:
    tmux.start("ada", [sys.executable, "-c", RAW, str(tmp_path / "read")], "/")
    eventually(lambda: "ready" in tmux.capture("ada", 5))
    tmux.paste("ada", "a\x1b[201~\r\x03b\x9b\tc\0")
    eventually(lambda: written(tmp_path / "read") == "\x1b[200~a[201~b\tc\x1b[201~\r")


def test_enter_reaches_the_program_while_a_person_reads_back(tmux: Tmux, tmp_path: Path) -> None:
    tmux.start("ada", ["sh", "-c", 'exec cat > "$0"', str(tmp_path / "read")], "/")
    raw(tmux, "copy-mode", "-t", "=ada:")
    tmux.paste("ada", "hello")
    eventually(lambda: written(tmp_path / "read") == "hello\n")


def test_a_stream_has_all_that_is_written_until_it_is_stopped(tmux: Tmux, tmp_path: Path) -> None:
    path = tmp_path / "it's #S ##[x] 100%Y $(id);"
    tmux.start("ada", ["sh", "-c", "stty -echo; echo ready; exec cat"], "/")
    eventually(lambda: "ready" in tmux.capture("ada", 5))
    tmux.stream("ada", str(path))
    tmux.paste("ada", "one\x0b")
    eventually(lambda: path.read_bytes() == b"one\r\n")
    assert path.stat().st_mode & 0o777 == 0o600
    tmux.stop_stream("ada")
    tmux.paste("ada", "two")
    eventually(lambda: "two" in tmux.capture("ada", 5))
    assert path.read_bytes() == b"one\r\n"
    with pytest.raises(NotFound):
        tmux.stream("bob", str(path))


def test_a_person_attaches_with_the_words_given(tmux: Tmux) -> None:
    tmux.start("ada", SLEEPER, "/")
    words = ["script", "-qec", " ".join(tmux.attach_words("ada")), "/dev/null"]
    environment = {**os.environ, "TERM": "xterm-256color"}
    person = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
    try:
        eventually(lambda: raw(tmux, "list-clients", "-F", "#{client_session}") == b"ada\n")
    finally:
        tmux.kill("ada")
        person.communicate(timeout=20)
