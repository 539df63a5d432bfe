"""Which repository a directory is in: what git itself says, without asking it."""

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from crewhall.outside.repository_paths import (
    RepositoryPlace,
    below_top,
    is_directory,
    place_of,
    repository_root,
    working_tree,
)
from tests.outside.repos import make_repository

Git = Callable[..., str]
WHO = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


@pytest.fixture
def git() -> Git:
    """Real git, with nobody's settings."""

    def run(directory: Path, *words: str) -> str:
        more = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"], **WHO}
        command = ["git", "-c", "protocol.file.allow=always", "-C", str(directory), *words]
        return subprocess.run(command, env=more, check=True, capture_output=True, text=True).stdout.strip()

    return run


@pytest.fixture
def app(tmp_path: Path, git: Git) -> Path:
    """A repository with a commit and a directory."""
    main = tmp_path / "app"
    (main / "src" / "deep").mkdir(parents=True)
    git(main, "init", "-q", "-b", "main")
    git(main, "commit", "-q", "--allow-empty", "-m", "begin")
    return main


def test_a_directory_of_a_repository_is_in_it_as_git_says(app: Path, git: Git) -> None:
    for inside in (app, app / "src" / "deep"):
        assert repository_root(str(inside)) == git(inside, "rev-parse", "--show-toplevel") == str(app)
    assert repository_root(f"{app}/not/there/yet.py") == str(app), "a path that is still to be made"
    assert repository_root(f"{app}/.git/hooks") == str(app)


def test_a_linked_working_tree_is_in_its_main_repository(app: Path, git: Git, tmp_path: Path) -> None:
    git(app, "worktree", "add", "-q", str(tmp_path / "fix"), "-b", "fix")
    (tmp_path / "fix" / "src").mkdir()
    assert place_of(f"{tmp_path}/fix/src") == RepositoryPlace(root=str(app), top=str(tmp_path / "fix"))
    link = tmp_path / "fix" / ".git"
    relative = os.path.relpath(app / ".git/worktrees/fix", tmp_path / "fix")
    link.write_text(f"gitdir: {relative}\r\n")
    assert repository_root(str(tmp_path / "fix")) == str(app), "newer gits write it so"


@pytest.mark.parametrize("kept", ["app.git", "app/.bare", "app/.git"])
def test_working_trees_of_a_bare_repository_are_all_in_it(app: Path, git: Git, tmp_path: Path, kept: str) -> None:
    bare = tmp_path / "b" / kept
    git(tmp_path, "clone", "-q", "--bare", str(app), str(bare))
    git(bare, "worktree", "add", "-q", str(tmp_path / "one"), "main")
    git(bare, "worktree", "add", "-q", str(tmp_path / "two"), "-b", "two")
    if kept == "app/.bare":
        (bare.parent / ".git").write_text("gitdir: ./.bare\n")
    root = str(bare.parent if kept == "app/.git" else bare)
    beside = [bare.parent] if kept != "app.git" else []
    for inside in (tmp_path / "one", tmp_path / "two", bare, bare / "refs", *beside):
        assert repository_root(str(inside)) == root, inside
    assert place_of(str(tmp_path / "two")) == RepositoryPlace(root=root, top=str(tmp_path / "two"))


def test_a_submodule_is_a_repository_of_its_own(app: Path, git: Git, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "submodule", "add", "-q", str(app), "vendor/app")
    assert (outer / "vendor/app/.git").is_file()
    inner = git(outer / "vendor/app", "rev-parse", "--show-toplevel")
    assert repository_root(f"{outer}/vendor/app/x") == inner == str(outer / "vendor/app")
    assert repository_root(f"{outer}/vendor") == str(outer)


