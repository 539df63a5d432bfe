"""Which pulls meet in the same files."""

import json
from typing import Any

import pytest

from crewhall.families.pulls.rules_rival import rivals

CREATE, UPDATE = {"checks/a.md": "create"}, {"checks/a.md": "update"}


def row(paths: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"id": "pl_1", "state": "open", "title": "Theirs", "digest": "theirs", "paths": json.dumps(paths)} | more


@pytest.mark.parametrize(
    ("paths", "other", "met"),
    [
        (CREATE, row({"checks/b.md": "create"}), None),
        (CREATE, row({"checks/b.md": "create"}, digest="mine"), (True, "with the same files")),
        (CREATE, row(CREATE), (True, "and creates 'checks/a.md' too")),
        (CREATE, row(UPDATE), (False, "and touches 'checks/a.md' too")),
        (UPDATE, row(UPDATE), (False, "and touches 'checks/a.md' too")),
        (UPDATE, row(CREATE, state="opening", title="mine  TITLE"), (True, "with the same title")),
        (UPDATE, row({}, state="opening", title="Mine title 2"), None),
        (UPDATE, row({}, title="Mine title"), None),
    ],
)
def test_pulls_meet_in_their_files(paths: dict[str, str], other: dict[str, Any], met: tuple[bool, str] | None) -> None:
    found = rivals("Mine title", "mine", paths, [other])
    assert [(one.is_in_the_way, one.why) for one in found] == ([] if met is None else [met])


def test_those_in_the_way_come_first() -> None:
    found = rivals("Mine", "mine", CREATE, [row(UPDATE, id="pl_1"), row(CREATE, id="pl_2"), row(UPDATE, id="pl_3")])
    assert [one.row["id"] for one in found] == ["pl_2", "pl_1", "pl_3"]
