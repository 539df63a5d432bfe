"""Programs get the variables that they are known to need, and no others of the hub's."""

import os
from pathlib import Path

import pytest

from crewhall.outside.environment import git_environment, instance_environment, program_environment
from crewhall.outside.git import GitRepository
from crewhall.outside.worktrees import add_worktree
from tests.outside.repos import commit, git


def words(text: str) -> list[str]:
    return text.split()


SECRETS = words("""
    STRIPE_KEY ENCRYPTION_KEY MASTER_KEY OPENAI_KEY SSH_KEY MYSQL_PWD SMTP_PASS GPG_PASSPHRASE GH_PAT REDIS_AUTH JWT
    COOKIE DATABASE_URL SENTRY_DSN SLACK_WEBHOOK_URL AWS_SECRET_ACCESS_KEY NPM_CONFIG__AUTH PIP_EXTRA_INDEX_URL
    SSH_AUTH_SOCK DBUS_SESSION_BUS_ADDRESS KUBECONFIG GIT_SSH_COMMAND BASH_ENV LD_PRELOAD ANYTHING
""")
USUAL = words("""
    PATH HOME USER LANG LC_ALL TZ TERM TMPDIR XDG_CACHE_HOME VIRTUAL_ENV GOPATH JAVA_HOME CARGO_HOME no_proxy
""")
HALLS = words("CREWHALL_TOKEN CREWHALL_DATABASE_URL CREWHALL_HOME MCP_SERVER_PORT")
EVERYTHING = dict.fromkeys([*SECRETS, *USUAL, *HALLS, "GITHUB_TOKEN"], "value")


def test_a_program_gets_the_usual_and_what_is_named() -> None:
    assert program_environment(EVERYTHING).keys() == set(USUAL)
    assert program_environment(EVERYTHING, ["STRIPE_KEY", "GH_*"]).keys() == {*USUAL, "STRIPE_KEY", "GH_PAT"}


def test_nothing_makes_the_halls_own_go_along() -> None:
    assert program_environment(EVERYTHING, ["*", *HALLS]).keys() == {*USUAL, *SECRETS}
    assert program_environment(EVERYTHING, ["GITHUB_TOKEN"]).keys() == {*USUAL, "GITHUB_TOKEN"}
    for name in ("LANG", "HALL"):
        assert program_environment({name: f"x ch_operator_{'a' * 43}"}, ["*"]) == {}


TOKENS = ["https://glpat-token@host/simple", "https://token:@host,direct", "corp=HTTPS://token@host"]


def test_the_user_of_a_host_that_is_reached_by_ssh_is_no_token() -> None:
    environ = {"DOCKER_HOST": "ssh://ada@build"}
    assert program_environment(environ) == environ


@pytest.mark.parametrize(
    "url", ["http://ada:pw@proxy:3128", "https://:pw@proxy", "socks5://a%40b:p%3Aw@proxy", *TOKENS]
)
def test_an_url_with_a_password_is_not_one_of_the_usual(url: str) -> None:
    environ = {"HTTPS_PROXY": url, "GOPROXY": url, "http_proxy": "http://proxy:3128"}
    assert program_environment(environ).keys() == {"http_proxy"}
    assert program_environment(environ, ["HTTPS_PROXY"]).keys() == {"http_proxy", "HTTPS_PROXY"}
    assert git_environment(environ).keys() == {"http_proxy", "HTTPS_PROXY"}, "git reaches hosts by it"


def test_an_instance_gets_its_runtimes_own_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in EVERYTHING.items():
        monkeypatch.setenv(name, value)
    given = instance_environment(["STRIPE_KEY"], ["OPENAI_KEY"])
    assert given.keys() & EVERYTHING.keys() == {*USUAL, "STRIPE_KEY", "OPENAI_KEY"} - {"TERM"}


def test_a_filter_of_the_repositorys_settings_sees_no_secret(
    repo: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(repo.root, ".gitattributes").write_text("*.big filter=show\n")
    Path(repo.root, "a.big").write_text("x\n")
    commit(repo.root, "big")
    git(repo.root, "config", "filter.show.smudge", f"env > {tmp_path}/shown; cat")
    for name in SECRETS:
        monkeypatch.setenv(name, "value" if name != "LD_PRELOAD" else "")
    add_worktree(repo, str(tmp_path / "tree"), "feature", "main")
    shown = {line.partition("=")[0] for line in (tmp_path / "shown").read_text().splitlines()}
    assert shown & set(SECRETS) == {"SSH_AUTH_SOCK"} and shown >= {"PATH", "HOME"} & os.environ.keys()
