"""
Named SQL: one text for both databases.

A query file holds statements, each under a line `-- name: <name>` and a sentence that says what it gives.
Parameters are `:name`. What the two databases really say differently is a marker:

    {serial}       the primary key of a log: a number that grows with each insert
    {for_update}   lock the rows read until commit (SQLite's one writer needs no lock); {for_update_of:task} one table's
    {for_share}    the same against changes alone: others may share it
    {slot}         a small number that no other transaction of this moment has, or few: whose part of a sum to change
    {each:ids}     the rows of the JSON list in parameter `ids`, one text each, as a sub-select
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)\b")
_OF = re.compile(r"\{for_update_of:(\w+)\}")
_EACH = re.compile(r"\{each:(\w+)\}")


@dataclass(frozen=True)
class Dialect:
    """How one database says what the texts leave to it."""

    name: str
    serial: str
    for_update: str
    for_share: str
    slot: str
    each: str
    parameter: str = ""
    updates_join: bool = False  # UPDATE … FROM can return columns of what it joins

    def fill_markers(self, text: str) -> str:
        """The text with each marker replaced by this database's own SQL."""
        for marker in ("serial", "for_update", "for_share", "slot"):
            text = text.replace(f"{{{marker}}}", getattr(self, marker))
        text = _OF.sub(lambda m: f"{self.for_update} OF {m[1]}" if self.for_update else "", text)
        return _EACH.sub(lambda m: self.each.format(name=m[1]), text)

    def query(self, text: str) -> str:
        """The text as this database's driver takes it: markers and parameters."""
        text = self.fill_markers(text)
        if self.parameter:
            text = _PARAMETER.sub(lambda m: self.parameter.format(name=m[1]), text.replace("%", "%%"))
        return text


SQLITE = Dialect(
    name="sqlite",
    serial="INTEGER PRIMARY KEY AUTOINCREMENT",
    for_update="",
    for_share="",
    slot="0",
    each="(SELECT value FROM json_each(:{name}))",
)
POSTGRES = Dialect(
    name="postgres",
    serial="bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    for_update="FOR UPDATE",
    for_share="FOR SHARE",
    slot="(pg_backend_pid() % 32)",
    each="(SELECT value FROM json_array_elements_text(CAST(:{name} AS json)))",
    parameter="%({name})s",
    updates_join=True,
)


class Queries:
    """The statements of all rooms by name, not yet in any dialect."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.statements: dict[str, str] = {}
        for text in texts:
            for name, statement in _statements(text):
                if name in self.statements:
                    raise ValueError(f"two queries are named {name}")
                self.statements[name] = statement


def _statements(text: str) -> Iterable[tuple[str, str]]:
    parts = _NAME.split(text)[1:]
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        yield name, "\n".join(lines).strip().rstrip(";")


@cache
def text_of(package: str, name: str) -> str:
    """A file that lies beside the code of a package; read once."""
    return files(package).joinpath(name).read_text("utf-8")


@cache
def texts_in(package: str) -> tuple[str, ...]:
    """The files of queries that lie beside a package's own modules, not those of its subpackages; read once."""
    beside = (item for item in files(package).iterdir() if item.name.endswith(".sql"))
    return tuple(item.read_text("utf-8") for item in sorted(beside, key=lambda item: item.name))


def files_of(package: str | Traversable) -> Iterator[Traversable]:
    """The files of a package, those of its subpackages too, in the order of their paths."""
    top = files(package) if isinstance(package, str) else package
    for item in sorted(top.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from files_of(item)
        else:
            yield item
