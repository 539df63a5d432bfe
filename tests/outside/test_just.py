"""The recipes of a worktree's own justfile, listed and run by the real just."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from crewhall.config import CLIENT_VARIABLES
from crewhall.errors import (
    Failure,
    Forbidden,
    InvalidInput,
    InvalidState,
    LimitExceeded,
    NotFound,
    PathOutsideRoot,
    Unavailable,
)
from crewhall.outside import just
from crewhall.outside import justfiles as limits
from crewhall.outside.files import open_root
from crewhall.outside.just import UNREADABLE_IMPORT, Recipe, program, recipes, run_recipe
from crewhall.outside.justfiles import justfiles
from crewhall.outside.run import Ended


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    path.mkdir()
    return path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def check(path: str, text: bytes) -> None:
    """Whatever is called so is nobody's business."""
    if path.endswith("secret"):
        raise Forbidden(f"'{path}' is secret", hint="Do without.")


def list_recipes(root: Path) -> list[Recipe]:
    with open_root(str(root)) as top:
        return recipes(top, check)


def run_one(root: Path, name: str, variables: Sequence[str] = ()) -> Ended:
    with open_root(str(root)) as top:
        return run_recipe(top, name, check, seconds=20, most_bytes=100_000, variables=variables)


MENU = """
mod tools
mod? missing
[private]
mod hidden
import 'more.just'
touched := `touch evaluated`
alias b := build
alias t := tools::lint
alias viaprivate := _inner
alias _secret := build
[private]
alias private := build

# Build it
build:
    @echo built

_inner:
    @echo inner

[private]
locked:
    @echo locked

needs first +rest:
    @echo {{first}}

optional first="1" *rest:
    @echo {{first}}

[windows]
only:
    @echo windows

[macos]
each:
    @echo apple
[linux]
each:
    @echo penguin
"""


def test_the_public_recipes_are_listed_and_nothing_is_run(root: Path) -> None:
    write(root / "justfile", MENU)
    write(root / "more.just", "imported:\n    @pwd\n")
    write(root / "hidden.just", "unseen:\n    @pwd\n")
    write(root / "tools" / "mod.just", "mod deep\n# Look\nlint:\n    @pwd\n_own:\n    @pwd\n")
    write(root / "tools" / "deep.just", "all:\n    @pwd\n")
    assert list_recipes(root) == [
        Recipe("b", "Build it"),
        Recipe("build", "Build it"),
        Recipe("each"),
        Recipe("imported"),
        Recipe("needs", None, ("first", "rest"), ("first", "rest")),
        Recipe("optional", None, ("first", "rest"), ()),
        Recipe("t", "Look"),
        Recipe("tools::deep::all"),
        Recipe("tools::lint", "Look"),
    ]
    assert not (root / "evaluated").exists()
    said = {name: run_one(root, name).out.decode().strip() for name in ("b", "each", "imported", "t", "tools::lint")}
    tools = str(root / "tools")
    assert said == {"b": "built", "each": "penguin", "imported": str(root), "t": tools, "tools::lint": tools}


@pytest.mark.parametrize("name", ["justfile", "Justfile", "JUSTFILE", ".justfile", ".JustFile"])
def test_a_justfile_has_one_of_just_s_names(root: Path, name: str) -> None:
    write(root / name, "a:\n    @pwd\n")
    with open_root(str(root)) as top:
        assert justfiles(top, check) == [str(root / name)]
    assert run_one(root, "a").out.decode().strip() == str(root)


def links(root: Path) -> None:
    write(root.parent / "outside", "a:\n    @pwd\n")
    (root / "justfile").symlink_to(root.parent / "outside")


def linked_directory(root: Path) -> None:
    write(root / "inside" / "x", "")
    (root / "justfile").symlink_to("inside")


def only_above(root: Path) -> None:
    write(root.parent / "justfile", "a:\n    @pwd\n")


def two(root: Path) -> None:
    write(root / "justfile", "")
    write(root / ".justfile", "")


@pytest.mark.parametrize(
    ("make", "failure", "words"),
    [
        (lambda root: None, NotFound, "has no justfile"),
        (only_above, NotFound, "has no justfile"),
        (lambda root: root.rmdir(), InvalidState, "No such file"),
        (links, PathOutsideRoot, "Path outside project root"),
        (lambda root: (root / "justfile").symlink_to("/proc/self/environ"), PathOutsideRoot, "Path outside"),
        (lambda root: (root / "justfile").symlink_to("gone"), NotFound, "there is no file"),
        (lambda root: (root / "justfile").symlink_to("justfile"), InvalidInput, "more than 40 links"),
        (linked_directory, InvalidInput, "is a directory"),
        (lambda root: os.mkfifo(root / "justfile"), InvalidInput, "is a FIFO"),
        (two, InvalidState, r"\.justfile and justfile"),
        (
            lambda root: write(root / "justfile", "a:\n    @pwd\nb :=:= x\n"),
            InvalidState,
            r"but found ':=' .* justfile:3:5$",
        ),
        (lambda root: write(root / "justfile", "a: nobody\n"), InvalidState, "unknown dependency `nobody`"),
        (lambda root: write(root / "justfile", "import 'gone'\n"), InvalidState, "could not find source file"),
    ],
)
def test_what_is_no_justfile_of_the_root_is_refused(
    root: Path, make: object, failure: type[Failure], words: str
) -> None:
    make(root)  # type: ignore[operator]
    with pytest.raises(failure, match=words) as refused:
        list_recipes(root)
    assert refused.value.hint


