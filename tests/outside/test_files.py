"""The sandbox: whatever path is asked for, and whatever links lie about, nothing outside the root is opened."""

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.errors import Failure, InvalidInput, InvalidState, NotFound, PathOutsideRoot, Unavailable
from crewhall.outside.files import DEEPEST, MOST_LINKS, open_root, pieces
from tests.outside.repos import unprivileged_prefix
from tests.sizes import size

INSIDE, SECRET = b"inside\n", b"secret\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project beside a secret, with links of every kind in it."""
    root = tmp_path / "project"
    (root / "src" / "deep").mkdir(parents=True)
    for place in ("a.txt", "src/b.txt", "src/deep/c.txt"):
        (root / place).write_bytes(INSIDE)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_bytes(SECRET)
    (tmp_path / "project-too").mkdir()
    (tmp_path / "project-too" / "a.txt").write_bytes(SECRET)
    return root


@contextlib.contextmanager
def quick_place() -> Iterator[str]:
    """A directory for many files: in memory where that can be, since a busy disk takes a millisecond for each."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="crewhall-") as place:
        yield os.path.realpath(place)


def read(root: Path, path: str) -> bytes:
    with open_root(str(root)) as top, top.file(path) as found:
        return b"".join(pieces(found))


def link(place: Path, target: str | Path) -> None:
    place.symlink_to(target)


def chain(root: Path, end: str, length: int) -> None:
    """chain-0 leads to chain-1, and so on, to the end."""
    for number in range(length):
        link(root / f"chain-{number}", f"chain-{number + 1}" if number + 1 < length else end)


ESCAPES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "the directory above": ("../outside/secret.txt", lambda root: None),
    "above, by way of a directory": ("src/../../outside/secret.txt", lambda root: None),
    "above, by way of nothing": ("nope/../../outside/secret.txt", lambda root: None),
    "above, and there nothing": ("../nope", lambda root: None),
    "far above": ("../" * 2000 + "etc/passwd", lambda root: None),
    "above and back again": ("../project/a.txt", lambda root: None),
    "an absolute path": ("/etc/passwd", lambda root: None),
    "an absolute path to nothing": ("/nope/nope", lambda root: None),
    "an absolute path with a slash too many": ("//etc//passwd", lambda root: None),
    "the root of all": ("/", lambda root: None),
    "a neighbour whose name begins alike": ("{root}-too/a.txt", lambda root: None),
    "absolute, through the root": ("{root}/../outside/secret.txt", lambda root: None),
    "a process's environment": ("/proc/self/environ", lambda root: None),
    "a process's root": ("/proc/self/root/etc/passwd", lambda root: None),
    "a home": ("~", lambda root: None),
    "a file in a home": ("~/.ssh/id_rsa", lambda root: None),
    "somebody's home": ("~root/.profile", lambda root: None),
    "a link to a file": ("door", lambda root: link(root / "door", "../outside/secret.txt")),
    "an absolute link to a file": ("door", lambda root: link(root / "door", "/etc/passwd")),
    "a link to a directory above": ("up/outside/secret.txt", lambda root: link(root / "up", "..")),
    "an absolute link to a directory": (
        "src/out/secret.txt",
        lambda root: link(root / "src" / "out", root.parent / "outside"),
    ),
    "a link through the root and out": ("door", lambda root: link(root / "door", root / "../outside/secret.txt")),
    "a chain of links": ("chain-0", lambda root: chain(root, "../outside/secret.txt", 5)),
    "a link that leads out to nothing": ("door", lambda root: link(root / "door", "../outside/nope")),
    "a link that climbs by way of nothing": ("door", lambda root: link(root / "door", "nope/../../outside/secret.txt")),
    "a link to an open descriptor": ("door/0", lambda root: link(root / "door", "/proc/self/fd")),
    "a link into a process's root": ("door/etc/passwd", lambda root: link(root / "door", "/proc/self/root")),
    "a link to a device": ("zero", lambda root: link(root / "zero", "/dev/zero")),
    "above from behind a link": ("src/here/../../outside", lambda root: link(root / "src" / "here", "..")),
}


@pytest.mark.parametrize("case", ESCAPES)
def test_a_path_that_leads_out_is_refused_in_one_sentence(root: Path, case: str) -> None:
    path, prepare = ESCAPES[case]
    prepare(root)
    path = path.replace("{root}", str(root))
    for way in ("file", "directory"):
        with pytest.raises(PathOutsideRoot) as refused, open_root(str(root)) as top, getattr(top, way)(path):
            pass
        assert refused.value.message == "Path outside project root"
        assert refused.value.fields["path"] == path[:200]


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("a.txt", "a.txt"),
        ("./src//deep/./c.txt", "src/deep/c.txt"),
        ("src/deep/../b.txt", "src/b.txt"),
        ("{root}/src/b.txt", "src/b.txt"),
        ("/{root}/./src/../a.txt", "a.txt"),
        ("soft", "src/b.txt"),
        ("src/back", "a.txt"),
        ("whole/deep/c.txt", "src/deep/c.txt"),
        ("absolute/deep/../b.txt", "src/b.txt"),
        ("twice", "src/deep/c.txt"),
        ("~", "~"),
        ("~dir/~", "~dir/~"),
        ("..a/...", "..a/..."),
    ],
)
def test_what_is_inside_is_found_however_it_is_named(root: Path, path: str, resolved: str) -> None:
    link(root / "soft", "src/b.txt")
    link(root / "src" / "back", "../a.txt")
    link(root / "whole", "src")
    link(root / "absolute", root / "src")
    link(root / "twice", "absolute/deep/c.txt")
    for place in ("~dir", "..a"):
        (root / place).mkdir()
    for place in ("~", "~dir/~", "..a/..."):
        (root / place).write_bytes(INSIDE)
    with open_root(str(root)) as top, top.file(path.replace("{root}", str(root))) as found:
        assert (os.read(found.descriptor, 100), found.path) == (INSIDE, resolved)
        assert os.path.samestat(found.stat, os.stat(root / resolved))


@pytest.mark.parametrize("path", ["", ".", "./", "src/..", "{root}", "{root}/", "self", "src/top"])
def test_the_root_has_many_names(root: Path, path: str) -> None:
    link(root / "self", ".")
    link(root / "src" / "top", root)
    with open_root(str(root)) as top, top.directory(path.replace("{root}", str(root))) as found:
        assert found.path == "." and "a.txt" in os.listdir(found.descriptor)


def test_a_root_by_a_link_is_refused(root: Path, tmp_path: Path) -> None:
    link(tmp_path / "alias", tmp_path)
    with pytest.raises(InvalidState, match="a link is on the way"), open_root(f"{tmp_path}/alias/project"):
        pass


def make_socket(place: Path) -> None:
    """A socket at a place, whose path may be longer than a socket's address."""
    here = os.getcwd()
    os.chdir(place.parent)
    try:
        socket.socket(socket.AF_UNIX).bind(place.name)
    finally:
        os.chdir(here)


