"""
A forecast: which pieces of unfinished work would conflict if they were merged now. Nothing is changed or left behind.

    forecast(repo, places: Sequence[MergeCandidate(name, path, branch)], pairs=None, base=None)
        -> MergeForecast(conflicts, against_base, unreadable, compared)       Pair(a, b, files, total, note)

Each place counts with its uncommitted work. All that git writes on the way goes to a temporary object directory. No
filter and no merge driver of the repository's own settings runs: see git_settings.py.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, islice

from crewhall.errors import Failure, NotFound
from crewhall.outside.disk import scratch
from crewhall.outside.git import GitRepository, refusal, refuse_old_git
from crewhall.outside.git_settings import without_own_programs
from crewhall.outside.root_path import real_path
from crewhall.outside.saving import git_dir_of, snapshot

SINCE_MERGE_TREE = (2, 39)  # from which on it reads many pairs
FILES = 20  # named for one pair
WORKERS = 2
UNRELATED = "the histories have no commit in common"
Commits = tuple[str, str]


@dataclass(frozen=True)
class MergeCandidate:
    """Unfinished work: a worktree, or only its branch when `path` is gone. With `path` None, also a tag or a commit."""

    name: str
    path: str | None
    branch: str


@dataclass(frozen=True)
class Pair:
    """Two places that would conflict: the first files (undecodable names with replacement characters), and how many."""

    a: str
    b: str
    files: tuple[str, ...]
    total: int
    note: str = ""


@dataclass(frozen=True)
class MergeForecast:
    """The conflicts between places and with the base; the places that could not be read, each with the reason."""

    conflicts: tuple[Pair, ...]
    against_base: tuple[Pair, ...]
    unreadable: tuple[tuple[str, str], ...]
    compared: int


@dataclass(frozen=True)
class _Outcome:
    """How the merge of two commits ends."""

    is_clean: bool
    files: tuple[bytes, ...] = ()
    note: str = ""


def forecast(
    repo: GitRepository,
    places: Sequence[MergeCandidate],
    pairs: Iterable[tuple[str, str]] | None = None,
    base: str | None = None,
) -> MergeForecast:
    """Merge places two by two, all of them or the named `pairs`, and each with `base` if given, and see what conflicts.

    Raises Unavailable when git is older than 2.39 or no temporary directory can be made, NotFound for an unknown base.
    """
    refuse_old_git(SINCE_MERGE_TREE, "a forecast")
    beside = repo.commit_of(base) if base is not None else None
    if base is not None and beside is None:
        raise NotFound(f"{base} is no commit of {repo.root}", hint="Give a branch, a tag or a commit that is there.")
    with scratch() as objects:
        env = _objects_in(repo, objects)
        states, unreadable = _states(repo, places, env)
        wanted = pairs if pairs is not None else combinations([place.name for place in places], 2)
        chosen = [(a, b) for a, b in wanted if a in states and b in states]
        commits = [(states[a], states[b]) for a, b in chosen]
        commits += [(state, beside) for state in states.values()] if beside else []
        outcomes = iter(_outcomes(repo, commits, env | without_own_programs(repo, repo.git_dir)))
    conflicts = [_pair(a, b, outcome) for (a, b), outcome in zip(chosen, islice(outcomes, len(chosen)), strict=True)]
    against = [_pair(name, base or "", outcome) for name, outcome in zip(states, outcomes, strict=False)]
    return MergeForecast(_only_conflicts(conflicts), _only_conflicts(against), tuple(unreadable), len(commits))


def _only_conflicts(pairs: Iterable[Pair | None]) -> tuple[Pair, ...]:
    return tuple(pair for pair in pairs if pair is not None)


def _pair(a: str, b: str, outcome: _Outcome) -> Pair | None:
    if outcome.is_clean:
        return None
    files = tuple(name.decode("utf-8", "replace") for name in outcome.files[:FILES])
    return Pair(a, b, files, len(outcome.files), outcome.note)


def _objects_in(repo: GitRepository, objects: str) -> dict[str, str]:
    """The variables that send new objects to a directory, and let git find the old ones."""
    old = os.path.join(repo.git_dir, "objects").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return {"GIT_OBJECT_DIRECTORY": objects, "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{old}"'}


def _states(
    repo: GitRepository, places: Sequence[MergeCandidate], env: Mapping[str, str]
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """A commit for each place that can be read, and why the others can't."""

    def state(place: MergeCandidate) -> str | Failure:
        try:
            return _state(repo, place, env)
        except Failure as failure:
            if repo.stop is not None:
                repo.stop.check()  # the whole call's end is no fault of the place
            return failure

    with ThreadPoolExecutor(WORKERS) as pool:
        found = dict(zip([place.name for place in places], pool.map(state, places), strict=True))
    states = {name: commit for name, commit in found.items() if isinstance(commit, str)}
    return states, [(name, why.message) for name, why in found.items() if isinstance(why, Failure)]


