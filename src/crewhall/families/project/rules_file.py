"""
Pure rules for files: which may be shown, what text their bytes are, which part of it is asked for.

    bytes ── a byte order mark? ── utf-8 or utf-16 ─┐
      └── none: NUL? binary; valid UTF-8? else latin-1 ─┴─▶ Text ── offset, limit ─▶ whole lines of it, to the byte

Bytes come piece by piece, and of a large file only the lines that are asked for are kept.
"""

import codecs
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from crewhall.errors import Forbidden, InvalidInput, LimitExceeded
from crewhall.families.project.rules_key import KEY_BYTES, has_key
from crewhall.token_budget import fit_letters, fits

WHOLE_BYTES = 64 * 1024 * 1024  # of a file that is read in parts
PIECE = 65_536
LONGEST_MARK = len(codecs.BOM_UTF8)
REPOSITORY = {".git", "git~1"}  # the second is the first on a disk of Windows
SECRET_NAME = re.compile(
    r"\.env.*|[._]netrc|\.git-credentials|\.pgpass|\.npmrc|\.pypirc|\.htpasswd|\.(ssh|aws|gnupg|kube)|operator\.token"
    r"|id_(rsa|dsa|ecdsa|ed25519|xmss)(_sk)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Text:
    """Text of a file: as UTF-8, or as it is when that is latin-1; `encoding` and `has_key` are the whole file's."""

    data: bytes
    encoding: str
    has_key: bool


@dataclass(frozen=True)
class TextPart:
    """Some lines of a text, with the number of all, and where the next begins."""

    content: str
    lines: int
    next_offset: int | None


def refuse_secret_name(path: str, allow: Sequence[str]) -> None:
    """Raise Forbidden for a path, from the root and without links, that is secret by its name or a directory's."""
    if _is_allowed(path, allow):
        return
    for name in map(_plain_name, path.split("/")):
        if name in REPOSITORY:
            raise _forbidden(path, "git's own files are not shown")
        if SECRET_NAME.fullmatch(name):
            raise _forbidden(path, f"what is called {name} often holds secrets")


def refuse_secret_text(text: Text, path: str, allow: Sequence[str]) -> None:
    """Raise Forbidden for a text with a private key in it."""
    if text.has_key and not _is_allowed(path, allow):
        raise _forbidden(path, "there is a private key in it")


def refuse_secret(path: str, data: bytes, allow: Sequence[str]) -> None:
    """Raise Forbidden for a file that is secret by its name or by what is in it, InvalidInput for what is no text."""
    refuse_secret_name(path, allow)
    refuse_secret_text(text_of(data, path), path, allow)


def _is_allowed(path: str, allow: Sequence[str]) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatchcase(path, pattern) or fnmatchcase(name, pattern) for pattern in allow)


def _plain_name(name: str) -> str:
    """The name that a file system may take this one for: whatever its case, its width, and what nobody sees in it."""
    if not name.isascii():
        characters = unicodedata.normalize("NFKC", name)
        name = "".join(character for character in characters if unicodedata.category(character) != "Cf")
    return name.casefold().rstrip(". ") or name


def _forbidden(path: str, why: str) -> Forbidden:
    return Forbidden(
        f"'{path}' is not given out: {why}",
        hint="Do without it. If it holds no secret, the operator may allow it by the setting project.allow.",
    )


def refuse_large(path: str, size: int, limit: int | None, most: int) -> None:
    """Raise LimitExceeded for a file of more bytes than are given as a whole, or with a limit in parts."""
    allowed = most if limit is None else max(most, WHOLE_BYTES)
    if size > allowed:
        hint = "Read a part of it: give limit, in lines, and offset." if size <= WHOLE_BYTES else "Name a smaller file."
        raise LimitExceeded(f"'{path}' has {size} bytes, and {allowed} are allowed", hint=hint)


def text_of(data: bytes, path: str) -> Text:
    """The text that these bytes are. Raises InvalidInput for what is none."""
    reading = Reading(path, most=len(data) * 2)  # two bytes of UTF-16 may be three of UTF-8
    reading.add(data)
    return reading.text()