def test_a_repository_whose_git_directory_is_elsewhere_is_where_its_files_are(git: Git, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"), str(tmp_path / "tree"))
    assert repository_root(f"{tmp_path}/tree") == str(tmp_path / "tree")


def test_a_way_through_a_link_leads_to_the_same_repository(app: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(app / "src")
    assert repository_root(f"{tmp_path}/link/deep") == str(app)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert repository_root(f"{tmp_path}/loop/x") is None


def test_where_no_repository_is_there_is_none(app: Path, tmp_path: Path) -> None:
    assert repository_root(str(tmp_path)) is None and repository_root("/") is None
    assert repository_root("relative/path") is None and repository_root("/" + "x/" * 3000) is None
    assert repository_root("/nul\0byte") is None
    (app / "src" / ".git").mkdir()
    assert repository_root(f"{app}/src/deep") == str(app), "an empty .git is nothing, to git as well"


BROKEN: dict[str, bytes] = {
    "nothing in it": b"",
    "other words": b"git directory: ../app/.git",
    "leads nowhere": b"gitdir: ../not/there",
    "leads to itself": b"gitdir: .git",
    "leads to no repository": b"gitdir: ..",
    "not UTF-8": b"gitdir: ../\xff\xfe",
    "a NUL": b"gitdir: a\0b",
    "endless": b"gitdir: " + b"x/" * 100_000,
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_link_is_no_repository_though_one_is_above(app: Path, what: str) -> None:
    (app / "src" / ".git").write_bytes(BROKEN[what])
    assert repository_root(f"{app}/src/deep") is None


def test_links_that_lead_to_names_that_are_no_text_or_to_a_gone_main_are_none(app: Path, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.rename(app, odd)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/.git").write_bytes(b"gitdir: ../\xff/.git/worktrees/x")
    kept = odd + b"/.git/worktrees/x"
    os.makedirs(kept)
    Path(os.fsdecode(kept), "commondir").write_text("../..\n")
    assert repository_root(f"{tmp_path}/tree") is None
    os.rename(odd, app)
    (tmp_path / "tree/.git").write_text("gitdir: ../app/.git/worktrees/x")
    assert repository_root(f"{tmp_path}/tree") == str(app)
    (app / ".git/HEAD").unlink()
    assert repository_root(f"{tmp_path}/tree") is None


def test_nobody_waits_for_a_pipe_that_is_named_git(app: Path) -> None:
    os.mkfifo(app / "src" / ".git")
    (app / ".git/worktrees/x").mkdir(parents=True)
    os.mkfifo(app / ".git/worktrees/x/commondir")
    (app / "src/deep/.git").write_text("gitdir: ../../.git/worktrees/x")
    answers: list[str | None] = []
    places = (f"{app}/src", f"{app}/src/deep")
    asking = threading.Thread(target=lambda: answers.extend(map(repository_root, places)), daemon=True)
    asking.start()
    asking.join(10)
    assert answers == [str(app), None]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read_is_none(app: Path) -> None:
    (app / "src").chmod(0)
    try:
        assert repository_root(f"{app}/src/deep") is None
    finally:
        (app / "src").chmod(0o700)


def test_a_path_is_seen_from_the_top_of_its_own_working_tree(app: Path, git: Git, tmp_path: Path) -> None:
    git(app, "worktree", "add", "-q", str(tmp_path / "fix"), "-b", "fix")
    (tmp_path / "link").symlink_to(app / "src")
    (app / "src/way").symlink_to(tmp_path)
    for path, seen in {
        "app/src/x.py": "src/x.py",
        "fix/src/x.py": "src/x.py",
        "fix/**/*.py": "**/*.py",
        "link/x/": "src/x/",
        "app/src/way": "src/way",
        "app/": "",
        "app/src/way/x": None,
        "other/x": None,
    }.items():
        assert below_top(f"{tmp_path}/{path}", str(app)) == seen, path
    assert is_directory(str(app), "src") and not is_directory(str(app), "x") and not is_directory(str(app), "a\0b")


def test_a_repository_of_another_user_makes_no_working_tree(tmp_path: Path) -> None:
    """As git has it: a stranger's `.git` in a shared directory would make all of that one project."""
    root = Path(make_repository(tmp_path / "shared").root)
    inner = root / "mine"
    inner.mkdir()
    assert working_tree(str(inner)) == str(root) and working_tree(str(tmp_path)) == str(tmp_path)
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(root / ".git", 1234, 1234)
    assert working_tree(str(inner)) == str(inner)
