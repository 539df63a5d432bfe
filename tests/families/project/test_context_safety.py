"""Asking for the context of a worktree that came from anywhere runs nothing that it brought, and shows nothing else."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crewhall.app import Hub
from tests.families.project.contexts import context_caller, lines, reason
from tests.outside.repos import change, commit, git, make_repository

pytestmark = [pytest.mark.parametrize("database", ["sqlite"], indirect=True), pytest.mark.slow]


SAME_SIZE = "LINE 0"  # git must read the file to see that it is another than "line 0"


class Trap:
    """A repository in which something is set up to leave a mark when git runs it."""

    def __init__(self, root: Path) -> None:
        self.root, self.mark = root, root.parent / "sprung"
        make_repository(root)
        self.program = root.parent / "program"
        self.program.write_text(f"#!/bin/sh\ntouch {self.mark}\ncat\n")
        self.program.chmod(0o755)

    def set(self, name: str, value: str | None = None, where: Path | None = None) -> None:
        git(where or self.root, "config", name, value or str(self.program))

    def attribute(self, text: str, where: Path | None = None) -> None:
        ((where or self.root) / ".gitattributes").write_text(text)
        commit(where or self.root, "attributes")

    def springs(self, *words: str) -> bool:
        """Whether it works at all: git as a person runs it leaves the mark."""
        git(self.root, *words, check=False)
        was_there = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return was_there


def clean_filter(trap: Trap) -> bool:
    trap.attribute("* filter=odd.name\n")
    trap.set("filter.odd.name.clean")
    trap.set("filter.odd.name.required", "true")
    change(trap.root / "file-0", SAME_SIZE)
    return trap.springs("status")


def process_filter(trap: Trap) -> bool:
    trap.attribute("* filter=odd\n")
    trap.set("filter.odd.process")
    change(trap.root / "file-0", SAME_SIZE)
    return trap.springs("status")


def included_filter(trap: Trap) -> bool:
    (trap.root.parent / "more").write_text(f'[Filter "odd"]\n\tclean = {trap.program}\n')
    trap.attribute("* filter=odd\n")
    trap.set("include.path", str(trap.root.parent / "more"))
    change(trap.root / "file-0", SAME_SIZE)
    return trap.springs("diff", "--stat")


def worktree_filter(trap: Trap) -> bool:
    trap.attribute("* filter=odd\n")
    trap.set("extensions.worktreeConfig", "true")
    git(trap.root, "config", "--worktree", "filter.odd.clean", str(trap.program))
    change(trap.root / "file-0", SAME_SIZE)
    return trap.springs("status")


def linked_configuration(trap: Trap) -> bool:
    is_live = clean_filter(trap)
    config = trap.root / ".git" / "config"
    config.rename(trap.root / "notes")
    config.symlink_to("../notes")
    return is_live and trap.springs("status")


def long_configuration(trap: Trap) -> bool:
    is_live = clean_filter(trap)
    config = trap.root / ".git" / "config"
    config.write_text("# words\n" * 20_000 + config.read_text())
    return is_live and trap.springs("status")


def filter_behind_a_crooked_way(trap: Trap) -> bool:
    """The kernel goes `sl/..` by where the link leads, and a text does not."""
    is_live = clean_filter(trap)
    own = trap.root / ".git"
    (own / "deep" / "inner").mkdir(parents=True)
    (own / "sl").symlink_to("deep/inner")
    shutil.copytree(own, own / "deep" / "real", ignore=shutil.ignore_patterns("deep", "sl"))
    shutil.copytree(own / "deep" / "real", own / "real")
    (own / "real" / "config").write_text("[core]\n\trepositoryformatversion = 0\n")
    (own / "commondir").write_text("sl/../real\n")
    return is_live and trap.springs("status")


def external_diff(trap: Trap) -> bool:
    trap.set("diff.external")
    change(trap.root / "file-0", SAME_SIZE)
    return trap.springs("diff")


def diff_driver(trap: Trap) -> bool:
    trap.attribute("* diff=odd\n")
    trap.set("diff.odd.textconv")
    trap.set("diff.odd.command")
    change(trap.root / "file-0", SAME_SIZE)
    return trap.springs("diff")


def watcher(trap: Trap) -> bool:
    trap.set("core.fsmonitor")
    return trap.springs("status")


def signature(trap: Trap) -> bool:
    head = git(trap.root, "cat-file", "commit", "HEAD")
    signed = head.replace("\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n -----END PGP SIGNATURE-----\n\n", 1)
    (trap.root.parent / "signed").write_text(signed + "\n")
    git(trap.root, "reset", "-q", git(trap.root, "hash-object", "-t", "commit", "-w", str(trap.root.parent / "signed")))
    trap.set("log.showSignature", "true")
    trap.set("gpg.program")
    return trap.springs("log")


def lazy_fetch(trap: Trap) -> bool:
    blob = git(trap.root, "rev-parse", "HEAD:file-0")
    (trap.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in (("core.repositoryFormatVersion", "1"), ("extensions.partialClone", "origin")):
        trap.set(name, value)
    for name, value in (("url", "ssh://nowhere/x"), ("promisor", "true")):
        trap.set(f"remote.origin.{name}", value)
    trap.set("core.sshCommand", f"{trap.program} < /dev/null; false")
    change(trap.root / "file-0", SAME_SIZE)
    return trap.springs("diff", "--stat")


def submodule_filter(trap: Trap) -> bool:
    make_repository(trap.root.parent / "inner")
    git(trap.root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(trap.root.parent / "inner"))
    commit(trap.root, "a submodule")
    (trap.root / "inner" / ".gitattributes").write_text("* filter=odd\n")
    trap.set("filter.odd.clean", where=trap.root / "inner")
    change(trap.root / "inner" / "file-0", SAME_SIZE)
    return trap.springs("status")


TRAPS = (
    clean_filter,
    process_filter,
    included_filter,
    linked_configuration,
    long_configuration,
    worktree_filter,
    filter_behind_a_crooked_way,
    external_diff,
    diff_driver,
    watcher,
    signature,
    lazy_fetch,
    submodule_filter,
)


@pytest.mark.parametrize("lay", TRAPS, ids=[trap.__name__ for trap in TRAPS])
def test_nothing_of_a_repositorys_own_configuration_is_run(
    hub: Hub, tmp_path: Path, lay: Callable[[Trap], bool]
) -> None:
    trap = Trap(tmp_path / "shop")
    assert lay(trap)
    body = context_caller(hub)(trap.root)
    assert not trap.mark.exists()
    assert lines(body, "git")[0].startswith("on branch main") and lines(body, "commits")
    notes = {clean_filter: "the filter odd.name of this repository was not run", submodule_filter: "changes inside sub"}
    assert lay not in notes or any(line.startswith(notes[lay]) for line in lines(body, "git"))


def test_a_filter_that_the_person_has_for_all_repositories_runs_as_for_them(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = Trap(tmp_path / "shop")
    trap.attribute("* filter=big\n")
    trap.set("filter.own.clean", "false")
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / ".gitconfig").write_text(f'[filter "big"]\n\tclean = {trap.program}\n')
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    os.utime(trap.root / "file-0", ns=(1, 1))  # looks changed, and is not
    body = context_caller(hub)(trap.root)
    note = "the filter own of this repository was not run: its files may show as changed"
    assert trap.mark.exists() and lines(body, "git")[1:] == [note, "nothing is uncommitted"]


def test_a_repository_that_names_other_files_as_its_own_shows_none_of_them(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "hunter2").write_text("x")
    root = tmp_path / "shop"
    make_repository(root)
    git(root, "config", "core.worktree", str(tmp_path / "private"))
    body = context_caller(hub)(root)
    assert lines(body, "git")[1:] == ["nothing is uncommitted"] and "hunter2" not in json.dumps(body)


def test_a_bare_repository_among_the_files_is_not_asked(hub: Hub, tmp_path: Path) -> None:
    trap = Trap(tmp_path / "shop")
    planted = trap.root / "fixture"
    git(trap.root, "init", "-q", "--bare", str(planted))
    for name, value in (
        ("core.bare", "false"),
        ("core.worktree", str(trap.root)),
        ("core.fsmonitor", str(trap.program)),
    ):
        git(planted, "--git-dir=.", "config", name, value)
    body = context_caller(hub)(planted)
    assert not trap.mark.exists()
    assert reason(body, "git") == reason(body, "commits") == "this is no working tree of a git repository"
    assert "file-0" not in json.dumps(body)
    (planted / "inner").mkdir()
    assert reason(context_caller(hub)(planted / "inner"), "git") == "this is no working tree of a git repository"


@pytest.mark.parametrize("text", ["gitdir: /nowhere", "gitdir: ../private", "nonsense", "", "gitdir: " + "x" * 9000])
def test_a_git_file_that_leads_nowhere_good_is_told_as_no_repository(hub: Hub, tmp_path: Path, text: str) -> None:
    (tmp_path / "private").mkdir()
    root = tmp_path / "outer" / "shop"
    make_repository(root.parent)
    root.mkdir()
    (root / ".git").write_text(text)
    (root / "README").write_text("words\n")
    body = context_caller(hub)(root)
    assert reason(body, "git") == "this is no working tree of a git repository"
    assert lines(body, "readme") == ["== README ==", "words"] and "file-0" not in json.dumps(body)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A repository that has nothing to do with the worktree that is asked about, and a linked worktree of its own."""
    root = tmp_path / "elsewhere" / "private"
    make_repository(root)
    (root / "hunter2").write_text("x")
    commit(root, "hunter2 is the password")
    git(root, "worktree", "add", "-q", "-b", "hunter2-branch", "../linked")
    return root


