"""The showcase: local models behind the real ollama-mcp, a judge that plays a script, and the script that decides."""

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.client import Client
from crewhall.errors import Failure
from tests.client.clients import HERE, stdio_command
from tests.client.ollama import Ollama, ollama
from tests.edges.interfaces import CREWHALL

EXAMPLE = HERE.parents[1] / "examples" / "floor_manager.py"
JUDGE = [sys.executable, str(HERE / "judge_server.py")]
CODER, REVIEWER = "qwen2.5-coder:14b", "deepseek-r1:7b"
GOOD, OK = {"files": {"src/a.py": "print('a')\n"}}, {"ok": True, "problems": []}


def example() -> Any:
    """The example as a module; it is a script, and in no package."""
    spec = importlib.util.spec_from_file_location("floor_manager", EXAMPLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def models() -> Iterator[Ollama]:
    with ollama() as server:
        yield server


@pytest.fixture(scope="module")
def client(models: Ollama) -> Iterator[Client]:
    with Client({"judge": JUDGE, "ollama": models.entry}) as made:
        yield made


def contract_in(directory: Path, *verdicts: str) -> Path:
    handoff = directory / "_handoff"
    handoff.mkdir()
    contract = handoff / "TASK_CONTRACT.json"
    told = {"task_id": "t1", "specification": {"requirements": ["print a"]}, "changed_files": ["src/a.py", "a"]}
    contract.write_text(json.dumps(told))
    contract.with_name("verdicts.json").write_text(json.dumps(verdicts))
    return contract


def example_arguments(directory: Path, contract: Path, rounds: int = 3) -> argparse.Namespace:
    names = {"implementer": CODER, "reviewer": REVIEWER, "ask": "ollama_generate"}
    return argparse.Namespace(contract=contract, directory=directory, rounds=rounds, **names)


@pytest.mark.parametrize(
    ("files", "reviews", "verdicts", "code", "last"),
    [
        ([GOOD], [OK], ["PASS"], 0, "merge"),
        ([GOOD, GOOD], [OK, OK], ["FAIL", "PASS"], 0, "merge"),
        ([GOOD, GOOD], [{"ok": False, "problems": ["no test"]}, OK], ["PASS"], 0, "merge"),
        ([GOOD], [OK], ["CRITICAL_HALT"], 4, "halt: "),
        ([GOOD] * 3, [OK] * 3, ["FAIL", "CONDITIONAL", "FAIL"], 3, "stopped: the rounds are used up"),
        (["no", {"files": []}, {"files": {"a": 1}}], ["well"], ["PASS"], 3, "stopped: the rounds are used up"),
    ],
)
def test_the_floor_manager_decides(
    models: Ollama,
    client: Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    files: list[Any],
    reviews: list[Any],
    verdicts: list[str],
    code: int,
    last: str,
) -> None:
    models.plays({CODER: files, REVIEWER: reviews})
    assert example().play(client, example_arguments(tmp_path, contract_in(tmp_path, *verdicts))) == code
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith(last), said
    assert sum(line.startswith("round") for line in said) == len(files)


def test_objections_reach_the_implementer_and_files_the_directory(
    models: Ollama, client: Client, tmp_path: Path
) -> None:
    models.plays({CODER: [GOOD, GOOD], REVIEWER: [OK, OK]})
    assert example().play(client, example_arguments(tmp_path, contract_in(tmp_path, "CONDITIONAL", "PASS"))) == 0
    first, again = [prompt for model, prompt in models.prompts if model == CODER]
    assert "print a" in first and "issue" not in first and "CONDITIONAL issue 1" in again
    assert (tmp_path / "src" / "a.py").read_text() == "print('a')\n"
    assert "print('a')" in next(prompt for model, prompt in models.prompts if model == REVIEWER)


@pytest.mark.parametrize("name", ["../out.py", "{}/out.py", ".GIT/hooks/x", "link/out.py", "contract.json", "more.py"])
def test_no_file_is_written_where_the_implementer_has_no_business(name: str, tmp_path: Path) -> None:
    work, floor = tmp_path / "work", example()
    work.mkdir()
    (work / "link").symlink_to(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(floor.Objection, match="is not yours to write"):
        floor.write({"good.py": "x", name.format(tmp_path): "x"}, work, ["good.py", "../out.py", "link/out.py"])
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("judge", [["no-such-program"], stdio_command("other")], ids=["not there", "another"])
def test_no_other_server_is_asked_for_the_verdict(judge: list[str], tmp_path: Path) -> None:
    liar = stdio_command("claude_judge_review", "judge.claude_judge_review")
    with Client({"judge": judge, "ollama": liar}) as client:
        assert client.call_tool("claude_judge_review")["name"] == "claude_judge_review", "it would answer"
        with pytest.raises(Failure, match="no tool 'claude_judge_review' in judge"):
            example().judge(client, example_arguments(tmp_path, contract_in(tmp_path, "PASS")))
        with pytest.raises(Failure, match="no tool 'claude_judge_review' in judge"):
            client.call_tool("judge.claude_judge_review")


def test_what_others_say_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    example().say("\x1b]0;owned\x07", "a\nmerge", 3)
    assert capsys.readouterr().out == "\ufffd]0;owned\ufffd a\ufffdmerge 3\n"


def test_no_verdict_is_no_pass(models: Ollama, client: Client, tmp_path: Path) -> None:
    models.plays({CODER: [GOOD], REVIEWER: [OK]})
    with pytest.raises(SystemExit, match="the judge gave no verdict: parse_error"):
        example().play(client, example_arguments(tmp_path, contract_in(tmp_path, "parse_error")))


def test_it_runs_as_a_plain_script(models: Ollama, tmp_path: Path) -> None:
    models.plays({CODER: [GOOD, GOOD], REVIEWER: [OK, OK]})
    contract = contract_in(tmp_path, "FAIL", "PASS")
    servers = {"judge": {"command": JUDGE[0], "args": JUDGE[1:]}, "ollama": models.entry}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    words = [str(contract), "--directory", str(tmp_path), "--servers", str(tmp_path / ".mcp.json")]
    words = [sys.executable, str(EXAMPLE), *words]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "merge"), done.stdout + done.stderr


CLI = """\
import json, pathlib, sys
sys.stdin.read()
runs = pathlib.Path(__file__).with_suffix(".runs")
runs.open("a").write("x")
verdict = "FAIL" if len(runs.read_text()) == 1 else "PASS"
issues = [{"file": "src/a.py", "line": 1, "issue": "say hello"}] if verdict == "FAIL" else []
ruling = {"task_id": "t1", "verdict": verdict, "blocking_issues": issues}
print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": json.dumps(ruling)}))
"""


def test_it_goes_round_with_a_real_hall(models: Ollama, tmp_path: Path) -> None:
    """As the seed has it: a local model writes, another looks at it, the hall's judge rules, and the script decides."""
    models.plays({CODER: [GOOD, GOOD], REVIEWER: [OK, OK]})
    work, hall = tmp_path / "work", tmp_path / "hall"
    work.mkdir()
    hall.mkdir()
    contract = contract_in(work)
    contract.write_text(json.dumps(json.loads(contract.read_text()) | {"acceptance_criteria": ["it prints a"]}))
    (tmp_path / "claude.py").write_text(CLI)
    (hall / "config.toml").write_text(
        f"[judge]\ncommand = {json.dumps([sys.executable, str(tmp_path / 'claude.py')])}\n"
    )
    bridge = ["--home", str(hall), "mcp", "--standalone", "--families", "judge", "--directory", str(work)]
    servers = {"judge": {"command": CREWHALL, "args": bridge}, "ollama": models.entry}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    words = [
        sys.executable,
        str(EXAMPLE),
        str(contract),
        "--directory",
        str(work),
        "--servers",
        str(tmp_path / ".mcp.json"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "merge"), done.stdout + done.stderr
    assert (
        "the judge objects" in done.stdout
        and "say hello" in [prompt for who, prompt in models.prompts if who == CODER][1]
    )
    assert json.loads((work / "_handoff" / "JUDGE_REPORT.json").read_text())["verdict"] == "PASS"