def link_to_fifo(root: Path) -> None:
    os.mkfifo(root / "p")
    link(root / "to-pipe", "p")


def make_device(place: Path) -> None:
    """What /dev/zero is, where one may make it."""
    try:
        os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize(
    ("path", "told", "prepare"),
    [
        ("src", "'src' is a directory, not a file", None),
        (".", "'.' is a directory, not a file", None),
        ("pipe", "'pipe' is a FIFO, not a file", lambda root: os.mkfifo(root / "pipe")),
        ("to-pipe", "'to-pipe' is a FIFO", link_to_fifo),
        ("plug", "'plug' is a socket, not a file", lambda root: make_socket(root / "plug")),
        ("zero", "'zero' is a device, not a file", lambda root: make_device(root / "zero")),
        ("a.txt/b", "'a.txt' is a file, not a directory", None),
        ("a.txt/..", "'a.txt' is a file, not a directory", None),
        ("round", f"leads through more than {MOST_LINKS} links", lambda root: link(root / "round", "round")),
        ("chain-0", f"more than {MOST_LINKS} links", lambda root: chain(root, "a.txt", MOST_LINKS + 1)),
        ("a\0b", "NUL", None),
        ("a\ud800", "not UTF-8", None),
        ("a\udcff", "not UTF-8", None),
        ("odd", "not UTF-8", lambda root: os.symlink(b"\xff", os.fsencode(root / "odd"))),
        ("n" * 300, "too long", None),
        ("n" * 5000, "over 4096 bytes", None),
        ("d/" * 2000 + "f", f"more than {MOST_LINKS} links", lambda root: link(root / "d", ".")),
        ("src/" * 2000, "over 4096 bytes", None),
    ],
)
def test_what_is_inside_and_no_file_says_so(
    root: Path, path: str, told: str, prepare: Callable[[Path], object] | None
) -> None:
    if prepare:
        prepare(root)
    with pytest.raises(InvalidInput) as refused:
        read(root, path)
    assert told in refused.value.message


