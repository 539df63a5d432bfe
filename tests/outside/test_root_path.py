"""The path of a root: walked by names alone, known by what it leads to, and held where others may change it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import crewhall
from crewhall.errors import InvalidState, NotFound
from crewhall.outside.files import open_root, pieces
from crewhall.outside.just import recipes, run_recipe
from crewhall.outside.root_path import identity_of, loose_place
from tests.outside.swaps import Stage, exchange, nobodys_stage

NOBODY = 65_534


@pytest.fixture
def stage() -> Iterator[Stage]:
    with nobodys_stage() as stage:
        for root, word in ((stage.root, "plain"), (stage.private, "hunter2")):
            (root / "word.txt").write_text(f"{word}\n")
            (root / "justfile").write_text(f"{word}:\n    @cat word.txt\nwho:\n    @cat word.txt\n    @pwd\n")
        stage.lure_by_link()
        yield stage


def swap(stage: Stage) -> None:
    exchange(*(os.fsencode(stage.top / "theirs" / name) for name in ("place", "lure")))


def test_a_directory_is_known_again_by_what_it_is_and_not_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "above/tree").mkdir(parents=True)
    path = str(tmp_path / "above/tree")
    known = identity_of(path)
    assert known is not None and known == identity_of(path)
    (tmp_path / "above").rename(tmp_path / "away")
    assert identity_of(path) is None
    (tmp_path / "above").symlink_to(tmp_path / "away")
    assert identity_of(path) is None, "the very same, but by a link"
    (tmp_path / "above").unlink()
    (tmp_path / "above/tree").mkdir(parents=True)
    assert identity_of(path) not in (None, known)


def test_a_root_is_the_directory_that_was_noted_or_none(stage: Stage) -> None:
    noted = identity_of(str(stage.root))
    other = stage.root.with_name("other")
    other.mkdir()
    stage.root.rename(stage.root.with_name("away"))
    for put in (lambda: other.rename(stage.root), stage.root.rmdir, lambda: stage.root.symlink_to("away")):
        put()
        with pytest.raises(InvalidState, match="another directory by now, or gone"), open_root(str(stage.root), noted):
            pass


@pytest.mark.parametrize("path", ["relative", "/tmp/../tmp", "/tmp/\0"])
def test_a_root_by_other_words_than_names_is_refused(path: str) -> None:
    with pytest.raises(InvalidState, match="can't be opened"), open_root(path):
        pass


def test_an_open_root_is_read_wherever_its_path_leads_by_then(stage: Stage) -> None:
    with open_root(str(stage.root)) as top:
        swap(stage)
        for path in ("word.txt", f"{stage.root}/word.txt"):
            with top.file(path) as file:
                assert b"".join(pieces(file)) == b"plain\n"


def test_recipes_are_listed_and_run_in_the_open_root_wherever_its_path_leads_by_then(stage: Stage) -> None:
    check: Callable[[str, bytes], object] = lambda path, data: None  # noqa: E731
    with open_root(str(stage.root)) as top:
        swap(stage)
        assert [recipe.name for recipe in recipes(top, check)] == ["plain", "who"]
        ended = run_recipe(top, "who", check, seconds=20, most_bytes=10_000)
    assert ended.out.decode().split() == ["plain", f"{stage.top}/theirs/lure/shop"]
    (stage.root / "justfile").unlink()  # that of the other one, which is there now
    with open_root(str(stage.top / "theirs/lure/shop")) as top:
        (stage.top / "theirs/lure/shop/justfile").write_text("import 'gone'\n")
        with pytest.raises(InvalidState) as refused:
            recipes(top, check)
    assert "/proc/" not in refused.value.message and f"{stage.top}/theirs/lure/shop" in refused.value.message


def there_and_back(stage: Stage) -> None:
    swap(stage)
    swap(stage)


def root_there_and_back(stage: Stage) -> None:
    stage.root.rename(stage.root.with_name("away"))
    stage.root.with_name("away").rename(stage.root)


@pytest.mark.parametrize("act", [swap, there_and_back, root_there_and_back])
def test_a_path_that_led_elsewhere_for_a_moment_is_told(stage: Stage, act: Callable[[Stage], None]) -> None:
    with (
        pytest.raises(InvalidState, match="was renamed during the call"),
        open_root(str(stage.root)) as root,
        root.hold(),
    ):
        act(stage)


def test_what_failed_elsewhere_is_not_repeated(stage: Stage) -> None:
    with pytest.raises(InvalidState, match="renamed"), open_root(str(stage.root)) as root, root.hold():
        there_and_back(stage)
        raise NotFound("hunter2", hint="none")


def test_work_in_a_root_that_others_may_move_goes_on(stage: Stage) -> None:
    with open_root(str(stage.root)) as root:
        with root.hold() as top:
            (stage.root / "new").write_text("x")
        there_and_back(stage)
        with root.hold() as later:
            assert later.proof != top.proof, "no answer from before the swap counts"


def test_a_root_that_no_other_user_may_move_is_held_for_nothing(tmp_path: Path) -> None:
    root = tmp_path / "above/root"
    root.mkdir(parents=True)
    with open_root(str(root)) as top, top.hold() as held:
        (tmp_path / "above").rename(tmp_path / "away")
        (tmp_path / "away").rename(tmp_path / "above")
    assert top.opened.loose_places == held.proof == () and top.way == str(root)


@pytest.mark.parametrize(
    ("mode", "owner", "own", "is_loose"),
    [
        (0o755, 0, True, False),
        (0o777, 0, True, True),
        (0o1777, 0, True, False),
        (0o1777, 0, False, True),
        (0o775, 0, True, False),
        (0o700, NOBODY, True, True),
        (0o1777, NOBODY, True, True),
        (0o555, NOBODY, True, True),
    ],
)
def test_a_place_is_loose_where_another_user_may_rename_it(
    tmp_path: Path, mode: int, owner: int, own: bool, is_loose: bool
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    above = tmp_path / "above"
    (above / "here").mkdir(parents=True)
    os.chown(above / "here", 0 if own else NOBODY, -1)
    os.chown(above, owner, 0)
    above.chmod(mode)
    assert loose_place(str(above / "here")) == (str(above / "here") if is_loose else None)
    if own:
        assert loose_place(str(above / "to be/made")) == (str(above / "to be/made") if is_loose else None)


def test_a_group_of_others_may_rename_and_ones_own_may_not(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    (tmp_path / "above/here").mkdir(parents=True)
    (tmp_path / "above").chmod(0o775)
    assert loose_place(str(tmp_path / "above/here")) is None
    os.chown(tmp_path / "above", 0, NOBODY)
    assert loose_place(str(tmp_path / "above/here")) == str(tmp_path / "above/here")


def test_only_real_path_resolves_a_path_that_another_user_may_change() -> None:
    """os.path.realpath raises OSError for a link that comes or goes while it looks."""
    source = Path(crewhall.__file__).parent
    files = [file for room in ("outside", "families") for file in (source / room).rglob("*.py")]
    found = [file.name for file in files if "os.path.realpath(" in file.read_text("utf-8")]
    assert found == ["root_path.py"], "call crewhall.outside.root_path.real_path instead"
