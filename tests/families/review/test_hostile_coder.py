"""What a coder puts into its commits and requests, to make the hall, its reviewer or the judge do something else."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.families.review.test_judged import Judged, make_judged  # noqa: F401 - a fixture
from tests.outside.repos import commit, git

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]
PAPERS = "crewhall-review"


def link_directory(tree: Path, outside: Path) -> None:
    (tree / PAPERS).symlink_to(outside)


def link_contract(tree: Path, outside: Path) -> None:
    (tree / PAPERS).mkdir()
    (tree / PAPERS / "TASK_CONTRACT.json").symlink_to(outside / "mine.txt")


def take_the_name(tree: Path, outside: Path) -> None:
    (tree / PAPERS).write_text("a file")


@pytest.mark.parametrize("plant", [link_directory, link_contract, take_the_name])
def test_a_commit_leads_none_of_the_judges_papers_elsewhere(
    make_judged: Callable[..., Judged],  # noqa: F811
    tmp_path: Path,
    plant: Callable[[Path, Path], None],
) -> None:
    loop, outside = make_judged(), tmp_path / "outside"
    outside.mkdir()
    files = ("mine.txt", "JUDGE_REPORT.md", "TASK_CONTRACT.json")
    for name in files:
        (outside / name).write_text("mine")
    plant(loop.tree, outside)
    commit(loop.tree, "planted")
    loop.judge(loop.says("FAIL", "The sky is grey."))
    assert {path.name: path.read_text() for path in outside.iterdir()} == dict.fromkeys(files, "mine")
    assert loop.status() == "started" and "judge" in loop.last_message()
    loop.assert_clean()


def test_a_name_that_no_contract_can_hold_is_refused_at_once(make_judged: Callable[..., Judged]) -> None:  # noqa: F811
    """The round was given to a chore that failed over it again and again; its coder waited for ever."""
    loop = make_judged()
    Path(os.fsdecode(os.fsencode(loop.tree) + b"/a\xff")).write_text("odd")
    commit(loop.tree, "odd")
    refused = loop.refusal(loop.coder, "request_review")
    assert refused.code == "INVALID_INPUT" and "xff" in refused.message and loop.status() == "started"
    loop.assert_clean()


def test_the_judge_is_given_every_file_or_none(make_judged: Callable[..., Judged]) -> None:  # noqa: F811
    loop = make_judged()
    blob = git(loop.tree, "rev-parse", "HEAD:colour.txt")
    for start in range(0, 2_010, 402):
        entries = [("--cacheinfo", f"100644,{blob},many/{n}") for n in range(start, start + 402)]
        git(loop.tree, "update-index", "--add", *(word for entry in entries for word in entry))
    git(loop.tree, "commit", "-qm", "many")
    assert "at most 2000" in loop.refusal(loop.coder, "request_review").message