def linked_name(root: Path, private: Path) -> None:
    linked_branch(root, private)
    (root / ".git" / "refs" / "odd").mkdir()
    (root / ".git" / "refs" / "heads" / "main").rename(root / ".git" / "refs" / "odd" / "x")
    git(root, "symbolic-ref", "HEAD", "refs/odd/x")


def git_file(root: Path, private: Path) -> None:
    (root / ".git").write_text(f"gitdir: {private}/.git\n")


def git_link(root: Path, private: Path) -> None:
    (root / ".git").symlink_to(private / ".git")


def worktrees_file(root: Path, private: Path) -> None:
    (root / ".git").write_text(f"gitdir: {private}/.git/worktrees/linked\n")


def link_to_a_worktrees_file(root: Path, private: Path) -> None:
    (root / ".git").symlink_to(private.parent / "linked" / ".git")


def own_commondir(root: Path, private: Path) -> None:
    git(root, "init", "-q", "-b", "main")
    shutil.copy(private / ".git" / "index", root / ".git" / "index")
    (root / ".git" / "commondir").write_text(f"{private}/.git\n")


def linked_parts(root: Path, private: Path) -> None:
    git(root, "init", "-q", "-b", "main")
    shutil.rmtree(root / ".git" / "refs")
    for name in ("refs", "index"):
        (root / ".git" / name).symlink_to(private / ".git" / name)
    (root / ".git" / "objects" / "info" / "alternates").write_text(f"{private}/.git/objects\n")


