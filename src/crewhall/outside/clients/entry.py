"""Where an entry belongs: the client's file, and the way to it in there; what stands there, and how it is changed."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crewhall.errors import InvalidInput
from crewhall.outside.clients import jsonc, toml
from crewhall.outside.clients.catalog import Entry, Keys, KnownClient
from crewhall.outside.clients.jsonc_read import parse
from crewhall.outside.clients.settings_file import SettingsChange, change, text_of
from crewhall.outside.repository_paths import repository_root

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class EntryLocation:
    """The location of an entry: a name in the server table of a client's file."""

    client: KnownClient
    file: Path
    keys: Keys
    entry: Entry | None = None  # what stands there now

    def try_put(self) -> None:
        """Raise what `put` would, as far as the file's text decides it; nothing is changed."""
        with _about(self.file):
            _form(self.client).put(text_of(self.file), self.keys, {**(self.entry or {}), "command": ""})

    def put(self, entry: Entry, *, is_secret: bool) -> SettingsChange:
        """Let this entry stand there. Raises InvalidInput, Conflict, OSError; the file is then as it was."""
        with _about(self.file):
            return change(self.file, lambda text: _form(self.client).put(text, self.keys, entry), is_secret=is_secret)

    def drop(self) -> SettingsChange:
        """Let nothing stand there. Raises as put does."""
        with _about(self.file):
            return change(self.file, lambda text: _form(self.client).drop(text, self.keys), is_secret=False)

    def snippet(self, entry: Entry) -> str:
        """A whole file with nothing but this entry."""
        if self.client.is_toml:
            return toml.render_table(self.keys, entry)
        whole: Any = entry
        for key in reversed(self.keys):
            whole = {key: whole}
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def find(client: KnownClient, name: str, scope: str, directory: Path, file: str | None) -> EntryLocation:
    """The place for a name, in the file that has it, or one that is there. Raises InvalidInput, OSError."""
    files = [Path(file).expanduser().absolute()] if file else client.files(scope, directory)
    places = [_place(client, name, scope, directory, one) for one in files]
    there = [place for place in places if place.file.exists()]
    named = [place for place in there if place.entry is not None]
    return (named or there or places)[-1]


def default_location(client: KnownClient, name: str, scope: str, directory: Path, file: str | None) -> EntryLocation:
    """The location that `find` chooses without reading files: for a file that cannot be read."""
    last = Path(file).expanduser().absolute() if file else client.files(scope, directory)[-1]
    return EntryLocation(client, last, (*_table(client, scope, directory, {}), name))


def is_ours(client: KnownClient, name: str, entry: Entry, urls: list[str]) -> bool:
    """Whether an entry leads to a hall, of whatever place and port: it starts a bridge, or has the URL of a hub."""
    words = client.words(entry)
    if words:
        return "mcp" in words and any(os.path.basename(word) == "crewhall" for word in words)
    url = str(entry.get("url") or entry.get("httpUrl") or "")
    token = client.token(entry) or ""
    if token.startswith("ch_") or any(url.startswith(f"{hub}/mcp") for hub in urls):
        return True
    parts = urlsplit(url)
    return name.startswith("crewhall") and parts.hostname in LOOPBACK and parts.path.startswith("/mcp")


def _form(client: KnownClient) -> Any:
    return toml if client.is_toml else jsonc


def _place(client: KnownClient, name: str, scope: str, directory: Path, file: Path) -> EntryLocation:
    with _about(file):
        text = text_of(file)
        told = toml.read(text) if client.is_toml else parse(text, extras=client.extras).data
    keys = (*_table(client, scope, directory, told), name)
    found = told
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return EntryLocation(
        client, file, keys, None if found is None else dict(found) if isinstance(found, Mapping) else {}
    )


def _table(client: KnownClient, scope: str, directory: Path, told: Any) -> Keys:
    """Claude Code has one local table for a repository, its main working tree's, whichever worktree it runs in."""
    if scope == "local":
        return ("projects", repository_root(str(directory)) or str(directory), *client.servers)
    return client.table(told)


@contextmanager
def _about(file: Path) -> Iterator[None]:
    """A refusal in the block names the file."""
    try:
        yield
    except InvalidInput as failure:
        raise InvalidInput(f"{file}, {failure.message}", failure.hint, **failure.fields) from None
