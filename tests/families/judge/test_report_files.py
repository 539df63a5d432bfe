"""Where reports are written: inside the tree alone, as a whole or not at all, and never beside an old one."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.families.judge.judge_site import FILES, BackgroundCall, JudgeSite, rules
from tests.outside.repos import fingerprint

pytestmark = pytest.mark.slow


def test_a_directory_that_is_swapped_meanwhile_is_not_followed(site: JudgeSite, outside: Path) -> None:
    site.cli.plays(rules("FAIL", moves={"reports": "before"}, links={"reports": str(outside)}))
    answer = site.review(report_dir="reports")
    assert (answer["verdict"], answer["report_md_path"], answer["report_json_path"]) == ("FAIL", None, None)
    assert "not written" in answer["detail"] and site.report(answer)["verdict"] == "FAIL"


@pytest.mark.parametrize("path", [".git", ".git/hooks", ".git/new", ".ssh", "src/.ssh/x", "link", "link/new/deeper"])
def test_what_is_secret_by_its_name_is_no_place_for_reports(site: JudgeSite, path: str) -> None:
    (site.root / "link").symlink_to(".git", target_is_directory=True)
    before = fingerprint(site.root)
    assert site.refusal(report_dir=path).code == "FORBIDDEN"
    assert (fingerprint(site.root), site.cli.runs()) == (before, [])


def test_a_report_does_not_take_the_place_of_what_it_is_about(site: JudgeSite) -> None:
    site.leave_reports("docs", word="FAIL")
    site.contract("docs/JUDGE_REPORT.json")
    before = fingerprint(site.root)
    assert site.refusal(contract_path="docs/JUDGE_REPORT.json", report_dir="docs").code == "INVALID_INPUT"
    assert fingerprint(site.root) == before
    site.contract(changed_files=["src/a.py", "docs/JUDGE_REPORT.md"])
    assert site.refusal(report_dir="docs").code == "INVALID_INPUT"
    assert site.report_names("docs") == sorted(FILES) and site.cli.runs() == []


def test_the_directory_for_reports_is_made(site: JudgeSite) -> None:
    for path in ("_reports/of/today", "_new/", "./_dot/./x", str(site.root / "_absolute")):
        answer = site.review(report_dir=path)
        assert site.report_names(path) == sorted(FILES)
        assert answer["report_md_path"] == os.path.join(path, "JUDGE_REPORT.md")


def test_what_is_in_the_way_of_the_directory(site: JudgeSite) -> None:
    os.mkfifo(site.root / "fifo")
    for path in ("src/a.py", "src/a.py/below", "fifo"):
        assert site.refusal(report_dir=path).code == "INVALID_INPUT", path
    assert site.cli.runs() == []


@pytest.mark.parametrize("name", FILES)
def test_a_directory_in_the_way_of_a_report_costs_no_verdict(site: JudgeSite, name: str) -> None:
    site.leave_reports(word="PASS")
    (site.root / "_handoff" / name).unlink()
    (site.root / "_handoff" / name).mkdir()
    site.cli.plays(rules("FAIL"))
    answer = site.review()
    assert (answer["success"], answer["verdict"], answer["report_json_path"]) == (True, "FAIL", None)
    assert "is a directory" in answer["detail"] and site.report_names() == [name], "and not half of it"
    assert site.report(answer)["verdict"] == "FAIL"


@pytest.mark.parametrize("name", FILES)
def test_a_link_in_place_of_a_report_is_replaced(site: JudgeSite, outside: Path, name: str) -> None:
    (site.root / "_handoff" / name).symlink_to(outside / "file.json")
    assert site.review()["verdict"] == "PASS"
    assert not (site.root / "_handoff" / name).is_symlink() and site.report_names() == sorted(FILES)


def as_nobody_special(site: JudgeSite, **given: Any) -> BackgroundCall:
    """A review in a thread that may write no more than the mode of a directory says, root or not."""

    libc = ctypes.CDLL(None)

    def review(**more: Any) -> dict[str, Any]:
        sets = (ctypes.c_uint32 * 8)()
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        assert libc.capget(header, sets) == 0
        sets[0] &= ~(1 << 1 | 1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        assert libc.capset(header, sets) == 0
        return site.review(**more)

    return BackgroundCall(review, **given)


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_a_report_from_before_that_cannot_be_removed_stops_the_review(site: JudgeSite) -> None:
    site.leave_reports("locked", word="PASS")
    (site.root / "empty").mkdir()
    for name in ("locked", "empty"):
        (site.root / name).chmod(0o555)
    failure = as_nobody_special(site, report_dir="locked").wait_for_failure()
    assert failure.code == "INVALID_STATE" and "'locked'" in failure.message and "report_dir" in failure.hint
    assert site.cli.runs() == [], "it would have cost something, and PASS would still lie there"
    site.cli.plays(rules("FAIL"))
    answer = as_nobody_special(site, report_dir="empty").wait()
    assert (answer["verdict"], answer["report_md_path"]) == ("FAIL", None) and "not written" in answer["detail"]
    assert as_nobody_special(site, report_dir="empty/new").wait_for_failure().code == "INVALID_STATE"
