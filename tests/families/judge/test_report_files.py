"""Where reports are written: inside the tree alone, as a whole or not at all, and never beside an old one."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.families.judge.court import FILES, Court, Meanwhile, rules
from tests.outside.repos import fingerprint

pytestmark = pytest.mark.slow


def test_a_directory_that_is_swapped_meanwhile_is_not_followed(court: Court, outside: Path) -> None:
    court.cli.plays(rules("FAIL", moves={"reports": "before"}, links={"reports": str(outside)}))
    answer = court.review(report_dir="reports")
    assert (answer["verdict"], answer["report_md_path"], answer["report_json_path"]) == ("FAIL", None, None)
    assert "not written" in answer["detail"] and court.report(answer)["verdict"] == "FAIL"


@pytest.mark.parametrize("path", [".git", ".git/hooks", ".git/new", ".ssh", "src/.ssh/x", "link", "link/new/deeper"])
def test_what_is_secret_by_its_name_is_no_place_for_reports(court: Court, path: str) -> None:
    (court.root / "link").symlink_to(".git", target_is_directory=True)
    before = fingerprint(court.root)
    assert court.refused(report_dir=path).code == "FORBIDDEN"
    assert (fingerprint(court.root), court.cli.runs()) == (before, [])


def test_a_report_does_not_take_the_place_of_what_it_is_about(court: Court) -> None:
    court.leave("docs", word="FAIL")
    court.contract("docs/JUDGE_REPORT.json")
    before = fingerprint(court.root)
    assert court.refused(contract_path="docs/JUDGE_REPORT.json", report_dir="docs").code == "INVALID_INPUT"
    assert fingerprint(court.root) == before
    court.contract(changed_files=["src/a.py", "docs/JUDGE_REPORT.md"])
    assert court.refused(report_dir="docs").code == "INVALID_INPUT"
    assert court.handed("docs") == sorted(FILES) and court.cli.runs() == []


def test_the_directory_for_reports_is_made(court: Court) -> None:
    for path in ("_reports/of/today", "_new/", "./_dot/./x", str(court.root / "_absolute")):
        answer = court.review(report_dir=path)
        assert court.handed(path) == sorted(FILES)
        assert answer["report_md_path"] == os.path.join(path, "JUDGE_REPORT.md")


def test_what_is_in_the_way_of_the_directory(court: Court) -> None:
    os.mkfifo(court.root / "fifo")
    for path in ("src/a.py", "src/a.py/below", "fifo"):
        assert court.refused(report_dir=path).code == "INVALID_INPUT", path
    assert court.cli.runs() == []


@pytest.mark.parametrize("name", FILES)
def test_a_directory_in_the_way_of_a_report_costs_no_verdict(court: Court, name: str) -> None:
    court.leave(word="PASS")
    (court.root / "_handoff" / name).unlink()
    (court.root / "_handoff" / name).mkdir()
    court.cli.plays(rules("FAIL"))
    answer = court.review()
    assert (answer["success"], answer["verdict"], answer["report_json_path"]) == (True, "FAIL", None)
    assert "is a directory" in answer["detail"] and court.handed() == [name], "and not half of it"
    assert court.report(answer)["verdict"] == "FAIL"


@pytest.mark.parametrize("name", FILES)
def test_a_link_in_place_of_a_report_is_replaced(court: Court, outside: Path, name: str) -> None:
    (court.root / "_handoff" / name).symlink_to(outside / "file.json")
    assert court.review()["verdict"] == "PASS"
    assert not (court.root / "_handoff" / name).is_symlink() and court.handed() == sorted(FILES)


def as_nobody_special(court: Court, **given: Any) -> Meanwhile:
    """A review in a thread that may write no more than the mode of a directory says, root or not."""

    libc = ctypes.CDLL(None)

    def review(**more: Any) -> dict[str, Any]:
        sets = (ctypes.c_uint32 * 8)()
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        assert libc.capget(header, sets) == 0
        sets[0] &= ~(1 << 1 | 1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        assert libc.capset(header, sets) == 0
        return court.review(**more)

    return Meanwhile(review, **given)


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_a_report_from_before_that_cannot_be_removed_stops_the_review(court: Court) -> None:
    court.leave("locked", word="PASS")
    (court.root / "empty").mkdir()
    for name in ("locked", "empty"):
        (court.root / name).chmod(0o555)
    failure = as_nobody_special(court, report_dir="locked").failed()
    assert failure.code == "INVALID_STATE" and "'locked'" in failure.message and "report_dir" in failure.hint
    assert court.cli.runs() == [], "it would have cost something, and PASS would still lie there"
    court.cli.plays(rules("FAIL"))
    answer = as_nobody_special(court, report_dir="empty").over()
    assert (answer["verdict"], answer["report_md_path"]) == ("FAIL", None) and "not written" in answer["detail"]
    assert as_nobody_special(court, report_dir="empty/new").failed().code == "INVALID_STATE"
