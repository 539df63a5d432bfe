"""Plain data for people: tables, facts, usage. No colour codes where no terminal is."""

import json
import re
import textwrap
import time
from collections.abc import Mapping, Sequence
from typing import Any

CELL = 44
PATH_CELL = 72
CONTROL = re.compile("[\x7f-\x9f\u2028\u2029]")  # that JSON may hold as they are


def result(body: Mapping[str, Any]) -> str:
    """A tool's body: its list as a table, its other facts below; one with objects in it, fact by fact."""
    if any(isinstance(value, dict) and _block(value) for value in body.values()):
        return facts(body)
    tables = [(key, value) for key, value in body.items() if isinstance(value, list) and _is_rows(value)]
    plain = {key: value for key, value in body.items() if key not in dict(tables)}
    parts = [(f"{key.replace('_', ' ')}:\n" if len(tables) > 1 else "") + _rows(rows) for key, rows in tables]
    if plain:
        parts.append(facts(plain))
    return "\n\n".join(parts)


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table; those with texts of several lines one below the other."""
    if any(isinstance(value, str) and "\n" in value for row in rows for value in row.values()):
        return "\n\n".join(facts(row) for row in rows)
    return table(rows)


def _is_rows(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def _is_named(values: Sequence[Any]) -> bool:
    """Whether these are rows with whole objects in them, of which the names are enough."""
    return bool(values) and all(
        isinstance(one, dict) and "name" in one and any(isinstance(part, dict) for part in one.values())
        for one in values
    )


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows in columns; a column that is empty in all of them is left out."""
    names = [name for name in rows[0] if any(row.get(name) not in (None, [], {}) for row in rows)]
    cells = [[_cell(name, row.get(name)) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(names)]
    lines = [[name.upper().replace("_", " ") for name in names], *cells]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def facts(body: Mapping[str, Any]) -> str:
    """One fact a line; what has parts of its own, or lines, stands below its name."""
    body = {_text("", name): value for name, value in body.items()}
    blocks = {name: _block(value) for name, value in body.items()}
    width = max((len(name) for name in body if blocks[name] is None), default=0)
    return "\n".join(_fact(name.replace("_", " "), value, blocks[name], width) for name, value in body.items())


def _fact(name: str, value: Any, block: str | None, width: int) -> str:
    if block is None:
        return f"{name.ljust(width)}  {_text(name.replace(' ', '_'), value)}"
    return f"{name}:\n{textwrap.indent(block, '  ')}"


def _block(value: Any) -> str | None:
    """A value that takes several lines: an object, rows, a text with lines."""
    if isinstance(value, dict) and not all(isinstance(one, int) for one in value.values()):
        return facts(value)
    if isinstance(value, list) and _is_rows(value):
        return None if _is_named(value) else _rows(value)
    if isinstance(value, str) and "\n" in value.strip():
        return "\n".join(_text("", line) for line in value.strip().split("\n"))
    return None


def event(entry: Mapping[str, Any]) -> str:
    """One event on a line: its number, when, what, on what, the change of status, and by whom."""
    change = f"  {entry['before_status'] or 'new'} → {entry['after_status']}" if entry["after_status"] else ""
    at = time.strftime("%H:%M:%S", time.localtime(entry["at"] / 1000))
    subject, actor = (
        _text(part, f"{entry[f'{part}_name']} ({entry[part]})" if entry.get(f"{part}_name") else entry[part])
        for part in ("subject", "actor")
    )
    url = (
        _text("url", f"  {entry['data']['url']}")
        if isinstance(entry.get("data"), dict) and "url" in entry["data"]
        else ""
    )
    return f"{entry['seq']:>6}  {at}  {entry['what']:<20} {subject}{change}{url}  by {actor}"


def _cell(name: str, value: Any) -> str:
    """A value in short: a state's name, a path's end, the ids of rows; of an object with rows in it its plain facts."""
    if isinstance(value, list) and _is_rows(value) and all("id" in one for one in value):
        value = ", ".join(one["id"] for one in value)
    if isinstance(value, dict) and "evidence" in value:
        return _text(name, value["name"])
    if isinstance(value, dict) and any(isinstance(one, list) and _is_rows(one) for one in value.values()):
        plain = {key: one for key, one in value.items() if one is not None and not isinstance(one, dict | list)}
        return ", ".join(f"{key.replace('_', ' ')} {_text(key, one)}" for key, one in plain.items())
    text = _text(name, value)
    if name == "path":
        return text if len(text) <= PATH_CELL else "…" + text[1 - PATH_CELL :]
    return text if len(text) <= CELL else text[: CELL - 1] + "…"


def _text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "at" or (name.endswith(("_at", "since")) and isinstance(value, int)):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value / 1000))
    if isinstance(value, list) and _is_named(value):
        value = [one["name"] for one in value]
    if isinstance(value, list) and not _is_rows(value):
        value = ", ".join(str(item) for item in value) or "-"
    if isinstance(value, dict) and value and all(isinstance(one, int) for one in value.values()):
        value = ", ".join(f"{key} {one}" for key, one in value.items())
    text = value.removesuffix("\n") if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return harmless(text)


