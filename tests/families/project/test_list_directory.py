"""list_directory through the door: what git would list, directory by directory, and never a name from outside."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall import cache
from crewhall.app import Hub, Origin
from crewhall.errors import Forbidden, InvalidInput, NotFound, PathOutsideRoot
from crewhall.identity import OPERATOR
from crewhall.outside.root_path import identity_of
from crewhall.token_budget import cost
from tests.outside.test_files import quick_place

pytestmark = [pytest.mark.parametrize("database", ["sqlite"], indirect=True), pytest.mark.slow]
List = Callable[..., dict[str, Any]]
WHO = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.file.allow=always")
ODD = (
    *(":colon", ":(icase)x", ":!not", "*star", "[ab]", "-dash", " blank ", "line\nend", "tab\t", 'quo"te'),
    *("back\\slash", "caf\u00e9", "!bang"),
)


def git(where: Path, *words: str) -> str:
    """Git as the person of this test uses it, with the settings in their home."""
    ended = subprocess.run(["git", *WHO, *words], cwd=where, capture_output=True, check=True)
    return os.fsdecode(ended.stdout)


def write(root: Path, *places: str) -> None:
    for place in places:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text("x\n")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person who has rules for all repositories."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "rules").write_text("*.swp\n.DS_Store\n")
    (home / ".gitconfig").write_text(f"[core]\n\texcludesFile = {home}/rules\n[user]\n\tname = Ada\n\temail = a@b\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    return home


@pytest.fixture
def repo(tmp_path: Path, home: Path, model_repo: Path) -> Path:
    """A repository of one's own, in which a person has rules of theirs."""
    shutil.copytree(model_repo, tmp_path / "repo", symlinks=True)
    return tmp_path / "repo"


