"""get_project_context on real worktrees: what it tells of them, whatever is missing, and that it notices changes."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import InvalidState
from crewhall.outside.tokens import count
from crewhall.stop import Stop
from tests.families.project.contexts import Context, context_caller, lines, reason
from tests.families.work.repositories import GitWatch
from tests.outside.repos import commit, git, make_repository

pytestmark = [pytest.mark.parametrize("database", ["sqlite"], indirect=True), pytest.mark.slow]
ORDER = ["git", "tasks", "reservations", "changes", "commits", "instructions", "readme", "tree", "just"]
ORDER += ["manifests", "containers"]


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own git settings and Docker have no say."""
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


@pytest.fixture
def ask(hub: Hub) -> Context:
    return context_caller(hub)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A worktree with something for every source of files."""
    root = tmp_path / "shop"
    make_repository(root)
    (root / "README.md").write_text("# Shop\n\nIt sells.\n")
    (root / "AGENTS.md").write_text("Run the tests.\n")
    (root / "CLAUDE.md").symlink_to("AGENTS.md")
    (root / "pyproject.toml").write_text('[project]\nname = "shop"\n')
    (root / "src").mkdir()
    (root / "src" / "main.py").write_text("print(1)\n")
    (root / ".gitignore").write_text("*.log\n.env\n")
    (root / ".env").write_text("PASSWORD=hunter2\n")
    commit(root, "Sell\x1b[31m things")
    return root


@pytest.fixture
def no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are old enough at once for their times to tell whether they change: a test does not wait for that."""
    monkeypatch.setattr("crewhall.cache.SETTLED_NS", 0)


def test_a_worktree_at_a_glance(ask: Context, shop: Path) -> None:
    (shop / "src" / "main.py").write_text("print(1)\nprint(2)\n")
    (shop / "file-1").unlink()
    (shop / "staged").write_text("one\ntwo\n")
    git(shop, "add", "staged")
    (shop / "new").write_text("x")
    (shop / "noise.log").write_text("x")
    body = ask(shop)
    head = git(shop, "rev-parse", "HEAD")
    assert lines(body, "git") == [
        f"on branch main, commit {head[:12]}",
        "1 staged, 2 changed, 1 untracked",
        " D file-1",
        " M src/main.py",
        "A  staged",
        "?? new",
    ]
    assert lines(body, "changes") == [
        "staged: 1 file, +2 -0",
        "  +2 -0 staged",
        "not staged: 2 files, +1 -30",
        "  +0 -30 file-1",
        "  +1 -0 src/main.py",
    ]
    first, second = lines(body, "commits")
    assert first.startswith(head[:7]) and first.endswith(" Ada: Sell\\x1b[31m things") and second.endswith("Ada: first")
    assert lines(body, "instructions") == [
        "== AGENTS.md ==",
        "Run the tests.",
        "== CLAUDE.md: the same as AGENTS.md ==",
    ]
    assert lines(body, "readme") == ["== README.md ==", "# Shop", "", "It sells."]
    assert lines(body, "manifests") == ["== pyproject.toml ==", "[project]", 'name = "shop"']
    assert lines(body, "tree") == [
        "10 files: 5 no ending, 3 .md, 1 .py, 1 .toml",
        "./ 10 files",
        "  .gitignore, AGENTS.md, CLAUDE.md, README.md, file-0, file-2, pyproject.toml, staged, new",
        "src/ 1 file",
        "  main.py",
    ]
    shown = [one["name"] for one in body["sections"]]
    assert shown == [name for name in ORDER if name in shown]
    assert {*shown, *(one["name"] for one in body["missing"])} == set(ORDER)
    assert "hunter2" not in json.dumps(body)


def test_it_stays_in_its_budget_and_names_what_it_left_out(ask: Context, shop: Path) -> None:
    (shop / "README.md").write_text("A sentence of the README, one of many.\n" * 250)
    for most in (500, 900, 2000):
        body = ask(shop, max_tokens=most)
        assert body["tokens"] == count(json.dumps(body, ensure_ascii=False)) <= most
        readme = next(one for one in body["sections"] if one["name"] == "readme")
        shown = len(readme["text"].split("\n")) if readme["text"] else 0
        assert readme["left_out"] == (f"{251 - shown} of 251 lines" if shown else "all 251 lines")
        assert body == ask(shop, max_tokens=most)
    assert lines(ask(shop), "readme")[-1] == "A sentence of the README, one of many."


