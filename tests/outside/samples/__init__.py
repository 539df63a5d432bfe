"""
Texts of six kinds on which our count of tokens is held against a real tokenizer.

The prose was written for this. The rest is made when it is asked for: code and JSON out of this repository, a table by
a formula. None of it was looked at to tune the count, which has nothing to tune.
"""

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import splintr

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def prose(language: str) -> str:
    return (HERE / f"{language}.txt").read_text(encoding="utf-8")


def code() -> str:
    files = sorted((ROOT / "src/crewhall/families/work").glob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def snapshots() -> str:
    files = sorted((ROOT / "tests/snapshots").glob("workflow_*.json"))
    return json.dumps([json.loads(file.read_text(encoding="utf-8")) for file in files], ensure_ascii=False)


def table() -> str:
    chance = random.Random(11)
    rows = [[chance.randrange(10**5), chance.uniform(-1, 1) * 10**3, chance.random()] for _ in range(400)]
    return "\n".join(
        f"{number:>6}\t{first}\t{second:10.3f}\t{third:.6e}" for number, (first, second, third) in enumerate(rows)
    )


SAMPLES: dict[str, Callable[[], str]] = {
    "English prose": lambda: prose("english"),
    "Python": code,
    "JSON": snapshots,
    "a table of numbers": table,
    "Chinese prose": lambda: prose("chinese"),
    "Japanese prose": lambda: prose("japanese"),
}


@cache
def tokenizer(name: str) -> Any:
    return splintr.Tokenizer.from_pretrained(name)


def real_count(text: str, name: str = "o200k_base") -> int:
    """The tokens of a text by a real tokenizer, written in another language by others; no text in it is a command."""
    return len(tokenizer(name).encode_ordinary(text))


def real_cost(body: Any) -> int:
    """The tokens of an answer, as it is sent."""
    return real_count(json.dumps(body, ensure_ascii=False))
