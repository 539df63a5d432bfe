"""
Pages that are tried out: the ```sh blocks of a page are one session of bash, and a ```text block is what the one before
it prints.

    exit codes   every command ends with 0, or with the code that its line tells at its end: `# exit code 6`
    text         a line … stands for any lines, … within a line for any letters, and blanks count once
"""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.edges.interfaces import CREWHALL
from tests.edges.prefork import environment as prefork_environment
from tests.edges.program import PASSED_ON

FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^(.*\S)\s+# exit code (\d+)$", re.MULTILINE)
COMMAND = re.compile(r"(?:^|\$\(|[|;&] *)(?:\w+=\S+ )*(crewhall .*)", re.DOTALL)
HERE = re.compile(r"<<'?(\w+)'?.*?^\1$", re.MULTILINE | re.DOTALL)
STRICT = "set -eo pipefail\n"
SECONDS = 60


@dataclass
class Block:
    """Commands of a page, and the texts that follow them."""

    line: int
    script: str
    text: str | None = None
    printed: str = field(default="", compare=False)


def blocks_of(page: str, is_ours: Callable[[str], bool] = lambda kind: kind == "sh") -> list[Block]:
    """The blocks of commands in a page: those whose mark after the fence is one of ours."""
    found: list[Block] = []
    end = -1  # of the block of commands that a text would belong to
    for match in FENCE.finditer(page):
        kind, text = match.groups()
        if is_ours(kind):
            found.append(Block(page.count("\n", 0, match.start()) + 1, text))
            end = match.end()
        elif kind == "text" and found and not page[end : match.start()].strip():
            found[-1].text = text
    return found


def commands_of(script: str) -> Iterator[list[str]]:
    """The words of each `crewhall …` in a script, without the word itself."""
    waiting = ""
    for line in HERE.sub("", script).splitlines():
        waiting += line + "\n"
        try:
            shlex.split(waiting, comments=True)
        except ValueError:
            continue  # a quote goes on in the next line
        text, waiting = waiting.replace("\\\n", " "), "" if not line.endswith("\\") else waiting
        found = None if waiting else COMMAND.search(text)
        if found:
            yield _first_command(found[1])[1:]


def _first_command(text: str) -> list[str]:
    """The words before the first | > ) or the like."""
    reader = shlex.shlex(text, posix=True, punctuation_chars="();<>|&")
    reader.whitespace_split = True
    words: list[str] = []
    for word in reader:
        if set(word) <= set("();<>|&"):
            break
        words.append(word)
    return words


def run(blocks: list[Block], where: Path, home: Path) -> list[Block]:
    """Run blocks one after the other, in one bash; each then knows what it printed. AssertionError when one fails."""
    prints = [home.parent / f"printed-{number}" for number in range(len(blocks))]
    steps = [f"exec >'{out}' 2>&1\n{_with_codes(block.script)}" for out, block in zip(prints, blocks, strict=True)]
    ways = {"CREWHALL_HOME": str(home), "GIT_CONFIG_GLOBAL": os.devnull, "LANG": "C.UTF-8"}
    ways["PATH"] = f"{Path(CREWHALL).parent}:{PASSED_ON['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", STRICT + "\n".join(steps)],
        cwd=where,
        env=PASSED_ON | prefork_environment() | ways,
        stdin=subprocess.DEVNULL,
        timeout=SECONDS,
        check=False,
    )
    for out, block in zip(prints, blocks, strict=True):
        block.printed = out.read_text() if out.exists() else ""
    reached = max((number for number, out in enumerate(prints) if out.exists()), default=0)
    last = blocks[reached]
    assert ended.returncode == 0, f"line {last.line} ended with {ended.returncode}:\n{last.script}\n{last.printed}"
    return blocks


def _with_codes(script: str) -> str:
    return CODE.sub(r"code=0; \1 || code=$?; [ $code = \2 ]", script)


def shows(text: str, printed: str) -> bool:
    """Whether what was printed is what a page's text says."""
    pattern = "".join(_pattern(line) for line in _lines(text))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed))) is not None


def _lines(text: str) -> list[str]:
    return [re.sub(r"\s+", " ", line).strip() for line in text.strip().splitlines()]


def _pattern(line: str) -> str:
    return r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*?") + r"\n"
