"""Repositories are opened whatever their shape, and worktrees are made whole or not at all."""

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from crewhall.errors import Cancelled, Conflict, Failure, InvalidInput, InvalidState, NotFound, TimedOut, Unavailable
from crewhall.outside import git as git_module
from crewhall.outside.git import GitRepository, lock, open_repository, refusal, refuse_old_git, version
from crewhall.outside.removal import remove_worktree
from crewhall.outside.run import Ended
from crewhall.outside.saving import save_work
from crewhall.outside.worktrees import Added, add_worktree, trash_of, worktrees
from crewhall.stop import Stop
from tests.conftest import eventually
from tests.outside.repos import fingerprint, git, make_repository, refs

ODD_BRANCHES = ["main", "feature/login", "ünïcode", "a.b-c_d", "x=y", "$HOME", "quote'\"", "#1"]
BAD_BRANCHES = ["", "-b", "--force", "a..b", "a b", "a\nb", "@", "@{-1}", "HEAD", "x.lock", "/x", "x/", "a~1", "a\0b"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "shop-worktrees" / "feature" / "login"


def test_a_repository_is_found_from_anywhere_in_it(repo: GitRepository, place: Path) -> None:
    root = Path(repo.root)
    (root / "deep" / "down").mkdir(parents=True)
    add_worktree(repo, str(place), "feature/login", "main")
    (place / "inner").mkdir()
    for start in (root, root / "deep" / "down", root / ".git", place, place / "inner"):
        assert open_repository(str(start)) == repo
    assert (repo.root, repo.git_dir) == (str(root), str(root / ".git"))


def test_a_bare_repository_and_a_separate_git_directory_have_worktrees_too(
    repo: GitRepository, tmp_path: Path, place: Path
) -> None:
    git(tmp_path, "clone", "-q", "--bare", repo.root, "bare.git")
    git(tmp_path, "clone", "-q", "--separate-git-dir=apart", repo.root, "cloned")
    bare, apart = open_repository(str(tmp_path / "bare.git")), open_repository(str(tmp_path / "cloned"))
    assert bare.root == bare.git_dir == str(tmp_path / "bare.git")
    assert (apart.root, apart.git_dir) == (str(tmp_path / "cloned"), str(tmp_path / "apart"))
    for number, each in enumerate((bare, apart)):
        add_worktree(each, str(place / str(number)), "login", "main")
        assert open_repository(str(place / str(number))).git_dir == each.git_dir
        assert [tree.is_main for tree in worktrees(each)] == [True, False]


@pytest.mark.parametrize("name", ["two\nlines", "shop\ntrue\nfalse\n.git"])
def test_a_path_that_breaks_over_lines_is_one_path(repo: GitRepository, tmp_path: Path, name: str) -> None:
    """Git answers several questions at once, a line for each."""
    (tmp_path / "odd").mkdir()
    odd = tmp_path / "odd" / name
    git(tmp_path, "clone", "-q", repo.root, str(odd))
    found = open_repository(str(odd))
    assert (found.root, found.git_dir) == (str(odd), str(odd / ".git"))
    git(odd, "worktree", "add", "-q", "-b", "login", str(tmp_path / "linked"))
    assert open_repository(str(tmp_path / "linked")) == found


@pytest.mark.parametrize("shape", ["no repository", "no commit", "no directory", "a file"])
def test_what_can_t_be_opened_is_refused(tmp_path: Path, no_own_settings: None, shape: str) -> None:
    path = tmp_path / "there"
    if shape == "a file":
        path.touch()
    elif shape != "no directory":
        path.mkdir()
    if shape == "no commit":
        git(path, "init", "-q")
    with pytest.raises((InvalidState, NotFound)) as refused:
        open_repository(str(path))
    assert str(path) in refused.value.message and refused.value.hint


def bare_copy(repo: GitRepository, at: Path) -> Path:
    at.parent.mkdir(parents=True, exist_ok=True)
    git(at.parent, "clone", "-q", "--bare", repo.root, str(at))
    return at


def planted_repository(repo: GitRepository, clone: Path) -> Path:
    return bare_copy(repo, clone / "docs" / "fixture")


def inside_a_planted_one(repo: GitRepository, clone: Path) -> Path:
    return planted_repository(repo, clone) / "refs" / "heads"


def planted_in_a_planted_one(repo: GitRepository, clone: Path) -> Path:
    return bare_copy(repo, planted_repository(repo, clone) / "inner")


def planted_and_not_called_bare(repo: GitRepository, clone: Path) -> Path:
    path = planted_repository(repo, clone)
    git(path, "config", "core.bare", "false")
    git(path, "config", "core.worktree", "..")
    return path


def planted_worktree_state(repo: GitRepository, clone: Path) -> Path:
    state = planted_repository(repo, clone) / "worktrees" / "x"
    state.mkdir(parents=True)
    (state / "HEAD").write_text("ref: refs/heads/main\n")
    (state / "commondir").write_text("../..\n")
    return state


def worktree_of_a_planted_one(repo: GitRepository, clone: Path) -> Path:
    git(planted_repository(repo, clone), "worktree", "add", "-q", str(clone.parent / "apart"), "main")
    return clone.parent / "apart"


PLANTED = [planted_repository, inside_a_planted_one, planted_in_a_planted_one, planted_and_not_called_bare]
PLANTED += [planted_worktree_state, worktree_of_a_planted_one]


@pytest.mark.parametrize("shape", PLANTED)
def test_a_repository_among_the_files_of_another_is_refused(
    repo: GitRepository, tmp_path: Path, shape: Callable[[GitRepository, Path], Path]
) -> None:
    clone = Path(make_repository(tmp_path / "clone").root)
    with pytest.raises(InvalidState, match=r"fixture.* among the files of the repository at .*clone") as refused:
        open_repository(str(shape(repo, clone)))
    assert ".git" in refused.value.hint


def test_bare_repositories_that_a_person_set_up_are_fine(repo: GitRepository, tmp_path: Path) -> None:
    home = Path(make_repository(tmp_path / "home").root)  # some keep their whole home in git
    bare = bare_copy(repo, home / "project" / ".bare")
    (home / "project" / ".git").write_text("gitdir: ./.bare\n")
    git(bare, "worktree", "add", "-q", str(home / "project" / "main"), "main")
    for start in (bare, bare / "refs", bare / "worktrees" / "main", home / "project", home / "project" / "main"):
        assert open_repository(str(start)).git_dir == str(bare)
    beside = bare_copy(repo, tmp_path / "other" / ".bare")
    git(beside, "worktree", "add", "-q", str(tmp_path / "other" / "main"), "main")
    found = open_repository(str(tmp_path / "other" / "main"))
    assert found == open_repository(str(beside)) == open_repository(found.root)
    assert found.text("config", "--get", "safe.bareRepository") == "explicit"


def test_without_git_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="git can't be started"):
        open_repository(str(tmp_path))


