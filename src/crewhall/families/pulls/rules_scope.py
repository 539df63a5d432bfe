r"""
Which files a pull may change: plain relative paths, outside the denied places, inside the allowed ones.

    checks/../x.md   checks//x.md   /x   C:\x     not plain: InvalidInput
    claude.md   checks/x.env.md                   denied, whatever the case, by the path or by its last name: Forbidden
    notes/x.md   Checks/x.md   checks/a/b.md      in no allowed place: Forbidden
    checks/x.md                                   fine

In a pattern `*` is any run of characters within a name and `?` is one; all else stands for itself. A denied
pattern's wildcards take every character, an allowed one's printable ASCII only, so that no look-alike passes by them.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise

from crewhall.errors import Forbidden, InvalidInput

PATH_BYTES, NAME_BYTES = 4096, 255
ANY_CHARACTER, PLAIN_CHARACTER = "[^/]", "[ -.0-~]"
NOT_PLAIN = {
    re.compile(pattern, re.IGNORECASE): reason
    for pattern, reason in {
        r"\A(?:/|~|[a-z]:)": "it is absolute",
        r"\\": "it has a backslash",
        r"%(?:25)*(?:2e|2f|5c|00)": "it has a percent-encoded '.', '/', '\\' or NUL",
        r"(?:\A|/)\.\.(?:/|\Z)": "it has '..'",
        r"//|/\Z": "it has an empty name",
        r"(?:\A|/)[ ]|[ ](?:/|\Z)": "a name in it begins or ends with a space",
        r"\.(?:/|\Z)": "a name in it ends with a dot",
        r"(?:\A|/)(?:\.git|git~1)[ .]*(?:[:/]|\Z)": "it leads into '.git'",
    }.items()
}


def refuse_out_of_scope(paths: Iterable[str], deny: Sequence[str], allow: Sequence[str]) -> None:
    """Raise InvalidInput for the first path that is not plain, Forbidden for one that is denied or not allowed."""
    denied = {pattern: _glob(_fold(pattern), ANY_CHARACTER) for pattern in deny}
    allowed = [_glob(unicodedata.normalize("NFC", pattern), PLAIN_CHARACTER) for pattern in allow]
    for path in paths:
        _refuse_not_plain(path)
        _refuse_denied(path, denied)
        if not any(glob.fullmatch(path) for glob in allowed):
            raise Forbidden(
                f"path '{printable(path)}' is in no allowed place",
                hint=f"Allowed are {', '.join(allow)} (case counts)." if allow else "The setting pulls.allow is empty.",
            )


def refuse_branch_paths(paths: Iterable[str], deny: Sequence[str], allow: Sequence[str]) -> None:
    """Raise Forbidden for the first path of a branch that is denied, or not allowed; no patterns allow everything."""
    denied = {pattern: _glob(_fold(pattern), ANY_CHARACTER) for pattern in deny}
    allowed = [_glob(_fold(pattern), ANY_CHARACTER) for pattern in allow]
    for path in paths:
        _refuse_denied(path, denied, "pulls.branch_deny")
        if allowed and not any(glob.fullmatch(_fold(path)) for glob in allowed):
            raise Forbidden(
                f"path '{printable(path)}' is in no allowed place",
                hint=f"Take it out of your branch: pulls.branch_allow has {', '.join(allow)}.",
            )


def refuse_clashing(paths: Iterable[str]) -> None:
    """Raise InvalidInput when two of the paths are the same, differ only in case, or one is a directory of the other.

    Next to a path, when sorted name by name, stands first what is the same, then what lies below it.
    """
    sorted_names = sorted((_fold(path).split("/"), path) for path in paths)
    for (names, ours), (others, theirs) in pairwise(sorted_names):
        if others[: len(names)] == names:
            one, other = printable(ours), printable(theirs)
            if ours == theirs:
                reason = f"path '{one}' is given twice"
            elif len(names) == len(others):
                reason = f"paths '{one}' and '{other}' differ only in case or in the form of a letter"
            else:
                reason = f"path '{one}' is a directory of path '{other}'"
            raise InvalidInput(reason, hint="Name each file once, and no file that is a directory too.")


def printable(text: str) -> str:
    """A text as a message shows it: 200 characters at most, with invisible ones escaped."""
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[:201])
    return shown if len(shown) <= 200 else f"{shown[:199]}…"


def _refuse_not_plain(path: str) -> None:
    if reason := _oddity(path):
        raise InvalidInput(
            f"path '{printable(path)}' is not a plain relative path: {reason}",
            hint="Give it from the repository's root, as checks/disk.md is, with plain names and one '/' between them.",
        )


def _oddity(path: str) -> str | None:
    """What keeps a path from being a plain relative one, or None."""
    if not path:
        return "it is empty"
    if _bytes(path) > PATH_BYTES or max(map(_bytes, path.split("/"))) > NAME_BYTES:
        return f"it is too long: {PATH_BYTES} bytes are allowed, {NAME_BYTES} for a name"
    if unseen := next((character for character in path if not character.isprintable()), None):
        return f"it has U+{ord(unseen):04X}, which cannot be seen"
    if not unicodedata.is_normalized("NFC", path):
        return "its letters and their accents are apart (it is not NFC)"
    return next((reason for pattern, reason in NOT_PLAIN.items() if pattern.search(path)), None)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _refuse_denied(path: str, denied: dict[str, re.Pattern[str]], setting: str = "pulls.deny") -> None:
    whole = _fold(path)
    last = whole.rpartition("/")[2]
    for pattern, glob in denied.items():
        if glob.fullmatch(whole) or glob.fullmatch(last):
            raise Forbidden(
                f"path '{printable(path)}' is denied by '{pattern}'",
                hint=f"Leave this file out: the operator's setting {setting} keeps it from every pull.",
            )


def _fold(text: str) -> str:
    """The text with its case and its Unicode forms normalised, for comparison."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _glob(pattern: str, character: str) -> re.Pattern[str]:
    """A pattern as a regular expression; its wildcards take this class of characters.

    Each part between two stars is taken where it first comes and never sought again, so that time grows with length
    alone. Nothing is missed by it: a star could take what lies between, or else the part had one place to be.
    """
    parts = ["".join(character if one == "?" else re.escape(one) for one in part) for part in pattern.split("*")]
    if len(parts) == 1:
        return re.compile(parts[0])
    middle = "".join(f"(?>{character}*?{part})" for part in parts[1:-1])
    return re.compile(f"{parts[0]}{middle}{character}*{parts[-1]}")
