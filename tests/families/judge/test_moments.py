"""What somebody changes at the worst moment, or where nobody looks: no verdict is about other files than it seems."""

import os
import shutil
from pathlib import Path

import pytest

from crewhall import fair_queue
from crewhall.stop import Stop
from tests.families.judge.court import FILES, Court, rules, says
from tests.outside.repos import commit, git

pytestmark = pytest.mark.slow

LONG = 200_000  # bytes, more than a prompt shows of a file
NAMED = {
    "too long": (b"a" * LONG, b"b" * LONG),
    "no text": (b"\0good", b"\0evil"),
    "secret": (b'token = "aB3dE5fG7hJ9"\n', b'token = "kL1mN2pQ4rS6"\n'),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_file_that_is_named_counts_though_it_is_not_shown_and_git_ignores_it(court: Court, case: str) -> None:
    before, after = NAMED[case]
    (court.root / "ignored").mkdir()
    (court.root / "ignored" / "x").write_bytes(before)
    court.contract(changed_files=["src/a.py", "ignored/x"])
    court.cli.plays(rules("PASS"), rules("FAIL"))
    assert [court.review()["cached"] for _ in range(2)] == [False, True]
    (court.root / "ignored" / "x").write_bytes(after)
    assert court.review()["verdict"] == "FAIL"
    assert court.cli.runs()[0]["input"] == court.cli.runs()[1]["input"], "it looks the same"


def same_looks(root: Path) -> None:
    """Replace a file by one of the same size and time, which the repository's settings let pass for the same."""
    path, other = root / "src/b.py", root / "ignored" / "b.py"
    other.parent.mkdir()
    other.write_text(path.read_text().replace("add", "sub"))
    os.utime(other, (1_000_000_000, 1_000_000_000))
    other.rename(path)


def test_a_repository_does_not_say_how_closely_it_is_looked_at(court: Court) -> None:
    for name, value in (("core.trustctime", "false"), ("core.checkStat", "minimal")):
        git(court.root, "config", name, value)
    os.utime(court.root / "src/b.py", (1_000_000_000, 1_000_000_000))
    git(court.root, "update-index", "--really-refresh")
    court.cli.plays(rules("PASS"), rules("FAIL"))
    assert [court.review()["cached"] for _ in range(2)] == [False, True]
    same_looks(court.root)
    assert "src/b.py" not in git(court.root, "status", "--porcelain"), "git is fooled"
    assert court.review()["verdict"] == "FAIL"


def test_only_the_judges_own_files_are_passed_over(court: Court) -> None:
    court.review()
    for name in ("JUDGE_REPORT.json.py", ".JUDGE_REPORT.md.0123.js", "XJUDGE_REPORT.md", "JUDGE_REPORT.jsonl"):
        (court.root / "src" / name).write_text("evil()")
        assert not court.review()["cached"], name
    (court.root / "src" / "JUDGE_REPORT.json").write_text("another review's")
    assert court.review()["cached"]


GIT = """#!/bin/sh
case " $* " in *" status "*) test -e {mark} || {{ : > {mark}; echo 'evil()' > {file}; }};; esac
exec {git} "$@"
"""


def test_what_changes_while_the_tree_is_looked_at_is_asked_about(
    court: Court, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change comes just before git looks for the first time: who reads the file before that judges another."""
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    mark = tmp_path / "mark"
    slow.write_text(GIT.format(mark=mark, file=court.root / "src/a.py", git=shutil.which("git")))
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    assert court.review()["verdict"] == "PASS"
    (run,) = court.cli.runs()
    assert mark.exists() and "evil()" in run["input"]


class Swap(Stop):
    """A caller who puts a link in place of a directory, once it was opened and looked at."""

    def __init__(self, path: Path, target: Path) -> None:
        super().__init__()
        self.path, self.target = path, target

    def check(self) -> None:
        super().check()
        if not self.path.is_symlink() and self._open() == {str(self.path)}:
            self.path.rename(self.path.with_name("was"))
            self.path.symlink_to(self.target, target_is_directory=True)

    def _open(self) -> set[str]:
        """What is open of it and in it."""
        links = {os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.islink(entry.path)}
        return {link for link in links if f"{link}/".startswith(f"{self.path}/")}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="a child can't be started in an open directory here")
def test_the_cli_begins_in_the_directory_that_was_looked_at_and_in_no_other(court: Court, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / court.root.name  # the stand-in finds its script there, too
    elsewhere.mkdir(parents=True)
    court.cli.plays(says('{"findings": []}'))
    swap = Swap(court.root / "src", elsewhere)
    answer = court.ask("claude_security_audit", files=["a.py"], working_directory="src", stop=swap)
    (run,) = court.cli.runs()
    assert (run["directory"], answer["error"]) == (str(court.root / "was"), "stale")


def test_who_finds_the_line_full_has_lost_nothing(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    court.leave("docs", word="PASS")
    commit(court.root, "with reports")
    monkeypatch.setattr(fair_queue, "LONGEST", 0)
    assert court.refused(report_dir="docs").code == "LIMIT_EXCEEDED"
    assert court.handed("docs") == sorted(FILES) and git(court.root, "status", "--porcelain", "docs") == ""


def test_a_file_that_nobody_may_see_is_said_to_be_unseen(court: Court) -> None:
    hidden = ["src/.env.loader.js", "src/.aws/handler.py", "src/.ssh/x.py"]
    for name in hidden:
        (court.root / name).parent.mkdir(exist_ok=True)
        (court.root / name).write_text("evil()")
    court.contract(changed_files=hidden)
    court.review()
    told = court.cli.runs()[0]["input"]
    assert all(f"| === {name}: not shown, and not readable" in told for name in hidden)
    assert "neither shown nor readable is not reviewed: that is a blocking issue" in told.replace(" \\\n", " ")
