"""The review loop with real Claude Code on both sides: each calls the hall's tools itself, as its model has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.edges.claude import use
from tests.edges.landing import landing
from tests.edges.test_instance_claude import Site, site
from tools.stubs.anthropic import Play, Use

Json = dict[str, Any]
SOON = 30.0  # seconds; a Claude Code starts in 2, or 5 beside others
COMMIT = "git add -A && git -c user.name=Ada -c user.email=ada@example.org commit -qm"
TASK, FINDING = "Give the shop a colour", "Make it blue, not red"


def play(asked: str) -> Play:
    """What the model does follows from what it was asked: as a coder, as a first reviewer, as a second one."""
    if "You are review-" in asked and "round 1 of" in asked:
        found = {"feedback": "The colour is wrong.", "actionable_items": [FINDING]}
        yield use("send_feedback", feedback_type="needs_work", **found)
    elif "You are review-" in asked:
        yield use("create_pull_request", title="A colour", description="It had none.")
    elif "You are work-" in asked:
        yield from work("red")
    elif FINDING in asked:
        yield from work("blue")
    yield "done"


def work(colour: str) -> Play:
    command = f"echo {colour} > colour.txt && {COMMIT} {colour}"
    yield Use("Bash", {"command": command, "description": "commit"})
    yield use("request_review", completion_message=f"It is {colour}.")


def conversation(here: Site, begins: str) -> str:
    """All that the model was last sent in the newest conversation of the one whose first message begins so."""
    found = [json.dumps(one["messages"], ensure_ascii=False) for one in here.requests if one.get("tools")]
    return next((one for one in reversed(found) if f"You are {begins}," in one), "")


def status(here: Site, instance: str) -> str:
    return str(here.ask("instance_get", id=instance)["status"])


def callers(here: Site, tool: str) -> list[str]:
    """The instances that called a tool themselves, by the call log."""
    agents = {one["agent_id"]: one["id"] for one in here.ask("instance_list")["instances"]}
    return [agents[one["actor"]] for one in here.ask("call_list", tool=tool)["calls"]]


@pytest.mark.timeout(90)
def test_claude_codes_review_each_other_until_a_pull_is_open(tmp_path: Path) -> None:
    with landing("github") as place, site(tmp_path, script=play, more_settings=place.settings) as here:
        place.publish(here.repository)
        coder = here.start(TASK, title="colour")
        first, second = "review-colour-a1", "review-colour-a2"
        eventually(lambda: f"> {TASK}" in conversation(here, first), SOON)
        assert "> It is red." in conversation(here, first) and "colour.txt" in conversation(here, first)

        eventually(lambda: FINDING in conversation(here, coder), SOON)
        heard = conversation(here, coder)
        assert f"{first} reviewed your work (round 1): needs_work." in heard and f"[blocks] {FINDING}" in heard
        eventually(lambda: "> It is blue." in conversation(here, second), SOON)
        assert FINDING in conversation(here, second) and "round 2 of" in conversation(here, second)

        eventually(lambda: status(here, coder) == "pr_created", SOON)
        (pull,) = place.repo.pulls.values()
        files = place.repo.files(coder)
        assert (pull.head, pull.state, files["colour.txt"]) == (coder, "open", b"blue\n")
        assert "REVIEW_FEEDBACK.md" not in files
        assert conversation(here, coder).count("reviewed your work (round 1)") == len(here.told(coder)) == 1
        by = {"request_review": [coder, coder], "send_feedback": [first], "create_pull_request": [second]}
        eventually(lambda: {tool: callers(here, tool) for tool in by} == by)  # the log follows the answer
