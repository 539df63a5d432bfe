"""A hall's directory and database are used only while no other user can change them; the hint repairs it."""

import grp
import os
import pwd
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crewhall import config
from crewhall.errors import Forbidden, Unavailable
from crewhall.hall_directory import make_home
from crewhall.ownership import is_own_group, make_private, open_own
from crewhall.store.open import connect
from crewhall.store.sql import Queries
from crewhall.token_file import read_operator_token

NOBODY = 65534
Change = Callable[[Path], object]
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")


def give(path: Path, text: str | None = None) -> Path:
    """Make it nobody's."""
    if text is not None:
        path.write_text(text)
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return path


def link(path: Path, target: Path | str, *, own: bool = False) -> None:
    path.symlink_to(target)
    if not own:
        give(path)


def open_up(path: Path, mode: int, group: int = 0) -> None:
    os.chown(path, -1, group)
    path.chmod(mode)


def in_turn(*changes: Change) -> Change:
    return lambda path: [change(path) for change in changes]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A hall's directory in a directory of its own, which a test may open up."""
    place = tmp_path / "place" / "hall"
    place.mkdir(parents=True, mode=0o700)
    place.chmod(0o700)
    place.parent.chmod(0o755)
    (tmp_path / "victim").write_text("precious")
    yield place


def load(home: Path) -> config.Settings:
    return config.load({}, {"home": str(home)})


OPEN: dict[str, Change] = {
    "another user's": give,
    "all may write": lambda home: home.chmod(0o777),
    "sticky": lambda home: home.chmod(0o1777),
    "a group may write": lambda home: open_up(home, 0o770, NOBODY),
    "all may write above": lambda home: home.parent.chmod(0o777),
    "another user's above": lambda home: give(home.parent),
    "a planted token": lambda home: give(home / "operator.token", f"ch_operator_{'x' * 43}\n"),
    "planted settings": lambda home: give(home / "config.toml", '[judge]\ncommand = "/tmp/evil"\n'),
    "a planted database": lambda home: give(home / "hall.db", ""),
    "a planted journal": lambda home: give(home / "hall.db-journal", ""),
    "a planted link for the database": lambda home: link(home / "hall.db", "../../victim"),
    "a planted link for the queue": lambda home: link(home / "hall.db.line", "../../victim"),
    "a planted link for the log": lambda home: link(home / "hub.log", "../../victim"),
    "a planted link to nothing": lambda home: link(home / "hub.log", "../nowhere"),
    "a planted address file": lambda home: give(home / "hub-1.json", "{}"),
    "a planted lock": lambda home: give(home / "hub-00000000.lock", ""),
    "planted instances": lambda home: give(_directory(home / "instances")),
    "settings that all may write": in_turn(
        lambda home: home.chmod(0o755), lambda home: _file(home / "config.toml").chmod(0o666)
    ),
    "own settings in another user's directory": lambda home: link(
        home / "config.toml", _file(give(_directory(home.parent / "theirs")) / "config.toml"), own=True
    ),
    "own link to another user's settings": lambda home: link(
        home / "config.toml", give(home.parent / "theirs.toml", ""), own=True
    ),
}
FINE: dict[str, Change] = {
    "not there": lambda home: home.rmdir(),
    "private": lambda home: None,
    "others may read": lambda home: home.chmod(0o755),
    "sticky above": lambda home: home.parent.chmod(0o1777),
    "the group of root": lambda home: open_up(home, 0o770, 0),
    "own links": in_turn(
        lambda home: link(home / "config.toml", _file(home.parent / "own.toml"), own=True),
        lambda home: link(home / "hall.db", "../other.db", own=True),
    ),
    "what others may write and not reach": lambda home: _file(home / "config.toml").chmod(0o666),
    "another user's file of another name": lambda home: give(home / "notes.txt", ""),
}


def _directory(path: Path) -> Path:
    path.mkdir()
    return path


def _file(path: Path) -> Path:
    path.write_text("")
    return path


@ONLY_ROOT
@pytest.mark.parametrize("what", OPEN)
def test_a_directory_that_others_can_change_is_not_obeyed_until_it_is_repaired(home: Path, what: str) -> None:
    OPEN[what](home)
    for use in (load, make_home):
        with pytest.raises(Forbidden, match="is not used") as refused:
            use(home)
    assert "CREWHALL_HOME" in refused.value.hint
    subprocess.run(["sh", "-c", re.findall("`((?:rm|chmod|chown) .*?)`", refused.value.hint)[0]], check=True)
    assert load(home).home == home
    assert (home.parent.parent / "victim").read_text() == "precious"


