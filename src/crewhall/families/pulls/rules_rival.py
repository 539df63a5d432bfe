"""Which pulls that the hall knows meet in the same files, and which of them are in each other's way."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crewhall.families.pulls.rules_change import is_same_title

Row = dict[str, Any]


@dataclass(frozen=True)
class Rival:
    """A pull that meets the one that is wanted: the same change, a file that both create, or one that both change."""

    row: Row
    is_in_the_way: bool
    why: str


def rivals(title: str, digest: str, paths: Mapping[str, str], rows: Iterable[Row]) -> list[Rival]:
    """Those of the rows that meet a change, the ones in its way first."""
    rivals_met = [rival for row in rows if (rival := _rival(title, digest, paths, row)) is not None]
    return sorted(rivals_met, key=lambda rival: not rival.is_in_the_way)


def _rival(title: str, digest: str, paths: Mapping[str, str], row: Row) -> Rival | None:
    theirs: dict[str, str] = json.loads(row["paths"])
    if digest == row["digest"]:
        return Rival(row, True, "with the same files")
    if row["state"] == "opening" and is_same_title(title, row["title"]):  # an open one is known by its branch
        return Rival(row, True, "with the same title")
    shared = sorted(paths.keys() & theirs.keys())
    created = [path for path in shared if paths[path] == theirs[path] == "create"]
    if created:
        return Rival(row, True, f"and creates '{created[0][:200]}' too")
    return Rival(row, False, f"and touches '{shared[0][:200]}' too") if shared else None