@pytest.fixture(scope="module")
def model_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rules of every kind, submodules, nested repositories, and names that are not easy to say."""
    tmp_path = tmp_path_factory.mktemp("made")
    library = tmp_path / "library"
    write(library, "lib.c", "inner/x.c", ".gitignore")
    (library / ".gitignore").write_text("*.o\n")
    repo = tmp_path / "repo"
    repo.mkdir()
    for one in (library, repo):
        git(one, "init", "-q", "-b", "main")
    git(library, "add", "-A")
    git(library, "commit", "-qm", "first")
    write(repo, "a.py", "src/b.py", "src/deep/c.py", "build/kept.txt", "forced.log", *(f"odd/{name}" for name in ODD))
    (repo / ".gitignore").write_text("*.log\n!keep.log\nbuild/\n/only-top\nnode_modules/\n*.tmp\n[ab]\n")
    write(repo, "src/deep/.gitignore")
    (repo / "src/deep/.gitignore").write_text("!*.tmp\nlocal/\n")
    git(repo, "add", "-A", "--force")
    git(repo, "submodule", "--quiet", "add", str(library), "vendor/library")
    git(repo, "submodule", "--quiet", "add", str(library), "vendor/empty")
    git(repo, "commit", "-qm", "first")
    git(repo, "submodule", "--quiet", "deinit", "-f", "vendor/empty")
    (repo / ".git/info/exclude").write_text("mine.txt\n")
    write(repo, "x.log", "keep.log", "build/junk", "only-top", "src/only-top", "node_modules/p/q.js", "mine.txt")
    write(repo, "a.swp", "src/.DS_Store", "src/x.tmp", "src/deep/x.tmp", "src/deep/local/y", "new/f", "new/g/h.log")
    write(
        repo,
        "new/node_modules/z",
        "new/i.tmp",
        "new/odd/x.tmp",
        *(f"new/odd/{name}" for name in ODD),
        "vendor/library/x.o",
    )
    write(repo, "vendor/library/new.c", "nested/n.py", "ignored.log/inside", "logs/one.log", "a.py~")
    (repo / "empty").mkdir()
    (repo / "link").symlink_to("src")
    (repo / "dangling").symlink_to("nowhere")
    git(repo / "nested", "init", "-q")
    return repo


@pytest.fixture
def lister(make_hub: Callable[..., Hub]) -> Callable[[Path], List]:
    hub = make_hub()

    def at(root: Path) -> List:
        def ask(path: str = ".", **more: Any) -> dict[str, Any]:
            return hub.call(
                "list_directory",
                {"path": path, **more},
                OPERATOR,
                origin=Origin(worktree=str(root), identity=identity_of(str(root))),
            )

        return ask

    return at


def entries(ask: List, path: str, **more: Any) -> Iterator[dict[str, Any]]:
    """All entries of a directory, page by page."""
    offset: int | None = 0
    while offset is not None:
        page = ask(path, offset=offset, **more)
        yield from page["entries"]
        offset = page["next_offset"]


@pytest.mark.parametrize("name", ["{:05}", "\u9f98\U0001f408{}", "q7-Zk_x9{}.Vw3-pL0" * 6, "\x01\x02{}\x7f"])
def test_no_page_has_more_than_20_000_tokens_and_all_pages_are_the_directory(
    lister: Callable[[Path], List], tmp_path: Path, name: str
) -> None:
    root = tmp_path / "many"
    names = sorted(name.format(*[number] * 6) for number in range(2500))
    write(root, *names)
    ask, found, offset, pages = lister(root), list[str](), 0, 0
    while offset is not None:
        page = ask(offset=offset, limit=5000)
        assert cost(page) <= 20_000 and page["entries"] and page["total"] == 2500
        found, offset, pages = found + [entry["name"] for entry in page["entries"]], page["next_offset"], pages + 1
    assert found == names and pages > 1


def walk(ask: List, root: Path, path: str = ".") -> Iterator[str]:
    """What a client finds by listing every directory, in the words of `git ls-files`."""
    for entry in entries(ask, path):
        place = os.path.normpath(f"{path}/{entry['name']}")
        if entry["type"] != "directory":
            yield place
        elif (root / place / ".git").exists():
            yield f"{place}/"
        else:
            yield from walk(ask, root, place)


def as_git_says(where: Path) -> set[str]:
    """What git knows or would add, as far as it is there."""
    names = git(where, "ls-files", "-z", "-co", "--exclude-standard").split("\0")
    return {name for name in names if name and os.path.lexists(where / name)}


def test_a_walk_finds_what_git_lists_from_whichever_directory(lister: Callable[[Path], List], repo: Path) -> None:
    """By a server at the top, and by one at that directory."""
    for place in (".", "src", "src/deep", "new", "odd", "vendor/library", "nested", "build", "logs"):
        root = repo / place
        assert set(walk(lister(root), root)) == as_git_says(root), place
        assert list(entries(lister(repo), place)) == list(entries(lister(root), ".")), place


def test_a_directory_of_a_worktree_has_the_rules_of_its_repository(
    lister: Callable[[Path], List], repo: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    git(repo, "worktree", "add", "-q", str(tree), "-b", "fix")
    write(tree, "mine.txt", "x.log", "new.py")
    assert set(walk(lister(tree), tree)) == as_git_says(tree)
    assert "new.py" in as_git_says(tree) and "mine.txt" not in as_git_says(tree)


def test_entries_have_types_and_sizes_and_come_by_name(lister: Callable[[Path], List], repo: Path) -> None:
    os.mkfifo(repo / "pipe")
    found = lister(repo)()
    assert (found["path"], found["total"], found["next_offset"]) == (".", len(found["entries"]), None)
    names = [entry["name"] for entry in found["entries"]]
    assert names == sorted(names) and ".git" not in names and ".gitignore" in names
    seen = {entry["name"]: (entry["type"], entry["size"]) for entry in found["entries"]}
    assert seen["a.py"] == ("file", 2) and seen["src"] == ("directory", None) and seen["empty"] == ("directory", None)
    assert seen["link"] == seen["dangling"] == ("symlink", None) and seen["nested"] == ("directory", None)
    assert seen["build"] == ("directory", None), "a file in it is tracked, whatever the rules say"
    assert seen["logs"] == ("directory", None), "no rule is about it"
    assert seen["pipe"] == ("other", None)
    assert {entry["name"]: entry["type"] for entry in lister(repo)("vendor")["entries"]} == {
        "library": "submodule",
        "empty": "submodule",
    }


def test_what_is_ignored_is_counted_and_shown_when_asked_for(lister: Callable[[Path], List], repo: Path) -> None:
    left = {"x.log", "only-top", "node_modules", "mine.txt", "a.swp", "ignored.log"}
    found, whole = lister(repo)(), lister(repo)(include_ignored=True)
    assert found["ignored"] == len(left) and found["note"] is None
    shown = {entry["name"] for entry in found["entries"]}
    assert {entry["name"] for entry in whole["entries"]} == shown | left
    assert whole["ignored"] == 0 and whole["total"] == found["total"] + len(left)


def test_a_directory_that_git_ignores_says_so(lister: Callable[[Path], List], repo: Path) -> None:
    found = lister(repo)("node_modules/p")
    assert (found["entries"], found["total"], found["ignored"]) == ([], 0, 1)
    assert found["note"] == "Git ignores all that is here; include_ignored lists it."
    assert lister(repo)("empty")["note"] is None
    assert [one["name"] for one in lister(repo)("node_modules/p", include_ignored=True)["entries"]] == ["q.js"]


def test_a_directory_outside_any_repository_has_its_own_rules_and_the_persons(
    lister: Callable[[Path], List], home: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    write(plain, "a.py", "a.swp", "a.log", "sub/b.py", "sub/b.log", "sub/keep.log", "sub/x.git/HEAD")
    (plain / ".gitignore").write_text("*.log\n")
    (plain / "sub/.gitignore").write_text("!keep.log\n")
    found = lister(plain)()
    assert [one["name"] for one in found["entries"]] == [".gitignore", "a.py", "sub"] and found["note"] is None
    assert [one["name"] for one in lister(plain)("sub")["entries"]] == [".gitignore", "b.py", "keep.log", "x.git"]


def test_what_is_known_of_a_directory_is_asked_again_when_the_settings_change(
    lister: Callable[[Path], List], repo: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changes but the configuration, and then a file that it includes; how often git is run is counted."""
    monkeypatch.setattr(cache, "SETTLED_NS", 0)
    write(tmp_path, "bin/git", "ran")
    (tmp_path / "bin/git").write_text(f'#!/bin/sh\necho >> {tmp_path}/ran\nexec {shutil.which("git")} "$@"\n')
    (tmp_path / "bin/git").chmod(0o755)
    (home / "secrets").write_text("a.py~\n")
    ask, path, seen = lister(repo), os.environ["PATH"], []

    def listed_names() -> list[str]:
        (tmp_path / "ran").write_text("")
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{path}")
        names = [entry["name"] for entry in ask()["entries"]]
        monkeypatch.setenv("PATH", path)
        seen.append(len((tmp_path / "ran").read_text()))
        return names

    before = listed_names()
    assert listed_names() == before and "a.py~" in before and "a.swp" not in before
    git(repo, "config", "core.excludesFile", str(home / "secrets"))
    assert [listed_names(), listed_names()] == [before, before] and seen == [2, 1, 3, 1]
    git(repo, "config", "--unset", "core.excludesFile")
    git(repo, "config", "include.path", str(home / "more"))
    assert listed_names() == before
    (home / "more").write_text(f"[core]\n\texcludesFile = {home}/secrets\n")
    assert listed_names() == before


