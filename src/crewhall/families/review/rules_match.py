"""
Whether two findings of a review are about the same problem, in whatever words. No I/O, no model.

    subject      names of code that both use, or the file
    problem      what is wrong with it: a kind of problem that both name, or words that both use

A wrong match would hide a finding behind an older one. So a match needs a subject and a problem, and in doubt there is
none: findings that each name code which the other does not know are two, and so are demands that undo each other.
texts/findings.toml has the kinds of problems and the words that say nothing.
"""

import hashlib
import itertools
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from crewhall.store.sql import text_of

LOOKED_AT, MOST_SYMBOLS = 600, 30  # characters of a finding's text, and names of code in it
# What pulls at one end, and what at the other.
OPPOSITES = re.compile(
    r"(?P<a1>\b(?:raise|increase|longer|higher)\b(?! (?:an? )?\w*(?:error|exception))|too (?:short|small|low|few))"
    r"|(?P<b1>\b(?:lower|reduce|decrease|shorter|smaller)\b|too (?:long|large|big|high|many))"
    r"|(?P<a2>\bextract)|(?P<b2>\binline\b)|(?P<a3>\bpin\b)|(?P<b3>\bloosen|\bunpin\b)|(?P<a4>\bsplit)"
    r"|(?P<b4>\bmerge\b|\bcombine)|(?P<a5>\bprivate)|(?P<b5>\bpublic\b)|(?P<a6>\benable)|(?P<b6>\bdisable)"
    r"|(?P<a7>\bstricter|too (?:lax|loose))|(?P<b7>\blenient|too strict)",
    re.IGNORECASE,
)
DEMANDS = re.compile(
    r"(?:\bshould|\bought to|\bplease|\bmust|\blet's|\bcould you|\bwould|^|[.;:,—])\s*+"
    r"(?:be |have |also |just )?([a-z]+)",
    re.IGNORECASE,
)
UNDEMANDS = re.compile(
    r"\b(?:do(?:es)?n[o']t|do(?:es)? not|should(?: not|n't)|must(?: not|n't)|no need to|needn't|stop|avoid|rather than"
    r"|instead of|without)\s+(?:be |having to )?([a-z]+)",
    re.IGNORECASE,
)
REMOVALS = re.compile(r"^(?:remov|drop|delet|revert|undo|discard|unnecessar|redundan|superfluous|nois|flood)")
ADDITIONS = re.compile(r"^(?:add|introduc|restor|bring|missing|lack)")

SYMBOL = re.compile(
    r"`([^`\n]{1,120})`"  # in backticks
    r"|(?<![\w./-])((?:--[a-z][\w-]*[a-z])|(?<!\$)[A-Za-z_$][\w$]*+(?:(?:(?:\.|::|#|->|/)[\w$!?*]++)++\(?|\(\)?)"
    r"|[A-Za-z0-9]*_\w+|[A-Za-z][a-z0-9]*(?:[A-Z][a-z0-9]*)+)"
)
NAME = re.compile(r"--?[a-z][\w-]*|[A-Za-z_$][\w$.:#/-]*")
COMPOSED = re.compile(r"[A-Za-z0-9][_.:#/-]+[A-Za-z]|[a-z0-9][A-Z]")
TESTS = re.compile(r"test|spec", re.IGNORECASE)
SEPARATOR = re.compile(r"\.|::|#|->|/")
FILE_NAME = re.compile(r"(?<![\w./-])[\w./-]+\.[a-z]{1,5}")
PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9][0-9.,]*")
ENDINGS = (
    *("isations", "izations", "isation", "ization", "ations", "ation", "ities", "ments", "ingly", "ment", "ness"),
    *("ably", "ible", "able", "ings", "ions", "ity", "ies", "ied", "ing", "ion", "ers", "est", "ed", "er", "ly", "es"),
    *("al", "ic", "s", "e", "y"),
)
LEAST_STEM = 3


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """The word without its ending; words of one family mostly get the same."""
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= LEAST_STEM:
            word = word[: -len(ending)]
            break
    if len(word) > LEAST_STEM and word[-1] == word[-2] and word[-1] not in "ls":
        word = word[:-1]
    return word


@dataclass(frozen=True)
class Lexicon:
    """What texts/findings.toml says of the words of reviewers."""

    kinds: dict[str, re.Pattern[str]]
    general: frozenset[str]
    extensions: frozenset[str]
    silent: frozenset[str]