class Reading:
    """A file that comes in pieces, of which some lines are kept: `limit` of them after `offset` others.

    A line ends with \\n, and keeps it. Lines of more than `most` bytes are counted, and not kept.
    """

    def __init__(self, path: str, offset: int = 0, limit: int | None = None, most: int = WHOLE_BYTES) -> None:
        self._path, self._offset, self._most = path, offset, most
        self._behind = None if limit is None else offset + limit
        self.size = 0
        self._start: bytes | None = b""  # until it is long enough to tell a byte order mark
        self._encoding = "utf-8"
        self._utf16: codecs.IncrementalDecoder | None = None
        self._utf8: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")()
        self._is_text, self._has_key = True, False
        self._data, self._wanted, self._newlines, self._tail = bytearray(), 0, 0, b""

    def add(self, piece: bytes) -> None:
        """Take the next bytes of the file."""
        self.size += len(piece)
        if self._start is not None:
            piece = self._start + piece
            self._start = piece if len(piece) < LONGEST_MARK else None
            if self._start is None:
                self._begin(piece)
        else:
            self._convert(piece)

    def _begin(self, piece: bytes) -> None:
        """The first bytes tell the encoding, as far as a mark does."""
        if piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._encoding, self._utf16 = "utf-16", codecs.getincrementaldecoder("utf-16")()
        elif piece.startswith(codecs.BOM_UTF8):
            self._encoding = "utf-8-sig"
        self._convert(piece)

    def _convert(self, piece: bytes, *, final: bool = False) -> None:
        if self._utf16 is not None and self._is_text:
            try:
                piece = self._utf16.decode(piece, final).encode()
            except UnicodeError:
                self._is_text = False
        self._is_text = self._is_text and b"\0" not in piece
        if self._is_text:
            self._look(piece, final)
            self._keep(piece)

    def _look(self, piece: bytes, final: bool) -> None:
        """Whether it is UTF-8 still, and has a key in it."""
        if self._utf8 is not None:
            try:
                for start in range(0, len(piece), PIECE):
                    self._utf8.decode(piece[start : start + PIECE])
                self._utf8.decode(b"", final)
            except UnicodeDecodeError:
                self._utf8 = None
        seen = self._tail + piece
        self._has_key = self._has_key or has_key(seen)
        self._tail = seen[-KEY_BYTES:]

    def _keep(self, piece: bytes) -> None:
        """Keep what is wanted of a piece, and count its lines."""
        before, self._newlines = self._newlines, self._newlines + piece.count(b"\n")
        start = _start_of(piece, 0, max(0, self._offset - before))
        end = len(piece) if self._behind is None else _start_of(piece, 0, max(0, self._behind - before))
        self._wanted += max(0, end - start)
        if self._wanted <= self._most:
            self._data += piece[start:end]

    def text(self) -> Text:
        """The lines that are wanted, when all pieces have come. Raises InvalidInput for what is no text."""
        if self._start is not None:
            start, self._start = self._start, None
            self._begin(start)
        self._convert(b"", final=True)
        if not self._is_text:
            raise InvalidInput(
                f"'{self._path}' is no text: {self.size} bytes with NULs among them", hint="Name a text file."
            )
        if self._utf8 is None:
            return Text(bytes(self._data), "latin-1", self._has_key)
        is_marked = self._encoding == "utf-8-sig" and not self._offset
        return Text(bytes(self._data[len(codecs.BOM_UTF8) if is_marked else 0 :]), self._encoding, self._has_key)

    def part(self) -> TextPart:
        """The same with its numbers.

        Raises InvalidInput for an offset behind the end, LimitExceeded when the lines have too many bytes.
        """
        text = self.text()
        has_more = not self._tail.endswith(b"\n") and self._tail not in (b"", codecs.BOM_UTF8)
        lines = self._newlines + has_more
        if self._offset > lines:
            raise InvalidInput(
                f"'{self._path}' has {lines} lines, and offset is {self._offset}", hint="Begin before its end."
            )
        if self._wanted > self._most:
            raise LimitExceeded(
                f"these lines have {self._wanted} bytes, and {self._most} are allowed", hint="Give less as limit."
            )
        content = text.data.decode("latin-1" if text.encoding == "latin-1" else "utf-8")
        return TextPart(content, lines, self._behind if self._behind is not None and self._behind < lines else None)


def fit_lines(part: TextPart, offset: int, room: int) -> dict[str, Any]:
    """What an answer with so many tokens of room says of a part: whole lines of it, or the beginning of the first.

    A line that alone is too long is skipped by `next_offset`; `left_out` says how many of its letters are missing.
    """
    if fits(part.content, room):
        return {}
    head = fit_letters(part.content, room)
    end = head.rfind("\n") + 1
    if end:
        return {"content": head[:end], "next_offset": offset + head.count("\n")}
    line = part.content.find("\n") + 1 or len(part.content)
    following = offset + 1 if offset + 1 < part.lines else None
    return {"content": head, "next_offset": following, "left_out": line - len(head)}


def _start_of(data: bytes, start: int, lines: int) -> int:
    """Where so many lines from a start on have ended."""
    while lines:
        newlines = data.count(b"\n", start, start + PIECE)
        if newlines >= lines:
            break
        lines, start = lines - newlines, start + PIECE
        if start >= len(data):
            return len(data)
    for _ in range(lines):
        start = data.index(b"\n", start) + 1
    return start
