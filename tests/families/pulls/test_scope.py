"""Which paths a pull may change, hostile ones above all."""

import posixpath
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.errors import Forbidden, InvalidInput
from crewhall.families.pulls.rules_scope import refuse_clashing, refuse_out_of_scope
from tests.sizes import size

DENY = ("prompts/*.md", "CLAUDE.md", "entrypoint.sh", "*.yaml", "*.yml", "Dockerfile*", "*.go", "*.env*")
ALLOW = (
    "checks/*.md",
    "playbooks/*.md",
    ".claude-ops/checks/*.md",
    ".claude-ops/playbooks/*.md",
    ".claude-ops/skills/*.md",
    "CLAUDE-OPS.md",
)


def outcome_of(path: str, deny: tuple[str, ...] = DENY, allow: tuple[str, ...] = ALLOW) -> str:
    """What becomes of a path: fine, not plain, out of place, or the pattern that denies it."""
    try:
        refuse_out_of_scope([path], deny, allow)
    except InvalidInput as refusal:
        assert " is not a plain relative path: " in refusal.message
        return "not plain"
    except Forbidden as refusal:
        return "out of place" if refusal.message.endswith("in no allowed place") else refusal.message.split("'")[-2]
    return "fine"


@pytest.mark.parametrize(
    "path",
    [
        "checks/x.md",
        "checks/.x.md",
        "checks/.md",
        "checks/a b [1] 100%.md",
        "checks/~x.md",
        "checks/git.md",
        "playbooks/restart-jellyfin.md",
        ".claude-ops/checks/x.md",
        ".claude-ops/playbooks/x.md",
        ".claude-ops/skills/x.md",
        "CLAUDE-OPS.md",
    ],
)
def test_what_lies_in_an_allowed_place_is_fine(path: str) -> None:
    assert outcome_of(path) == "fine"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/x",
        "//checks/x.md",
        "C:\\x",
        "c:/x",
        "C:x",
        "~/x",
        "~root/x",
        "checks\\x.md",
        "checks/..\\x.md",
        "checks/x.md\0",
        "checks/x\n.md",
        "checks/x\u200b.md",
        "checks/\u202ex.md",
        "checks/x\u00a0.md",
        "checks/\ud800.md",
        "checks/../CLAUDE.md",
        "../checks/x.md",
        "..",
        "checks/..",
        "./checks/x.md",
        "checks/./x.md",
        "checks//x.md",
        "checks/x.md/",
        "checks/ x.md",
        "checks/x.md ",
        "checks /x.md",
        "checks/x.md.",
        "checks./x.md",
        "checks/...",
        "checks/%2e%2e/x.md",
        "checks/.%2E/x.md",
        "checks%2fx.md",
        "checks%5Cx.md",
        "checks/%252e%252e/x.md",
        "checks/x.md%00",
        "checks/" + "ä" * 127 + ".md",
        "a/" * 2047 + "x.md",
        ".git/config",
        "checks/.GIT/x.md",
        "checks/.git",
        "GIT~1/x.md",
        ".git::$INDEX_ALLOCATION/x.md",
        "checks/e\u0301.md",
    ],
)
def test_what_is_no_plain_relative_path_is_refused_before_any_pattern_is_asked(path: str) -> None:
    assert outcome_of(path) == "not plain"
    assert outcome_of(path, (), ("*", "*/*", "*/*/*")) == "not plain"


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("CLAUDE.md", "CLAUDE.md"),
        ("claude.md", "CLAUDE.md"),
        ("checks/CLAUDE.MD", "CLAUDE.md"),
        ("checks/\uff23\uff2c\uff21\uff35\uff24\uff25.md", "CLAUDE.md"),
        ("checks\uff0fCLAUDE.md", "CLAUDE.md"),
        ("checks/🄲laude.md", "CLAUDE.md"),
        ("checks/a/b/Claude.md", "CLAUDE.md"),
        ("prompts/x.md", "prompts/*.md"),
        ("Prompts/x.MD", "prompts/*.md"),
        ("entrypoint.sh", "entrypoint.sh"),
        ("checks/x.yaml", "*.yaml"),
        ("deploy/x.YML", "*.yml"),
        ("Dockerfile", "Dockerfile*"),
        ("checks/dockerfile.md", "Dockerfile*"),
        ("main.go", "*.go"),
        (".env", "*.env*"),
        ("checks/x.env.md", "*.env*"),
        ("checks/x.\uff45nv.md", "*.env*"),
    ],
)
def test_what_is_denied_is_denied_by_path_and_by_last_name_in_any_case_and_form(path: str, pattern: str) -> None:
    assert outcome_of(path) == pattern
    assert outcome_of(path, DENY, ("*", "*/*", path)) == pattern, "denied, even where it is allowed"


