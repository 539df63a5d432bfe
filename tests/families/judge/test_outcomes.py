"""What the CLI may do, and what its caller, the hall and the directory for reports have of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from tests.families.judge.fake_claude import VERSION
from tests.families.judge.judge_site import (
    CONTRACT,
    FILES,
    ISSUE,
    USAGE,
    Act,
    JudgeSite,
    on_both,
    result,
    rules,
    ruling,
    says,
)

pytestmark = pytest.mark.slow

TOKENS = {"input_tokens": 1110, "output_tokens": 5}
TOKEN = "ghp_" + "Ab1" * 12
MESSAGES: list[dict[str, Any]] = [{"type": "system"}, {"type": "assistant", "result": ruling("FAIL")}]
SAYS_TWICE = '{"task_id": "T-1", "verdict": "FAIL", "verdict": "PASS", "blocking_issues": []}'
# What it does, the error that its caller gets, and a piece of what else is told.
NO_VERDICT: dict[str, tuple[Act, str, str]] = {
    "crashes with last words": ({"err": "cannot reach the model\n", "code": 3}, "exit code 3: cannot reach the", ""),
    "crashes without a word": ({"code": 3}, "exit code 3", ""),
    "is killed": ({"signal": 9}, "signal 9", ""),
    "says something secret": ({"err": f"refused {TOKEN}", "code": 1}, "exit code 1: refused [secret: GitHub", ""),
    "says garbage": ({"out": "}{ nothing that could be read"}, "parse_error", "29 bytes"),
    "says nothing": ({}, "parse_error", "0 bytes"),
    "says JSON of another kind": ({"out": '[1, {"type": "assistant"}, null]'}, "parse_error", "bytes"),
    "says JSON that is cut off": ({"out": result(ruling())[:-20]}, "parse_error", "bytes"),
    "says 50 MiB": ({"out": "x" * 1024, "times": 50 * 1024}, "parse_error", f"{50 * 1024 * 1024} bytes"),
    "says PASS for 50 MiB": ({"out": result(ruling()), "times": 160_000}, "parse_error", "bytes"),
    "says PASS behind its FAIL": ({"out": result(ruling("FAIL")) + result(ruling())}, "parse_error", "bytes"),
    "is aborted behind its PASS": ({"out": result(ruling()) + "Error: aborted\n"}, "parse_error", "bytes"),
    "says that it failed, and PASS": ({"out": result(ruling(), subtype="error_during_execution")}, "error_during", ""),
    "does not say that it is no error": ({"out": result(ruling(), is_error=None)}, "exit code 0", ""),
    "has no text": (says(None), "parse_error", "no text"),
    "answers with prose": (says("I would say PASS, without blocking issues."), "parse_error", "no JSON object"),
    "answers nothing": (says(""), "parse_error", "no JSON object"),
    "judges another task": (rules(task_id="T-2"), "parse_error", "'T-2'"),
    "says two things": (says(f"{ruling('FAIL')} No: {ruling()}"), "parse_error", "2 different"),
    "says one word twice": (says(SAYS_TWICE), "parse_error", "no JSON object"),
    "passes what blocks": (says(ruling(blocking_issues=[ISSUE])), "parse_error", "1 blocking issues"),
    "has a verdict of its own": (says(ruling("pass")), "parse_error", "verdict"),
    "forgets the issues": (says('{"task_id": "T-1", "verdict": "PASS"}'), "parse_error", "blocking_issues"),
    "passes and then fails": (rules(code=3), "exit code 3", ""),
    "passes and is killed": (rules(signal=15), "signal 15", ""),
    "passes by mistake": ({"out": result(ruling(), is_error=True)}, "", ""),
    "is not logged in": ({"out": result("Not logged in", is_error=True), "code": 1}, "Not logged in", ""),
    "has had its turns": (
        {"out": '{"type": "result", "subtype": "error_max_turns", "errors": ["too many turns"]}', "code": 1},
        "too many turns",
        "",
    ),
}


@pytest.mark.parametrize("case", NO_VERDICT)
def test_what_is_no_verdict_never_becomes_one(shared_site: JudgeSite, case: str) -> None:
    act, error, detail = NO_VERDICT[case]
    shared_site.leave_reports(word="PASS")
    shared_site.cli.plays(act)
    answer = shared_site.review(fresh=True)
    assert (answer["success"], answer["verdict"], answer["timed_out"], answer["cached"]) == (False, None, False, False)
    assert answer["error"].startswith(error) and detail in (answer["detail"] or ""), answer
    assert {answer[name] for name in ("blocking_issues_count", "summary", "report_md_path", "report_json_path")} == {
        None
    }
    assert answer["blocking_issues"] == []
    assert shared_site.report_names() == [], "what lay there said PASS"
    stored = shared_site.report(answer)
    assert (stored["verdict"], stored["ruling"], stored["error"]) == (None, None, answer["error"])
    assert stored["error"] in stored["text"] and "No ruling" in stored["text"]
    assert shared_site.reports()["reports"][0]["id"] == answer["report_id"]
    assert TOKEN not in json.dumps([answer, stored])


@on_both
def test_the_last_words_of_a_crash_are_kept_to_their_end(site: JudgeSite) -> None:
    reason = "quota exhausted"
    for noise in ("a step\n" * 1000, 'password="hunter2horse5"\n' * 100, "x" * 1990):
        site.cli.plays({"err": f"{noise}{reason}\n", "code": 3})
        answer = site.review(fresh=True)
        stored = site.report(answer)
        (listed,) = site.reports(limit=1)["reports"]
        for error in (answer["error"], stored["error"], listed["error"]):
            assert error.startswith("exit code 3: ") and error.endswith(reason), error
        assert reason in stored["text"] and len(answer["error"]) == 2000 and len(listed["error"]) == 200
        assert "hunter" not in json.dumps([answer, stored])


def test_what_failed_still_cost_something(shared_site: JudgeSite) -> None:
    shared_site.cli.plays({"out": result("overloaded", is_error=True), "code": 1})
    answer = shared_site.review(fresh=True)
    assert {**TOKENS, "cost_usd": 0.25}.items() <= answer.items()
    assert {**TOKENS, "cost_usd": 0.25}.items() <= shared_site.report(answer).items()


VERDICTS: dict[str, tuple[Act, str]] = {
    **{word: (rules(word), word) for word in ("PASS", "CONDITIONAL", "FAIL", "CRITICAL_HALT")},
    "inside prose": (says(f"Here it is:\n\n```json\n{ruling('FAIL')}\n```\nI hope {{this}} helps."), "FAIL"),
    "twice the same": (says(f"{ruling('FAIL')}\n\nOnce more:\n{ruling('FAIL')}"), "FAIL"),
    "behind other lines": ({"out": f"a note\n{{}}\n{result(ruling('FAIL'))}\n", "err": "a warning"}, "FAIL"),
    "in a list of messages": ({"out": json.dumps([*MESSAGES, json.loads(result(ruling("PASS")))])}, "PASS"),
    "with words of its own": (says(ruling("FAIL", confidence="high", suggestions=["test it"])), "FAIL"),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_a_verdict_is_told_stored_and_written(shared_site: JudgeSite, case: str) -> None:
    act, word = VERDICTS[case]
    shared_site.leave_reports(word="PASS")
    shared_site.cli.plays(act)
    answer = shared_site.review(fresh=True)
    count = 0 if word == "PASS" else 1
    assert (answer["success"], answer["verdict"], answer["error"], answer["timed_out"]) == (True, word, None, False)
    assert (answer["blocking_issues_count"], answer["blocking_issues"]) == (count, [ISSUE] * count)
    assert (answer["summary"], answer["task_id"]) == ("so", "T-1")
    assert [answer[name] for name in ("report_md_path", "report_json_path")] == [f"_handoff/{name}" for name in FILES]
    assert shared_site.report_names() == sorted(FILES)
    written = json.loads((shared_site.root / "_handoff/JUDGE_REPORT.json").read_text())
    assert (written["task_id"], written["verdict"], written["tokens_used"]) == ("T-1", word, 1115)
    assert (len(written["blocking_issues"]), written["report_id"]) == (count, answer["report_id"])
    stored = shared_site.report(answer)
    assert (stored["verdict"], stored["error"], stored["ruling"]["verdict"]) == (word, None, word)
    assert (shared_site.root / "_handoff/JUDGE_REPORT.md").read_text() == stored["text"]
    assert {**TOKENS, "cost_usd": 0.25, "subject": "T-1", "kind": "review"}.items() <= stored.items()


def test_a_file_that_the_cli_writes_itself_is_not_what_counts(shared_site: JudgeSite) -> None:
    own = {f"_handoff/{name}": ruling("PASS") for name in FILES}
    shared_site.cli.plays(rules("FAIL", writes=own), {"writes": own, "code": 1})
    assert shared_site.review(fresh=True)["verdict"] == "FAIL"
    assert json.loads((shared_site.root / "_handoff/JUDGE_REPORT.json").read_text())["verdict"] == "FAIL"
    assert shared_site.review(fresh=True)["verdict"] is None
    assert shared_site.report_names() == []


def test_the_rest_of_the_menu_is_answered_in_its_own_shapes(shared_site: JudgeSite) -> None:
    (shared_site.root / "PROPOSAL_FINAL.md").write_text("Add numbers.")
    (shared_site.root / "REBUTTAL.md").write_text("It does add.")
    (shared_site.root / "OLD.json").write_text(ruling("FAIL"))
    finding = {"severity": "high", **ISSUE}
    sides = {"contract_path": CONTRACT, "rebuttal_path": "REBUTTAL.md", "judge_report_path": "OLD.json"}
    calls: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
        (
            "claude_validate_proposal",
            {"proposal_path": "PROPOSAL_FINAL.md"},
            {"valid": False, "issues": [ISSUE]},
            {"valid": False, "issues": [ISSUE]},
            "invalid",
        ),
        (
            "claude_security_audit",
            {"files": ["src/a.py"]},
            {"summary": "a hole", "findings": [finding]},
            {"findings": [finding], "findings_count": 1, "summary": "a hole"},
            "findings",
        ),
        (
            "claude_resolve_conflict",
            sides,
            {"side": "floor_manager", "reasoning": "it adds"},
            {"side": "floor_manager", "reasoning": "it adds"},
            "floor_manager",
        ),
    ]
    for tool, given, said, expected, word in calls:
        shared_site.cli.plays(says(json.dumps(said)), says(ruling()))
        answer = shared_site.ask(tool, fresh=True, **given)
        assert expected.items() <= answer.items() and answer["success"], tool
        assert shared_site.report(answer)["verdict"] == word
        failed = shared_site.ask(tool, fresh=True, **given)
        assert (failed["success"], failed["error"]) == (False, "parse_error"), "a verdict is no answer to this"
        empty: dict[str, Any] = {name: [] if isinstance(value, list) else None for name, value in expected.items()}
        assert empty.items() <= failed.items()


def test_tokens_and_money_are_summed_per_workflow(site: JudgeSite) -> None:
    made = [site.ask("workflow_create", name="w", source_type="prompt", source_content="x")["id"] for _ in range(2)]
    site.cli.plays(rules("PASS"), {"out": result("busy", is_error=True, usage=None, total_cost_usd=1), "code": 1})
    for workflow, reviews in zip(made, (1, 2), strict=True):
        site.contract(workflow_id=workflow)
        for _ in range(reviews):
            site.review(fresh=True)
        site.cli.plays(rules("FAIL"), {"out": result(ruling(), usage={**USAGE, "output_tokens": "many"})})
    spent = [site.reports(workflow_id=workflow)["spent"] for workflow in made]
    assert spent[0] == {"reports": 1, **TOKENS, "cost_usd": 0.25}
    assert spent[1] == {"reports": 2, "input_tokens": 2220, "output_tokens": 5, "cost_usd": 0.5}
    assert site.reports()["spent"] == {"reports": 3, "input_tokens": 3330, "output_tokens": 10, "cost_usd": 0.75}
    assert site.reports(verdict="FAIL", task_id="T-1", kind="review")["spent"]["reports"] == 1


def test_health_tells_the_version_and_the_line(site: JudgeSite) -> None:
    told = site.ask("claude_health")
    standing = {"model": None, "running": 0, "waiting": 0, "at_once": 2}
    assert told == {"available": True, "version": VERSION, "error": None, **standing}
    assert site.cli.runs() == []


@pytest.mark.parametrize("words", [["no-such-claude"], ["/dev/null"], ["sh", "-c", "exit 3"], ["sh", "-c", ":"]])
def test_without_a_cli_that_answers_health_says_so(make_hub: Callable[..., Hub], words: list[str]) -> None:
    told = JudgeSite.ask_of(make_hub(judge__command=words), "claude_health")
    assert (told["available"], told["version"]) == (False, None)
    assert words[0] in told["error"] and told["error"].endswith(".")


def test_without_a_cli_nothing_is_judged_and_nothing_taken_away(
    make_hub: Callable[..., Hub], site_in: Callable[..., JudgeSite], tmp_path: Path
) -> None:
    site = site_in(make_hub(judge__command=[str(tmp_path / "no-such-claude")]))
    site.leave_reports(word="PASS")
    failure = site.refusal()
    assert (failure.code, failure.recoverable) == ("UNAVAILABLE", True)
    assert "no-such-claude" in failure.message and "judge.command" in failure.hint
    assert (site.report_names(), site.reports()["spent"]["reports"]) == (sorted(FILES), 0)


def test_the_run_has_its_prompt_by_stdin_and_no_secret_of_the_halls(
    site: JudgeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CREWHALL_TOKEN", "MCP_TOOL_TIMEOUT", "GITHUB_TOKEN", "DEPLOY_SECRET", "CLAUDECODE", "STRIPE_KEY"):
        monkeypatch.setenv(name, "not for the child")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "for the child")
    monkeypatch.setenv("SHOP_PASS", "named by the operator")
    site.review()
    (run,) = site.cli.runs()
    assert run["directory"] == str(site.root) and "return a + b" in run["input"]
    assert "not for the child" not in run["env"].values() and run["env"]["ANTHROPIC_API_KEY"] == "for the child"
    assert run["env"]["SHOP_PASS"] == "named by the operator"
    assert run["words"][:3] == ["--print", "--output-format", "json"] and "--tools" in run["words"]
    assert not any("return a + b" in word or "T-1" in word for word in run["words"])
