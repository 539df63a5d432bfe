"""A forecast sees uncommitted work, and leaves no trace."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from crewhall.errors import Cancelled, NotFound, Unavailable
from crewhall.outside.forecast import FILES, UNRELATED, MergeCandidate, MergeForecast, Pair, forecast
from crewhall.outside.git import GitRepository, open_repository
from crewhall.outside.worktrees import add_worktree
from crewhall.stop import Stop
from tests.outside.repos import change, commit, fingerprint, git, make_repository
from tests.outside.test_git import slow_git


def worktree(repo: GitRepository, tmp_path: Path, name: str) -> Path:
    path = tmp_path / "trees" / name
    add_worktree(repo, str(path), name, "main")
    return path


def place(path: Path) -> MergeCandidate:
    return MergeCandidate(path.name, str(path), path.name)


@pytest.fixture
def trees(repo: GitRepository, tmp_path: Path) -> list[Path]:
    """One has committed, two have only edited, and one has a new file: a, b and c change the same line."""
    a, b, c, d = (worktree(repo, tmp_path, name) for name in "abcd")
    change(a / "file-0", "from a")
    commit(a, "committed")
    change(b / "file-0", "from b")
    change(b / "file-1", "from b")
    change(c / "file-0", "from c")
    git(c, "add", "-A")
    (d / "fresh").write_text("untracked")
    return [a, b, c, d]


def conflicts_in(told: MergeForecast) -> set[tuple[str, str, tuple[str, ...]]]:
    return {(pair.a, pair.b, pair.files) for pair in told.conflicts}


def test_places_that_change_the_same_lines_conflict_committed_or_not(repo: GitRepository, trees: list[Path]) -> None:
    told = forecast(repo, [place(tree) for tree in trees])
    assert conflicts_in(told) == {("a", "b", ("file-0",)), ("a", "c", ("file-0",)), ("b", "c", ("file-0",))}
    assert (told.compared, told.unreadable, told.against_base) == (6, (), ())


def test_nothing_is_left_behind(repo: GitRepository, trees: list[Path], tmp_path: Path) -> None:
    before = fingerprint(tmp_path)
    forecast(repo, [place(tree) for tree in trees], base="main")
    assert fingerprint(tmp_path) == before


def test_untracked_files_and_odd_names_conflict_too(repo: GitRepository, tmp_path: Path) -> None:
    names = [b"same", b"new\nline", b"bad \xff"]
    places = []
    for tree in (worktree(repo, tmp_path, "a"), worktree(repo, tmp_path, "b")):
        for name in names:
            Path(os.fsdecode(os.path.join(os.fsencode(tree), name))).write_text(tree.name)
        places.append(place(tree))
    (pair,) = forecast(repo, places).conflicts
    assert (set(pair.files), pair.total) == ({"same", "new\nline", "bad \ufffd"}, 3)


def test_a_deletion_and_a_change_conflict_and_a_move_does_not(repo: GitRepository, tmp_path: Path) -> None:
    gone, moved, edited = (worktree(repo, tmp_path, name) for name in ("gone", "moved", "edited"))
    (gone / "file-0").unlink()
    (moved / "file-0").rename(moved / "elsewhere")
    change(edited / "file-0", "edited", line=29)
    told = forecast(repo, [place(gone), place(moved), place(edited)], [("gone", "edited"), ("moved", "edited")])
    assert conflicts_in(told) == {("gone", "edited", ("file-0",))}


def test_each_place_against_a_base(repo: GitRepository, trees: list[Path]) -> None:
    change(Path(repo.root, "file-1"), "on main")
    commit(repo.root, "main moves")
    told = forecast(repo, [place(tree) for tree in trees], pairs=[], base="main")
    assert told.against_base == (Pair("b", "main", ("file-1",), 1),)
    assert (told.conflicts, told.compared) == ((), 4)
    with pytest.raises(NotFound, match="nothing is no commit"):
        forecast(repo, [], base="nothing")


def test_a_place_in_the_middle_of_a_merge_counts_with_what_it_merges(repo: GitRepository, trees: list[Path]) -> None:
    _, b, *_ = trees
    commit(b, "work")
    git(b, "merge", "-q", "a", check=False)
    change(b / "file-0", "resolved")
    (b / "file-0").write_text("resolved\n" + "".join(f"line {line}\n" for line in range(1, 30)))
    assert forecast(repo, [place(tree) for tree in trees], [("a", "b")]).conflicts == ()


def test_a_directory_that_is_gone_counts_by_its_branch(repo: GitRepository, trees: list[Path]) -> None:
    shutil.rmtree(trees[0])
    places = [MergeCandidate("a", str(trees[0]), "a"), MergeCandidate("by-branch", None, "a"), place(trees[1])]
    told = forecast(repo, places)
    assert conflicts_in(told) == {("a", "b", ("file-0",)), ("by-branch", "b", ("file-0",))}


def test_a_tag_or_a_commit_is_a_place_too(repo: GitRepository, trees: list[Path]) -> None:
    git(repo.root, "tag", "-a", "v1", "-m", "one", "a")
    head = git(repo.root, "rev-parse", "a")
    git(repo.root, "tag", "d", "a")  # of two names the branch's counts
    told = forecast(repo, [MergeCandidate(name, None, name) for name in ("v1", head, "d")] + [place(trees[1])])
    assert conflicts_in(told) == {("v1", "b", ("file-0",)), (head, "b", ("file-0",))}
    shutil.rmtree(trees[0])
    git(repo.root, "branch", "-qm", "a", "renamed")
    git(repo.root, "tag", "a", "renamed")
    told = forecast(repo, [place(trees[0])])  # a worktree's branch is a branch
    assert [name for name, _ in told.unreadable] == ["a"]


def test_without_room_for_temporary_files_there_is_none(
    repo: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(Unavailable, match="no temporary directory can be made"):
        forecast(repo, [])


def own_settings(text: str) -> None:
    """Settings of the person's own; `no_own_settings` has made a place for them."""
    path = Path(os.environ["HOME"], ".gitconfig")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


