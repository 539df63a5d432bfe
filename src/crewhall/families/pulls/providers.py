"""
Which host a call is about, and with which token.

    clone_url                                  the host that it names
    a remote of the client's directory         the host of the one with this owner and name
    neither                                    the only host that is set up; of two, GitHub

The hub's tokens go to the hosts that the hub is set up with and to no others: a client that names its own Gitea brings
its own token for it. No address in an argument is ever asked, only compared.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from crewhall.app import Call
from crewhall.config import Settings, variable_value
from crewhall.errors import Failure, InvalidInput, Unavailable
from crewhall.families.pulls.rules_remote import Remote, is_at, read_remote, web_address
from crewhall.outside.git import open_repository, refusal
from crewhall.outside.hosting import gitea, github
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.wire import Access, Patience
from crewhall.outside.repository_paths import place_of
from crewhall.stop import Stop

TITLES = {"github": "GitHub", "gitea": "Gitea"}
SET_UP = {
    "github": "Set GITHUB_TOKEN where the hub or the client's bridge starts, or pulls.github_token in config.toml.",
    "gitea": "Set GITEA_URL and GITEA_TOKEN where the hub or the client's bridge starts, or pulls.gitea_url and "
    "pulls.gitea_token in config.toml.",
}


def configured_hosts(settings: Settings, variables: Mapping[str, str]) -> dict[str, Access | InvalidInput | None]:
    """The access to each host, a client's own token first; what is wrong with its settings; None without any."""
    own = {name: value.strip() for name in variables if (value := variable_value(variables, name) or "").strip()}
    return {"github": _access_or_problem(_github, settings, own), "gitea": _access_or_problem(_gitea, settings, own)}


def accesses(settings: Settings, variables: Mapping[str, str]) -> dict[str, Access]:
    """The hosts that are set up well."""
    hosts = configured_hosts(settings, variables).items()
    return {kind: access for kind, access in hosts if isinstance(access, Access)}


def _access_or_problem(
    read: Callable[[Settings, Mapping[str, str]], Access | None], settings: Settings, own: Mapping[str, str]
) -> Access | InvalidInput | None:
    try:
        return read(settings, own)
    except InvalidInput as wrong:
        return wrong


def _github(settings: Settings, own: Mapping[str, str]) -> Access | None:
    token, source = own.get("GITHUB_TOKEN", ""), "the client's GITHUB_TOKEN"
    if not token:
        token, source = str(settings["pulls.github_token"]).strip(), "the hub's pulls.github_token (GITHUB_TOKEN)"
    if not token:
        return None
    web = web_address(str(settings["pulls.github_url"]).strip()).removesuffix("/api/v3")
    return Access("github", TITLES["github"], web, github.api_of(web), token, source)


def _gitea(settings: Settings, own: Mapping[str, str]) -> Access | None:
    hubs, theirs = str(settings["pulls.gitea_url"]).strip(), own.get("GITEA_URL", "")
    token, source = own.get("GITEA_TOKEN", ""), "the client's GITEA_TOKEN"
    if not token and (not theirs or (hubs and web_address(theirs) == web_address(hubs))):
        token, source = str(settings["pulls.gitea_token"]).strip(), "the hub's pulls.gitea_token (GITEA_TOKEN)"
    if not token and not theirs and not hubs:
        return None
    if not token:
        raise InvalidInput("a Gitea is named, and there is no token for it", hint=SET_UP["gitea"])
    if not (theirs or hubs):
        raise InvalidInput("there is a token for Gitea, and no address", hint=SET_UP["gitea"])
    web = web_address(theirs or hubs).removesuffix("/api/v1")
    return Access("gitea", TITLES["gitea"], web, gitea.api_of(web), token, source)


