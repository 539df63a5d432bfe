"""What a host's answers mean: refusals in its own words, waits within the call's time, and never the token."""

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from crewhall.errors import Failure
from crewhall.fakehosts.faults import Fault, rate_limited
from crewhall.outside.hosting import wire
from crewhall.outside.hosting.answers import HostResponse, has_more
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import BranchHead
from crewhall.outside.hosting.wire import ATTEMPTS, without_token
from tests.hosts.conftest import HERE, TOKEN, HostSite, branch_change, create, failure_of, response_fault

Make = Callable[..., HostSite]
CODES = {
    400: ("INVALID_INPUT", "Correct what it names"),
    401: ("FORBIDDEN", "GITHUB_TOKEN"),
    403: ("FORBIDDEN", "lacks a permission"),
    404: ("NOT_FOUND", "Check owner, name and number"),
    409: ("CONFLICT", "Look at what is there"),
    413: ("INVALID_INPUT", "Correct"),
    418: ("UNAVAILABLE", "Try again later"),
    422: ("INVALID_INPUT", "Correct what it names"),
    423: ("CONFLICT", "Look"),
    451: ("UNAVAILABLE", "Try again"),
}


@pytest.mark.parametrize("status", CODES)
def test_a_refusal_has_the_hosts_words_and_a_hint(pretend: HostSite, host: Host, status: int) -> None:
    code, hint = CODES[status]
    detail = {"resource": "Issue", "field": "title", "code": "missing"}
    pretend.fake.fail(response_fault({"message": "Not so", "errors": ["first", detail, {"message": "third"}]}, status))
    refused = failure_of(lambda: host.repository("octo", "ops"))
    assert refused.code == code and hint in refused.hint
    assert "Not so: first: title missing: third" in refused.message and pretend.title in refused.message
    assert len(pretend.fake.exchanges) == 1, "it is not asked again"
    host.repository("octo", "ops")


@pytest.mark.parametrize(
    "body", ["", "<html>no</html>", "[]", "7", '{"message": null, "errors": 3}', '{"message": {}}']
)
def test_a_refusal_without_words_tells_its_status(pretend: HostSite, host: Host, body: str) -> None:
    pretend.fake.fail(response_fault(body, 422))
    assert "HTTP 422" in failure_of(lambda: host.repository("octo", "ops")).message


def test_the_token_is_never_told(pretend: HostSite, host: Host, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "crewhall")
    for status in (*CODES, 301, 307, 429, 500):
        echo = {"message": f"no {TOKEN}", "errors": [TOKEN, {"message": TOKEN}, {"field": TOKEN, "code": TOKEN}]}
        where = {"location": f"http://{TOKEN}.test/{TOKEN}", "x_echo": f"token {TOKEN}", "www_authenticate": TOKEN}
        answers = response_fault(echo, status, **where, **({"retry_after": 9999} if status == 429 else {}))
        for answer in (answers, response_fault(f"<p>{TOKEN}", status)):
            answer.times = ATTEMPTS
            pretend.fake.fail(answer)
            failure = failure_of(lambda: host.repository("octo", "ops"))
            assert "[token]" in failure.message or answer is not answers or status in (429, 500)
            answer.times = 0
    for broken in (
        response_fault(f'{{"{TOKEN}": '),
        response_fault({"name": TOKEN, "owner": {"login": [TOKEN]}, TOKEN: TOKEN}),
    ):
        broken.times = ATTEMPTS
        pretend.fake.fail(broken)
        failure_of(lambda: host.repository("octo", "ops"))
        broken.times = 0
    assert TOKEN not in repr(host.access) and len(caplog.records) > 20
    assert not [one for one in caplog.records if TOKEN in str(vars(one))]
    assert all(one.headers["authorization"] == f"token {TOKEN}" for one in pretend.fake.exchanges)


