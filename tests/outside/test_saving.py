"""Uncommitted work is saved whole, and the worktree it lies in does not notice."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crewhall.errors import InvalidState, Unavailable
from crewhall.outside.git import GitRepository
from crewhall.outside.saving import git_dir_of, save_staged, save_work
from crewhall.outside.worktrees import add_worktree
from tests.outside.repos import change, commit, fingerprint, git, make_repository, refs, unprivileged_prefix
from tests.sizes import size

REF = "refs/crewhall/saved/ws_1"


@pytest.fixture
def tree(repo: GitRepository, tmp_path: Path) -> Path:
    """A worktree on the branch login."""
    add_worktree(repo, str(tmp_path / "trees" / "login"), "login", "main")
    return tmp_path / "trees" / "login"


def saved_files(repo: GitRepository, commit: str) -> dict[str, str]:
    """Every name in a commit with its mode and content."""
    lines = git(repo.root, "ls-tree", "-r", "-z", commit).split("\0")
    entries = [line.split("\t", 1) for line in lines if line]
    return {name: f"{told.split()[0]} {git(repo.root, 'cat-file', 'blob', told.split()[2])}" for told, name in entries}


def present_files(tree: Path) -> dict[str, str]:
    """Every file on disk in the same form."""
    found: dict[str, str] = {}
    for top, names, files in os.walk(tree):
        for name in [*files, *(each for each in names if os.path.islink(os.path.join(top, each)))]:
            path = os.path.join(top, name)
            status = os.lstat(path).st_mode
            if stat.S_ISFIFO(status):
                continue
            mode = "120000" if stat.S_ISLNK(status) else "100755" if status & 0o100 else "100644"
            text = os.readlink(path) if mode == "120000" else os.fsdecode(Path(path).read_bytes()).strip("\n")
            if os.path.relpath(path, tree) != ".git":
                found[os.path.relpath(path, tree)] = f"{mode} {text}"
    return found


def edits(repo: GitRepository, tree: Path) -> None:
    change(tree / "file-0", "new")
    (tree / "file-1").unlink()
    (tree / "sub").mkdir()
    (tree / "sub" / "fresh").write_text("fresh")


def odd_names(repo: GitRepository, tree: Path) -> None:
    for name in (b"new\nline", b"not utf-8 \xff\xfe", b"-rf", b":(exclude)x", b" ", b"quote\"'", "ü".encode()):
        Path(os.fsdecode(os.path.join(os.fsencode(tree), name))).write_bytes(b"content of " + name)


def links_and_modes(repo: GitRepository, tree: Path) -> None:
    (tree / "link").symlink_to("file-0")
    (tree / "dangling").symlink_to("/no/such/place")
    (tree / "into").symlink_to("..")
    (tree / "file-1").chmod(0o755)
    (tree / "file-2").unlink()
    (tree / "file-2").mkdir()
    (tree / "file-2" / "inside").write_text("a file became a directory")
    os.mkfifo(tree / "pipe")


def intent_to_add(repo: GitRepository, tree: Path) -> None:
    (tree / "wanted").write_text("wanted")
    git(tree, "add", "-N", "wanted")


def merge_conflict(repo: GitRepository, tree: Path) -> None:
    change(Path(repo.root, "file-0"), "theirs")
    git(repo.root, "rm", "-q", "file-1")
    commit(repo.root, "theirs")
    change(tree / "file-0", "ours")
    change(tree / "file-1", "ours")
    commit(tree, "ours")
    git(tree, "merge", "-q", "main", check=False)
    assert Path(git_dir_of(repo, str(tree)), "MERGE_HEAD").exists()


def rebase_conflict(repo: GitRepository, tree: Path) -> None:
    merge_conflict(repo, tree)
    git(tree, "merge", "--abort")
    git(tree, "rebase", "-q", "main", check=False)
    assert Path(git_dir_of(repo, str(tree)), "rebase-merge").exists()


def no_commit_yet(repo: GitRepository, tree: Path) -> None:
    git(tree, "checkout", "-q", "--orphan", "fresh")
    change(tree / "file-0", "the first of a new history")


def told_not_to_look(repo: GitRepository, tree: Path) -> None:
    git(tree, "update-index", "--assume-unchanged", "file-0")
    git(tree, "update-index", "--skip-worktree", "file-1")
    change(tree / "file-0", "assumed to be unchanged")
    change(tree / "file-1", "skipped")


def split_index(repo: GitRepository, tree: Path) -> None:
    git(repo.root, "config", "core.splitIndex", "true")
    git(tree, "update-index", "--split-index")
    edits(repo, tree)


def mixed_line_ends(repo: GitRepository, tree: Path) -> None:
    git(repo.root, "config", "core.safecrlf", "true")
    git(repo.root, "config", "core.autocrlf", "input")
    (tree / "crlf").write_bytes(b"one\ntwo")
    (tree / "mixed").write_bytes(b"one\r\ntwo\n")


SHAPES = [edits, odd_names, links_and_modes, intent_to_add, merge_conflict, rebase_conflict, no_commit_yet]
SHAPES += [told_not_to_look, split_index]


@pytest.mark.parametrize("shape", SHAPES)
def test_all_that_is_uncommitted_is_saved_and_nothing_is_touched(
    repo: GitRepository, tree: Path, shape: Callable[[GitRepository, Path], None]
) -> None:
    shape(repo, tree)
    branches = refs(repo.root)
    before = fingerprint(tree), fingerprint(Path(repo.git_dir), skip=("objects",))
    saved = save_work(repo, str(tree), REF, "saved")
    assert saved.had_changes and saved.ref == REF and saved.commit
    assert saved_files(repo, saved.commit) == present_files(tree)
    assert refs(repo.root) == branches | {REF: saved.commit}
    after = fingerprint(tree), fingerprint(Path(repo.git_dir), skip=("objects", "refs/crewhall"))
    assert after == before
    head = git(tree, "rev-parse", "--verify", "-q", "HEAD", check=False)
    assert not head or git(repo.root, "rev-parse", f"{saved.commit}^") == head


def test_odd_settings_of_the_person_do_not_stop_it(repo: GitRepository, tree: Path) -> None:
    mixed_line_ends(repo, tree)
    git(repo.root, "config", "commit.gpgsign", "true")
    git(repo.root, "config", "committer.name", "Someone else")
    saved = save_work(repo, str(tree), REF, "Ünïcode \ud800")
    assert (
        git(repo.root, "log", "-1", "--format=%an %cn %ce %s", REF) == "Crewhall Crewhall crewhall@localhost Ünïcode ?"
    )
    assert {"crlf", "mixed"} <= saved_files(repo, str(saved.commit)).keys()


def test_a_second_save_makes_no_second_ref_and_other_work_makes_one(repo: GitRepository, tree: Path) -> None:
    edits(repo, tree)
    git(tree, "add", "-A")
    change(tree / "file-0", "newer than what is staged")
    assert save_work(repo, str(tree), REF, "saved").ref == REF
    assert save_work(repo, str(tree), REF, "saved again").ref == REF
    change(tree / "file-0", "newest")
    assert save_work(repo, str(tree), REF, "saved").ref == f"{REF}-2"
    assert save_work(repo, str(tree), REF, "saved").ref == f"{REF}-2"
    assert [name for name in refs(repo.root) if "saved" in name] == [REF, f"{REF}-2"]


def test_what_is_staged_and_no_longer_in_the_files_is_kept(repo: GitRepository, tree: Path) -> None:
    (tree / "draft").write_text("staged")
    git(tree, "add", "draft")
    (tree / "draft").write_text("later")
    saved = save_work(repo, str(tree), REF, "saved")
    assert git(repo.root, "show", f"{saved.commit}:draft") == "later"
    assert git(repo.root, "show", f"{saved.commit}^2:draft") == "staged"


def test_work_that_a_stopped_rebase_put_aside_is_kept(repo: GitRepository, tree: Path) -> None:
    rebase_conflict(repo, tree)
    git(tree, "rebase", "--abort")
    change(tree / "file-2", "put aside")
    git(tree, "-c", "rebase.autoStash=true", "rebase", "-q", "main", check=False)
    assert "put aside" not in (tree / "file-2").read_text()
    save_work(repo, str(tree), REF, "saved", besides="login")
    assert "put aside" in git(repo.root, "log", "-p", "-m", REF)


@pytest.mark.parametrize(
    ("keeper", "is_saved"),
    [
        (None, True),
        (("branch", "twin", "login"), False),
        (("tag", "done", "login"), False),
        (("update-ref", "refs/remotes/origin/login", "login"), False),
        (("update-ref", "refs/stash", "login"), True),  # a stash is dropped without a thought
        (("symbolic-ref", "refs/heads/alias", "refs/heads/login"), True),  # it goes with what it points at
    ],
)
def test_commits_are_saved_when_nothing_else_keeps_them(
    repo: GitRepository, tree: Path, keeper: tuple[str, ...] | None, is_saved: bool
) -> None:
    change(tree / "file-0", "committed")
    head = commit(tree, "work")
    assert save_work(repo, str(tree), REF, "saved").ref is None  # its own branch keeps it
    if keeper:
        git(repo.root, *keeper)
    saved = save_work(repo, str(tree), REF, "saved", besides="login")
    assert (saved.commit, saved.had_changes, saved.ref) == (head, False, REF if is_saved else None)


def test_a_detached_head_is_kept(repo: GitRepository, tree: Path) -> None:
    git(tree, "checkout", "-q", "--detach")
    change(tree / "file-0", "on no branch")
    head = commit(tree, "loose")
    assert save_work(repo, str(tree), REF, "saved").ref == REF
    assert refs(repo.root)[REF] == head


@pytest.mark.parametrize("empty", [set(), {"vendor/empty"}])  # git refuses to add one without a commit
def test_nested_repositories_are_left_out_and_named(repo: GitRepository, tree: Path, empty: set[str]) -> None:
    make_repository(tree / "vendor" / "odd\nname")
    for name in empty:
        git(tree, "init", "-q", name)
    (tree / "vendor" / "note").write_text("kept")
    saved = save_work(repo, str(tree), REF, "saved")
    assert set(saved.skipped) == {"vendor/odd\nname"} | empty
    files = set(git(repo.root, "ls-tree", "-r", "-z", "--name-only", str(saved.commit)).split("\0")) - {""}
    assert files == {"file-0", "file-1", "file-2", "vendor/note"}


def test_ignored_files_are_not_saved(repo: GitRepository, tree: Path) -> None:
    (tree / ".gitignore").write_text("*.log\n")
    (tree / "build.log").write_text("noise")
    saved = save_work(repo, str(tree), REF, "saved")
    assert set(saved_files(repo, str(saved.commit))) == {".gitignore", "file-0", "file-1", "file-2"}


def test_a_sparse_worktree_is_saved_as_if_it_were_whole(repo: GitRepository, tree: Path) -> None:
    for name in ("in", "out"):
        (tree / name).mkdir()
        (tree / name / "file").write_text(name)
    commit(tree, "directories")
    git(tree, "sparse-checkout", "set", "--cone", "in")
    assert not (tree / "out").exists()
    assert not save_work(repo, str(tree), REF, "saved").had_changes
    (tree / "out").mkdir()
    (tree / "out" / "note").write_text("outside of what is checked out")
    saved = save_work(repo, str(tree), REF, "saved")
    assert {"out/file", "out/note", "in/file"} <= saved_files(repo, str(saved.commit)).keys()


def test_a_worktree_without_checkout_has_no_changes(repo: GitRepository, tmp_path: Path) -> None:
    bare = tmp_path / "trees" / "empty"
    git(repo.root, "worktree", "add", "-q", "--no-checkout", "-b", "empty", str(bare))
    assert not save_work(repo, str(bare), REF, "saved").had_changes
    (bare / "note").write_text("new")
    saved = save_work(repo, str(bare), REF, "saved")
    assert set(saved_files(repo, str(saved.commit))) == {"file-0", "file-1", "file-2", "note"}


def test_a_change_as_old_as_the_index_is_seen(repo: GitRepository, tree: Path) -> None:
    """Git tells by its index's time which files to look into; a copy of the index must not be newer."""
    git(repo.root, "config", "core.checkStat", "minimal")
    git(repo.root, "config", "core.trustctime", "false")
    moment = int(time.time()) - 60
    file = tree / "file-0"
    os.utime(file, (moment, moment))
    git(tree, "update-index", "file-0")
    os.utime(Path(git_dir_of(repo, str(tree)), "index"), (moment, moment))
    file.write_text(file.read_text().replace("line 0", "LINE 0"))
    os.utime(file, (moment, moment))
    saved = save_work(repo, str(tree), REF, "saved")
    assert "LINE 0" in git(repo.root, "show", f"{saved.commit}:file-0")


