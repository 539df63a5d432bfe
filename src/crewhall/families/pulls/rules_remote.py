"""
Where a repository lives, read from the URL of its remote.

    https://git.example:3000/gitea/o/r.git    ──▶  host git.example:3000, prefix /gitea, owner o, name r
    git@github.com:o/r  ssh://git@host:22/o/r ──▶  host without its port: web pages have another one

A user and a password in a URL are left out, and are in no message.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from crewhall.errors import InvalidInput
from crewhall.families.pulls.rules_scope import printable

URL_CHARACTERS = 2000  # of a URL
PORTS = {"https": 443, "http": 80}
SAME_HOST = {"www.github.com": "github.com", "ssh.github.com": "github.com"}
HOST = r"(?P<host>(?!-)[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])"
URL = re.compile(rf"(?P<scheme>https?|ssh|git)://(?:[^/?#@]*@)?{HOST}(?::(?P<port>[0-9]{{1,5}}))?(?P<path>/.*)?", re.I)
SCP = re.compile(rf"(?:[^/:@]+@)?(?![a-z]:){HOST}:(?P<path>.*)", re.I)  # one letter is a drive: C:/x
NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,100}")
SECRETS = re.compile(r"\A((?:https?|ssh|git)://)?.*(?:@|%40)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Remote:
    """A repository on a host. `host` has a port where it is a web address with an unusual one."""

    host: str
    owner: str
    name: str
    prefix: str = ""
    is_web: bool = True


class _Address(NamedTuple):
    scheme: str
    host: str
    port: int | None
    path: str


def read_remote(url: str) -> Remote:
    """The repository that a URL names. Raises InvalidInput unless it is on a host, with an owner and a name."""
    address = _address(url)
    names = address.path.removesuffix(".git").split("/")
    if address.scheme == "ssh" and len(names) > 2 and names[0].isdecimal() and "://" not in url:
        raise _refusal(url, "it has a port, and no scheme before its host")
    if len(names) < 2 or not all(NAME.fullmatch(one) for one in names) or names[-1].lower().endswith(".git"):
        raise _refusal(url, "it does not end in an owner and a name")
    *prefix, owner, name = names
    is_web = address.scheme in PORTS
    host = _with_port(address) if is_web else address.host
    return Remote(host, owner, name, "".join(f"/{one}" for one in prefix), is_web)


def web_address(url: str) -> str:
    """A host's address in a browser in its plain form, without a user or password. Raises InvalidInput for another."""
    address = _address(url)
    if address.scheme not in PORTS or re.search(r"[?#]", address.path):
        raise _refusal(url, "it is no web address")
    return f"{address.scheme}://{_with_port(address)}/{address.path}".rstrip("/")


def is_at(remote: Remote, web_url: str) -> bool:
    """Whether a remote is on the host with this web address: by name alone when it is not itself a web address.

    http and https are one where neither names a port. Raises InvalidInput when `web_url` is no web address.
    """
    web = _address(web_url)
    if web.scheme not in PORTS:
        raise _refusal(web_url, "it is no web address")
    host = _with_port(web) if remote.is_web else web.host
    is_there = SAME_HOST.get(remote.host, remote.host) == SAME_HOST.get(host, host)
    return is_there and (not remote.is_web or remote.prefix.strip("/") == web.path)


def refuse_names(owner: str, name: str) -> None:
    """Raise InvalidInput unless these can be an owner and a repository of theirs on a host."""
    for what, value in (("repo_owner", owner), ("repo_name", name)):
        if not NAME.fullmatch(value) or (what == "repo_name" and value.lower().endswith(".git")):
            raise InvalidInput(
                f"{what} '{printable(value)}' is no name on a host",
                hint="Give 1 to 100 of [A-Za-z0-9._-]; repo_name goes without '.git'.",
            )


def _address(url: str) -> _Address:
    """The parts of a URL; its path without a slash at the ends."""
    if len(url) > URL_CHARACTERS:
        raise _refusal(url, f"it has more than {URL_CHARACTERS} letters")
    if re.search(r"[^!-~]|\\", url):
        raise _refusal(url, "it has a space, a backslash, a control character or a letter that is not ASCII")
    match = URL.fullmatch(url) or SCP.fullmatch(url)
    if match is None:
        raise _refusal(url, "it is not one of https, http, ssh and git")
    parts = match.groupdict()
    port = None if parts.get("port") is None else int(parts["port"])
    if port is not None and not 0 < port < 65536:
        raise _refusal(url, "its port is not from 1 to 65535")
    path = (parts["path"] or "").removeprefix("/").removesuffix("/")
    return _Address((parts.get("scheme") or "ssh").lower(), parts["host"].lower(), port, path)


def _with_port(address: _Address) -> str:
    is_usual = address.port in (None, PORTS[address.scheme])
    return address.host if is_usual else f"{address.host}:{address.port}"


def _refusal(url: str, why: str) -> InvalidInput:
    """A refusal that shows nothing that could be a secret: neither what is before an @ nor a query."""
    shown = re.split(r"[?#]", SECRETS.sub(r"\1", url, count=1))[0]
    return InvalidInput(
        f"'{printable(shown)}' is no address of a host or of a repository there: {why}",
        hint="A host is given as https://HOST, a repository as https://HOST/OWNER/NAME or git@HOST:OWNER/NAME.",
    )
