"""The state of an instance on this machine, from its process, its files and its program's own word."""

from crewhall.config import Settings
from crewhall.families.crew import claude_code
from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.observation import Observation, by_state_file, end_text, end_time, ended_observation
from crewhall.families.crew.run_directory import run_directory
from crewhall.families.crew.runtimes import runtime_named
from crewhall.families.crew.site import Terminals, is_running, left_program
from crewhall.outside.program_files import plain_number, plain_time
from crewhall.outside.tmux import Pane


def observe(settings: Settings, row: InstanceRow, now: int, terminals: Terminals) -> Observation:
    """What the instance is doing, by the best source there is."""
    if row["node"] != settings.node:
        return Observation("elsewhere", f"it is on node {row['node']}; last seen", "database", row["last_activity_at"])
    if row["ended_how"] is not None:
        return ended_observation(row)
    if row["pid"] is None:
        return Observation("starting", "its session is being made, since", "database", row["created_at"])
    return _observe_session(settings, row, now, terminals)


def _observe_session(settings: Settings, row: InstanceRow, now: int, terminals: Terminals) -> Observation:
    place = run_directory(settings, row["id"])
    started, ended = place.read("started.json"), place.read("ended.json")
    if program := left_program(settings, row):
        evidence = f"its launcher was killed, and its program {program.pid} lives on without a terminal; it started"
        return Observation("alive", evidence, "process", _start(started))
    if ended or not is_running(row):
        at = end_time(ended)
        return Observation(
            "ended", f"gone: {end_text(ended)}{',' if at else ''}", "launcher" if ended else "process", at
        )
    if not started:
        return Observation("starting", "its program has not started yet; session made", "launcher", row["created_at"])
    told = None
    if runtime_named(settings, row["runtime"]).state == "claude":
        told = claude_code.observe(place, plain_number(started.get("pid")) or 0, now)
    return told or by_state_file(place) or _alive(started, terminals.panes.get(row["session"]))


def _alive(started: dict[str, object], pane: Pane | None) -> Observation:
    lives = "its process lives and reports no state;"
    if pane is not None:
        return Observation("alive", f"{lives} its terminal last changed", "terminal", pane.changed_at)
    return Observation("alive", f"{lives} it started", "process", _start(started))


def _start(started: dict[str, object]) -> int | None:
    return plain_time(started.get("at"))