def test_what_git_can_t_read_is_refused(repo: GitRepository, tree: Path) -> None:
    git(repo.root, "config", "filter.broken.clean", "false")
    git(repo.root, "config", "filter.broken.required", "true")
    (tree / ".gitattributes").write_text("* filter=broken\n")
    with pytest.raises(InvalidState, match="could not read all files of"):
        save_work(repo, str(tree), REF, "saved")
    assert REF not in refs(repo.root)


SAVE = """
import sys
from crewhall.errors import Failure
from crewhall.outside.git import open_repository
from crewhall.outside.saving import save_work
try:
    print(save_work(open_repository(sys.argv[1]), sys.argv[2], sys.argv[3], "saved").ref)
except Failure as failure:
    print(failure.code, failure.message, failure.hint)
"""


def saved_by_a_plain_user(repo: GitRepository, tree: Path) -> str:
    words = [*unprivileged_prefix(), sys.executable, "-c", SAVE, repo.root, str(tree), REF]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_a_directory_that_git_can_t_open_is_not_left_out(repo: GitRepository, tree: Path) -> None:
    notes = tree / "it's" / "notes"
    notes.mkdir(parents=True)
    (notes / "plan").write_text("days of work")
    notes.chmod(0)
    told = saved_by_a_plain_user(repo, tree)
    notes.chmod(0o755)
    assert told.startswith("INVALID_STATE") and "could not open directory 'it's/notes/': Permission denied" in told
    assert REF not in refs(repo.root)
    assert saved_by_a_plain_user(repo, tree) == REF