@pytest.fixture
def merged(repo: GitRepository, tmp_path: Path) -> list[Path]:
    """Two that change a text in different places and one line of another differently; a third has only edited."""
    root = Path(repo.root)
    (root / ".gitattributes").write_text("*.txt merge=dri.ver filter=fil.ter\n*.two merge=second\n")
    for name in ("far.txt", "near.txt", "x.two", "y.none"):
        (root / name).write_text("".join(f"{number}\n" for number in range(9)))
    commit(root, "texts")
    trees = [worktree(repo, tmp_path, name) for name in "abc"]
    for number, tree in enumerate(trees):
        change(tree / "far.txt", f"from {tree.name}", 4 * number)
        for name in ("near.txt", "x.two", "y.none"):
            change(tree / name, f"from {tree.name}", 4)
    for tree in trees[:2]:
        commit(tree, "changed")
    return trees


def root_of(repo: GitRepository) -> Path:
    return Path(repo.root)


def program(tmp_path: Path, name: str, does: str = "exit 0") -> str:
    """A command that notes that it ran."""
    return f"echo {name} >> {tmp_path}/ran; {does}"


def test_no_program_of_the_repositorys_settings_runs_and_texts_are_merged_as_texts(
    repo: GitRepository, merged: list[Path], tmp_path: Path
) -> None:
    git(repo.root, "config", "merge.dri.ver.driver", program(tmp_path, "driver"))
    git(repo.root, "config", "merge.dri.ver.recursive", "second")
    git(repo.root, "config", "merge.default", "third")
    git(repo.root, "config", "merge.third.driver", program(tmp_path, "default driver"))
    git(repo.root, "config", "extensions.worktreeConfig", "true")
    git(repo.root, "config", "--worktree", "merge.second.driver", program(tmp_path, "worktree's driver"))
    for tree in (root_of(repo), *merged):
        for kind in ("clean", "smudge"):
            git(tree, "config", "--worktree", f"filter.fil.ter.{kind}", program(tmp_path, kind, "cat"))
        git(tree, "config", "--worktree", "filter.fil.ter.process", program(tmp_path, "process", "exit 1"))
        git(tree, "config", "--worktree", "filter.fil.ter.required", "true")
    (tmp_path / "ran").unlink(missing_ok=True)
    before = fingerprint(tmp_path)
    told = forecast(repo, [place(tree) for tree in merged])
    assert told.unreadable == () and not (tmp_path / "ran").exists()
    assert conflicts_in(told) == {(a, b, ("near.txt", "x.two", "y.none")) for a, b in ("ab", "ac", "bc")}
    assert fingerprint(tmp_path) == before


