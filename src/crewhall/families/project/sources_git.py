"""
What git knows of a worktree: where it stands, what is uncommitted, what was done last, which files there are.

How git is asked is in hostile_git.py. `git status` runs once in a call, and the sources that need it wait for it;
what is seen to be as before is not asked again.
"""

import os
from collections.abc import Hashable, Iterator

from crewhall.app import Call
from crewhall.cache import mark
from crewhall.errors import InvalidState, Unavailable
from crewhall.families.project.family import ANSWERS, project
from crewhall.families.project.hostile_git import Seen, Ways, asked, ground_of, seen, ways_at
from crewhall.families.project.rules_git import Entry, changed_in, diff_lines, standing, tally
from crewhall.families.project.rules_tree import Tree, changed, counted, tree_lines
from crewhall.outside.files import open_root
from crewhall.tool import SourceText

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
def git(call: Call, root: str) -> SourceText:
    """Branch, upstream, what is going on, and every path that is not as in the last commit."""
    look = seen(call, root)
    lines = standing(look.status) + look.ground.going_on() + look.notes()
    entries = [entry.line for entry in look.status.entries]
    return SourceText([*lines, tally(look.status), *entries[:ENTRIES]], max(0, len(entries) - ENTRIES))


@project.source("changes", priority=40, weight=10)
def changes(call: Call, root: str) -> SourceText:
    """How many lines of which files are changed and not committed, staged ones and others."""
    look = seen(call, root)
    entries = look.status.of("staged", "changed", "conflicted")
    if not entries:
        raise InvalidState("no file that git knows is changed", hint="The section git shows untracked files.")
    lines = call.state(ANSWERS).get_or_make((root, "changes"), _mark(look, entries), lambda: list(_diffs(call, look)))
    return SourceText(lines[:ENTRIES], max(0, len(lines) - ENTRIES))


def _mark(look: Seen, entries: list[Entry]) -> Hashable:
    """What the diffs depend on; None when that can't be told."""
    if len(entries) > MARKED:
        return None
    files = [look.ground.index, *look.ways.attribute_files(entries)]
    marks = mark([*files, *(look.ground.path(entry.path) for entry in entries)])
    return None if marks is None else (look.status.head, look.ways.settings, tuple(entries), tuple(files), marks)


def _diffs(call: Call, look: Seen) -> Iterator[str]:
    for title, kind, options in (("staged", "staged", ["--cached"]), ("not staged", "changed", [])):
        entries = look.status.of(kind)
        names = [name for entry in entries for name in (entry.path, entry.before) if name is not None]
        paths = [look.ground.prefix + name for name in names] if len(names) <= NAMED else look.ground.below
        if entries:
            out = asked(call, look.ways, ["diff", *options, *DIFF, "--", *paths])
            yield from diff_lines(title, changed_in(out, look.ground.prefix))


@project.source("commits", priority=50, weight=8)
def commits(call: Call, root: str) -> SourceText:
    """The last commits: id, date, author, subject."""
    ways, name, kept = ways_at(call, root), (root, "commits"), call.state(ANSWERS)
    ground = ways.ground
    ends = mark([os.path.join(ground.common, *names) for names in (["shallow"], ["info", "grafts"])])
    if kept.has(name):  # without an older answer it is not worth to wait for the status, which tells HEAD
        lines = kept.get(name, (seen(call, root).status.head, ways.settings, ends))
        if lines is not None:
            return SourceText(lines)
    out = asked(call, ways, [*LOG, "--format=%H %h %cs %an: %s", "--", *ground.below])
    seen(call, root)  # it refuses a branch that is another repository's
    records = [record.split(" ", 1) for record in os.fsdecode(out).split("\0") if record]
    if not records:
        raise InvalidState("no commit has touched this directory", hint="Its repository may have others.")
    lines = [line for _, line in records]
    # Of a part of the repository the first commit is not HEAD.
    kept.put(name, None if ends is None or ground.prefix else (records[0][0], ways.settings, ends), lines)
    return SourceText(lines)


@project.source("tree", priority=80, weight=15)
def tree(call: Call, root: str) -> SourceText:
    """Directories with how many files are in them, and names of files; without what git ignores."""
    try:
        ground = ground_of(root)
        known = call.state(ANSWERS).get_or_make(
            (root, "tree"), mark([ground.index]), lambda: _tracked(call, ways_at(call, root))
        )
        entries = seen(call, root).status.entries
    except (InvalidState, Unavailable) as failure:
        return _walked(call, root, failure.message)
    gone = [entry.path for entry in entries if entry.code[1] == "D"]
    new = [entry.path for entry in entries if entry.code == "??"]
    now = changed(known, gone, [path for path in new if not path.endswith("/")])
    return _told(*tree_lines(now, [path for path in new if path.endswith("/")]))


def _told(lines: list[str], unnamed: int, *rest: str) -> SourceText:
    names = f"the names of {unnamed} files" if unnamed else None
    told = "; ".join(one for one in (names, *rest) if one)
    return SourceText(lines[:LINES], max(0, len(lines) - LINES), told or None)


def _tracked(call: Call, ways: Ways) -> Tree:
    """The files that git knows and that are to be there."""
    out = asked(call, ways, ["ls-files", "-z", "-t", "--deduplicate", "--", *ways.ground.below])
    start = len("H ") + len(ways.ground.prefix)
    paths = [record[start:] for record in os.fsdecode(out).split("\0") if record and record[0] != "S"]
    return counted(paths)


def _walked(call: Call, root: str, why: str) -> SourceText:
    """The tree as the disk has it, up to some size, without directories that hold much that nobody here wrote."""
    paths: list[str] = []
    with open_root(root) as top, top.directory(".") as found:
        for directory, names, files, _ in os.fwalk(".", dir_fd=found.descriptor):
            call.stop.check()
            names[:] = sorted(name for name in names if name[0] != "." and name not in NEVER_WALKED)
            paths += (os.path.join(directory, name)[2:] for name in sorted(files))
            if len(paths) > WALKED:
                break
    lines, unnamed = tree_lines(counted(paths[:WALKED]))
    rest = [f"what comes after the first {WALKED} files"] if len(paths) > WALKED else []
    return _told([f"by the disk, whatever is ignored: {why}", *lines], unnamed, *rest)