@cache
def lexicon() -> Lexicon:
    """The lexicon, read and compiled at its first use: most processes of crewhall never compare anything."""
    words = tomllib.loads(text_of("crewhall.families.review", "texts/findings.toml"))
    return Lexicon(
        kinds={kind: re.compile("|".join(ways), re.IGNORECASE) for kind, ways in words["kinds"].items()},
        general=frozenset(words["general"].split()),
        extensions=frozenset(words["extensions"].split()),
        silent=frozenset(form for word in words["silent"].split() for form in (word, stem(word))),
    )


def _stems(texts: Iterable[str]) -> frozenset[str]:
    """The words of texts as stems, names taken apart, without the silent ones."""
    found = {stem(piece.lower()) for text in texts for piece in PIECE.findall(text)}
    return frozenset(one for one in found if one not in lexicon().silent and (len(one) > 1 or one.isdigit()))


@dataclass(frozen=True)
class Remark:
    """What a reviewer found: a text, and where it said so a file, a line and a rule."""

    text: str
    file: str | None = None
    line: int | None = None
    rule: str | None = None

    @cached_property
    def fingerprint(self) -> str:
        """The same for findings in the same words about the same file."""
        words = " ".join(re.findall(r"\w+", self.text.lower()))
        facts = f"{self.file or ''}\n{' '.join(sorted(self.symbols))}\n{(self.rule or '').lower()}\n{words}"
        return hashlib.sha256(facts.encode("utf-8", "replace")).hexdigest()[:16]

    @cached_property
    def start(self) -> str:
        """The part of the text that is compared, with the rule."""
        return f"{self.text[:LOOKED_AT]} {self.rule or ''}"

    @cached_property
    def symbols(self) -> dict[str, frozenset[str]]:
        """Names of code in lower case, each with the words of its last part; names that anything has are left out."""
        found: dict[str, frozenset[str]] = {}
        for quoted, bare in SYMBOL.findall(self.text[:LOOKED_AT]):
            for name in NAME.findall(quoted) if quoted else (bare,):
                plain = name.strip("().,:$#/-!?")
                is_word_of_code = bool(quoted) and name != quoted.rstrip("()") and not COMPOSED.search(plain)
                if (
                    len(plain) > 1
                    and not is_word_of_code
                    and plain.lower() not in lexicon().general
                    and not _is_file(plain)
                ):
                    found[plain.lower()] = frozenset(stem(piece.lower()) for piece in PIECE.findall(_last(plain)))
        return dict(itertools.islice(found.items(), MOST_SYMBOLS))

    @cached_property
    def lasts(self) -> dict[str, str]:
        """The names that have several parts, by the last one."""
        return {_last(name): name for name in self.symbols if _last(name) != name}

    @cached_property
    def files(self) -> frozenset[str]:
        """Names of files that it is about, without their directories."""
        named = [one for one in FILE_NAME.findall(self.text[:LOOKED_AT]) if _is_file(one)]
        return frozenset(path.rpartition("/")[2].lower() for path in (*named, *([self.file] if self.file else ())))

    @cached_property
    def stems(self) -> frozenset[str]:
        return _stems([self.start])

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """All words of the text as stems, also the silent ones."""
        return frozenset(stem(piece.lower()) for piece in PIECE.findall(self.text[:LOOKED_AT]))

    def kinds(self, names: frozenset[str]) -> frozenset[str]:
        """The kinds of problems that it names, apart from these names of code."""
        ways = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        text = re.sub(ways, "_", self.start, flags=re.IGNORECASE) if names else self.start
        return _kinds_in(text)

    @cached_property
    def demands(self) -> frozenset[str]:
        """The verbs of what it wants done, as stems."""
        return frozenset(stem(word.lower()) for word in DEMANDS.findall(self.start))

    @cached_property
    def refusals(self) -> frozenset[str]:
        """The verbs of what it wants not to be done, as stems."""
        return frozenset(stem(word.lower()) for word in UNDEMANDS.findall(self.start))

    @cached_property
    def ends(self) -> frozenset[str]:
        """At which ends it pulls: a1 against b1, and so on."""
        found = (one.groupdict().items() for one in OPPOSITES.finditer(self.start))
        return frozenset(name for groups in found for name, value in groups if value)

    def count_strange(self, other: "Remark") -> int:
        """How many names of code it has of which the other says nothing."""
        return sum(1 for words in self.symbols.values() if not words <= other.vocabulary)


