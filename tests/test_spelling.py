"""Suggestions for a misspelt name."""

from crewhall.spelling import AT_THE_END, LONGEST, did_you_mean


def test_the_nearest_name_is_suggested_and_no_far_one() -> None:
    assert did_you_mean("tsak", ["agent", "task"]) == "Did you mean 'task'?"
    assert did_you_mean("tsak", ["agent", "task"], AT_THE_END) == ", did you mean 'task'?"
    assert did_you_mean("x", ["agent", "task"]) == did_you_mean("task", []) == ""


def test_several_names_are_suggested_if_there_is_room() -> None:
    assert did_you_mean("task_ge", ["task_get", "task_set", "x"], "Did you mean {}?", most=2, cutoff=0.5) == (
        "Did you mean task_get, task_set?"
    )


def test_a_name_that_is_too_long_to_be_a_misspelt_one_is_not_compared() -> None:
    assert did_you_mean("a" * LONGEST, ["a" * 101])
    assert did_you_mean("a" * (LONGEST + 1), ["a" * 102]) == ""


def test_braces_in_a_name_are_only_characters() -> None:
    assert did_you_mean("{0}", ["{1}"]) == "Did you mean '{1}'?"
