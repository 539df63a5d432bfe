"""
Terminals that outlive a hub: sessions on a tmux server of the hall's own, with one program in each.

    tmux = Tmux("crewhall-1a2b")
    tmux.start("ada", ["claude", "--", "Hello"], "/repo") -> pid
    tmux.panes() -> {"ada": Pane("ada", pid, False, 1800000000000)}
    tmux.capture("ada", 200) -> text        tmux.paste("ada", "Go on.")
    tmux.stream("ada", "/run/ada.log")      tmux.stop_stream("ada")         tmux.kill("ada") -> True

The server is known by its name (`tmux -L NAME`) and reads tmux.conf beside this file, so a person's own server,
settings and variables play no part: hubs that are started in different environments find the same server. A dead pane
stays, with its last screen, until it is killed. Names of sessions are the caller's duty: letters, digits, `_` and `-`
only, because tmux changes `.` and `:` and reads other characters as patterns.

A person who attaches may split a window, or join a pane of another session to it. Text is pasted into the pane whose
first process has the given pid, and its screen is read: never the person's shell. Without a pid the oldest pane counts.
"""

import os
import re
import secrets
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crewhall.errors import Conflict, Failure, InvalidState, NotFound
from crewhall.outside.environment import program_environment
from crewhall.outside.run import Ended, run

CONFIG = str(Path(__file__).with_name("tmux.conf"))
COLUMNS, ROWS = 110, 36
MOST_BYTES = 16 * 1024 * 1024  # a full history of wide characters
BEFORE_ENTER = 0.15  # seconds; Gemini CLI loses an Enter that comes sooner than 0.06 s after a paste
TRIES = 10  # of a start, while another session's end takes the server with it
PAUSE = 0.05  # seconds between two of them
PERSONS = ("TMUX", "TMUX_PANE", "TMUX_TMPDIR")  # variables that lead to a person's own server
NO_SERVER = re.compile("no server running|error connecting|lost server|server exited")
NO_SESSION = re.compile("can't find (session|window|pane)|no current (session|target)|session not found")
# With an escape in it, a text could end its own paste and press keys.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LISTED = "#{pane_pid} #{pane_dead} #{pane_id} #{window_activity} #{session_name}"  # no text of a program's


@dataclass(frozen=True)
class Pane:
    """The first pane of a session. The pid of a dead one may have been reused.

    `changed_at` is when something was last written to the session's window, in UTC milliseconds, to the second.
    """

    session: str
    pid: int
    is_dead: bool
    changed_at: int