@pytest.mark.parametrize(
    "path",
    [
        "notes/x.md",
        "x.md",
        "checks/a/b.md",
        "a/checks/x.md",
        "a/prompts/x.md",
        "prompts/a/x.md",
        "Checks/x.md",
        "checks/x.MD",
        "checks/x.md.txt",
        "checks",
        "claude-ops.md",
        "\u0441hecks/x.md",  # a Cyrillic letter
        "checks/\u0430.md",  # a Cyrillic letter
        "checks/\uff58.md",
        "checks/x\u2025/y.md",
        "checks/x\ufe0f.md",
        "checks/x\u115f.md",
        "checks\uff0fx.md",
        ".claude-ops/x.md",
        ".claude-ops/skills/a/x.md",
        "%20checks/x.md",
    ],
)
def test_what_only_looks_like_an_allowed_place_is_none(path: str) -> None:
    assert outcome_of(path) == "out of place"


@pytest.mark.parametrize(
    ("pattern", "path", "decision"),
    [
        ("checks/?.md", "checks/a.md", "fine"),
        ("checks/?.md", "checks/ab.md", "out of place"),
        ("checks/?.md", "checks/é.md", "out of place"),
        ("prüfung/*.md", "prüfung/x.md", "fine"),
        ("pru\u0308fung/*.md", "prüfung/x.md", "fine"),
        ("prüfung/*é*.md", "prüfung/xéy.md", "fine"),
        ("prüfung/*é*.md", "prüfung/xéé.md", "out of place"),
        ("checks/[ab].md", "checks/[ab].md", "fine"),
        ("checks/[ab].md", "checks/a.md", "out of place"),
        ("checks/[!a].md", "checks/b.md", "out of place"),
        ("checks/**.md", "checks/a.md", "fine"),
        ("checks/**/x.md", "checks/a/b/x.md", "out of place"),
        ("checks/x.md", "checks/xamd", "out of place"),
        ("checks/(a|b)+$", "checks/(a|b)+$", "fine"),
    ],
)
def test_only_stars_and_question_marks_are_special_in_a_pattern(pattern: str, path: str, decision: str) -> None:
    assert outcome_of(path, (), (pattern,)) == decision


def test_without_patterns_nothing_is_denied_and_nothing_is_allowed() -> None:
    refuse_out_of_scope([], (), ())
    refuse_out_of_scope(["CLAUDE.md"], (), ("*",))
    with pytest.raises(Forbidden, match=r"^path 'x\.md' is in no allowed place$") as refused:
        refuse_out_of_scope(["x.md"], (), ())
    assert refused.value.hint == "The setting pulls.allow is empty."


