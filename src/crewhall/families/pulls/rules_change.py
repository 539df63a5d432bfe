"""
What a pull is called, who may make one, and what makes two of them the same.

    claude-ops/check/add-jellyfin-health       a change's branch: prefix, type, its title in plain letters
    claude-ops/check/add-jellyfin-health-2     the next one, when that name is taken
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

from crewhall.errors import Forbidden, InvalidInput

SLUG = 50  # characters of a title in its branch
PREFIX_BYTES = 150  # so that a whole branch stays below what hosts take
TIER_2_FILES = 3
MARK = "Crewhall-Pull: "
NO_BRANCH = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]|\.\.|@\{|//|\A[-/]|/\Z|(?:\A|/)\.|\.lock(?:/|\Z)"
)  # git-check-ref-format(1)


def slug(title: str) -> str:
    """A title in 1 to 50 of [a-z0-9] with single dashes between; the same title has the same slug."""
    characters = unicodedata.normalize("NFKD", title).casefold()
    words = re.findall(r"[a-z0-9]+", "".join(one for one in characters if not unicodedata.combining(one)))
    if not words:
        return f"change-{hashlib.sha256(_bytes(title)).hexdigest()[:8]}"
    return _cut("-".join(words), SLUG)


def _cut(text: str, most: int) -> str:
    """At most so many characters, up to a dash where that keeps at least half of them."""
    end = text.rfind("-", most // 2, most + 1)
    return text if len(text) <= most else text[: most if end < 0 else end]


def refuse_prefix(prefix: str) -> None:
    """Raise InvalidInput unless git takes branches that begin with this prefix and a slash."""
    if not prefix or len(_bytes(prefix)) > PREFIX_BYTES or NO_BRANCH.search(prefix):
        raise InvalidInput(
            f"branches cannot begin with {prefix[:200]!a}",
            hint="Choose a prefix of letters, digits and dashes, such as claude-ops.",
        )


def refuse_base(branch: str) -> None:
    """Raise InvalidInput unless this can be the name of a branch."""
    if NO_BRANCH.search(branch) or branch.endswith(".") or branch in ("", "@"):
        raise InvalidInput(f"{branch[:200]!a} is no name for a branch", hint="Give base_branch as the host shows it.")


def branch_name(prefix: str, change_type: str, title: str, n: int = 1) -> str:
    """The name of a change's nth branch, different for each n."""
    name = slug(title)
    if n > 1:
        tail = f"-{n}"
        start = _cut(name, SLUG - len(tail))
        if start + tail == name:  # a long title that itself ends in this number
            start = start[:-1].rstrip("-")
        name = start + tail
    return f"{prefix}/{change_type}/{name}"


def stem(prefix: str, change_type: str, title: str) -> str:
    """What all names of a change's branches begin with, however its slug is cut to make room for a number."""
    return f"{prefix}/{change_type}/{slug(title)[: SLUG // 2 - 6]}"


def branches_by_number(prefix: str, change_type: str, title: str, names: Iterable[str]) -> dict[int, str]:
    """The names that are branches of this change, by number.

    A change titled "X 2" has the name of the second branch of "X": their titles tell them apart, not their names.
    """
    branches = {}
    for name in names:
        number = re.search(r"-([0-9]{1,9})\Z", name)
        for n in (1, int(number[1]) if number else 1):
            if name == branch_name(prefix, change_type, title, n):
                branches[n] = name
    return branches


def refuse_tier(tier: int, files: int, setting: str | None = None) -> None:
    """Raise Forbidden when an agent of this tier may not open a pull with so many files; `setting` is what set it."""
    if tier < 2:
        raise Forbidden(f"tier {tier} agents cannot create PRs; minimum tier is 2", hint=_who_sets(setting))
    if tier == 2 and files > TIER_2_FILES:
        raise Forbidden(
            f"tier 2 agents may modify at most {TIER_2_FILES} files per PR (got {files}); "
            "consider escalating to tier 3",
            hint=f"Split the change into pulls of {TIER_2_FILES} files. {_who_sets(setting)}",
            recoverable=True,
        )


def _who_sets(setting: str | None) -> str:
    odd = (
        ""
        if setting is None or setting.strip() in ("1", "2", "3")
        else f"CLAUDEOPS_TIER is {setting[:20]!a}: not 1, 2 or 3. "
    )
    return (
        f"{odd}Whoever starts the agent sets its tier: CLAUDEOPS_TIER in its bridge's environment, never an argument. "
        "By HTTP, the operator's token has one (operator.token in the hall's directory)."
    )


def tier_from(text: str | None) -> int:
    """The tier that a variable's text sets; 1, the lowest, for all but exactly 1, 2 or 3."""
    return {"2": 2, "3": 3}.get((text or "").strip(), 1)


def mark_of(id: str) -> str:
    """The line of a commit's message that says which pull its branch was made for."""
    return f"{MARK}{id}"


def marked_for(message: str, title: str) -> str | None:
    """The id of the pull that a hall made this commit for; None without a mark, or when its title is another."""
    first, _, rest = message.partition("\n")
    marked = next((line for line in rest.splitlines() if line.startswith(MARK)), None)
    return marked.removeprefix(MARK).strip() if marked is not None and is_same_title(first, title) else None


def is_same_title(one: str, other: str) -> bool:
    """Whether two titles are the same but for case and spaces."""
    return " ".join(one.split()).casefold() == " ".join(other.split()).casefold()


def digest(base: str | None, files: Iterable[tuple[str, str, bytes]]) -> str:
    """A hash of a base branch and of files (path, action, content): the same in any order, else different."""
    summed = hashlib.sha256(b"-" if base is None else _frame(_bytes(base)))
    for path, action, content in sorted(files):
        summed.update(_frame(_bytes(path)) + _frame(_bytes(action)) + _frame(content))
    return summed.hexdigest()


def _frame(part: bytes) -> bytes:
    return b"%d:" % len(part) + part


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