@pytest.mark.parametrize(
    "path",
    [
        *(
            "nope",
            "src/nope/x",
            "A.TXT",
            "a.txt ",
            "\uff0e\uff0e\uff0foutside\uff0fsecret.txt",
            "%2e%2e/outside/secret.txt",
        ),
        *("..\\outside\\secret.txt", "C:\\secret.txt", "file:///etc/passwd", "cafe\u0301", "a.txt\u200b", "*", "-rf"),
        *("d/" * 1000, "~dir/nope"),
    ],
)
def test_what_is_not_there_says_so(root: Path, path: str) -> None:
    (root / "café").write_bytes(INSIDE)
    (root / "~dir").mkdir()
    with pytest.raises(NotFound) as refused:
        read(root, path)
    assert refused.value.message == f"there is no file '{path[:200]}'"


def test_a_chain_of_as_many_links_as_linux_follows_is_followed(root: Path) -> None:
    chain(root, "a.txt", MOST_LINKS)
    assert read(root, "chain-0") == INSIDE


def test_a_directory_too_deep_is_refused_before_it_takes_all_descriptors(root: Path) -> None:
    here = root
    for _ in range(DEEPEST + 1):
        here /= "d"
    os.makedirs(here)
    with open_root(str(root)) as top:
        with top.directory("d/" * DEEPEST) as found:
            assert os.listdir(found.descriptor) == ["d"]
        with pytest.raises(InvalidInput, match=f"more than {DEEPEST} directories deep"), top.directory(str(here)):
            pass


def test_no_descriptor_is_left_open(root: Path) -> None:
    link(root / "door", "src/../../outside")
    before = os.listdir("/dev/fd")
    for path in ("a.txt", "src/deep/c.txt", "src", "src/deep/nope", "src/deep/../../..", "door", "a\0"):
        for way in ("file", "directory"):
            try:
                with open_root(str(root)) as top, getattr(top, way)(path):
                    pass
            except Failure:
                pass
    assert os.listdir("/dev/fd") == before


@pytest.mark.parametrize("gone", ["removed", "a file", "a link"])
def test_a_root_that_is_no_directory_any_more_is_refused(root: Path, gone: str) -> None:
    shutil.rmtree(root)
    if gone == "a file":
        root.write_text("x")
    elif gone == "a link":
        link(root, root.parent / "outside")
    with pytest.raises(InvalidState, match="the root"):
        read(root, "secret.txt")