def test_programs_of_the_persons_own_settings_run(repo: GitRepository, merged: list[Path], tmp_path: Path) -> None:
    """What the repository says by the same name does not take their place."""
    driver, clean = program(tmp_path, "driver"), program(tmp_path, "clean", "cat")
    own_settings(f'[merge "dri.ver"]\n\tdriver = "{driver}"\n[filter "fil.ter"]\n\tclean = "{clean}"\n')
    git(repo.root, "config", "merge.dri.ver.driver", program(tmp_path, "planted"))
    git(repo.root, "config", "filter.fil.ter.clean", program(tmp_path, "planted", "cat"))
    (tmp_path / "ran").unlink(missing_ok=True)
    told = forecast(repo, [place(tree) for tree in merged])
    assert set((tmp_path / "ran").read_text().split()) == {"driver", "clean"}
    assert conflicts_in(told) == {(a, b, ("x.two", "y.none")) for a, b in ("ab", "ac", "bc")}


def test_what_can_t_be_read_is_named_and_the_rest_is_compared(repo: GitRepository, trees: list[Path]) -> None:
    a, b, c, _ = trees
    other = make_repository(a.parent / "other")
    own_settings('[filter "broken"]\n\tclean = false\n\trequired = true\n')
    (c / ".gitattributes").write_text("* filter=broken\n")
    places = [
        place(a),
        place(b),
        place(c),
        MergeCandidate("no-branch", None, "nothing"),
        MergeCandidate("other", other.root, "main"),
    ]
    told = forecast(repo, places)
    assert conflicts_in(told) == {("a", "b", ("file-0",))}
    reasons = dict(told.unreadable)
    assert "could not read all files" in reasons["c"]
    assert "no commit on nothing" in reasons["no-branch"]
    assert "is not a worktree" in reasons["other"]


def test_histories_with_nothing_in_common_conflict_with_a_note(repo: GitRepository, trees: list[Path]) -> None:
    loner = trees[3]
    git(loner, "checkout", "-q", "--orphan", "loner")
    commit(loner, "a history of its own")
    told = forecast(repo, [place(tree) for tree in trees])
    assert conflicts_in(told) >= {("a", "b", ("file-0",)), ("a", "d", ())}
    assert {pair.note for pair in told.conflicts if pair.b == "d"} == {UNRELATED}
    assert len(told.conflicts) == 6


def test_many_files_are_counted_and_few_are_named(tmp_path: Path, no_own_settings: None) -> None:
    repo = make_repository(tmp_path / "shop", files=30)
    trees = [worktree(repo, tmp_path, name) for name in "ab"]
    for tree in trees:
        for number in range(30):
            change(tree / f"file-{number}", tree.name)
    (pair,) = forecast(repo, [place(tree) for tree in trees]).conflicts
    assert (len(pair.files), pair.total) == (FILES, 30)


def test_odd_paths_of_the_repository_itself(tmp_path: Path, no_own_settings: None) -> None:
    repo = make_repository(tmp_path / 'a:b "quoted" \\ new\nline')
    trees = [worktree(repo, tmp_path, name) for name in "ab"]
    for tree in trees:
        change(tree / "file-0", tree.name)
    assert forecast(repo, [place(tree) for tree in trees]).conflicts == (Pair("a", "b", ("file-0",), 1),)


def test_a_forecast_ends_with_its_call_and_needs_a_new_git(
    repo: GitRepository, trees: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop(60)
    watched = open_repository(repo.root, stop)
    stop.cancel()
    with pytest.raises(Cancelled):
        forecast(watched, [place(tree) for tree in trees])
    monkeypatch.setenv("PATH", slow_git(tmp_path, "version", "echo git version 2.38.9; exit")["PATH"])
    with pytest.raises(Unavailable, match=r"needs git 2\.39"):
        forecast(repo, [])


def test_no_places_and_one_place_have_no_conflicts(repo: GitRepository, trees: list[Path]) -> None:
    assert forecast(repo, []) == forecast(repo, [place(trees[0])]) == MergeForecast((), (), (), 0)
