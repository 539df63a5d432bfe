"""
The hosts' own descriptions of their APIs, and what an exchange with a host has against them.

    problems("github", exchange) -> []          a request that GitHub takes, an answer that GitHub gives

The descriptions are no part of the project: they lie beside it (../shared/hosts), or where CREWHALL_HOSTS_DIR says.
Without them nothing is found, and the tests of the finding itself (`need_descriptions`) are skipped with that reason.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import jsonschema_rs
import pytest

from crewhall.fakehosts.host import Exchange

HostName = Literal["github", "gitea"]
Schema = dict[str, Any]
PLACE = Path(os.environ.get("CREWHALL_HOSTS_DIR") or Path(__file__).resolve().parents[2].parent / "shared" / "hosts")
HERE = all((PLACE / f"{name}-openapi.json").is_file() for name in ("github", "gitea"))
GENERAL = {301, 307, 401, 403, 404, 429}  # what any path may answer, and 5xx; the descriptions name them here and there
ERROR = {"github": "basic-error", "gitea": "APIError"}
NO_BODY = {"type": "null"}
need_descriptions = pytest.mark.skipif(
    not HERE, reason="no request or answer is held against the hosts' descriptions: see tests/hosts/descriptions.py"
)


def problems(host: HostName, exchange: Exchange) -> list[str]:
    """What the host's description has against a request and its answer; nothing is said of a dropped answer."""
    if not HERE:
        return []
    description = load_description(host)
    found = description.find(exchange.method, exchange.path)
    if found is None:
        return [f"no path for {exchange.method} {exchange.path}"]
    said = [*description.path_problems(found), *description.query_problems(found, exchange.query)]
    said += description.body_problems(found, exchange.body)
    is_told = exchange.status and not (exchange.fault and exchange.answer is None)
    said += description.answer_problems(found, exchange.status, exchange.answer) if is_told else []
    return [f"{exchange.method} {exchange.path} {exchange.status}: {one}" for one in said]


@dataclass(frozen=True)
class Found:
    """An operation, and the parts of the path that it was found by."""

    operation: Schema
    parts: dict[str, str]


@cache
def load_description(host: HostName) -> "Description":
    return Description(host, json.loads((PLACE / f"{host}-openapi.json").read_bytes()))


