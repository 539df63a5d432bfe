"""The judge: the same body through every way in, by both of its names, and for nobody who may not ask."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from crewhall.errors import NotFound
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
from tests.conftest import Agent, Live
from tests.edges.fake_judge import make_tree, write_fake_claude
from tests.edges.forked_bridge import ForkedBridge
from tests.edges.interfaces import (
    MODERN,
    Interface,
    announce,
    by_get,
    by_input,
    by_mcp,
    by_rest,
    by_words,
    http,
    mcp,
    run_here,
)
from tests.edges.sse import Sse
from tests.edges.stdio import hall_of

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
FAMILY = [tool for tool in registry().tools if tool.family == "judge"]
MENU = {tool.name for tool in FAMILY if "agent" not in tool.who}
REVIEW = {"contract_path": "$here/contract.json", "report_dir": "$here"}
PROPOSAL = {"proposal_path": "$here/proposal.md"}
AUDIT = {"files": ["style.css", "app.py"], "working_directory": "$tree"}
CONFLICT = {
    "contract_path": "$here/contract.json",
    "rebuttal_path": "$here/rebuttal.md",
    "judge_report_path": "$here/report.md",
}
# One after the other, by each way about papers of its own: tool, arguments, the code of the refusal.
SCRIPT: list[tuple[str, dict[str, Any], str | None]] = [
    ("claude_health", {}, None),
    ("claude_health", {"prompt": "Say hello."}, "INVALID_INPUT"),
    ("claude_judge_review", {}, "INVALID_INPUT"),
    ("claude_judge_review", REVIEW | {"prompt": "Say PASS."}, "INVALID_INPUT"),
    ("claude_judge_review", REVIEW | {"timeout_seconds": 0}, "INVALID_INPUT"),
    ("claude_judge_review", REVIEW | {"contract_path": "$here/proposal.md"}, "INVALID_INPUT"),
    ("claude_judge_review", REVIEW | {"contract_path": "$here/nothing.json"}, "NOT_FOUND"),
    ("claude_judge_review", REVIEW | {"contract_path": "/etc/hostname"}, "PATH_OUTSIDE_ROOT"),
    ("claude_judge_review", REVIEW | {"report_dir": "/etc"}, "PATH_OUTSIDE_ROOT"),
    ("claude_judge_review", REVIEW | {"report_dir": "$tree/.git"}, "FORBIDDEN"),
    ("claude_judge_review", REVIEW, None),
    ("claude_judge_review", REVIEW, None),
    ("claude_judge_review", REVIEW | {"fresh": True, "timeout_seconds": 60}, None),
    ("claude_validate_proposal", PROPOSAL, None),
    ("claude_validate_proposal", {"proposal_path": "$here"}, "INVALID_INPUT"),
    ("claude_security_audit", AUDIT | {"fresh": True}, None),
    ("claude_security_audit", AUDIT | {"files": ["../x"]}, "PATH_OUTSIDE_ROOT"),
    ("claude_security_audit", AUDIT | {"files": []}, "INVALID_INPUT"),
    ("claude_resolve_conflict", CONFLICT, None),
    ("claude_resolve_conflict", CONFLICT | {"rebuttal_path": "$here/no.md"}, "NOT_FOUND"),
    ("judge_report_list", {"task_id": "$task"}, None),
    ("judge_report_list", {"task_id": "$task", "kind": "review", "verdict": "PASS", "limit": 1}, None),
    ("judge_report_list", {"kind": "song"}, "INVALID_INPUT"),
    ("judge_report_get", {"id": "$report"}, None),
    ("judge_report_get", {"id": "$report", "offset": 10}, None),
    ("judge_report_get", {"id": "jr_nothing"}, "NOT_FOUND"),
]
WAYS = ("mcp-2026", "mcp-2025", "rest", "words", "input", "bridge", "bridge-judge", "sse")


@pytest.fixture
def live(serve: Callable[..., Live], tmp_path: Path) -> Live:
    return serve(judge__command=write_fake_claude(tmp_path / "claude"))


@pytest.fixture
def tree(live: Live, tmp_path: Path) -> Path:
    root = make_tree(tmp_path / "shop", *WAYS)
    live.hub.call("repository_register", {"path": str(root)}, OPERATOR)
    return root


@pytest.fixture
def interfaces(live: Live) -> Iterator[dict[str, Interface]]:
    with ExitStack() as opened:
        lasting: dict[tuple[str, str], ForkedBridge | Sse] = {}

        def connected(kind: str, live: Live, token: str) -> ForkedBridge | Sse:
            if (kind, token) not in lasting:
                words = ["--families", "judge"] if kind == "bridge-judge" else []
                environment = hall_of(live) | {"CREWHALL_TOKEN": token}
                made = (
                    Sse(live, token) if kind == "sse" else ForkedBridge(live.hub.settings.home, *words, **environment)
                )
                lasting[kind, token] = opened.enter_context(closing(made))
            return lasting[kind, token]

        def through(kind: str) -> Interface:
            return lambda live, tool, arguments, token: connected(kind, live, token).call(tool, **arguments)

        at_once = {"mcp-2026": by_mcp(MODERN), "mcp-2025": by_mcp("2025-06-18"), "rest": by_rest}
        yield at_once | {"words": by_words, "input": by_input} | {kind: through(kind) for kind in WAYS[5:]}


def told(live: Live, tree: Path, name: str, interface: Interface) -> list[Any]:
    """The script by one way, about papers of its own, and without what differs from one report to the next."""
    known = {"$here": str(tree / f"handoff-{name}"), "$tree": str(tree), "$task": name, "$report": ""}
    bodies = []
    for tool, given, code in SCRIPT:
        text = json.dumps(given)
        for word, value in known.items():
            text = text.replace(word, value)
        body = interface(live, tool, json.loads(text), live.token)
        assert body.get("code") == code, (name, tool, given, body)
        known["$report"] = body.get("report_id") or known["$report"]
        bodies.append((tool, body))
    text = json.dumps(bodies).replace(f"handoff-{name}", "handoff-way").replace(f'"{name}"', '"way"')
    text = re.sub(r"jr_\w+", "jr_1", text.replace(f"of {name}\\n", "of way\\n"))
    return [(tool, steady(body)) for tool, body in json.loads(text)]


def steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: steady(item) for key, item in value.items() if key not in ("duration_ms", "created_at")}
    if isinstance(value, list):
        return [steady(item) for item in value]
    return re.sub(r"[\d:T.Z-]{8,}|\d+\.\d s", "…", value) if isinstance(value, str) else value


def test_the_same_bodies_leave_by_every_way(live: Live, tree: Path, interfaces: dict[str, Interface]) -> None:
    assert set(interfaces) == set(WAYS)
    bodies = {name: told(live, tree, name, interface) for name, interface in interfaces.items()}
    first = bodies.pop("rest")
    for name, others in bodies.items():
        for ours, theirs in zip(first, others, strict=True):
            assert ours == theirs, name
    reviews = [body for tool, body in first if tool == "claude_judge_review" and "code" not in body]
    assert [(one["verdict"], one["cached"]) for one in reviews] == [
        ("CONDITIONAL", False), ("CONDITIONAL", True), ("CONDITIONAL", False),
    ]  # fmt: skip
    found, passed = (body["reports"] for tool, body in first if tool == "judge_report_list" and "code" not in body)
    assert [one["kind"] for one in found] == ["conflict", "review", "review"] and passed == []


def test_the_script_has_good_and_bad_calls_of_every_tool_of_the_family(live: Live) -> None:
    wanted = {tool.name for tool in FAMILY}
    assert {tool for tool, _, code in SCRIPT if code is None} == wanted
    assert {tool for tool, _, code in SCRIPT if code is not None} == wanted


def test_the_menu_is_the_seeds_with_its_defaults_and_no_free_prompt(live: Live) -> None:
    asked = {tool.name: tool.input_schema for tool in FAMILY if tool.name in MENU}
    assert {name: schema.get("required", []) for name, schema in asked.items()} == {
        "claude_judge_review": ["contract_path"],
        "claude_validate_proposal": ["proposal_path"],
        "claude_security_audit": ["files"],
        "claude_resolve_conflict": ["contract_path", "rebuttal_path", "judge_report_path"],
        "claude_health": [],
    }
    review = asked["claude_judge_review"]["properties"]
    assert (review["report_dir"]["default"], review["timeout_seconds"]["default"]) == ("_handoff", 900)
    with pytest.raises(NotFound, match="there is no tool 'claude_run'"):
        live.hub.call("claude_run", {"prompt": "Say hello."}, OPERATOR)


# The name that the seed uses, too


def test_claude_review_is_the_same_tool_wherever_tools_have_names(
    live: Live, tree: Path, interfaces: dict[str, Interface]
) -> None:
    for name in ("mcp-2026", "mcp-2025", "bridge", "bridge-judge", "sse"):
        here = str(tree / f"handoff-{name}")
        arguments = {"contract_path": f"{here}/contract.json", "report_dir": here}
        first, again = (
            interfaces[name](live, tool, arguments, live.token) for tool in ("claude_review", "claude_judge_review")
        )
        assert first["success"] and again["cached"] and again["report_id"] == first["report_id"], name
        refused = interfaces[name](live, "claude_review", {}, live.token)
        assert (refused["code"], refused["tool_name"]) == ("INVALID_INPUT", "claude_review"), "as it was called"
    calls = live.hub.call("call_list", {"limit": 500}, OPERATOR)["calls"]
    assert "claude_review" not in {call["tool"] for call in calls}, "the log has one name for it"


def test_no_list_shows_the_other_name_and_the_tool_itself_tells_it(live: Live) -> None:
    for era in (MODERN, "2025-06-18"):
        found = mcp(live, era, "tools/list", {}, **{"X-Crewhall-Families": "judge"})["result"]["tools"]
        assert {tool["name"] for tool in found} == {tool.name for tool in FAMILY}
        metas = {tool["name"]: tool.get("_meta") for tool in found}
        assert metas.pop("claude_judge_review") == {"crewhall/aliases": ["claude_review"]}
        assert not any(metas.values())
    paths = http.get(f"{live.url}/api/openapi.json").json()["paths"]
    assert "/api/v1/judge/review" in paths and "claude_review" not in json.dumps(paths)
    tools = http.get(f"{live.url}/api/v1/tools", headers={"Authorization": f"Bearer {live.token}"}).json()["tools"]
    assert "claude_review" not in {tool["name"] for tool in tools}


# Who may ask


def test_a_worker_is_refused_by_every_way_and_reads_reports(
    live: Live, tree: Path, interfaces: dict[str, Interface]
) -> None:
    worker = Agent(live.hub).token
    given = {"claude_judge_review": REVIEW, "claude_validate_proposal": PROPOSAL, "claude_resolve_conflict": CONFLICT}
    for name, interface in interfaces.items():
        for tool in MENU:
            arguments = json.loads(json.dumps(given.get(tool, AUDIT if "audit" in tool else {})).replace("$", "/"))
            body = interface(live, tool, arguments, worker)
            assert (body["code"], body["recoverable"]) == ("FORBIDDEN", False), (name, tool, body)
        assert interface(live, "judge_report_list", {}, worker)["spent"]["reports"] == 0, name
    assert by_get(live, "claude_health", {}, worker)["code"] == "FORBIDDEN"


# The command line


def test_commands_are_fit_for_people_and_scripts(live: Live, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree / "handoff-rest")
    home = ["--home", str(announce(live))]

    def run(*words: str) -> tuple[int, str]:
        return run_here([*home, *words], CREWHALL_TOKEN=live.token)

    code, shown = run("judge", "review", "contract.json", "--report-dir", ".")
    assert code == 9 and "CONDITIONAL" in shown and "black is not one of the named colours" in shown
    assert "CONDITIONAL: review of rest" in Path("JUDGE_REPORT.md").read_text()
    assert json.loads(Path("JUDGE_REPORT.json").read_text())["verdict"] == "CONDITIONAL"
    code, shown = run("report", "list")
    assert code == 0 and "CONDITIONAL" in shown
    (report,) = set(re.findall(r"jr_\w+", shown))
    assert "# CONDITIONAL: review of rest" in run("report", "get", report)[1]
    assert run("judge", "health")[1].startswith("available  yes")
    assert run("judge", "review", "../../contract.json")[0] != 0


def test_without_an_answer_that_can_be_read_a_command_fails(
    live: Live, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for said in tmp_path.glob("claude-*.json"):
        said.write_text("Sorry, no.")
    monkeypatch.chdir(tree)
    words = ["--home", str(announce(live)), "judge", "review", "handoff-rest/contract.json"]
    code, shown = run_here(words, CREWHALL_TOKEN=live.token)
    assert code == 5 and "parse_error" in shown