def test_an_answer_that_repeats_the_token_is_cleaned_before_anything_is_read(pretend: HostSite, host: Host) -> None:
    pull = pretend.repo.add_pull(title=f"fix {TOKEN} now", head=f"b-{TOKEN}", body=TOKEN, labels=[f"label {TOKEN}"])
    shown = [*host.pulls(HERE, "all"), host.pull(HERE, pull.number)]
    assert TOKEN not in repr(shown) and repr(shown).count("fix [token] now") == 2
    assert f"b-{TOKEN}" in {one.head for one in pretend.repo.pulls.values()}, "the host itself has it"


@pytest.mark.parametrize(
    ("token", "raw"),
    [
        ("ghp_abcd", '["x ghp_abcd y", {"ghp_abcd": 7}]'),
        ("ghp_abcd", '["\\u0067hp_abc\\u0064"]'),
        ("ghp_abcd", '["a\\nghp_abcd\\n"]'),
        ("ghp/abcd", '["ghp\\/abcd"]'),
        ('ghp"ab\\d', '["ghp\\"ab\\\\d", "ghp\\u0022ab\\u005cd"]'),
    ],
)
def test_no_way_to_write_the_token_in_json_gets_it_through(token: str, raw: str) -> None:
    assert token in json.loads(raw)[0]
    shown = json.dumps(without_token(raw.encode(), token))
    assert json.dumps(token)[1:-1] not in shown and "[token]" in shown


