"""The command line as a program: its words, its tools, its errors."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall import __version__
from crewhall.edges.cli import render
from crewhall.edges.cli.render import result, table
from tests.edges.interfaces import CREWHALL
from tests.edges.prefork import Done
from tests.edges.program import PASSED_ON, Program, Up, ask


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Up]]:
    """One hub for the tests that only need one to be there: asking it is much quicker than opening a hall."""
    program = Program(tmp_path_factory.mktemp("cli") / "home")
    with program.up() as up:
        yield program, up


@pytest.fixture
def served(place: tuple[Program, Up]) -> Program:
    return place[0]


def body(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.out)
    return found


def assert_error(done: Done, code: int, message: str) -> None:
    """One line that says what is wrong, one that says what to do, and nothing else."""
    lines = done.err.splitlines()
    assert done.code == code, done
    assert len(lines) == 2 and lines[0].startswith("crewhall: ") and message in lines[0], done.err
    assert lines[1].startswith("  ") and lines[1].strip()
    assert done.out == ""


def test_help_version_and_nothing_need_no_hall(program: Program) -> None:
    shown = program.run("--help")
    assert shown.code == 0 and "usage: crewhall" in shown.out and "<noun> <verb>" in shown.out
    assert program.run("-h") == shown
    assert program.run() == Done(2, shown.out, "")
    assert program.run("--version") == Done(0, f"crewhall {__version__}\n", "")
    assert program.run("up", "--help").out.startswith("up [--port N]")
    assert not program.home.exists()


def test_a_noun_alone_lists_its_verbs(served: Program) -> None:
    for words in (("agent",), ("agent", "--help"), ("agent", "nope", "--help")):
        done = served.run(*words)
        assert done.code == 0 and re.search(r"^  register +Join the hall", done.out, re.MULTILINE)


def test_an_unknown_noun_or_verb_names_those_there_are(served: Program) -> None:
    assert_error(served.run("nope"), 3, "there is no command 'nope'")
    assert re.search(r"There are agent, .*repository", served.run("nope").err)
    assert_error(served.run("statsu"), 3, "there is no command 'statsu', did you mean 'status'?")
    assert_error(served.run("agent", "nope"), 3, "there is no command 'agent nope'")
    assert "heartbeat" in served.run("agent", "nope").err


def test_help_of_a_tool_shows_its_arguments(served: Program) -> None:
    done = served.run("agent", "register", "--help")
    assert done.code == 0 and "usage: crewhall agent register NAME RUNTIME" in done.out
    assert "claude_code | codex" in done.out and "--workspace-path" in done.out and "default worker" in done.out


def test_arguments_come_by_place_by_name_as_lists_and_as_objects(served: Program) -> None:
    by_place = ("ada", "codex", "--capabilities", "a,b", "--capabilities", "c", "--metadata", '{"k": [1]}')
    by_name = ("--runtime=codex", "--name=ada", "--capabilities", '["a", "b", "c"]', '--metadata={"k": [1]}')
    for words in (by_place, by_name):
        made = body(served.run("--json", "agent", "register", *words))
        agent = body(served.run("agent", "get", made["id"], "--json"))
        assert (agent["name"], agent["runtime"], agent["capabilities"]) == ("ada", "codex", ["a", "b", "c"])
        assert agent["metadata"] == {"k": [1]}
        served.run("agent", "unregister", made["id"])


def test_a_value_is_passed_on_as_it_is(served: Program) -> None:
    words = ("--workspace-path=/srv/my-own-app=1", "--name", "-a-b", "--runtime", "codex")
    made = body(served.run("--json", "agent", "register", *words))
    agent = body(served.run("--json", "agent", "get", made["id"]))
    assert (agent["workspace_path"], agent["name"]) == ("/srv/my-own-app=1", "-a-b")


@pytest.mark.parametrize("words", [("--name", "--runtime", "codex"), ("--runtime", "codex", "--name"), ("--input",)])
def test_an_argument_without_its_value_is_refused(served: Program, words: tuple[str, ...]) -> None:
    assert_error(served.run("agent", "register", *words), 2, "needs a value")


def test_input_is_one_object_from_a_word_or_from_stdin(served: Program) -> None:
    given = json.dumps({"name": "é\u2028", "runtime": "gemini"})
    for words, text in ((("-",), given), ((given,), "")):
        made = body(served.run("agent", "register", "--json", "--input", *words, text=text))
        assert made["name"] == "é\u2028"
        served.run("agent", "unregister", made["id"])
    for bad in ("{", "[]", "7"):
        assert_error(served.run("agent", "register", "--input", bad), 2, "--input is not a JSON object")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("agent", "get", "ag_nobody"), 3, "there is no agent 'ag_nobody'"),
        (("agent", "list", "--limit", "x"), 2, "argument 'limit'"),
        (("agent", "list", "--limits", "3"), 2, "did you mean 'limit'?"),
        (("agent", "list", "--limits"), 2, "did you mean 'limit'?"),
        (("agent", "list", "extra"), 2, "unexpected argument 'extra'"),
        (("agent", "list", "--", "--extra"), 2, "unexpected argument '--extra'"),
        (("agent", "get", "--nobody"), 2, "unknown option '--nobody'"),
        (("agent", "get", "--", "--nobody"), 3, "there is no agent '--nobody'"),
        (("agent", "register"), 2, "missing argument 'name'"),
        (("event", "list", "--after", "-1"), 2, "argument 'after'"),
        (("status", "extra"), 2, "unexpected argument 'extra'"),
        (("up", "--port"), 2, "--port needs a value"),
        (("up", "--port", "99999"), 2, "setting server.port from the flag is '99999'"),
        (("up", "--host", "no such host"), 7, "cannot listen on no such host"),
        (("backup",), 2, "give one FILE"),
        (("restore", "a", "b"), 2, "give one FILE"),
        (("--home",), 2, "--home needs a directory"),
    ],
)
def test_an_error_is_a_line_a_hint_and_an_exit_code(
    served: Program, words: tuple[str, ...], code: int, message: str
) -> None:
    assert_error(served.run(*words), code, message)


def test_an_error_with_json_is_the_body_on_stdout(served: Program) -> None:
    done = served.run("agent", "get", "ag_nobody", "--json")
    assert (done.code, done.err, body(done)["code"]) == (3, "", "NOT_FOUND")


def test_debug_shows_the_traceback(served: Program) -> None:
    done = served.run("nope", "--debug")
    assert done.code != 0 and "Traceback (most recent call last)" in done.err


def test_a_home_that_cannot_be_used_is_one_line(program: Program, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        done = program.run("status", CREWHALL_HOME=str(home))
        assert done.code in (2, 7) and len(done.err.splitlines()) == 2, done
    below = str(tmp_path / "file" / "below" / "it")
    assert_error(program.run("status", MCP_DATABASE_PATH=below), 7, "Not a directory")
    assert_error(program.here("backup", below), 3, "there is no directory")


def test_the_body_is_the_same_with_a_hub_and_without(program: Program) -> None:
    made = body(program.here("--json", "agent", "token", "--name", "ada"))
    asked = [
        (("agent", "get", made["agent_id"]), None),
        (("agent", "get", "ag_nobody"), None),
        (("agent", "list", "--limit", "0"), None),
        (("agent", "list"), ""),
        (("agent", "token", "--name", "eve"), made["token"]),
        (("agent", "get", made["agent_id"]), "ch_agent_wrong"),
    ]

    def answers(run: Callable[..., Done]) -> list[tuple[int, dict[str, Any]]]:
        found = [
            run("--json", *words, **({"CREWHALL_TOKEN": token} if token is not None else {})) for words, token in asked
        ]
        return [(done.code, body(done)) for done in found]

    alone = answers(program.here)
    assert [code for code, _ in alone] == [0, 3, 2, 4, 4, 4]
    with program.up():
        assert answers(program.run) == alone


def test_a_token_makes_it_an_agent(place: tuple[Program, Up]) -> None:
    program, up = place
    made = ask(up, "agent/token", name="ada with a token")
    assert body(program.run("--json", "agent", "heartbeat", CREWHALL_TOKEN=made["token"]))["success"]
    assert_error(program.run("agent", "token", "--name", "eve", CREWHALL_TOKEN=made["token"]), 4, "is for operator")
    for words in (("agent", "list"), ("status",)):
        assert_error(program.run(*words, CREWHALL_TOKEN="wrong"), 4, "this token is wrong")


def test_a_reader_that_left_is_no_error(served: Program) -> None:
    for words in (["--help"], ["agent", "list"]):
        reading, writing = os.pipe()
        os.close(reading)
        environment = PASSED_ON | {"CREWHALL_HOME": str(served.home)}
        done = subprocess.run(
            [CREWHALL, *words], check=False, env=environment, stdout=writing, stderr=subprocess.PIPE, timeout=60
        )
        os.close(writing)
        assert (done.returncode, done.stderr) == (0, b"")


def test_what_an_agent_wrote_cannot_steer_the_terminal(place: tuple[Program, Up]) -> None:
    program, up = place
    evil = "\x1b[2J\x9b31m\r"
    agent = ask(up, "agent/register", name=evil, runtime="codex", capabilities=[evil], metadata={evil: evil})["id"]
    for words in (("agent", "list"), ("agent", "get", agent), ("event", "list")):
        out = program.run(*words).out.replace("\n", "")
        assert out.isprintable(), ascii(out)


def test_neither_an_error_nor_the_doctor_can_steer_the_terminal() -> None:
    """Both quote what agents wrote: names of branches, words of processes, what git says."""
    evil = "\x1b]0;mine\x07\x9b2Jso\u202eo\rover"
    finding = {"state": "note", "what": "instances", "finding": f"detached: {evil}\nok", "hint": evil}
    assert render.findings([finding]).replace("\n", "").isprintable()
    told = render.failure(f"{evil}\nok", evil)
    assert told.replace("\n", "").isprintable() and told.splitlines()[1:] == ["  ok", f"  {render.harmless(evil)}"]
    line = render.json_line({"message": evil + "\u2028"})
    assert json.loads(line) == {"message": evil + "\u2028"} and "\x9b" not in line and "\u2028" not in line


def test_a_state_is_its_name_in_a_table_and_a_time_below_its_name() -> None:
    state = {
        "name": "waiting",
        "evidence": "asked for permission 4 min ago",
        "source": "hooks",
        "since": 1_800_000_000_000,
    }
    assert table([{"id": "work-1-a1", "state": state}]).splitlines()[1] == "work-1-a1  waiting"
    assert "since     2027-01-1" in result({"id": "work-1-a1", "state": state})


def test_a_cell_has_the_ids_of_rows_and_a_dash_for_an_empty_list() -> None:
    lines = table([{"tasks": [{"id": "tk_1"}, {"id": "tk_2"}]}, {"tasks": []}]).splitlines()
    assert lines[1:] == ["tk_1, tk_2", "-"]


def test_an_empty_list_is_shown_as_one(served: Program) -> None:
    assert re.search(r"^repositories +-$", served.run("repository", "list").out, re.MULTILINE)


def test_the_command_line_starts_without_the_heavy_imports() -> None:
    code = "import sys, crewhall.edges.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"mcp", "pydantic", "starlette", "uvicorn", "pysqlite3", "asyncio"} & set(done.stdout.split())


PLAN = {"summary": "s", "approach": "a", "tasks": [{"name": "t", "description": "x", "sequence": 1}]}


def told(served: Program, *words: str) -> dict[str, Any]:
    """What a command answers that succeeds."""
    done = served.run("--json", *words)
    assert done.code == 0, done
    return body(done)


def test_objects_are_given_as_json_or_from_a_file(served: Program, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    made = told(served, "workflow", "create", "w", "prompt", "x")["id"]
    assert_error(served.run("workflow", "set-plan", made, "plan.json"), 2, "'plan.json' is no JSON")
    assert_error(served.run("workflow", "set-plan", made, "@/nowhere"), 2, "/nowhere cannot be read as JSON")
    assert told(served, "workflow", "set-plan", made, f"@{tmp_path}/plan.json")["tasks_created"] == 1
    more = json.dumps({"name": "more", "description": "x, y", "sequence": 1})
    assert told(served, "workflow", "add-tasks", made, more)["tasks_created"] == 1, "one of a list, with commas in it"


def test_a_body_is_an_object_when_it_is_json_and_a_text_otherwise(served: Program) -> None:
    for given, kept in (('{"a": 1}', {"a": 1}), ("{a}", "{a}"), ("@bob", "@bob"), ("12", "12")):
        sent = told(served, "message", "send", "operator", "query", given, "--sender-id", "operator")["id"]
        assert told(served, "message", "get", sent)["body"] == kept


def test_a_claim_that_fails_ends_a_chain_of_commands(served: Program) -> None:
    made = told(served, "workflow", "create", "w", "prompt", "x")["id"]
    told(served, "workflow", "set-plan", made, json.dumps(PLAN))
    task = told(served, "task", "list", made)["tasks"][0]["id"]
    ada, bob = (told(served, "agent", "register", name, "codex")["id"] for name in ("ada", "bob"))
    assert served.run("task", "claim", task, ada).code == 0
    refused = served.run("task", "claim", task, bob)
    assert refused.code == 5 and ada in refused.out


def test_the_repository_is_the_directory_that_the_command_is_given_in(served: Program) -> None:
    made = told(served, "workflow", "create", "w", "prompt", "x")["id"]
    assert told(served, "workflow", "get", made)["repository_path"] == os.getcwd()


def test_help_tells_what_an_object_holds(served: Program) -> None:
    text = served.run("workflow", "set-plan", "--help").out
    assert "tasks: [{name, description, sequence, parallel_group?, depends_on?" in text and "or @FILE" in text
