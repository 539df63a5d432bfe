"""
Names of agents: no two who are here have the same one.

    register ── is it taken? ──▶ ada-2, ada-3 …
    offline ── a sign of life, and another has the name by now ──▶ the next free one, told by a notice

A name is taken while its agent is here, or has a token or an instance that may start again. That of a client that ended
is free at once: a person who restarts it wants the same name. Registering holds the hall's row. Whoever comes back
holds its own row by then and doesn't: if two get one name at the same moment, the chore `names` renames one of them.
"""

import json

from crewhall.families.work.agent.model import AgentNamed, AgentPresence
from crewhall.families.work.agent.rules_name import must_yield, names_like
from crewhall.notices import notify
from crewhall.store.transaction import Tx

FIRST, MORE = 8, 4  # names that are looked up at first, and how many times as many in each further look


def hint_free_name(tx: Tx, name: str, now: int) -> None:
    """Let the first look of `free_name` travel with what is asked next."""
    tx.ahead("agents_named", names=_names(name, 0, FIRST), now=now)


def free_name(tx: Tx, name: str, now: int) -> str:
    """The name, or the first of name-2, name-3 … that nobody has. Nobody takes it meanwhile if the hall is locked."""
    first, count = 0, FIRST
    while True:
        names = _names(name, first, count)
        taken = {row["name"] for row in tx.all("agents_named", names=names, now=now)}
        free = next((one for one in json.loads(names) if one not in taken), None)
        if free is not None:
            return str(free)
        first, count = first + count, count * MORE


def _names(name: str, first: int, count: int) -> str:
    return json.dumps(names_like(name, first, count))


def welcome(tx: Tx, agent: AgentPresence, now: int) -> None:
    """An agent that was offline gives a sign of life: lists show it again, and nobody else who is here has its name."""
    if has_lost_name(tx, agent, now):
        rename(tx, agent, now)
    if agent["archived_at"] is not None:
        tx.run("agent_archived_set", id=agent["id"], at=None, now=now)
        tx.event("agent.restored", agent["id"])


def has_lost_name(tx: Tx, agent: AgentPresence, now: int) -> bool:
    """Whether another agent has the name, so that this one needs a new one."""
    named: list[AgentNamed] = tx.all("agents_named", names=json.dumps([agent["name"]]), now=now)
    return must_yield(agent["id"], named)


def rename(tx: Tx, agent: AgentPresence, now: int) -> None:
    """Give an agent the next free name, and have it told."""
    agent_id, old = agent["id"], agent["name"]
    new = free_name(tx, old, now)
    tx.run("agent_rename", id=agent_id, name=new, now=now)
    tx.event("agent.renamed", agent_id, data=json.dumps({"old": old, "new": new}))
    text = f"You are called '{new}' from now on: another agent has the name '{old}'. Your id is still {agent_id}."
    notify(tx, [agent_id], "renamed", agent_id, text, now)
