"""`crewhall selftest`: what it finds, that it finds faults, and that it leaves nothing behind."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crewhall.edges.cli.selftest import Comparison, compare, figures_text
from crewhall.edges.cli.selftest_clients import Pair
from crewhall.edges.cli.throwaway import within
from tests.edges.interfaces import CREWHALL
from tests.edges.program import PASSED_ON, Program
from tests.edges.test_cli import assert_error, body

SMALL = ("--writers", "4", "--each", "10")


@pytest.fixture
def program(database: str, tmp_path: Path) -> Program:
    """A hall with something in it, on each database."""
    name = "CREWHALL_DATABASE_URL" if "://" in database else "MCP_DATABASE_PATH"
    program = Program(tmp_path / "home", {name: database})
    assert program.here("agent", "register", "ada", "codex").code == 0
    return program


def processes(home: Path) -> list[str]:
    """The command lines of processes that were given something below this directory, or live there."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() + b" " + os.fsencode(os.readlink(entry / "cwd"))
        except OSError:
            continue
        if os.fsencode(home) in words:
            found.append(words.replace(b"\0", b" ").decode())
    return found


def schemas(database: str) -> list[str]:
    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'crewhall%'").fetchall()
    return [name for (name,) in found]


def assert_nothing_left(database: str, program: Program) -> None:
    assert processes(program.home.parent) == []
    left = [path.name for path in program.home.parent.rglob("*selftest*")]
    assert left == []
    if "://" in database:
        assert schemas(database) == []


def content(database: str) -> Any:
    """All that a hall holds: the rows of every table, or the very bytes of the file, and what lies beside it."""
    if "://" not in database:
        return {
            path.name: path.read_bytes() for path in Path(database).parent.glob("hall.db*") if "line" not in path.name
        }
    with psycopg.connect(database) as connection:
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1"
        names = [name for (name,) in connection.execute(query).fetchall()]
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1".encode()).fetchall() for name in names}


def test_a_small_run_is_sound_and_leaves_the_hall_as_it_was(database: str, program: Program) -> None:
    before = content(database)
    done = program.run("--json", "selftest", *SMALL)
    assert done.code == 0, done
    found = body(done)
    assert content(database) == before
    assert_nothing_left(database, program)
    figures = {row["operation"]: row for row in found["operations"]}
    assert sorted(figures) == ["claim", "create", "message", "plan"]
    for row in figures.values():
        assert (row["acknowledged"], row["stored"], row["lost"], row["doubled"]) == (40, 40, 0, 0)
        assert (row["refused"], row["codes"]) == (0, {})
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"] and row["per_second"] > 0
    assert figures["claim"]["taken_by_others"] > 0, "claims really contend"
    sums = {name: found[name] for name in ("writers", "each", "hubs", "acknowledged", "refused", "lost", "doubled")}
    assert list(sums.values()) == [4, 10, 1, 160, 0, 0, 0]
    assert found["passed"] is True and found["damage"] is None and found["seconds"] > 0
    assert ("rows are not copied" if "://" in database else "a copy of") in found["hall"]


def test_it_tells_how_far_it_is_on_stderr_and_a_person_gets_a_table(tmp_path: Path) -> None:
    program = Program(tmp_path / "home")
    done = program.run("selftest", "--writers=2", "--each=1")
    assert done.code == 0, done
    assert "selftest: 2 writers have joined, 1 hub" in done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("2 writers, each 1 times, on a new SQLite hall")
    assert lines[2].split()[:5] == ["OPERATION", "ACKNOWLEDGED", "STORED", "LOST", "DOUBLED"]
    assert [line.split()[:5] for line in lines[3:7]] == [
        [name, "2", "2", "0", "0"] for name in ("create", "plan", "claim", "message")
    ]
    assert lines[8].startswith("passed: 0 errors, 0 lost, 0 doubled; 8 acknowledged changes")
    assert not program.home.exists(), "a hall that is not there is not made"


def test_it_runs_beside_a_hub_and_with_the_halls_own_settings(tmp_path: Path) -> None:
    program = Program(tmp_path / "home", {"MCP_LOG_LEVEL": "error"})
    with program.up() as up:
        (program.home / "config.toml").write_text("[tool]\nthreads = 2\n\n[agent]\nmax = 1\n")
        done = program.run("--json", "selftest", *SMALL)
        assert done.code == 0 and body(done)["passed"], done
        assert up.process.poll() is None
        assert body(program.run("--json", "agent", "list"))["total"] == 0


@pytest.mark.parametrize(
    ("acknowledged", "stored", "lost", "doubled"),
    [
        ([], [], 0, 0),
        ([("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")], 0, 0),
        ([("a", "1"), ("b", "2")], [("a", "1")], 1, 0),
        ([("a", "1")], [("a", "2")], 1, 0),  # it is there, but not what was told
        ([("a", "1")], [("a", "1"), ("a", "2")], 0, 1),
        ([("a", "1")], [("a", "1"), ("a", "1")], 0, 1),
        ([("task", "ada"), ("task", "bob")], [("task", "bob")], 1, 1),  # both were told that they hold it
        ([("task", "ada"), ("task", "bob")], [("task", "ada"), ("task", "bob")], 0, 1),
        ([("a", "1"), ("b", "1")], [("a", "1")], 1, 0),  # one id for two
        ([("a", "1")] * 3, [("a", "1")], 0, 2),
        ([], [("a", "1")], 0, 0),  # a refusal that happened after all: the refusal itself is counted
    ],
)
def test_what_is_lost_and_what_is_doubled_is_found(
    acknowledged: list[Pair], stored: list[Pair], lost: int, doubled: int
) -> None:
    assert compare(acknowledged, stored) == Comparison(len(stored), lost, doubled)


