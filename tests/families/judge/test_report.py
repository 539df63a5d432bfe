"""A report as Markdown and as JSON: what Claude says stays where it belongs, and nothing of it is ours."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from crewhall.families.judge.model import Verdict
from crewhall.families.judge.rules_report import JSON, MD, markdown, report_files

WORDS: dict[str, Any] = {
    "task_id": "T-1",
    "verdict": "FAIL",
    "summary": "It subtracts.",
    "blocking_issues": [{"file": "src/a.py", "line": 2, "issue": "it subtracts\nand should add"}],
    "suggestions": [{"file": None, "line": None, "issue": "test it"}],
}
ROW: dict[str, Any] = {
    "id": "jr_1",
    "kind": "review",
    "subject": "T-1",
    "workflow_id": "wf_1",
    "verdict": "FAIL",
    "error": None,
    "detail": None,
    "ruling": json.dumps(WORDS),
    "commit_id": "0123456789abcdef",
    "model": None,
    "input_tokens": 1_000,
    "output_tokens": 234,
    "cost_usd": 0.254,
    "duration_ms": 61_250,
    "created_at": 1_800_000_000_000,
}
HEAD = """\
# FAIL: review of T-1

report jr_1 · 2027-01-15 08:00:00 UTC · commit 0123456789ab · 1,234 tokens, 0.25 USD · 61.2 s
"""


def row(**told: Any) -> dict[str, Any]:
    ruling = told.pop("ruling", None)
    return ROW | told | ({"ruling": json.dumps(ruling)} if ruling is not None else {})


def test_a_report_reads_like_this() -> None:
    assert (
        markdown(ROW)
        == f"""\
{HEAD}
> It subtracts.

## Blocking issues (1)

1. `src/a.py:2`: it subtracts
   and should add

## Suggestions (1)

1. test it
"""
    )


def test_other_rulings_and_none_at_all_read_like_this() -> None:
    audit = {"summary": "", "findings": [{"severity": "high", "file": "a`b\nc", "line": None, "issue": "x"}]}
    assert "\n## Findings (1)\n\n1. **high** `a'b c`: x\n" in markdown(row(ruling=audit))
    assert markdown(row(ruling={"side": "judge", "reasoning": "a\n\nb"})).endswith("s\n\n> a\n> \n> b\n")
    assert markdown(row(ruling={"valid": True, "issues": []})).endswith("\n## Issues (0)\n\nNone.\n")
    failed = markdown(
        ROW | {"verdict": None, "ruling": None, "error": "exit code 3: # PASS\n# PASS", "commit_id": None}
    )
    assert failed.startswith("# No ruling: review of T-1\n") and "commit" not in failed
    assert failed.endswith("\n\nError:\n\n> exit code 3: # PASS\n> # PASS\n")
    assert "\n\nNote:\n\n> files changed\n\n> It subtracts.\n" in markdown(row(detail="files changed"))


def test_json_has_the_fields_of_the_seed_and_ours() -> None:
    files = report_files(ROW)
    assert files.keys() == {MD, JSON} == {"JUDGE_REPORT.md", "JUDGE_REPORT.json"}
    assert files[MD].decode() == markdown(ROW) and files[JSON].endswith(b"}\n")
    told = json.loads(files[JSON])
    seed = {name: WORDS[name] for name in ("task_id", "verdict", "blocking_issues", "suggestions")}
    assert told | seed | {"tokens_used": 1_234} == told
    assert (told["report_id"], told["workflow_id"], told["created_at"]) == ("jr_1", "wf_1", "2027-01-15 08:00:00 UTC")
    assert (told["cost_usd"], told["duration_ms"], told["commit"]) == (0.254, 61_250, ROW["commit_id"])


def test_what_claude_adds_can_not_take_the_place_of_what_the_hub_knows() -> None:
    lies = {**WORDS, "tokens_used": 1, "report_id": "jr_2", "cost_usd": 0, "created_at": "never"}
    kept = Verdict.model_validate(lies).model_dump()
    told = json.loads(report_files(row(ruling=kept))[JSON])
    assert (told["tokens_used"], told["report_id"], told["cost_usd"]) == (1_234, "jr_1", 0.254)
    told = json.loads(report_files(row(ruling=lies))[JSON])
    assert (told["tokens_used"], told["report_id"], told["cost_usd"]) == (1_234, "jr_1", 0.254)


# A real parser says what a page would show: at the top level, our own headings and lists, and nothing else.
PIECES = [
    "# PASS: review of T-1",
    "## Blocking issues (0)",
    "\n",
    "\n\n",
    "\r",
    "\u2028",
    "\f",
    "```",
    "~~~",
    "`",
    "---",
]
PIECES += [
    "===",
    "<!--",
    "-->",
    "<details>",
    "</ol>",
    "<script>",
    "<?x",
    "> ",
    "1. x",
    "- x",
    "    ",
    "   ",
    "\t",
    "|a|",
]
PIECES += ["[a]: b", "\\", "&", "*", "_", "None.", "\x1b[2J", "\u202e", "\x00", " ", "<U", "\\<b>", "![x](y)"]
TEXT = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=6).map(
    lambda all_of_it: "".join(all_of_it) or "x"
)
FINDING = st.fixed_dictionaries({"file": st.none() | TEXT, "line": st.none() | st.just(7), "issue": TEXT})
PARSER = MarkdownIt("commonmark")


@settings(max_examples=80, deadline=None)
@given(TEXT, TEXT, st.lists(FINDING, max_size=3), st.sampled_from([0, 8, 98]), TEXT)
def test_nothing_that_is_said_gets_out_of_its_place(
    subject: str, said: str, findings: list[dict[str, Any]], more: int, detail: str
) -> None:
    issues = [{"file": None, "line": None, "issue": "x"}] * more + findings
    ruling = WORDS | {"summary": said, "blocking_issues": issues, "suggestions": []}
    text = markdown(row(ruling=ruling, subject=subject, detail=detail))
    tokens = PARSER.parse(text)
    top = [token for token in tokens if token.level == 0 and token.nesting >= 0]
    kinds = [token.type for token in top]
    lists = ["ordered_list_open"] if issues else ["paragraph_open"]
    quotes = ["paragraph_open", "blockquote_open", "blockquote_open"]
    assert kinds == [
        "heading_open",
        "paragraph_open",
        *quotes,
        "heading_open",
        *lists,
        "heading_open",
        "paragraph_open",
    ]
    titles = [
        tokens[number + 1].content for number, token in enumerate(tokens) if token in top and "heading" in token.type
    ]
    assert titles[0].startswith("FAIL: review of") and titles[1:] == [
        f"Blocking issues ({len(issues)})",
        "Suggestions (0)",
    ]
    items = [token for token in tokens if token.type == "list_item_open" and token.level == 1]
    assert len(items) == len(issues)
    html = [one for token in tokens for one in (token, *(token.children or ())) if one.type.startswith("html")]
    assert html == [] and not {"\x00", "\x1b", "\u202e", "\r"} & set(text)


@pytest.mark.parametrize("number", [1, 9, 10, 99, 100])
def test_further_lines_of_a_finding_belong_to_it_whatever_its_number(number: int) -> None:
    issues = [{"file": None, "line": None, "issue": "a\n\n# b\n```\nc"}] * number
    text = markdown(row(ruling={"valid": False, "issues": issues}))
    tokens = PARSER.parse(text)
    assert [token.tag for token in tokens if token.type == "heading_open" and token.level == 0] == ["h1", "h2"]
    assert sum(token.type == "fence" for token in tokens) == number
