"""Texts of others inside texts of the hall, so that none can pass for the hall's own lines. No I/O."""


def quote(text: str, most: int) -> str:
    """The start of a text, each of its lines behind a `> `, whatever ends the lines."""
    shown = text if len(text) <= most else f"{text[:most]}\n[… {len(text) - most} characters left out]"
    return "\n".join(f"> {line}" for line in shown.splitlines())


def one_line(text: str, most: int) -> str:
    """The start of a text, on one line."""
    return " ".join(text.split())[:most]