@lru_cache(maxsize=2_000)
def _kinds_in(text: str) -> frozenset[str]:
    return frozenset(kind for kind, words in lexicon().kinds.items() if words.search(text))


def _is_file(name: str) -> bool:
    return FILE_NAME.fullmatch(name) is not None and name.rpartition(".")[2].lower() in lexicon().extensions


def _last(name: str) -> str:
    return SEPARATOR.split(name)[-1]


@dataclass(frozen=True)
class Likeness:
    """What two findings have in common, and what divides them."""

    subjects: int  # names of code
    composed: int  # of these, names of several words
    strange: int  # names that only one side knows, counted on the side that has fewer
    kinds: int  # of problems
    words: int  # further ones
    share: float  # of the further words of the side that has fewer
    is_file_same: bool

    @property
    def is_same(self) -> bool:
        more = max(self.composed - 1, 0)
        evidence = 2 * self.kinds + self.words + 2 * more - 2 * self.strange
        if self.strange and (not self.subjects or self.share >= 0.8 or (self.share < 0.3 and not self.kinds)):
            return False  # the same said of two things, or two things said
        if self.subjects and (self.kinds or more):
            return evidence >= 2
        if self.subjects:
            return not self.strange and self._has_words(((2, 0.75), (4, 0.4), (3, 0.35 if self.is_file_same else 0.55)))
        if self.is_file_same:
            return self._has_words([(2, 0.9)]) or (evidence >= (3 if self.kinds else 4) and self.share >= 0.3)
        return self._has_words([(4, 0.75)])

    def _has_words(self, least: Iterable[tuple[int, float]]) -> bool:
        return any(self.words >= words and self.share >= share for words, share in least)


def is_same(one: Remark, other: Remark) -> bool:
    """Whether both are about the same problem; in doubt they are not."""
    if one.fingerprint == other.fingerprint:
        return True
    subjects = _shared_names(one, other)
    is_file_same = bool(one.files & other.files)
    if not subjects and len(one.stems & other.stems) < (1 if is_file_same else 4):
        return False
    found = compare(one, other, subjects, is_file_same)
    is_file_other = one.file is not None and other.file is not None and not is_file_same
    if is_file_other and (found.composed < 2 or found.strange) and not TESTS.search(f"{one.file} {other.file}"):
        return False
    return found.is_same and not (_undoes(one, other) or _undoes(other, one))


def compare(one: Remark, other: Remark, subjects: frozenset[str], is_file_same: bool) -> Likeness:
    """What two findings have in common besides these names of code."""
    named = _stems([*subjects, *one.files, *other.files, one.file or "", other.file or ""])
    mine, others = one.stems - named, other.stems - named
    names = subjects | {_last(name) for name in subjects}
    strange = min(one.count_strange(other), other.count_strange(one))
    has_kinds = bool(subjects) or (is_file_same and not strange)  # else they decide nothing
    return Likeness(
        subjects=len(subjects),
        composed=sum(
            1 for name in subjects if COMPOSED.search(name) or len(one.symbols.get(name) or other.symbols[name]) > 1
        ),
        strange=strange,
        kinds=len(one.kinds(names) & other.kinds(names)) if has_kinds else 0,
        words=len(mine & others),
        share=len(mine & others) / max(1, min(len(mine), len(others))),
        is_file_same=is_file_same,
    )


def _shared_names(one: Remark, other: Remark) -> frozenset[str]:
    """Names that both sides have; `cache.get` and `get` are one, and what is part of another does not count."""
    ours, theirs = one.lasts, other.lasts
    shared = set(one.symbols) & set(other.symbols)
    shared |= {name for last, name in ours.items() if last in other.symbols}
    shared |= {name for last, name in theirs.items() if last in one.symbols}
    return frozenset(name for name in shared if not any(name != longer and name in longer for longer in shared))


def _undoes(one: Remark, other: Remark) -> bool:
    """Whether the first forbids what the second demands, or they pull at two ends."""
    if one.refusals & other.demands - lexicon().silent:
        return True
    if any(map(REMOVALS.match, other.demands)) and any(map(ADDITIONS.match, one.demands)):
        return True
    return any(f"b{name[1:]}" in other.ends - one.ends for name in one.ends if name[0] == "a")
