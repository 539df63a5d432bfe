"""What is not as it should be with instances: named, shown, and mended where the hall made it."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from crewhall.families.crew.instance_rows import locked_row
from crewhall.families.crew.run_directory import run_directory
from crewhall.families.crew.steps import ABANDONING, ANSWER_MS, STOPPING, end_later
from crewhall.identity import new_id
from crewhall.journal import Kind
from crewhall.outside.launch_spec import LaunchSpec, launcher_words, write_spec
from crewhall.outside.processes import ProcessId, identify, is_alive, marked_by
from tests.conftest import eventually
from tests.families.crew.conftest import Site
from tests.outside.repos import commit, git

TEN_MINUTES = 600_000
# A child in the tree, and one that leaves it: both write their pid.
PARENT = """
import os, subprocess, sys, time
place = os.path.dirname(os.environ["CREWHALL_STATE_FILE"])
child = subprocess.Popen(["sleep", "3600"])
away = subprocess.Popen(["setsid", "-f", "sh", "-c", f"echo $$ > {place}/away; exec sleep 3601"])
away.wait()
with open(place + "/part", "w") as file:
    file.write(str(child.pid))
os.replace(place + "/part", place + "/child")
time.sleep(600)
"""
HARDY = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{PARENT}"
# It takes a request to end, and goes on for a while.
SLOW = """
import os, signal, time
place = os.path.dirname(os.environ["CREWHALL_STATE_FILE"])
signal.signal(signal.SIGTERM, lambda *_: open(place + "/asked", "w").close())
open(place + "/ready", "w").close()
while True:
    time.sleep(600)
"""
# It does not end with its terminal.
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with open(os.environ["CREWHALL_STATE_FILE"], "w") as file:
    file.write('{"state": "working"}')
time.sleep(600)
"""


def check(site: Site) -> dict[str, dict[str, Any]]:
    """The differences by their names."""
    return {one["name"]: one for one in site.call("instance_check")["differences"]}


def repair(site: Site) -> tuple[list[str], list[str]]:
    """The names of what was mended and of what is left."""
    body = site.call("instance_repair")
    return [one["name"] for one in body["done"]], [one["name"] for one in body["left"]]


@pytest.fixture
def instance(site: Site) -> str:
    found = site.start()
    eventually(lambda: site.place(found).read("got.json"))
    return found


def test_a_sound_hall_has_no_differences(site: Site, instance: str) -> None:
    site.call("instance_abandon", id=site.start())
    site.call("instance_stop", id=site.start())
    before = site.leftovers()
    assert check(site) == {} and repair(site) == ([], [])
    site.hub.chores.run_one("instance_strays")
    assert site.leftovers() == before and site.state(instance)["name"] == "alive"


def test_an_instance_that_is_done_is_neither_missed_nor_restarted(site: Site, instance: str) -> None:
    with site.hub.own_work() as tx:
        end_later(site.hub.journal, tx, locked_row(tx, instance), "terminated")
    site.clock.now += ANSWER_MS
    site.hub.chores.run_one("settle_instance_end")
    row = site.call("instance_get", id=instance)
    assert (row["status"], Path(row["worktree"]).exists()) == ("terminated", False)
    assert check(site) == {} and repair(site) == ([], []) and not Path(row["worktree"]).exists()
    before = site.leftovers()
    refused = site.refusal("instance_restart", id=instance)
    assert refused.code == "INVALID_STATE" and "is done" in refused.message and "review request" in refused.hint
    assert refused.fields["instance_id"] == instance and site.leftovers() == before


def test_a_killed_program_is_named_and_restarted_by_a_person(site: Site, instance: str) -> None:
    os.kill(int(site.place(instance).read("started.json")["pid"]), signal.SIGKILL)
    eventually(lambda: site.place(instance).read("ended.json"))
    site.hub.chores.run_one("instances")
    found = eventually(lambda: check(site).get("process_gone"))
    assert "killed by signal 9" in found["about"] and f"instance restart {instance}" in found["hint"]
    assert repair(site) == ([], ["process_gone"])  # to start programs takes a person
    site.call("instance_restart", id=instance)
    assert check(site) == {}


def test_a_killed_launcher_is_named(site: Site, instance: str) -> None:
    os.kill(site.call("instance_get", id=instance)["pid"], signal.SIGKILL)

    def noted() -> str:
        site.hub.chores.run_one("instances")
        return str(check(site).get("process_gone", {}).get("about"))

    eventually(lambda: noted().endswith("has ended: nobody knows how"))