def test_the_person_s_own_ignore_file_may_be_out_of_reach(repo: GitRepository, tree: Path) -> None:
    own = Path(os.environ["XDG_CONFIG_HOME"], "git", "ignore")
    own.parent.mkdir(parents=True)
    own.write_text("*.log\n")
    own.chmod(0)
    (tree / "note").write_text("new")
    assert saved_by_a_plain_user(repo, tree) == REF


@pytest.mark.parametrize("name", ["refs/worktree/mine", "refs/bisect/bad", "refs/rewritten/onto"])
def test_commits_of_refs_that_only_the_worktree_has_are_kept(repo: GitRepository, tree: Path, name: str) -> None:
    change(tree / "file-0", "tried")
    tried = commit(tree, "tried")
    git(tree, "update-ref", name, tried)
    git(tree, "update-ref", "refs/worktree/known", "main")
    git(tree, "reset", "-q", "--hard", "main")
    (tree / "note").write_text("new")
    assert [save_work(repo, str(tree), REF, "saved", besides="login").ref for _ in range(2)] == [REF, REF]
    assert git(repo.root, "rev-parse", f"{REF}^@").split() == [git(repo.root, "rev-parse", "main"), tried]


def test_without_room_for_temporary_files_nothing_is_saved(
    repo: GitRepository, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tree / "nowhere"))
    with pytest.raises(Unavailable, match="no temporary directory can be made: No such file") as refused:
        save_work(repo, str(tree), REF, "saved")
    assert "TMPDIR" in refused.value.hint


