"""
Pulls that somebody began to open and left: what there is on the host is looked at, and finished or removed.

A host that did not answer may do what it was asked minutes later, so it is looked at more than once.
"""

import logging
from contextlib import suppress

from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.families.pulls.journal import FORGET_MS, LAST_LOOK_MS, Entry, left_behind, taken
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import HostRepository, Pull

AT_ONCE = 10
log = logging.getLogger(__name__)


def settle(host: Host, entry: Entry) -> Pull | None:
    """The pull that the host has after all, noted; or None, and our branch is not there. Raises Failure."""
    repo, row = entry.repository, entry.row
    host.repository(repo.owner, repo.name)  # a token that may not see it would find no branch there either
    head = host.head(repo, row["branch"])
    if head is None or entry.mark not in head.message:  # a branch of the same name may be somebody else's
        return None
    pull = host.open_pull(repo, row["branch"], row["base_branch"])
    if pull is None:
        host.delete_branch(repo, row["branch"])
    else:
        entry.opened(pull)
    return pull


def settle_left(host: Host, hub: Hub, repo: HostRepository | None = None) -> None:
    """What calls and hubs left on this host, or in one repository; what can't be settled now stays for another time."""
    if not left_behind(hub, host.access.web, repo):
        return
    for entry in taken(hub, host.access.web, repo, AT_ONCE):
        try:
            _finish(host, entry)
        except Failure as failure:
            _let_go(entry, FORGET_MS)
            log.warning("a pull is left half open", extra={"branch": entry.row["branch"], "error": failure.message})


def _finish(host: Host, entry: Entry) -> None:
    pull = settle(host, entry)
    if pull is not None:
        with suppress(Failure):
            host.label(entry.repository, pull.number, entry.hub.settings["pulls.labels"])
    else:
        _let_go(entry, LAST_LOOK_MS)


def _let_go(entry: Entry, after_ms: int) -> None:
    """Forget it when it is so old, else look again later."""
    if entry.age_ms >= after_ms:
        entry.given_up()
    else:
        entry.left()
