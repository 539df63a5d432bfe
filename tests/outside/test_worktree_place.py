"""Another user comes and goes where a worktree or a hall's directory is about to be made: nothing goes elsewhere."""

import contextlib
import os
import pwd
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crewhall import config
from crewhall.errors import Conflict, Failure, Forbidden
from crewhall.hall_directory import make_home
from crewhall.outside.worktree_place import refuse_unmade, safe_place, true_path
from crewhall.outside.worktrees import add_worktree
from crewhall.ownership import Way
from tests.outside.repos import make_repository
from tests.sizes import size

LONGEST_REST = 0.0003  # seconds, between two changes
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as another user")


@pytest.fixture
def sticky(tmp_path: Path) -> Iterator[Path]:
    """A directory such as /tmp, in which everyone may make names of their own."""
    place = Path("/tmp") / f"crewhall-sticky-{os.getpid()}"
    place.mkdir()
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


@contextlib.contextmanager
def coming_and_going(link: Path, target: Path) -> Iterator[None]:
    """Nobody makes a link and removes it again, all the time."""
    child = os.fork()
    if child == 0:
        _come_and_go(link, target)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        ended = os.waitpid(child, 0)[1]
        assert os.WTERMSIG(ended) == signal.SIGKILL, "it went on to the end"


def _come_and_go(link: Path, target: Path) -> None:
    try:
        parent, nobody = os.getppid(), pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
        while os.getppid() == parent:
            with contextlib.suppress(OSError):
                link.symlink_to(target)
            time.sleep(random.random() * LONGEST_REST)
            with contextlib.suppress(OSError):
                link.unlink()
            time.sleep(random.random() * LONGEST_REST)
    finally:
        os._exit(1)


def take_away(path: Path) -> None:
    with contextlib.suppress(OSError):
        if not path.is_symlink():
            shutil.rmtree(path)


@ONLY_ROOT
def test_no_worktree_is_made_or_removed_where_a_link_leads_that_comes_and_goes(sticky: Path, tmp_path: Path) -> None:
    repo = make_repository(sticky / "shop")
    trees, victim = sticky / "shop-worktrees", tmp_path / "victim"
    rounds = range(size(50, 1_000))
    kept = [victim / f"kept-{number}" / "key" for number in rounds]
    for key in kept:
        key.parent.mkdir(parents=True)
        key.write_text("precious")
    made = 0
    with coming_and_going(trees, victim):
        for name in (f"{kind}-{number}" for number in rounds for kind in ("new", "kept")):
            with contextlib.suppress(Failure):
                add_worktree(repo, f"{trees}/{name}", f"branch-{name}", "HEAD")
                made += 1
            take_away(trees)
    assert sorted(os.listdir(victim)) == sorted(key.parent.name for key in kept)
    assert [key for key in kept if not key.exists()] == []
    assert made, "it makes them where nobody was quicker"


@ONLY_ROOT
def test_a_link_that_comes_and_goes_is_no_fault_of_ours(sticky: Path, tmp_path: Path) -> None:
    with coming_and_going(sticky / "trees", tmp_path):
        for _ in range(size(5_000, 50_000)):
            with contextlib.suppress(Failure):
                assert true_path(f"{sticky}/trees/a") in (f"{sticky}/trees/a", f"{tmp_path}/a")


@ONLY_ROOT
def test_no_settings_are_obeyed_and_no_home_is_made_where_a_link_comes_and_goes(sticky: Path, tmp_path: Path) -> None:
    home, victim = sticky / "hall", tmp_path / "victim"
    victim.mkdir()
    (victim / "config.toml").write_text("[server]\nport = 4321\n")
    with coming_and_going(home, victim):
        for _ in range(size(1_000, 20_000)):
            with contextlib.suppress(Failure, OSError):
                assert config.load({}, {"home": str(home)})["server.port"] != 4321
            with contextlib.suppress(Failure, OSError):
                make_home(home)
                assert not home.is_symlink()
            take_away(home)


def test_a_way_ends_where_its_own_looks_led(tmp_path: Path) -> None:
    way = Way(str(tmp_path / "gone/shop"))
    seen = [step.path for step in way]
    assert (seen[-1], way.end, way.is_whole) == (str(tmp_path), str(tmp_path / "gone/shop"), False)
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place/../place")
    way = Way(str(tmp_path / "link"))
    assert len(list(way)) == len(tmp_path.parts) + 3
    assert (way.end, way.is_whole) == (str(tmp_path / "place"), True)


def test_a_place_is_made_when_all_above_it_is_there_without_a_link(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "shop").root
    place = safe_place(root, f"{root}-worktrees/blue")
    with pytest.raises(Conflict, match="changes what is above"):
        refuse_unmade(root, place)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "shop-worktrees").symlink_to("elsewhere")
    with pytest.raises(Conflict, match="changes what is above"):
        refuse_unmade(root, place)
    (tmp_path / "shop-worktrees").unlink()
    (tmp_path / "shop-worktrees").mkdir()
    refuse_unmade(root, place)
    (tmp_path / "shop-worktrees").chmod(0o777)
    with pytest.raises(Forbidden):
        refuse_unmade(root, place)
