"""Repositories of every shape: an instance lives in it and leaves nothing, or is refused with a hint."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crewhall.errors import Failure
from tests.families.crew.conftest import Site
from tests.families.crew.odd_repositories import live, start
from tests.outside.repos import change, commit, git, refs

pytestmark = pytest.mark.slow

ALLOWED = ("-c", "protocol.file.allow=always")


@pytest.fixture
def database(sqlite_file: Path, tmp_path: Path) -> str:
    """SQLite only: it is git and the disk that differ here."""
    return shutil.copy(sqlite_file, str(tmp_path / "hall.db"))


@pytest.fixture(autouse=True)
def no_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own git settings have no say in these tests."""
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "person"))


# What is checked out


def test_one_without_a_commit_is_refused(site: Site, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "empty")
    failure = site.refused_start(repository_path=str(tmp_path / "empty"))
    assert failure.code == "INVALID_STATE" and "has no commit" in failure.message and "Commit something" in failure.hint


def test_an_unborn_branch_is_no_base(site: Site) -> None:
    git(site.repository, "checkout", "-q", "--orphan", "fresh")
    failure = site.refused_start()
    assert failure.code == "INVALID_INPUT" and "'fresh'" in failure.message and "Give base_branch" in failure.hint
    assert live(site, base_branch="main")["base_branch"] == "main"


def test_uncommitted_work_stays_where_it_is(site: Site) -> None:
    change(site.repository / "file-0", "changed")
    change(site.repository / "file-1", "staged")
    git(site.repository, "add", "file-1")
    (site.repository / "notes").write_text("mine\n")
    made = live(site)  # which compares the files and the index
    assert made["base_branch"] == "main"
    tree = Path(start(site)["worktree_path"])
    assert not (tree / "notes").exists() and "changed" not in (tree / "file-0").read_text()


def diverge(root: Path) -> None:
    """Two branches that change the same line; `theirs` is checked out."""
    git(root, "checkout", "-q", "-b", "theirs")
    change(root / "file-0", "theirs")
    commit(root, "theirs")
    git(root, "checkout", "-q", "main")
    change(root / "file-0", "ours")
    commit(root, "ours")
    git(root, "checkout", "-q", "theirs")


def test_a_merge_under_way_can_be_finished_afterwards(site: Site) -> None:
    diverge(site.repository)
    git(site.repository, "merge", "main", check=False)
    assert live(site)["base_branch"] == "theirs"
    (site.repository / "file-0").write_text("both\n")
    git(site.repository, "commit", "-qam", "merged")
    assert len(git(site.repository, "rev-parse", "HEAD^@").split()) == 2


def test_in_a_rebase_the_base_must_be_named(site: Site) -> None:
    diverge(site.repository)
    git(site.repository, "rebase", "main", check=False)
    failure = site.refused_start()
    assert failure.code == "INVALID_STATE" and "in the middle of a rebase that began on theirs" in failure.message
    assert "Give base_branch, such as 'theirs'" in failure.hint
    assert live(site, base_branch="theirs")["base_branch"] == "theirs"
    (site.repository / "file-0").write_text("both\n")
    git(site.repository, "add", "file-0")
    git(site.repository, "rebase", "--continue")
    assert git(site.repository, "branch", "--show-current") == "theirs"


def test_in_a_bisect_the_base_must_be_named(site: Site) -> None:
    diverge(site.repository)
    git(site.repository, "bisect", "start", "HEAD", "HEAD~1")
    git(site.repository, "checkout", "-q", "--detach", "main")
    failure = site.refused_start(base_branch="HEAD")
    assert "in the middle of a bisect that began on theirs" in failure.message and "base_branch" in failure.hint
    live(site, base_branch="main")


@pytest.mark.parametrize("given", [{}, {"base_branch": "HEAD"}])
def test_a_detached_head_is_a_base_by_its_commit(site: Site, given: dict[str, str]) -> None:
    diverge(site.repository)
    git(site.repository, "checkout", "-q", "--detach")
    head = git(site.repository, "rev-parse", "HEAD")
    assert live(site, **given)["base_branch"] == head


def test_a_base_that_moves_on_keeps_no_empty_branch(site: Site) -> None:
    made = start(site)
    change(site.repository / "file-0", "meanwhile")
    commit(site.repository, "meanwhile")
    site.call("instance_abandon", id=made["instance_id"])
    assert list(refs(site.repository)) == ["refs/heads/main"]


def test_in_a_persons_own_worktree_its_branch_is_the_base(site: Site, tmp_path: Path) -> None:
    own = tmp_path / "own"
    git(site.repository, "worktree", "add", "-q", "-b", "feature", str(own))
    (own / "deep").mkdir()
    (own / "deep" / "new").write_text("new\n")
    head = commit(own, "feature")
    made = start(site, repository_path=str(own / "deep"))
    assert made["base_branch"] == "feature" and git(made["worktree_path"], "rev-parse", "HEAD") == head
    assert Path(made["worktree_path"]).parent == Path(f"{site.repository}-worktrees")
    site.call("instance_abandon", id=made["instance_id"])
    assert git(own, "status", "--porcelain") == "" and "feature" in git(own, "branch", "--show-current")


# Names that are taken


def test_names_that_a_person_has_are_skipped(site: Site) -> None:
    head = git(site.repository, "rev-parse", "HEAD")
    names = [f"work-trial-a{number}" for number in range(1, 2001)] + ["work-trial-ab", "work-trial-a7-x"]
    (site.repository / ".git" / "packed-refs").write_text(
        "# pack-refs with: peeled fully-peeled sorted \n"
        + "".join(f"{head} refs/heads/{name}\n" for name in sorted(names))
    )
    assert start(site)["instance_id"] == "work-trial-a2001"
    git(site.repository, "branch", "Work-TRIAL-A2002")  # the same name to some disks
    git(site.repository, "branch", "work-trial-a2003/part")
    home = Path(f"{site.repository}-worktrees")
    (home / "work-trial-a2004").mkdir()
    (home / "work-trial-a2004" / "mine").touch()
    git(site.repository, "worktree", "add", "-q", "--detach", str(home / "work-trial-a2005"))
    before = refs(site.repository)
    made = start(site)
    assert made["instance_id"] == "work-trial-a2006"
    site.call("instance_abandon", id=made["instance_id"])
    assert refs(site.repository) == before and (home / "work-trial-a2004" / "mine").exists()


def put_files(root: Path, path: Path) -> None:
    path.mkdir(parents=True)
    (path / "mine").write_text("mine")


def put_worktree(root: Path, path: Path) -> None:
    git(root, "worktree", "add", "-q", "--detach", str(path))
    (path / "mine").write_text("mine")


@pytest.mark.parametrize("put", [put_files, put_worktree])
def test_a_path_that_a_person_takes_meanwhile_is_left_alone(site: Site, put: Callable[[Path, Path], None]) -> None:
    path = Path(f"{site.repository}-worktrees") / "work-trial-a1"
    site.hub.journal.at = lambda point: put(site.repository, path) if point == "worktree begins" else None
    with pytest.raises(Failure) as refused:
        start(site)
    assert refused.value.code == "CONFLICT" and refused.value.hint and (path / "mine").read_text() == "mine"
    left = site.leftovers()
    assert (left["rows"], left["operations"], left["agents"], left["runs"]) == ([], [], [], [])
    assert left["refs"] == "refs/heads/main"