def test_a_body_without_the_token_and_a_token_that_is_a_word_stay() -> None:
    assert without_token(b'["\\u00e4", "a\\/b", "fix"]', "ghp_abcd") == ["ä", "a/b", "fix"]
    assert without_token(b'["fix"]', "fix") == ["fix"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_a_body_that_is_not_utf_8_is_no_json(encoding: str) -> None:
    assert without_token('["ä"]'.encode("utf-8-sig"), "ghp_abcdefgh") == ["ä"]
    with pytest.raises(ValueError, match=r"decode|Expecting"):
        without_token('["ghp_abcdefgh"]'.encode(encoding), "ghp_abcdefgh")


@pytest.mark.parametrize("token", ["ghp_\nX", "ghp_é", "ghp_日", "a b", "x\0"])
def test_a_token_that_cannot_be_sent_is_refused_unseen(github: HostSite, token: str) -> None:
    refused = failure_of(lambda: github.host(token=token))
    assert refused.code == "FORBIDDEN" and token not in str(refused.body()) and not github.fake.exchanges


def test_a_hosts_words_are_cleaned(pretend: HostSite, host: Host) -> None:
    pretend.fake.fail(
        response_fault({"message": "bad\x00\x1b[31m\r\nnews\u2028\u202eabc\u200b\ud800 größer日本 " + "x" * 5000}, 422)
    )
    message = failure_of(lambda: host.repository("octo", "ops")).message
    assert "bad [31m news abc \ufffd größer日本 xxx" in message and len(message) < 400 and message.isprintable()


REDIRECTS = ["http://{other}/api/v3/repos/octo/ops", "//{other}/x", "https://{own}/api/v3/repos/octo/ops"]
REDIRECTS += ["", "http://{own}/api/v3/repos/octo/ops", "ftp://{own}/x"]


@pytest.mark.parametrize("location", REDIRECTS)
@pytest.mark.parametrize("status", [301, 307])
def test_a_redirect_away_is_not_followed(place: Make, location: str, status: int) -> None:
    github, other = place("github"), place("github")
    names = {"own": github.fake.url.removeprefix("http://"), "other": other.fake.url.removeprefix("http://")}
    github.fake.fail(response_fault("", status, location=location.format(**names)))
    with github.host() as host:
        refused = failure_of(lambda: host.repository("octo", "ops"))
    assert refused.code == "UNAVAILABLE" and "not followed" in refused.message and "address" in refused.hint
    assert other.fake.exchanges == [] and len(github.fake.exchanges) == 1


@pytest.mark.parametrize("location", ["javascript:alert(1)", "http://[::1", "http://x:y/"])
def test_a_redirect_to_nonsense_is_an_answer_like_none(pretend: HostSite, host: Host, location: str) -> None:
    broken = response_fault("", 301, location=location)
    broken.times = ATTEMPTS
    pretend.fake.fail(broken)
    assert "does not answer" in failure_of(lambda: host.repository("octo", "ops")).message


def test_redirects_in_a_circle_come_to_an_end(pretend: HostSite, host: Host) -> None:
    for name in ("a", "b") * 10:
        pretend.fake.fail(response_fault("", 301, location=f"{pretend.fake.api}/repos/octo/{name}"))
    assert failure_of(lambda: host.repository("octo", "ops")).code == "UNAVAILABLE"
    assert len(pretend.fake.exchanges) == wire.REDIRECTS


def test_a_write_is_not_sent_on_as_a_read(pretend: HostSite, host: Host) -> None:
    pretend.fake.fail(response_fault("", 301, location=f"{pretend.fake.api}/repos/octo/ops"))
    pretend.fake.fail(response_fault("", 302, location=f"{pretend.fake.api}/repos/octo/ops"))
    assert failure_of(lambda: host.create_pull(HERE, "a", "b", "T", "")).code == "UNAVAILABLE"
    assert failure_of(lambda: host.delete_branch(HERE, "a")).code == "UNAVAILABLE"
    assert [one.method for one in pretend.fake.exchanges] == ["POST", "DELETE"]


READS: dict[str, Callable[[Host], object]] = {
    "repository": lambda host: host.repository("octo", "ops"),
    "head": lambda host: host.head(HERE, "main"),
    "branches": lambda host: host.branches(HERE, "x"),
    "tree": lambda host: host.tree(HERE, BranchHead("1" * 40, "", "1" * 40), branch_change(create("x.md"))),
    "pulls": lambda host: list(host.pulls(HERE, "open")),
    "pull": lambda host: host.pull(HERE, 1),
    "brief": lambda host: host.brief(HERE, 1),
    "checks": lambda host: list(host.checks(HERE, "1" * 40)),
    "issue": lambda host: host.find_issue(HERE, "mark"),
}
NAMELESS = '{"name": "ops", "owner": {"login": null}}'
SHAPES = ["", "null", "[]", "7", '"x"', "{}", NAMELESS, "[[]]", "[null]", "NaN"]
SHAPES += [
    '[{"number": "x"}]',
    '{"check_runs": 1, "statuses": 3, "tree": 1, "commit": []}',
]
NONE_THERE = {("branches", "[]"), ("pulls", "[]"), ("issue", "[]")}
NO_CHECKS = {("checks", one) for one in ("", "null", "[]", "{}", NAMELESS)}  # Gitea and Forgejo tell so in many ways


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape[:30])
def test_an_answer_of_a_wrong_shape_is_no_traceback(pretend: HostSite, host: Host, shape: str) -> None:
    for name, read in READS.items():
        wrong = response_fault(shape)
        wrong.times = ATTEMPTS
        pretend.fake.fail(wrong)
        if (name, shape) in (NONE_THERE | NO_CHECKS if pretend.name == "gitea" else NONE_THERE):
            assert not read(host)
        else:
            failure = failure_of(partial(read, host))
            assert failure.code == "UNAVAILABLE" and pretend.title in failure.message
        wrong.times = 0


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, "{", "<html>"], ids=lambda text: text[:9])
def test_an_answer_that_is_no_json_is_asked_for_again(pretend: HostSite, host: Host, text: str) -> None:
    wrong = response_fault(text)
    wrong.times = ATTEMPTS
    pretend.fake.fail(wrong)
    refused = failure_of(lambda: host.repository("octo", "ops"))
    assert refused.code == "UNAVAILABLE" and "something else than JSON" in refused.message
    assert len(pretend.fake.exchanges) == ATTEMPTS and host.repository("octo", "ops") == HERE


