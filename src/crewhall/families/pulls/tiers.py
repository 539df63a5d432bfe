"""
How much a caller may do to pulls: its tier, and whether it is a dry run. Neither is ever an argument.

    a bridge's environment      CLAUDEOPS_TIER there is the tier of its calls, for who starts an agent sets it
    an instance                 the tier that it was started with
    the operator's own token    pulls.operator_tier, and the dashboard's cookie the same
    anything else               tier 1

What a request by HTTP says of itself (the command line passes its environment on) can hold it back, and never help it.
"""

from crewhall.app import Call
from crewhall.app.checks import is_proven
from crewhall.config import careful, variable_value
from crewhall.families.pulls.rules_change import tier_from

TIER, DRY_RUN = "CLAUDEOPS_TIER", "CLAUDEOPS_DRY_RUN"


def tier_setting(call: Call) -> str | None:
    """CLAUDEOPS_TIER in the client's environment."""
    return variable_value(call.origin.variables, TIER)


def tier_of(call: Call) -> int:
    setting = tier_setting(call)
    if call.actor.tier is not None:  # whoever started the instance set it, and its environment can't raise it
        return call.actor.tier if setting is None else min(call.actor.tier, tier_from(setting))
    if call.origin.bridge is not None and setting is not None:
        return tier_from(setting)
    own = int(call.settings["pulls.operator_tier"]) if is_proven(call.actor) else 1
    return own if setting is None else min(own, tier_from(setting))


def is_dry_run(call: Call) -> bool:
    """Whether nothing may be sent: one of the hub and the client is enough."""
    return call.settings["pulls.dry_run"] or careful(variable_value(call.origin.variables, DRY_RUN) or "")