def test_a_fault_is_told_in_the_last_line() -> None:
    row = {"operation": "claim", "acknowledged": 2, "stored": 1, "lost": 1, "doubled": 1, "refused": 3}
    told = {"operations": [row | {"codes": {"UNAVAILABLE": 3}}], "writers": 1, "each": 2, "hubs": 2, "hall": "x"}
    sums = {"acknowledged": 2, "refused": 3, "lost": 1, "doubled": 1, "seconds": 1.0}
    text = figures_text(told | sums | {"damage": "page 4", "passed": False})
    verdict = "FAILED: 3 errors, 1 lost, 1 doubled, 2 hubs instead of one, the file is damaged: page 4"
    assert text.splitlines()[-1].startswith(verdict)
    assert "UNAVAILABLE 3" in text


# A hub that says "it is yours" to everyone, and keeps nothing.
BROKEN = """
import sys
from importlib.machinery import PathFinder

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "crewhall.families.work.claim.leases":
            return None
        spec = PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            module.take = lambda call, tx, workflow, task, agent: (1, 1)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder)
"""


def test_a_hall_that_acknowledges_what_it_does_not_keep_fails(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "sitecustomize.py"
    broken.parent.mkdir()
    broken.write_text(BROKEN)
    program = Program(tmp_path / "home")
    path = os.pathsep.join([str(broken.parent), os.environ.get("PYTHONPATH", "")])
    done = program.run("--json", "selftest", "--writers", "3", "--each", "2", PYTHONPATH=path)
    assert done.code == 1, done
    found = body(done)
    assert (found["passed"], found["lost"]) == (False, 6)
    claims = next(row for row in found["operations"] if row["operation"] == "claim")
    assert (claims["acknowledged"], claims["stored"], claims["lost"]) == (6, 0, 6) and claims["doubled"] > 0
    assert_nothing_left(str(program.home / "hall.db"), program)


def test_a_run_that_is_stopped_leaves_nothing_behind(database: str, program: Program) -> None:
    words = [CREWHALL, "selftest", "--writers", "3", "--each", "1000"]
    environment = PASSED_ON | {"CREWHALL_HOME": str(program.home)} | program.environment
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    with process.stderr as told:
        assert next(line for line in told if "rounds" in line)
        assert processes(program.home.parent)
        if "://" in database:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: its bridges hear it too
        else:
            process.terminate()
        assert process.wait(60) == 130
    assert_nothing_left(database, program)


def test_an_agents_token_is_refused(tmp_path: Path) -> None:
    program = Program(tmp_path / "home")
    token = body(program.here("--json", "agent", "token", "--name", "kim"))["token"]
    assert_error(
        program.run("selftest", CREWHALL_TOKEN=token), 4, "selftest is for the operator, and CREWHALL_TOKEN is"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--writers", "0"], "--writers is '0'"),
        (["--writers", "65"], "--writers is '65'"),
        (["--writers", "many"], "--writers is 'many'"),
        (["--writers", "²"], "--writers is '²'"),
        (["--each", "1001"], "--each is '1001'"),
        (["--each=-1"], "--each is '-1'"),
        (["--each", "9" * 40], f"--each is '{'9' * 40}'"),
        (["--often", "2"], "unexpected argument '--often'"),
    ],
)
def test_numbers_out_of_bounds_are_refused_with_a_hint(tmp_path: Path, words: list[str], message: str) -> None:
    program = Program(tmp_path / "home")
    assert_error(program.here("selftest", *words), 2, message)
    assert not program.home.exists()


def test_help_says_what_it_does(tmp_path: Path) -> None:
    told = Program(tmp_path / "home").run("selftest", "--help")
    assert told.code == 0 and told.out.startswith("selftest [--writers N]") and "--each" in told.out


def test_a_role_that_may_not_create_a_schema_is_told_so(postgres_url: str, tmp_path: Path) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE plain LOGIN")
    try:
        plain = postgres_url.replace("hall@", "plain@")
        done = Program(tmp_path / "home", {"CREWHALL_DATABASE_URL": plain}).run("selftest")
        assert_error(done, 4, "the hall's PostgreSQL role may not create a schema")
        assert "GRANT CREATE ON DATABASE" in done.err and schemas(postgres_url) == []
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP ROLE plain")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://u@h/d", "postgresql://u@h/d?options=-csearch_path%3Ds"),
        ("postgresql:///d?host=/run", "postgresql:///d?host=/run&options=-csearch_path%3Ds"),
        ("postgresql://h/d?options=-ca%3D1&x=2", "postgresql://h/d?x=2&options=-ca%3D1%20-csearch_path%3Ds"),
    ],
)
def test_the_way_to_a_schema_keeps_what_the_url_says(url: str, told: str) -> None:
    assert within(url, "s") == told


def test_a_damaged_file_is_told_and_not_copied(tmp_path: Path) -> None:
    program = Program(tmp_path / "home")
    program.home.mkdir()
    (program.home / "hall.db").write_bytes(b"garbage " * 1000)
    assert_error(program.run("selftest"), 7, "cannot be opened as a hall's database")
    assert_nothing_left(str(program.home / "hall.db"), program)