def test_a_commit_that_can_t_be_read_is_not_taken_for_none(repo: GitRepository, tree: Path) -> None:
    change(tree / "file-0", "soon damaged")
    head = commit(tree, "work")
    Path(repo.git_dir, "objects", head[:2], head[2:]).unlink()
    with pytest.raises(InvalidState, match=r"the commit that .* is on can't be read"):
        save_work(repo, str(tree), REF, "saved")


def test_another_directory_is_not_taken_for_a_worktree(repo: GitRepository, tree: Path, tmp_path: Path) -> None:
    inside, other = Path(repo.root, "inside"), tmp_path / "other"
    inside.mkdir()
    make_repository(other)
    (tree / ".git").write_text(f"gitdir: {repo.git_dir}/worktrees/nothing\n")
    for path in (inside, other, tree):
        with pytest.raises(InvalidState, match="is not a worktree of the repository"):
            save_work(repo, str(path), REF, "saved")


def test_what_was_staged_outlives_its_directory(repo: GitRepository, tree: Path) -> None:
    (tree / "draft").write_text("staged")
    git(tree, "add", "draft")
    git_dir = git_dir_of(repo, str(tree))
    shutil.rmtree(tree)
    saved = save_staged(repo, git_dir, REF, "saved")
    assert saved.ref == REF and git(repo.root, "show", f"{REF}:draft") == "staged"


NAMES = st.binary(min_size=1, max_size=12).filter(lambda name: not {0, 47} & set(name) and name not in (b".", b".."))


@settings(max_examples=size(8, 25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.dictionaries(NAMES.filter(lambda name: b".git" not in name.lower()), st.binary(max_size=30), max_size=6)
)
def test_any_files_come_back_as_they_were(repo: GitRepository, tree: Path, files: dict[bytes, bytes]) -> None:
    top = os.fsencode(tree / "any")
    shutil.rmtree(top, ignore_errors=True)
    os.mkdir(top)
    for name, content in files.items():
        Path(os.fsdecode(os.path.join(top, name))).write_bytes(content)
    saved = save_work(repo, str(tree), f"{REF}-any/x", "saved", besides="login")
    git(repo.root, "worktree", "add", "-q", "--detach", f"{tree}-again", str(saved.commit))
    again = fingerprint(Path(f"{tree}-again", "any"))
    git(repo.root, "worktree", "remove", "--force", f"{tree}-again")
    assert again == fingerprint(tree / "any")