ELSEWHERE = {
    "a path above": "import '../outside'",
    "an absolute path": "import? '{outside}'",
    "one with no file": "import? '../nothing'",
    "in other quotes": 'import "../outside"',
    "without blanks": "import'../outside'",
    "on two lines": "import \\\n  '../outside'",
    "behind a mark": "\ufeffimport '../outside'",
    "after a recipe": "a:\n    @pwd\nimport '../outside'",
    "with Windows's line ends": "a:\r\n    @pwd\r\nimport \\\r\n '../outside'",
    "in a home": "import? '~/.profile'",
    "a home's name here": "import '~/inside.just'",
    "a module's path": "mod m '../outside'",
    "a module's path, perhaps": 'mod? m\t"{outside}" # why',
    "a module's directory": "mod m '..'",
    "a linked import": "import 'door.just'",
    "a linked module": "mod door",
    "a linked module in a directory": "mod room",
    "a module in a linked directory": "mod gate",
    "an import's import": "import 'inside.just'",
    "a module's import": "mod inside",
    "by links inside, by words not": "import 'far/../../outside'",
    "by words inside, by links not": "import 'same/../outside'",
    "by links nothing, by words a link that leads out": "import 'far/../door.just'",
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_nothing_outside_is_imported_listed_or_run(root: Path, case: str) -> None:
    outside = root.parent / "outside"
    write(outside, "leaked:\n    @echo leaked\n")
    for name in ("justfile", "mod.just"):
        write(root.parent / "directory" / name, "leaked:\n    @echo leaked\n")
    write(root / "deep" / "down" / "x", "")
    write(root / "~" / "inside.just", "")
    write(root / "inside.just", "import '../outside'\n")
    (root / "room").mkdir()
    for place, target in {"door.just": outside, "room/JustFile": outside, "gate": root.parent / "directory"}.items():
        (root / place).symlink_to(target)
    (root / "far").symlink_to("deep/down")
    (root / "same").symlink_to(".")
    write(root / "outside", "")
    write(root / "justfile", ELSEWHERE[case].format(outside=outside) + "\nmine:\n    @pwd\n")
    with pytest.raises(PathOutsideRoot):
        list_recipes(root)
    with pytest.raises(PathOutsideRoot):
        run_one(root, "leaked")


@pytest.mark.parametrize(
    "line",
    [
        *("import x'${HOME}/a'", 'import "\\u{2e}./outside"', "import '''../outside'''", 'import """../outside"""'),
        *("import? x '../outside'", "mod m x'../outside'", "import '../\n'", 'mod m """a"""', "import f'a'"),
    ],
)
def test_a_path_that_must_be_worked_out_is_refused(root: Path, line: str) -> None:
    write(root / "justfile", f"\n{line}\nmine:\n")
    with pytest.raises(InvalidState, match="justfile:2 names a file by more than a plain string"):
        list_recipes(root)


def test_what_only_looks_like_an_import_is_none(root: Path) -> None:
    text = "import:\n    @pwd\nmod a='1':\n    #!/bin/sh\n    import '../x'\nimportant := 'x'\n# import '../x'\n"
    write(root / "justfile", text + "text := '''\nimport os\n'''\n")
    assert [recipe.name for recipe in list_recipes(root)] == ["import", "mod"]


def test_what_a_module_or_an_import_may_be_called(root: Path) -> None:
    lines = [
        "import 'a.just'",
        "import? 'no'",
        "mod b",
        "mod c",
        "mod d 'e'",
        "mod f 'g/h'",
        "mod? i",
        f"mod j '{root}/k'",
    ]
    write(root / "justfile", "\n".join(lines))
    places = ("a.just", "b.just", "c/.JUSTFILE", "e/mod.just", "g/h", "k")
    for place in places:
        write(root / place, f"{place[0]}1:\n    @pwd\n")
    write(root / "b", "a file beside the module")
    assert [recipe.name for recipe in list_recipes(root)] == ["a1", "b::b1", "c::c1", "d::e1", "f::g1", "j::k1"]
    with open_root(str(root)) as top:
        assert set(justfiles(top, check)) >= {str(root / place) for place in places}


@pytest.mark.parametrize("line", ["", "import 'my.secret'", "mod m 'my.secret'", "import 'link'"])
def test_no_justfile_is_one_that_may_not_be_shown(root: Path, line: str) -> None:
    write(root / "my.secret", "PASSWORD=abc\n")
    (root / "link").symlink_to("my.secret")
    if line:
        write(root / "justfile", line)
    else:
        (root / "justfile").symlink_to("my.secret")
    with pytest.raises(Forbidden):
        list_recipes(root)


@pytest.mark.parametrize("target", ["../outside", "my.secret"])
def test_what_just_says_of_a_file_that_may_not_be_shown_is_not_told(root: Path, target: str) -> None:
    """It was swapped after it was looked at, by what runs when just is asked for the first time."""
    for path in (root.parent / "outside", root / "my.secret"):
        write(path, "PASSWORD=abc\n")
    write(root / "justfile", "import 'more'\n")
    write(root / "more", "")

    def swap(path: str, text: bytes) -> None:
        check(path, text)
        if path == "more":
            (root / "more").unlink()
            (root / "more").symlink_to(target)

    with pytest.raises(InvalidState) as refused, open_root(str(root)) as top:
        recipes(top, swap)
    assert refused.value.message == f"just can't read {root}/justfile: {UNREADABLE_IMPORT}"


def test_another_name_that_may_mean_two_recipes_is_left_out(root: Path) -> None:
    """Of `tools::build` just tells no more than `build`."""
    write(root / "justfile", "mod tools\nalias b := tools::build\nalias l := tools::lint\nbuild:\n    @echo mine\n")
    write(root / "tools.just", "[private]\nbuild:\n    @echo theirs\nlint:\n")
    assert [recipe.name for recipe in list_recipes(root)] == ["build", "l", "tools::lint"]


def test_a_justfile_that_leads_to_too_much_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_FILES", 2)
    write(root / "justfile", "import? 'a'\nimport? 'b'\n")
    with pytest.raises(LimitExceeded, match="over 2 files"):
        list_recipes(root)
    monkeypatch.setattr(limits, "MOST_BYTES", 10)
    with pytest.raises(LimitExceeded, match="over 10 bytes"):
        list_recipes(root)


def test_a_link_inside_the_root_is_as_good(root: Path) -> None:
    write(root / "build" / "tasks", "a:\n    @pwd\n")
    (root / "justfile").symlink_to("build/tasks")
    assert [recipe.name for recipe in list_recipes(root)] == ["a"]
    assert run_one(root, "a").out.decode().strip() == str(root)


def test_a_justfile_above_is_never_fallen_back_to(root: Path) -> None:
    write(root.parent / "justfile", "above:\n    @echo above\n")
    write(root / "justfile", "set fallback\na:\n    @pwd\n")
    assert [recipe.name for recipe in list_recipes(root)] == ["a"]
    ended = run_one(root, "above")  # as if it had been listed a moment ago
    assert ended.code == 1 and b"does not contain recipe `above`" in ended.out


def test_a_justfile_that_is_too_large_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "justfile", "a:\n    @pwd\n")
    monkeypatch.setattr(just, "LIST_BYTES", 100)
    with pytest.raises(LimitExceeded):
        list_recipes(root)


