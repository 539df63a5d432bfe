"""
Names of hubs' processes, as rows have them: so that another hub can tell whether one is dead.

    hu_… <machine> <pid> <start>        nothing is known of another machine's processes
"""

import functools
import os

from crewhall.outside.processes import boot_id, is_dead, own_name


class HubProcess:
    """This hub's process, and what it can tell of others."""

    def __init__(self, hub_id: str, node: str) -> None:
        self._hub_id, self._node = hub_id, node

    @functools.cached_property
    def name(self) -> str:
        return f"{self._hub_id} {machine(self._node)} {own_name()}"

    def is_dead(self, name: str) -> bool:
        """Whether the process of this name is known to be dead."""
        _, where, process = (*name.split(" ", 2), "", "")[:3]
        return where == machine(self._node) and is_dead(process)


def machine(node: str) -> str:
    """What must be the same for two processes to see each other, as one word."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:  # no Linux
        namespace = ""
    return "/".join((node, boot_id(), namespace)).replace(" ", "_")