def linked_branch(root: Path, private: Path) -> None:
    git(root, "init", "-q", "-b", "main")
    (root / ".git" / "refs" / "heads" / "main").symlink_to(private / ".git" / "refs" / "heads" / "main")
    (root / ".git" / "objects" / "info" / "alternates").write_text(f"{private}/.git/objects\n")


def own_branch_of(root: Path, private: Path) -> None:
    """A repository whose branch is at a commit of the other one."""
    git(root, "init", "-q", "-b", "main")
    (root / ".git/refs/heads/main").write_text(git(private, "rev-parse", "main") + "\n")


def alternates(root: Path, private: Path) -> None:
    own_branch_of(root, private)
    (root / ".git/objects/info/alternates").write_text(f"{private}/.git/objects\n")


def quoted_alternates(root: Path, private: Path) -> None:
    own_branch_of(root, private)
    (root / ".git/objects/info/alternates").write_text(f'"\\057{str(private)[1:]}/.git/objects"\n')


def alternates_of_alternates(root: Path, private: Path) -> None:
    own_branch_of(root, private)
    (root / "more/info").mkdir(parents=True)
    (root / "more/info/alternates").write_text(f"{private}/.git/objects\n")
    (root / ".git/objects/info/alternates").write_text("../../more\n")


def linked_objects(root: Path, private: Path) -> None:
    own_branch_of(root, private)
    shutil.rmtree(root / ".git/objects")
    (root / ".git/objects").symlink_to(private / ".git/objects")


def linked_loose_objects(root: Path, private: Path) -> None:
    own_branch_of(root, private)
    for path in (private / ".git/objects").glob("??"):
        (root / ".git/objects" / path.name).symlink_to(path)


def linked_packs(root: Path, private: Path) -> None:
    own_branch_of(root, private)
    git(private, "repack", "-adq")
    for path in (private / ".git/objects/pack").iterdir():
        (root / ".git/objects/pack" / path.name).symlink_to(path)


FOREIGN = (
    alternates,
    quoted_alternates,
    alternates_of_alternates,
    linked_objects,
    linked_loose_objects,
    linked_packs,
    linked_branch,
    linked_name,
    git_file,
    git_link,
    worktrees_file,
    link_to_a_worktrees_file,
    own_commondir,
    linked_parts,
)


