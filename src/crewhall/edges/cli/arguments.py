"""The words after a tool's command as its arguments."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crewhall.edges.cli.render import usage
from crewhall.edges.http.typed_values import json_or_text, kinds_of, schema_option, typed_value
from crewhall.errors import InvalidInput
from crewhall.options import read_words
from crewhall.spelling import AT_THE_END, did_you_mean


def by_place(tool: Mapping[str, Any]) -> list[str]:
    """The arguments that may be given without their names: the required ones, then the agent that acts, then a path."""
    acting = [tool["acting"]] if tool["acting"] else []
    schema = tool["input_schema"]
    paths = [name for name in schema["properties"] if name == "path" and name not in schema.get("required", [])]
    return [*schema.get("required", []), *acting, *paths]


def arguments_of(tool: Mapping[str, Any], words: list[str]) -> dict[str, Any]:
    """A tool's arguments from the command line.

    `--some-name value` gives some_name, more than once for a list; words without a name fill the required
    arguments in their order, then the acting agent's and a path, and so do all words after `--`; `--input JSON` (or `-`
    for stdin) gives all at once.
    `@FILE` in the place of an object is what the file holds. The door judges what comes of it.
    """
    schema = tool["input_schema"]
    texts: dict[str, list[str]] = {}
    given: dict[str, Any] = {}
    free = by_place(tool)
    for word in read_words(words, lambda option, following: _takes_value(schema, option, following)):
        if not word.is_option:
            if not free:
                raise InvalidInput(f"unexpected argument '{word.text}'", hint=usage(tool).splitlines()[0])
            texts.setdefault(free.pop(0), []).append(word.text)
            continue
        name = _argument(word.name)
        if free and not _is_known(schema, name):
            raise _unknown_option(tool, word.name, free[0])
        value = _value_without_word(schema, name) if word.value is None else word.value
        if name == "input":
            given |= _whole_input(value)
        else:
            texts.setdefault(name, []).append(value)
            free = [other for other in free if other != name]
    properties = schema["properties"]
    return given | {
        name: _argument_value(properties.get(name, {"type": "string"}), values) for name, values in texts.items()
    }


def _argument_value(schema: dict[str, Any], texts: list[str]) -> Any:
    """As `typed_value`, with objects as JSON or from files. Raises InvalidInput for what is neither."""
    kinds = kinds_of(schema)
    items = schema_option(schema, "array").get("items", {}) if "array" in kinds else {}
    if len(texts) > 1 or not ("object" in kinds or items.get("type") == "object"):
        return typed_value(schema, texts)
    if "string" in kinds:
        value = json_or_text(texts[0])
        return value if isinstance(value, dict) else texts[0]
    value = _from_file(texts[0][1:]) if texts[0].startswith("@") else json_or_text(texts[0])
    if isinstance(value, str):
        hint = "Give JSON in quotes, or @FILE for what a file holds."
        if Path(texts[0][:200]).is_file():
            hint = f"It is a file: @{texts[0]} gives what it holds."
        raise InvalidInput(f"'{texts[0][:60]}' is no JSON{_where(texts[0])}", hint=hint)
    return [value] if items and isinstance(value, dict) else value


def _where(text: str) -> str:
    """What is wrong with a text that begins as JSON does, and where."""
    try:
        json.loads(text)
    except ValueError as error:
        return f": {error}" if text.strip()[:1] in "{[" else ""
    return ""


def _from_file(name: str) -> Any:
    try:
        return json.loads(Path(name).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} cannot be read as JSON: {error}", hint="Name a file of JSON.") from None


def _argument(option: str) -> str:
    """The argument that an option names: `--some-name` is some_name."""
    return option[2:].replace("-", "_")


def _is_switch(schema: Mapping[str, Any], name: str) -> bool:
    return bool(schema["properties"].get(name, {}).get("type") == "boolean")


def _takes_value(schema: Mapping[str, Any], option: str, following: str) -> bool:
    """Whether the word after an option is its value. A switch takes `true` and `false` only."""
    if not option.startswith("--") or following.startswith("--"):
        return False
    return not _is_switch(schema, _argument(option)) or following in ("true", "false")


def _value_without_word(schema: Mapping[str, Any], name: str) -> str:
    """The value of `--name` alone: `true` for a switch, and for a name that the door will refuse."""
    if _is_known(schema, name) and not _is_switch(schema, name):
        flag = f"--{name.replace('_', '-')}"
        hint = f"One that begins with -- is given as {flag}=VALUE. If {flag} is a text itself, put -- before it."
        raise InvalidInput(f"{flag} needs a value", hint=hint)
    return "true"


def _is_known(schema: Mapping[str, Any], name: str) -> bool:
    return name == "input" or name in schema["properties"]


def _unknown_option(tool: Mapping[str, Any], option: str, place: str) -> InvalidInput:
    """The failure for an option that the tool does not have, where its text could stand in this place."""
    known = [f"--{name.replace('_', '-')}" for name in tool["input_schema"]["properties"]]
    return InvalidInput(
        f"unknown option '{option[:60]}'{did_you_mean(option, known, AT_THE_END)}",
        hint=f"If it is the {place.upper()}, put -- before it. {usage(tool).splitlines()[0]}",
    )


def _whole_input(text: str) -> dict[str, Any]:
    try:
        value = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidInput("--input is not a JSON object", hint="""Such as --input '{"name": "ada"}'.""")
    return value
