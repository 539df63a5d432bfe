"""Another user swaps a directory above the tree that is judged: nothing elsewhere is read, or written to."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crewhall.app import Hub, Origin
from crewhall.errors import Failure
from crewhall.outside.root_path import identity_of
from tests.families.judge.judge_site import (
    FILES,
    SECRET,
    BackgroundCall,
    FakeClaude,
    JudgeSite,
    command_for,
    rules,
)
from tests.outside.swaps import Stage, exchange, nobodys_stage
from tests.sizes import size

REVIEWS = size(5, 150)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with nobodys_stage() as stage:
        yield stage


@pytest.fixture
def site(make_hub: Callable[..., Hub], place: Path, stage: Stage, model_tree: Path) -> Iterator[JudgeSite]:
    """A tree in nobody's directory, and another behind the lure, whose files have another text."""
    site = JudgeSite(make_hub(judge__command=command_for(place)), stage.root, FakeClaude(place / "shop"))
    for root in (stage.private, stage.root):
        shutil.copytree(model_tree, root, symlinks=True, dirs_exist_ok=True)
        site.root = root
        site.contract(acceptance_criteria=["it adds" if root == stage.root else SECRET])
    (stage.private / "src/a.py").write_text(SECRET)
    stage.lure_by_link()
    yield site
    site.cli.close()


def swap(stage: Stage) -> None:
    exchange(*(os.fsencode(stage.top / "theirs" / name) for name in ("place", "lure")))


@pytest.mark.parametrize("rests", [False, True], ids=["always", "now and then"])
def test_reviews_while_a_directory_above_is_swapped(site: JudgeSite, stage: Stage, rests: bool) -> None:
    site.origin = Origin(worktree=str(stage.root), identity=identity_of(str(stage.root)))
    seen: Counter[str] = Counter()
    with stage.swapping(rests=rests):
        for _ in range(REVIEWS):
            try:
                seen[str(site.review(fresh=True)["error"])] += 1
            except Failure as failure:
                seen[failure.code] += 1
    print(dict(seen), len(site.cli.runs()), "runs")
    told = [json.dumps(run) for run in site.cli.runs()]
    assert not [run for run in told if SECRET in run]
    assert not [name for name in FILES if (stage.private / "_handoff" / name).exists()]
    assert site.review(fresh=True)["verdict"] == "PASS", "when it is quiet again, it judges"


def test_a_verdict_of_a_tree_that_was_elsewhere_for_a_moment_is_none(site: JudgeSite, stage: Stage) -> None:
    """The CLI reads by paths: what it saw meanwhile, nobody can tell."""
    site.cli.plays(rules(waits="go"))
    review = BackgroundCall(site.review)
    site.cli.wait_for()
    swap(stage)
    swap(stage)
    site.cli.go()
    failure = review.wait_for_failure()
    assert failure.code == "INVALID_STATE" and "renamed during the call" in failure.message
    assert not [name for name in FILES if (stage.root / "_handoff" / name).exists()]
    assert site.reports()["reports"] == []
