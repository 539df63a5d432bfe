"""What somebody changes at the worst moment, or where nobody looks: no verdict is about other files than it seems."""

import os
import shutil
from pathlib import Path

import pytest

from crewhall import fair_queue
from crewhall.stop import Stop
from tests.families.judge.judge_site import FILES, JudgeSite, rules, says
from tests.outside.repos import commit, git

pytestmark = pytest.mark.slow

LONG = 200_000  # bytes, more than a prompt shows of a file
NAMED = {
    "too long": (b"a" * LONG, b"b" * LONG),
    "no text": (b"\0good", b"\0evil"),
    "secret": (b'token = "aB3dE5fG7hJ9"\n', b'token = "kL1mN2pQ4rS6"\n'),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_file_that_is_named_counts_though_it_is_not_shown_and_git_ignores_it(site: JudgeSite, case: str) -> None:
    before, after = NAMED[case]
    (site.root / "ignored").mkdir()
    (site.root / "ignored" / "x").write_bytes(before)
    site.contract(changed_files=["src/a.py", "ignored/x"])
    site.cli.plays(rules("PASS"), rules("FAIL"))
    assert [site.review()["cached"] for _ in range(2)] == [False, True]
    (site.root / "ignored" / "x").write_bytes(after)
    assert site.review()["verdict"] == "FAIL"
    assert site.cli.runs()[0]["input"] == site.cli.runs()[1]["input"], "it looks the same"


def same_looks(root: Path) -> None:
    """Replace a file by one of the same size and time, which the repository's settings let pass for the same."""
    path, other = root / "src/b.py", root / "ignored" / "b.py"
    other.parent.mkdir()
    other.write_text(path.read_text().replace("add", "sub"))
    os.utime(other, (1_000_000_000, 1_000_000_000))
    other.rename(path)


def test_a_repository_does_not_say_how_closely_it_is_looked_at(site: JudgeSite) -> None:
    for name, value in (("core.trustctime", "false"), ("core.checkStat", "minimal")):
        git(site.root, "config", name, value)
    os.utime(site.root / "src/b.py", (1_000_000_000, 1_000_000_000))
    git(site.root, "update-index", "--really-refresh")
    site.cli.plays(rules("PASS"), rules("FAIL"))
    assert [site.review()["cached"] for _ in range(2)] == [False, True]
    same_looks(site.root)
    assert "src/b.py" not in git(site.root, "status", "--porcelain"), "git is fooled"
    assert site.review()["verdict"] == "FAIL"


def test_only_the_judges_own_files_are_passed_over(site: JudgeSite) -> None:
    site.review()
    for name in ("JUDGE_REPORT.json.py", ".JUDGE_REPORT.md.0123.js", "XJUDGE_REPORT.md", "JUDGE_REPORT.jsonl"):
        (site.root / "src" / name).write_text("evil()")
        assert not site.review()["cached"], name
    (site.root / "src" / "JUDGE_REPORT.json").write_text("another review's")
    assert site.review()["cached"]


GIT = """#!/bin/sh
case " $* " in *" status "*) test -e {mark} || {{ : > {mark}; echo 'evil()' > {file}; }};; esac
exec {git} "$@"
"""


def test_what_changes_while_the_tree_is_looked_at_is_asked_about(
    site: JudgeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change comes just before git looks for the first time: who reads the file before that judges another."""
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    mark = tmp_path / "mark"
    slow.write_text(GIT.format(mark=mark, file=site.root / "src/a.py", git=shutil.which("git")))
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    assert site.review()["verdict"] == "PASS"
    (run,) = site.cli.runs()
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
def test_the_cli_begins_in_the_directory_that_was_looked_at_and_in_no_other(site: JudgeSite, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / site.root.name  # the fake Claude finds its script there, too
    elsewhere.mkdir(parents=True)
    site.cli.plays(says('{"findings": []}'))
    swap = Swap(site.root / "src", elsewhere)
    answer = site.ask("claude_security_audit", files=["a.py"], working_directory="src", stop=swap)
    (run,) = site.cli.runs()
    assert (run["directory"], answer["error"]) == (str(site.root / "was"), "stale")


def test_who_finds_the_line_full_has_lost_nothing(site: JudgeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.leave_reports("docs", word="PASS")
    commit(site.root, "with reports")
    monkeypatch.setattr(fair_queue, "LONGEST", 0)
    assert site.refusal(report_dir="docs").code == "LIMIT_EXCEEDED"
    assert site.report_names("docs") == sorted(FILES) and git(site.root, "status", "--porcelain", "docs") == ""


def test_a_file_that_nobody_may_see_is_said_to_be_unseen(site: JudgeSite) -> None:
    hidden = ["src/.env.loader.js", "src/.aws/handler.py", "src/.ssh/x.py"]
    for name in hidden:
        (site.root / name).parent.mkdir(exist_ok=True)
        (site.root / name).write_text("evil()")
    site.contract(changed_files=hidden)
    site.review()
    told = site.cli.runs()[0]["input"]
    assert all(f"| === {name}: not shown, and not readable" in told for name in hidden)
    assert "neither shown nor readable is not reviewed: that is a blocking issue" in told.replace(" \\\n", " ")
