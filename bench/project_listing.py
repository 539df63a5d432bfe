"""
What `list_directory` costs against git itself: bare git processes and calls through the door take turns.

The same directory by `git ls-files`, which tells what is tracked, and by `git ls-files -co --exclude-standard`, which
tells what is not ignored, as our answer does. Cold: the hub has kept nothing of that directory; warm: it has.
"""

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from crewhall import config
from crewhall.app import Hub, Origin
from crewhall.families.all import registry
from crewhall.families.project.family import ANSWERS
from crewhall.identity import OPERATOR
from crewhall.outside.root_path import identity_of

Taken = dict[str, tuple[float, float]]
ROUNDS = 40
FILES = 20_000
TRACKED, SHOWN = ("git", "ls-files"), ("git", "ls-files", "-co", "--exclude-standard")
WHO = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


def repository(root: Path) -> Path:
    """20,000 files in one directory, 20,000 in 200, and 20,000 that nobody added; some of all kinds are ignored."""
    for number in range(FILES):
        for place in (f"big/{number:05}.py", f"tree/d{number % 200:03}/{number:05}.py", f"loose/{number:05}.py"):
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            (root / place).write_text("x\n")
    (root / ".gitignore").write_text("*.o\nbuild/\n/loose/*7.py\n!/loose/00007.py\n")
    for words in (("init", "-q"), ("add", ".gitignore", "big", "tree"), (*WHO, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=root, check=True)
    return root


def listing() -> None:
    """A big directory, the top, the directory of 200, a small one, and one that git does not track."""
    with tempfile.TemporaryDirectory() as place:
        root = repository(Path(place).resolve() / "repository")
        hub = Hub(config.load({}, {"home": f"{place}/home"}), registry())
        for path in ("big", ".", "tree", "tree/d005", "loose"):
            _show(path, _taken(_sides(hub, root, path)))
        hub.close()


def _sides(hub: Hub, root: Path, path: str) -> dict[str, Callable[[], object]]:
    return {
        "git ls-files": lambda: _git(root, TRACKED, path),
        "git ls-files -co": lambda: _git(root, SHOWN, path),
        "cold": lambda: _ask_cold(hub, root, path),
        "warm": lambda: _ask(hub, root, path),
    }


def _git(root: Path, words: tuple[str, ...], path: str) -> None:
    subprocess.run([*words, "--", path], cwd=root, capture_output=True, check=True)


def _ask(hub: Hub, root: Path, path: str) -> None:
    hub.call(
        "list_directory", {"path": path}, OPERATOR, origin=Origin(worktree=str(root), identity=identity_of(str(root)))
    )


def _ask_cold(hub: Hub, root: Path, path: str) -> None:
    hub.state(ANSWERS).clear()
    _ask(hub, root, path)


def _taken(sides: dict[str, Callable[[], object]]) -> Taken:
    """What each side takes, by the clock and of the processor, its processes counted too. The sides take turns."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(ROUNDS + 3):
        for name, side in sides.items():
            began, busy = time.perf_counter(), sum(os.times()[:4])
            side()
            if number >= 3:  # the first rounds warm up
                found[name].append((time.perf_counter() - began, sum(os.times()[:4]) - busy))
    return {name: (statistics.median(t for t, _ in times), sum(b for _, b in times)) for name, times in found.items()}


def _show(path: str, taken: Taken) -> None:
    bare = {name: taken.pop(name) for name in ("git ls-files", "git ls-files -co")}
    for way, ours in taken.items():
        against = "   ".join(
            f"{ours[0] / clock:5.2f} x {name} ({clock * 1e3:.1f} ms), processor {ours[1] / busy:5.2f} x"
            for name, (clock, busy) in bare.items()
        )
        print(f"  {path:12} {way}  {against}")


PARTS = {"listing": listing}

if __name__ == "__main__":
    listing()
