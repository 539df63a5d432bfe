"""The context engine's pure rules: what fits a budget, what git's formats mean, a tree in short."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.families.project.model_context import Missing, ProjectContext
from crewhall.families.project.rules_context import LINE, SourceText, fit, plain
from crewhall.families.project.rules_git import changed_files_in, diff_lines, head_lines, status_in, tally
from crewhall.families.project.rules_tree import NAMES_CHARACTERS, apply_changes, tree_lines, tree_of
from crewhall.outside.tokens import count

WORDS = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    ["plain words of a line", "中文字符", "\\" * 9]
)
LINES = st.lists(WORDS, max_size=40)
HEARD = st.tuples(LINES, st.integers(1, 20), st.integers(0, 3) | st.just(10**6), st.none() | WORDS)


def tokens_of(context: ProjectContext) -> int:
    return count(json.dumps(context.model_dump(mode="json"), ensure_ascii=False))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(HEARD, max_size=9), st.lists(WORDS.map(lambda word: word * 9), max_size=8), WORDS, st.integers(500, 2500)
)
def test_whatever_was_told_the_answer_stays_in_its_budget_and_says_what_it_left_out(
    told: list[Any], reasons: list[str], path: str, most: int
) -> None:
    texts = [SourceText(f"s{n}", one[1], tuple(map(plain, one[0])), one[2], one[3]) for n, one in enumerate(told)]
    missing = [Missing(name=f"m{n}", reason=plain(reason)) for n, reason in enumerate(reasons)]
    context = fit(path * 20, texts, missing, most)
    assert context.tokens == tokens_of(context) <= most
    assert context == fit(path * 20, texts, missing, most)
    names = [section.name for section in context.sections]
    assert names == [one.name for one in texts][: len(names)]
    told_of = {*names, *(one.name for one in context.missing)}
    assert told_of == {one.name for one in texts} | {one.name for one in missing}
    for section, one in zip(context.sections, texts, strict=False):
        _is_honest(section.text, section.left_out, one)


def _is_honest(text: str, left_out: str | None, one: SourceText) -> None:
    """The text is the first lines, and the number that is left out is the number of the others."""
    total = len(one.lines) + one.more
    counted_out = (left_out or "").removesuffix(one.rest or "").removesuffix("; ")
    left = int(counted_out.split(" ")[0].replace("all", str(total))) if counted_out else 0
    assert text == "\n".join(one.lines[: total - left])


@pytest.mark.parametrize("most", [500, 700, 1500, 4000])
def test_most_of_a_budget_is_used(most: int) -> None:
    names = ("git", "tasks", "readme", "tree")
    texts = [SourceText(name, 10, tuple(f"line {n} of the section {name}" for n in range(900))) for name in names]
    context = fit("/srv/shop", texts, [], most)
    assert most * 0.93 <= context.tokens <= most
    assert all(section.text for section in context.sections)


def test_what_one_section_does_not_need_the_others_get_and_the_first_gets_what_is_left_over() -> None:
    long = tuple(f"line {n} of a long one" for n in range(900))
    shared = fit("/", [SourceText("a", 10, long), SourceText("b", 10, long)], [], 1000).sections
    alone = fit("/", [SourceText("a", 10, long), SourceText("b", 10, ("one",))], [], 1000).sections
    assert shared[0].tokens < 500 < 850 < alone[0].tokens
    weighty = fit("/", [SourceText("a", 30, long), SourceText("b", 10, long)], [], 1000).sections
    assert weighty[0].tokens > 2 * weighty[1].tokens
    clumsy = fit("/", [SourceText("a", 10, long), SourceText("b", 10, ("word " * 2000,))], [], 1000).sections
    assert clumsy[0].tokens > 850 and clumsy[1].left_out == "all 1 lines"


def test_with_no_room_for_frames_the_last_sources_are_named_without_a_section() -> None:
    texts = [SourceText(f"source-{n}", 10, ("some words",)) for n in range(24)]
    context = fit("/srv/" + "x" * 3000, texts, [], 500)
    assert context.path is None and tokens_of(context) <= 500
    assert fit("/srv/" + "x" * 900, texts[:2], [], 500).path == "/srv/" + "x" * 900  # whole, or not at all
    shown = [section.name for section in context.sections]
    assert shown == [f"source-{n}" for n in range(len(shown))] and context.sections[0].text == "some words"
    assert [one.name for one in context.missing] == [one.name for one in texts[len(shown) :]]
    assert {one.reason for one in context.missing} == {"no room"}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain\ttab  ", "plain\ttab"),
        ("two\nlines\x1b[31m", "two\\x0alines\\x1b[31m"),
        ("caf\udce9", "caf\\xe9"),
        ("\ud800 \u202eturned", "\\ud800 \\u202eturned"),
        (
            "👩\u200d💻 é 中\u00a0文 \u06cc\u200c\u06a9 🏳\ufe0f\u200d🌈",
            "👩\u200d💻 é 中\u00a0文 \u06cc\u200c\u06a9 🏳\ufe0f\u200d🌈",
        ),
        ("a\u200bb\u200ec\u200f\u2066\u2060\ufeff", "a\\u200bb\\u200ec\\u200f\\u2066\\u2060\\ufeff"),
        ("tag\U000e0041\U000e0100 \u00ad\u3164", "tag\\U000e0041\\U000e0100 \\xad\\u3164"),
        ("a\u3164b", "a\\u3164b"),
        ("a\u200db 中\u200d\u200d文 x\ufe00\ufe01", "a\\u200db 中\\u200d\\u200d文 x\ufe00\\ufe01"),
        ("x" * (LINE + 7), "x" * LINE + "… (7 more letters)"),
    ],
)
def test_a_line_is_shown_without_what_moves_a_cursor_or_is_no_letter(line: str, shown: str) -> None:
    assert plain(line) == shown


STATUS = (
    b"# branch.oid 1234567890abcdef\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0"
    b"1 M. N... 100644 100644 100644 aa bb a name with blanks\0"
    b"2 R. N... 100644 100644 100644 aa bb R100 new\0old\0"
    b"u UU N... 100644 100644 100644 100644 aa bb cc both\0"
    b"1 .D N... 100644 100644 000000 aa aa gone\0? caf\xe9\0? dir/\0"
)


def test_a_status_is_told_as_git_tells_it_in_short() -> None:
    status = status_in(STATUS)
    assert head_lines(status) == ["on branch main, commit 1234567890ab", "upstream origin/main: 2 ahead, 1 behind"]
    assert tally(status) == "2 staged, 1 changed, 1 conflicted, 2 untracked"
    lines = [plain(entry.line) for entry in status.entries]
    assert lines == ["M  a name with blanks", "R  old -> new", "UU both", " D gone", "?? caf\\xe9", "?? dir/"]


@pytest.mark.parametrize(
    ("out", "lines"),
    [
        (b"# branch.oid (initial)\0# branch.head main\0", ["on branch main, no commit yet"]),
        (b"# branch.oid 12\0# branch.head (detached)\0", ["HEAD is detached, commit 12"]),
        (
            b"# branch.oid 12\0# branch.head x\0# branch.upstream o/x\0",
            ["on branch x, commit 12", "upstream o/x: it is not there"],
        ),
    ],
)
def test_where_head_is(out: bytes, lines: Sequence[str]) -> None:
    assert head_lines(status_in(out)) == lines
    assert tally(status_in(out)) == "nothing is uncommitted"


def test_a_diff_is_told_with_its_largest_files_first() -> None:
    files = changed_files_in(b"1\t0\ta\0-\t-\tb.png\x0010\t2\tc\td\0")
    assert diff_lines("staged", files) == ["staged: 3 files, +11 -2", "  +10 -2 c\td", "  +1 -0 a", "  binary b.png"]
    assert diff_lines("staged", []) == ["staged: 0 files, +0 -0"]


def test_a_small_tree_is_told_with_its_names_in_their_places() -> None:
    small = tree_of(["README.md", "src/b.py", "src/a.py", "src/deep/x", ".hidden"])
    assert tree_lines(small, ["build/"]) == (
        [
            "5 files: 2 .py, 2 no ending, 1 .md",
            "./ 5 files",
            "  README.md, .hidden",
            "build/ untracked",
            "src/ 3 files",
            "  b.py, a.py",
            "src/deep/ 1 file",
            "  x",
        ],
        0,
    )
    assert tree_lines(tree_of([])) == (["no files", "./ 0 files"], 0)


def test_a_large_tree_is_told_by_its_directories_and_then_by_names_small_directories_first() -> None:
    large = [f"d{n % 10}/{n}.py" for n in range(900)] + ["d3/Makefile", "top", "small/one", "small/two"]
    lines, unnamed = tree_lines(tree_of(large))
    assert lines[:3] == ["904 files: 900 .py, 4 no ending", "./ 904 files", "  top"] and unnamed == 0
    assert lines[lines.index("d3/ 91 files") + 1] == "  Makefile"
    behind = lines[lines.index("== names, small directories first ==") + 1 :]
    assert behind[0] == "small/: one, two" and behind[1].startswith("d0/: 0.py, 10.py, ")
    order = [line.split(":")[0] for line in behind if ": " in line]
    assert order[-1] == "d3/" and len(order) == 11  # the largest is the last
    assert sum(line.count(".py") for line in behind) == 900


def test_names_that_are_too_many_are_counted() -> None:
    paths = [f"src/{n}/{name}.py" for n in range(300) for name in range(150)] + [f"{n}" for n in range(120)]
    lines, unnamed = tree_lines(tree_of(paths))
    told = sum(line.count(".py") for line in lines[1:])
    assert sum(map(len, lines)) < NAMES_CHARACTERS + 10_000 and unnamed == 45_120 - told - 100 and told > 1_000
    many = [f"file-{n:04}" for n in range(1000)]
    (names,) = (line for line in tree_lines(tree_of(many))[0] if "more" in line)
    assert names.endswith("and 900 more") and tree_lines(tree_of(many))[1] == 900


def test_files_that_came_and_went_are_counted() -> None:
    tree = tree_of(["a", "src/old.py", "src/main.py", "src/kept.py"])
    now = apply_changes(tree, ["src/old.py", "src/main.py"], ["src/new.py", "docs/index.html"])
    same = tree_of(["a", "src/kept.py", "src/new.py", "docs/index.html"])
    assert tree_lines(now) == tree_lines(same) and now.notable["docs"] == ["index.html"] and not now.notable["src"]