@ONLY_ROOT
@pytest.mark.parametrize("what", FINE)
def test_a_directory_that_others_cannot_change_is_used(home: Path, what: str) -> None:
    FINE[what](home)
    load(home)
    make_home(home)


@ONLY_ROOT
def test_a_link_to_the_directory_is_followed_when_it_is_ours(home: Path) -> None:
    ours, theirs = home.parent / "ours", home.parent / "theirs"
    link(ours, home, own=True)
    link(theirs, home)
    assert load(ours).home == ours
    with pytest.raises(Forbidden, match=r"the link .*theirs belongs to"):
        load(theirs)


@ONLY_ROOT
@pytest.mark.parametrize(
    "change",
    [
        give,
        lambda place: place.chmod(0o777),
        lambda place: place.chmod(0o1777),
        *(lambda place, end=end: give(place / f"my.db{end}", "") for end in ("", "-wal", "-shm", "-journal", ".line")),
        lambda place: link(place / "my.db", "../victim"),
        lambda place: link(place / "my.db.line", "../victim"),
        lambda place: link(place / "my.db", give(_directory(place.parent / "theirs")) / "my.db", own=True),
        in_turn(
            lambda place: give(place.parent / "theirs.db-journal", ""),
            lambda place: link(place / "my.db", place.parent / "theirs.db", own=True),
        ),
    ],
)
def test_a_database_elsewhere_is_held_to_the_same(tmp_path: Path, change: Change) -> None:
    (tmp_path / "victim").write_text("precious")
    place = _directory(tmp_path / "place")
    change(place)
    there = sorted(tmp_path.rglob("*"))
    with pytest.raises(Forbidden, match="the database's directory"):
        connect(str(place / "my.db"), Queries([]))
    assert (sorted(tmp_path.rglob("*")), (tmp_path / "victim").read_text()) == (there, "precious")


@ONLY_ROOT
def test_a_database_may_be_a_link_of_ours(tmp_path: Path) -> None:
    link(_directory(tmp_path / "place") / "my.db", _directory(tmp_path / "disk") / "real.db", own=True)
    connect(str(tmp_path / "place" / "my.db"), Queries([])).close()
    assert (tmp_path / "disk" / "real.db").exists()


def test_what_is_made_is_open_to_nobody_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(str(tmp_path / "a" / "b" / "c"))
    finally:
        os.umask(before)
    modes = [(tmp_path / path).stat().st_mode & 0o777 for path in ("a", "a/b", "a/b/c")]
    assert modes == [0o755, 0o755, 0o700]


@ONLY_ROOT
def test_a_file_is_opened_through_no_link_and_from_no_other_user(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    for own in (True, False):
        (tmp_path / "operator.token").unlink(missing_ok=True)
        link(tmp_path / "operator.token", "victim", own=own)
        assert read_operator_token(tmp_path) is None
        with pytest.raises(OSError, match="symbolic"):
            open_own(tmp_path / "operator.token", os.O_RDWR | os.O_CREAT)
    with pytest.raises(PermissionError, match="belongs to"):
        open_own(give(tmp_path / "theirs", "x"), os.O_RDONLY)


def account(name: str, uid: int, gid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh"))


@pytest.mark.parametrize(
    ("members", "others", "is_own"),
    [([], [], True), (["ada"], [], True), (["bob"], [], False), ([], [account("bob", 4_343, 4_242)], False)],
    ids=["alone", "a member too", "a second member", "another's first group"],
)
def test_a_group_is_ones_own_when_nobody_else_is_in_it(
    monkeypatch: pytest.MonkeyPatch, members: list[str], others: list[pwd.struct_passwd], is_own: bool
) -> None:
    """The system's tables are not ours to change."""
    ada = account("ada", os.geteuid(), 4_242)
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group(("ada", "x", 4_242, members)))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: ada)
    monkeypatch.setattr(pwd, "getpwall", lambda: [ada, account("root", 0, 0), *others])
    assert is_own_group(4_242) is is_own


def test_a_home_that_is_a_link_to_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "hall").symlink_to("nowhere")
    with pytest.raises(Unavailable, match="leads to no directory"):
        make_home(tmp_path / "hall")
