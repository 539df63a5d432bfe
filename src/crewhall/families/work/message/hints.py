"""What `inbox.counts` looks up travels with what is asked next."""

from crewhall.store.transaction import Tx


def hint_counts(tx: Tx, agent_id: str, now: int) -> None:
    tx.ahead("inbox_tallies", agent=agent_id)
    tx.ahead("inbox_overdue", agent=agent_id, now=now)
