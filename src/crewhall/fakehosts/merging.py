"""What git does to a fake repository: a push that its pulls follow, and the merge of a pull."""

from crewhall.fakehosts.objects import Person
from crewhall.fakehosts.records import PullRecord
from crewhall.fakehosts.state import FakeRepository


def follow_push(repo: FakeRepository) -> None:
    """Give the repository the branches that its bare one has after a push."""
    found = repo.bare.read_branches()
    for name in repo.branches.keys() - found.keys():
        repo.drop_branch(name)
    for name, sha in found.items():
        if repo.branches.get(name) != sha:
            repo.set_branch(name, sha)


def is_mergeable(repo: FakeRepository, pull: PullRecord) -> bool | None:
    """Whether a pull is open and merges without a conflict; what a test has set to False or None stays."""
    return pull.mergeable and pull.state == "open" and _merged_tree(repo, pull) is not None


def _merged_tree(repo: FakeRepository, pull: PullRecord) -> str | None:
    base = repo.branches.get(pull.base)
    if base is None:
        return None
    has_all = base == pull.base_sha  # nothing is new on the base, and git need not be run
    return repo.commits[pull.head_sha].tree if has_all else repo.bare.merge_tree(base, pull.head_sha)


def merge(repo: FakeRepository, pull: PullRecord, message: str, login: str, *, squash: bool) -> str:
    """Merge a mergeable pull into its base, and close it; returns the new commit."""
    tree, base = _merged_tree(repo, pull), repo.branches[pull.base]
    assert tree is not None
    if tree not in repo.objects.trees:
        repo.bare.read_objects()
    who = Person(login, f"{login}@users.noreply.example.com", repo.now())
    sha = repo.put_commit(tree, (base,) if squash else (base, pull.head_sha), message, who)
    pull.merged, pull.merge_sha = True, sha
    repo.set_state(pull, "closed")
    repo.set_branch(pull.base, sha)
    return sha
