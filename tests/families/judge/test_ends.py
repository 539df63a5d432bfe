"""Reviews that are cancelled, or whose time is over: no verdict, no file, and after two seconds no process."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.families.judge.family import REVIEWS
from crewhall.identity import OPERATOR
from tests.conftest import Live, eventually
from tests.edges.interfaces import META, MODERN
from tests.edges.raw_http import http, mcp_headers
from tests.edges.stdio import Stdio, hall_of
from tests.families.judge.judge_site import CONTRACT, FILES, Act, BackgroundCall, JudgeSite, result, ruling

pytestmark = pytest.mark.slow

AT_MOST = 2.0  # seconds after which nothing of it may be left
LATE = {f"_handoff/{name}": ruling("PASS") for name in FILES}
SAID = result(ruling("PASS"))
# What it does while it is waited for, each in a tree of its own.
KINDS: dict[str, Act] = {
    "calm": {"waits": "ever"},
    "deaf": {"waits": "ever", "deaf": True},
    "with strays": {"waits": "ever", "strays": 2},
    "deaf with strays": {"waits": "ever", "deaf": True, "strays": 2},
    "writing in the end": {"waits": "ever", "on_term": LATE},
}
SiteIn = Callable[..., JudgeSite]


def sites_of(hub: Hub, site_in: SiteIn) -> list[JudgeSite]:
    sites = [site_in(hub, name) for name in KINDS]
    for site, act in zip(sites, KINDS.values(), strict=True):
        site.leave_reports(word="PASS")
        site.cli.plays(act)
    return sites


def is_idle(hub: Hub) -> bool:
    return hub.state(REVIEWS).counts == (0, 0)


def test_a_review_whose_time_is_over_leaves_nothing_behind(
    make_hub: Callable[..., Hub], site_in: SiteIn, command: list[str]
) -> None:
    hub = make_hub(judge__command=command, judge__at_once=len(KINDS))
    sites = sites_of(hub, site_in)
    calls = [BackgroundCall(site.review, timeout_seconds=1) for site in sites]
    for name, site, call in zip(KINDS, sites, calls, strict=True):
        answer = call.wait()
        assert (site.cli.processes_left(), site.report_names()) == ([], []), name
        assert (answer["success"], answer["timed_out"], answer["error"]) == (False, True, "timed_out"), name
        assert (answer["verdict"], answer["report_json_path"]) == (None, None)
        assert 1000 <= answer["duration_ms"] <= 1000 + AT_MOST * 1000, name
        stored = site.report(answer)
        assert (stored["error"], stored["verdict"]) == ("timed_out", None) and "within 1 s" in stored["text"]
    assert is_idle(hub)


def test_a_cancelled_review_leaves_nothing_behind(
    make_hub: Callable[..., Hub], site_in: SiteIn, command: list[str]
) -> None:
    hub = make_hub(judge__command=command, judge__at_once=len(KINDS))
    sites = sites_of(hub, site_in)
    calls = [BackgroundCall(site.review) for site in sites]
    for site in sites:
        site.cli.wait_for()
        assert site.cli.processes_left() and site.report_names() == [], "what is old is gone as soon as it is asked"
    end = time.monotonic() + AT_MOST
    for call in calls:
        call.stop.cancel()
    for name, site, call in zip(KINDS, sites, calls, strict=True):
        site.cli.wait_until_gone(end - time.monotonic())
        assert call.wait_for_failure().code == "CANCELLED"
        assert site.report_names() == [], name
    assert sites[0].reports()["spent"]["reports"] == 0
    assert is_idle(hub)


def test_a_verdict_after_the_end_is_none(site: JudgeSite) -> None:
    """It says PASS when it is asked to end, on its standard output and in the files."""
    site.cli.plays({"writes": LATE, "out": SAID, "waits": "go", "code": 0})
    call = BackgroundCall(site.review)
    site.cli.wait_for()
    call.stop.cancel()
    site.cli.go()
    assert call.wait_for_failure().code == "CANCELLED"
    assert (site.report_names(), site.reports()["reports"]) == ([], [])


def test_a_program_that_the_cli_leaves_behind_ends_with_a_good_review(site: JudgeSite) -> None:
    site.cli.plays({"out": SAID, "strays": 2})
    assert site.review()["verdict"] == "PASS"
    assert len(site.cli.journal("stray")) == 2 and site.cli.processes_left() == []


@pytest.fixture
def by_mcp(live_judge: Callable[..., Live], site_in: SiteIn) -> tuple[Live, list[JudgeSite]]:
    """A live hub with three trees, in which reviews wait for ever."""
    live = live_judge(judge__at_once=3, tool__progress="200ms", server__shutdown_seconds="50ms")
    sites = [site_in(live.hub, name) for name in ("one", "two", "three")]
    for site in sites:
        site.cli.plays(KINDS["with strays"])
        live.hub.call("repository_register", {"path": str(site.root)}, OPERATOR)
    return live, sites


def asked_by_stdio(live: Live, site: JudgeSite) -> tuple[Stdio, Any]:
    """A bridge whose client has asked for a review that has begun, and the request's id."""
    words = ("--families", "judge", "--directory", str(site.root))
    client = Stdio(live.hub.settings.home, *words, **hall_of(live))
    request = client.send("tools/call", name="claude_review", arguments={"contract_path": CONTRACT})
    site.cli.wait_for()
    return client, request


def test_a_client_that_cancels_or_leaves_ends_its_review(by_mcp: tuple[Live, list[JudgeSite]]) -> None:
    live, (cancelling, dying, dropping) = by_mcp
    first, request = asked_by_stdio(live, cancelling)
    second, _ = asked_by_stdio(live, dying)
    arguments = {"contract_path": str(dropping.root / CONTRACT)}
    params = {"name": "claude_review", "arguments": arguments, "_meta": META | {"progressToken": 1}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = mcp_headers(MODERN, "tools/call", "claude_review")
    with http.stream("POST", f"{live.url}/mcp", content=json.dumps(message), headers=headers):
        dropping.cli.wait_for()
    first.notify("notifications/cancelled", requestId=request)
    second.kill()
    for site in (cancelling, dying, dropping):
        site.cli.wait_until_gone(AT_MOST)
    eventually(lambda: is_idle(live.hub))
    assert live.hub.call("judge_report_list", {}, OPERATOR)["reports"] == []
    assert {tool["name"] for tool in first.ask("tools/list")["result"]["tools"]} >= {"claude_judge_review"}
    first.kill()


def test_a_hub_that_stops_takes_its_reviews_along(by_mcp: tuple[Live, list[JudgeSite]]) -> None:
    live, (site, *_) = by_mcp
    url = f"{live.url}/api/v1/judge/review"

    def ask(**_: Any) -> dict[str, Any]:
        body: dict[str, Any] = http.post(url, json={"contract_path": str(site.root / CONTRACT)}).json()
        return body

    call = BackgroundCall(ask)
    site.cli.wait_for()
    live.stop()
    assert call.wait()["code"] == "CANCELLED"
    assert site.cli.processes_left() == [] and site.report_names() == []


def test_a_directory_that_went_away_does_not_hide_what_happened(site: JudgeSite, tmp_path: Path) -> None:
    site.leave_reports("reports")
    site.cli.plays({"moves": {"reports": str(tmp_path / "gone")}, "code": 3})
    assert site.review(report_dir="reports")["error"] == "exit code 3"
