"""Words to values: what a query string or a command line says, typed as the tool's schema asks."""

import json
from collections.abc import Iterable
from typing import Any


def typed(schema: dict[str, Any], texts: Iterable[str]) -> Any:
    """The texts given for one argument as a value; what does not fit is left as text, for the door to refuse."""
    texts = list(texts)
    kinds = _kinds(schema)
    if "array" in kinds:
        return _items(schema, texts)
    text = texts[-1]
    if "null" in kinds and text == "null":
        return None
    if "string" in kinds:
        return text
    return _json(text)


def _items(schema: dict[str, Any], texts: list[str]) -> Any:
    if len(texts) == 1 and texts[0].startswith("["):
        return _json(texts[0])
    pieces = [piece for text in texts for piece in text.split(",")]
    item = _option(schema, "array").get("items", {})
    return [typed(item, [piece]) for piece in pieces]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _kinds(schema: dict[str, Any]) -> set[str]:
    return {option.get("type", "") for option in schema.get("anyOf", [schema])}


def _option(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(option for option in schema.get("anyOf", [schema]) if option.get("type") == kind)
