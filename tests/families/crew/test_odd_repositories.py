"""Repositories of every shape: an instance lives in it and leaves nothing, or is refused with a hint."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crewhall.errors import Cancelled, Failure
from crewhall.stop import Stop
from tests.conftest import eventually
from tests.families.crew.conftest import PERSON, Site
from tests.families.crew.odd_repositories import live, site_at, start, traces
from tests.outside.repos import change, commit, fingerprint, git, make_repository, refs

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


# Where it lies, and how it was made


def bare(site: Site) -> Path:
    git(site.repository.parent, "clone", "-q", "--bare", str(site.repository), "bare.git")
    return site.repository.parent / "bare.git"


def bare_behind_a_link(site: Site) -> Path:
    project = site.repository.parent / "project"
    git(site.repository.parent, "clone", "-q", "--bare", str(site.repository), str(project / ".bare"))
    (project / ".git").write_text("gitdir: ./.bare\n")
    return project


def shallow(site: Site) -> Path:
    change(site.repository / "file-0", "second")
    commit(site.repository, "second")
    git(site.repository.parent, "clone", "-q", "--depth=1", site.repository.as_uri(), "shallow")
    return site.repository.parent / "shallow"


def sparse(site: Site) -> Path:
    (site.repository / "docs").mkdir()
    (site.repository / "docs" / "page").write_text("page\n")
    commit(site.repository, "docs")
    git(site.repository, "sparse-checkout", "set", "elsewhere")
    assert not (site.repository / "docs").exists()
    return site.repository


def below_another(site: Site) -> Path:
    inner = site.repository / "vendor" / "inner"
    make_repository(inner)
    return inner


def submodule_itself(site: Site) -> Path:
    return with_submodule(site) / "libs" / "lib"


def git_directory_elsewhere(site: Site) -> Path:
    git(site.repository.parent, "clone", "-q", "--separate-git-dir=apart", str(site.repository), "cloned")
    return site.repository.parent / "cloned"


def with_a_crashed_git(site: Site) -> Path:
    for name in ("index.lock", "config.lock", "HEAD.lock"):
        (site.repository / ".git" / name).touch()
    return site.repository


def with_a_remote_that_is_gone(site: Site) -> Path:
    git(site.repository, "remote", "add", "origin", "https://localhost:1/gone.git")
    return site.repository


SHAPES = [bare, bare_behind_a_link, shallow, sparse, below_another, submodule_itself, git_directory_elsewhere]
SHAPES += [with_a_crashed_git, with_a_remote_that_is_gone]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_instance_lives_in_any_of_these(site: Site, shape: Callable[[Site], Path]) -> None:
    site.repository = shape(site)
    made = live(site)
    assert made["worktree_path"].startswith(f"{os.path.realpath(site.repository)}") and made["base_branch"] == "main"


NAMES = ["two  words ünï 漢 🎉", '-it\'s "quoted"', "two\nlines", "#{pid} $HOME `id` %d back\\slash;"]


@pytest.mark.parametrize("name", NAMES)
def test_a_path_may_have_any_characters(site: Site, name: str) -> None:
    moved = site.repository.parent / name
    site.repository.rename(moved)
    site.repository = moved
    git(moved, "update-index", "-q", "--refresh")
    made = live(site)
    assert made["worktree_path"] == f"{moved}-worktrees/work-trial-a1"
    again = start(site)
    words = [word.replace("attach-session", "has-session") for word in shlex.split(again["attach"])]
    assert subprocess.run(words, check=False).returncode == 0
    assert site.call("instance_check")["differences"] == []
    site.call("instance_stop", id=again["instance_id"])
    assert site.call("instance_restart", id=again["instance_id"])["status"] == "started"


def test_the_halls_directory_may_have_spaces_and_unicode_too(tmp_path: Path) -> None:
    home = tmp_path / NAMES[0]
    with site_at(tmp_path, home) as site:
        live(site)
        start(site)
        assert site.call("instance_check")["differences"] == []
        (tmp_path / "other").mkdir()
        with site_at(tmp_path / "other", home) as other:  # a hall that knows nothing of the instance
            found = other.call("instance_check")["differences"]
            assert ("stray_session", True) in [(one["name"], one["is_fixable"]) for one in found], found


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


# Programs that git would run

HOOKS = {"post-checkout": "sleep 600", "reference-transaction": "exit 1", "pre-commit": "exit 1"}


@pytest.mark.parametrize("place", [".git/hooks", "own hooks"])
def test_hooks_that_fail_or_hang_have_no_say(site: Site, place: str) -> None:
    where = site.repository / place
    where.mkdir(exist_ok=True)
    for name, what in HOOKS.items():
        (where / name).write_text(f"#!/bin/sh\n{what}\n")
        (where / name).chmod(0o755)
    if place == "own hooks":
        git(site.repository, "config", "core.hooksPath", "own hooks")
    live(site)
    assert git(site.repository, "commit", "--allow-empty", "-m", "x", check=False) == "", "the person's hook counts"


def filter_files(site: Site, smudge: str, *, required: bool) -> None:
    git(site.repository, "config", "filter.odd.smudge", smudge)
    git(site.repository, "config", "filter.odd.required", str(required).lower())
    (site.repository / ".git" / "info" / "attributes").write_text("file-2 filter=odd\n")


def test_a_filter_that_must_work_and_does_not_is_named(site: Site) -> None:
    filter_files(site, "false", required=True)
    failure = site.refused_start()
    assert failure.code == "INVALID_STATE" and "external filter 'false' failed" in failure.message
    assert "Nothing was made" in failure.hint and failure.fields["instance_id"] == "work-trial-a1"
    git(site.repository, "config", "filter.odd.required", "false")
    live(site)


def test_a_git_that_is_killed_half_way_leaves_nothing(site: Site) -> None:
    filter_files(site, "kill -9 0", required=True)  # all of git's processes, which has made the branch by then
    before = fingerprint(site.repository, (".git/objects",))
    assert site.refused_start().code == "INVALID_STATE"
    assert fingerprint(site.repository, (".git/objects",)) == before
    assert not Path(f"{site.repository}-worktrees").exists()


def test_a_filter_that_hangs_ends_with_the_call(site: Site, tmp_path: Path) -> None:
    reached = tmp_path / "reached"
    filter_files(site, f"touch {reached}; sleep 600", required=True)
    before, stop = site.leftovers(), Stop()
    given = {"title": "trial", "repository_path": str(site.repository), "runtime": "custom", "prompt": "x"}
    with ThreadPoolExecutor(1) as threads:
        ending = threads.submit(site.hub.call, "instance_start", given, PERSON, stop=stop)
        eventually(reached.exists)
        stop.cancel()
        with pytest.raises(Cancelled):
            ending.result(30)
    assert site.leftovers() == before


def test_files_that_git_changes_at_the_checkout_are_no_work(site: Site) -> None:
    """Line ends that the attributes would change count as changes right away."""
    (site.repository / "dos").write_bytes(b"one\r\ntwo\r\n")
    commit(site.repository, "dos")
    (site.repository / ".gitattributes").write_text("dos text\n")
    (site.repository / ".crewhall" / "prompts").mkdir(parents=True)
    (site.repository / ".crewhall" / "prompts" / "coding.md").write_bytes(b"\xff")
    git(site.repository, "add", ".gitattributes", ".crewhall")
    git(site.repository, "commit", "-qm", "attributes")
    assert site.refused_start().code == "INVALID_STATE"
    assert list(refs(site.repository)) == ["refs/heads/main"]


def test_a_prompt_that_is_a_link_to_itself_is_none(site: Site) -> None:
    (site.repository / ".crewhall" / "prompts").mkdir(parents=True)
    (site.repository / ".crewhall" / "prompts" / "coding.md").symlink_to("coding.md")
    commit(site.repository, "a loop")
    live(site)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_repository_is_refused_until_git_trusts_it(site: Site, tmp_path: Path) -> None:
    subprocess.run(["chown", "-R", "12345", site.repository], check=True)
    failure = site.refused_start()
    assert failure.code == "INVALID_STATE" and "dubious ownership" in failure.message
    assert "git config --global --add safe.directory" in failure.hint
    (tmp_path / "person").mkdir()
    (tmp_path / "person" / ".gitconfig").write_text(f"[safe]\n\tdirectory = {site.repository}\n")
    made = start(site)  # git trusts its worktree, which the hall made
    assert site.call("instance_abandon", id=made["instance_id"])["problem"] is None


# Submodules


def with_submodule(site: Site) -> Path:
    """A repository with a submodule, which is set up in the main worktree."""
    library = make_repository(site.repository.parent / "lib")
    git(site.repository, *ALLOWED, "submodule", "--quiet", "add", "--name", "lib", library.root, "libs/lib")
    commit(site.repository, "submodule")
    return site.repository


def test_submodules_are_not_set_up_until_somebody_does(site: Site) -> None:
    with_submodule(site)
    before = traces(site)
    made = start(site)
    tree = Path(made["worktree_path"])
    assert list((tree / "libs" / "lib").iterdir()) == []
    git(tree, *ALLOWED, "submodule", "--quiet", "update", "--init")
    assert (tree / "libs" / "lib" / "file-0").exists()
    ended = site.call("instance_abandon", id=made["instance_id"])
    assert (ended["problem"], ended["saved_refs"]) == (None, []) and traces(site) == before


def test_work_in_a_submodule_is_saved(site: Site) -> None:
    with_submodule(site)
    made = start(site)
    library = Path(made["worktree_path"], "libs", "lib")
    git(made["worktree_path"], *ALLOWED, "submodule", "--quiet", "update", "--init")
    change(library / "file-0", "committed")
    tip = commit(library, "not pushed")
    (library / "new").write_text("not committed\n")
    ended = site.call("instance_abandon", id=made["instance_id"])
    ref = f"refs/crewhall/saved/{made['instance_id']}"
    assert ended["problem"] is None and ended["saved_refs"] == [ref, f"{ref}-submodule-lib"]
    assert git(site.repository, "show", f"{ref}-submodule-lib:new") == "not committed"
    assert git(site.repository, "rev-parse", f"{ref}-submodule-lib^", f"{ref}:libs/lib").split() == [tip, tip]
    assert not library.exists() and len(git(site.repository, "worktree", "list").splitlines()) == 1
    assert (site.repository / "libs" / "lib" / "file-0").exists()