def test_a_killed_terminal_server_leaves_instances_to_restart(site: Site, instance: str) -> None:
    server = subprocess.run(
        ["tmux", "-L", site.tmux.name, "display-message", "-p", "#{pid}"], capture_output=True, check=True, timeout=20
    )
    os.kill(int(server.stdout), signal.SIGKILL)
    found = eventually(lambda: check(site).get("interrupted"))
    assert "ended from outside" in found["about"] and "restart" in found["hint"]
    site.call("instance_restart", id=instance)
    assert check(site) == {} and site.state(instance)["name"] in ("starting", "alive")


def test_a_boot_of_the_machine_is_told_from_an_end(site: Site, instance: str) -> None:
    site.close()
    with site.hub.own_work() as tx:
        row = tx.one("instance_get", id=instance)
        assert row is not None
        started = f"another-boot:{row['process_started'].rpartition(':')[2]}"
        tx.run("instance_process_set", id=instance, pid=row["pid"], process_started=started, now=tx.now)
    assert "the machine was restarted" in eventually(lambda: check(site).get("interrupted"))["about"]


def test_a_program_that_outlives_its_session_is_ended(make_site: Callable[..., Site]) -> None:
    site = make_site("stubborn", crew__runtimes={"custom": {"command": ["python3", "-c", STUBBORN]}})
    instance = site.start()
    eventually(lambda: site.state(instance)["name"] == "working")
    program = identify(int(site.place(instance).read("started.json")["pid"]))
    assert program is not None
    site.tmux.kill(instance)
    assert eventually(lambda: check(site).get("session_lost"))["is_fixable"]
    assert repair(site)[0] == ["session_lost"]
    assert not is_alive(program)


@pytest.fixture
def left(make_site: Callable[..., Site]) -> Iterator["Left"]:
    """An instance whose program lives on, though its launcher was killed."""
    site = make_site("left", crew__runtimes={"custom": {"command": ["python3", "-c", HARDY]}})
    found = Left(site, site.start())
    os.kill(site.call("instance_get", id=found.id)["pid"], signal.SIGKILL)
    eventually(lambda: site.tmux.panes()[found.id].is_dead)
    yield found
    for marked in marked_by("CREWHALL_INSTANCE", f"CREWHALL_HOME={site.hub.settings.home}").values():
        for one in marked:
            with suppress(ProcessLookupError):
                os.kill(one.process.pid, signal.SIGKILL)


class Left:
    def __init__(self, site: Site, instance: str) -> None:
        self.site, self.id = site, instance
        place = site.place(instance).path
        self.child, self.away = (known(int(eventually((place / name).read_text))) for name in ("child", "away"))
        self.program = self.recorded()

    def recorded(self) -> ProcessId:
        return known(int(eventually(lambda: self.site.place(self.id).read("started.json"))["pid"]))

    @property
    def has_ended(self) -> bool:
        """The program and its child, but not the process that has left their session."""
        assert is_alive(self.away)
        return not is_alive(self.program) and not is_alive(self.child)


def known(pid: int) -> ProcessId:
    found = identify(pid)
    assert found is not None
    return found


def test_a_program_that_outlives_its_launcher_is_shown_and_its_agent_stays(left: Left) -> None:
    left.site.hub.chores.run_one("instances")
    row = left.site.call("instance_get", id=left.id)
    assert (row["state"]["name"], row["ended_how"]) == ("alive", None)
    assert f"launcher was killed, and its program {left.program.pid} lives on" in row["state"]["evidence"]
    found = check(left.site)
    assert set(found) == {"launcher_lost", "detached"} and found["launcher_lost"]["is_fixable"]
    assert f"process {left.away.pid} " in found["detached"]["about"]
    left.site.clock.now += TEN_MINUTES + 1
    left.site.hub.chores.run_one("instance_strays")
    assert is_alive(left.program)  # to end a living program takes a person
    assert repair(left.site)[0] == ["launcher_lost"] and left.has_ended
    left.site.hub.chores.run_one("instances")
    assert set(check(left.site)) == {"process_gone", "detached"}


def test_a_program_that_outlives_its_launcher_ends_with_a_stop(left: Left) -> None:
    assert left.site.call("instance_stop", id=left.id)["status"] == "terminated"
    assert left.has_ended and set(check(left.site)) == {"detached"}


def test_a_program_that_outlives_its_launcher_ends_before_a_restart(left: Left) -> None:
    assert left.site.call("instance_restart", id=left.id)["status"] == "started"
    assert left.has_ended and is_alive(left.recorded())
    assert left.site.state(left.id)["name"] != "ended" and set(check(left.site)) == {"detached"}


def test_a_program_that_outlives_its_launcher_hinders_no_abandoning(left: Left) -> None:
    os.kill(left.away.pid, signal.SIGKILL)
    eventually(lambda: not is_alive(left.away))
    tree = Path(left.site.call("instance_get", id=left.id)["worktree"])
    assert left.site.call("instance_abandon", id=left.id)["problem"] is None
    assert not is_alive(left.program) and not is_alive(left.child) and not tree.exists()


