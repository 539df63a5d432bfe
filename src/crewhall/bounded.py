"""
Long texts in short answers: what does not fit is cut, and the answer says how much of it was left out.

No answer of any tool may flood its reader's memory; `text_read` gives the rest, piece by piece.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, islice
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field
from pydantic_core import from_json

from crewhall.errors import InvalidInput
from crewhall.store.transaction import Tx

LIST_BYTES = 19_000  # of the items of a list, so that the whole answer stays below 20 kB
LIST_TEXT_BYTES = 700  # of one text in a list
WHOLE_BYTES = 24_000  # of the texts of one thing on its own
GAP = " […] "  # in a text that is cut in the middle
CARGO_BYTES = 64_000  # of an object that the hall keeps

ItemT = TypeVar("ItemT", bound=BaseModel)
WordT = TypeVar("WordT", bound=str)
Limit = Annotated[int, Field(ge=1, le=500, description="How many at the most.")]
Offset = Annotated[int, Field(ge=0, le=1_000_000_000, description="How many to pass over.")]
AnyOf = Annotated[list[WordT], Field(max_length=20)]  # words of which a filter takes any
Cut = dict[str, int]  # how many characters of which field were left out; of a list, how many items


def json_text(name: str, value: dict[str, Any], most: int = CARGO_BYTES) -> str:
    """An object as the JSON text that the hall stores. Raises InvalidInput when it is too large."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if len(text.encode()) > most:
        raise InvalidInput(
            f"{name} is {len(text.encode())} bytes of JSON, and {most} are allowed",
            hint="Keep large things in files and name their paths here.",
        )
    return text


def cut(
    fields: dict[str, Any],
    texts: Sequence[str],
    cargo: Sequence[str],
    *,
    each: int | None = None,
    total: int | None = None,
) -> dict[str, Any]:
    """The fields with their texts cut and their objects unpacked, and `left_out` for what did not fit.

    A text, or a list of texts, may take `each` bytes, or all of them `total`; then long ones share what short ones
    leave. An object that does not fit is left out as a whole.
    """
    there = {name: fields[name] for name in (*texts, *cargo) if fields[name] is not None}
    unpacked = {name: from_json(value) if name in cargo else value for name, value in there.items()}
    sizes = {name: _size(value) for name, value in unpacked.items()}
    limit = each if each is not None else fair_share(list(sizes.values()), total or 0)
    out, left_out = dict(fields), {}
    for name, size in sizes.items():
        value = fields[name]
        if size <= limit:
            out[name] = unpacked[name]
        else:
            out[name] = None if name in cargo else _shorten(value, limit)
            left_out[name] = len(value) - len(out[name] or ())
    return out | {"left_out": left_out or None}


def _size(value: Any) -> int:
    """Bytes of a value as JSON carries it, with a space after each comma and colon; the quotes of a text apart."""
    return len(json.dumps(value, ensure_ascii=False).encode()) - (2 if isinstance(value, str) else 0)


def fair_share(sizes: list[int], total: int) -> int:
    """The most that each may take, so that all together stay within the total."""
    left, waiting = total, len(sizes)
    for size in sorted(sizes):
        if size * waiting > left:
            return left // waiting
        left, waiting = left - size, waiting - 1
    return total


def _shorten(value: str | list[str], most: int) -> str | list[str]:
    """As much of the beginning as fits."""
    return _shorten_text(value, most) if isinstance(value, str) else short_list(value, most)


def short_list(texts: Sequence[str], most: int) -> list[str]:
    """As many of the texts, from the first, as fit in so many bytes of JSON."""
    sizes = accumulate((_size(text) + 4 for text in texts), initial=2)  # quotes, a comma, a space
    return [text for text, size in zip(texts, islice(sizes, 1, None), strict=True) if size <= most]


def _shorten_text(text: str, most: int) -> str:
    fitting = text.encode()[:most].decode("utf-8", "ignore")
    while (over := _size(fitting) - most) > 0:  # quotes and control characters grow on their way into JSON
        fitting = fitting[: len(fitting) - max(1, over // 6)]
    return fitting


def cut_middle(text: str, most: int) -> str:
    """The text in at most so many characters: its beginning, and more of its end, where the reason of a failure is."""
    if len(text) <= most:
        return text
    head = min(100, most // 4)
    return text[:head] + GAP + text[head + len(GAP) - most :]


def take_fitting(items: Iterable[ItemT], most: int = LIST_BYTES) -> list[ItemT]:
    """The first items that fit in so many bytes, at least one. It draws no more of them than it needs."""
    kept: list[ItemT] = []
    size = 0
    for item in items:
        size += _size(item.model_dump(mode="json")) + 2
        if kept and size > most:
            break
        kept.append(item)
    return kept


def rows_and_total(tx: Tx, name: str, chosen: Mapping[str, Any], **place: Any) -> tuple[list[Any], int]:
    """A page of a query's rows, and how many rows there are in all, which `<name>_count` tells; both in one trip."""
    count = f"{name}_count"
    tx.ahead(count, **chosen)
    rows = tx.all(name, **chosen, **place)
    return rows, tx.value(count, **chosen)


def page(items: Iterable[ItemT], total: int, offset: int) -> tuple[list[ItemT], int | None]:
    """As many items as fit in a list's bytes, one at least, and where the next page begins."""
    kept = take_fitting(items)
    end = offset + len(kept)
    return kept, end if kept and end < total else None
