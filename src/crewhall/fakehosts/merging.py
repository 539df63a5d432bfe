"""What git does to a fake repository: a push that its pulls follow, and whether a pull can be merged."""

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
