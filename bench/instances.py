"""
What instances cost: twenty started and ended at once, against the same git and tmux commands run bare.

The commands are recorded from one start, stop and abandonment in this process, then run by twenty threads at once as
plain subprocesses (the floor), and by a hub in a process of its own that is asked over REST by twenty clients at once.
"""

import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.project_context import git
from bench.running import RunningHub, is_running, kill_sessions, running_hub, tmux_name
from bench.traced import Command, recorded, refusals, replay
from crewhall import config
from crewhall.app import Hub
from crewhall.families.all import registry
from crewhall.identity import Actor

COUNT, ROUNDS = 20, 3
FILES = 200  # in the repository
ID = "work-it-a1"
PERSON = Actor("operator", "operator", proof="token")
STEPS = ("start", "stop", "abandon")


def instances() -> None:
    """Twenty starts, stops and abandonments at once, the floor and the hub in turns."""
    with tempfile.TemporaryDirectory() as place, running_hub(Path(place) / "hub") as hub:
        base = Path(place)
        make_repository(base / "model")
        commands = _record(base)
        try:
            _report(commands, _measure((_Floor(base, commands), _Hub(base, hub))))
        finally:
            for home in (base / "traced" / "home", base / "floor"):
                kill_sessions(tmux_name(home))


def _measure(sides: tuple["_Floor", "_Hub"]) -> dict[str, list["Times"]]:
    """How long each step took in each round, by side and step."""
    times: dict[str, list[Times]] = {f"{side.name} {step}": [] for step in STEPS for side in sides}
    for number in range(ROUNDS + 1):
        for side in sides:
            side.prepare(number)
            for step in STEPS:
                found = at_once(getattr(side, step))
                if number:  # the first round warms up
                    times[f"{side.name} {step}"].append(found)
    return times


@dataclass(frozen=True)
class Times:
    """Seconds that each of many took, and all together."""

    each: list[float]
    whole: float

    @property
    def median(self) -> float:
        return statistics.median(self.each)

    @property
    def most(self) -> float:
        return max(self.each)


def at_once(function: Callable[[int], object]) -> Times:
    """Call a function with 1, 2 … at the same moment. Raises the first failure."""
    each, failures = [0.0] * COUNT, []
    gate = threading.Barrier(COUNT + 1)

    def work(number: int) -> None:
        gate.wait()
        began = time.perf_counter()
        try:
            function(number)
        except BaseException as error:
            failures.append(error)
        each[number - 1] = time.perf_counter() - began

    workers = [threading.Thread(target=work, args=(number,)) for number in range(1, COUNT + 1)]
    for worker in workers:
        worker.start()
    gate.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return Times(each, time.perf_counter() - began)


# The floor


def make_repository(root: Path) -> None:
    """A repository of some files with one commit."""
    for number in range(FILES):
        path = root / f"part-{number % 10}" / f"file-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"line {line} of {number}\n" for line in range(50)))
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")


def copy_repository(model: Path, root: Path) -> None:
    shutil.copytree(model, root)
    git(root, "update-index", "-q", "--refresh")


def _record(base: Path) -> dict[str, list[Command]]:
    """The commands of one start, one stop and one abandonment; the launcher's spec stays for the floor."""
    traced = base / "traced"
    copy_repository(base / "model", traced / "shop")
    flags = {"home": str(traced / "home"), "crew.runtimes": {"idle": {"command": ["sleep", "6000"]}}}
    given = {"prompt": "x", "title": "it", "runtime": "idle", "repository_path": str(traced / "shop")}
    found: dict[str, list[Command]] = {}
    with closing(Hub(config.load({}, flags), registry())) as hub:
        for step in STEPS:
            with recorded(traced) as found[step]:
                hub.call(f"instance_{step}", given if step == "start" else {"id": ID}, PERSON)
            if step == "start":
                shutil.copy(traced / "home" / "instances" / ID / "launch.json", traced / "launch.json")
    return found


