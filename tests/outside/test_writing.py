"""Files that we write into somebody's directory: each whole or not there, and nothing of it outside the root."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.errors import Failure, Forbidden, InvalidInput, InvalidState, NotFound, PathOutsideRoot
from crewhall.outside.files import DEEPEST, Found, open_root
from crewhall.outside.writing import make_directory, put, take_away
from tests.outside.repos import fingerprint

NAME = "REPORT.md"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    return tmp_path / "root"


@contextlib.contextmanager
def directory(root: Path, path: str = ".") -> Iterator[Found]:
    with open_root(str(root)) as top, make_directory(top, path) as found:
        yield found


def refusal(root: Path, path: str) -> Failure:
    """Why a directory can't be made; nothing has changed then, inside or out."""
    before = fingerprint(root.parent)
    with pytest.raises(Failure) as refused, directory(root, path):
        pass
    assert fingerprint(root.parent) == before and refused.value.hint
    return refused.value


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("_handoff", "_handoff"),
        ("a/b/c/", "a/b/c"),
        ("./a//./b", "a/b"),
        (".", "."),
        ("a/.", "a"),
        ("there/../x", "x"),
        ("inner", "there"),
        ("inner/deep/er", "there/deep/er"),
        ("{root}/abs", "abs"),
        ("é\nx", "é\nx"),
    ],
)
def test_a_directory_is_made_if_need_be_and_known_by_its_real_path(root: Path, path: str, there: str) -> None:
    (root / "there").mkdir()
    (root / "inner").symlink_to("there")
    for _ in range(2):
        with directory(root, path.format(root=root)) as found:
            assert found.path == there and os.path.samestat(found.stat, os.stat(root / there))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("..", PathOutsideRoot),
        ("../outside", PathOutsideRoot),
        ("a/../../outside/x", PathOutsideRoot),
        ("{outside}/x", PathOutsideRoot),
        ("out", PathOutsideRoot),
        ("out/x", PathOutsideRoot),
        ("up/outside/x", PathOutsideRoot),
        ("dangling_out", PathOutsideRoot),
        ("dangling", NotFound),
        ("dangling/x", NotFound),
        ("gone/../x", NotFound),
        ("loop/x", InvalidInput),
        ("file", InvalidInput),
        ("file/x", InvalidInput),
        ("fifo", InvalidInput),
        ("a\0b", InvalidInput),
        ("\ud800", InvalidInput),
        ("x" * 300, InvalidInput),
        ("y/" * (DEEPEST + 1), InvalidInput),
        ("y/" * 2000, InvalidInput),
    ],
)
def test_what_leads_out_or_nowhere_is_refused_and_nothing_is_made(root: Path, path: str, kind: type[Failure]) -> None:
    (root / "file").write_text("x")
    os.mkfifo(root / "fifo")
    links = {"out": "../outside", "up": "..", "dangling": "nowhere", "dangling_out": "../outside/no", "loop": "loop"}
    for name, target in links.items():
        (root / name).symlink_to(target)
    assert isinstance(refusal(root, path.format(outside=root.parent / "outside")), kind)


def test_whoever_asks_may_refuse_what_is_to_be_made_before_it_is(root: Path) -> None:
    seen: list[str] = []

    def fit(path: str) -> None:
        seen.append(path)
        if path.endswith(".git"):
            raise Forbidden("git's own", hint="Name another.")

    with open_root(str(root)) as top:
        with make_directory(top, "a/b", fit):
            assert seen == ["a", "a/b", "a/b"]
        with pytest.raises(Forbidden), make_directory(top, "a/.git/x", fit):
            pass
    assert os.listdir(root / "a") == ["b"]


WORD = st.sampled_from(["a", "b", "..", ".", "", "in", "out", "file", "nowhere"])


@settings(max_examples=40, deadline=None)
@given(st.lists(WORD, min_size=1, max_size=6).map("/".join))
def test_whatever_the_path_nothing_is_made_outside(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    root = tmp_path_factory.mktemp("any") / "root"
    (root / "a").mkdir(parents=True)
    (root / "file").write_text("x")
    for name, target in {"in": "a", "out": "..", "nowhere": "../no"}.items():
        (root / name).symlink_to(target)
    with contextlib.suppress(Failure), directory(root, path) as found:
        put(found, NAME, b"x")
        assert os.path.realpath(root / found.path).startswith(str(root))
    assert os.listdir(root.parent) == ["root"]


def test_a_file_is_written_anew_and_nothing_is_left_beside_it(root: Path) -> None:
    with directory(root) as found:
        for data in (b"one", b"", b"\0" * 100_000):
            put(found, NAME, data)
            assert (root / NAME).read_bytes() == data and os.listdir(root) == [NAME]
    assert stat.S_IMODE(os.stat(root / NAME).st_mode) & ~0o644 == 0


def test_a_link_of_that_name_is_replaced_and_not_followed(root: Path) -> None:
    outside = root.parent / "outside" / "theirs"
    outside.write_text("theirs")
    os.link(outside, root / "hard")
    (root / NAME).symlink_to(outside)
    with directory(root) as found:
        for name in (NAME, "hard"):
            put(found, name, b"ours")
            assert not (root / name).is_symlink() and (root / name).read_text() == "ours"
    assert outside.read_text() == "theirs"


def test_what_is_in_the_way_is_left_and_told(root: Path) -> None:
    (root / NAME / "sub").mkdir(parents=True)
    with directory(root) as found:
        with pytest.raises(InvalidInput, match="is a directory"):
            put(found, NAME, b"x")
        with pytest.raises(InvalidState, match="can't be written"):
            put(found, "x" * 250, b"x")
    assert os.listdir(root) == [NAME]


def test_a_directory_that_was_removed_meanwhile_gets_nothing(root: Path) -> None:
    with directory(root, "a") as found:
        (root / "a").rmdir()
        (root / "a").symlink_to("../outside")
        with pytest.raises(InvalidState):
            put(found, NAME, b"x")
    assert os.listdir(root.parent / "outside") == []


@pytest.mark.parametrize(
    ("make", "is_gone"),
    [
        (lambda path: path.write_text("x"), True),
        (lambda path: path.symlink_to("../outside"), True),
        (os.mkfifo, True),
        (lambda path: None, True),
        (lambda path: path.mkdir(), False),
    ],
)
def test_what_is_taken_away_is_the_name_alone(root: Path, make: Callable[[Path], object], is_gone: bool) -> None:
    make(root / NAME)
    with directory(root) as found:
        assert take_away(found, NAME)
    assert os.path.lexists(root / NAME) != is_gone and (root.parent / "outside").is_dir()


# Writes one after the other, each all of one letter, until it is killed.
WRITER = """
import sys
from crewhall.outside.files import open_root
from crewhall.outside.writing import make_directory, put
with open_root(sys.argv[1]) as top, make_directory(top, ".") as found:
    for number in range(10**9):
        put(found, "REPORT.md", bytes([65 + number % 26]) * 300_000)
        if number == 0:
            print("begun", flush=True)
"""


def test_a_reader_sees_one_whole_file_or_the_next_also_when_the_writer_is_killed(root: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(root)]
    seen: set[bytes] = set()
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        while len(seen) < 5:
            seen.add(_whole(root))
        process.send_signal(signal.SIGKILL)
    assert _whole(root)
    left = set(os.listdir(root)) - {NAME}
    assert len(left) <= 1 and all(name.startswith(f".{NAME}.") for name in left)


def _whole(root: Path) -> bytes:
    data = (root / NAME).read_bytes()
    assert len(data) == 300_000 and len(set(data)) == 1
    return data[:1]
