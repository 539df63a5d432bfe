"""What a coder puts into its commits and requests, to make the hall, its reviewer or the judge do something else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.families.review.test_judged import Judged, make_judged  # noqa: F401 - a fixture
from tests.outside.repos import commit

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
