"""Reviews that come at once: how many run, in which order, what they are told, and which of them costs something."""

import json
from collections.abc import Callable
from functools import partial

import pytest

from crewhall.app import Hub
from crewhall.families.judge.family import REVIEWS
from tests.conftest import eventually
from tests.families.judge.court import FILES, Court, Meanwhile, rules

pytestmark = pytest.mark.slow

CourtIn = Callable[..., Court]
BEFORE = "in line, "


@pytest.fixture
def court_of(make_hub: Callable[..., Hub], court_in: CourtIn, command: list[str]) -> Callable[[int], Court]:
    """A court that lets so many be judged at once; each review waits until the test lets it go on."""

    def make(at_once: int) -> Court:
        court = court_in(make_hub(judge__command=command, judge__at_once=at_once))
        court.cli.plays(rules(waits="go"))
        return court

    return make


def in_line(court: Court, *names: str) -> list[Meanwhile]:
    """Reviews of contracts of these names, that came one after the other; each runs, or is told its place."""
    calls: list[Meanwhile] = []
    for name in names:
        court.contract(f"{name}.json", changed_files=["src/a.py", f"{name}.json"])
        calls.append(Meanwhile(court.review, contract_path=f"{name}.json", report_dir=f"ignored/{name}"))
        eventually(partial(_is_in_line, court, calls))
    return calls


def _is_in_line(court: Court, calls: list[Meanwhile]) -> bool:
    return bool(calls[-1].told) or len(court.cli.journal("start")) == len(calls)


def most_at_once(court: Court) -> int:
    running = most = 0
    for line in court.cli.journal("start", "end"):
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    return most


@pytest.mark.parametrize("at_once", [1, 2])
def test_no_more_than_so_many_run_and_the_first_come_first(court_of: Callable[[int], Court], at_once: int) -> None:
    court = court_of(at_once)
    calls = in_line(court, "a", "b", "c", "d")
    health = court.ask("claude_health")
    assert (health["running"], health["waiting"], health["at_once"]) == (at_once, 4 - at_once, at_once)
    for ended in range(1, 5):
        court.cli.go()
        court.cli.wait_for(ended, "end")
        court.cli.wait_for(min(4, ended + at_once))
    assert [call.over()["verdict"] for call in calls] == ["PASS"] * 4
    assert most_at_once(court) == at_once
    runs = ["".join(name for name in "abcd" if f'"{name}.json"' in run["input"]) for run in court.cli.runs()]
    assert [*sorted(runs[:at_once]), *runs[at_once:]] == ["a", "b", "c", "d"]
    for number, call in enumerate(calls[at_once:]):
        messages = [message for _, message in call.told if BEFORE in message]
        places = [0 if message.startswith("yours is next") else int(message.split()[0]) for message in messages]
        assert places[0] == number and places == sorted(places, reverse=True), "it comes nearer"
    for call in calls:
        assert [done for done, _ in call.told] == sorted(done for done, _ in call.told), "progress goes forward"


def test_the_same_question_at_once_is_asked_once(court_of: Callable[[int], Court]) -> None:
    court = court_of(2)
    calls = [Meanwhile(court.review, report_dir="ignored/0")]
    court.cli.wait_for()
    calls += [Meanwhile(court.review, report_dir=f"ignored/{number}") for number in (1, 2)]
    eventually(lambda: all("the same review is running" in str(call.told) for call in calls[1:]))
    court.cli.go()
    answers = [call.over() for call in calls]
    assert len(court.cli.runs()) == 1
    assert [answer["verdict"] for answer in answers] == ["PASS"] * 3
    assert [answer["cached"] for answer in answers] == [False, True, True]
    assert [answer["cost_usd"] for answer in answers] == [0.25, 0, 0]
    assert len({answer["report_id"] for answer in answers}) == 1
    assert [court.handed(f"ignored/{number}") for number in range(3)] == [sorted(FILES)] * 3


