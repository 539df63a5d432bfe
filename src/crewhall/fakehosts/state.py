"""
A repository on a pretended host: its branches in real git, issues and pulls with one numbering, labels, checks.

    state of a pull   open ── merged ──▶ closed, merged
                       └─ closed, or its head branch deleted ──▶ closed
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from crewhall.fakehosts.bare import BareRepository
from crewhall.fakehosts.objects import FILE, Commit, FakeTreeEntry, Objects, Person
from crewhall.fakehosts.records import CheckRecord, Issue, Label, PullRecord, Refusal, ReviewRecord

T = TypeVar("T")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class FakeRepository:
    """A repository and all that is asked about it. Its lock is the host's.

    A push to a protected branch is refused; `hook` is the text of a shell script that the host runs before any push.
    """

    def __init__(
        self,
        number: int,
        owner: str,
        name: str,
        default: str,
        lock: AbstractContextManager[Any],
        place: Callable[[], Path],
    ) -> None:
        self.id, self.owner, self.name, self.default_branch = number, owner, name, default
        self.lock, self.may_push, self.has_issues = lock, True, True
        self.objects = Objects()
        self.bare = BareRepository(place, self.objects, default)
        self.branches: dict[str, str] = {}
        self.protected: set[str] = set()
        self.hook = ""
        self.issues: dict[int, Issue] = {}
        self.pulls: dict[int, PullRecord] = {}
        self.label_list: list[Label] = []
        self.statuses: dict[str, list[CheckRecord]] = {}
        self.checks: dict[str, list[CheckRecord]] = {}
        self._ids, self._numbers, self._seconds = itertools.count(1), itertools.count(1), itertools.count()

    # What tests read and fill in

    @property
    def commits(self) -> dict[str, Commit]:
        return self.objects.commits

    @property
    def labels(self) -> dict[str, Label]:
        """By name; of two with one name (Gitea) the first."""
        return {label.name: label for label in reversed(self.label_list)}

    def files(self, branch: str) -> dict[str, bytes]:
        return {path: self.objects.blobs[entry.sha] for path, entry in self.entries(branch).items()}

    def mode(self, branch: str, path: str) -> str:
        return self.entries(branch)[path].mode

    def entries(self, branch: str) -> dict[str, FakeTreeEntry]:
        return self.objects.flat(self.commits[self.branches[branch]].tree)

    def log(self, branch: str) -> list[Commit]:
        """The commits from the branch's head back."""
        return self.objects.history(self.branches[branch])

    def add_commit(
        self, branch: str, files: Mapping[str, bytes | None], message: str = "Change", *, base: str | None = None
    ) -> str:
        """Commit on a branch, which is made from `base` (else the default) when it is new; None deletes a file."""
        with self.lock:
            above = self.branches.get(branch) or self.branches.get(base or self.default_branch)
            flat = self.objects.flat(self.commits[above].tree) if above else {}
            for path, content in files.items():
                if content is None:
                    del flat[path]
                else:
                    flat[path] = FakeTreeEntry(
                        flat[path].mode if path in flat else FILE, self.objects.put_blob(content)
                    )
            sha = self.put_commit(flat, (above,) if above else (), message)
            self.set_branch(branch, sha)
            return sha

    def add_pull(
        self,
        *,
        title: str,
        head: str,
        base: str = "main",
        body: str = "",
        state: str = "open",
        merged: bool = False,
        labels: Collection[str] = (),
        author: str = "octocat",
        draft: bool = False,
        mergeable: bool | None = True,
        files: Mapping[str, bytes | None] | None = None,
    ) -> PullRecord:
        """A pull; `files` are first committed to its head. An open one's head branch is made when it is not there."""
        with self.lock:
            if files is not None:
                self.add_commit(head, files, title, base=base)
            base_sha, now = self.branches[base], self.now()
            head_sha = self.branches.get(head, base_sha)
            if state == "open":
                self.branches.setdefault(head, head_sha)
            pull = PullRecord(
                *(next(self._numbers), title, body, author, state, now, now, None if state == "open" else now),
                labelled=[self.label(name) for name in labels],
                differs=self.bare.differences,
                head=head,
                base=base,
                head_sha=head_sha,
                base_sha=self.merge_base(base_sha, head_sha),
                merged=merged,
                draft=draft,
                mergeable=mergeable,
            )
            self.pulls[pull.number] = pull
            return pull

    def add_issue(self, *, title: str, body: str = "", author: str = "octocat", labels: Collection[str] = ()) -> Issue:
        with self.lock:
            now = self.now()
            labelled = [self.label(name) for name in labels]
            issue = Issue(next(self._numbers), title, body, author, "open", now, now, None, labelled)
            self.issues[issue.number] = issue
            return issue

    def add_review(self, number: int, *, user: str, state: str, body: str = "", **more: bool) -> ReviewRecord:
        """A review in the words of the host: APPROVED, and CHANGES_REQUESTED at GitHub, REQUEST_CHANGES at Gitea."""
        with self.lock:
            pull = self.pulls[number]
            review = ReviewRecord(next(self._ids), user, state, body, pull.head_sha, self.now(), **more)
            pull.reviews.append(review)
            return review

    def add_status(self, sha: str, *, context: str, state: str, description: str = "", url: str = "") -> CheckRecord:
        with self.lock:
            status = CheckRecord(next(self._ids), context, state, None, description, url, self.now())
            self.statuses.setdefault(sha, []).append(status)
            return status

    def add_check(
        self, sha: str, *, name: str, status: str, conclusion: str | None = None, url: str = ""
    ) -> CheckRecord:
        """A check run (GitHub alone has them)."""
        with self.lock:
            check = CheckRecord(next(self._ids), name, status, conclusion, "", url, self.now())
            self.checks.setdefault(sha, []).append(check)
            return check

    def add_label(self, name: str, color: str = "ededed", description: str = "") -> Label:
        """A new label, even when one has that name already."""
        with self.lock:
            label = Label(next(self._ids), name, color, description)
            self.label_list.append(label)
            return label

    # What the hosts do with it

    def now(self) -> str:
        """A later second at every call, so that nothing here depends on the clock."""
        return (BEGAN + timedelta(seconds=next(self._seconds))).strftime("%Y-%m-%dT%H:%M:%SZ")

    def label(self, name: str) -> Label:
        """The label of that name, in any case of letters; made when there is none."""
        return self.find_label(name) or self.add_label(name)

    def find_label(self, name: str) -> Label | None:
        return next((one for one in self.label_list if one.name.lower() == name.lower()), None)

    def issue(self, number: str) -> Issue:
        """The issue or pull of that number."""
        found = {**self.issues, **self.pulls}.get(int(number)) if number.isdecimal() else None
        return _there(found)

    def pull(self, number: str) -> PullRecord:
        return _there(self.pulls.get(int(number)) if number.isdecimal() else None)

    def put_commit(
        self, flat: Mapping[str, FakeTreeEntry] | str, parents: tuple[str, ...], message: str, by: Person | None = None
    ) -> str:
        """A commit of these files, or of a tree; by the host itself when nobody is named."""
        tree = flat if isinstance(flat, str) else self.objects.put_tree(flat)
        person = by or Person("Host", "host@example.com", self.now())
        return self.objects.put_commit(tree, parents, message, person, person)

    def commit(self, ref: str) -> Commit | None:
        """The commit that a SHA or a branch means, with refs/heads/ before it or without."""
        name = ref.removeprefix("refs/").removeprefix("heads/")
        return self.commits.get(self.branches.get(name, ref))

    def tree(self, ref: str) -> str | None:
        """The tree that a SHA (a tree's or a commit's) or a branch means."""
        commit = self.commit(ref)
        return commit.tree if commit else ref if ref in self.objects.trees else None

    def clashes(self, name: str) -> bool:
        """Whether git can't have the branch beside others: `a` and `a/b` are a file and a folder of one name."""
        return any(one.startswith(f"{name}/") or name.startswith(f"{one}/") for one in self.branches)

    def set_branch(self, name: str, sha: str) -> None:
        """Move a branch, or make it; open pulls from it and into it follow."""
        self.branches[name] = sha
        for pull in self.pulls.values():
            if pull.state == "open" and name in (pull.head, pull.base):
                pull.head_sha = self.branches.get(pull.head, pull.head_sha)
                pull.base_sha = self.merge_base(self.branches.get(pull.base, pull.base_sha), pull.head_sha)

    def drop_branch(self, name: str) -> None:
        """Delete a branch, which closes the open pulls from it."""
        del self.branches[name]
        for pull in self.open_pulls(name):
            self.set_state(pull, "closed")

    def open_pulls(self, head: str, base: str | None = None) -> Iterator[PullRecord]:
        open_ones = (one for one in self.pulls.values() if one.state == "open" and one.head == head)
        return (one for one in open_ones if base in (None, one.base))

    def set_state(self, issue: Issue, state: str) -> None:
        issue.state, issue.updated = state, self.now()
        issue.closed = issue.updated if state == "closed" else None

    def ahead(self, base: str, head: str) -> list[Commit]:
        """The commits of one that the other has not, newest first."""
        known = {one.sha for one in self.objects.history(base)}
        return [one for one in self.objects.history(head) if one.sha not in known]

    def merge_base(self, base: str, head: str) -> str:
        """The newest commit that both have; the base when they have none in common."""
        known = {one.sha for one in self.objects.history(base)}
        common = [one for one in self.objects.history(head) if one.sha in known]
        older = {sha for one in common for sha in one.parents}
        return next((one.sha for one in common if one.sha not in older), base)


def _there(found: T | None) -> T:
    if found is None:
        raise Refusal(404, "Not Found")
    return found
