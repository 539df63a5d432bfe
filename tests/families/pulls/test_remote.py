"""Remotes: what a URL names, which host it is on, and what is never said about it."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crewhall.errors import InvalidInput
from crewhall.families.pulls.rules_remote import Remote, is_at, read_remote, refuse_names, web_address
from tests.sizes import size


@pytest.mark.parametrize(
    ("url", "remote"),
    [
        ("https://github.com/o/r.git", Remote("github.com", "o", "r")),
        ("https://github.com/o/r", Remote("github.com", "o", "r")),
        ("HTTPS://GitHub.com:443/O/R.x/", Remote("github.com", "O", "R.x")),
        ("https://user:pass@github.com/o/r.git/", Remote("github.com", "o", "r")),
        ("https://github.com@evil.example/o/r", Remote("evil.example", "o", "r")),
        ("http://git.local:3000/o/r", Remote("git.local:3000", "o", "r")),
        ("http://git.local:443/o/r", Remote("git.local:443", "o", "r")),
        ("http://git_1:080/o/r", Remote("git_1", "o", "r")),
        ("http://[::1]:3000/o/r", Remote("[::1]:3000", "o", "r")),
        ("https://x.example/gitea/o/r", Remote("x.example", "o", "r", prefix="/gitea")),
        ("https://x.example/a/b/o/r.git", Remote("x.example", "o", "r", prefix="/a/b")),
        ("ssh://git@host:22/o/r.git", Remote("host", "o", "r", is_web=False)),
        ("ssh://git@ssh.github.com:443/o/r.git", Remote("ssh.github.com", "o", "r", is_web=False)),
        ("git@host:o/r.git", Remote("host", "o", "r", is_web=False)),
        ("Host.example:/o/r/", Remote("host.example", "o", "r", is_web=False)),
        ("git://host:9418/o/r", Remote("host", "o", "r", is_web=False)),
    ],
)
def test_a_url_names_a_repository_on_a_host(url: str, remote: Remote) -> None:
    assert read_remote(url) == remote


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("", ""),
        ("/srv/git/o/r.git", "/srv/git/o/r.git"),
        ("../o/r", "../o/r"),
        ("~/o/r", "~/o/r"),
        ("C:/o/r", "C:/o/r"),
        ("C:\\o\\r", "C:\\o\\r"),
        ("file:///srv/o/r", "file:///srv/o/r"),
        ("file://host/o/r", "file://host/o/r"),
        ("ext::sh -c touch% x", "ext::sh -c touch% x"),
        ("ext::x/o/r", "ext::x/o/r"),
        ("ftp://host/o/r", "ftp://host/o/r"),
        ("git+ssh://host/o/r", "git+ssh://host/o/r"),
        ("github.com/o/r", "github.com/o/r"),
        ("https://", "https://"),
        ("https:///o/r", "https:///o/r"),
        ("https://github.com", "https://github.com"),
        ("https://github.com/o", "https://github.com/o"),
        ("https://github.com/o/", "https://github.com/o/"),
        ("https://github.com/o//r", "https://github.com/o//r"),
        ("https://github.com/o/.git", "https://github.com/o/.git"),
        ("https://github.com/o/r.git.git", "https://github.com/o/r.git.git"),
        ("https://github.com/x/../o/r", "https://github.com/x/../o/r"),
        ("https://github.com/%2e%2e/o/r", "https://github.com/%2e%2e/o/r"),
        ("https://github.com/o/r?token=secret", "https://github.com/o/r"),
        ("https://github.com/o/r#secret", "https://github.com/o/r"),
        ("https://github.com/o/r\n", "https://github.com/o/r\\n"),
        ("https://git hub.com/o/r", "https://git hub.com/o/r"),
        ("https://g\u0456thub.com/o/r", "https://g\u0456thub.com/o/r"),  # a Cyrillic letter
        ("https://github.com\u3002evil.example/o/r", "https://github.com\u3002evil.example/o/r"),
        ("https://\u212aernel.org/o/r", "https://\u212aernel.org/o/r"),  # the sign of Kelvin
        ("https://github.com./o/r", "https://github.com./o/r"),
        ("https://-oProxy/o/r", "https://-oProxy/o/r"),
        ("ssh://-oProxyCommand=x/o/r", "ssh://-oProxyCommand=x/o/r"),
        ("https://github.com:0/o/r", "https://github.com:0/o/r"),
        ("https://github.com:65536/o/r", "https://github.com:65536/o/r"),
        ("https://github.com:\uff180/o/r", "https://github.com:\uff180/o/r"),
        ("https://evil.example\\@github.com/o/r", "https://github.com/o/r"),
        ("https://a:secret@b@github.com/o/r", "https://github.com/o/r"),
        ("https://a:sec/ret@github.com/o/r", "https://github.com/o/r"),
        ("https://a:sec?ret#@github.com/o", "https://github.com/o"),
        ("https://a:sec\nret@github.com/o/r", "https://github.com/o/r"),
        ("https://a:secret%40github.com/o/r", "https://github.com/o/r"),
        ("a:secret@host:o/r", "host:o/r"),
        ("https://h/" + "o" * 101 + "/r", "https://h/" + "o" * 101 + "/r"),
        ("https://h" + "/x" * 1000, "https://h" + "/x" * 95 + "…"),
    ],
)
def test_what_names_no_repository_on_a_host_is_refused_and_shown_without_secrets(url: str, shown: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_remote(url)
    assert refused.value.message.startswith(f"'{shown}' is no address of a host or of a repository there: ")


@pytest.mark.parametrize(
    ("url", "web", "expected"),
    [
        ("https://github.com/o/r", "https://github.com", True),
        ("https://u:p@GITHUB.com:443/o/r.git", "https://github.com/", True),
        ("http://github.com/o/r", "https://github.com", True),
        ("git@github.com:o/r", "https://github.com", True),
        ("ssh://git@ssh.github.com:443/o/r", "https://github.com", True),
        ("https://www.github.com/o/r", "https://github.com", True),
        ("https://github.com.evil.example/o/r", "https://github.com", False),
        ("https://evilgithub.com/o/r", "https://github.com", False),
        ("https://www.evil.example/o/r", "https://evil.example", False),
        ("https://github.com@evil.example/o/r", "https://github.com", False),
        ("git@github.com.evil.example:o/r", "https://github.com", False),
        ("https://github.com:8443/o/r", "https://github.com", False),
        ("https://www.github.com:8443/o/r", "https://github.com", False),
        ("https://github.com/x/o/r", "https://github.com", False),
        ("http://git.local:3000/gitea/o/r", "http://git.local:3000/gitea", True),
        ("http://git.local:3000/gitea/o/r", "http://git.local:3000/gitea/", True),
        ("http://git.local:3000/Gitea/o/r", "http://git.local:3000/gitea", False),
        ("http://git.local:3000/o/r", "http://git.local:3000/gitea", False),
        ("http://git.local:3000/gitea/o/r", "http://git.local:3000", False),
        ("http://git.local/gitea/o/r", "http://git.local:3000/gitea", False),
        ("http://git.local:3001/gitea/o/r", "http://git.local:3000/gitea", False),
        ("ssh://git@git.local:2222/o/r", "http://git.local:3000/gitea", True),
        ("git@git.local:o/r", "http://git.local:3000/gitea", True),
        ("git@local:o/r", "http://git.local:3000/gitea", False),
    ],
)
def test_a_remote_is_on_its_own_host_and_on_no_other(url: str, web: str, expected: bool) -> None:
    assert is_at(read_remote(url), web) is expected


@pytest.mark.parametrize("web", ["", "github.com", "git.local:3000", "ssh://github.com", "${GITEA_URL}"])
def test_a_host_that_has_no_web_address_is_told_so(web: str) -> None:
    with pytest.raises(InvalidInput, match="is no address of a host"):
        is_at(Remote("github.com", "o", "r"), web)


@pytest.mark.parametrize("name", ["o", "A-b_c.9", ".github", "a" * 100, "...", "x.git.x"])
def test_names_that_hosts_take_are_taken(name: str) -> None:
    refuse_names(name, name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\n", "é", "a" * 101, "a%2f", "o\0"])
def test_names_that_hosts_do_not_take_are_refused_by_field(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"^repo_owner '"):
        refuse_names(name, "r")
    with pytest.raises(InvalidInput, match=r"^repo_name '"):
        refuse_names("o", name)


@pytest.mark.parametrize("name", ["r.git", "r.GIT", ".git"])
def test_a_repository_is_named_without_its_ending(name: str) -> None:
    refuse_names(name, "r")
    with pytest.raises(InvalidInput, match=r"^repo_name '"):
        refuse_names("o", name)


# Properties

PIECES = ["https://", "ssh://", "file://", "git", "github.com", "@", ":", "/", "o/r", ".git", "..", "\\", "22", "?"]
pieces = st.lists(st.sampled_from([*PIECES, "#", "::", "%40", " ", "\0", "é", "[::1]"]), max_size=9).map("".join)


@settings(max_examples=size(100, 300), deadline=None)
@given(pieces | st.text(max_size=30))
def test_any_text_is_a_remote_of_plain_names_or_is_refused(url: str) -> None:
    try:
        remote = read_remote(url)
    except InvalidInput:
        return
    refuse_names(remote.owner, remote.name)
    again = f"https://{remote.host}{remote.prefix}/{remote.owner}/{remote.name}"
    assert read_remote(again) == Remote(remote.host, remote.owner, remote.name, remote.prefix)
    assert is_at(remote, f"http://{remote.host}{remote.prefix}") and not is_at(remote, f"http://x{remote.host}")


@settings(max_examples=size(100, 300), deadline=None)
@given(st.sampled_from(["https://", "HTTP://", "ssh://", "", "ftp://", "https:/"]), pieces, pieces, pieces)
@example("https://", "", "é", "github.com/o/r")
@example("", "", "https://", "")
@example("https://", ":99999/", "", "github.com/o/r")
def test_no_credential_is_in_a_message_or_in_what_is_read(scheme: str, before: str, after: str, rest: str) -> None:
    url = f"{scheme}user{before}SECRET{after}@{rest}"
    try:
        told = str(read_remote(url))
    except InvalidInput as refusal:
        told = str(refusal.body())
    assert "SECRET" not in told


# The address of a host itself


@pytest.mark.parametrize(
    ("given_url", "plain"),
    [
        ("https://github.com", "https://github.com"),
        ("https://GitHub.com/", "https://github.com"),
        ("https://github.com:443", "https://github.com"),
        ("http://git.local:3000/gitea/", "http://git.local:3000/gitea"),
        ("https://me:secret@git.local", "https://git.local"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_a_hosts_address_is_told_in_its_plain_form(given_url: str, plain: str) -> None:
    assert web_address(given_url) == plain


@pytest.mark.parametrize(
    "url",
    ["", "git.local:3000", "git.local", "ssh://git@git.local", "ftp://x", "https://", "https://x/?a=1", "https://x/#a"],
)
def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        web_address(url)