def test_who_waits_for_an_answer_that_fails_asks_for_itself(court_of: Callable[[int], Court]) -> None:
    court = court_of(2)
    court.cli.plays({"waits": "go", "code": 3}, rules("FAIL"))
    first = Meanwhile(court.review)
    court.cli.wait_for()
    second = Meanwhile(court.review)
    eventually(lambda: second.told)
    court.cli.go()
    assert (first.over()["error"], second.over()["verdict"]) == ("exit code 3", "FAIL")


def test_who_wants_it_fresh_waits_for_nobody_who_asks_the_same(court_of: Callable[[int], Court]) -> None:
    court = court_of(2)
    calls = [Meanwhile(court.review, fresh=fresh, report_dir=f"ignored/{fresh}") for fresh in (False, True)]
    court.cli.wait_for(2)
    court.cli.go(2)
    assert [call.over()["cached"] for call in calls] == [False, False]
    assert len({call.over()["report_id"] for call in calls}) == 2


def test_two_that_report_into_one_directory_leave_one_whole_report(court_of: Callable[[int], Court]) -> None:
    court = court_of(2)
    court.contract("b.json")
    (court.root / "ignored").mkdir()  # a way through it is none before
    named = [{"report_dir": "ignored/x"}, {"report_dir": "ignored/../ignored/x", "contract_path": "b.json"}]
    calls = [Meanwhile(court.review, **given) for given in named]
    court.cli.wait_for(2)
    court.cli.go(2)
    answers = {call.over()["report_id"] for call in calls}
    written = json.loads((court.root / "ignored/x/JUDGE_REPORT.json").read_text())["report_id"]
    assert written in answers and len(answers) == 2
    assert written in (court.root / "ignored/x/JUDGE_REPORT.md").read_text()


def test_who_fails_does_not_take_away_what_another_reported_meanwhile(court_of: Callable[[int], Court]) -> None:
    court = court_of(2)
    court.contract("b.json")
    court.cli.plays(rules(waits="ever"), rules("FAIL"))
    first = Meanwhile(court.review)
    court.cli.wait_for()
    answer = court.review(contract_path="b.json")
    first.stop.cancel()
    assert (first.failed().code, court.handed()) == ("CANCELLED", sorted(FILES))
    assert json.loads((court.root / "_handoff/JUDGE_REPORT.json").read_text())["report_id"] == answer["report_id"]


def test_one_who_gives_up_in_line_was_never_asked_and_frees_its_place(court_of: Callable[[int], Court]) -> None:
    court = court_of(1)
    first, second, third = in_line(court, "a", "b", "c")
    assert "1 before yours" in third.told[0][1]
    second.stop.cancel()
    assert second.failed(2).code == "CANCELLED"
    eventually(lambda: "yours is next" in third.told[-1][1])
    court.cli.go(2)
    assert (first.over()["verdict"], third.over()["verdict"]) == ("PASS", "PASS")
    assert len(court.cli.runs()) == 2 and not any('"b.json"' in run["input"] for run in court.cli.runs())
    assert court.hub.state(REVIEWS).counts == (0, 0)


def test_files_are_read_when_the_turn_has_come(court_of: Callable[[int], Court]) -> None:
    court = court_of(1)
    first, second = in_line(court, "a", "b")
    (court.root / "src/a.py").write_text("changed meanwhile\n")
    court.cli.go(2)
    assert second.over()["verdict"] == "PASS" and second.over()["detail"] is None
    assert "changed meanwhile" in court.cli.runs()[1]["input"]
    assert first.over()["detail"], "the tree changed under it"
    assert second.over()["duration_ms"] > 0


def test_waiting_in_line_does_not_count_as_time(court_of: Callable[[int], Court]) -> None:
    court = court_of(1)
    court.cli.plays({"waits": "ever"}, rules())
    court.contract("b.json")
    late = Meanwhile(court.review, timeout_seconds=1)
    court.cli.wait_for()
    behind = Meanwhile(court.review, timeout_seconds=1, contract_path="b.json", report_dir="ignored/b")
    assert (late.over()["timed_out"], behind.over()["verdict"]) == (True, "PASS")
