"""A hub that is killed in the midst of a review: what it had acknowledged is there, and nothing else."""

import json
import shlex
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from crewhall.app import Hub
from crewhall.families.all import registry
from tests.edges.program import Program, ask
from tests.edges.raw_http import http
from tests.families.judge.judge_site import CONTRACT, FILES, BackgroundCall, FakeClaude, JudgeSite, command_for, rules

pytestmark = pytest.mark.slow

TASK = {"task_id": "T-1", "specification": {"requirements": ["add"]}, "acceptance_criteria": ["it adds"]}


@pytest.fixture
def tree(model_tree: Path, tmp_path: Path) -> Path:
    shutil.copytree(model_tree, tmp_path / "tree")
    (tmp_path / "tree" / "_handoff").mkdir()
    (tmp_path / "tree" / CONTRACT).write_text(json.dumps(TASK | {"changed_files": ["src/a.py"]}))
    return tmp_path / "tree"


@pytest.fixture
def cli(place: Path, tree: Path) -> Iterator[FakeClaude]:
    made = FakeClaude(place / tree.name)
    yield made
    made.close()


def test_a_hub_that_is_killed_leaves_nothing_half_done(
    tmp_path: Path, place: Path, tree: Path, cli: FakeClaude
) -> None:
    program = Program(tmp_path / "home", {"CREWHALL_JUDGE_COMMAND": shlex.join(command_for(place))})
    contract = {"contract_path": str(tree / CONTRACT)}
    with program.up() as up:
        ask(up, "repository/register", path=str(tree))
        first = ask(up, "judge/review", **contract, report_dir="acknowledged")
        (tree / "src" / "a.py").write_text("changed\n")
        cli.plays(rules("FAIL", waits="go", deaf=True))

        def review(**_: Any) -> dict[str, Any]:
            with suppress(httpx2.TransportError):
                return dict(http.post(f"{up.url}/api/v1/judge/review", json=contract).json())
            return {}

        lost = BackgroundCall(review)
        cli.wait_for(2)
        up.end(signal.SIGKILL)
        assert lost.wait() == {}
    cli.wait_until_gone(10)
    assert [path.name for path in (tree / "_handoff").iterdir()] == ["TASK_CONTRACT.json"]
    cli.plays(rules("FAIL"))
    hub = Hub(program.settings, registry())
    site = JudgeSite(hub, tree, cli)
    assert [report["id"] for report in site.reports()["reports"]] == [first["report_id"]]
    again = site.review()
    assert (again["verdict"], again["cached"]) == ("FAIL", False)
    assert {report["id"] for report in site.reports()["reports"]} == {first["report_id"], again["report_id"]}
    assert site.review()["cached"]
    hub.close()
    assert (site.report_names(), site.report_names("acknowledged")) == (sorted(FILES), sorted(FILES))