def _state(repo: GitRepository, place: MergeCandidate, env: Mapping[str, str]) -> str:
    commit = None
    if place.path is not None and os.path.isdir(place.path):
        path = real_path(place.path)
        own = without_own_programs(repo, git_dir_of(repo, path))
        commit = snapshot(repo, path, "A forecast", {**env, **own}).commit
    else:
        commit = repo.commit_of(f"refs/heads/{place.branch}")
    if commit is None and place.path is None:
        commit = repo.commit_of(place.branch)
    if commit is None:
        raise NotFound(f"{place.name} has no commit on {place.branch}", hint="Commit something there first.")
    return commit


def _outcomes(repo: GitRepository, pairs: Sequence[Commits], env: Mapping[str, str]) -> list[_Outcome]:
    """How each merge ends. Only when git finds two without a common history are all pairs asked for theirs."""
    unique = list(dict.fromkeys(pairs))
    found = _in_batches(repo, unique, env)
    if found is None:
        related = [pair for pair in unique if _have_common(repo, pair, env)]
        found = _in_batches(repo, related, env)
    if found is None:
        raise NotFound(f"git finds no common history in {repo.root}", hint="Give the places one by one.")
    return [found.get(pair, _Outcome(False, note=UNRELATED)) for pair in pairs]


def _have_common(repo: GitRepository, pair: Commits, env: Mapping[str, str]) -> bool:
    ended = repo.git("merge-base", *pair, env=env)
    if ended.code not in (0, 1):
        raise refusal(ended, "compare two histories")
    return ended.code == 0


def _in_batches(
    repo: GitRepository, pairs: Sequence[Commits], env: Mapping[str, str]
) -> dict[Commits, _Outcome] | None:
    """The merges, shared among a few processes; None when one has no common history."""
    size = max(1, -(-len(pairs) // WORKERS))
    batches = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    found: dict[Commits, _Outcome] = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        for outcomes in pool.map(lambda batch: _batch(repo, batch, env), batches):
            if outcomes is None:
                return None
            found |= outcomes
    return found


def _batch(repo: GitRepository, pairs: Sequence[Commits], env: Mapping[str, str]) -> dict[Commits, _Outcome] | None:
    lines = "".join(f"{a} {b}\n" for a, b in pairs)
    words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", "--stdin")
    ended = repo.git(*words, env=env, stdin=lines.encode())
    if ended.code != 0 and b"unrelated histories" in ended.err:
        return None
    outcomes = list(_parse_outcomes(ended.out))
    if ended.code != 0 or len(outcomes) != len(pairs):
        raise refusal(ended, "merge on trial")
    return dict(zip(pairs, outcomes, strict=True))


def _parse_outcomes(out: bytes) -> Iterator[_Outcome]:
    """Parse merge-tree: for each pair `1` (clean) or `0`, a tree, the conflicting files, an empty field."""
    fields = iter(out.split(b"\0"))
    for is_clean in fields:
        if not is_clean:
            return
        next(fields, b"")
        yield _Outcome(is_clean == b"1", tuple(iter(lambda: next(fields), b"")))