def harmless(text: str) -> str:
    """A stranger's text on one line, without what would steer a terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def failure(message: str, hint: str) -> str:
    """An error for people: what went wrong, and below it what to do. Further lines of either are indented."""
    parts = [*message.split("\n"), *hint.split("\n")]
    return f"crewhall: {harmless(parts[0])}\n" + "".join(f"  {harmless(line)}\n" for line in parts[1:])


def json_line(body: Mapping[str, Any]) -> str:
    """A body for programs, on one line; what would steer a terminal is escaped."""
    text = json.dumps(body, ensure_ascii=False)
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def findings(rows: Sequence[Mapping[str, str]]) -> str:
    """The doctor's table; a hint under what is not right."""
    lines = []
    for row in rows:
        lines.append(f"{row['state'].ljust(6)} {row['what'].ljust(10)} {harmless(row['finding'])}")
        if row["hint"]:
            lines.append(f"{'':18}{harmless(row['hint'])}")
    return "\n".join(lines)


def verbs(noun: str, tools: Sequence[Mapping[str, Any]]) -> str:
    """The verbs of a noun, a line each."""
    width = max(len(tool["command"][1]) for tool in tools)
    lines = [f"  {tool['command'][1].ljust(width)}  {_first_sentence(tool)}" for tool in tools]
    return "\n".join(
        [f"usage: crewhall {noun} <verb> …", "", *lines, "", f"crewhall {noun} <verb> --help explains one."]
    )


def _first_sentence(tool: Mapping[str, Any]) -> str:
    text = str(tool["description"]).split("\n\n")[0].replace("\n", " ")
    return text.split(". ")[0].rstrip(".") + "."


def usage(tool: Mapping[str, Any]) -> str:
    """How a tool is called from the command line."""
    schema = tool["input_schema"]
    required = schema.get("required", [])
    optional = [name for name in schema["properties"] if name not in required]
    head = " ".join(
        ["usage: crewhall", *tool["command"], *(name.upper() for name in required)]
        + [f"[{name.upper()}]" if name == "path" else f"[--{name.replace('_', '-')} …]" for name in optional]
    )
    rows = [_option(name, schema["properties"][name]) for name in (*required, *optional)]
    return "\n".join([textwrap.fill(head, 100, subsequent_indent="    "), "", tool["description"], "", *rows]).rstrip()


def _option(name: str, schema: Mapping[str, Any]) -> str:
    kinds = [_kind(option) for option in schema.get("anyOf", [schema])]
    kind = " or ".join(one.removesuffix(", or @FILE") if "text" in kinds else one for one in kinds)
    notes = [
        kind,
        schema.get("description", ""),
        f"default {_default(schema['default'])}" if "default" in schema else "",
    ]
    return f"  --{name.replace('_', '-').ljust(18)} {'; '.join(note.rstrip('.') for note in notes if note)}"


def _default(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(str(word) for word in schema["enum"])
    if schema.get("type") == "array" and schema["items"].get("type") != "object":
        return f"{_kind(schema['items'])}, more than once or with commas"
    if schema.get("type") in ("array", "object"):
        return f"JSON {_shape(schema)}, or @FILE"
    return {"string": "text", "integer": "number"}.get(schema.get("type", ""), str(schema.get("type")))


def _shape(schema: Mapping[str, Any]) -> str:
    """What an object holds, by name; what may be left out has a question mark, and one of a few words tells them."""
    if "enum" in schema:
        return _kind(schema)
    if schema.get("type") == "array":
        return f"[{_shape(schema['items'])}]"
    required = schema.get("required", [])
    parts = [
        name
        + ("" if name in required else "?")
        + (f": {inner}" if (inner := _shape(one)).startswith(("{", "[{")) or "enum" in one else "")
        for name, one in schema.get("properties", {}).items()
    ]
    return f"{{{', '.join(parts)}}}" if parts else "object"