class _Floor:
    """Recorded commands run as plain subprocesses, in a repository and on a tmux server of their own."""

    name = "floor"

    def __init__(self, base: Path, commands: dict[str, list[Command]]) -> None:
        self.base, self.commands = base, commands
        self.pids: dict[int, int] = {}

    def prepare(self, number: int) -> None:
        """A fresh repository, and the launchers' specs with their permission to go."""
        self.root = self.base / f"{self.name}-{number}"
        copy_repository(self.base / "model", self.root / "shop")
        self.texts = {
            f"{self.base}/traced/tmp": f"{self.root}/tmp-NUMBER",
            f"{self.base}/traced/": f"{self.root}/",
            tmux_name(self.base / "traced" / "home"): tmux_name(self.base / "floor"),
            ID: f"{ID[:-1]}NUMBER",
        }
        for one in range(1, COUNT + 1):
            run = self.root / "home" / "instances" / f"{ID[:-1]}{one}"
            run.mkdir(parents=True)
            text = (self.base / "traced" / "launch.json").read_text()
            for old, new in self._texts(one).items():
                text = text.replace(old, new)
            (run / "launch.json").write_text(text)
            (run / "go").touch()

    def _texts(self, number: int) -> dict[str, str]:
        return {old: new.replace("NUMBER", str(number)) for old, new in self.texts.items()}

    def _replay(self, step: str, number: int) -> list[str]:
        return replay(self.commands[step], self._texts(number))

    def start(self, number: int) -> None:
        self.pids[number] = int(self._replay("start", number)[-1])

    def stop(self, number: int) -> None:
        os.kill(self.pids[number], signal.SIGTERM)
        while is_running(self.pids[number]):
            time.sleep(0.02)
        self._replay("stop", number)

    def abandon(self, number: int) -> None:
        self._replay("abandon", number)
        shutil.rmtree(self.root / "home" / "instances" / f"{ID[:-1]}{number}")
        for path in (self.root / "shop-worktrees").glob(f".{ID[:-1]}{number}.*"):
            shutil.rmtree(path)


# The hub


class _Hub:
    """The hub's side of a comparison."""

    name = "hub"

    def __init__(self, base: Path, hub: RunningHub) -> None:
        self.base, self.hub = base, hub

    def prepare(self, number: int) -> None:
        self.repository = self.base / f"hub-{number}" / "shop"
        copy_repository(self.base / "model", self.repository)
        self.ids: dict[int, str] = {}

    def start(self, number: int) -> None:
        given = {"prompt": "x", "title": "it", "runtime": "idle", "repository_path": str(self.repository)}
        self.ids[number] = self.hub.call("instance/start", **given)["instance_id"]

    def stop(self, number: int) -> None:
        assert self.hub.call("instance/stop", id=self.ids[number])["status"] == "terminated"

    def abandon(self, number: int) -> None:
        ended = self.hub.call("instance/abandon", id=self.ids[number])
        assert ended["status"] == "abandoned" and ended["problem"] is None, ended


def _report(commands: dict[str, list[Command]], times: dict[str, list[Times]]) -> None:
    print(f"\n{COUNT} instances at once, against the same commands by plain subprocesses; medians of {ROUNDS} rounds")
    for step in STEPS:
        counts = [sum(one.words[0] == name for one in commands[step]) for name in ("git", "tmux")]
        print(f"  {step}: {counts[0]} git and {counts[1]} tmux commands each")
        floor, hub = times[f"floor {step}"], times[f"hub {step}"]
        for name, runs in (("floor", floor), ("hub", hub)):
            shown = [statistics.median(getattr(one, field) for one in runs) for field in ("median", "most", "whole")]
            print(f"    {name:6} each {shown[0]:6.2f} s, slowest {shown[1]:6.2f} s, all {shown[2]:6.2f} s")
        pairs = list(zip(floor, hub, strict=True))
        for what, field in (("each", "median"), ("slowest", "most"), ("all", "whole")):
            ratios = " ".join(f"{getattr(b, field) / getattr(a, field):5.2f}" for a, b in pairs)
            print(f"    hub / floor, {what:8} {ratios}")
    print(f"  commands of the floor that git or tmux refused at first: {len(refusals)}")


PARTS = {"instances": instances}

if __name__ == "__main__":
    instances()
