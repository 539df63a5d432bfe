"""Settings that are changed while hubs run."""

from collections.abc import Callable
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.identity import OPERATOR
from crewhall.live_settings import live_setting
from tests.families.crew.conftest import PERSON

MAX = "review.max_iterations"


def call(hub: Hub, tool: str, **arguments: Any) -> dict[str, Any]:
    return hub.call(tool, arguments, PERSON)


def test_a_live_setting_counts_for_every_hub_at_once(make_hub: Callable[..., Hub]) -> None:
    one, two = make_hub(), make_hub()
    assert call(one, "setting_get", key=MAX)["value"] == "3"
    changed = call(one, "setting_set", key=MAX, value=" 6 ")
    assert (changed["value"], changed["source"], changed["default"]) == ("6", "hall", "3")
    assert live_setting(two.store, two.settings, MAX) == 6
    events = call(two, "event_list", subject=MAX)["events"]
    assert [(one["what"], one["data"]) for one in events] == [("setting.changed", {"before": "3", "after": "6"})]
    call(one, "setting_set", key=MAX, value="6")
    assert call(two, "event_list", subject=MAX)["total"] == 1


def update(hub: Hub, value: str) -> None:
    """What a client of the database does."""
    with hub.store.reshape() as (_, execute):
        execute(f"UPDATE user_config SET value = '{value}' WHERE key = 'review.timeout_hours'")


def test_a_plain_update_counts_from_the_next_call_on(hub: Hub) -> None:
    update(hub, "0.5")
    assert live_setting(hub.store, hub.settings, "review.timeout_hours") == 0.5
    update(hub, "soon")
    with pytest.raises(Failure, match="review") as wrong:
        live_setting(hub.store, hub.settings, "review.timeout_hours")
    assert wrong.value.code == "INVALID_STATE" and "crewhall setting set" in wrong.value.hint


def test_what_the_hub_was_started_with_counts_unless_the_hall_says_otherwise(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub(review__max_iterations=4)
    assert call(hub, "setting_get", key=MAX) | {"help": ""} == {
        "key": MAX,
        "value": "4",
        "default": "3",
        "source": "hub",
        "is_live": True,
        "help": "",
    }
    assert call(hub, "setting_set", key=MAX, value="7")["value"] == "7"


@pytest.mark.parametrize(
    ("key", "value", "code", "words"),
    [
        (MAX, "0", "INVALID_INPUT", "one or more"),
        (MAX, "many", "INVALID_INPUT", "many"),
        ("review.timeout_hours", "-1", "INVALID_INPUT", "hours"),
        ("review.max_iteration", "3", "NOT_FOUND", "review.max_iterations"),
        ("crew.runtimes", "{}", "FORBIDDEN", "config.toml"),
        ("crew.default_tier", "3", "FORBIDDEN", "CREWHALL_CREW_DEFAULT_TIER"),
        ("judge.command", "sh", "FORBIDDEN", "config.toml"),
    ],
)
def test_what_cannot_be_set_is_refused(hub: Hub, key: str, value: str, code: str, words: str) -> None:
    with pytest.raises(Failure) as refused:
        call(hub, "setting_set", key=key, value=value)
    assert refused.value.code == code and words in f"{refused.value.message} {refused.value.hint}"
    assert call(hub, "event_list", topic="setting")["total"] == 0


@pytest.mark.parametrize("key", ["pulls.github_token", "database.url"])
def test_a_secret_is_not_shown(make_hub: Callable[..., Hub], key: str) -> None:
    hub = make_hub(pulls__github_token="ghp_secret")
    assert call(hub, "setting_get", key=key)["value"] == "(hidden)"


def test_a_setting_takes_a_persons_proof(hub: Hub) -> None:
    with pytest.raises(Failure) as refused:
        hub.call("setting_set", {"key": MAX, "value": "9"}, OPERATOR)
    assert refused.value.code == "FORBIDDEN"
