"""`crewhall inbox`, `crewhall reply` and what `crewhall status` says of messages, with a hub and without one."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.edges.program import Program
from tests.edges.test_cli import assert_error, body


@pytest.fixture(params=["with a hub", "without a hub"])
def hall(request: pytest.FixtureRequest, program: Program) -> Iterator[Program]:
    if request.param == "without a hub":
        yield program
        return
    with program.up():
        yield program


def call(hall: Program, *words: str, **environment: str) -> dict[str, Any]:
    done = hall.run("--json", *words, **environment)
    assert done.code == 0, done
    return body(done)


def register(hall: Program, name: str = "ada") -> str:
    return str(call(hall, "agent", "register", name, "codex")["id"])


def ask(hall: Program, agent: str, text: str, *more: str, to: str = "operator") -> str:
    return str(call(hall, "message", "send", to, "query", text, "--sender-id", agent, *more)["id"])


def unread(hall: Program) -> int:
    return int(call(hall, "status")["unread_messages"]["count"])


def test_what_agents_wrote_is_shown_whole_the_most_urgent_first(hall: Program) -> None:
    ada = register(hall)
    low = ask(hall, ada, "one line\nand another", "--subject", "Colours", "--priority", "low")
    high = ask(hall, ada, '{"blue": ["navy"]}', "--priority", "high")
    shown = hall.run("inbox").out
    first, second = shown.index(f"{high}  high query, unread"), shown.index(f"{low}  low query, unread")
    assert first < second and f"from     ada ({ada})" in shown and "subject  Colours" in shown
    assert "    one line\n    and another\n" in shown and "thread   th_" in shown
    assert "2 unread." in shown and "`crewhall reply ID TEXT` answers" in shown
    (one, other) = call(hall, "inbox")["messages"]
    assert (one["id"], one["sender_name"], other["body"]) == (high, "ada", "one line\nand another")
    assert unread(hall) == 2, "a list reads nothing"


def test_one_message_is_shown_and_read(hall: Program) -> None:
    ada = register(hall)
    message = ask(hall, ada, "Which blue?")
    shown = hall.run("inbox", message)
    assert (shown.code, "    Which blue?\n" in shown.out, f"{message}  normal query, read" in shown.out) == (
        0,
        True,
        True,
    )
    assert unread(hall) == 0
    assert hall.run("inbox").out == "No unread messages. `crewhall inbox --all` shows those that you have read.\n"
    assert message in hall.run("inbox", "--all").out
    assert call(hall, "inbox")["messages"] == []


def test_an_answer_goes_to_the_sender_in_the_thread_and_reads_the_question(hall: Program) -> None:
    ada = register(hall)
    question = ask(hall, ada, "Which blue?")
    done = hall.run("reply", question, "Navy", "please.")
    assert done.code == 0 and f"went to ada ({ada}), thread th_" in done.out
    (answer,) = call(hall, "message", "list", ada)["messages"]
    assert (answer["sender_id"], answer["body"], answer["reply_to_id"]) == ("operator", "Navy please.", question)
    assert answer["message_type"] == "response" and answer["thread_id"] in done.out
    assert unread(hall) == 0
    sent = call(hall, "reply", question, "--", "--no-verify", "is fine")
    assert call(hall, "message", "get", sent["id"])["body"] == "--no-verify is fine"


def test_what_cannot_be_read_or_answered_is_refused_with_a_way_out(hall: Program) -> None:
    ada, bob = register(hall), register(hall, "bob")
    theirs, mine = ask(hall, ada, "psst", to=bob), ask(hall, ada, "hello")
    for words in (("inbox",), ("reply",)):
        text = ("yes",) if words == ("reply",) else ()
        missing = hall.run(*words, "ms_none", *text)
        assert_error(missing, 3, "there is no message 'ms_none'")
        assert "crewhall inbox --all" in missing.err
        assert_error(hall.run(*words, theirs, *text), 4, f"message {theirs} is for {bob}, not for you")
    assert_error(hall.run("reply", mine), 2, "give the id of a message and what you answer")
    assert_error(hall.run("reply", mine, "--force"), 2, "unexpected argument '--force'")
    assert_error(hall.run("inbox", "--new"), 2, "unexpected argument '--new'")
    assert_error(hall.run("inbox", mine, theirs), 2, "give one message's id")
    assert call(hall, "message", "get", theirs, "--mark-read", "false")["status"] == "unread"
    assert unread(hall) == 1


def test_status_says_how_many_messages_wait_and_how_urgent_they_are(hall: Program) -> None:
    assert re.search("^unread messages +0$", hall.run("status").out, re.MULTILINE)
    ada = register(hall)
    for priority in ("normal", "urgent", "normal"):
        ask(hall, ada, "?", "--priority", priority)
    assert "3 (1 urgent, 2 normal); `crewhall inbox` shows them" in hall.run("status").out
    counted = {"low": 0, "normal": 2, "high": 0, "urgent": 1}
    assert call(hall, "status")["unread_messages"] == {"count": 3, "by_priority": counted}


def test_an_inbox_of_several_pages_is_read_to_its_end(program: Program) -> None:
    with program.up():
        ada = register(program)
        sent = {ask(program, ada, f"{number} {'x' * 3_000}") for number in range(12)}
        seen: list[str] = []
        more: tuple[str, ...] = ()
        while True:
            shown = program.run("inbox", *more).out
            seen += [line.split()[0] for line in shown.splitlines() if line.startswith("ms_")]
            assert "characters left out: `crewhall inbox ms_" in shown
            if "--cursor" not in shown:
                break
            more = ("--cursor", shown.rpartition("--cursor ")[2].partition("`")[0])
        assert len(seen) == 12 and set(seen) == sent


def test_an_agent_reads_and_answers_nothing_of_the_operators(program: Program) -> None:
    with program.up():
        token = call(program, "agent", "token", "--name", "eve")["token"]
        message = ask(program, register(program), "hello")
        assert program.run("inbox", CREWHALL_TOKEN=token).code == 4
        assert program.run("reply", message, "yes", CREWHALL_TOKEN=token).code == 4
        assert unread(program) == 1


def test_what_an_agent_wrote_cannot_steer_the_terminal(program: Program) -> None:
    evil = "\x1b[2J\x9b31m\rms_0  urgent"
    ada = register(program, evil)
    message = ask(program, ada, evil, "--subject", evil)
    for words in (("inbox",), ("inbox", message), ("reply", message, "no")):
        out = program.run(*words).out.replace("\n", "")
        assert out.isprintable() and out, ascii(out)
