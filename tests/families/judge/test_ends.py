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
from tests.edges.stdio import Stdio, hall_of
from tests.edges.ways import META, MODERN
from tests.edges.wire import http, mcp_headers
from tests.families.judge.court import CONTRACT, FILES, Act, Court, Meanwhile, result, ruling

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
CourtIn = Callable[..., Court]


def courts_of(hub: Hub, court_in: CourtIn) -> list[Court]:
    courts = [court_in(hub, name) for name in KINDS]
    for court, act in zip(courts, KINDS.values(), strict=True):
        court.leave(word="PASS")
        court.cli.plays(act)
    return courts


def is_idle(hub: Hub) -> bool:
    return hub.state(REVIEWS).counts == (0, 0)


def test_a_review_whose_time_is_over_leaves_nothing_behind(
    make_hub: Callable[..., Hub], court_in: CourtIn, command: list[str]
) -> None:
    hub = make_hub(judge__command=command, judge__at_once=len(KINDS))
    courts = courts_of(hub, court_in)
    calls = [Meanwhile(court.review, timeout_seconds=1) for court in courts]
    for name, court, call in zip(KINDS, courts, calls, strict=True):
        answer = call.over()
        assert (court.cli.left(), court.handed()) == ([], []), name
        assert (answer["success"], answer["timed_out"], answer["error"]) == (False, True, "timed_out"), name
        assert (answer["verdict"], answer["report_json_path"]) == (None, None)
        assert 1000 <= answer["duration_ms"] <= 1000 + AT_MOST * 1000, name
        stored = court.report(answer)
        assert (stored["error"], stored["verdict"]) == ("timed_out", None) and "within 1 s" in stored["text"]
    assert is_idle(hub)


def test_a_cancelled_review_leaves_nothing_behind(
    make_hub: Callable[..., Hub], court_in: CourtIn, command: list[str]
) -> None:
    hub = make_hub(judge__command=command, judge__at_once=len(KINDS))
    courts = courts_of(hub, court_in)
    calls = [Meanwhile(court.review) for court in courts]
    for court in courts:
        court.cli.wait_for()
        assert court.cli.left() and court.handed() == [], "what is old is gone as soon as it is asked"
    end = time.monotonic() + AT_MOST
    for call in calls:
        call.stop.cancel()
    for name, court, call in zip(KINDS, courts, calls, strict=True):
        court.cli.wait_until_gone(end - time.monotonic())
        assert call.failed().code == "CANCELLED"
        assert court.handed() == [], name
    assert courts[0].reports()["spent"]["reports"] == 0
    assert is_idle(hub)


def test_a_verdict_after_the_end_is_none(court: Court) -> None:
    """It says PASS when it is asked to end, on its standard output and in the files."""
    court.cli.plays({"writes": LATE, "out": SAID, "waits": "go", "code": 0})
    call = Meanwhile(court.review)
    court.cli.wait_for()
    call.stop.cancel()
    court.cli.go()
    assert call.failed().code == "CANCELLED"
    assert (court.handed(), court.reports()["reports"]) == ([], [])


def test_a_program_that_the_cli_leaves_behind_ends_with_a_good_review(court: Court) -> None:
    court.cli.plays({"out": SAID, "strays": 2})
    assert court.review()["verdict"] == "PASS"
    assert len(court.cli.journal("stray")) == 2 and court.cli.left() == []


@pytest.fixture
def by_mcp(courthouse: Callable[..., Live], court_in: CourtIn) -> tuple[Live, list[Court]]:
    """A live hub with three trees, in which reviews wait for ever."""
    live = courthouse(judge__at_once=3, tool__progress="200ms", server__shutdown_seconds="50ms")
    courts = [court_in(live.hub, name) for name in ("one", "two", "three")]
    for court in courts:
        court.cli.plays(KINDS["with strays"])
        live.hub.call("repository_register", {"path": str(court.root)}, OPERATOR)
    return live, courts


def asked_by_stdio(live: Live, court: Court) -> tuple[Stdio, Any]:
    """A bridge whose client has asked for a review that has begun, and the request's id."""
    words = ("--families", "judge", "--directory", str(court.root))
    client = Stdio(live.hub.settings.home, *words, **hall_of(live))
    request = client.send("tools/call", name="claude_review", arguments={"contract_path": CONTRACT})
    court.cli.wait_for()
    return client, request


def test_a_client_that_cancels_or_leaves_ends_its_review(by_mcp: tuple[Live, list[Court]]) -> None:
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
    for court in (cancelling, dying, dropping):
        court.cli.wait_until_gone(AT_MOST)
    eventually(lambda: is_idle(live.hub))
    assert live.hub.call("judge_report_list", {}, OPERATOR)["reports"] == []
    assert {tool["name"] for tool in first.ask("tools/list")["result"]["tools"]} >= {"claude_judge_review"}
    first.kill()


def test_a_hub_that_stops_takes_its_reviews_along(by_mcp: tuple[Live, list[Court]]) -> None:
    live, (court, *_) = by_mcp
    url = f"{live.url}/api/v1/judge/review"

    def ask(**_: Any) -> dict[str, Any]:
        body: dict[str, Any] = http.post(url, json={"contract_path": str(court.root / CONTRACT)}).json()
        return body

    call = Meanwhile(ask)
    court.cli.wait_for()
    live.stop()
    assert call.over()["code"] == "CANCELLED"
    assert court.cli.left() == [] and court.handed() == []


def test_a_directory_that_went_away_does_not_hide_what_happened(court: Court, tmp_path: Path) -> None:
    court.leave("reports")
    court.cli.plays({"moves": {"reports": str(tmp_path / "gone")}, "code": 3})
    assert court.review(report_dir="reports")["error"] == "exit code 3"