@pytest.mark.parametrize("lead", FOREIGN, ids=[one.__name__ for one in FOREIGN])
def test_nothing_of_another_repository_is_told(
    hub: Hub, tmp_path: Path, private: Path, lead: Callable[[Path, Path], None]
) -> None:
    root = tmp_path / "shop"
    root.mkdir()
    lead(root, private)
    assert "hunter2" in git(root, "log", "-1", "--stat", check=False)  # git as a person runs it tells it
    body = context_caller(hub)(root)
    assert "hunter2" not in json.dumps(body) and "file-0" not in json.dumps(body)
    assert reason(body, "git") == reason(body, "commits") == reason(body, "changes")
    links = ("does not name this", "a link leads elsewhere", "HEAD is at a name that is no branch")
    why = (*links, "its objects are those of another repository", "alternates can't be read")
    assert any(one in reason(body, "git") for one in why)


def test_a_repository_with_objects_of_its_own_elsewhere_in_the_worktree_is_told(hub: Hub, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    make_repository(root)
    (root / ".git/objects").rename(root / ".git/store")
    (root / ".git/objects").symlink_to("store")
    (root / ".git/more").mkdir()
    (root / ".git/store/info/alternates").write_text("# ours\n../more\n")
    assert lines(context_caller(hub)(root), "git")[0].startswith("on branch main")


PARTS = ("shallow", "packed-refs", "config", "config.worktree", "objects/info/alternates", "info/sparse-checkout")


@pytest.mark.parametrize("name", PARTS)
def test_no_line_of_a_file_is_told_to_which_a_part_of_git_is_a_link(hub: Hub, tmp_path: Path, name: str) -> None:
    (tmp_path / "netrc").write_text("hunter2 machine\nhunter2: hunter2\n")
    root = tmp_path / "shop"
    make_repository(root)
    git(root, "config", "extensions.worktreeConfig", "true")
    (root / ".git" / name).unlink(missing_ok=True)
    (root / ".git" / name).symlink_to(tmp_path / "netrc")
    body = context_caller(hub)(root)
    assert "hunter2" not in json.dumps(body) and reason(body, "git").startswith("a link leads elsewhere: ")


def test_a_repository_elsewhere_that_names_the_working_tree_is_its_own(hub: Hub, tmp_path: Path, private: Path) -> None:
    assert lines(context_caller(hub)(private.parent / "linked"), "git")[0].startswith("on branch hunter2-branch")
    root = tmp_path / "outer"
    make_repository(root)
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(private), "inner")
    assert lines(context_caller(hub)(root / "inner"), "git")[0].startswith("on branch main")
    git(tmp_path, "init", "-q", "-b", "main", "--separate-git-dir", str(tmp_path / "apart.git"), "tree")
    body = context_caller(hub)(tmp_path / "tree")
    why = "its repository does not name this as its working tree (`git config core.worktree` mends that): "
    assert reason(body, "git").startswith(why)  # a long path may be cut: it comes last
    git(tmp_path / "tree", "config", "core.worktree", str(tmp_path / "tree"))
    assert lines(context_caller(hub)(tmp_path / "tree"), "git")[0] == "on branch main, no commit yet"


def by_excludes(root: Path, secret: Path) -> None:
    git(root, "config", "core.excludesFile", str(secret))


def by_attributes(root: Path, secret: Path) -> None:
    git(root, "config", "core.attributesFile", str(secret))


def by_worktree_excludes(root: Path, secret: Path) -> None:
    git(root, "config", "extensions.worktreeConfig", "true")
    git(root, "config", "--worktree", "core.excludesFile", str(secret))


def by_link(root: Path, secret: Path) -> None:
    (root / ".git" / "info" / "exclude").unlink()
    (root / ".git" / "info" / "exclude").symlink_to(secret)


@pytest.mark.parametrize("ask_by", [by_excludes, by_attributes, by_worktree_excludes, by_link])
def test_a_repository_cannot_ask_what_is_in_a_file_elsewhere(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask_by: Callable[[Path, Path], None]
) -> None:
    """What is ignored, or binary, would tell whether that file has such a line."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    (tmp_path / "xdg" / "git").mkdir(parents=True)
    (tmp_path / "xdg" / "git" / "ignore").write_text("ignored-by-person\n")
    (tmp_path / "secret").write_text("guess\nfile-0 binary\n")
    root = tmp_path / "shop"
    make_repository(root)
    ask_by(root, tmp_path / "secret")
    change(root / "file-0", SAME_SIZE)
    for name in ("guess", "ignored-by-person"):
        (root / name).write_text("x")
    body = context_caller(hub)(root)
    if ask_by is by_link:
        assert reason(body, "git").startswith("a link leads elsewhere: ")
    else:
        assert lines(body, "git")[2:] == [" M file-0", "?? guess"]
        assert lines(body, "changes")[1:] == ["  +1 -1 file-0"]