def test_the_current_branch_or_commit(repo: GitRepository) -> None:
    assert repo.current_branch() == "main"
    first = repo.commit_of("main")
    git(repo.root, "checkout", "-q", "--detach")
    assert repo.current_branch() == first
    git(repo.root, "checkout", "-q", "--orphan", "new/start")
    assert repo.current_branch() == "new/start"


def test_names_that_are_no_text_are_refused_and_told_as_text(repo: GitRepository, tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    git(repo.root, "worktree", "add", "-q", "-b", "login", odd)
    with pytest.raises(Conflict, match=r"checked out at .*/caf\ufffd") as refused:
        add_worktree(repo, str(tmp_path / "mine"), "login", "main")
    assert refused.value.body()["message"].encode() and str(refused.value).encode()
    git(repo.root, "checkout", "-q", "-b", "caf\udce9")
    with pytest.raises(InvalidInput, match="not UTF-8: caf\ufffd"):
        repo.current_branch()
    Path(repo.root).rename(f"{tmp_path}/shop\udce9")
    (tmp_path / "link").symlink_to(f"{tmp_path}/shop\udce9")
    with pytest.raises(InvalidInput, match=r"not UTF-8: .*/shop\ufffd"):
        open_repository(str(tmp_path / "link"))


def test_names_that_mean_a_commit(repo: GitRepository) -> None:
    git(repo.root, "tag", "-a", "v1", "-m", "one")
    head = git(repo.root, "rev-parse", "HEAD")
    for name in ("main", "HEAD", "v1", head, head[:10], "refs/heads/main"):
        assert repo.commit_of(name) == head
    for name in ("nothing", "", "--all", "-h", "HEAD:file-0", "main~7", "\n"):
        assert repo.commit_of(name) is None
    assert repo.branch_exists("main")
    assert not repo.branch_exists("v1") and not repo.branch_exists("--all") and not repo.branch_exists("")


@pytest.mark.parametrize("name", ODD_BRANCHES)
def test_odd_names_are_branches(repo: GitRepository, name: str) -> None:
    repo.refuse_bad_branch(name)


@pytest.mark.parametrize("name", BAD_BRANCHES)
def test_bad_names_are_not(repo: GitRepository, name: str) -> None:
    git(repo.root, "checkout", "-q", "-b", "other")  # so that @{-1} means something
    with pytest.raises(InvalidInput):
        repo.refuse_bad_branch(name)


def test_the_person_s_hooks_and_variables_have_no_say(
    repo: GitRepository, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = Path(repo.git_dir, "hooks", "post-checkout")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    git(repo.root, "config", "core.fsmonitor", "touch watched; true")
    for name, value in {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere", "GIT_WORK_TREE": "/"}.items():
        monkeypatch.setenv(name, value)
    assert add_worktree(open_repository(repo.root), str(place), "login", "main").branch_is_new
    monkeypatch.undo()
    assert not {"hooked", "watched"} & {*os.listdir(place), *os.listdir(repo.root)}


def test_worktrees_are_listed_as_they_are(repo: GitRepository, place: Path) -> None:
    odd = place / "new\nline \udcff"
    add_worktree(repo, str(odd), "odd", "main")
    git(repo.root, "worktree", "add", "-q", "--detach", str(place / "loose"))
    git(repo.root, "worktree", "lock", "--reason", "mine", str(odd))
    (place / "loose" / ".git").unlink()
    main, *others = worktrees(repo)
    head = git(repo.root, "rev-parse", "HEAD")
    assert (main.path, main.branch, main.head, main.is_main) == (repo.root, "main", head, True)
    seen = {tree.path: (tree.branch, tree.is_locked, tree.reason, tree.is_prunable) for tree in others}
    assert seen == {str(odd): ("odd", True, "mine", False), str(place / "loose"): (None, False, "", True)}


def test_a_worktree_on_a_new_branch_and_again(repo: GitRepository, place: Path) -> None:
    git(repo.root, "config", "branch.autoSetupMerge", "always")
    assert add_worktree(repo, str(place), "feature/login", "main") == Added(branch_is_new=True)
    assert git(place, "branch", "--show-current") == "feature/login"
    before = fingerprint(Path(repo.git_dir))
    assert add_worktree(repo, str(place), "feature/login", "main") == Added(False, was_there=True)
    assert fingerprint(Path(repo.git_dir)) == before
    assert "feature/login" not in git(repo.root, "config", "--list")


def test_a_worktree_on_a_branch_that_is_there(repo: GitRepository, place: Path) -> None:
    git(repo.root, "branch", "old")
    git(repo.root, "tag", "old")  # the branch is meant, whatever else has its name
    place.mkdir(parents=True)  # an empty directory is no obstacle
    assert add_worktree(repo, str(place), "old", "no-such-base") == Added(branch_is_new=False)
    assert git(place, "symbolic-ref", "HEAD") == "refs/heads/old"


def taken_by_a_file(repo: GitRepository, place: Path) -> None:
    place.parent.mkdir(parents=True)
    place.write_text("mine")


def taken_by_files(repo: GitRepository, place: Path) -> None:
    place.mkdir(parents=True)
    (place / "notes").write_text("mine")


def taken_by_a_link(repo: GitRepository, place: Path) -> None:
    place.parent.mkdir(parents=True)
    (place.parent / "empty").mkdir()
    place.symlink_to("empty")


def taken_by_another(repo: GitRepository, place: Path) -> None:
    add_worktree(repo, str(place), "other", "main")


def branch_in_use(repo: GitRepository, place: Path) -> None:
    add_worktree(repo, f"{place}-2", "login", "main")


def branch_in_the_main_worktree(repo: GitRepository, place: Path) -> None:
    git(repo.root, "checkout", "-q", "-b", "login")


def branch_in_the_way(repo: GitRepository, place: Path) -> None:
    git(repo.root, "branch", "login/deeper")


def full_disk(repo: GitRepository, place: Path) -> None:
    """A checkout that fails half way: a filter that must work does not."""
    git(repo.root, "config", "filter.broken.smudge", "false")
    git(repo.root, "config", "filter.broken.required", "true")
    Path(repo.git_dir, "info", "attributes").write_text("file-2 filter=broken\n")


def directory_gone(repo: GitRepository, place: Path) -> None:
    add_worktree(repo, str(place), "login", "main")
    place.rename(place.parent.parent / "elsewhere")
    place.parent.rmdir()


def parent_is_a_file(repo: GitRepository, place: Path) -> None:
    place.parent.parent.write_text("mine")


def trash_is_a_file(repo: GitRepository, place: Path) -> None:
    place.parent.mkdir(parents=True)
    Path(trash_of(str(place))).write_text("mine")


OBSTACLES: list[tuple[Callable[[GitRepository, Path], None], type[Failure], str]] = [
    (taken_by_a_file, Conflict, "not an empty directory"),
    (taken_by_files, Conflict, "not an empty directory"),
    (taken_by_a_link, Conflict, "not an empty directory"),
    (taken_by_another, Conflict, "already a worktree, of other"),
    (branch_in_use, Conflict, "checked out at .*login-2"),
    (branch_in_the_main_worktree, Conflict, "checked out at .*shop"),
    (branch_in_the_way, InvalidState, "login"),
    (full_disk, InvalidState, "git could not make the worktree"),
    (directory_gone, Conflict, "whose directory is gone"),
    (parent_is_a_file, InvalidState, "login can't be made: "),
    (trash_is_a_file, InvalidState, "can't be deleted"),
]


@pytest.mark.parametrize(("obstacle", "failure", "told"), OBSTACLES)
def test_a_worktree_that_can_t_be_made_leaves_nothing(
    repo: GitRepository,
    tmp_path: Path,
    place: Path,
    obstacle: Callable[[GitRepository, Path], None],
    failure: type[Failure],
    told: str,
) -> None:
    obstacle(repo, place)
    before = fingerprint(tmp_path)
    with pytest.raises(failure, match=told) as refused:
        add_worktree(repo, str(place), "login", "main")
    assert refused.value.hint
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize(("branch", "base", "failure"), [("login", "nothing", NotFound), ("-d", "main", InvalidInput)])
def test_names_are_checked_before_anything_is_made(
    repo: GitRepository, tmp_path: Path, place: Path, branch: str, base: str, failure: type[Failure]
) -> None:
    before = fingerprint(tmp_path)
    with pytest.raises(failure):
        add_worktree(repo, str(place), branch, base)
    assert fingerprint(tmp_path) == before


LONG = "漢" * 100
BAD_PATHS = [".x.crewhall-removed", ".x.crewhall-removed/inner", LONG, "x" * 240, "/".join(["long" * 50] * 30)]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_that_can_t_be_a_worktree_s_is_refused(repo: GitRepository, tmp_path: Path, path: str) -> None:
    before = fingerprint(tmp_path)
    with pytest.raises(InvalidInput) as refused:
        add_worktree(repo, str(tmp_path / "shop-worktrees" / path), "login", "main")
    assert "Choose" in refused.value.hint
    assert fingerprint(tmp_path) == before
    add_worktree(repo, str(tmp_path / "shop-worktrees" / ("x" * 230)), "login", "main")


def test_many_at_once_all_succeed(repo: GitRepository, place: Path) -> None:
    script = "import sys; from crewhall.outside.git import open_repository; "
    script += "from crewhall.outside.worktrees import add_worktree; "
    script += "add_worktree(open_repository(sys.argv[1]), sys.argv[2], sys.argv[3], 'main')"
    children = [
        subprocess.Popen([sys.executable, "-c", script, repo.root, f"{place}-p{number}", f"p{number}"])
        for number in range(3)
    ]
    with ThreadPoolExecutor(6) as pool:
        names = [f"t{number}" for number in range(6)] * 2  # each is asked for twice
        added = list(pool.map(lambda name: add_worktree(repo, f"{place}-{name}", name, "main"), names))
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert sum(each.branch_is_new for each in added) == sum(each.was_there for each in added) == 6
    assert len(worktrees(repo)) == 10
    assert not list(Path(repo.git_dir).glob("*.lock"))


def test_waiting_for_others_ends_with_the_call_or_its_time(repo: GitRepository, place: Path) -> None:
    stop = Stop(60)
    with lock(repo):
        with pytest.raises(TimedOut, match="others are busy"), lock(repo, seconds=0.05):
            pass
        threading.Timer(0.1, stop.cancel).start()
        with pytest.raises(Cancelled):
            add_worktree(replace(repo, stop=stop), str(place), "login", "main")
    assert not place.exists()


def slow_git(tmp_path: Path, subcommand: str, then: str) -> dict[str, str]:
    """A `git` that does something else first when it gets to a subcommand; the real one for all others."""
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    script = tmp_path / "bin" / "git"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\ncase " $* " in *" {subcommand} "*) {then};; esac\nexec {real} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    return {"PATH": f"{script.parent}:{os.environ['PATH']}"}


def half_made(repo: GitRepository, place: Path) -> None:
    """What git leaves when it is killed in the middle of `worktree add`: made by killing it in a checkout filter."""
    git(repo.root, "config", "filter.deadly.smudge", "kill -9 $(ps -o ppid= -p $PPID) $PPID")
    Path(repo.git_dir, "info", "attributes").write_text("file-2 filter=deadly\n")
    git(repo.root, "worktree", "add", "-q", "-b", "login", str(place), check=False)
    Path(repo.git_dir, "info", "attributes").unlink()


def test_a_half_made_worktree_is_cleared_and_made_anew(repo: GitRepository, place: Path) -> None:
    half_made(repo, place)
    (left,) = [tree for tree in worktrees(repo) if not tree.is_main]
    assert left.is_half_made and not (place / "file-2").exists()
    assert add_worktree(repo, str(place), "login", "main", may_be_ours=True) == Added(False, was_there=True)
    assert (place / "file-2").exists() and not git(place, "status", "--porcelain")
    assert [tree.is_locked for tree in worktrees(repo)] == [False, False]


def test_one_that_a_person_s_git_is_making_is_left_alone(repo: GitRepository, tmp_path: Path, place: Path) -> None:
    reached, go = tmp_path / "reached", tmp_path / "go"
    os.mkfifo(go)
    git(repo.root, "config", "filter.slow.smudge", f"touch {reached}; cat {go}; cat")
    Path(repo.git_dir, "info", "attributes").write_text("file-2 filter=slow\n")
    with subprocess.Popen(["git", "worktree", "add", "-q", "-b", "mine", str(place)], cwd=repo.root) as person:
        eventually(reached.exists)
        try:
            with pytest.raises(Conflict, match="login is being made by another git"):
                add_worktree(repo, str(place), "login", "main")
        finally:
            go.write_text("")
    assert person.returncode == 0 and not repo.branch_exists("login")
    assert git(place, "status", "--porcelain", "--branch") == "## mine"


def cancel_once(reached: Path, stop: Stop) -> None:
    eventually(reached.exists)
    stop.cancel()


def test_a_cancel_in_the_middle_of_it_leaves_nothing(repo: GitRepository, tmp_path: Path, place: Path) -> None:
    reached = tmp_path / "reached"
    git(repo.root, "config", "filter.slow.smudge", f"touch {reached}; exec sleep 60")
    Path(repo.git_dir, "info", "attributes").write_text("file-1 filter=slow\n")
    before = fingerprint(tmp_path)
    stop = Stop(60)
    threading.Thread(target=cancel_once, args=(reached, stop)).start()
    with pytest.raises(Cancelled):
        add_worktree(replace(repo, stop=stop), str(place), "login", "main")
    reached.unlink()
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("subcommand", ["worktree add", "reset"])
def test_a_git_that_outlives_its_killed_caller_is_waited_for(
    repo: GitRepository, tmp_path: Path, place: Path, subcommand: str
) -> None:
    reached, go = tmp_path / "reached", tmp_path / "go"
    os.mkfifo(go)
    script = "import sys; from crewhall.outside.git import open_repository; "
    script += "from crewhall.outside.worktrees import add_worktree; "
    script += "add_worktree(open_repository(sys.argv[1]), sys.argv[2], 'login', 'main')"
    env = os.environ | slow_git(tmp_path, subcommand, f"touch {reached}; cat {go}")
    child = subprocess.Popen([sys.executable, "-c", script, repo.root, str(place)], env=env)
    eventually(reached.exists)
    child.send_signal(signal.SIGKILL)
    child.wait()
    for work in (add_again, take_away):
        with pytest.raises(TimedOut):
            work(replace(repo, stop=Stop(0.2)), place)
    go.write_text("")
    assert add_again(repo, place) == Added(False, was_there=True)
    assert (place / "file-2").exists() and not git(place, "status", "--porcelain")
    assert [tree.is_locked for tree in worktrees(repo)] == [False, False]


def add_again(repo: GitRepository, place: Path) -> Added:
    return add_worktree(repo, str(place), "login", "main", may_be_ours=True)


def take_away(repo: GitRepository, place: Path) -> None:
    remove_worktree(repo, str(place), "login", True, "refs/crewhall/saved/ws_1")


def test_a_worktree_that_is_being_filled_is_in_nobody_s_way(repo: GitRepository, tmp_path: Path, place: Path) -> None:
    reached, go = tmp_path / "reached", tmp_path / "go"
    os.mkfifo(go)
    git(repo.root, "config", "filter.slow.smudge", f"if mkdir {reached} 2>/dev/null; then cat {go}; fi; cat")
    Path(repo.git_dir, "info", "attributes").write_text("file-2 filter=slow\n")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(add_worktree, repo, str(place), "login", "main")
        eventually(reached.exists)
        try:
            assert add_worktree(repo, f"{place}-2", "other", "main").branch_is_new
            again = pool.submit(add_worktree, repo, str(place), "login", "main")
            with pytest.raises(TimedOut):
                take_away(replace(repo, stop=Stop(0.2)), place)
            assert not first.done() and not again.done()
        finally:
            go.write_text("")
        assert (first.result(20), again.result(20)) == (Added(branch_is_new=True), Added(False, was_there=True))


def test_an_old_git_does_what_it_can(
    repo: GitRepository, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", slow_git(tmp_path / "old", "--sparse", "exit 129")["PATH"])
    monkeypatch.setenv("PATH", slow_git(tmp_path, "version", "echo git version 2.33.1.windows.1; exit")["PATH"])
    assert version() == (2, 33)
    add_worktree(open_repository(repo.root), str(place), "login", "main")
    assert [tree.branch for tree in worktrees(repo)] == ["main", "login"]
    (place / "note").write_text("new")
    assert save_work(repo, str(place), "refs/crewhall/saved/ws_1", "saved").had_changes
    with pytest.raises(Unavailable, match=r"a forecast needs git 2\.39, and this is 2\.33"):
        refuse_old_git((2, 39), "a forecast")


def test_one_that_is_too_old_is_refused(repo: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", slow_git(tmp_path, "version", "echo git version 2.32.7; exit")["PATH"])
    with pytest.raises(Unavailable, match=r"the hall needs git 2\.33, and this is 2\.32"):
        open_repository(repo.root)


def test_an_answer_that_is_too_long_is_no_answer(repo: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_module, "MOST_BYTES", 20)
    with pytest.raises(Failure, match="more than 20 bytes"):
        repo.text("log")


def test_a_submodule_is_a_repository_of_its_own(repo: GitRepository, tmp_path: Path) -> None:
    outer = make_repository(tmp_path / "outer")
    git(outer.root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", repo.root, "inner")
    inner = open_repository(str(tmp_path / "outer" / "inner"))
    assert inner.root == str(tmp_path / "outer" / "inner")
    add_worktree(inner, str(tmp_path / "apart"), "login", "HEAD")
    assert [tree.path for tree in worktrees(inner)] == [inner.root, str(tmp_path / "apart")]
    assert "refs/heads/login" not in refs(outer.root)


@pytest.mark.parametrize(
    ("complaint", "told"),
    [
        ("fatal: bad shallow line: hunter2: x", "fatal: bad shallow line"),
        ("fatal: unexpected line in .git/packed-refs: hunter2", "fatal: unexpected line in .git/packed-refs"),
        (
            "error: unable to normalize alternate object path: hunter2",
            "error: unable to normalize alternate object path",
        ),
        (
            "error: object directory hunter2: a does not exist; check .git/objects/info/alternates",
            "error: object directory does not exist; check .git/objects/info/alternates",
        ),
        ("fatal: bad numeric config value 'hun'ter2' for 'core.x' in file a: b", "fatal: bad numeric config value"),
        ("fatal: bad config variable 'hunter2.x' in file 'a' at line 1", "fatal: bad config variable"),
        ("fatal: Corrupt MERGE_HEAD file (hunter2)", "fatal: Corrupt MERGE_HEAD file"),
        ("hunter2 is not a valid attribute name: .gitattributes:1", "exit code 128"),
        (
            "error: unable to create file a/b: File name too long",
            "error: unable to create file a/b: File name too long",
        ),
        (
            "fatal: cannot lock ref 'refs/heads/a': Unable to create '/a.lock': Read-only file system",
            "fatal: cannot lock ref 'refs/heads/a': Read-only file system",
        ),
        ("fatal: odd", "fatal: odd"),
    ],
)
def test_a_refusal_repeats_no_line_of_a_file(complaint: str, told: str) -> None:
    refused = refusal(Ended(128, b"", complaint.encode()), "do it")
    assert refused.message == f"git could not do it: {told}"


@pytest.mark.parametrize("name", ["shallow", "packed-refs", "objects/info/alternates"])
def test_real_git_quotes_a_file_and_we_do_not(tmp_path: Path, name: str) -> None:
    repo = make_repository(tmp_path / "repo")
    (tmp_path / "netrc").write_text("hunter2 machine\n")
    (Path(repo.git_dir) / name).unlink(missing_ok=True)
    (Path(repo.git_dir) / name).symlink_to(tmp_path / "netrc")
    ended = repo.git("log", "-1", "HEAD")
    assert b"hunter2" in ended.err
    assert "hunter2" not in refusal(ended, "look").message