@pytest.mark.parametrize(
    ("paths", "kind", "message"),
    [
        (
            ["checks/x.md", "checks/../CLAUDE.md", "CLAUDE.md"],
            InvalidInput,
            "path 'checks/../CLAUDE.md' is not a plain relative path: it has '..'",
        ),
        (["CLAUDE.md", "checks/../x"], Forbidden, "path 'CLAUDE.md' is denied by 'CLAUDE.md'"),
        (["Checks/x.md", "CLAUDE.md"], Forbidden, "path 'Checks/x.md' is in no allowed place"),
        (
            ["checks/x.md\0"],
            InvalidInput,
            r"path 'checks/x.md\x00' is not a plain relative path: it has U+0000, which cannot be seen",
        ),
    ],
)
def test_the_first_path_that_is_wrong_is_named(paths: list[str], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as refused:
        refuse_out_of_scope(paths, DENY, ALLOW)
    assert str(refused.value) == message


def test_a_long_path_is_cut_in_the_message_and_the_hint_names_the_allowed_places() -> None:
    with pytest.raises(Forbidden) as refused:
        refuse_out_of_scope(["x" * 190 + "/" + "y" * 99], DENY, ALLOW)
    assert refused.value.message == f"path '{'x' * 190}/{'y' * 8}…' is in no allowed place"
    assert all(pattern in refused.value.hint for pattern in ALLOW)


def test_no_pattern_makes_a_path_take_long() -> None:
    """By seeking again for each star this would take years."""
    pattern = "*a" * 40 + "*b"
    assert outcome_of("a" * 255, (pattern,), ("*",)) == "fine"
    assert outcome_of("/".join(["a" * 255] * 15), ("/".join([pattern] * 15),), (pattern,)) == "out of place"


# Properties

PIECES = ["checks", "playbooks", ".claude-ops", "skills", "/", "/", "..", ".", "x.md", ".md", "CLAUDE", "\\", "\0"]
PIECES += ["~", "C:", "%2e", ".git", " ", "\u0435", "\u200b", "\uff0e", "\uff0f", "é", "e\u0301", "Checks"]


@settings(max_examples=size(100, 300), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=7).map("".join) | st.sampled_from(ALLOW) | st.text(max_size=12))
def test_what_passes_means_itself_and_lies_directly_in_an_allowed_directory(path: str) -> None:
    if outcome_of(path) != "fine":
        return
    assert posixpath.normpath(path) == path == unicodedata.normalize("NFKC", path)
    assert path == "CLAUDE-OPS.md" or posixpath.dirname(path) in {posixpath.dirname(place) for place in ALLOW} - {""}


def fits(pattern: str, path: str) -> bool:
    """Whether an allowed pattern matches a path, worked out in the slowest and plainest way there is."""
    if not pattern or not path:
        return not path and set(pattern) <= {"*"}
    is_wild = path[0].isascii() and path[0] != "/"
    if pattern[0] == "*":
        return fits(pattern[1:], path) or (is_wild and fits(pattern, path[1:]))
    return (is_wild if pattern[0] == "?" else pattern[0] == path[0]) and fits(pattern[1:], path[1:])


names = st.lists(st.text(alphabet="abé", min_size=1, max_size=5), min_size=1, max_size=3).map("/".join)


@settings(max_examples=size(100, 300), deadline=None)
@given(st.text(alphabet="ab/é*?", max_size=9), names)
def test_a_pattern_allows_exactly_what_it_fits(pattern: str, path: str) -> None:
    assert outcome_of(path, (), (pattern,)) == ("fine" if fits(pattern, path) else "out of place")


# Clashes


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["a.md", "b.md", "a.md"], "path 'a.md' is given twice"),
        (["b/X.md", "b/x.md"], "paths 'b/X.md' and 'b/x.md' differ only in case or in the form of a letter"),
        (["a/b/c", "a-b", "a.b", "a"], "path 'a' is a directory of path 'a/b/c'"),
        (["A", "a/b"], "path 'A' is a directory of path 'a/b'"),
    ],
)
def test_paths_that_cannot_be_side_by_side_are_refused_together(paths: list[str], message: str) -> None:
    for some in (paths, paths[::-1]):
        with pytest.raises(InvalidInput) as refused:
            refuse_clashing(some)
        assert refused.value.message == message


@settings(max_examples=size(70, 200), deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a", "A", "b", "b-"]), min_size=1, max_size=3).map("/".join), max_size=5))
def test_paths_clash_exactly_when_two_of_them_do(paths: list[str]) -> None:
    low = [path.lower() + "/" for path in paths]
    clash = any(a.startswith(b) for n, a in enumerate(low) for m, b in enumerate(low) if n != m)
    try:
        refuse_clashing(paths)
    except InvalidInput:
        assert clash
    else:
        assert not clash