def test_names_that_are_not_text_are_counted(lister: Callable[[Path], List], repo: Path) -> None:
    os.mkdir(repo / "bytes")
    for name in (b"ok", b"b\xff", b"\xc3("):
        with open(os.path.join(os.fsencode(repo / "bytes"), name), "xb"):
            pass
    found = lister(repo)("bytes")
    assert [one["name"] for one in found["entries"]] == ["ok"] and found["total"] == 1 and found["ignored"] == 0
    assert found["note"] == "Left out: 2 whose names are not UTF-8."


def test_pages_follow_one_another(lister: Callable[[Path], List], repo: Path) -> None:
    ask = lister(repo)
    whole = ask()
    first = ask(limit=3)
    assert first["entries"] == whole["entries"][:3] and first["next_offset"] == 3 and first["total"] == whole["total"]
    assert list(entries(ask, ".", limit=4)) == whole["entries"]
    assert ask(offset=999)["entries"] == [] and ask(offset=999)["next_offset"] is None


def test_twenty_thousand_files_agree_with_git(lister: Callable[[Path], List], home: Path) -> None:
    """Half of them are tracked; in each directory some are ignored by the top's rules, some by its own."""
    with quick_place() as place:
        many = fill(Path(place))
        found = set(walk(lister(many), many))
        assert found == as_git_says(many)
        assert 17_000 < len(found) < 20_000


def fill(many: Path) -> Path:
    for number in range(25):
        directory = many / ("added" if number % 2 else "new") / f"d{number:02}"
        directory.mkdir(parents=True)
        (directory / ".gitignore").write_text(f"*{number % 10}.txt\n!*5{number % 10}.txt\n")
        for name in range(800):
            os.close(os.open(directory / f"{name:03}.{'txt' if name % 3 else 'log'}", os.O_CREAT | os.O_WRONLY))
    (many / ".gitignore").write_text("*9.log\n")
    git(many, "init", "-q")
    git(many, "add", "added")
    return many


@pytest.mark.parametrize(
    ("path", "failure"),
    [
        ("..", PathOutsideRoot),
        ("/etc", PathOutsideRoot),
        ("door", PathOutsideRoot),
        ("nope", NotFound),
        ("a.py", InvalidInput),
        (".git", Forbidden),
        (".git/refs", Forbidden),
        ("sneaky", Forbidden),
    ],
)
def test_what_cannot_be_listed_is_refused(
    lister: Callable[[Path], List], tmp_path: Path, path: str, failure: type[Exception]
) -> None:
    root = tmp_path / "root"
    write(root, "a.py", ".git/refs/x")
    (root / "door").symlink_to("/etc")
    (root / "sneaky").symlink_to(".git")
    with pytest.raises(failure):
        lister(root)(path, include_ignored=True)
