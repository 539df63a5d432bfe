"""What a pull's checks say together."""

from collections.abc import Sequence
from typing import Literal

GOOD = {"success", "neutral", "skipped", "warning"}


def checks_state(states: Sequence[str]) -> Literal["none", "pending", "success", "failure"]:
    """failure when one failed, else pending when one is not done, else success; none without checks."""
    if not states:
        return "none"
    if any(state not in GOOD | {"pending"} for state in states):
        return "failure"
    return "pending" if "pending" in states else "success"
