"""
The files of a worktree in short: directories with how many files are below them, and their names as far as they go.

    20011 files: 18400 .py, 1200 .md, 411 others
    ./ 20011 files
      Makefile, README.md, pyproject.toml …
    src/ 18000 files
    src/app/ 9000 files
      main.py
    == names, small directories first ==
    src/app/: __init__.py, main.py

A small tree is told with all its names in their places. Of a large one those that tell most are, and all others follow
behind, so that a budget that is too small for all cuts off the largest directories. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SMALL = 500  # files up to which every name is told
NAMES = 100  # of one directory
NAMES_CHARACTERS = 8_000  # of names behind the directories; counting their tokens takes time
WIDTH = 200
TYPES = 8
NOTABLE = frozenset(
    """
    readme readme.md readme.rst agents.md claude.md pyproject.toml setup.py package.json tsconfig.json cargo.toml
    go.mod pom.xml build.gradle build.gradle.kts gemfile composer.json mix.exs cmakelists.txt makefile justfile
    dockerfile compose.yaml compose.yml docker-compose.yaml docker-compose.yml __main__.py main.py app.py manage.py
    main.go main.rs lib.rs main.c main.cpp main.java main.ts main.js index.ts index.js index.html
    """.split()  # noqa: SIM905 - forty quoted words say no more
)


@dataclass(frozen=True)
class Tree:
    """Files counted: how many are in each directory itself, of each type; the names in each that tell most, and all."""

    files: Counter[str]
    types: Counter[str]
    notable: dict[str, list[str]]
    names: dict[str, list[str]]

    @property
    def total(self) -> int:
        return self.files.total()


def tree_of(paths: Sequence[str]) -> Tree:
    """The tree of these files."""
    parts = [path.rpartition("/") for path in paths]
    known = Counter(name for _, _, name in parts)  # many directories have files of the same name
    types: Counter[str] = Counter()
    for name, number in known.items():
        types[_type(name)] += number
    notable_names = {name for name in known if name.lower() in NOTABLE}
    names: defaultdict[str, list[str]] = defaultdict(list)
    notable: defaultdict[str, list[str]] = defaultdict(list)
    for directory, _, name in parts:
        names[directory].append(name)
        if name in notable_names:
            notable[directory].append(name)
    files = Counter({directory: len(inside) for directory, inside in names.items()})
    return Tree(files, types, dict(notable), dict(names))


def _type(name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    return f".{ending}" if dot and stem else "no ending"


def apply_changes(tree: Tree, gone: Sequence[str], new: Sequence[str]) -> Tree:
    """The tree after some files went and others came."""
    less, more = tree_of(gone), tree_of(new)
    notable, names = (
        _update_names(*(getattr(one, kind) for one in (tree, less, more))) for kind in ("notable", "names")
    )
    return Tree(tree.files - less.files + more.files, tree.types - less.types + more.types, notable, names)


Names = dict[str, list[str]]


def _update_names(names: Names, less: Names, more: Names) -> Names:
    names = dict(names)
    for directory in less.keys() | more.keys():
        dropped = set(less.get(directory, ()))
        remaining = [name for name in names.get(directory, ()) if name not in dropped]
        names[directory] = remaining + more.get(directory, [])
    return names


def tree_lines(tree: Tree, unseen: Iterable[str] = ()) -> tuple[list[str], int]:
    """The tree in lines, and of how many files no name is among them; `unseen` git has not looked into."""
    titles = {directory: f"{directory or '.'}/ {_files(number)}" for directory, number in _below(tree.files).items()}
    titles |= {path.rstrip("/"): f"{path} untracked" for path in unseen}
    is_small = tree.total <= SMALL
    lines = [_kinds(tree)]
    for directory in sorted(titles, key=lambda path: (path.count("/") + bool(path), path)):
        names = tree.names if is_small or not directory else tree.notable
        lines += [titles[directory], *_wrap(names.get(directory, []))]
    if is_small:
        return lines, _unnamed_count(tree.names)
    more, shown = _by_size(tree)
    return [*lines, *more], tree.total - shown - min(NAMES, len(tree.names.get("", ())))


def _unnamed_count(names: Names) -> int:
    return sum(max(0, len(inside) - NAMES) for inside in names.values())


def _by_size(tree: Tree) -> tuple[list[str], int]:
    """The names in each directory below the top, the smallest first, and how many names those are."""
    lines, characters, shown = ["== names, small directories first =="], 0, 0
    for directory in sorted(tree.names.keys() - {""}, key=lambda path: (len(tree.names[path]), path)):
        names = tree.names[directory]
        more = _wrap(names, f"{directory}/: ") if names else []
        characters += sum(map(len, more))
        if characters > NAMES_CHARACTERS:
            break
        lines += more
        shown += min(NAMES, len(names))
    return (lines, shown) if shown else ([], 0)


def _wrap(names: Sequence[str], title: str = "  ") -> list[str]:
    """Names in lines of some length, the first of which may have a title."""
    over = [f"and {len(names) - NAMES} more"] if len(names) > NAMES else []
    lines: list[str] = []
    for name in [*names[:NAMES], *over]:
        if lines and len(lines[-1]) + len(name) < WIDTH:
            lines[-1] += f", {name}"
        else:
            lines.append(f"  {name}" if lines else f"{title}{name}")
    return lines


def _below(files: Counter[str]) -> Counter[str]:
    """How many files are below each directory, at any depth."""
    below: Counter[str] = Counter({"": files.total()})
    for inmost, number in files.items():
        directory = inmost
        while directory:
            below[directory] += number
            directory = directory.rpartition("/")[0]
    return below


def _kinds(tree: Tree) -> str:
    kinds = [f"{number} {kind}" for kind, number in sorted(tree.types.items(), key=lambda item: (-item[1], item[0]))]
    others = tree.total - sum(int(one.split(" ")[0]) for one in kinds[:TYPES])
    more = [f"{others} others"] if others else []
    return f"{_files(tree.total)}: {', '.join(kinds[:TYPES] + more)}" if kinds else "no files"


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"
