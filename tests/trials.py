"""
Trials of operations: for each kind that a family declares, how a test starts one, and what of it is there outside.

A kind without a trial fails tests/test_journal_walk.py. Add a class here, and a line to START and TRIALS.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from crewhall.app import Hub
from crewhall.fakehosts.github import FakeGitHub
from crewhall.identity import Actor

TOKEN = "ghp_Hubs0wnT0ken"
PERSON = Actor("operator", "operator", proof="token")


class Trial(ABC):
    """One operation outside. It has settings for the hubs that work on it, and words that another process can use."""

    settings: Mapping[str, Any]
    words: tuple[Any, ...]

    @abstractmethod
    def outside(self) -> str:
        """`all` or `nothing` of it is there; any other word says what is half there."""


class PullTrial(Trial):
    """A pull on a fake GitHub."""

    words = ()

    def __init__(self, host: FakeGitHub) -> None:
        self.repo = host.add_repository("octo", "ops", {"README.md": b"Hello\n"})
        self.settings = {"pulls__github_url": host.url, "pulls__github_token": TOKEN, "pulls__pause": "1ms"}

    def outside(self) -> str:
        branches = [name for name in self.repo.branches if name.startswith("claude-ops/")]
        pulls = [pull.head for pull in self.repo.pulls.values() if pull.state == "open"]
        if not branches and not pulls:
            return "nothing"
        labels = [sorted(pull.labels) for pull in self.repo.pulls.values()]
        is_whole = branches == pulls and labels == [["automated", "claude-ops"]]
        return "all" if is_whole else f"branches {branches}, pulls {pulls}, labels {labels}"


def start_pull(hub: Hub) -> None:
    change = {"title": "Add a check", "body": "It was missing.", "change_type": "check"}
    files = [{"path": "checks/new.md", "content": "# New\n"}]
    hub.call("create_pr", {"repo_owner": "octo", "repo_name": "ops", "files": files, **change}, PERSON)


@contextmanager
def pull_open() -> Iterator[Trial]:
    with FakeGitHub({TOKEN: "octocat"}) as host:
        yield PullTrial(host)


# How each kind is begun and carried out, in a process that is killed at some point of it.
START: dict[str, Callable[..., None]] = {"pull_open": start_pull}
TRIALS: dict[str, Callable[[], AbstractContextManager[Trial]]] = {"pull_open": pull_open}
