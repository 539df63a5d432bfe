"""A program that writes what it likes into its run directory hinders nobody but itself, with a real tmux."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.families.crew.conftest import Site

pytestmark = pytest.mark.slow

WATCHERS = ("instances", "instance_messages", "instance_strays")
FILES = (
    *("started.json", "state.json", "output.txt", "hooks.jsonl", "hooks.old.jsonl", "mailbox.lock"),
    *("claude/sessions/1.json", "claude/sessions/².json", "claude/projects/it/CONVERSATION.jsonl"),
)
BIG, HALF = 10**30, "\\ud800\\u0000\\u001b]0;x\\u0007"
USAGE = {"input_tokens": BIG, "output_tokens": BIG}
TEXTS = {
    "negative time": f'{{"at": -{BIG}, "event": "Stop", "statusUpdatedAt": -{BIG}, "status": "idle", "how": "exit"}}\n',
    "big time": f'{{"at": {BIG}, "event": "Stop", "statusUpdatedAt": {BIG}, "status": "idle", "how": "exit"}}\n',
    "odd kinds": '{"at": 5, "event": {}, "messages": 5, "pid": "x", "updatedAt": "x", "status": "idle", "how": [], '
    '"state": {}}\n',
    "no event": '{"at": 5}\n',
    "half letters": f'{{"at": 5, "how": "{HALF}", "state": "idle", "detail": "{HALF}", "event": "{HALF}", "status": '
    f'"waiting", "waitingFor": "{HALF}", "tool_name": "{HALF}"}}\n',
    "big use": json.dumps(
        {"type": "assistant", "timestamp": "9999-12-31T23:59:59", "message": {"id": 1, "usage": USAGE}}
    )
    + "\n",
    "early": json.dumps({"type": "user", "timestamp": "0001-01-01T00:00:00", "message": {"content": 5}}) + "\n",
}


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_directory(path: Path) -> None:
    path.mkdir()


def make_hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte that takes no room


THINGS: dict[str, Callable[[Path], Any]] = {"pipe": make_pipe, "directory": make_directory, "hole": make_hole}
THINGS |= {name: partial(Path.write_text, data=text) for name, text in TEXTS.items()}


@pytest.fixture
def crowd(make_site: Callable[..., Site], tmp_path: Path) -> Iterator[Site]:
    """A site whose programs are watched as Claude Code is."""
    words = ["python3", str(tmp_path / "program.py"), "{prompt}", "{prompt_file}"]
    site = make_site(crew__runtimes={"custom": {"command": words, "state": "claude", "messages": "claude"}})
    yield site
    site.is_replayed = False


def within(seconds: float, do: Callable[[], Any]) -> Any:
    """What it returns; a failure if it takes longer."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(do()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it hangs, or has failed"
    return found[0]


def run_chore(site: Site, name: str) -> bool:
    site.hub.chores.run_one(name)
    return True


def errors_of(site: Site) -> dict[str, str]:
    """What the chores that watch instances failed with."""
    for name in WATCHERS:
        within(10, partial(run_chore, site, name))
    records = site.hub.chores.records
    return {name: str(records[name].error) for name in WATCHERS if records[name].error is not None}


def put(place: Path, name: str, conversation: str, make: Callable[[Path], Any]) -> None:
    path = place / name.replace("CONVERSATION", conversation)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    make(path)


def start_ready(site: Site) -> str:
    name = site.start()
    eventually((site.place(name).path / "got.json").exists)
    return name


def refuse_harm(site: Site, about: str) -> None:
    """Everybody can still be seen, and the chores serve all."""
    for one in within(10, lambda: site.call("instance_list"))["instances"]:
        assert one["state"]["evidence"].isprintable() and (one["state"]["since"] or 1) > 0, about
    assert errors_of(site) == {}, about


def test_no_file_of_a_program_hinders_the_others(crowd: Site) -> None:
    hostile, other = start_ready(crowd), start_ready(crowd)
    shown = crowd.call("instance_get", id=hostile)
    crowd.call("instance_send", id=hostile, text="Are you there?")
    for about, make in THINGS.items():
        for name in FILES:
            put(crowd.place(hostile).path, name, shown["conversation_id"], make)
        refuse_harm(crowd, about)
    assert crowd.state(other)["name"] == "alive"


def test_no_word_of_a_launcher_hinders_the_others(crowd: Site) -> None:
    other = start_ready(crowd)
    for about in ("pipe", "hole", "negative time", "half letters", "odd kinds"):
        put(crowd.place(start_ready(crowd)).path, "ended.json", "", THINGS[about])
        refuse_harm(crowd, about)
    assert crowd.state(other)["name"] == "alive"


def test_trays_that_are_no_directories_hinder_nobody(crowd: Site) -> None:
    hostile = start_ready(crowd)
    crowd.call("instance_send", id=hostile, text="Are you there?")
    assert errors_of(crowd) == {}
    place = crowd.place(hostile).path
    (sent,) = (place / "outbox").iterdir()
    sent.unlink()
    sent.mkdir()
    (place / "taken" / "im_of_nobody.json").mkdir()
    (place / "pasting").rmdir()
    (place / "pasting").write_text("")
    assert errors_of(crowd) == {}
