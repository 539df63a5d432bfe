"""`crewhall watch`: what happens in the hall, in a terminal."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.edges.interfaces import CREWHALL
from tests.edges.prefork import environment as prefork_environment
from tests.edges.program import PASSED_ON, Program, ask


@contextmanager
def watching(program: Program, *words: str, **environment: str) -> Iterator[Iterator[str]]:
    """The lines of `crewhall watch`, as they come; it is interrupted at the end, as by Ctrl-C."""
    command = [CREWHALL, "watch", *words]
    process = subprocess.Popen(
        command,
        env=PASSED_ON | prefork_environment() | {"CREWHALL_HOME": str(program.home)} | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield iter(process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()


def test_watch_tells_what_happens_with_and_without_a_hub(program: Program) -> None:
    program.run("agent", "register", "ada", "codex")
    with watching(program, "--after", "0") as lines:
        first = next(lines)
        assert "agent.registered" in first and "new → online" in first and "by operator" in first
        with program.up("--port", "0") as up:
            ask(up, "agent/register", name="bob", runtime="codex")
            assert next(lines).split()[0] == "2"
        program.run("agent", "register", "eve", "codex")
        assert next(lines).split()[0] == "3", "the hub is gone, and the watch goes on"


def test_watch_gives_json_of_one_topic_to_programs(program: Program) -> None:
    program.run("repository", "register", "/r")
    program.run("agent", "register", "ada", "codex")
    with watching(program, "--json", "--after=0", "--topic", "agent") as lines:
        event = json.loads(next(lines))
    assert (event["seq"], event["what"]) == (2, "agent.registered")


def test_watch_refuses_what_makes_no_sense(program: Program) -> None:
    assert "--after is 'x'" in program.run("watch", "--after", "x").err
    refused = program.run("watch", CREWHALL_TOKEN="wrong")
    assert refused.code == 4 and "token" in refused.err
