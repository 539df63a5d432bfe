"""
What a git hosting service does for us, in the same words for each of them.

    repository ── branches ── open_pull ──▶ commit: a new branch with one commit of all files
                                              └─▶ create_pull ──▶ label           delete_branch undoes it
    pulls, pull: what there is               limits: how many requests are left
    create_issue ── find_issue: the same issue again, by a mark in its body

A branch comes into being together with its commit: no host is ever left with a branch that has none.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from crewhall.errors import Forbidden, InvalidInput, InvalidState, NotFound
from crewhall.outside.hosting.model import (
    BranchChange,
    BranchHead,
    Check,
    HostIssue,
    HostRepository,
    Limits,
    Pull,
    PullDetail,
    Tree,
    refuse_mismatch,
)
from crewhall.outside.hosting.shapes import (
    FileShape,
    IssueShape,
    PullShape,
    RepositoryShape,
    ReviewShape,
    StatusesShape,
)
from crewhall.outside.hosting.wire import Access, Patience, Session, Unsure

FEW = 3  # branches that are asked for one by one
ISSUES_SEARCHED = 1000  # of the newest; GitHub counts pulls among them
ThingT = TypeVar("ThingT")
ShapeT = TypeVar("ShapeT")


class Host(ABC):
    """One host for one call; a `with` block closes it. Every method raises Failure."""

    page: ClassVar[tuple[str, int]]  # the parameter that says how many a page has, and the most it takes
    headers: ClassVar[Mapping[str, str]] = {"Accept": "application/json"}

    def __init__(self, access: Access, patience: Patience) -> None:
        self.access = access
        self.session = Session(access, patience, self.headers)

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *error: object) -> None:
        self.session.close()

    def repository(self, owner: str, name: str) -> HostRepository:
        """The repository under its present name; a renamed one is found by its old name."""
        found = self.session.read(RepositoryShape, self.session.request("GET", f"/repos/{owner}/{name}").body)
        return HostRepository(found.owner.login, found.name, found.default_branch)

    @abstractmethod
    def branches(self, repo: HostRepository, prefix: str) -> list[str]:
        """The names of the branches that begin so."""

    def head(self, repo: HostRepository, branch: str) -> BranchHead | None:
        """A branch's newest commit; None when there is no such branch."""
        answer = self.session.request("GET", f"{repo.path}/branches/{quote(branch)}", expect=(404,))
        return None if answer.status == 404 else self.read_head(answer.body)

    @abstractmethod
    def read_head(self, body: Any) -> BranchHead:
        """The head in the host's answer about a branch."""

    def commit(self, repo: HostRepository, change: BranchChange) -> str:
        """Make the branch with its one commit, whose id comes back.

        Raises Conflict when the branch is there already or a file is not as the change says, NotFound for the base.
        """
        base = self.head(repo, change.base)
        if base is None:
            raise NotFound(
                f"{repo.full_name} has no branch '{change.base}'",
                hint="Give base_branch; a repository without any commit needs a first one.",
            )
        tree = self.tree(repo, base, change)
        refuse_mismatch(change.files, tree, change.base)
        return self.make_branch(repo, change, base, tree)

    @abstractmethod
    def tree(self, repo: HostRepository, base: BranchHead, change: BranchChange) -> Tree:
        """What the base holds, at least where the change touches it."""

    @abstractmethod
    def make_branch(self, repo: HostRepository, change: BranchChange, base: BranchHead, tree: Tree) -> str:
        """The id of the commit, which the new branch has. Raises Conflict when the branch is there already."""

    @abstractmethod
    def delete_branch(self, repo: HostRepository, branch: str) -> None:
        """Remove a branch; one that is gone already is fine."""

    def open_pull(self, repo: HostRepository, branch: str, base: str) -> Pull | None:
        """The open pull from this branch of the repository into the base."""
        query = {"state": "open", **self.narrowing(repo, branch, base)}
        listed = self.list_items(PullShape, f"{repo.path}/pulls", query)
        return next((one.to_model() for one in listed if one.is_from(repo.full_name, branch, base)), None)

    def open_pulls(self, repo: HostRepository, branches: Sequence[str], base: str) -> list[Pull]:
        """The open pulls from these branches into the base; of many, all open pulls are read once."""
        if len(branches) <= FEW:
            return [pull for branch in branches if (pull := self.open_pull(repo, branch, base)) is not None]
        listed = self.list_items(PullShape, f"{repo.path}/pulls", {"state": "open"})
        return [one.to_model() for one in listed if any(one.is_from(repo.full_name, name, base) for name in branches)]

    def newest_pull(self, repo: HostRepository, branch: str) -> Pull | None:
        """The newest pull from this branch of the repository, in any state and into any base."""
        query = {"state": "all", **self.newest_first, **self.narrowing(repo, branch)}
        listed = self.list_items(PullShape, f"{repo.path}/pulls", query)
        return next((one.to_model() for one in listed if one.is_from(repo.full_name, branch)), None)

    @abstractmethod
    def narrowing(self, repo: HostRepository, branch: str, base: str | None = None) -> dict[str, str]:
        """What of this the host can filter a list of pulls by; without a base, pulls into any."""

    def create_pull(self, repo: HostRepository, branch: str, base: str, title: str, body: str) -> Pull:
        """Open a pull from a branch that nobody else uses; when the host fails to answer, the one that it made."""
        fields = {"title": title, "body": body, "head": branch, "base": base}

        def send() -> Pull:
            answer = self.session.request("POST", f"{repo.path}/pulls", body=fields, expect=(409, 422))
            if answer.status < 300:
                return self.session.read(PullShape, answer.body).to_model()
            found = self.open_pull(repo, branch, base)  # there may be one already: ours, of the attempt before
            if found is None:
                title = self.access.title
                raise InvalidInput(
                    f"{title} does not accept the pull: {answer.error_text}", hint="Correct what it names."
                )
            return found

        return once(send, lambda: self.open_pull(repo, branch, base))

    def label(self, repo: HostRepository, number: int, labels: Sequence[str]) -> None:
        """Put labels on a pull; those that the repository lacks are made."""
        body = {"labels": self.label_values(repo, labels)}
        self.session.request("POST", f"{repo.path}/issues/{number}/labels", body=body, again=True)

    @abstractmethod
    def label_values(self, repo: HostRepository, labels: Sequence[str]) -> Sequence[str | int]:
        """The labels as the host takes them: their names, or the ids of labels that exist now."""

    def create_issue(self, repo: HostRepository, title: str, body: str, labels: Sequence[str]) -> HostIssue:
        """Open an issue; when the host fails to answer, the one that it made, known by the same title and body.

        Raises InvalidState when the repository has issues turned off. A body with a mark of its own (`find_issue`)
        is never taken for another's.
        """
        with self._issues_needed(repo):
            fields = {"title": title, "body": body, "labels": self.label_values(repo, labels)}

            def send() -> HostIssue:
                answer = self.session.request("POST", f"{repo.path}/issues", body=fields)
                return self.session.read(IssueShape, answer.body).to_model()

            return once(send, lambda: self._newest_issue(repo, lambda one: one.is_same(title, body)))

    def find_issue(self, repo: HostRepository, mark: str) -> HostIssue | None:
        """The newest issue, open or closed, with this text in its body; only the newest entries are searched."""
        with self._issues_needed(repo):
            return self._newest_issue(repo, lambda one: mark in (one.body or ""))

    def _newest_issue(self, repo: HostRepository, fits: Callable[[IssueShape], bool]) -> HostIssue | None:
        listed = self.list_items(IssueShape, f"{repo.path}/issues", {"state": "all", **self.only_issues})
        found = (one for one in islice(listed, ISSUES_SEARCHED) if one.pull_request is None and fits(one))
        return next((one.to_model() for one in found), None)

    only_issues: ClassVar[Mapping[str, str]] = {}

    @contextmanager
    def _issues_needed(self, repo: HostRepository) -> Iterator[None]:
        """Say so when a refusal means that the repository has issues turned off: each host has its own status."""
        try:
            yield
        except (Forbidden, InvalidInput, NotFound):
            found = self.session.read(RepositoryShape, self.session.request("GET", repo.path).body)
            if found.has_issues:
                raise
            raise InvalidState(
                f"{repo.full_name} on {self.access.title} has issues turned off",
                hint="Turn them on in the repository's settings, then try again.",
            ) from None

    def pulls(self, repo: HostRepository, state: str) -> Iterator[Pull]:
        """The pulls of a state (open, closed, all), the newest first; closed has the merged ones in it."""
        seen: set[int] = set()
        for one in self.list_items(PullShape, f"{repo.path}/pulls", {"state": state, **self.newest_first}):
            if one.number not in seen:  # one that is opened meanwhile moves others to the next page
                seen.add(one.number)
                yield one.to_model()

    newest_first: ClassVar[Mapping[str, str]] = {}

    def brief(self, repo: HostRepository, number: int) -> Pull | None:
        """One pull as a list shows it, or None when there is none of that number."""
        answer = self.session.request("GET", f"{repo.path}/pulls/{number}", expect=(404,))
        return None if answer.status == 404 else self.session.read(PullShape, answer.body).to_model()

    def pull(self, repo: HostRepository, number: int) -> PullDetail:
        """One pull with its reviews, checks and files."""
        path = f"{repo.path}/pulls/{number}"
        found = self.session.read(PullShape, self.session.request("GET", path).body).to_model()
        checks = self._visible_checks(repo, found.sha)
        return PullDetail(
            found,
            reviews=[one.to_model() for one in self.list_items(ReviewShape, f"{path}/reviews")],
            checks=checks or [],
            files=[one.to_model() for one in self.list_items(FileShape, f"{path}/files")],
            checks_hidden=checks is None,
        )

    def _visible_checks(self, repo: HostRepository, sha: str) -> list[Check] | None:
        """The checks of a commit; None when the token lacks the permission to read them."""
        try:
            return list(self.checks(repo, sha))
        except Forbidden:
            return None

    def checks(self, repo: HostRepository, sha: str) -> Iterator[Check]:
        """What automatic checks say of a commit."""
        for page in self.session.pages(f"{repo.path}/commits/{sha}/status", {}, *self.page):
            # Of a commit without any, Forgejo and an older Gitea have nothing to say, not even in JSON.
            yield from (one.to_model() for one in self.session.read(StatusesShape, page or {}).statuses or [])

    @abstractmethod
    def limits(self) -> Limits | None:
        """What is left of the host's rate limit; None when it has none. Raises Forbidden for a bad token."""

    def list_items(self, shape: type[ShapeT], path: str, query: Mapping[str, Any] | None = None) -> Iterator[ShapeT]:
        """Read a list page by page and yield its items."""
        for page in self.session.pages(path, query or {}, *self.page):
            yield from self.session.read(list[shape], page)  # type: ignore[valid-type]


def once(send: Callable[[], ThingT], look: Callable[[], ThingT | None]) -> ThingT:
    """What `send` made, though it must not be made twice: when the host did not answer, look, and only then repeat."""
    try:
        return send()
    except Unsure:
        found = look()
        if found is not None:
            return found
    try:
        return send()
    except Unsure:
        found = look()
        if found is None:
            raise
        return found
