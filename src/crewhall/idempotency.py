"""
Repeats: a call that creates and comes again with its idempotency key is done once and answered each time.

    the key is new ──────────────────▶ do it, keep its answer beside the key
    it is there ── same arguments ───▶ the kept answer, nothing is done
                └─ other arguments ──▶ Conflict

The key, the change and the answer are one transaction. What fails leaves no key, so that the next try really tries.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic_core import to_jsonable_python

from crewhall.declaration import WORD
from crewhall.errors import Conflict
from crewhall.store.events import DAY_MS
from crewhall.store.transaction import Tx


def once(tx: Tx, key: str, arguments: Mapping[str, Any], do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the call answers: by doing it now, or as it did before. Raises Conflict when the arguments are others.

    Who asks again at the same time waits here for the first one's commit.
    """
    assert tx.work is not None
    whose = {"actor": tx.work.actor, "tool": tx.work.tool, "key": key}
    asked, now = _hash(arguments), tx.work.now
    if tx.run("answer_reserve", **whose, arguments_hash=asked, kept_until=now + DAY_MS, now=now):
        body = do()
        tx.run("answer_keep", **whose, body=json.dumps(body))
        return body
    kept = tx.one("answer_get", **whose)
    assert kept is not None
    if kept["arguments_hash"] != asked:
        raise Conflict(
            f"idempotency_key '{key[:WORD]}' was given to a {tx.work.tool} with other arguments",
            hint="To repeat that call, give it the arguments it had; for another one, give a new key.",
        )
    answer: dict[str, Any] = json.loads(kept["body"])
    return answer


def _hash(arguments: Mapping[str, Any]) -> str:
    """The same for the same arguments, in whatever order they came."""
    text = json.dumps(to_jsonable_python(arguments), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def part_of(tx: Tx) -> Iterator[Tx]:
    """A block of an open transaction: an exception takes back what the block did, and only that."""
    noted = len(tx.pending)
    tx.run("part_begin")
    try:
        yield tx
    except BaseException as error:
        del tx.pending[noted:]
        try:
            tx.run("part_undo")
        finally:
            raise error  # also where the database itself took back everything, and the place with it
    tx.run("part_end")