@dataclass(frozen=True)
class Tmux:
    """A tmux server by name; each call to it takes `seconds` at most.

    Every method raises Unavailable when tmux is not installed, TimedOut when the server does not answer, and
    InvalidState with tmux's own words for anything else that it refuses.
    """

    name: str
    seconds: float = 10.0

    def start(self, session: str, words: Sequence[str], cwd: str) -> int:
        """Start a program in a new session and return its pid; its server starts with the first one.

        Raises Conflict when there is a session of that name. tmux refuses more than about 16 kB of words.
        """
        size = ("-x", str(COLUMNS), "-y", str(ROWS))
        shown = ("-d", "-P", "-F", "#{pane_pid}")
        call = ("new-session", *shown, "-s", session, *size, "-c", _literal(cwd), "--", *_program(words))
        ended = self._start_or_retry(call)
        if b"duplicate session" in ended.err:
            raise Conflict(f"tmux has a session {session} already", hint="Kill it, or use another name.")
        return int(_check(ended, session).split()[0])

    def _start_or_retry(self, call: Sequence[str]) -> Ended:
        """Killing the last session ends the server, and a start in that moment fails."""
        for _ in range(TRIES - 1):
            ended = self._run(*call)
            if ended.code == 0 or not NO_SERVER.search(_message(ended)):
                return ended
            time.sleep(PAUSE)
        return self._run(*call)

    def panes(self) -> dict[str, Pane]:
        """The first pane of each session, by the session's name; empty when no server runs."""
        ended = self._run("list-panes", "-a", "-F", LISTED)
        if _is_missing(ended):  # a server that is ending has no session either
            return {}
        found: dict[str, tuple[int, Pane]] = {}
        for line in filter(None, _check(ended, "").split("\n")):
            number, pane = _read_pane(line)
            found[pane.session] = min((number, pane), found.get(pane.session, (number, pane)), key=lambda one: one[0])
        return {session: pane for session, (_, pane) in found.items()}

    def origin(self, session: str) -> tuple[int, str] | None:
        """When a session was made, in UTC milliseconds, and the command it was made with; None when there is none."""
        asked = "#{session_name}:#{session_created} #{pane_start_command}"
        ended = self._run("list-panes", "-s", "-t", _target(session), "-F", asked)
        if _is_missing(ended):
            return None
        first = _check(ended, session).split("\n", 1)[0].partition(":")[2]
        created, _, command = first.partition(" ")
        return int(created) * 1000, command

    def kill(self, session: str) -> bool:
        """End a session; its program gets SIGHUP and may outlive it. False when there is no such session."""
        ended = self._run("kill-session", "-t", _target(session))
        if _is_missing(ended):
            return False
        _check(ended, session)
        return True

    def capture(self, session: str, lines: int, pid: int | None = None) -> str:
        """The last lines of the screen and its history, without blank ones at the end; also of a dead pane.

        A busy tmux 3.3 may show nothing of a program that ended within milliseconds of its start.
        Raises NotFound when there is no such session.
        """
        ended = self._run("capture-pane", "-p", "-S", f"-{lines}", "-t", self._pane(session, pid))
        shown = [line.rstrip() for line in _check(ended, session).rstrip().split("\n")]
        return "\n".join(shown[-lines:])

    def paste(self, session: str, text: str, pid: int | None = None) -> None:
        """Type a text as one paste, then press Enter. Control characters but newline and tab are left out.

        A person's copy mode is ended first, since it would take the Enter. Raises NotFound if there is no such session.
        """
        buffer, target = f"crewhall-{secrets.token_hex(8)}", self._pane(session, pid)
        data = CONTROL.sub("", text).encode("utf-8", "replace")
        if data:
            _check(self._run("load-buffer", "-b", buffer, "-", stdin=data), session)
            self._paste_buffer(buffer, session, target)
            time.sleep(BEFORE_ENTER)
        _check(self._run("copy-mode", "-q", "-t", target, ";", "send-keys", "-t", target, "Enter"), session)

    def _pane(self, session: str, pid: int | None) -> str:
        """The id of a session's pane with this first process. Raises NotFound."""
        ended = self._run("list-panes", "-s", "-t", _target(session), "-F", "#{pane_id} #{pane_pid}")
        lines = [line.split(" ") for line in filter(None, _check(ended, session).split("\n"))]
        found = [int(number.removeprefix("%")) for number, first in lines if pid is None or int(first) == pid]
        if not found:
            raise NotFound(f"tmux has no pane of process {pid} in {session}", hint="A person has closed or moved it.")
        return f"%{min(found)}"

    def _paste_buffer(self, buffer: str, session: str, target: str) -> None:
        try:
            _check(self._run("paste-buffer", "-p", "-r", "-d", "-b", buffer, "-t", target), session)
        except Failure:
            self._run("delete-buffer", "-b", buffer)
            raise

    def stream(self, session: str, path: str) -> None:
        """Append all that the program writes from now on to a file of mode 0600, escape sequences included.

        A stream to another file ends. Raises NotFound when there is no such session.
        """
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        command = f"exec cat >> {shlex.quote(os.path.abspath(path))}"
        literal = _literal(command).replace("%", "%%")  # tmux puts the date in as well
        _check(self._run("pipe-pane", "-O", "-t", self._pane(session, None), literal), session)

    def stop_stream(self, session: str) -> None:
        """Stop what `stream` started; nothing happens when there is none. Raises NotFound for the session."""
        _check(self._run("pipe-pane", "-t", self._pane(session, None)), session)

    def attach_words(self, session: str) -> tuple[str, ...]:
        """The command with which a person attaches to a session, wherever their own sockets are."""
        elsewhere = ("env", "-u", "TMUX_TMPDIR") if "TMUX_TMPDIR" in os.environ else ()
        return (*elsewhere, "tmux", "-L", self.name, "attach-session", "-t", f"={session}")

    def _run(self, *words: str, stdin: bytes = b"") -> Ended:
        own = {key: value for key, value in os.environ.items() if key not in PERSONS}
        call = ["tmux", "-u", "-L", self.name, "-f", CONFIG, *words]
        env = program_environment(own)
        return run(call, cwd="/", env=env, stdin=stdin, seconds=self.seconds, most_bytes=MOST_BYTES, called="tmux")


def _program(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a program for tmux, which gives a single one to a shell and starts a command after a final `;`."""
    if len(words) == 1:
        return (f"exec {shlex.quote(words[0])}",)
    return tuple(f"{word[:-1]}\\;" if word.endswith(";") else word for word in words)


def _literal(text: str) -> str:
    """A text in which tmux finds no format: `##` is a `#`, except before a `[`, where each stays."""
    escaped = re.sub(r"#+(?!#*\[)", lambda run: run[0] * 2, text)
    return f"{escaped[:-1]}\\;" if escaped.endswith(";") else escaped


def _target(session: str) -> str:
    """Exactly this session; without the `=` tmux also takes one whose name begins like this."""
    return f"={session}:"


def _message(ended: Ended) -> str:
    return ended.err.decode("utf-8", "replace").strip()


def _is_missing(ended: Ended) -> bool:
    return ended.code != 0 and bool(NO_SERVER.search(_message(ended)) or NO_SESSION.search(_message(ended)))


def _check(ended: Ended, session: str) -> str:
    """What tmux printed. Raises NotFound when it knows no such session, InvalidState for other refusals."""
    if _is_missing(ended):
        raise NotFound(f"tmux has no session {session}", hint="It has ended, or was never started. Start it.")
    if ended.code != 0:
        message = _message(ended)[:400] or f"it ended with {ended.code}"
        raise InvalidState(f"tmux: {message}", hint="Check what tmux says, then try again.")
    return ended.out.decode("utf-8", "replace")


def _read_pane(line: str) -> tuple[int, Pane]:
    """A line of `LISTED`: the number of the pane, which is lower for an older one, and the pane."""
    pid, dead, number, changed, session = line.split(" ", 4)
    return int(number.removeprefix("%")), Pane(session, int(pid), dead == "1", int(changed) * 1000)
