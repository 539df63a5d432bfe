"""Which host a call is about and with which token: no token goes where it was not set up for."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from crewhall.app import Hub, Origin
from crewhall.identity import Actor
from tests.families.pulls.conftest import TOKENS, Both, Host, Site, bridge, fake_host, on_github, set_up
from tests.outside.repos import git

GUARDED = {"CLAUDEOPS_TIER": "3"}


# By the address of the repository


@pytest.mark.parametrize("form", ["{}/octo/ops", "{}/octo/ops.git", "{}/octo/ops/", "{}/OCTO/Ops.git"])
def test_the_address_names_the_host(both: Both, form: str) -> None:
    assert both.hosts_called(clone_url=form.format(both.github.url)) == ["github"]
    assert both.hosts_called(clone_url=form.format(both.gitea.url)) == ["gitea"]
    with_password = form.format(both.gitea.url).replace("://", "://ada:secret@")
    assert both.hosts_called(clone_url=with_password) == ["gitea"]


@pytest.mark.parametrize(
    "form", ["git@127.0.0.1:octo/ops.git", "ssh://git@127.0.0.1:2222/octo/ops", "127.0.0.1:octo/ops"]
)
def test_an_address_for_ssh_names_the_host_without_a_port(make_hub: Callable[..., Hub], both: Both, form: str) -> None:
    both.site.hub = make_hub(**set_up("gitea", both.gitea))
    assert both.hosts_called(clone_url=form) == ["gitea"]


UNKNOWN = [
    "https://github.com/octo/ops",
    "https://127.0.0.1/octo/ops",
    "https://github.com@127.0.0.1:1/octo/ops",
    "http://169.254.169.254/octo/ops",
    "http://localhost:{port}/octo/ops",
    "git@elsewhere.example:octo/ops.git",
    "http://127.0.0.1.elsewhere.example:{port}/octo/ops",
    "http://127.0.0.1:{port}/below/octo/ops",
]


@pytest.mark.parametrize("url", UNKNOWN)
def test_a_host_that_is_not_set_up_is_refused_and_not_asked(both: Both, url: str) -> None:
    given = url.format(port=urlsplit(both.gitea.url).port)
    for tool in ("create_pr", "list_prs", "get_pr_status"):
        more = {"pr_number": 1} if tool == "get_pr_status" else {}
        refusal = both.site.refusal(tool, clone_url=given, **more)
        assert refusal.code == "UNAVAILABLE" and "GITEA_URL" in refusal.hint
        assert "as clone_url says, and no host there is set up" in refusal.message
        assert both.github.url in refusal.message
    assert both.is_silent()


def test_no_address_is_asked_that_only_a_caller_gives(both: Both) -> None:
    with fake_host("gitea", "whatever") as stranger:
        stranger.add_repository("octo", "ops", {"README.md": b"1"})
        assert both.site.refusal("list_prs", clone_url=f"{stranger.url}/octo/ops").code == "UNAVAILABLE"
        assert stranger.exchanges == []


@pytest.mark.parametrize("url", ["/srv/octo/ops", "file:///octo/ops", "ext::sh -c x octo/ops", "https://x/../octo/ops"])
def test_what_is_no_address_is_refused(both: Both, url: str) -> None:
    assert both.site.refusal("list_prs", clone_url=url).code == "INVALID_INPUT"
    assert both.is_silent()


def test_an_address_of_another_repository_is_refused(both: Both) -> None:
    refusal = both.site.refusal("list_prs", clone_url=f"{both.github.url}/octo/other")
    assert refusal.code == "INVALID_INPUT"
    assert refusal.message == "clone_url is of octo/other, and repo_owner and repo_name are octo/ops"


# By the client's directory, else by what is set up


def test_a_remote_of_the_clients_directory_names_the_host(both: Both, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "below").mkdir(parents=True)
    git(work, "init", "-q")
    git(work, "commit", "-q", "--allow-empty", "-m", "first")
    here = {"origin": Origin(directory=str(work / "below"))}
    assert both.hosts_called(**here) == ["github"], "there is no remote yet"
    git(work, "remote", "add", "fork", f"{both.github.url}/ada/ops.git")
    git(work, "remote", "add", "odd", "../somewhere")
    git(work, "remote", "add", "origin", f"{both.gitea.url}/octo/ops.git")
    assert both.hosts_called(**here) == ["gitea"]
    assert both.hosts_called(**here, clone_url=f"{both.github.url}/octo/ops") == ["github"], "the address goes first"
    git(work, "remote", "set-url", "origin", "https://elsewhere.example/octo/ops")
    assert both.site.refusal("list_prs", **here).message.startswith(
        "the repository is at elsewhere.example, as a remote here says"
    )
    git(work, "remote", "add", "mirror", f"{both.gitea.url}/Octo/OPS")
    assert both.hosts_called(**here) == ["gitea"], "the one of its remotes that is set up"


def test_a_directory_that_only_an_agents_header_names_is_not_looked_at(both: Both, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    git(tmp_path, "remote", "add", "origin", f"{both.gitea.url}/octo/ops.git")
    agent = Actor("agent", "ag_1", "worker", proof="token")
    assert both.hosts_called(origin=Origin(directory=str(tmp_path)), actor=agent) == ["github"]
    assert both.hosts_called(origin=Origin(directory=str(tmp_path), bridge="br_1"), actor=agent) == ["gitea"]


def test_a_directory_that_is_in_no_repository_says_nothing(both: Both, tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        assert both.hosts_called(origin=Origin(directory=str(directory))) == ["github"]


def test_without_any_word_it_is_the_only_host_and_of_two_github(both: Both, make_hub: Callable[..., Hub]) -> None:
    assert both.hosts_called() == ["github"]
    both.site.hub = make_hub(**set_up("gitea", both.gitea))
    assert both.hosts_called() == ["gitea"]
    for half, words in (({"url": both.gitea.url}, "no token"), ({"token": "gta"}, "no address")):
        both.site.hub = make_hub(**{f"pulls__gitea_{key}": value for key, value in half.items()})
        refusal = both.site.refusal("list_prs")
        assert (refusal.code, words in refusal.message) == ("INVALID_INPUT", True) and "GITEA_TOKEN" in refusal.hint
    both.site.hub = make_hub()
    refusal = both.site.refusal("list_prs")
    assert (refusal.code, refusal.message) == ("UNAVAILABLE", "no host for pulls is set up")
    assert "GITHUB_TOKEN" in refusal.hint and "GITEA_URL" in refusal.hint


def test_a_host_below_another_address_is_found_by_it(make_hub: Callable[..., Hub]) -> None:
    host = fake_host("github")
    host._server.prefix = "/git/api/v3"  # an Enterprise server, or a Gitea, behind a proxy that adds a path
    with host:
        host.add_repository("octo", "ops", {"README.md": b"1"})
        told = {"pulls__github_url": f"{host.url}/git/", "pulls__github_token": TOKENS["github"]}
        site = Site(make_hub(**told), host)
        assert site.ask("list_prs")["total"] == 0
        assert site.ask("list_prs", clone_url=f"{host.url}/git/octo/ops")["total"] == 0
        assert site.refusal("list_prs", clone_url=f"{host.url}/octo/ops").code == "UNAVAILABLE"


# Whose token


def tokens_sent(host: Host) -> set[str]:
    return {one.headers.get("authorization", "") for one in host.exchanges}


def test_a_clients_own_token_goes_first(both: Both) -> None:
    both.github.tokens["ghp_own"] = "ada"
    both.gitea.tokens["gta_own"] = "ada"
    own = bridge(GITHUB_TOKEN=" ghp_own ", GITEA_TOKEN="gta_own", **GUARDED)
    both.hosts_called(origin=own)
    both.hosts_called(origin=own, clone_url=f"{both.gitea.url}/octo/ops")
    assert (tokens_sent(both.github), tokens_sent(both.gitea)) == ({"token ghp_own"}, {"token gta_own"})
    assert both.site.create(origin=own)["number"] == 1
    assert both.github.repositories[("octo", "ops")].pulls[1].author == "ada"
    both.hosts_called()
    assert tokens_sent(both.github) == {"token ghp_own", f"token {TOKENS['github']}"}, "which another client is given"


@on_github
@pytest.mark.parametrize("literal", ["${GITHUB_TOKEN}", " ${GITHUB_TOKEN:-}", "", "  "])
def test_a_variable_that_the_client_did_not_have_counts_as_unset(site: Site, literal: str) -> None:
    everything = dict.fromkeys(("GITHUB_TOKEN", "GITEA_TOKEN", "GITEA_URL", "CLAUDEOPS_DRY_RUN"), literal)
    assert site.create(origin=bridge(**everything, **GUARDED))["number"] == 1
    assert tokens_sent(site.host) == {f"token {TOKENS['github']}"}


def test_the_hubs_token_never_goes_to_a_host_that_a_client_names(both: Both) -> None:
    with fake_host("gitea", "gta_own") as theirs:
        theirs.add_repository("octo", "ops", {"README.md": b"1"})
        there = f"{theirs.url}/octo/ops"
        for given in ({}, {"clone_url": there}):
            without = bridge(GITEA_URL=theirs.url, **GUARDED)
            both.site.ask("pulls_health", origin=without)
            if given:
                assert both.site.refusal("list_prs", origin=without, **given).code == "UNAVAILABLE"
        assert theirs.exchanges == [], "without a token of the client's own it is not even asked"
        own = bridge(GITEA_URL=f"{theirs.url}/", GITEA_TOKEN="gta_own", **GUARDED)
        assert both.site.ask("list_prs", origin=own, clone_url=there)["total"] == 0
        assert tokens_sent(theirs) == {"token gta_own"}
        refusal = both.site.refusal("list_prs", origin=own, clone_url=f"{both.gitea.url}/octo/ops")
        assert refusal.code == "UNAVAILABLE", "for this client, Gitea is its own"
    assert both.gitea.exchanges == []


def test_a_client_that_names_the_hubs_own_gitea_is_given_the_hubs_token(both: Both) -> None:
    for url in (both.gitea.url, f"{both.gitea.url}/", both.gitea.url.upper().replace("HTTP", "http")):
        assert both.hosts_called(origin=bridge(GITEA_URL=url), clone_url=f"{both.gitea.url}/octo/ops") == ["gitea"]
    assert tokens_sent(both.gitea) == {f"token {TOKENS['gitea']}"}


def test_a_bad_token_is_told_with_where_it_comes_from(both: Both) -> None:
    refusal = both.site.refusal("list_prs", origin=bridge(GITHUB_TOKEN="ghp_bad"))
    assert refusal.code == "FORBIDDEN" and "does not take the token" in refusal.message
    assert refusal.hint == "It comes from the client's GITHUB_TOKEN." and "ghp_bad" not in str(refusal.body())
    for odd in ("a b", "ghp\r\nX-Evil: 1", "ghp_ü"):
        assert (
            "GITHUB_TOKEN"
            in both.site.refusal(
                "list_prs", origin=bridge(GITHUB_TOKEN=odd), clone_url=f"{both.github.url}/octo/ops"
            ).hint
        )
    assert all("x-evil" not in one.headers for one in both.github.exchanges)


MALFORMED = [
    "git.example.com",
    "ftp://x",
    "http://",
    "http://[::1",
    "http://a b",
    "https://x:99999",
    "http://x?y",
    "://",
    "\x00",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_an_address_of_gitea_that_is_none_is_told(both: Both, make_hub: Callable[..., Hub], url: str) -> None:
    told = bridge(GITEA_URL=url, GITEA_TOKEN="gta_own", **GUARDED)
    assert both.hosts_called(origin=told) == ["github"], "the other host does not suffer"
    (problem,) = both.site.ask("pulls_health", origin=told)["problems"]
    assert problem.startswith("Gitea: ") and "is no address of a host" in problem
    if "\x00" not in url:
        both.site.hub = make_hub(pulls__gitea_url=url, pulls__gitea_token="gta")
        for tool in ("create_pr", "list_prs"):
            refusal = both.site.refusal(tool)
            assert (refusal.code, f"Gitea: {refusal.message}") == ("INVALID_INPUT", problem)
            assert "https://HOST" in refusal.hint


def test_an_address_of_github_that_is_none_is_told_too(both: Both, make_hub: Callable[..., Hub]) -> None:
    both.site.hub = make_hub(pulls__github_url="github.example", pulls__github_token="ghp")
    assert "github.example" in both.site.refusal("list_prs").message
    assert "github.example" in both.site.ask("pulls_health")["problems"][0]


def test_a_password_in_an_address_is_never_shown(both: Both, make_hub: Callable[..., Hub]) -> None:
    url = both.gitea.url.replace("://", "://ada:hunter2@")
    both.site.hub = make_hub(pulls__gitea_url=url, pulls__gitea_token=TOKENS["gitea"])
    seen = str(both.site.ask("pulls_health")) + str(both.site.refusal("get_pr_status", pr_number=7).body())
    seen += str(both.site.refusal("list_prs", clone_url="https://ada:hunter2@elsewhere.example/octo/ops").body())
    seen += str(both.site.refusal("list_prs", clone_url="ftp://ada:hunter2@elsewhere.example/octo/ops").body())
    assert "hunter2" not in seen
    both.site.create()
    assert "hunter2" not in str(both.site.rows())
