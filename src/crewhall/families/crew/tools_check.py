"""What is not as it should be with the instances of this node: shown, and fixed where the hall made it."""

import logging
from dataclasses import replace

from crewhall.app import Call, Tick
from crewhall.app.checks import refuse_unproven
from crewhall.errors import Failure
from crewhall.families.crew.family import crew
from crewhall.families.crew.model import DifferenceShown, InstanceCheck, InstanceRepair
from crewhall.families.crew.reconcile import Difference, find_differences
from crewhall.families.crew.repair import Repair, is_safe_alone
from crewhall.tool import OPERATOR

log = logging.getLogger(__name__)


def _to_shown(one: Difference) -> DifferenceShown:
    return DifferenceShown(
        name=one.name,
        instance_id=one.instance_id,
        about=one.about,
        action=one.action,
        is_fixable=one.is_fixable,
        hint=one.hint,
    )


@crew.tool("instance_check", ours=True, who=OPERATOR, pace="long")
def instance_check(call: Call) -> InstanceCheck:
    """Compare the instances of this node with its worktrees, sessions, processes, branches and tokens.

    It changes nothing. `instance_repair` fixes what is safe.
    """
    found = find_differences(call.settings, call.hub.store, call.now, call.stop)
    return InstanceCheck(node=call.settings.node, differences=[_to_shown(one) for one in found])


@crew.tool("instance_repair", ours=True, changes=True, who=OPERATOR, pace="long", destructive=True)
def instance_repair(call: Call) -> InstanceRepair:
    """Fix the differences that instance_check calls safe: end strays, remove their files, revoke their tokens.

    Only what the hall made is touched. Processes that have left their sessions stay.
    """
    refuse_unproven(call)
    repair = Repair(call.settings, call.begin_midway, call.stop)
    done, tried = [], []
    for one in find_differences(call.settings, call.hub.store, call.later(), call.stop):
        if not one.is_fixable:
            continue
        try:
            repair.fix(one)
            done.append(_to_shown(one))
        except Failure as failure:
            tried.append(replace(one, about=f"{one.about}; {failure.message}", hint=failure.hint))
    # What a fix could not do is told with the reason, the rest as it is now.
    failed = {(one.name, one.instance_id) for one in tried}
    rest = find_differences(call.settings, call.hub.store, call.later(), call.stop)
    left = [*tried, *(one for one in rest if (one.name, one.instance_id) not in failed)]
    return InstanceRepair(node=call.settings.node, done=done, left=[_to_shown(one) for one in left])


@crew.chore("instance_strays", seconds=30.0, everywhere=True, limit_seconds=120.0)
def clear_strays(tick: Tick) -> None:
    """Fix what needs no person; `is_safe_alone` says what that is, and why."""
    repair = Repair(tick.settings, tick.begin, tick.stop)
    for one in find_differences(tick.settings, tick.hub.store, tick.now, tick.stop):
        if not is_safe_alone(one, tick.now):
            continue
        try:
            repair.fix(one)
            log.info("a stray is cleared away", extra={"difference": one.name, "instance": one.instance_id})
        except Failure as failure:
            log.warning("a stray stays", extra={"instance": one.instance_id, "reason": failure.message})