def test_an_answer_that_is_too_long_is_not_read(pretend: HostSite, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "ANSWER_BYTES", 100_000)
    pretend.fake.fail(response_fault('"' + "x" * 200_000 + '"'))
    pretend.fake.fail(response_fault('"' + "x" * 200_000 + '"', 422))
    assert host.repository("octo", "ops") == HERE, "it is asked again"
    assert [one.status for one in pretend.fake.exchanges] == [200, 422, 200]


@pytest.mark.parametrize("name", ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "gopher://x", "http://[::1", "http://x:y"])
def test_a_proxy_that_cannot_be_used_is_named(
    github: HostSite, monkeypatch: pytest.MonkeyPatch, name: str, proxy: str
) -> None:
    monkeypatch.setenv(name, proxy)
    refused = failure_of(github.host)
    assert refused.code == "UNAVAILABLE" and name in refused.hint and not github.fake.exchanges


NEXT, LAST = '<http://x/?page=2>; rel="next"', '<http://x/?page=1>; rel="prev"'


@pytest.mark.parametrize(
    ("headers", "seen", "is_full", "more"),
    [
        ({}, 50, True, True),
        ({}, 49, False, False),
        ({"link": NEXT}, 10, False, True),
        ({"link": LAST}, 50, True, False),
        ({"link": LAST, "x-total-count": "99"}, 50, True, False),
        ({"x-total-count": "51"}, 50, False, True),
        ({"x-total-count": "50"}, 50, True, False),
        ({"x-total-count": "many"}, 50, True, True),
        ({"x-total-count": "²"}, 50, False, False),
        ({"x-total-count": "9" * 5000}, 50, False, False),
    ],
)
def test_whether_a_list_goes_on(headers: dict[str, str], seen: int, is_full: bool, more: bool) -> None:
    assert has_more(HostResponse(200, [], headers, ""), seen, is_full) == more


@pytest.mark.parametrize(
    "web", ["http://127.0.0.1:1", "https://{own}", "http://no.invalid", "ftp://{own}", "http://a b"]
)
def test_a_host_that_cannot_be_reached_is_named(pretend: HostSite, web: str) -> None:
    address = web.format(own=pretend.fake.url.removeprefix("http://"))
    with pretend.host(web=address) as host:
        acts = (lambda: host.repository("octo", "ops"), lambda: host.session.request("POST", "/x", body={}))
        for refused in map(failure_of, acts):
            assert refused.code == "UNAVAILABLE" and pretend.title in refused.message
            assert not isinstance(refused, wire.Unsure), "it cannot have happened"
        assert not host.session.is_unanswered, "and it will not"
    assert pretend.fake.exchanges == []


WRITES = {"answered": Fault(status=403), "500": Fault(), "dropped": Fault(kind="drop_after"), "limit": rate_limited()}


@pytest.mark.parametrize("case", WRITES)
def test_a_session_knows_whether_a_write_may_happen_yet(pretend: HostSite, host: Host, case: str) -> None:
    host.repository("octo", "ops")
    assert (host.session.has_written, host.session.is_unanswered) == (False, False)
    pretend.fake.fail(replace(WRITES[case], method="DELETE"))
    with suppress(Failure):
        host.delete_branch(HERE, "gone")
    pretend.fake.fail(Fault(method="GET"))
    host.repository("octo", "ops")
    assert (host.session.has_written, host.session.is_unanswered) == (True, case in ("500", "dropped"))


def test_an_empty_page_ends_a_list_whatever_is_said_of_more(gitea: HostSite) -> None:
    gitea.fake.fail(response_fault([], x_total_count=99))
    with gitea.host() as host:
        assert list(host.pulls(HERE, "open")) == [] and len(gitea.fake.exchanges) == 1
