"""Settings that a person changes while hubs run: the table user_config first, then what the hub was started with."""

from typing import Any

from crewhall.config import BY_KEY, Setting, Settings
from crewhall.errors import Forbidden, InvalidInput, InvalidState, NotFound
from crewhall.spelling import did_you_mean
from crewhall.store.transaction import Look, Tx


def live_setting(look: Look, settings: Settings, key: str) -> Any:
    """The value that counts now. Raises InvalidState when somebody has written a value that can't be."""
    setting = BY_KEY[key]
    stored = stored_value(look, setting)
    return settings[key] if stored is None or stored == setting.default else stored


def stored_value(look: Look, setting: Setting) -> Any | None:
    """What the table has for a setting; None when it has nothing. Raises InvalidState."""
    row = look.one("user_config_get", key=setting.key)
    if row is None:
        return None
    try:
        return setting.read(row["value"])
    except ValueError as error:
        raise InvalidState(
            f"user_config has {row['value'][:80]!r} for {setting.key}: {error}",
            hint=f"Run `crewhall setting set {setting.key} {setting.default}`, or another value.",
        ) from None


def hint_live_setting(tx: Tx, key: str) -> None:
    """Let a setting's value travel with what is asked next."""
    tx.ahead("user_config_get", key=key)


def find_setting(key: str) -> Setting:
    """The setting of that name. Raises NotFound with the nearest one."""
    if key not in BY_KEY:
        hint = did_you_mean(key, BY_KEY) or "docs/settings.md lists them."
        raise NotFound(f"there is no setting '{key[:80]}'", hint=hint)
    return BY_KEY[key]


def read_live(setting: Setting, text: str) -> Any:
    """The value that a text gives. Raises Forbidden when it is not live, InvalidInput when the text can't be read."""
    if not setting.is_live:
        raise Forbidden(
            f"{setting.key} is read when a hub starts",
            hint=f"Set it in config.toml or as {setting.variable}, then restart the hub.",
        )
    try:
        return setting.read(text)
    except ValueError as error:
        raise InvalidInput(f"{setting.key} is {text[:80]!r}: {error}", hint=setting.help) from None
