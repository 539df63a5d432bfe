"""
The files that a justfile is made of, all read through the sandbox before just sees any: what just says, and what a
recipe is called, repeats their words.

    justfiles(top, check) -> ["/shop/justfile", "/shop/tools.just", …]     the justfile, then what it leads to

    import 'a.just'     import? "a.just"    that file, seen from the one that says so
    mod a               mod? a              a.just, a/mod.just, a/justfile, a/.justfile, the last two in any case
    mod a 'b'           mod? a "b"          b, or the same in the directory b

Such a line has no blank before it, as just has it. A path that is more than a plain string is refused.
"""

import os
import re
from collections.abc import Callable, Iterator

from crewhall.errors import InvalidInput, InvalidState, LimitExceeded, NotFound, PathOutsideRoot
from crewhall.outside.files import Top

Check = Callable[[str, bytes], object]  # is told a path from the root and what is there; raises what forbids it
NAMES = ("justfile", ".justfile")  # in any case, as just has it
MOST_BYTES = 1_000_000  # of one of them
MOST_FILES = 500
BLANK = r"(?:[ \t]|\\\r?\n)*+"
NAME = r"[A-Za-z_][A-Za-z0-9_-]*+"
LEADS_ON = re.compile(
    rf"^(?:import\b|mod\b{BLANK}(?:\?{BLANK})?+(?P<name>{NAME})){BLANK}(?:\?{BLANK})?+"
    rf"(?:(?P<plain>'[^'\n]*'(?!')|\"[^\"\\\n]*\"(?!\"))|(?P<odd>(?:{NAME}{BLANK})?['\"]))?",
    re.MULTILINE,
)


def justfiles(top: Top, check: Check) -> list[str]:
    """The path of the root's own justfile, links resolved, then those of all that it leads to, there or not.

    Raises NotFound without a justfile, PathOutsideRoot when one of them lies elsewhere, InvalidState for a path that
    can't be told, LimitExceeded, what the sandbox says, and what `check` raises.
    """
    found: list[str] = []
    left = [_own(top)]
    while left:
        path = left.pop()
        if path in found:
            continue
        found.append(path)
        if len(found) > MOST_FILES:
            raise LimitExceeded(f"{found[0]} leads to over {MOST_FILES} files", hint="Import fewer.")
        left += _imports(top, path, _text(top, path, check))
    return found


def _own(top: Top) -> str:
    found = _justfiles_in(top, ".")
    if not found:
        raise NotFound(
            f"{top.root} has no justfile", hint="Write one at the top of the worktree; those above do not count."
        )
    if len(found) > 1:
        raise InvalidState(f"{top.root} has {' and '.join(found)}", hint="Keep one of them.")
    with top.file(found[0]) as file:
        return os.path.join(top.root, file.path)


def _justfiles_in(top: Top, directory: str) -> list[str]:
    with top.directory(directory) as found:
        return sorted(name for name in os.listdir(found.descriptor) if name.lower() in NAMES)


def _text(top: Top, path: str, check: Check) -> str:
    """What a justfile says; nothing when it is not there."""
    try:
        with top.file(path) as found:
            data = os.read(found.descriptor, MOST_BYTES + 1)
    except NotFound:
        return ""
    check(found.path, data)
    if len(data) > MOST_BYTES:
        raise LimitExceeded(f"{path} has over {MOST_BYTES} bytes", hint="That is too much for a justfile.")
    return data.decode("utf-8-sig", "replace")


def _imports(top: Top, path: str, text: str) -> Iterator[str]:
    """The absolute paths of the files and modules that a justfile imports."""
    for line in LEADS_ON.finditer(text):
        if line["odd"]:
            raise InvalidState(
                f"{path}:{text.count(chr(10), 0, line.start()) + 1} names a file by more than a plain string",
                hint="Write its path in one pair of quotes, without escapes.",
            )
        words = line["plain"][1:-1] if line["plain"] else ""
        if words.startswith("~/"):  # just takes it for somebody's home
            raise PathOutsideRoot(words)
        if words or line["name"]:
            yield from _candidates(top, os.path.join(os.path.dirname(path), words or line["name"]), line["name"], words)


def _is_directory(top: Top, path: str) -> bool:
    try:
        with top.directory(path):
            return True
    except (NotFound, InvalidInput):
        return False


def _candidates(top: Top, target: str, name: str | None, words: str) -> Iterator[str]:
    """Where just may look, be `..` the directory above by words or by links: both must be inside."""
    for path in dict.fromkeys((os.path.normpath(target), target)):
        is_directory = name is not None and _is_directory(top, path)
        if not words:
            yield f"{path}.just"
        elif not is_directory:
            yield path
        if is_directory:
            yield from (os.path.join(path, one) for one in ["mod.just", *_justfiles_in(top, path)])
