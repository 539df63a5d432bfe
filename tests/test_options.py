"""The reader of command-line words: options with their values, from left to right."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crewhall.edges.cli.arguments import arguments_of
from crewhall.edges.cli.main import split_flags
from crewhall.edges.http.rest import describe
from crewhall.errors import InvalidInput
from crewhall.families.all import registry
from crewhall.options import one_word, read_options, read_words

SEND = describe(next(tool for tool in registry().tools if tool.name == "instance_send"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--port 1 up", [("--port", "1"), ("up", None)]),
        ("--port=1 --port= up", [("--port", "1"), ("--port", ""), ("up", None)]),
        ("--port --json", [("--port", "--json")]),
        ("--json 1 --port", [("--json", None), ("1", None), ("--port", None)]),
        ("a=b -h", [("a", "b"), ("-h", None)]),
        ("--port --", [("--port", "--")]),
        ("up -- --port 1", [("up", None), ("", None), ("", None)]),
    ],
)
def test_an_option_takes_the_next_word_if_its_command_says_so(
    line: str, expected: list[tuple[str, str | None]]
) -> None:
    words = list(read_words(line.split(), lambda name, following: name == "--port"))
    assert [(word.name, word.value) for word in words] == expected


def test_a_word_is_read_before_the_next_is_looked_at() -> None:
    words = read_words(["--port", "1", "--wrong"], lambda name, following: name == "--port")
    assert next(words).value == "1"


def test_options_go_by_the_keys_of_their_command() -> None:
    assert read_options(["--port", "1", "--host=::"], {"--port": "server.port", "--host": "server.host"}) == {
        "server.port": "1",
        "server.host": "::",
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--prot 1", "unexpected argument '--prot'"),
        ("--port", "--port needs a value"),
        ("-- --port 1", "unexpected argument '--port'"),
    ],
)
def test_other_words_are_refused(line: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_options(line.split(), {"--port": "server.port"})


@pytest.mark.parametrize(
    ("line", "message"), [("", "give one FILE"), ("a b", "give one FILE"), ("a --b=c", "unexpected argument '--b=c'")]
)
def test_a_command_with_one_word_takes_no_other(line: str, message: str) -> None:
    assert one_word(["a=b"], "FILE") == one_word(["--", "a=b"], "FILE") == "a=b"
    assert one_word(["--", "--b=c"], "FILE") == "--b=c"
    with pytest.raises(InvalidInput, match=message):
        one_word(line.split(), "FILE")


TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(["--", "--json", "--text", "--id=1", "-h", "--home", "--help"]))


def tool_words(words: list[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """The flags and the arguments of `crewhall instance send …`, as the command line reads them."""
    flags, rest = split_flags(["instance", "send", *words])
    return flags, arguments_of(SEND, rest[2:])


@given(st.lists(TEXTS, max_size=4))
@example(["--", "--"])
def test_after_two_hyphens_words_come_whole_and_in_order(texts: list[str]) -> None:
    words = list(read_words(["--port", "1", "--", *texts], lambda name, following: True))
    assert [word.text for word in words[1:]] == texts and not any(word.is_option for word in words[1:])
    assert split_flags(["up", "--", *texts]) == ({}, ["up", *(["--"] if texts else []), *texts])


@given(TEXTS, TEXTS)
@example("work-1-a1", "--text")
@example("work-1-a1", "--")
def test_any_text_can_be_a_positional_one(instance: str, text: str) -> None:
    assert tool_words(["--", instance, text]) == ({}, {"id": instance, "text": text})
    assert tool_words(["--id", "x", "--json", "--", text]) == ({"--json": ""}, {"id": "x", "text": text})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--keep the contrast"], "unknown option '--keep the contrast'"),
        (["--txt", "hello"], "unknown option '--txt', did you mean '--text'?"),
        (["--text"], "--text needs a value"),
    ],
)
def test_an_option_that_is_not_there_may_be_a_text(words: list[str], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        tool_words(["work-1-a1", *words])
    assert caught.value.message == message and "put -- before it" in caught.value.hint
