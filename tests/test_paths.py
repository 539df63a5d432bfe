"""Which path lies below which."""

import pytest

from crewhall.paths import is_below


@pytest.mark.parametrize(
    ("path", "top", "expected"),
    [
        ("/a/b", "/a", True),
        ("/a/b/c", "/a", True),
        ("/a", "/a", True),
        ("/a/", "/a", True),
        ("/a", "/a/", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/b/a", "/a", False),
        ("/a", "/", True),
        ("/", "/", True),
        ("/", "/a", False),
        ("src/app.py", "src", True),
        ("src", "src", True),
        ("srcs/app.py", "src", False),
        ("src", "/src", False),
        ("src", "/", False),
        ("/a/../b", "/a", True),  # nothing is resolved
    ],
)
def test_a_path_is_below_itself_and_the_directories_above_it(path: str, top: str, expected: bool) -> None:
    assert is_below(path, top) is expected
