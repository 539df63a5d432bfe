"""Where a branch's pull request goes: the host that the repository's remote names, and the base on it."""

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase

from crewhall.config import Settings
from crewhall.errors import Forbidden, InvalidInput, InvalidState, Unavailable
from crewhall.families.crew.model import InstanceRow
from crewhall.families.pulls.providers import accesses
from crewhall.families.pulls.rules_remote import Remote, is_at, read_remote
from crewhall.families.review.feedback_file import NAME
from crewhall.outside.git import CHANGED_NAMES, GitRepository
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import HostRepository
from crewhall.outside.hosting.wire import Access
from crewhall.outside.pushing import fetch_branch


@dataclass(frozen=True)
class PullTarget:
    """A repository on a host, and the address that its branches are pushed to."""

    access: Access
    remote: Remote
    url: str


def pull_target(repo: GitRepository, settings: Settings) -> PullTarget:
    """The host of the repository's remote, `origin` first.

    Raises Unavailable, naming the remote, when none is set up, and Forbidden for one that the settings leave out.
    The address comes from the settings, and not from the repository's own configuration, which an agent can write.
    """
    remotes = _remotes(repo)
    for url in remotes:
        if (target := target_at(url, settings)) is not None:
            refuse_repository(settings, target.remote.owner, target.remote.name)
            return target
    seen = _plain(remotes[0]) if remotes else "none"
    raise Unavailable(
        f"no host is set up for the remote of {repo.root}: {seen}",
        hint="Set GITHUB_TOKEN, or GITEA_URL and GITEA_TOKEN, where the hub starts; `git remote -v` shows the remotes.",
    )


def target_at(url: str, settings: Settings) -> PullTarget | None:
    """What an address leads to; None when no host is set up for it."""
    try:
        remote = read_remote(url)
    except InvalidInput:
        return None
    access = next((one for one in accesses(settings, {}).values() if is_at(remote, one.web)), None)
    if access is None:
        return None
    return PullTarget(access, remote, f"{access.web}/{remote.owner}/{remote.name}.git" if remote.is_web else url)


def refuse_repository(settings: Settings, owner: str, name: str) -> None:
    """Raise Forbidden for a host's repository that instances may not write to; case does not count there."""
    allowed, wanted = settings["pulls.repositories"], f"{owner}/{name}"
    if allowed and not any(fnmatchcase(wanted.lower(), pattern.lower()) for pattern in allowed):
        raise Forbidden(
            f"instances may not open pull requests or issues in {wanted[:200]}",
            hint=f"pulls.repositories has {', '.join(allowed)[:500]}; the operator can add it in config.toml.",
        )


def _plain(url: str) -> str:
    """An address without what may be a secret."""
    return url.rpartition("@")[2][:200]


def _remotes(repo: GitRepository) -> list[str]:
    ended = repo.git("config", "--get-regexp", r"^remote\..*\.url$")
    pairs = [line.partition(" ")[::2] for line in os.fsdecode(ended.out).splitlines()]
    return [url.strip() for _, url in sorted(pairs, key=lambda pair: pair[0] != "remote.origin.url")]


def find_base(host: Host, there: HostRepository, coder: InstanceRow, given: str | None) -> tuple[str, str]:
    """The base branch on the host and its commit there. Raises InvalidInput for one that the host does not have."""
    for name in (given, coder["base_branch"], there.default_branch, "main"):
        head = host.head(there, name) if name else None
        if head is not None and name:
            return name, head.sha
        if given is not None:
            break
    raise InvalidInput(
        f"{there.full_name} has no branch '{given or coder['base_branch']}'",
        hint="Give base_branch: a branch that the host has.",
        instance_id=coder["id"],
    )


def refuse_unseen(repo: GitRepository, coder: InstanceRow, reviewed: str | None, tip: str | None = None) -> None:
    """Raise InvalidState when the branch has other files than the commit that is approved; the feedback's don't count.

    `tip` is a commit of the branch; without it, the branch as it is now counts.
    """
    if reviewed is None:
        return
    words = (*CHANGED_NAMES, "--end-of-options", reviewed, tip or f"refs/heads/{coder['branch']}", "--")
    unseen = [path for path in repo.text("diff", *words).split("\0") if path and path != NAME]
    if unseen:
        raise InvalidState(
            f"{coder['branch']} has changed since the commit that was reviewed: {', '.join(unseen)[:300]}",
            hint="Only what was reviewed can be approved. Call send_feedback; its coder asks for another review.",
            instance_id=coder["id"],
        )


def changed_paths(
    repo: GitRepository, target: PullTarget, coder: InstanceRow, base: str, base_commit: str, tip: str | None = None
) -> list[str]:
    """The files that the branch changes, without the feedback's. Raises InvalidState when there are none.

    The base counts as the host has it, and is fetched if need be: refs of the repository are an agent's to move.
    """
    if repo.commit_of(base_commit) is None:
        have = repo.commit_of(f"refs/heads/{coder['branch']}")
        fetch_branch(repo, target.url, base, token=target.access.token, have=have)
    if repo.commit_of(base_commit) is None:
        raise InvalidInput(
            f"{repo.root} does not have {base} as the host has it",
            hint="It has moved on just now, or the repository is shallow: try again, or run `git fetch --unshallow`.",
            instance_id=coder["id"],
        )
    return paths_since(repo, coder, base_commit, base, tip)


def paths_since(repo: GitRepository, coder: InstanceRow, commit: str, base: str, tip: str | None = None) -> list[str]:
    """The files that the branch changes since it left a commit, which is the base's. Raises InvalidState for none.

    `tip` is a commit that the branch has or had; without it, the branch as it is now counts.
    """
    spread = f"{commit}...{tip or 'refs/heads/' + coder['branch']}"
    listed = repo.text("diff", *CHANGED_NAMES, "--end-of-options", spread, "--")
    paths = [path for path in listed.split("\0") if path and path != NAME]
    if not paths:
        raise InvalidState(
            f"{coder['branch']} changes nothing against {base}",
            hint="Commit your work on your branch first.",
            instance_id=coder["id"],
        )
    return paths
