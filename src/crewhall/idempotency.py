"""
Idempotency: a call that creates something and is repeated with its key runs once, and returns the same each time.

    the key is new ──────────────────▶ do it, store its result beside the key
    it is there ── same arguments ───▶ the stored result, nothing runs
                └─ other arguments ──▶ Conflict

The key, the change and the result are one transaction. A call that fails leaves no key, so that a retry runs.
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


def run_once(
    tx: Tx, key: str, arguments: Mapping[str, Any], actor: str, do: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The result of `do`: run now, or stored by the first call with this key. Raises Conflict if the arguments differ.

    A key is the actor's. That stays the same when a client becomes bound to an agent between a call and its repeat.
    A repeat that comes during the first call waits here for its commit.
    """
    assert tx.work is not None
    whose = {"actor": actor, "tool": tx.work.tool, "key": key}
    arguments_hash, now = _hash(arguments), tx.work.now
    if tx.count("answer_reserve", **whose, arguments_hash=arguments_hash, kept_until=now + DAY_MS, now=now):
        body = do()
        tx.run("answer_keep", **whose, body=json.dumps(body))
        return body
    stored = tx.one("answer_get", **whose)
    assert stored is not None
    if stored["arguments_hash"] != arguments_hash:
        raise Conflict(
            f"idempotency_key '{key[:WORD]}' was given to a {tx.work.tool} with other arguments",
            hint="To repeat that call, give it the arguments it had; for another one, give a new key.",
        )
    answer: dict[str, Any] = json.loads(stored["body"])
    return answer


def _hash(arguments: Mapping[str, Any]) -> str:
    """The same for the same arguments, in whatever order they came."""
    text = json.dumps(to_jsonable_python(arguments), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def savepoint(tx: Tx) -> Iterator[Tx]:
    """A block of an open transaction; an exception undoes what the block did, and only that."""
    tx.flush()
    events_before, changes_before = len(tx.pending), tx.changes.copy()
    tx.run("part_begin")
    try:
        yield tx
        tx.flush()
    except BaseException as error:
        was_begun = not tx.drop("part_begin")
        del tx.pending[events_before:]
        tx.changes = changes_before
        try:
            if was_begun:
                tx.run("part_undo")
                tx.flush()
        finally:
            raise error  # also where the database itself took back everything, and the place with it
    tx.run("part_end")
