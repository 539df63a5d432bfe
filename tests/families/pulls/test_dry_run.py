"""A dry run checks everything, shows the whole plan, and sends nothing."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.config import load
from crewhall.outside.tokens import count
from tests.families.pulls.conftest import BRANCH, FILE, PULL, Site, bridge, on_github, set_up
from tests.families.work.workflows import all_rows

OFF = ["", " ", "false", "0", " 0 ", "${CLAUDEOPS_DRY_RUN}"]
ON = ["1", "true", "TRUE", "yes", "on", "no", "off", "False", "FALSE", "00", "null", "2", "?"]
TIER = {"CLAUDEOPS_TIER": "3"}

pytestmark = on_github


def dry(**variables: str) -> Origin:
    return bridge(**{"CLAUDEOPS_DRY_RUN": "1", **TIER, **variables})


def test_it_shows_the_whole_plan_and_sends_nothing(site: Site) -> None:
    before = all_rows(site.hub)
    binary = {"path": "checks/b.md", "content": "AAEC", "action": "update", "encoding": "base64"}
    files = [FILE, {"path": "checks/disk.md", "action": "delete"}, binary]
    assert site.create(files=files, body="The body", origin=dry()) == {
        "number": None,
        "url": None,
        "branch": BRANCH,
        "base_branch": None,
        "commit": None,
        "title": PULL["title"],
        "change_type": "check",
        "labels": ["claude-ops", "automated"],
        "provider": "github",
        "repository": "octo/ops",
        "dry_run": True,
        "note": "Nothing was sent: whether the repository, its files and other pulls allow it was not looked at.",
        "warnings": [],
        "body": "The body",
        "files": [
            {"path": "checks/jellyfin.md", "action": "create", "bytes": 11},
            {"path": "checks/disk.md", "action": "delete", "bytes": 0},
            {"path": "checks/b.md", "action": "update", "bytes": 3},
        ],
        "file_count": 3,
        "left_out": None,
    }
    assert site.create(base_branch="next", origin=dry())["base_branch"] == "next"
    assert (site.host.exchanges, site.rows(), all_rows(site.hub)) == ([], [], before)


def test_the_connection_alone_is_enough_and_another_one_sends(site: Site) -> None:
    for text in ON:
        for origin in (dry(CLAUDEOPS_DRY_RUN=text), Origin(variables={"CLAUDEOPS_DRY_RUN": text})):
            assert site.create(origin=origin)["dry_run"] is True, text
            assert site.ask("pulls_health", origin=origin)["dry_run"] is True, text
    assert [one for one in site.host.exchanges if one.path != "/rate_limit"] == []
    for number, text in enumerate(OFF, 1):
        files = [{**FILE, "path": f"checks/{number}.md"}]
        made = site.create(title=f"Number {number}", files=files, origin=dry(CLAUDEOPS_DRY_RUN=text))
        assert (made["dry_run"], made["number"]) == (False, number), text


def test_a_hub_in_dry_run_sends_nothing_whatever_a_client_says(site: Site, make_hub: Callable[..., Hub]) -> None:
    read = {text: load({"CLAUDEOPS_DRY_RUN": text}, {"home": "/nowhere"})["pulls.dry_run"] for text in (*OFF, *ON)}
    assert read == dict.fromkeys(OFF, False) | dict.fromkeys(ON, True)
    site.hub = make_hub(**set_up("github", site.host), pulls__dry_run="yes")
    for origin in (Origin(), bridge(**TIER, CLAUDEOPS_DRY_RUN="false"), bridge(**TIER, CLAUDEOPS_DRY_RUN="0")):
        assert site.create(origin=origin)["dry_run"] is True
    assert (site.host.exchanges, site.rows()) == ([], [])


def test_it_needs_no_token(site: Site, make_hub: Callable[..., Hub]) -> None:
    site.hub = make_hub()
    plan = site.create(origin=dry())
    assert (plan["branch"], plan["provider"]) == (BRANCH, None)
    assert site.refusal(origin=bridge(**TIER)).message == "no host for pulls is set up"


def test_every_check_runs(site: Site) -> None:
    assert "denied" in site.refusal(origin=dry(), files=[{**FILE, "path": "Dockerfile.md"}]).message
    assert site.refusal(origin=dry(CLAUDEOPS_TIER="1")).message.startswith("tier 1 agents")
    assert site.refusal(origin=dry(), files=[{"path": "checks/a.md"}]).code == "INVALID_INPUT"
    assert site.refusal(origin=dry(), title="").code == "INVALID_INPUT"


LONG: dict[str, dict[str, Any]] = {
    "files": {"files": [{**FILE, "path": f"checks/{'q7#Zx^!k' * 12}{n}.md"} for n in range(3000)]},
    "body": {"body": "Words of a body. " * 3_500},
    "letters": {"body": "\U0001f6e0" * 15_000},
}
LONG["all"] = {**LONG["files"], **LONG["letters"], "title": "\U0001f6e0" * 250}


@pytest.mark.parametrize("given", LONG.values(), ids=LONG)
def test_a_long_plan_floods_nobody_and_says_what_is_left_out(site: Site, given: dict[str, Any]) -> None:
    plan = site.create(origin=dry(), **given)
    assert count(json.dumps(plan, ensure_ascii=False)) < 20_000
    body = given.get("body", PULL["body"])
    left_out = {"body": len(body) - len(plan["body"]), "files": plan["file_count"] - len(plan["files"])}
    assert plan["left_out"] == {name: number for name, number in left_out.items() if number}
    assert plan["body"] and plan["files"] and body.startswith(plan["body"])
