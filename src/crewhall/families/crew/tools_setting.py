"""Settings, seen and changed while hubs run."""

import json
from typing import Annotated, Literal

from pydantic import Field

from crewhall.app import Call
from crewhall.app.checks import refuse_unproven
from crewhall.config import SECRET_VARIABLE, Setting, Settings
from crewhall.families.crew.family import crew
from crewhall.live_settings import find_setting, read_live, stored_value
from crewhall.store.transaction import Look
from crewhall.tool import OPERATOR, Result

HIDDEN = ("database.url",)  # it may hold a password

Key = Annotated[str, Field(min_length=1, max_length=100, description="Such as review.max_iterations.")]


class SettingShown(Result):
    key: str
    value: str = Field(description="What counts now; (hidden) for secrets.")
    default: str
    source: Literal["hall", "hub"] = Field(description="hall: setting_set; hub: its start or the default.")
    is_live: bool = Field(description="Whether setting_set can change it.")
    help: str


@crew.tool("setting_get", ours=True, who=OPERATOR)
def setting_get(call: Call, key: Key) -> SettingShown:
    """A setting: the value that counts now, where it comes from, and what it does."""
    return _to_shown(call, call.settings, find_setting(key))


@crew.tool("setting_set", ours=True, changes=True, who=OPERATOR, idempotent=True)
def setting_set(call: Call, key: Key, value: Annotated[str, Field(max_length=1_000)]) -> SettingShown:
    """Change a live setting of the hall. It counts from the next call on; no hub is restarted.

    If value is the default, what the hub was started with counts.
    """
    refuse_unproven(call)
    setting = find_setting(key)
    read_live(setting, value)
    with call.begin() as tx:
        tx.run("hall_lock")
        before = tx.one("user_config_get", key=key)
        if before is None or before["value"] != value.strip():
            tx.run("user_config_set", key=key, value=value.strip())
            told = {"before": before and before["value"], "after": value.strip()}
            tx.event("setting.changed", key, data=json.dumps(told))
        return _to_shown(tx, call.settings, setting)


def _to_shown(look: Look, settings: Settings, setting: Setting) -> SettingShown:
    is_secret = setting.key in HIDDEN or SECRET_VARIABLE.search(setting.variable) is not None
    stored = stored_value(look, setting) if setting.is_live else None
    is_stored = stored not in (None, setting.default)
    value = stored if is_stored else settings[setting.key]
    return SettingShown(
        key=setting.key,
        value="(hidden)" if is_secret else _to_text(value),
        default="(hidden)" if is_secret else _to_text(setting.default),
        source="hall" if is_stored else "hub",
        is_live=setting.is_live,
        help=setting.help,
    )


def _to_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
