"""Rules of agents: no clock, no database, no world."""

from crewhall.errors import LimitExceeded

METADATA_BYTES = 16_000


def status_after_beat(before: str, asked: str | None) -> str:
    """A beating agent is never offline."""
    return asked or ("online" if before == "offline" else before)


def refuse_more_agents(live: int, most: int) -> None:
    """Raise LimitExceeded when as many agents are in the hall as it may hold at once."""
    if live >= most:
        raise LimitExceeded(
            f"{live} agents are in the hall, and agent.max is {most}",
            hint="Unregister the ones that are gone (agent_unregister), or raise agent.max.",
        )
