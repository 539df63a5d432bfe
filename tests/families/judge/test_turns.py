"""Reviews that come at once: how many run, in which order, what they are told, and which of them costs something."""

import json
from collections.abc import Callable
from functools import partial

import pytest

from crewhall.app import Hub
from crewhall.families.judge.family import REPORT_WRITES, REVIEWS
from tests.conftest import eventually
from tests.families.judge.judge_site import FILES, BackgroundCall, JudgeSite, rules

pytestmark = pytest.mark.slow

SiteIn = Callable[..., JudgeSite]
BEFORE = "in line, "


@pytest.fixture
def site_of(make_hub: Callable[..., Hub], site_in: SiteIn, command: list[str]) -> Callable[[int], JudgeSite]:
    """A site that lets so many be judged at once; each review waits until the test lets it go on."""

    def make(at_once: int) -> JudgeSite:
        site = site_in(make_hub(judge__command=command, judge__at_once=at_once))
        site.cli.plays(rules(waits="go"))
        return site

    return make


def in_line(site: JudgeSite, *names: str) -> list[BackgroundCall]:
    """Reviews of contracts of these names, that came one after the other; each runs, or is told its place."""
    calls: list[BackgroundCall] = []
    for name in names:
        site.contract(f"{name}.json", changed_files=["src/a.py", f"{name}.json"])
        calls.append(BackgroundCall(site.review, contract_path=f"{name}.json", report_dir=f"ignored/{name}"))
        eventually(partial(_is_in_line, site, calls))
    return calls


def _is_in_line(site: JudgeSite, calls: list[BackgroundCall]) -> bool:
    return bool(calls[-1].progress) or len(site.cli.journal("start")) == len(calls)


def most_at_once(site: JudgeSite) -> int:
    running = most = 0
    for line in site.cli.journal("start", "end"):
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    return most


@pytest.mark.parametrize("at_once", [1, 2])
def test_no_more_than_so_many_run_and_the_first_come_first(site_of: Callable[[int], JudgeSite], at_once: int) -> None:
    site = site_of(at_once)
    calls = in_line(site, "a", "b", "c", "d")
    health = site.ask("claude_health")
    assert (health["running"], health["waiting"], health["at_once"]) == (at_once, 4 - at_once, at_once)
    for ended in range(1, 5):
        site.cli.go()
        site.cli.wait_for(ended, "end")
        site.cli.wait_for(min(4, ended + at_once))
    assert [call.wait()["verdict"] for call in calls] == ["PASS"] * 4
    assert most_at_once(site) == at_once
    runs = ["".join(name for name in "abcd" if f'"{name}.json"' in run["input"]) for run in site.cli.runs()]
    assert [*sorted(runs[:at_once]), *runs[at_once:]] == ["a", "b", "c", "d"]
    for number, call in enumerate(calls[at_once:]):
        messages = [message for _, message in call.progress if BEFORE in message]
        places = [0 if message.startswith("yours is next") else int(message.split()[0]) for message in messages]
        assert places[0] == number and places == sorted(places, reverse=True), "it comes nearer"
    for call in calls:
        assert [done for done, _ in call.progress] == sorted(done for done, _ in call.progress), "progress goes forward"


def test_the_same_question_at_once_is_asked_once(site_of: Callable[[int], JudgeSite]) -> None:
    site = site_of(2)
    calls = [BackgroundCall(site.review, report_dir="ignored/0")]
    site.cli.wait_for()
    calls += [BackgroundCall(site.review, report_dir=f"ignored/{number}") for number in (1, 2)]
    eventually(lambda: all("the same review is running" in str(call.progress) for call in calls[1:]))
    site.cli.go()
    answers = [call.wait() for call in calls]
    assert len(site.cli.runs()) == 1
    assert [answer["verdict"] for answer in answers] == ["PASS"] * 3
    assert [answer["cached"] for answer in answers] == [False, True, True]
    assert [answer["cost_usd"] for answer in answers] == [0.25, 0, 0]
    assert len({answer["report_id"] for answer in answers}) == 1
    assert [site.report_names(f"ignored/{number}") for number in range(3)] == [sorted(FILES)] * 3


