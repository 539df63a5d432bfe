"""
Calls as nobody means them: made from the tools' schemas, with hostile values in the places of good ones.

    schema ─▶ a value that nearly fits ─▶ arguments ─▶ a call, sometimes of a tool or with a shape that there is not
"""

import json
import random
from dataclasses import dataclass
from typing import Any

from crewhall.tool import Tool

DEEP: Any = "x"
for _ in range(70):
    DEEP = [DEEP]
TEXTS: list[str] = [
    *(
        "",
        " ",
        "\0",
        "a\0b",
        "\ud800",
        "\u202egnp.exe",
        "e\u0301\U0001f9f9",
        "\r\n\r\nHost: x",
        "\x1b[2J",
        "\x7f",
        "null",
    ),
    *(
        "../../etc/passwd",
        "/proc/self/environ",
        "-rf",
        "--upload-pack=x",
        "$(id)",
        "`id`",
        "%s%n{}",
        "{{a}}",
        "*" * 300,
    ),
    *(
        "'; DROP TABLE agent;--",
        "crewhall://agents/%00",
        "http://[::1",
        "1e400",
        "9" * 400,
        "wf_",
        "ag_",
        "tk_0",
        "operator",
    ),
    *("CRITICAL_HALT: x", "a" * 101, "b" * 201, "c" * 2_001, "d " * 6_000, "\u4e00" * 3_000, "x/" * 3_000, "br_1"),
]
NUMBERS: list[Any] = [0, -1, 1, 2**31, 2**53, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308, True]
NOT_JSON = [float("nan"), float("inf")]
ODD: list[Any] = [
    None,
    [],
    {},
    [[]],
    {"": ""},
    DEEP,
    ["x"] * 600,
    dict.fromkeys(map(str, range(60))),
    {"x": {"x": ["x"]}},
]
METHODS = (
    *("tools/list", "tools/call", "resources/list", "resources/read", "resources/templates/list", "prompts/list"),
    *("prompts/get", "completion/complete", "ping", "initialize", "server/discover", "logging/setLevel", "tasks/get"),
    *("notifications/initialized", "notifications/cancelled", "notifications/progress", "roots/list", "no/such", ""),
)


@dataclass(frozen=True)
class Known:
    """What is in the hall, so that some calls come far: ids by how they begin, addresses, and prompts' names."""

    ids: list[str]
    addresses: list[str]
    prompts: list[str]


class Grammar:
    """Makes calls of these tools; the same seed makes the same ones."""

    def __init__(self, tools: list[Tool], known: Known, seed: str) -> None:
        self._tools, self._known = tools, known
        self.choice = random.Random(seed)

    def of(self, tools: list[Tool]) -> "Grammar":
        """The same for these tools."""
        made = Grammar(tools, self._known, "")
        made.choice = self.choice
        return made

    def tool(self) -> Tool:
        return self.choice.choice(self._tools)

    def arguments(self, tool: Tool) -> Any:
        """Arguments of a tool, or what somebody takes for them."""
        if self._often(0.03):
            return self.anything()
        schema = tool.input_schema
        wanted = set(schema.get("required", []))
        made = {
            name: self._value(one)
            for name, one in schema["properties"].items()
            if (name in wanted and not self._often(0.03)) or self._often(0.4)
        }
        if self._often(0.08):
            made[self.choice.choice([*TEXTS, *made, "zzz"])] = self.anything()
        if self._often(0.01):
            made |= dict.fromkeys(map(str, range(2_000)), 1)
        return made

    def _value(self, schema: dict[str, Any]) -> Any:
        if self._often(0.12):
            return self.anything()
        option = self.choice.choice(schema.get("anyOf", [schema]))
        if "enum" in option:
            return self.choice.choice([*option["enum"], "zzz"])
        match option.get("type"):
            case "string":
                return self._text()
            case "integer" | "number":
                return self.choice.choice([option.get("minimum", 1), option.get("maximum", 7), 3, *NUMBERS])
            case "boolean":
                return self._often(0.5)
            case "array":
                return [self._value(option["items"]) for _ in range(self.choice.choice([0, 1, 1, 2, 3, 30]))]
            case "object":
                fields = option.get("properties", {})
                return {name: self._value(one) for name, one in fields.items() if self._often(0.8)} or {
                    "k": self._text()
                }
        return self.anything()

    def _text(self) -> str:
        return self.choice.choice(self._known.ids) if self._often(0.6) else self.choice.choice([*TEXTS, "a", "ada"])

    def anything(self) -> Any:
        return self.choice.choice([*TEXTS, *NUMBERS, *ODD, self._text()])

    def _often(self, share: float) -> bool:
        return self.choice.random() < share

    def message(self) -> tuple[str, dict[str, Any]]:
        """A JSON-RPC message, and the method that it has or seems to have."""
        method, params = self._request()
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self.choice.choice([1, 7, "x", 2**53]), "method": method}
        if params is not None:
            message["params"] = params
        if self._often(0.06):
            message[self.choice.choice(["jsonrpc", "id", "method", "params", "result", "error", "x"])] = self.anything()
        if self._often(0.03):
            message.pop(self.choice.choice([*message]))
        return method, message

    def _request(self) -> tuple[str, Any]:
        if self._often(0.6):
            tool = self.tool()
            name = self.choice.choice([tool.name] * 20 + [tool.name[1:], *TEXTS[:3], "n" * 5_000])
            return "tools/call", {"name": name, "arguments": self.arguments(tool)}
        method = self.choice.choice(METHODS)
        match method:
            case "resources/read":
                return method, {"uri": self._address()}
            case "prompts/get":
                given = {self._text()[:50]: self._text() for _ in range(self.choice.randint(0, 3))}
                return method, {"name": self._prompt(), "arguments": given | {"name": self._text()}}
            case "completion/complete":
                refs = [
                    {"type": "ref/prompt", "name": self._prompt()},
                    {"type": "ref/resource", "uri": self._address()},
                ]
                argument = {"name": self.choice.choice(["name", "id", "role", *TEXTS]), "value": self._text()}
                return method, {"ref": self.choice.choice(refs), "argument": argument}
            case "initialize":
                version = self.choice.choice(["2024-11-05", "2025-06-18", "2026-07-28", *TEXTS])
                who = {"name": self._text(), "version": self._text()}
                return method, {"protocolVersion": version, "capabilities": self.choice.choice(ODD), "clientInfo": who}
        return method, self.choice.choice([None, {}, {"cursor": self._text()}, {"level": "info"}, {"requestId": 1}])

    def _address(self) -> str:
        address = self.choice.choice(self._known.addresses)
        while "{" in address:
            head, _, rest = address.partition("{")
            address = head + self._text() + rest.partition("}")[2]
        return address if self._often(0.8) else self.choice.choice(TEXTS)

    def _prompt(self) -> str:
        return self.choice.choice([*self._known.prompts * 3, *TEXTS])

    def raw(self, value: Any) -> bytes:
        """The value as JSON; now and then with a few bytes that are wrong."""
        body = bytearray(json.dumps(value).encode())
        if self._often(0.03):
            for _ in range(self.choice.randint(1, 4)):
                body[self.choice.randrange(len(body))] = self.choice.randrange(256)
        if self._often(0.01):
            del body[self.choice.randrange(len(body)) :]
        return bytes(body)
