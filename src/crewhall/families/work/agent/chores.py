"""Chores of agents: two who got one name at the same moment."""

from crewhall.app import Tick
from crewhall.families.work.agent.model import AgentPresence
from crewhall.families.work.agent.names import has_lost_name, rename
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get_locked

RENAMED_AT_ONCE = 50  # agents in one tick


@work.chore("names")
def rename_doubles(tick: Tick) -> None:
    """Rename agents who have the name of another who is here, the newest first; a token keeps its agent's name."""
    with tick.look() as look:
        doubles: list[AgentPresence] = look.all("names_doubled", limit=RENAMED_AT_ONCE)
        doubles = [agent for agent in doubles if has_lost_name(look, agent, tick.now)]
    for double in doubles:
        with tick.begin() as tx:
            tx.run("hall_lock")
            agent = get_locked(tx, "agent", double["id"])
            if agent["status"] != "offline" and has_lost_name(tx, agent, tick.now):
                rename(tx, agent, tick.now)
