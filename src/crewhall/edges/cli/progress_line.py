"""
A line on the terminal with a call's running time and its last message; it is gone when the call has ended.

    1:05  2/4  gitea: pull

Standard library only.
"""

import os
import threading
import time
import unicodedata
from contextlib import suppress
from typing import Any, TextIO

from crewhall.edges.cli.render import harmless

EVERY = 1.0  # seconds; a call that ends sooner shows no line
SIGN_OF_LIFE = "still running"  # dispatch.py says it of a silent call; the running time says it too
BACK, CLEAR = "\r", "\x1b[K"


class ProgressLine:
    """The line, shown while the block runs if the stream is a terminal. Call it to update the text."""

    def __init__(self, stream: TextIO | None) -> None:
        self._began, self._message = time.monotonic(), ""
        self._has_ended = threading.Event()
        self._showing: threading.Thread | None = None
        if stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb":
            self._showing = threading.Thread(target=self._show, args=(stream,), daemon=True)

    def __call__(self, done: float, total: float | None, message: str | None) -> None:
        if message != SIGN_OF_LIFE:
            self._message = harmless(("" if total is None else f"{done:g}/{total:g}  ") + (message or ""))

    def __enter__(self) -> "ProgressLine":
        if self._showing is not None:
            self._showing.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._has_ended.set()
        if self._showing is not None:
            self._showing.join()

    def _show(self, stream: TextIO) -> None:
        shown = ""
        with suppress(OSError, ValueError):  # the terminal is gone
            while not self._has_ended.wait(EVERY):
                shown = fitting(self._text(), os.get_terminal_size(stream.fileno()).columns)
                stream.write(f"{BACK}{shown}{CLEAR}")
                stream.flush()
            if shown:
                stream.write(f"{BACK}{CLEAR}")
                stream.flush()

    def _text(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02}  {self._message}".rstrip()


def fitting(text: str, columns: int) -> str:
    """As much of a text as stands on one line of a terminal (0 columns: one that does not know), the last one free."""
    room = (columns or 80) - 1
    for place, letter in enumerate(text):
        room -= 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if room < 0:
            return text[:place]
    return text
