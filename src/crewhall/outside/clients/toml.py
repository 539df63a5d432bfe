"""
TOML, edited as text: an entry is the statements that name it, and nothing else in the file is touched.

A statement is a header or a pair; one that goes on over several lines (a text, a list) is one. A pair that says
something else now gets another value, and all comments stay. What comes out is read again and must say what was meant,
or the file is refused.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from crewhall.errors import InvalidInput
from crewhall.outside.clients.syntax_error import syntax_error

PART = re.compile(
    r"""\#[^\n]*
    |"{3}(?:[^\\]|\\.)*?(?:"{3,5}|\\?\Z)|'{3}.*?'{3,5}
    |"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*'
    |[\[{]|[\]}]|\n|=|[^\#"'\[\]{}\n=]+""",
    re.DOTALL | re.VERBOSE,
)
BOM = "\ufeff"
AT = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)

Path = tuple[str, ...]


class Statement(NamedTuple):
    """A header or a pair: where it stands, with its line's end, the table it is in, and what it names.

    `body` is where its own text ends, before blanks and a comment; `value` where a pair's value begins.
    """

    start: int
    body: int
    end: int
    table: Path
    path: Path
    value: int | None
    data: Any

    def names(self, path: Path) -> bool:
        """Whether it says something of what is at the path."""
        inner = path[len(self.path) :]
        return self.path[: len(path)] == path or (self.is_above(path) and _at(self.data, inner) is not None)

    def is_above(self, path: Path) -> bool:
        """Whether it is a pair whose value has the path in it."""
        return self.value is not None and len(self.path) < len(path) and path[: len(self.path)] == self.path


def read(text: str) -> dict[str, Any]:
    """What a text says. Raises InvalidInput."""
    body = text.removeprefix(BOM)
    try:
        return tomllib.loads(body)
    except tomllib.TOMLDecodeError as error:
        told = AT.fullmatch(str(error))
        wrong, line, column = told.groups() if told else (str(error), None, None)
        before = body.split("\n")[: int(line or 1) - 1]
        offset = sum(len(one) + 1 for one in before) + int(column) - 1 if column else len(body)
        raise syntax_error(wrong, body, offset) from None
    except RecursionError:
        raise syntax_error("this is nested too deeply", body, 0) from None


def put(text: str, path: Path, entry: Mapping[str, Any]) -> str:
    """The text with this entry at this path; pairs that say the same already stay. Raises InvalidInput."""
    old = _at(read(text), path)
    return text if old == entry else _check_edit(text, _change(text, path, old, entry), path, entry)


def drop(text: str, path: Path) -> str:
    """The text without the table at this path, and without the blank line before it. Raises InvalidInput."""
    runs = [list(run) for is_named, run in groupby(_statements(text), lambda one: one.names(path)) if is_named]
    new = text
    for run in reversed(runs):  # of statements that follow each other; comments between them go, too
        start, end = _with_blank_line(text, run[0].start, run[-1].end)
        new = new[:start] + new[end:]
    return _check_edit(text, new, path, None)


