"""What is said of a settings file that cannot be edited: where, and what is wrong there."""

from crewhall.errors import InvalidInput


def syntax_error(wrong: str, text: str, offset: int) -> InvalidInput:
    """The refusal of a text that is not what its client reads, or that has no place for the entry."""
    before = text[:offset]
    line, column = before.count("\n") + 1, offset - before.rfind("\n")
    return InvalidInput(
        f"line {line}, column {column}: {wrong}",
        hint="Mend the file there, it was left as it is; or put in by hand what is printed without --write.",
        line=line,
        column=column,
    )