def test_a_record_that_names_another_process_ends_nothing(left: Left) -> None:
    """Of another start time, without the instance's mark, or another instance's."""
    place, other = left.site.place(left.id), left.site.start()
    theirs = eventually(lambda: left.site.place(other).read("started.json"))
    unmarked = subprocess.Popen(["sleep", "3600"])
    try:
        named = ({"pid": left.program.pid, "started": f"{left.program.started}0"}, theirs)
        for record in (*named, asdict(known(unmarked.pid)), asdict(known(os.getpid())), {"pid": 10**30, "started": ""}):
            place.write("started.json", json.dumps(record))
            assert "launcher_lost" not in check(left.site), record
        place.write("started.json", json.dumps(theirs))
        left.site.call("instance_stop", id=left.id)
        assert is_alive(known(unmarked.pid)) and is_alive(ProcessId(theirs["pid"], theirs["started"]))
    finally:
        unmarked.kill()
        unmarked.wait()


def test_a_worktree_that_a_person_removed_is_made_again(site: Site, instance: str) -> None:
    tree = Path(site.call("instance_get", id=instance)["worktree"])
    (tree / "new.txt").write_text("new")
    commit(tree, "work of the instance")
    shutil.rmtree(tree)
    assert "still runs in it" in check(site)["worktree_gone"]["about"]
    assert repair(site) == (["worktree_gone"], [])
    assert (tree / "new.txt").read_text() == "new" and git(tree, "branch", "--show-current").strip() == instance


def test_a_restart_makes_a_removed_worktree_again(site: Site, instance: str) -> None:
    tree = site.call("instance_get", id=instance)["worktree"]
    site.call("instance_stop", id=instance)
    git(site.repository, "worktree", "remove", "--force", tree)
    assert check(site)["worktree_gone"]["about"] == f"{tree} is gone"
    site.call("instance_restart", id=instance)
    assert os.path.isdir(tree) and check(site) == {}


def test_an_instance_whose_worktree_is_gone_can_be_abandoned(site: Site, instance: str) -> None:
    shutil.rmtree(site.call("instance_get", id=instance)["worktree"])
    assert site.call("instance_abandon", id=instance)["problem"] is None
    assert check(site) == {} and instance not in git(site.repository, "worktree", "list")


def test_a_deleted_branch_is_made_again_at_its_last_commit(site: Site, instance: str) -> None:
    tree = Path(site.call("instance_get", id=instance)["worktree"])
    (tree / "new.txt").write_text("new")
    commit(tree, "work of the instance")
    tip = git(tree, "rev-parse", "HEAD")
    git(site.repository, "update-ref", "-d", f"refs/heads/{instance}")
    assert instance in check(site)["branch_gone"]["about"]
    assert repair(site) == (["branch_gone"], [])
    assert git(site.repository, "rev-parse", instance) == tip


def test_a_repository_that_is_gone_is_told(site: Site, instance: str) -> None:
    site.repository.rename(site.repository.with_name("moved"))
    assert not check(site)["repository_gone"]["is_fixable"]
    assert repair(site) == ([], ["repository_gone"])


def stray(site: Site, name: str) -> None:
    """A session like those of instances, of which the hall has no row; its launcher waits to be let go."""
    place = run_directory(site.hub.settings, name)
    place.make()
    write_spec(str(place.spec), LaunchSpec(["true"], {}, str(site.repository), str(place.path)))
    site.tmux.start(name, launcher_words(str(place.spec)), str(site.repository))


def test_a_session_that_the_hall_does_not_know_waits_for_a_person(site: Site) -> None:
    stray(site, "work-lost-a1")
    site.clock.now += TEN_MINUTES + 1
    site.hub.chores.run_one("instance_strays")
    assert check(site)["stray_session"]["instance_id"] == "work-lost-a1"
    assert repair(site)[0] == ["stray_session"]
    assert repair(site)[0] == ["stray_directory"]
    assert check(site) == {} and not site.leftovers()["runs"] and not site.tmux.panes()


def test_a_run_directory_of_nobody_goes_by_itself_after_a_while(site: Site) -> None:
    place = run_directory(site.hub.settings, "work-lost-a1")
    place.make()
    os.utime(place.path, (site.clock.now / 1000, site.clock.now / 1000))
    site.hub.chores.run_one("instance_strays")
    assert list(check(site)) == ["stray_directory"]
    site.clock.now += TEN_MINUTES + 1
    site.hub.chores.run_one("instance_strays")
    assert check(site) == {} and not place.path.exists()