def test_who_waits_for_an_answer_that_fails_asks_for_itself(site_of: Callable[[int], JudgeSite]) -> None:
    site = site_of(2)
    site.cli.plays({"waits": "go", "code": 3}, rules("FAIL"))
    first = BackgroundCall(site.review)
    site.cli.wait_for()
    second = BackgroundCall(site.review)
    eventually(lambda: second.progress)
    site.cli.go()
    assert (first.wait()["error"], second.wait()["verdict"]) == ("exit code 3", "FAIL")


def test_who_wants_it_fresh_waits_for_nobody_who_asks_the_same(site_of: Callable[[int], JudgeSite]) -> None:
    site = site_of(2)
    calls = [BackgroundCall(site.review, fresh=fresh, report_dir=f"ignored/{fresh}") for fresh in (False, True)]
    site.cli.wait_for(2)
    site.cli.go(2)
    assert [call.wait()["cached"] for call in calls] == [False, False]
    assert len({call.wait()["report_id"] for call in calls}) == 2


def test_two_that_report_into_one_directory_leave_one_whole_report(site_of: Callable[[int], JudgeSite]) -> None:
    site = site_of(2)
    site.contract("b.json")
    (site.root / "ignored").mkdir()  # a way through it is none before
    named = [{"report_dir": "ignored/x"}, {"report_dir": "ignored/../ignored/x", "contract_path": "b.json"}]
    calls = [BackgroundCall(site.review, **given) for given in named]
    site.cli.wait_for(2)
    site.cli.go(2)
    answers = {call.wait()["report_id"] for call in calls}
    written = json.loads((site.root / "ignored/x/JUDGE_REPORT.json").read_text())["report_id"]
    assert written in answers and len(answers) == 2
    assert written in (site.root / "ignored/x/JUDGE_REPORT.md").read_text()


def test_who_fails_does_not_take_away_what_another_reported_meanwhile(site_of: Callable[[int], JudgeSite]) -> None:
    site = site_of(2)
    site.contract("b.json")
    site.cli.plays(rules(waits="ever"), rules("FAIL"))
    first = BackgroundCall(site.review)
    site.cli.wait_for()
    answer = site.review(contract_path="b.json")
    first.stop.cancel()
    assert (first.wait_for_failure().code, site.report_names()) == ("CANCELLED", sorted(FILES))
    assert json.loads((site.root / "_handoff/JUDGE_REPORT.json").read_text())["report_id"] == answer["report_id"]
    assert site.hub.state(REPORT_WRITES).running == []


def test_one_who_gives_up_in_line_was_never_asked_and_frees_its_place(site_of: Callable[[int], JudgeSite]) -> None:
    site = site_of(1)
    first, second, third = in_line(site, "a", "b", "c")
    assert "1 before yours" in third.progress[0][1]
    second.stop.cancel()
    assert second.wait_for_failure(2).code == "CANCELLED"
    eventually(lambda: "yours is next" in third.progress[-1][1])
    site.cli.go(2)
    assert (first.wait()["verdict"], third.wait()["verdict"]) == ("PASS", "PASS")
    assert len(site.cli.runs()) == 2 and not any('"b.json"' in run["input"] for run in site.cli.runs())
    assert site.hub.state(REVIEWS).counts == (0, 0)


def test_files_are_read_when_the_turn_has_come(site_of: Callable[[int], JudgeSite]) -> None:
    site = site_of(1)
    first, second = in_line(site, "a", "b")
    (site.root / "src/a.py").write_text("changed meanwhile\n")
    site.cli.go(2)
    assert second.wait()["verdict"] == "PASS" and second.wait()["detail"] is None
    assert "changed meanwhile" in site.cli.runs()[1]["input"]
    assert first.wait()["detail"], "the tree changed under it"
    assert second.wait()["duration_ms"] > 0


def test_waiting_in_line_does_not_count_as_time(site_of: Callable[[int], JudgeSite]) -> None:
    site = site_of(1)
    site.cli.plays({"waits": "ever"}, rules())
    site.contract("b.json")
    late = BackgroundCall(site.review, timeout_seconds=1)
    site.cli.wait_for()
    behind = BackgroundCall(site.review, timeout_seconds=1, contract_path="b.json", report_dir="ignored/b")
    assert (late.wait()["timed_out"], behind.wait()["verdict"]) == (True, "PASS")