def test_a_repository_in_every_state_is_told(ask: Context, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    root.mkdir()
    assert reason(ask(root), "git") == "this is no working tree of a git repository"
    assert lines(ask(root), "tree")[1:] == ["no files", "./ 0 files"]
    git(root, "init", "-q", "-b", "main")
    assert lines(ask(root), "git") == ["on branch main, no commit yet", "nothing is uncommitted"]
    assert "does not have any commits yet" in reason(ask(root), "commits")
    (root / "a").write_text("1\n")
    git(root, "add", "a")
    assert lines(ask(root), "changes") == ["staged: 1 file, +1 -0", "  +1 -0 a"]
    commit(root, "one")
    git(root, "checkout", "-qb", "topic")
    (root / "a").write_text("2\n")
    commit(root, "two")
    git(root, "checkout", "-q", "main")
    (root / "a").write_text("3\n")
    commit(root, "three")
    git(root, "branch", "-q", "--set-upstream-to=main", "topic")
    git(root, "checkout", "-q", "topic")
    assert lines(ask(root), "git")[1] == "upstream main: 1 ahead, 1 behind"
    git(root, "rebase", "-q", "main", check=False)
    told = lines(ask(root), "git")
    assert told[0].startswith("HEAD is detached, commit ") and told[1:] == [
        "a rebase of topic is going on",
        "1 conflicted",
        "UU a",
    ]
    git(root, "rebase", "--abort")
    git(root, "merge", "-q", "main", check=False)
    assert "a merge is going on" in lines(ask(root), "git")


def test_a_linked_worktree_and_a_part_of_a_repository_are_told_by_themselves(ask: Context, shop: Path) -> None:
    git(shop, "worktree", "add", "-q", "-b", "fix", "../fix")
    (shop.parent / "fix" / "only-here").write_text("x")
    body = ask(shop.parent / "fix")
    assert lines(body, "git")[0].startswith("on branch fix,") and lines(body, "git")[-1] == "?? only-here"
    (shop / "src" / "new.py").write_text("x")
    (shop / "src" / "main.py").write_text("x")
    (shop / "outside").write_text("x")
    part = ask(shop / "src")
    assert lines(part, "git")[2:] == [" M main.py", "?? new.py"]
    assert lines(part, "changes")[1:] == ["  +1 -1 main.py"]
    assert lines(part, "tree")[1:] == ["./ 2 files", "  main.py, new.py"]
    assert len(lines(part, "commits")) == 1
    (shop / "empty").mkdir()
    assert reason(ask(shop / "empty"), "commits") == "no commit has touched this directory"
    assert "Shop" not in json.dumps(part) and reason(part, "readme") == "no README at the top"


def test_a_worktree_that_is_gone_is_refused(ask: Context, shop: Path) -> None:
    shop.rename(shop.with_name("moved"))
    with pytest.raises(InvalidState, match=f"the root {shop} can't be opened"):
        ask(shop)


def test_with_no_program_installed_it_tells_what_the_files_say(
    ask: Context, shop: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (shop / "node_modules").mkdir()
    (shop / "node_modules" / "much.js").write_text("x")
    monkeypatch.setenv("PATH", str(tmp_path))
    body = ask(shop)
    assert [one["name"] for one in body["sections"]] == ["instructions", "readme", "tree", "manifests"]
    assert "git can't be started" in reason(body, "git")
    assert reason(body, "containers") == "docker is not installed where the hub runs"
    tree = lines(body, "tree")
    assert tree[0].startswith("by the disk, whatever is ignored: git can't be started") and "  main.py" in tree
    assert not any("much.js" in line for line in tree)


def test_names_in_any_bytes_and_many_of_them(ask: Context, shop: Path) -> None:
    for name in (b"caf\xe9", b"new\nline", b"-option", b":(top)magic", "中文".encode(), b"\x1b[2J"):
        Path(os.fsdecode(os.path.join(os.fsencode(shop), name))).write_text("x\n")
    commit(shop, "names")
    Path(os.fsdecode(os.path.join(os.fsencode(shop), b"caf\xe9"))).write_text("x\ny\n")
    (shop / ":(top)magic").write_text("x\ny\n")
    for number in range(1000):
        (shop / f"loose-{number:04}").write_text("x")
    body = ask(shop)
    told = lines(body, "git")
    assert told[1] == "2 changed, 1000 untracked" and {" M caf\\xe9", " M :(top)magic", "?? loose-0000"} <= set(told)
    assert lines(body, "changes") == ["not staged: 2 files, +2 -0", "  +1 -0 :(top)magic", "  +1 -0 caf\\xe9"]
    assert next(one["left_out"] for one in body["sections"] if one["name"] == "git") == "602 of 1004 lines"
    told = ", ".join(line.strip() for line in lines(body, "tree")).split(", ")
    assert {"new\\x0aline", "-option", "中文", "\\x1b[2J", "and 914 more"} <= set(told)


def test_files_that_are_vast_no_text_secret_or_elsewhere_do_no_harm(ask: Context, shop: Path, tmp_path: Path) -> None:
    shutil.rmtree(shop / ".git")  # git would read the vast one to compare it
    with (shop / "README.md").open("w") as file:
        file.write("A line of a vast README.\n" * 20_000)
        file.truncate(100_000_000)
    (tmp_path / "secret").write_text("hunter2\n")
    (shop / "package.json").symlink_to(tmp_path / "secret")
    (shop / "Makefile").write_bytes(b"\0\1")
    (shop / "Cargo.toml").write_text("-----BEGIN PRIVATE KEY-----\nhunter2MIIEvQIBADANBgkq\n")
    (shop / "go.mod").symlink_to(".env")
    (shop / "setup.py").mkdir()
    os.mkfifo(shop / "Dockerfile")
    (shop / "requirements.txt").write_text("x" * 5000)
    body = ask(shop)
    readme = next(one for one in body["sections"] if one["name"] == "readme")
    assert readme["left_out"].startswith("10185 of 10486 lines; 99737875 bytes of README.md unread")
    told = "\n".join(lines(body, "manifests"))
    assert "== package.json ==\n(Path outside project root)" in told
    assert "== Cargo.toml ==\n('Cargo.toml' is not given out: there is a private key in it)" in told
    assert "== go.mod ==\n('.env' is not given out" in told and "== Makefile ==\n('Makefile' is no text" in told
    assert "x… (4700 more letters)" in told and "hunter2" not in json.dumps(body)


FEWER = "  .gitignore, AGENTS.md, CLAUDE.md, README.md, file-0, file-1, pyproject.toml, loose"
BINARY, ODD = "  binary file-0", "  binary file-1"
SETTING = ("diff.odd.binary", "true")


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


NEWS: list[tuple[str, Callable[[Path], Any], str, str]] = [
    ("a new commit", lambda root: git(root, "commit", "-q", "--allow-empty", "-m", "news"), "commits", "Ada: news"),
    ("an edit of a changed file", lambda root: (root / "file-0").write_text("a\nb\n"), "changes", "  +2 -30 file-0"),
    ("a new untracked file", lambda root: (root / "src" / "news.py").write_text(""), "tree", "  main.py, news.py"),
    ("a file that is gone", lambda root: (root / "src" / "main.py").unlink(), "git", " D src/main.py"),
    ("a file that git is to know", lambda root: git(root, "add", "loose"), "changes", "staged: 1 file, +1 -0"),
    ("a file that git is to forget", lambda root: git(root, "rm", "-q", "--cached", "file-2"), "git", "D  file-2"),
    ("a file that is no more", lambda root: git(root, "rm", "-q", "file-2"), "tree", FEWER),
    ("a changed README", lambda root: (root / "README.md").write_text("# News\n"), "readme", "# News"),
    ("another branch", lambda root: git(root, "checkout", "-qb", "news"), "git", "on branch news, commit "),
    ("a reset", lambda root: git(root, "reset", "-q", "HEAD~1"), "commits", "Ada: first"),
    ("attributes of git's own", lambda root: _put(root / ".git/info/attributes", "file-0 binary"), "changes", BINARY),
    ("ignored attributes", lambda root: _put(root / ".gitattributes", "file-0 binary"), "changes", BINARY),
    (
        "the person's attributes",
        lambda root: _put(root.parent / "home/git/attributes", "file-0 binary"),
        "changes",
        BINARY,
    ),
    ("a setting", lambda root: git(root, "config", "diff.odd.binary", "true"), "changes", ODD),
    ("a setting of the worktree", lambda root: git(root, "config", "--worktree", *SETTING), "changes", ODD),
    ("an included setting", lambda root: _put(root.parent / "more", '[diff "odd"]\nbinary = true\n'), "changes", ODD),
    (
        "the person's setting",
        lambda root: _put(root.parent / "home/.gitconfig", '[diff "odd"]\nbinary'),
        "changes",
        ODD,
    ),
    ("longer ids", lambda root: git(root, "config", "core.abbrev", "30"), "commits", "longer"),
    ("an ignored file", lambda root: (root / ".gitignore").write_text("loose\n"), "git", " M .gitignore"),
]


TOLD: dict[str, Callable[[list[str]], bool]] = {
    "all of it": lambda told: len(told) == 1,
    "longer": lambda told: all(len(one.split(" ")[0]) == 30 for one in told),
}


@pytest.mark.parametrize(("change", "section", "line"), [one[1:] for one in NEWS], ids=[one[0] for one in NEWS])
def test_what_has_changed_since_the_last_answer_is_noticed(
    ask: Context, no_settling: None, shop: Path, tmp_path: Path, change: Callable[[Path], Any], section: str, line: str
) -> None:
    (shop / "file-0").write_text("once\n")
    (shop / "file-1").write_text("once\n")
    (shop / "loose").write_text("x\n")
    _put(shop / ".git" / "info" / "exclude", ".gitattributes")
    _put(shop / ".git" / "info" / "attributes", "file-1 diff=odd")
    git(shop, "config", "extensions.worktreeConfig", "true")
    git(shop, "config", "include.path", str(tmp_path / "more"))
    ask(shop)
    before = ask(shop)
    change(shop)
    after = ask(shop)
    assert after != before
    if section == "commits" and line in TOLD:
        assert TOLD[line](lines(after, section))
        return
    assert any(one.endswith(line) or one.startswith(line) for one in lines(after, section)), lines(after, section)


def test_what_cannot_have_changed_is_not_asked_again(
    ask: Context, no_settling: None, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = GitWatch(tmp_path / "bin", monkeypatch)
    (shop / "file-0").write_text("once\n")

    def git_commands() -> list[str]:
        watch.forget()
        ask(shop)
        known = ("status", "diff", "log", "ls-files", "config")
        return sorted(next(word for word in line.split() if word in known) for line in watch.calls())

    assert git_commands() == ["config", "diff", "log", "ls-files", "status"]
    assert git_commands() == ["config", "status"]
    (shop / "file-0").write_text("twice\n")
    assert git_commands() == ["config", "diff", "status"] and git_commands() == ["config", "status"]
    git(shop, "commit", "-q", "--allow-empty", "-m", "more")
    assert git_commands() == ["config", "diff", "log", "status"]


def test_recipes_and_containers_are_told_by_their_programs(
    ask: Context, no_settling: None, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reason(ask(shop), "just").endswith("has no justfile")
    (shop / "justfile").write_text("# Try it.\ntest:\n    false\nbuild kind='all':\n    false\n_own:\n    false\n")
    assert [lines(ask(shop), "just") for _ in range(2)] == [["build kind", "test  # Try it."]] * 2
    (shop / "justfile").write_text("other:\n    false\n")
    assert lines(ask(shop), "just") == ["other"]
    (shop / "justfile").write_text("import 'more.just'\n")
    (shop / "more.just").write_text("one:\n")
    assert lines(ask(shop), "just") == ["one"]
    (shop / "more.just").write_text("two:\n")
    assert lines(ask(shop), "just") == ["two"]
    fake = tmp_path / "bin" / "docker"
    fake.parent.mkdir()
    fake.write_text(DOCKER.format(root=shop))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    told = ["shop-web-1  web:1  Up 2 hours  80/tcp", "== shop-web-1, the end of its log ==", "served", "trouble"]
    assert lines(ask(shop), "containers") == told
    assert reason(ask(shop / "src"), "containers") == "no container was started from here by Docker Compose"
    fake.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    assert reason(ask(shop), "containers") == "docker does not answer: Cannot connect to the Docker daemon"
    fake.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nsleep 600\n")
    late = ask(shop, sources=["containers"], stop=Stop(1.0))
    assert reason(late, "containers") == "it took too long" and (tmp_path / "started").exists()


DOCKER = """#!/bin/sh
case "$1 $4" in
"ps label=com.docker.compose.project.working_dir={root}")
    printf 'c0ffee\\tshop-web-1\\tweb:1  Up 2 hours  80/tcp\\n';;
"logs --") echo served; echo trouble >&2;;
esac
"""
