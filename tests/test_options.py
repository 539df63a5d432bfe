"""The reader of command-line words: options with their values, from left to right."""

import pytest

from crewhall.errors import InvalidInput
from crewhall.options import one_word, read_options, read_words


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--port 1 up", [("--port", "1"), ("up", None)]),
        ("--port=1 --port= up", [("--port", "1"), ("--port", ""), ("up", None)]),
        ("--port --json", [("--port", "--json")]),
        ("--json 1 --port", [("--json", None), ("1", None), ("--port", None)]),
        ("a=b -h", [("a", "b"), ("-h", None)]),
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
    ("line", "message"), [("--prot 1", "'--prot' has no place here"), ("--port", "--port needs a value")]
)
def test_other_words_are_refused(line: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_options(line.split(), {"--port": "server.port"})


@pytest.mark.parametrize(
    ("line", "message"), [("", "give one FILE"), ("a b", "give one FILE"), ("a --b=c", "'--b=c' has no place here")]
)
def test_a_command_with_one_word_takes_no_other(line: str, message: str) -> None:
    assert one_word(["a=b"], "FILE") == "a=b"
    with pytest.raises(InvalidInput, match=message):
        one_word(line.split(), "FILE")