def access_for(call: Call, owner: str, name: str, clone_url: str | None) -> Access:
    """The host for this repository. Raises InvalidInput, or Unavailable when none is set up for it."""
    there = accesses(call.settings, call.origin.variables)
    if clone_url is not None:
        return _at(call, there, named_by(clone_url, owner, name), "as clone_url says")
    remotes = _remotes_if_read(call, owner, name, is_needed=len(there) > 1)
    if remotes:
        known = next((one for one in remotes if _at_any(there, one)), remotes[0])
        return _at(call, there, known, "as a remote here says")
    if not there:
        raise _none(call)
    if len(there) == 1:
        return next(iter(there.values()))
    return replace(
        there["github"], besides=f"{TITLES['gitea']} at {there['gitea'].web} is set up too: give clone_url. "
    )


def _none(call: Call) -> Failure:
    """Why there is no host: none was set up, or not well."""
    wrong = _wrong(call)
    return wrong[0] if wrong else Unavailable("no host for pulls is set up", hint=_how())


def _wrong(call: Call) -> list[InvalidInput]:
    hosts = configured_hosts(call.settings, call.origin.variables).values()
    return [one for one in hosts if isinstance(one, InvalidInput)]


def _how() -> str:
    return f"{SET_UP['github']} {SET_UP['gitea']}"


def named_by(clone_url: str, owner: str, name: str) -> Remote:
    """The remote that an argument names. Raises InvalidInput, also when it is another repository's."""
    remote = read_remote(clone_url)
    if (remote.owner.lower(), remote.name.lower()) != (owner.lower(), name.lower()):
        raise InvalidInput(
            f"clone_url is of {remote.owner}/{remote.name}, and repo_owner and repo_name are {owner}/{name}",
            hint="Name one repository.",
        )
    return remote


def _at(call: Call, there: Mapping[str, Access], remote: Remote, why: str) -> Access:
    access = _at_any(there, remote)
    if access is None:
        known = [f"{access.title} at {access.web}" for access in there.values()] + [one.message for one in _wrong(call)]
        raise Unavailable(
            f"the repository is at {remote.host}, {why}, and no host there is set up for pulls; set up: "
            f"{', '.join(known) or 'none'}",
            hint=_how(),
        )
    return access


def _at_any(there: Mapping[str, Access], remote: Remote) -> Access | None:
    return next((access for access in there.values() if is_at(remote, access.web)), None)


def _remotes_if_read(call: Call, owner: str, name: str, *, is_needed: bool) -> list[Remote]:
    """The same, or none when the repository can't be read, unless it has to tell which of two hosts is meant."""
    try:
        return _remotes(call, owner, name)
    except Failure as failure:
        call.stop.check()
        if not is_needed:
            return []
        raise InvalidInput(
            f"two hosts are set up, and the repository here does not tell which is meant: {failure.message}",
            hint="Give clone_url.",
        ) from None


def _remotes(call: Call, owner: str, name: str) -> list[Remote]:
    """The remotes of the repository that the client is in which have this owner and name."""
    directory = call.origin.directory
    is_proven = call.actor.kind == "operator" or call.origin.bridge is not None  # a header of an agent's is no proof
    if directory is None or not is_proven or place_of(directory) is None:
        return []
    arguments = ("config", "--get-regexp", r"^remote\..*\.url$")
    ended = open_repository(directory, call.stop, 10.0).git(*arguments)
    if ended.code > 1:  # 1 is git's word for none
        raise refusal(ended, arguments[0])
    urls = [line.partition(" ")[2].strip() for line in os.fsdecode(ended.out).splitlines()]
    remotes = []
    for url in urls:
        with suppress(InvalidInput):
            remotes.append(read_remote(url))
    return [one for one in remotes if (one.owner.lower(), one.name.lower()) == (owner.lower(), name.lower())]


def host(
    call: Call, access: Access, stop: Stop | None = None, beat: Callable[[float], None] = lambda seconds: None
) -> Host:
    """The host, for one call; that it has to wait is told to the client. `beat` is as Patience has it."""

    def tell(text: str) -> None:
        if call.report is not None:
            call.report(0, None, text)

    return host_at(access, Patience(stop or call.stop, call.settings["pulls.pause"], tell, beat))


def host_at(access: Access, patience: Patience) -> Host:
    return (github.GitHub if access.kind == "github" else gitea.Gitea)(access, patience)