def render_table(path: Path, entry: Mapping[str, Any]) -> str:
    """Render a table as TOML; inner tables are inline."""
    pairs = [f"{_key(key)} = {_value(value)}\n" for key, value in entry.items()]
    return f"[{'.'.join(map(_key, path))}]\n{''.join(pairs)}"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {_value(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)  # a number, a date


# Changing


def _change(text: str, path: Path, old: Any, new: Any) -> str:
    """Replace the old value in the text: in its pair, or pair by pair."""
    named = [one for one in _statements(text) if one.names(path)]
    if len(named) == 1 and named[0].path == path and named[0].value is not None:
        return text[: named[0].value] + _value(new) + text[named[0].body :]
    if not named or not (isinstance(old, dict) and isinstance(new, Mapping)) or named[0].is_above(path):
        return _with_table(_without(text, path), path, new)
    for key, inner in new.items():
        if key not in old:
            text = _with_pair(text, path, key, inner)
        elif old[key] != inner:
            text = _change(text, (*path, key), old[key], inner)
    for key in old:
        text = text if key in new else _without(text, (*path, key))
    return text


def _with_table(text: str, path: Path, entry: Any) -> str:
    """The text with a table more, at its end; what is none becomes a pair."""
    if not isinstance(entry, Mapping):
        return _with_pair(text, path[:-1], path[-1], entry)
    end = _line_end(text)
    gap = "" if text in ("", BOM) else end if text.endswith("\n") else end + end
    return text + gap + render_table(path, entry).replace("\n", end)


def _with_pair(text: str, table: Path, key: str, value: Any) -> str:
    """The text with a pair more, after the last one of its table."""
    end = _line_end(text)
    named = [one for one in _statements(text) if one.path[: len(table)] == table]
    if not named:
        return _with_table(text, table, {key: value})
    beside = [one for one in named if one.table == table] or [one for one in named if len(one.table) < len(table)]
    if not beside:  # only tables in it have headers
        at = named[0].start
        return text[:at] + render_table(table, {key: value}).replace("\n", end) + text[at:]
    last = beside[-1]
    name = ".".join(map(_key, (*table[len(last.table) :], key)))
    gap = "" if text[: last.end].endswith("\n") else end
    indent = re.match(r"[ \t]*", text[last.start :])
    line = f"{indent[0] if indent else ''}{name} = {_value(value)}{end}"
    return text[: last.end] + gap + line + text[last.end :]


def _without(text: str, path: Path) -> str:
    """The text without the statements that name a path; their comments stay."""
    for one in reversed([one for one in _statements(text) if one.names(path)]):
        comment = text[one.body : one.end].lstrip()
        text = text[: one.start] + comment + text[one.end :]
    return text


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# Finding


def _statements(text: str) -> Iterator[Statement]:
    """The headers and pairs of a text that is good TOML."""
    table: Path = ()
    for start, equals, body, end in _lines(text):
        if equals is None:
            table = _names(tomllib.loads(text[start:end]))
            yield Statement(start, body, end, table, table, None, None)
            continue
        names = _names(tomllib.loads(f"{text[start:equals]}=0"))
        value = equals + 1 + len(text[equals + 1 : body]) - len(text[equals + 1 : body].lstrip())
        data = _at(tomllib.loads(text[start:end]), names)
        yield Statement(start, body, end, table, table + names, value, data)


def _lines(text: str) -> Iterator[tuple[int, int | None, int, int]]:
    """Of each statement where it begins, its equals sign, if it is a pair, its own end, and that of its last line."""
    start, depth = len(BOM) if text.startswith(BOM) else 0, 0
    equals: int | None = None
    body = start
    for match in PART.finditer(text, start):
        part, end = match[0], match.end()
        if part == "=" and equals is None and not depth:
            equals = match.start()
        depth += (part in ("[", "{")) - (part in ("]", "}"))
        if part.strip() and not part.startswith("#"):
            body = match.start() + len(part.rstrip())
        if (part == "\n" and not depth) or end == len(text):
            if body > start:
                yield start, equals, body, end
            start, equals, body = end, None, end


def _names(data: Any) -> Path:
    """The names in a key, from what it says by itself: tables in tables, or a list with one."""
    while isinstance(data, list):
        data = data[0]
    return tuple(name for key in data for name in (key, *_names(data[key]))) if isinstance(data, dict) else ()


def _at(data: Any, path: Path) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _with_blank_line(text: str, start: int, end: int) -> tuple[int, int]:
    """A span with the blank line before it, when another follows or nothing does."""
    before = re.search(r"(?<=\n)\r?\n\Z", text[:start])
    return (before.start() if before and not text[end:].partition("\n")[0].strip() else start), end


def _check_edit(old: str, new: str, path: Path, entry: Mapping[str, Any] | None) -> str:
    """Return the new text if it differs from the old one only in this table. Raises InvalidInput otherwise."""
    try:
        said = read(new)
        is_right = _at(said, path) == entry and repr(_apart(said, path)) == repr(_apart(read(old), path))
    except InvalidInput:
        is_right = False
    if is_right:
        return new
    place = next((one.start for one in _statements(old) if path[0] in one.path[:1]), 0)
    raise syntax_error(f"'{'.'.join(path)}' cannot be changed in the way that this is written", old, place)


def _apart(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """All that is said besides the table at the path; a table that held nothing else does not count."""
    inner = data.get(path[0])
    if len(path) > 1 and isinstance(inner, dict):
        inner = _apart(inner, path[1:])
    elif len(path) == 1:
        inner = None
    return {key: value for key, value in data.items() if key != path[0]} | ({path[0]: inner} if inner else {})