class Description:
    def __init__(self, host: HostName, document: Schema) -> None:
        self.host = host
        self.document = plain(document)
        paths: dict[str, Schema] = self.document["paths"]
        by_words = sorted(paths, key=lambda one: -len(re.sub(r"\{\w+\}", "", one)))  # fixed words win
        self._paths = [(self._pattern(template, paths[template]), paths[template]) for template in by_words]
        self._validators: dict[str, jsonschema_rs.Validator] = {}

    def _pattern(self, template: str, operations: Schema) -> re.Pattern[str]:
        """What a path matches: a text at its end may hold slashes, and so may a reference in the middle."""
        every = [one for operation in operations.values() for one in self._parameters(operation, "path")]
        texts = {one["name"] for one in every if one["schema"].get("type") == "string"}
        pieces = re.split(r"\{(\w+)\}", template)  # text, name, text, name, …, text
        for index in range(1, len(pieces), 2):
            name, is_last = pieces[index], index == len(pieces) - 2 and not pieces[-1]
            is_wide = name in texts - {"repo"} and (is_last or name == "ref")
            pieces[index] = f"(?P<{name}>{'.+' if is_wide else '[^/]+'})"
        return re.compile("".join(re.escape(one) if index % 2 == 0 else one for index, one in enumerate(pieces)))

    def find(self, method: str, path: str) -> Found | None:
        """The operation for a path. What is found by a repository's number is the same as by its name."""
        named = re.sub(r"^/repositories/\d+", "/repos/owner/repo", path)
        for pattern, operations in self._paths:
            match = pattern.fullmatch(named)
            if match and method.lower() in operations:
                parts = {name: unquote(part) for name, part in match.groupdict().items()}
                return Found(operations[method.lower()], parts)
        return None

    def path_problems(self, found: Found) -> Iterator[str]:
        for one in self._parameters(found.operation, "path"):
            if one["name"] in found.parts:
                yield from self._text_problems(one, found.parts[one["name"]])

    def query_problems(self, found: Found, query: dict[str, str]) -> Iterator[str]:
        known = {one["name"]: one for one in self._parameters(found.operation, "query")}
        yield from (f"unknown query parameter {name}" for name in query.keys() - known.keys())
        yield from (f"no {name} in the query" for name in known if known[name].get("required") and name not in query)
        for name in query.keys() & known.keys():
            yield from self._text_problems(known[name], query[name])

    def body_problems(self, found: Found, body: Any) -> Iterator[str]:
        wanted = found.operation.get("requestBody")
        if wanted is None or body is None:
            is_wrong = body is not None if wanted is None else bool(wanted.get("required"))
            yield from ["a body where none belongs" if wanted is None else "no body"] if is_wrong else []
            return
        schema = self._resolve(wanted)["content"]["application/json"]["schema"]
        yield from self._validate(schema, body, "body")
        yield from self._unknown([schema], body, "body")

    def answer_problems(self, found: Found, status: int, answer: Any) -> Iterator[str]:
        responses = found.operation["responses"]
        if str(status) not in responses and status not in GENERAL and status < 500:
            yield f"status {status} is not documented, only {', '.join(responses)}"
        schema = self._answer_schema(self._resolve(responses.get(str(status), {})), status)
        yield from self._validate(schema, answer, "answer")

    def _answer_schema(self, response: Schema, status: int) -> Schema:
        content = response.get("content", {})
        if "application/json" in content:
            schema: Schema = content["application/json"]["schema"]
            return schema
        error = {"allOf": [{"$ref": f"#/components/schemas/{ERROR[self.host]}"}, {"required": ["message"]}]}
        return error if status >= 400 else {"anyOf": [error, NO_BODY]} if status >= 300 else NO_BODY

    def _parameters(self, operation: Schema, place: str) -> Iterator[Schema]:
        resolved = (self._resolve(one) for one in operation.get("parameters", ()))
        return (one for one in resolved if one["in"] == place)

    def _text_problems(self, parameter: Schema, text: str) -> list[str]:
        """What is wrong with a value that came as text."""
        kind, value = parameter["schema"].get("type"), text
        if kind in ("integer", "boolean"):
            try:
                value = json.loads(text)
            except ValueError:
                return [f"{parameter['name']} is no {kind}: {text}"]
        return list(self._validate(parameter["schema"], [text] if kind == "array" else value, parameter["name"]))

    def _validate(self, schema: Schema, value: Any, what: str) -> Iterator[str]:
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            whole = {"components": self.document["components"], "allOf": [schema]}
            self._validators[key] = jsonschema_rs.validator_for(whole, validate_formats=True)
        for error in self._validators[key].iter_errors(value):
            yield f"{what} {'/'.join(map(str, error.instance_path))}: {error.message[:300]}"

    def _unknown(self, schemas: list[Schema], value: Any, at: str) -> Iterator[str]:
        """The properties that no schema declares, at any depth; where none is declared, all are free."""
        choices = [one for schema in schemas for one in self._choices(schema)]
        if isinstance(value, list):
            items = [one["items"] for one in choices if "items" in one]
            for index, inner in enumerate(value):
                yield from self._unknown(items, inner, f"{at}/{index}")
        elif isinstance(value, dict) and (objects := [one["properties"] for one in choices if "properties" in one]):
            for name, inner in value.items():
                declared = [one[name] for one in objects if name in one]
                yield from [] if declared else [f"{at}: unknown property {name}"]
                yield from self._unknown(declared, inner, f"{at}/{name}")

    def _choices(self, schema: Schema) -> Iterator[Schema]:
        """The schema and what it is made of."""
        whole = self._resolve(schema)
        yield whole
        for word in ("oneOf", "anyOf", "allOf"):
            for one in whole.get(word, ()):
                yield from self._choices(one)

    def _resolve(self, thing: Schema) -> Schema:
        while "$ref" in thing:
            reference = thing["$ref"].removeprefix("#/").split("/")
            thing = self.document
            for part in reference:
                thing = thing[part]
        return thing


def plain(thing: Any) -> Any:
    """OpenAPI 3.0 as JSON Schema: what is nullable may be null."""
    if isinstance(thing, list):
        return [plain(one) for one in thing]
    if not isinstance(thing, dict):
        return thing
    made = {name: plain(value) for name, value in thing.items()}
    if made.get("nullable") is not True:
        return made
    del made["nullable"]
    if "enum" in made:
        made["enum"] = [*made["enum"], None]
    if "type" in made:
        return {**made, "type": [made["type"], "null"]}
    return {"anyOf": [made, NO_BODY]}
