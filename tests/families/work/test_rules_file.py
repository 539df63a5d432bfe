"""Paths that agents reserve: one spelling for each, and two that can mean the same file always meet."""

import fnmatch
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crewhall.errors import InvalidInput, LimitExceeded
from crewhall.families.work.reservation.rules import MOST_RESERVED, PathIndex, meet, refuse_more_reserved, reserved_path

TOPS = ("/home/ada/fix", "/srv/app")


@pytest.mark.parametrize(
    ("path", "spelled"),
    [
        ("src/app.py", "src/app.py"),
        ("./src//app.py", "src/app.py"),
        ("src/lib/../app.py", "src/app.py"),
        ("src/", "src/"),
        ("src/.", "src/"),
        ("src/lib/..", "src/"),
        ("/srv/app/src/app.py", "src/app.py"),
        ("/srv/app/src/", "src/"),
        ("/home/ada/fix/src/*.py", "src/*.py"),
        ("/srv/app", "**"),
        ("/srv/app/", "**"),
        (".", "**"),
        ("./", "**"),
        ("src/..", "**"),
        ("**", "**"),
        ("**/", "**"),
        ("**/**/x", "**/x"),
        ("src/**/**", "src/**"),
        ("src/*/", "src/*/"),
        ("Ünï/Datei.py", "Ünï/Datei.py"),
        ("Src/app.py", "Src/app.py"),
        ("a\\b", "a\\b"),
        (" ", " "),
        ("...", "..."),
    ],
)
def test_a_path_has_one_spelling(path: str, spelled: str) -> None:
    assert reserved_path(path, TOPS) == spelled
    assert reserved_path(spelled, TOPS) == spelled


@pytest.mark.parametrize(
    "path",
    [
        *("", "..", "../x", "src/../../x", "/etc/passwd", "/srv/application/x", "/", "/srv", "/srv/app/../x"),
        *("*/../x", "src/**/../x", "x" * 256, "ü" * 128, "x/" * 501),
    ],
)
def test_a_path_that_is_elsewhere_empty_or_too_long_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        reserved_path(path, TOPS)
    assert refused.value.hint and len(refused.value.message) < 500
    with pytest.raises(InvalidInput):
        reserved_path("/srv/app/x", ())


def test_no_agent_reserves_more_than_it_may() -> None:
    refuse_more_reserved(MOST_RESERVED - 1, 1)
    with pytest.raises(LimitExceeded, match="501"):
        refuse_more_reserved(MOST_RESERVED - 1, 2)


@pytest.mark.parametrize(
    ("ours", "theirs", "do_meet"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "A", False),
        ("a", "ab", False),
        ("src", "src/app.py", True),
        ("src/", "src/lib/app.py", True),
        ("src/", "src", True),
        ("src/", "srcs/app.py", False),
        ("src/app.py", "src/app.pyc", False),
        ("**", "any/thing.py", True),
        ("**", "**", True),
        ("*", "app.py", True),
        ("*", "src/app.py", False),
        ("src/*.py", "src/app.py", True),
        ("src/*.py", "src/lib/app.py", False),
        ("src/*.py", "src/app.ts", False),
        ("src/*.py", "src", True),
        ("src/*.py", "src/", True),
        ("src/*.py", "src/lib/", False),
        ("**/*.py", "app.py", True),
        ("**/*.py", "src/lib/app.py", True),
        ("**/*.py", "src/", True),
        ("**/test_*.py", "src/app.py", False),
        ("src/**", "src", True),
        ("src/**", "src/lib/app.py", True),
        ("src/**/x.py", "src/x.py", True),
        ("src/**/x.py", "lib/x.py", False),
        ("src/*/", "src/lib/deep/x.py", True),
        ("src/*/", "src/x.py", True),
        ("?.py", "a.py", True),
        ("?.py", "ab.py", False),
        ("?.py", ".py", False),
        ("[a-c].py", "b.py", True),
        ("[a-c].py", "d.py", False),
        ("[!a-c].py", "b.py", False),
        ("[^a-c].py", "d.py", True),
        ("[]x].py", "].py", True),
        ("[a-].py", "-.py", True),
        ("[z-a].py", "m.py", False),
        ("[.py", "[.py", True),
        ("a[.py", "a*.py", True),
        ("[a-f]", "[e-z]", True),
        ("[a-f]", "[g-z]", False),
        ("[!a-f]", "[a-f]", False),
        ("[!a-f]", "[!g-z]", True),
        ("[!a]x", "?x", True),
        ("*.py", "app.*", True),
        ("*.py", "*.ts", False),
        ("a*", "*b", True),
        ("a*a", "a", False),
        ("*a*b*c*", "*c*b*a*", True),
        ("a/**/b", "a/c/**/d/b", True),
        ("a/**/b", "a/**/c", False),
        ("a/*/c", "*/b/*", True),
        ("a/*/c", "a/*/*/c", False),
        ("a/**", "**/b", True),
        ("**/a/**", "b/*", True),
        ("**/a/**", "b/c", False),
        ("a**b", "axxb", True),
        ("a**b", "a/b", False),
        # Names with brackets in them, as web frameworks have them.
        ("app/[id]/page.tsx", "app/[id]/page.tsx", True),
        ("app/[id]", "app/[id]/page.tsx", True),
        ("app/[id]/", "app/[id]/page.tsx", True),
        ("app/[id]/page.tsx", "app/[slug]/page.tsx", False),
        ("app/[id]/*.tsx", "app/[id]/page.tsx", True),
        ("app/[[]id]/page.tsx", "app/[id]/page.tsx", True),
        ("app/[...all]/page.tsx", "app/**/page.tsx", True),
        ("app/[id]/page.tsx", "app/i/page.tsx", True),
    ],
)
def test_two_paths_meet_when_they_can_mean_the_same_file(ours: str, theirs: str, do_meet: bool) -> None:
    assert meet(ours, theirs) is do_meet
    assert meet(theirs, ours) is do_meet
    assert (PathIndex(["z", ours]).find_overlap(theirs) == ours) is do_meet


