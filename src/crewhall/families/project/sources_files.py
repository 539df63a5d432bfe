"""What a worktree's own files say to a newcomer: the beginnings of its README, manifests and instructions for agents.

They are read through the sandbox, and what read_file refuses is refused here too.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from crewhall.app import Call
from crewhall.errors import Failure, NotFound
from crewhall.families.project.family import project
from crewhall.families.project.rules_file import Text, refuse_secret_name, refuse_secret_text, text_of
from crewhall.outside.files import Found, Top
from crewhall.tool import SourceLines

HEAD_BYTES = 256 * 1024  # of a file that are looked at
READMES = ("readme.md", "readme.rst", "readme.txt", "readme", "readme.adoc", "readme.org", "readme.markdown")
MANIFESTS = (
    "pyproject.toml",
    "package.json",
    "cargo.toml",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "gemfile",
    "composer.json",
    "mix.exs",
    "deno.json",
    "pubspec.yaml",
    "package.swift",
    "cmakelists.txt",
    "meson.build",
    "setup.cfg",
    "setup.py",
    "requirements.txt",
    "makefile",
    "gnumakefile",
    "dockerfile",
    "compose.yaml",
    "compose.yml",
    "docker-compose.yaml",
    "docker-compose.yml",
)
INSTRUCTIONS = (
    "agents.md",
    "claude.md",
    "gemini.md",
    "contributing.md",
    "conventions.md",
    ".cursorrules",
    ".windsurfrules",
    ".clinerules",
    ".github/copilot-instructions.md",
)


@dataclass(frozen=True)
class FileHead:
    """The beginning of a file: its lines, how many more were seen, and how many of its bytes were not."""

    name: str
    lines: list[str]
    more: int
    unread: int
    place: tuple[int, int] | None  # the file itself, whatever its name; None when it is not shown


@project.source("instructions", priority=60, weight=12)
def instructions(call: Call, top: Top) -> SourceLines:
    """What the project tells agents to do, by the names and first lines of such files."""
    return _join_heads(_heads(call, top, INSTRUCTIONS, lines=60), "no AGENTS.md, CLAUDE.md or the like")


@project.source("readme", priority=70, weight=12)
def readme(call: Call, top: Top) -> SourceLines:
    """The README from its beginning; the plainest name comes first if there are several."""
    return _join_heads(_heads(call, top, READMES, lines=300)[:1], "no README")


@project.source("manifests", priority=100, weight=10)
def manifests(call: Call, top: Top) -> SourceLines:
    """The beginnings of what says how the project is built, and what it needs."""
    return _join_heads(_heads(call, top, MANIFESTS, lines=60), "no pyproject.toml, package.json, Makefile or the like")


def _join_heads(heads: Sequence[FileHead], none: str) -> SourceLines:
    """The heads of files, one below the other. Raises NotFound when there is none."""
    if not heads:
        raise NotFound(f"{none} at the top", hint="list_directory shows what there is.")
    lines: list[str] = []
    for number, head in enumerate(heads):
        same = next((other.name for other in heads[:number] if other.place == head.place and head.place), None)
        lines += [f"== {head.name} ==", *head.lines] if same is None else [f"== {head.name}: the same as {same} =="]
    unread = [f"{head.unread} bytes of {head.name} unread" for head in heads if head.unread]
    return SourceLines(lines, sum(head.more for head in heads), ", ".join(unread) or None)


def _heads(call: Call, top: Top, names: Sequence[str], lines: int) -> list[FileHead]:
    """The beginnings of the files of these names, in any case, that are there and may be read."""
    with top.directory(".") as directory:
        there = {name.lower(): name for name in sorted(os.listdir(directory.descriptor), reverse=True)}
    wanted = [there.get(name, name) for name in names if name in there or "/" in name]
    heads = [_head(top, name, lines, call.settings["project.allow"]) for name in wanted]
    return [head for head in heads if head is not None]


def _head(top: Top, name: str, lines: int, allow: Sequence[str]) -> FileHead | None:
    """The beginning of a file, or why it is not shown; None when it is not there."""
    try:
        with top.file(name) as file:
            refuse_secret_name(file.path, allow)
            text, unread = _beginning(file)
            refuse_secret_text(text, file.path, allow)
            all_lines = text.data.decode("latin-1" if text.encoding == "latin-1" else "utf-8").rstrip().split("\n")
            place = (file.stat.st_dev, file.stat.st_ino)
            return FileHead(name, all_lines[:lines], max(0, len(all_lines) - lines), unread, place)
    except NotFound:
        return None
    except Failure as failure:
        return FileHead(name, [f"({failure.message})"], 0, 0, None)


def _beginning(file: Found) -> tuple[Text, int]:
    """The first lines of a file, and how many bytes are behind them. Raises InvalidInput for what is no text."""
    data = os.read(file.descriptor, HEAD_BYTES)
    if len(data) < file.stat.st_size:  # no half line, nor half a letter
        data = data[: data.rfind(b"\n") + 1] or data
    return text_of(data, file.path), max(0, file.stat.st_size - len(data))
