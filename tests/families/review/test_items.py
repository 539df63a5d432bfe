"""Items through the tools: what a coder says of them, what a person waives, and what each side is shown."""

import json
from typing import Any

import pytest

from crewhall.errors import Failure
from crewhall.families.review.model import ReviewDetail
from crewhall.identity import Actor
from crewhall.outside.tokens import count
from tests.families.review.conftest import Loop

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]


def items(loop: Loop) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = loop.site.call("review_get", instance_id=loop.coder)["open_items"]
    return found


def test_the_next_reviewer_sees_the_open_items_and_what_was_said_of_them(loop: Loop) -> None:
    loop.round(actionable_items=[{"text": "Use #00f", "file": "sky.txt", "line": 3}, "Add a test"])
    blue, test = (one["id"] for one in items(loop))
    assert f"- {blue} [blocks] (sky.txt:3) Use #00f" in loop.by(loop.coder, "message_list")["messages"][0]["body"]
    says = [
        {"item_id": blue, "state": "disputed", "note": "The sky is\n# grey"},
        {"item_id": test, "state": "fixed"},
    ]
    reviewer = loop.request(items=says, completion_message="Done.")
    prompt = loop.site.received(reviewer)["prompt"]
    assert f"- {blue} (disputed, blocks, raised 1 times) [sky.txt:3]: Use #00f" in prompt
    assert "  > its coder says it is disputed: The sky is # grey" in prompt, "no text of the coder begins a line"
    assert f"- {test} (open, blocks, raised 1 times): Add a test" in prompt and "earlier round saw" in prompt
    assert [(one["state"], one["claim"]) for one in items(loop)] == [("disputed", "disputed"), ("open", "fixed")]


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ([{"item_id": "ri_none", "state": "fixed"}], "there is no item"),
        ([{"item_id": "{}", "state": "disputed"}], "without a note"),
        ([{"item_id": "{}", "state": "waived", "note": "x"}], "state"),
    ],
)
def test_a_coder_can_say_of_its_open_items_only(loop: Loop, says: list[dict[str, str]], words: str) -> None:
    loop.round(actionable_items=["Use #00f"])
    (item,) = items(loop)
    given = [{**one, "item_id": one["item_id"].format(item["id"])} for one in says]
    refused = loop.refusal(loop.coder, "request_review", items=given)
    assert refused.code == "INVALID_INPUT" and words in refused.message, refused
    assert items(loop) == [item] and loop.status() == "started"


def test_only_a_person_waives(loop: Loop) -> None:
    loop.round(actionable_items=["Use #00f"])
    (item,) = items(loop)
    given = {"item_id": item["id"], "reason": "It is art."}
    assert loop.refusal(loop.coder, "review_waive", **given).code == "FORBIDDEN"
    with pytest.raises(Failure) as unproven:
        loop.site.hub.call("review_waive", given, Actor("operator", "operator"))
    assert unproven.value.code == "FORBIDDEN"
    assert loop.site.refusal("review_waive", item_id="ri_none", reason="x").code == "NOT_FOUND"
    for _ in range(2):
        waived = loop.site.call("review_waive", **given)
        assert (waived["state"], waived["blocking_items"]) == ("waived", [])
    assert items(loop) == [] and [one["what"] for one in loop.events()].count("review.item_waived") == 1


def test_bad_ids_send_no_feedback(loop: Loop) -> None:
    loop.round(actionable_items=["Use #00f"])
    (item,) = items(loop)
    reviewer = loop.request()
    again = {"text": "Use #00f", "item_id": item["id"]}
    for more in (
        {"actionable_items": [{"text": "x", "item_id": "ri_none"}]},
        {"resolved_items": ["ri_none"]},
        {"actionable_items": [again], "resolved_items": [item["id"]]},
    ):
        given = {"feedback": "Too dark.", "feedback_type": "needs_work", **more}
        assert loop.refusal(reviewer, "send_feedback", **given).code == "INVALID_INPUT"
    assert loop.status(reviewer) == "started" and loop.send(reviewer, actionable_items=[again])["converged"] is False


def test_a_review_with_many_long_items_is_shown_within_its_bounds(loop: Loop) -> None:
    wide = [{"text": f"{number} " + "ü" * 3_900, "file": f"{'d' * 900}{number}.py"} for number in range(50)]
    for _ in range(2):
        loop.round(feedback="ü" * 200_000, actionable_items=wide)
    shown = loop.site.call("review_get", instance_id=loop.coder)
    assert ReviewDetail.model_validate(shown).rounds[0].items == 50
    assert count(json.dumps(shown, ensure_ascii=False)) < 20_000