# Against brute force

names = st.text("ab", min_size=1, max_size=3)
files = st.lists(names, min_size=1, max_size=4).map("/".join)
wild = st.one_of(st.text("ab*?", min_size=1, max_size=4), st.sampled_from(["**", "[a]*", "[!a]", "[ab]?", "a[b-z]"]))
globs = st.tuples(st.lists(wild, min_size=1, max_size=4).map("/".join), st.sampled_from(["", "", "/"])).map("".join)
patterns = st.one_of(globs, globs, files, files.map(lambda path: path + "/")).map(lambda path: reserved_path(path, ()))


def means(pattern: str, file: str) -> bool:
    """Whether a pattern means a file, worked out in the slowest and plainest way there is."""
    parts, is_directory = pattern.rstrip("/").split("/"), pattern.endswith("/")
    return matches([*parts, "**"] if is_directory else parts, file.split("/"))


def matches(parts: list[str], file: list[str]) -> bool:
    if not parts:
        return not file
    if parts[0] == "**":
        return any(matches(parts[1:], file[end:]) for end in range(len(file) + 1))
    return bool(file) and fnmatch.fnmatchcase(file[0], parts[0]) and matches(parts[1:], file[1:])


EVERY_FILE = [f"{a}{b}{c}" for a in ("a", "b", "ab") for b in ("", "/a", "/b", "/ba") for c in ("", "/a", "/bb")]


@given(patterns, patterns, files)
@example("**/*a", "b/**", "b/a")
def test_paths_that_mean_one_file_meet(ours: str, theirs: str, file: str) -> None:
    both = [one for one in [file, *EVERY_FILE] if means(ours, one) and means(theirs, one)]
    if both:
        assert meet(ours, theirs) and meet(theirs, ours), both


@given(patterns, files)
def test_a_glob_meets_a_file_exactly_when_it_means_it_or_leads_through_it(pattern: str, file: str) -> None:
    leads_through = pattern.startswith(file + "/")
    is_above = file.startswith(pattern.rstrip("/") + "/") and not set(pattern) & set("*?[")
    assert meet(pattern, file) is (means(pattern, file) or leads_through or is_above)


@given(files, files)
def test_two_files_meet_when_they_are_one_or_one_is_inside_the_other(ours: str, theirs: str) -> None:
    assert meet(ours, theirs) is (f"{ours}/".startswith(f"{theirs}/") or f"{theirs}/".startswith(f"{ours}/"))


@given(patterns, patterns)
def test_meeting_goes_both_ways_and_everything_meets_itself(ours: str, theirs: str) -> None:
    assert meet(ours, theirs) is meet(theirs, ours)
    assert meet(ours, ours) and meet("**", ours)


@given(st.lists(patterns, max_size=6), patterns)
def test_many_paths_are_met_when_one_of_them_is(paths: list[str], path: str) -> None:
    met = PathIndex(paths).find_overlap(path)
    assert (met in paths and meet(met, path)) if met is not None else not any(meet(one, path) for one in paths)


@given(st.text(max_size=30))
def test_what_is_spelled_once_is_spelled_so_again(path: str) -> None:
    try:
        once = reserved_path(path, TOPS)
    except InvalidInput:
        return
    assert reserved_path(once, TOPS) == once and ".." not in once.split("/") and not once.startswith("/")


# In time

HELD: dict[str, list[str]] = {
    "files": [f"src/part{n % 50}/file{n}.py" for n in range(5000)],
    "globs of names": [f"**/file{n}.py" for n in range(5000)],
    "globs of directories": [f"src/part{n}/**/*.py" for n in range(5000)],
    "globs within names": [f"src/*{n}*/a*b" for n in range(5000)],
    "long globs that all look the same": ["/".join(["*a" * 30] * 8) + f"{n}/**/b*b" for n in range(5000)],
}


@pytest.mark.parametrize("what", HELD)
@pytest.mark.parametrize(
    "form", ["other/new{}.py", "src/new{}.py", "**/new{}.py", "src/*/x{}*b", "src/**/t{}*.py", "*/*a*a*a*a{}c/*b"]
)
def test_a_hundred_paths_against_five_thousand_take_less_than_a_second(what: str, form: str) -> None:
    index = PathIndex([form.format(number) for number in range(100)])
    begun = time.process_time()
    met = [index.find_overlap(path) for path in HELD[what]]
    assert time.process_time() - begun < 1
    assert len(met) == 5000


def test_what_cannot_be_told_in_time_counts_as_meeting() -> None:
    for looks, met in ((100, None), (0, "a?/x")):
        index = PathIndex(["a?/x", "a/b"], looks)
        assert index.find_overlap("ab*b/x") == met
        assert index.find_overlap("a/c") is None, "files are always told apart"
