"""Long work shows its progress: as events over REST, as a line on the terminal of who called it."""

import json
import os
import pty
import re
import signal
import subprocess
import termios
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crewhall.edges.cli.hall_client import Hall
from crewhall.edges.cli.progress_line import EVERY, fitting
from crewhall.errors import Unavailable
from tests.conftest import eventually
from tests.edges.interfaces import CREWHALL
from tests.edges.program import PASSED_ON, Program, Up
from tests.edges.raw_http import JSON, http

# Each recipe says something, and then waits until somebody writes into the pipe.
JUSTFILE = r"""
waits:
    @echo $$ > pid; echo begun; read word < pipe; echo "heard $word"
hostile:
    @printf '\033[2J\033]0;mine\007\342\200\256%s\n' 漢字漢字漢字漢字漢字漢字漢字; read word < pipe
"""
COLUMNS = 30
EVENTS = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Up]]:
    """One hub for all; its signs of life come quickly."""
    program = Program(tmp_path_factory.mktemp("progress") / "home", {"CREWHALL_TOOL_PROGRESS": "50ms"})
    with program.up() as up:
        yield program, up


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and this process in it."""
    (tmp_path / "justfile").write_text(JUSTFILE)
    os.mkfifo(tmp_path / "pipe")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def let_go() -> None:
    """Tell the recipe that it is enough, once it listens."""
    Path("pipe").write_text("enough\n")


def recipe() -> int:
    """The process of the recipe that runs in this project."""
    return int(eventually(lambda: Path("pid").exists() and Path("pid").read_text()))


def has_ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


# Over REST


@contextmanager
def posted(up: Up, path: str, body: Any, **headers: str) -> Iterator[Any]:
    where = {"X-Crewhall-Directory": urllib.parse.quote(os.getcwd())}
    content = body if isinstance(body, bytes) else json.dumps(body)
    with http.stream("POST", f"{up.url}/api/v1/{path}", content=content, headers=JSON | where | headers) as answer:
        yield answer


def events_of(answer: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of an answer, as they come."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


def test_a_call_tells_of_its_progress_and_answers_last(place: tuple[Program, Up], tree: Path) -> None:
    seen = []
    with posted(place[1], "project/run", {"task_name": "waits"}, **EVENTS) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        for name, data in events_of(answer):
            seen.append((name, data))
            if [told.get("message") for _, told in seen][-2:] == ["begun", "still running"]:
                let_go()
    assert ("progress", {"progress": 6, "total": None, "message": "begun"}) in seen
    assert [name for name, _ in seen] == ["progress"] * (len(seen) - 1) + ["answer"]
    answered = seen[-1][1]
    assert answered["status"] == 200 and answered["body"]["exit_code"] == 0
    assert answered["body"]["output"] == "begun\nheard enough\n"


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("project/run", {}, {"Authorization": "Bearer wrong"}, 401),
        ("project/walk", {}, {}, 404),
        ("project/run", b"{", {}, 400),
        ("project/run", b"x" * 5_000_000, {}, 413),
    ],
)
def test_what_is_refused_before_the_call_is_refused_plainly(
    place: tuple[Program, Up], path: str, body: Any, headers: dict[str, str], status: int
) -> None:
    with posted(place[1], path, body, **EVENTS, **headers) as answer:
        assert json.loads(answer.read())["code"] and answer.headers["content-type"] == "application/json"
        assert answer.status_code == status


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json;q=0.5, Text/Event-Stream;q=0.9"])
def test_a_refused_call_ends_its_stream_with_what_the_plain_answer_says(
    place: tuple[Program, Up], tree: Path, accept: str
) -> None:
    with posted(place[1], "project/run", {"task_name": "no"}) as answer:
        plain = {"status": answer.status_code, "body": json.loads(answer.read())}
    assert plain["status"] == 404
    with posted(place[1], "project/run", {"task_name": "no"}, Accept=accept) as answer:
        assert (answer.status_code, list(events_of(answer))[-1]) == (200, ("answer", plain))
    got = http.get(f"{place[1].url}/api/v1/pr/health", headers=EVENTS)
    assert got.headers["content-type"] == "application/json", "a browser's EventSource would ask again and again"


def test_a_client_that_leaves_its_stream_ends_the_call(place: tuple[Program, Up], tree: Path) -> None:
    with posted(place[1], "project/run", {"task_name": "waits"}, **EVENTS) as answer:
        name, told = next(events_of(answer))
        assert name == "progress", told
        process = recipe()
    eventually(lambda: has_ended(process))


def test_tools_say_whether_they_may_take_long(place: tuple[Program, Up]) -> None:
    tools = {tool["name"]: tool["long"] for tool in Hall(place[0].settings).tools()}
    assert tools["run_just_task"] and not tools["agent_list"]
    about = http.get(f"{place[1].url}/api/openapi.json").json()["info"]["description"]
    assert "`Accept: text/event-stream`" in about


# On the command line


class Screen:
    """A command whose stderr is a terminal, and whose output is read by a program."""

    def __init__(self, program: Program, *words: str) -> None:
        self._end, inside = pty.openpty()
        termios.tcsetwinsize(inside, (24, COLUMNS))
        env = PASSED_ON | {"CREWHALL_HOME": str(program.home), "TERM": "xterm"}
        self.process = subprocess.Popen([CREWHALL, *words], env=env, stdout=subprocess.PIPE, stderr=inside, text=True)
        os.close(inside)
        self._raw = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while True:
                self._raw += os.read(self._end, 4096)
        except OSError:
            os.close(self._end)  # the command has ended

    @property
    def shown(self) -> str:
        return self._raw.decode("utf-8", "replace")

    @property
    def lines(self) -> list[str]:
        """What stood on the line, one after the other."""
        return [text for text in re.findall(r"\r([^\r]*)\x1b\[K", self.shown) if text]

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *error: Any) -> None:
        self.process.kill()
        self.process.communicate()
        self._reader.join(10)

    def ended(self) -> tuple[int, str]:
        """The exit code and the output."""
        out, _ = self.process.communicate(timeout=30)
        self._reader.join(10)
        return self.process.returncode, out


@pytest.fixture(params=["hub", "no hub"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Program:
    """A hall with a hub and one without."""
    found: Program = request.getfixturevalue("place")[0] if request.param == "hub" else Program(tmp_path / "home")
    return found


def test_a_terminal_shows_how_long_a_call_runs_and_what_it_said_last(program: Program, tree: Path) -> None:
    with Screen(program, "--json", "project", "run", "waits") as screen:
        eventually(lambda: len([line for line in screen.lines if re.fullmatch(r"0:\d\d  begun", line)]) > 1, 20)
        let_go()
        code, out = screen.ended()
    assert (code, json.loads(out)["output"]) == (0, "begun\nheard enough\n")
    assert screen.shown.endswith("\r\x1b[K"), "nothing is left of it"
    assert len(set(screen.lines)) == len(screen.lines), "the time goes on"


def test_what_strangers_say_neither_steers_the_terminal_nor_breaks_the_line(
    place: tuple[Program, Up], tree: Path
) -> None:
    with Screen(place[0], "project", "run", "hostile") as screen:
        shown = eventually(lambda: [line for line in screen.lines if "漢" in line])[0]
        let_go()
        assert screen.ended()[0] == 0
    assert shown[4:].strip() == "�[2J�]0;mine��漢字漢字", "thirty columns less one, a wide letter has two"
    assert set(re.findall(r"\x1b[^K]*K?", screen.shown)) == {"\x1b[K"}


def test_where_no_terminal_is_nothing_is_shown(place: tuple[Program, Up], tree: Path) -> None:
    threading.Timer(1.5 * EVERY, let_go).start()  # after the line would have come
    done = place[0].run("--json", "project", "run", "waits")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["output"] == "begun\nheard enough\n"


def test_ctrl_c_ends_the_call_and_says_so(program: Program, tree: Path) -> None:
    with Screen(program, "project", "run", "waits") as screen:
        process = recipe()
        screen.process.send_signal(signal.SIGINT)
        assert screen.ended() == (130, "")
    eventually(lambda: has_ended(process))
    (said,) = screen.shown.rpartition("\x1b[K")[2].splitlines()
    assert said.startswith("crewhall: interrupted; project run was told to stop")


# How long the command line waits


class Waiting:
    """A call by this process, in a thread of its own."""

    def __init__(self, program: Program, silence: float, told: Callable[..., None]) -> None:
        self.hall, self.result = Hall(program.settings), list[Any]()
        self.hall.silence_seconds = silence
        self._tool = next(tool for tool in self.hall.tools() if tool["name"] == "run_just_task")
        self._told = told
        self._thread = threading.Thread(target=self._call, daemon=True)
        self._thread.start()

    def _call(self) -> None:
        try:
            self.result += self.hall.call(self._tool, {"task_name": "waits"}, self._told)
        except Unavailable as failure:
            self.result.append(failure)

    def ended(self) -> Any:
        self._thread.join(30)
        return self.result[0]


def test_a_call_that_tells_of_itself_is_waited_for(place: tuple[Program, Up], tree: Path) -> None:
    silence, began, has_let_go = 0.6, time.monotonic(), threading.Event()

    def told(done: float, total: float | None, message: str | None) -> None:
        if time.monotonic() - began > 2 * silence and not has_let_go.is_set():
            has_let_go.set()
            let_go()

    assert Waiting(place[0], silence, told).ended()["output"] == "begun\nheard enough\n"


def test_a_hub_that_falls_silent_broke_off(place: tuple[Program, Up], tree: Path) -> None:
    hub = place[1].process.pid
    waiting = Waiting(place[0], 0.6, lambda *progress: None)
    process = recipe()
    os.kill(hub, signal.SIGSTOP)
    try:
        failure = waiting.ended()
    finally:
        os.kill(hub, signal.SIGCONT)
    assert "broke off: timed out" in failure.message and "look before you repeat" in failure.hint
    eventually(lambda: has_ended(process))
    assert Hall(place[0].settings).silence_seconds == 60, "as a rule"


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("0:01  all", 80, "0:01  all"),
        ("0:01  all", 10, "0:01  all"),
        ("0:01  all", 9, "0:01  al"),
        ("漢字", 5, "漢字"),
        ("漢字", 4, "漢"),
        ("x" * 100, 0, "x" * 79),
        ("x", 1, ""),
    ],
)
def test_a_line_never_fills_its_row(text: str, columns: int, shown: str) -> None:
    assert fitting(text, columns) == shown
