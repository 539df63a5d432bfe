"""
JSON with comments, read into values that know where they stand: `// …`, `/* … */`, and a comma after the last item.

Only the objects on the way to one place are taken apart. What lies beside it Python's own reader skips, which is a
hundred times faster; where that finds something odd, the reader here tells what it is.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from crewhall.errors import InvalidInput
from crewhall.outside.clients.syntax_error import syntax_error

TOKEN = re.compile(
    r"""(?P<gap>[ \t\r\n]+)
    |(?P<comment>//[^\r\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")
    |(?P<word>[-+.\w]+)
    |(?P<sign>[{}\[\],:])""",
    re.DOTALL | re.VERBOSE,
)
BOM = "\ufeff"
EXTRAS = ("a byte order mark", "a comment", "a comma after the last item")  # what is no JSON, and some clients read
MARK, COMMENT, COMMA = EXTRAS

Path = tuple[str, ...]


@dataclass
class Value:
    """A value, and where its text begins and ends; an object on the way has its members in their order."""

    start: int
    end: int
    data: Any
    members: "list[Member] | None" = None


@dataclass
class Member:
    """A name in an object, where it begins, and where its comma is, if one follows it."""

    key: str
    start: int
    value: Value
    comma: int | None = None


def parse(text: str, path: Path = (), extras: Path = EXTRAS) -> Value:
    """The one object that a text is, with the members of those on the path; nothing but blanks is an empty one.

    Raises InvalidInput, also for what is no JSON and not among the extras.
    """
    reader = _Reader(text, extras)
    if reader.now.kind == "end":
        return Value(len(text), len(text), {}, [])
    try:
        value = reader.value(path)
    except RecursionError:
        raise syntax_error("this is nested too deeply", text, reader.now.start) from None
    if reader.now.kind != "end":
        raise reader.wrong(reader.now, "the end of the file")
    if value.members is None:
        raise syntax_error("an object should stand here", text, value.start)
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


PLAIN = json.JSONDecoder(parse_constant=_refuse)


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class _Reader:
    def __init__(self, text: str, extras: Path) -> None:
        self.text, self.extras = text, extras
        if text.startswith(BOM):
            self._extra(MARK, 0)
        self.now = self._token(len(BOM) if text.startswith(BOM) else 0)

    def _token(self, at: int) -> Token:
        """The next token from here on, gaps and comments left out."""
        while at < len(self.text):
            match = TOKEN.match(self.text, at)
            if match is None:
                raise syntax_error(self._odd(at), self.text, at)
            if match.lastgroup == "comment":
                self._extra(COMMENT, at)
            elif match.lastgroup != "gap":
                return Token(match.lastgroup or "", match[0], at, match.end())
            at = match.end()
        return Token("end", "the end of the file", at, at)

    def _odd(self, at: int) -> str:
        if self.text.startswith("/*", at):
            return "this comment has no end"
        return "this text has no end" if self.text[at] == '"' else f"{self.text[at]!r} has no place in JSON"

    def _extra(self, what: str, at: int) -> None:
        if what not in self.extras:
            raise syntax_error(f"here is {what}, which this client does not read", self.text, at)

    def wrong(self, token: Token, wanted: str) -> InvalidInput:
        found = "a text" if token.kind == "string" else token.text[:40]  # which may be a secret
        return syntax_error(f"{wanted} should stand here, not {found}", self.text, token.start)

    def take(self) -> Token:
        taken = self.now
        self.now = self._token(taken.end)
        return taken

    def value(self, path: Path | None) -> Value:
        """The value that comes now; taken apart if a path is given, on which it then is."""
        token = self.take()
        if token.text == "{":
            return self._object(token, path)
        if token.text == "[":
            return self._array(token)
        if token.kind in ("string", "word"):
            return Value(token.start, token.end, self._plain(token))
        raise self.wrong(token, "a value")

    def _beside(self) -> Value:
        """The value that comes now; an object or a list at once, if it is plain JSON."""
        start = self.now.start
        try:
            data, end = PLAIN.raw_decode(self.text, start) if self.now.kind == "sign" else (None, 0)
        except (ValueError, RecursionError):
            end = 0
        if not end:
            return self.value(None)
        self.now = self._token(end)
        return Value(start, end, data)

    def _plain(self, token: Token) -> Any:
        try:
            return PLAIN.decode(token.text)
        except ValueError:
            raise self.wrong(token, "a value") from None

    def _object(self, opening: Token, path: Path | None) -> Value:
        members: list[Member] = []
        while (token := self.take()).text != "}":
            if members and members[-1].comma is None:
                raise self.wrong(token, "a comma or }")
            if token.kind != "string":
                raise self.wrong(token, "a name in double quotes or }")
            if (colon := self.take()).text != ":":
                raise self.wrong(colon, "a colon")
            key = self._plain(token)
            members.append(Member(key, token.start, self._inner(path, key)))
            members[-1].comma = self._comma("}")
        data = {member.key: member.value.data for member in members}
        return Value(opening.start, token.end, data, members)

    def _inner(self, path: Path | None, key: str) -> Value:
        """A member's value, taken apart if it is on the path; in what is odd itself, no more is tried at once."""
        if path and path[0] == key:
            return self.value(path[1:])
        return self.value(None) if path is None else self._beside()

    def _comma(self, closing: str) -> int | None:
        """Where the comma is that comes now, if one does."""
        if self.now.text != ",":
            return None
        comma = self.take().start
        if self.now.text == closing:
            self._extra(COMMA, comma)
        return comma

    def _array(self, opening: Token) -> Value:
        items: list[Any] = []
        may_follow = True
        while self.now.text != "]":
            if not may_follow:
                raise self.wrong(self.now, "a comma or ]")
            items.append(self.value(None).data)
            may_follow = self._comma("]") is not None
        return Value(opening.start, self.take().end, items)