def test_a_recipe_gets_the_project_s_variables_and_not_the_hall_s(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {*CLIENT_VARIABLES, "CREWHALL_TOKEN", "CREWHALL_DATABASE_URL", "MCP_LOG_LEVEL", "JUST_UNSTABLE"}
    for name in own:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("JUST_DRY_RUN", "true")
    monkeypatch.setenv("SHOP_COLOUR", "red")
    monkeypatch.setenv("SHOP_PASS", "blue")
    write(root / ".env", "FROM_FILE=yes\n")
    write(root / "justfile", "set dotenv-load\nshow:\n    @env\n")
    shown, asked = (
        dict(re.findall(r"(?m)^(\w+)=(.*)$", run_one(root, "show", variables=names).out.decode()))
        for names in ((), ("SHOP_C*", "MCP_*", "CREWHALL_TOKEN"))
    )
    assert not (own | {"SHOP_COLOUR", "SHOP_PASS"}) & set(shown) and {"SHOP_COLOUR"} <= asked.keys()
    assert not (own | {"SHOP_PASS"}) & set(asked)
    assert (asked["SHOP_COLOUR"], shown["FROM_FILE"], shown["HOME"]) == ("red", "yes", os.environ["HOME"])


def test_just_is_found_in_path_or_beside_python_and_a_recipe_may_call_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root / "justfile", "a:\n    @just b; command -v crewhall || echo none\nb:\n    @echo b\n")
    beside = Path(sys.executable).parent
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "env"):
        (bare / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(bare))
    assert program() == str(beside / "just")
    assert run_one(root, "a").out == b"b\nnone\n"
    (bare / "just").symlink_to(beside / "just")
    assert program() == str(bare / "just")
    assert run_one(root, "a").out == b"b\nnone\n"


def test_without_just_the_refusal_says_how_to_get_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "justfile", "a:\n    @pwd\n")
    monkeypatch.setenv("PATH", str(root))
    monkeypatch.setattr(sys, "executable", str(root / "python"))
    with pytest.raises(Unavailable) as refused:
        list_recipes(root)
    assert "pip install 'crewhall[just]'" in refused.value.hint
