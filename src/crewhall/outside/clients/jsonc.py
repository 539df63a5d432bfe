"""
JSON with comments, edited as text: what an edit is not about stays byte for byte.

An edit is a few characters put in or taken out. New lines get the indentation and the line ends of the file.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from crewhall.outside.clients.jsonc_read import BOM, Path, Value, parse
from crewhall.outside.clients.syntax_error import syntax_error

BLANK = " \t\r\n"


def put(text: str, path: Path, value: Any) -> str:
    """The text with this value at this path; an object loses what the new one has not. Raises InvalidInput."""
    found, known = _walk(text, path)
    if known < len(path):
        return _add(text, found, path[known:], value)
    if _same(found.data, value):
        return text
    if isinstance(found.data, dict) and isinstance(value, Mapping):
        for key in found.data:
            text = text if key in value else drop(text, (*path, key))
        for key, inner in value.items():
            is_there = key in found.data and _same(found.data[key], inner)
            text = text if is_there else put(text, (*path, key), inner)
        return text
    indent = _indent(text, found.start)
    return text[: found.start] + _render(text, value, indent) + text[found.end :]


def drop(text: str, path: Path) -> str:
    """The text without the member at this path, and without its line if that is empty then. Raises InvalidInput."""
    while True:
        parent, known = _walk(text, path[:-1])
        places = [place for place, one in enumerate(parent.members or []) if one.key == path[-1]]
        if known < len(path) - 1 or not places:
            return text
        text = _without(text, parent, places[-1])


def _walk(text: str, path: Path) -> tuple[Value, int]:
    """The value as many steps along a path as there are, and how many; of two with one name it is the later.

    Raises InvalidInput when something else than an object is on the way.
    """
    value = parse(text, path)
    for known, key in enumerate(path):
        if value.members is None:
            raise syntax_error(f"an object should stand here, to hold '{key}'", text, value.start)
        named = [member.value for member in value.members if member.key == key]
        if not named:
            return value, known
        value = named[-1]
    return value, len(path)


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)  # 1 and true are equal in Python


def _add(text: str, parent: Value, path: Path, value: Any) -> str:
    """The text with a new member in an object; those on the way to it are made."""
    for key in reversed(path[1:]):
        value = {key: value}
    if parent.start == parent.end:  # nothing stands there yet
        gap = "" if text in ("", BOM) or text.endswith("\n") else _line_end(text)
        return text + gap + _render(text, {path[0]: value}, "") + _line_end(text)
    return _with_member(text, parent, path[0], value)


def _with_member(text: str, parent: Value, key: str, value: Any) -> str:
    members = parent.members or []
    closing = parent.end - 1
    at = _line_end_before(text, closing)
    pair = f"{json.dumps(key, ensure_ascii=False)}: "
    last = members[-1] if members else None
    after = "," if last and last.comma is not None else ""
    if _is_flat(text, parent):
        added = (" " if members else "") + pair + json.dumps(value, ensure_ascii=False) + after
    else:
        outer = _indent(text, parent.start)
        indent = _indent(text, last.start) if last and _begins_line(text, last.start) else outer + _unit(text)
        added = _line_end(text) + indent + pair + _render(text, value, indent) + after
        added += "" if "\n" in text[at:closing] else _line_end(text) + outer
    if last and last.comma is None:
        return text[: last.value.end] + "," + text[last.value.end : at] + added + text[at:]
    return text[:at] + added + text[at:]


def _line_end_before(text: str, closing: int) -> int:
    """Where a new member may stand before a closing brace: after the last thing there, at the end of that's line."""
    at = len(text[:closing].rstrip(BLANK))
    line = re.search(r"\r?\n", text[at:closing])
    return at + line.start() if line else at


def _is_flat(text: str, parent: Value) -> bool:
    """Whether an object is written on one line; an empty one is when all the file is, and the object is in another."""
    if parent.members:
        return "\n" not in text[parent.start : parent.end]
    return "\n" not in text.strip() and text[: parent.start].strip(BLANK + BOM) != ""


def _without(text: str, parent: Value, place: int) -> str:
    """The text without a member, the comma that goes with it, and the blanks that would be left."""
    members = parent.members or []
    member = members[place]
    start, end, comma = member.start, member.value.end, member.comma
    if comma is None and place:
        comma = members[place - 1].comma  # the one before is the last now
    elif comma is not None and not text[end:comma].strip(BLANK):
        end, comma = comma + 1, None
    cuts = [_with_blanks(text, start, end, is_first=place == 0)]
    cuts += [] if comma is None else [(comma, comma + 1)]
    for start, end in sorted(cuts, reverse=True):
        text = text[:start] + text[end:]
    inner = text[parent.start + 1 :].lstrip(BLANK)
    return text[: parent.start + 1] + inner if inner.startswith("}") else text


def _with_blanks(text: str, start: int, end: int, is_first: bool) -> tuple[int, int]:
    """A cut, widened: to the whole line if that holds nothing else, or by the blanks at one side."""
    after = end + len(text[end:]) - len(text[end:].lstrip(" \t\r"))
    before = len(text[:start].rstrip(" \t"))
    if _begins_line(text, start) and text[after : after + 1] == "\n" and text[before - 1 : before] == "\n":
        return before, after + 1
    return (start, after) if is_first or _begins_line(text, start) else (before, end)


def _render(text: str, value: Any, indent: str) -> str:
    """Render a value in the style of this file, indented from the second line on."""
    unit = _unit(text)
    lines = json.dumps(value, ensure_ascii=False, indent=unit).split("\n")
    return f"{_line_end(text)}{indent}".join(lines)


def _line_end(text: str) -> str:
    first = text.partition("\n")[0]
    return "\r\n" if first != text and first.endswith("\r") else "\n"


def _unit(text: str) -> str:
    """By what one level is indented here."""
    found = re.search(r"^([ \t]+)\"", text, re.MULTILINE)
    return found[1] if found else "  "


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip(BLANK + BOM)
