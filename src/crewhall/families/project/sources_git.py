"""
What git knows of a worktree: where it stands, what is uncommitted, what was done last, which files there are.

How git is run is in hostile_git.py. `git status` runs once in a call, and the sources that need it wait for it;
what has not changed comes from the cache.
"""

import os
from collections.abc import Hashable, Iterator

from crewhall.app import Call
from crewhall.cache import mark
from crewhall.errors import InvalidState, Unavailable
from crewhall.families.project.family import ANSWERS, project
from crewhall.families.project.git_layout import layout_of
from crewhall.families.project.hostile_git import GitSetup, WorktreeStatus, run_git, setup_at, status_of
from crewhall.families.project.rules_git import StatusEntry, changed_files_in, diff_lines, head_lines, tally
from crewhall.families.project.rules_tree import Tree, apply_changes, tree_lines, tree_of
from crewhall.outside.files import Top
from crewhall.tool import SourceLines

ENTRIES, COMMITS = 400, 20
LINES = 1_500  # of a tree
NAMED = 100  # changed files that git is asked about by name; for more it looks through all of them
MARKED = 2_000  # changed files that are looked at to see whether they changed again
WALKED = 20_000  # files that are counted where git can't tell them
NEVER_WALKED = ("node_modules", "__pycache__", "venv")
DIFF = ("-z", "--numstat", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=dirty")
LOG = (
    "log",
    "-z",
    f"-{COMMITS}",
    "--no-color",
    "--no-show-signature",
    "--no-notes",
    "--no-mailmap",
    "--encoding=UTF-8",
)


@project.source("git", priority=10, weight=10)
def git(call: Call, top: Top) -> SourceLines:
    """Branch, upstream, what is going on, and every path that is not as in the last commit."""
    worktree = status_of(call, top)
    lines = head_lines(worktree.status) + worktree.layout.operations() + worktree.notes()
    entries = [entry.line for entry in worktree.status.entries]
    return SourceLines([*lines, tally(worktree.status), *entries[:ENTRIES]], max(0, len(entries) - ENTRIES))


@project.source("changes", priority=40, weight=10)
def changes(call: Call, top: Top) -> SourceLines:
    """How many lines of which files are changed and not committed, staged ones and others."""
    worktree = status_of(call, top)
    entries = worktree.status.of("staged", "changed", "conflicted")
    if not entries:
        raise InvalidState("no file that git knows is changed", hint="The section git shows untracked files.")
    lines = call.state(ANSWERS).get_or_make(
        (top.root, "changes"), _mark(worktree, entries, top.proof), lambda: list(_diffs(call, worktree))
    )
    return SourceLines(lines[:ENTRIES], max(0, len(lines) - ENTRIES))


def _mark(worktree: WorktreeStatus, entries: list[StatusEntry], proof: Hashable) -> Hashable:
    """What the diffs depend on; None when that can't be told."""
    if len(entries) > MARKED:
        return None
    files = [worktree.layout.index, *worktree.setup.attribute_files(entries)]
    marks = mark([*files, *(worktree.layout.path(entry.path) for entry in entries)])
    return (
        None
        if marks is None
        else (worktree.status.head, worktree.setup.settings, tuple(entries), tuple(files), marks, proof)
    )


def _diffs(call: Call, worktree: WorktreeStatus) -> Iterator[str]:
    for title, kind, options in (("staged", "staged", ["--cached"]), ("not staged", "changed", [])):
        entries = worktree.status.of(kind)
        names = [name for entry in entries for name in (entry.path, entry.before) if name is not None]
        paths = [worktree.layout.prefix + name for name in names] if len(names) <= NAMED else worktree.layout.below
        if entries:
            out = run_git(call, worktree.setup, ["diff", *options, *DIFF, "--", *paths])
            yield from diff_lines(title, changed_files_in(out, worktree.layout.prefix))


@project.source("commits", priority=50, weight=8)
def commits(call: Call, top: Top) -> SourceLines:
    """The last commits: id, date, author, subject."""
    setup, name, cache = setup_at(call, top), (top.root, "commits"), call.state(ANSWERS)
    layout = setup.layout
    ends = mark([os.path.join(layout.common, "shallow")])
    if cache.has(name):  # without an older answer it is not worth to wait for the status, which tells HEAD
        lines = cache.get(name, (status_of(call, top).status.head, setup.settings, ends, top.proof))
        if lines is not None:
            return SourceLines(lines)
    out = run_git(call, setup, [*LOG, "--format=%H %h %cs %an: %s", "--", *layout.below])
    status_of(call, top)  # it refuses a branch that is another repository's
    records = [record.split(" ", 1) for record in os.fsdecode(out).split("\0") if record]
    if not records:
        raise InvalidState("no commit has touched this directory", hint="Its repository may have others.")
    lines = [line for _, line in records]
    # Of a part of the repository the first commit is not HEAD.
    cache.put(name, None if ends is None or layout.prefix else (records[0][0], setup.settings, ends, top.proof), lines)
    return SourceLines(lines)


@project.source("tree", priority=80, weight=15)
def tree(call: Call, top: Top) -> SourceLines:
    """Directories with how many files are in them, and names of files; without what git ignores."""
    try:
        layout = layout_of(top.root)
        index = mark([layout.index])
        depends = None if index is None else (index, top.proof)
        known = call.state(ANSWERS).get_or_make(
            (top.root, "tree"), depends, lambda: _tracked_tree(call, setup_at(call, top))
        )
        entries = status_of(call, top).status.entries
    except (InvalidState, Unavailable) as failure:
        return _walk(call, top, failure.message)
    gone = [entry.path for entry in entries if entry.code[1] == "D"]
    new = [entry.path for entry in entries if entry.code == "??"]
    now = apply_changes(known, gone, [path for path in new if not path.endswith("/")])
    return _tree_section(*tree_lines(now, [path for path in new if path.endswith("/")]))


def _tree_section(lines: list[str], unnamed: int, *rest: str) -> SourceLines:
    """The first lines of a tree, and what is left out."""
    names = f"the names of {unnamed} files" if unnamed else None
    omitted = "; ".join(one for one in (names, *rest) if one)
    return SourceLines(lines[:LINES], max(0, len(lines) - LINES), omitted or None)


def _tracked_tree(call: Call, setup: GitSetup) -> Tree:
    """The tree of the files that git tracks, without those that a sparse checkout skips."""
    out = run_git(call, setup, ["ls-files", "-z", "-t", "--deduplicate", "--", *setup.layout.below])
    start = len("H ") + len(setup.layout.prefix)
    paths = [record[start:] for record in os.fsdecode(out).split("\0") if record and record[0] != "S"]
    return tree_of(paths)


def _walk(call: Call, top: Top, why: str) -> SourceLines:
    """The tree as the disk has it, up to some size, without directories that hold much that nobody here wrote."""
    paths: list[str] = []
    with top.directory(".") as start:
        for directory, names, files, _ in os.fwalk(".", dir_fd=start.descriptor):
            call.stop.check()
            names[:] = sorted(name for name in names if name[0] != "." and name not in NEVER_WALKED)
            paths += (os.path.join(directory, name)[2:] for name in sorted(files))
            if len(paths) > WALKED:
                break
    lines, unnamed = tree_lines(tree_of(paths[:WALKED]))
    rest = [f"what comes after the first {WALKED} files"] if len(paths) > WALKED else []
    return _tree_section([f"by the disk, whatever is ignored: {why}", *lines], unnamed, *rest)
