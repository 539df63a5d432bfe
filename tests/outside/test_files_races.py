"""A second process swaps links, directories and FIFOs in and out while this one reads: nothing outside comes back."""

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from crewhall.errors import Failure
from crewhall.outside.files import open_root
from tests.sizes import size

READS = size(2_500, 10_000)
SOME_READS = 1_250  # less, and a busy machine may show one side only
INSIDE, SECRET = b"inside\n", b"secret\n"
# What the second process does until it is ended: two names change places, in one step if asked and the kernel can.
SWAPPER = """
import ctypes, os, sys
one, other, how = sys.argv[1:]
swap = getattr(ctypes.CDLL(None), "renameat2", None)
def exchange():
    assert swap(-100, os.fsencode(one), -100, os.fsencode(other), 2) == 0
def by_hand():
    os.rename(one, one + ".old"); os.rename(other, one); os.rename(one + ".old", other)
act = exchange if how == "exchange" and swap else by_hand
act()
print("begun", flush=True)
while True:
    act()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for side, content in ((root, INSIDE), (tmp_path / "outside", SECRET)):
        (side / "src" / "deep").mkdir(parents=True)
        (side / "src" / "deep" / "a.txt").write_bytes(content)
    (root / "src" / "deep" / "mine.txt").write_bytes(INSIDE)
    (tmp_path / "outside" / "src" / "deep" / "theirs.txt").write_bytes(SECRET)
    return root


@contextlib.contextmanager
def keep_swapping(one: Path, other: Path, how: str) -> Iterator[None]:
    """The two change places all the time."""
    words = [sys.executable, "-IS", "-c", SWAPPER, str(one), str(other), how]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"begun\n"
            yield
            assert process.poll() is None, "it swapped to the end"
        finally:
            process.kill()


def outcome(root: Path, path: str) -> bytes | str:
    """What a read gives: the content, or the refusal's code."""
    try:
        with open_root(str(root)) as top, top.file(path) as found:
            return os.read(found.descriptor, 100)
    except Failure as failure:
        return failure.code


@pytest.mark.parametrize("how", ["exchange", "by hand"])
@pytest.mark.parametrize("place", ["src/deep/a.txt", "src/deep", "src"], ids=["file", "parent", "grandparent"])
@pytest.mark.parametrize("to", ["relative", "absolute"])
def test_a_link_that_is_swapped_in_leads_nobody_out(root: Path, place: str, how: str, to: str) -> None:
    outside = root.parent / "outside" / place
    target = outside if to == "absolute" else os.path.relpath(outside, (root / place).parent)
    (root / "lure").symlink_to(target)
    if to == "relative":  # it is only right where it will be
        (root / "lure").rename((root / place).with_name("lure"))
    lure = root / "lure" if to == "absolute" else (root / place).with_name("lure")
    with keep_swapping(root / place, lure, how):
        seen = Counter(outcome(root, "src/deep/a.txt") for _ in range(SOME_READS))
    assert seen[INSIDE] and seen["PATH_OUTSIDE_ROOT"], seen
    assert set(seen) <= {INSIDE, "PATH_OUTSIDE_ROOT", "NOT_FOUND", "INVALID_STATE"}, seen


def test_ten_thousand_reads_while_a_link_is_swapped_in(root: Path) -> None:
    """So many in `make soak`: otherwise a quarter of them."""
    (root / "lure").symlink_to(root.parent / "outside" / "src" / "deep" / "a.txt")
    with keep_swapping(root / "src" / "deep" / "a.txt", root / "lure", "exchange"):
        seen = Counter(outcome(root, "src/deep/a.txt") for _ in range(READS))
    assert seen.total() == READS and seen[INSIDE] and seen["PATH_OUTSIDE_ROOT"], seen
    assert set(seen) <= {INSIDE, "PATH_OUTSIDE_ROOT", "INVALID_STATE"}, seen


def test_a_directory_that_is_swapped_for_a_link_lists_no_name_from_outside(root: Path) -> None:
    (root / "lure").symlink_to(root.parent / "outside" / "src")
    seen: Counter[str] = Counter()
    with keep_swapping(root / "src", root / "lure", "exchange"):
        for _ in range(SOME_READS):
            with contextlib.suppress(Failure), open_root(str(root)) as top, top.directory("src/deep") as found:
                seen.update(os.listdir(found.descriptor))
    assert set(seen) == {"a.txt", "mine.txt"}


def test_a_fifo_that_is_swapped_in_keeps_nobody_waiting(root: Path) -> None:
    os.mkfifo(root / "pipe")
    before = len(os.listdir("/dev/fd"))
    with keep_swapping(root / "src" / "deep" / "a.txt", root / "pipe", "exchange"):
        seen = Counter(outcome(root, "src/deep/a.txt") for _ in range(READS))
    assert set(seen) == {INSIDE, "INVALID_INPUT"} and len(os.listdir("/dev/fd")) == before


def test_a_directory_that_changes_places_while_it_is_left_by_two_dots_leads_nobody_out(root: Path) -> None:
    """`..` is where the walk came from, wherever the directory has gone to meanwhile."""
    (root / "a.txt").write_bytes(INSIDE)
    (root.parent / "a.txt").write_bytes(SECRET)
    (root.parent / "outside" / "deep").mkdir()
    with keep_swapping(root / "src" / "deep", root.parent / "outside" / "deep", "exchange"):
        seen = Counter(outcome(root, "src/deep/../../a.txt") for _ in range(SOME_READS))
    assert set(seen) == {INSIDE}