def test_a_refusal_of_the_kernel_is_told(root: Path) -> None:
    """A directory that may be passed but not listed, one that may not be passed, a file that may not be read."""
    (root / "src").chmod(0o111)
    (root / "src" / "deep").chmod(0o600)
    (root / "a.txt").chmod(0o000)
    asked = "import sys; from tests.outside.test_files import print_outcomes; print_outcomes(*sys.argv[1:])"
    ways = [("file", "src/b.txt"), ("directory", "src"), ("file", "src/deep/c.txt"), ("file", "a.txt")]
    words = [word for way, path in ways for word in (way, path)]
    ended = subprocess.run(
        [*unprivileged_prefix(), sys.executable, "-c", asked, str(root), *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.splitlines() == ["opened"] + [
        f"INVALID_STATE the hub's user may not read '{path}'" for _, path in ways[1:]
    ]


def print_outcomes(root: str, *words: str) -> None:
    """What comes of opening these, for a process that may not do everything."""
    with open_root(root) as top:
        for way, path in zip(words[::2], words[1::2], strict=True):
            try:
                with getattr(top, way)(path):
                    print("opened")
            except Failure as failure:
                print(failure.code, failure.message)


def test_having_no_descriptors_left_is_a_refusal(root: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open_root(str(root)) as top:
        free = os.dup(top.descriptor)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
        try:
            with pytest.raises(Unavailable, match="Too many open files"), top.file("src/deep/c.txt"):
                pass
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="it needs a file that can be opened and not read")
def test_a_file_that_cannot_be_read_says_so() -> None:
    refused = pytest.raises(Unavailable, match="'mem' can't be read: Input/output error")
    with open_root(f"/proc/{os.getpid()}") as top, top.file("mem") as found, refused:
        list(pieces(found))


NAMES = st.sampled_from(["a", "b", "c"])
WORDS = st.lists(st.one_of(NAMES, st.sampled_from(["..", ".", ""])), max_size=5).map("/".join)
TARGETS = st.tuples(st.sampled_from(["", "", "", "{root}/", "{root}", "/", "{outside}/"]), WORDS).map("".join)
PLACES = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TREES = st.lists(st.tuples(PLACES, st.one_of(st.none(), TARGETS)), max_size=8)


@settings(max_examples=size(40, 120), deadline=None)
@given(tree=TREES, paths=st.lists(TARGETS, min_size=3, max_size=8))
def test_whatever_links_there_are_what_is_opened_is_inside(
    tree: list[tuple[str, str | None]], paths: list[str]
) -> None:
    with quick_place() as base:
        root, outside = f"{base}/root", f"{base}/outside"
        for side in (root, outside):
            grow(side, root, outside, tree)
        for path in paths:
            try_path(root, path.format(root=root, outside=outside))


def try_path(root: str, path: str) -> None:
    """Open a path in a tree at rest, where what it leads to can be known beforehand."""
    at_rest = os.path.realpath(os.path.join(root, path))
    try:
        with open_root(root) as top, top.file(path) as found:
            assert at_rest == f"{root}/{found.path}"
            assert os.path.samestat(found.stat, os.stat(at_rest))
    except NotFound:
        assert not os.path.exists(os.path.join(root, path))
    except Failure as failure:
        assert isinstance(failure, InvalidInput | PathOutsideRoot)


def grow(side: str, root: str, outside: str, tree: list[tuple[str, str | None]]) -> None:
    """Files and links at these places, where nothing is yet; no link is followed on the way, for some lead to /."""
    os.mkdir(side)
    for place, target in tree:
        *above, name = place.split("/")
        here = side
        for word in above:
            here = f"{here}/{word}"
            if not os.path.lexists(here):
                os.mkdir(here)
            if os.path.islink(here) or not os.path.isdir(here):
                break
        else:
            put(f"{here}/{name}", None if target is None else target.format(root=root, outside=outside) or ".")


def put(path: str, target: str | None) -> None:
    if os.path.lexists(path):
        return
    if target is not None:
        os.symlink(target, path)
        return
    with open(path, "xb") as file:
        file.write(INSIDE)
