"""Words to values: what a query string or a command line says, typed as the tool's schema asks."""

import json
from collections.abc import Iterable
from typing import Any


def typed_value(schema: dict[str, Any], texts: Iterable[str]) -> Any:
    """The texts given for one argument as a value; what does not fit is left as text, for the door to refuse."""
    texts = list(texts)
    kinds = kinds_of(schema)
    if "array" in kinds:
        return _items(schema, texts)
    if len(texts) > 1:
        return texts  # said twice: the door refuses a list where one value belongs
    text = texts[0]
    if "null" in kinds and text == "null":
        return None
    if "string" in kinds:
        return text
    return json_or_text(text)


def _items(schema: dict[str, Any], texts: list[str]) -> Any:
    if len(texts) == 1 and texts[0].startswith("["):
        return json_or_text(texts[0])
    pieces = [piece for text in texts for piece in text.split(",")]
    item = schema_option(schema, "array").get("items", {})
    return [typed_value(item, [piece]) for piece in pieces]


def json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def kinds_of(schema: dict[str, Any]) -> set[str]:
    return {option.get("type", "") for option in schema.get("anyOf", [schema])}


def schema_option(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(option for option in schema.get("anyOf", [schema]) if option.get("type") == kind)