def test_what_the_hall_did_not_make_is_left_alone(site: Site, instance: str, tmp_path: Path) -> None:
    """A person's session on the hall's own server, even with an instance's name; directories, links, worktrees."""
    site.tmux.start("mine", ["sleep", "600"], "/")
    site.tmux.start("work-mine-a1", ["sleep", "600"], "/")
    kept = tmp_path / "kept"
    kept.mkdir()
    runs = site.hub.settings.home / "instances"
    (runs / "notes").mkdir()
    (runs / "work-linked-a1").symlink_to(kept)
    git(site.repository, "worktree", "add", "-b", "work-mine-a2", str(tmp_path / "mine"))
    assert repair(site) == ([], ["stray_session"])
    site.clock.now += TEN_MINUTES + 1
    site.hub.chores.run_one("instance_strays")
    assert set(site.tmux.panes()) == {"mine", "work-mine-a1", instance}
    assert kept.is_dir() and (runs / "notes").is_dir() and (tmp_path / "mine").is_dir()


def test_a_token_that_outlived_its_instance_is_revoked_by_the_hall(site: Site, instance: str) -> None:
    agent = site.call("instance_get", id=instance)["agent_id"]
    site.call("instance_stop", id=instance)
    with site.hub.own_work() as tx:
        fields = {"hash": "0" * 64, "kind": "agent", "label": instance, "expires_at": None}
        tx.run("token_put", id=new_id("to"), agent_id=agent, now=tx.now, **fields)
    assert check(site)["live_token"]["instance_id"] == instance
    site.hub.chores.run_one("instance_strays")
    assert check(site) == {}


def test_children_end_with_the_session_and_detached_processes_are_left(
    make_site: Callable[..., Site],
) -> None:
    site = make_site("family", crew__runtimes={"custom": {"command": ["python3", "-c", PARENT]}})
    instance = site.start()
    place = site.place(instance).path
    child = identify(int(eventually((place / "child").read_text)))
    away = identify(int(eventually((place / "away").read_text)))
    assert child is not None and away is not None
    try:
        found = eventually(lambda: check(site).get("detached"))
        assert f"process {away.pid} " in found["about"] and not found["is_fixable"]
        site.call("instance_stop", id=instance)
        assert not is_alive(child) and is_alive(away)
        assert repair(site) == ([], ["detached"]) and is_alive(away)
    finally:
        os.kill(away.pid, signal.SIGKILL)
    eventually(lambda: check(site) == {})


@pytest.mark.parametrize("kind", [STOPPING, ABANDONING], ids=lambda kind: kind.name)
def test_an_end_whose_hub_died_after_the_program_is_finished(site: Site, instance: str, kind: Kind[Any]) -> None:
    row = site.call("instance_get", id=instance)
    data = {"until": site.clock.now, "lease_until": site.clock.now}
    with site.hub.own_work() as tx:
        site.hub.journal.begin(tx, kind, instance, place=row["node"], data=data, holder="999999999 dead")
    os.kill(row["pid"], signal.SIGTERM)
    eventually(lambda: site.tmux.panes()[instance].is_dead)
    site.hub.chores.run_one(f"settle_{kind.name}")
    status = {"instance_stop": "terminated", "instance_abandon": "abandoned"}[kind.name]
    assert site.call("instance_get", id=instance)["status"] == status
    assert not site.tmux.panes() and check(site) == {}


def test_a_stop_whose_hub_died_while_the_program_was_ending_is_finished(make_site: Callable[..., Site]) -> None:
    site = make_site("slow", crew__runtimes={"custom": {"command": ["python3", "-c", SLOW]}})
    instance = site.start()
    place = site.place(instance)
    eventually((place.path / "ready").exists)
    row, program = site.call("instance_get", id=instance), identify(int(place.read("started.json")["pid"]))
    assert program is not None
    data = {"until": site.clock.now, "lease_until": site.clock.now}
    with site.hub.own_work() as tx:
        site.hub.journal.begin(tx, STOPPING, instance, place=row["node"], data=data, holder="999999999 dead")
    os.kill(program.pid, signal.SIGTERM)
    eventually((place.path / "asked").exists)
    site.hub.chores.run_one("settle_instance_stop")
    assert site.call("instance_get", id=instance)["status"] == "terminated"
    assert not is_alive(program) and check(site) == {}


def test_an_operation_that_takes_long_is_shown(site: Site, instance: str) -> None:
    with site.hub.own_work() as tx:
        site.hub.journal.begin(tx, STOPPING, instance, place=site.hub.settings.node, data={}, holder="a hub")
    assert check(site) == {}
    site.clock.now += 61_000
    assert "instance stop has been under way for 61 s" in check(site)["unfinished"]["about"]
