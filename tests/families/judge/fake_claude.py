"""
A fake of the Claude CLI: a program that does what its script says, and notes how it was run.

    python -S -E fake_claude.py PLACE <the CLI's own words>

`PLACE/<name of the directory it runs in, or of one above it>/script.json` has a list of acts. The first run plays the
first one, the next run the next, and the last one is played again and again. An act is an object with some of:

    moves {path: path}     links {path: target}    writes {path: text}      in its directory, before all else
    deaf                   SIGTERM does nothing
    on_term {path: text}   SIGTERM makes it write these files, again and again, until it is killed
    strays                 so many processes that leave its session and ignore SIGTERM
    waits                  "go": until the test lets one run go on; "ever"; or so many seconds
    out, times, err        what it says, `out` so many times
    signal, code           how it ends

In the same directory it leaves run-<n>.json (its words, environment, directory, input, process) and a journal.
"""

import json
import os
import signal
import sys
import time
from typing import Any

VERSION = "9.9.9 (Stand-in)"


def main(place: str, words: list[str]) -> int:
    if words == ["--version"]:
        print(VERSION)
        return 0
    here = _script_directory(place)
    number = _note_run(here, words, sys.stdin.read())
    with open(os.path.join(here, "script.json")) as file:
        acts = json.load(file)
    return _play(acts[min(number, len(acts) - 1)], here, number)


def _script_directory(place: str) -> str:
    directory = os.getcwd()
    while not os.path.exists(script := os.path.join(place, os.path.basename(directory), "script.json")):
        directory = os.path.dirname(directory)
    return os.path.dirname(script)


def _note_run(here: str, words: list[str], text: str) -> int:
    """Note how this run was started, under the first number that is free; the number."""
    run = {"words": words, "env": dict(os.environ), "directory": os.getcwd(), "input": text, "pid": os.getpid()}
    passing = os.path.join(here, f"passing-{os.getpid()}")
    with open(passing, "w") as file:
        json.dump(run, file)
    number = 0
    while True:
        try:
            os.link(passing, os.path.join(here, f"run-{number}.json"))
        except FileExistsError:
            number += 1
        else:
            os.unlink(passing)
            return number


def _play(act: dict[str, Any], here: str, number: int) -> int:
    _change(act)
    if act.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "on_term" in act:
        signal.signal(signal.SIGTERM, lambda *_: _write_for_ever(act["on_term"]))
    for _ in range(act.get("strays", 0)):
        _journal(here, f"stray {_stray()}")
    _journal(here, f"start {number}")
    _wait(act.get("waits"), here)
    sys.stderr.write(act.get("err", ""))
    for _ in range(act.get("times", 1)):
        sys.stdout.write(act.get("out", ""))
    sys.stdout.flush()
    _journal(here, f"end {number}")
    if "signal" in act:
        os.kill(os.getpid(), act["signal"])
    return int(act.get("code", 0))


def _change(act: dict[str, Any]) -> None:
    for path, target in act.get("moves", {}).items():
        os.rename(path, target)
    for path, target in act.get("links", {}).items():
        os.symlink(target, path)
    _write(act.get("writes", {}))


def _write(files: dict[str, str]) -> None:
    for path, text in files.items():
        with open(path, "w") as file:
            file.write(text)


def _write_for_ever(files: dict[str, str]) -> None:
    while True:
        _write(files)


def _stray() -> int:
    """Start a process that has left the session by the time it is told of."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.write(writing, str(os.getpid()).encode())
            while True:
                signal.pause()
        os._exit(0)
    return int(os.read(reading, 20))


def _wait(what: Any, here: str) -> None:
    if what == "go":
        with open(os.path.join(here, "go"), "rb", 0) as go:
            go.read(1)
    while what == "ever":
        signal.pause()
    if isinstance(what, int | float):
        time.sleep(what)


def _journal(here: str, line: str) -> None:
    descriptor = os.open(os.path.join(here, "journal"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
