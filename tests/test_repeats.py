"""Repeats: a call that creates is done once for its idempotency key, however often it comes and whatever happens."""

import http.client
import json
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Call, Hub
from crewhall.declaration import KEY
from crewhall.edges.cli.arguments import arguments_of
from crewhall.edges.http.rest import describe
from crewhall.errors import Cancelled, Conflict, Forbidden, InvalidInput, TimedOut, Unavailable
from crewhall.families.all import registry
from crewhall.identity import OPERATOR, Actor, new_id
from crewhall.stop import Stop
from crewhall.store.events import DAY_MS, events_after
from crewhall.token_file import read_operator_token
from crewhall.tool import Family, Registry
from tests.conftest import Agent, Clock, Live, eventually
from tests.contract.test_kill import HubProcess
from tests.contract.test_races import someone_waits
from tests.contract.writer import PATIENCE
from tests.edges.interfaces import INTERFACES

sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
ADA = {"name": "ada", "runtime": "codex"}


class Shelf:
    """A family that only these tests have: tools that create an event each, in ways that handlers may."""

    def __init__(self) -> None:
        self.is_broken = False
        family = Family("shelf", "Tools for tests.", "crewhall.families.work")

        @family.tool("shelf_add", changes=True, creates=True)
        def shelf_add(call: Call, name: str, note: dict[str, Any] | None = None) -> dict[str, Any]:
            """Add a thing."""
            with call.begin() as tx:
                tx.event("shelf.added", name)
                if self.is_broken:
                    raise Unavailable("the shelf is broken", hint="Mend it.")
            return {"id": new_id("sh"), "name": name, "ünï": [None, 1.5, True], "note": note}

        @family.tool("shelf_list", changes=True, creates=True)
        def shelf_list(call: Call) -> list[str]:
            """Add a thing, and answer with a list."""
            with call.begin() as tx:
                tx.event("shelf.added", "listed")
            return [new_id("sh")]

        @family.tool("shelf_move", changes=True, creates=True)
        def shelf_move(call: Call, path: str) -> dict[str, Any]:
            """Add a repository and then a thing, in two transactions, and look at it afterwards."""
            with call.begin() as tx:
                tx.run(
                    "repository_put",
                    id=new_id("rp"),
                    path=path,
                    name=None,
                    default_name="r",
                    actor="operator",
                    now=call.now,
                )
            between = call.one("repository_get", path=path)
            with call.begin() as tx:
                tx.event("shelf.added", path)
                assert between == tx.one("repository_get", path=path)
            return {"id": (call.one("repository_get", path=path) or {}).get("id")}

        @family.tool("shelf_try", changes=True, creates=True)
        def shelf_try(call: Call, path: str) -> dict[str, Any]:
            """Fail to add one thing, and add another instead."""
            try:
                with call.begin() as tx:
                    tx.run(
                        "repository_put",
                        id="rp_1",
                        path=path,
                        name=None,
                        default_name="r",
                        actor="operator",
                        now=call.now,
                    )
                    tx.event("shelf.added", "failed")
                    tx.run("shelf_bug")
            except Exception as error:
                assert "no_such_table" in str(error)
            with call.begin() as tx:
                tx.event("shelf.added", "instead")
                return {"found": tx.one("repository_get", path=path)}

        self.registry = Registry([family])


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def hub(make_hub: Callable[..., Hub], shelf: Shelf, clock: Clock) -> Hub:
    return make_hub(shelf.registry, clock=clock)


def add(hub: Hub, key: str | None, actor: Actor = OPERATOR, /, tool: str = "shelf_add", **more: Any) -> dict[str, Any]:
    given = {"name": "x"} if tool == "shelf_add" else {}
    return hub.call(tool, given | more | {KEY: key}, actor)


def added_subjects(hub: Hub) -> list[str]:
    with hub.store.read(of_events=True) as tx:
        return [event["subject"] for event in events_after(tx, 0, 1000, topic="shelf")]


def stored_count(hub: Hub) -> int:
    hub.store.texts["answers_count"] = "SELECT count(*) AS total FROM kept_answer"
    row = hub.store.one("answers_count")
    assert row is not None
    total: int = row["total"]
    return total


def calls(hub: Hub) -> list[tuple[str, int, str | None]]:
    with hub.store.read() as tx:
        rows = tx.all("calls", tool=None, actor=None, success=None, at=2**53, id="", limit=100)
    return [(row["tool"], row["success"], row["error"]) for row in reversed(rows)]


def test_a_call_that_comes_again_with_its_key_is_done_once_and_answered_alike(hub: Hub, clock: Clock) -> None:
    first = add(hub, "k", note={"a": 1, "b": [{}]})
    clock.advance(5)
    assert add(hub, "k", note={"b": [{}], "a": 1}) == first, "the order of the arguments says nothing"
    assert added_subjects(hub) == ["x"]
    assert add(hub, "k2", note={"a": 1, "b": [{}]})["id"] != first["id"]
    assert add(hub, "l", tool="shelf_list") == add(hub, "l", tool="shelf_list"), "what is no object, too"


def test_without_a_key_nothing_is_kept_and_every_call_is_done(hub: Hub) -> None:
    assert hub.call("shelf_add", {"name": "x"}, OPERATOR)["id"] != add(hub, None)["id"]
    assert added_subjects(hub) == ["x", "x"] and stored_count(hub) == 0


def test_the_same_key_with_other_arguments_is_a_conflict_and_changes_nothing(hub: Hub) -> None:
    first = add(hub, "k")
    others: list[dict[str, Any]] = [{"name": "y"}, {"note": {}}]
    for other in others:
        with pytest.raises(Conflict, match="idempotency_key 'k' was given to a shelf_add with other argum") as refused:
            add(hub, "k", **other)
        assert "give a new key" in refused.value.hint
    assert added_subjects(hub) == ["x"] and add(hub, "k") == first


def test_a_key_is_its_actors_and_its_tools(make_hub: Callable[..., Hub], clock: Clock) -> None:
    hub = make_hub(clock=clock)
    ada, bob = Agent(hub, "ada"), Agent(hub, "bob")
    who = [hub.call("agent_register", ADA | {KEY: "k"}, actor)["id"] for actor in (OPERATOR, ada.actor, bob.actor)]
    assert len(set(who)) == 3 and who[1:] == [ada.id, bob.id]
    assert hub.call("repository_register", {"path": "/r", KEY: "k"}, OPERATOR)["id"].startswith("rp_")
    assert hub.call("agent_register", ADA | {KEY: "k"}, OPERATOR)["id"] == who[0]


def test_a_call_that_failed_is_really_tried_again(hub: Hub, shelf: Shelf) -> None:
    shelf.is_broken = True
    for _ in range(2):
        with pytest.raises(Unavailable):
            add(hub, "k")
    assert added_subjects(hub) == [] and stored_count(hub) == 0
    shelf.is_broken = False
    assert add(hub, "k", name="other arguments, then") == add(hub, "k", name="other arguments, then")
    assert len(added_subjects(hub)) == 1


def test_a_key_is_kept_for_a_day(hub: Hub, clock: Clock) -> None:
    first = add(hub, "k")
    clock.now += DAY_MS - 1
    assert add(hub, "k") == first
    clock.now += 1
    second = add(hub, "k", name="y")
    assert second["name"] == "y" and added_subjects(hub) == ["x", "y"]
    clock.now += DAY_MS - 1
    assert add(hub, "k", name="y") == second, "the day began anew"
    assert stored_count(hub) == 1


def test_keys_that_are_over_are_pruned(hub: Hub, clock: Clock) -> None:
    add(hub, "old")
    clock.now += DAY_MS - 1
    add(hub, "young")
    hub.chores.run_due()
    assert stored_count(hub) == 2
    clock.advance(1200)
    hub.chores.run_due()
    assert stored_count(hub) == 1
    add(hub, "young")
    assert added_subjects(hub) == ["x", "x"]


@pytest.mark.parametrize(("hubs", "callers"), [(1, 2), (1, 16), (2, 2), (2, 16)])
def test_of_many_at_once_one_creates_and_all_get_its_answer(
    make_hub: Callable[..., Hub], shelf: Shelf, hubs: int, callers: int
) -> None:
    running = [make_hub(shelf.registry) for _ in range(hubs)]
    together = threading.Barrier(callers)

    def ask(number: int) -> dict[str, Any]:
        together.wait(PATIENCE)
        return add(running[number % hubs], "k")

    with ThreadPoolExecutor(callers) as pool:
        bodies = list(pool.map(ask, range(callers)))
    assert all(body == bodies[0] for body in bodies)
    assert added_subjects(running[0]) == ["x"]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_who_asks_while_the_first_is_not_committed_waits_for_how_it_ends(
    make_hub: Callable[..., Hub], shelf: Shelf, postgres_url: str, is_cancelled: bool
) -> None:
    first, second = make_hub(shelf.registry), make_hub(shelf.registry)
    reached, stop = threading.Event(), Stop()

    def stand_until_the_other_waits() -> None:
        reached.set()
        eventually(lambda: someone_waits(postgres_url))
        if is_cancelled:
            stop.cancel()

    first.before_commit = stand_until_the_other_waits
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first.call, "shelf_add", {"name": "x", KEY: "k"}, OPERATOR, stop=stop)
        assert reached.wait(PATIENCE)
        two = pool.submit(add, second, "k")
        body = two.result(PATIENCE)
        assert isinstance(one.exception(PATIENCE), Cancelled if is_cancelled else type(None))
    assert is_cancelled or one.result() == body
    assert added_subjects(second) == ["x"]


@pytest.mark.parametrize("failure", [Cancelled, TimedOut])
def test_a_call_that_is_stopped_before_its_commit_leaves_no_key(hub: Hub, failure: type[Exception]) -> None:
    stop = Stop(0.2 if failure is TimedOut else None)
    hub.before_commit = stop.cancel if failure is Cancelled else lambda: eventually(lambda: stop.seconds_left == 0.0)
    with pytest.raises(failure):
        hub.call("shelf_add", {"name": "x", KEY: "k"}, OPERATOR, stop=stop)
    hub.before_commit = lambda: None
    assert added_subjects(hub) == [] and stored_count(hub) == 0
    add(hub, "k")
    assert added_subjects(hub) == ["x"]


@pytest.mark.slow
def test_after_kill_9_clients_repeat_everything_and_nothing_is_lost_or_doubled(database: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    acknowledged: dict[int, str] = {}
    enough = threading.Event()

    def register(hub: HubProcess, connection: http.client.HTTPConnection, number: int) -> str:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {read_operator_token(home)}"}
        body = json.dumps({"name": f"a{number}", "runtime": "codex", KEY: f"k{number}"})
        connection.request("POST", "/api/v1/agent/register", body, headers)
        found: str = json.loads(connection.getresponse().read())["id"]
        return found

    def write(hub: HubProcess, client: int) -> None:
        connection = http.client.HTTPConnection(hub.address, timeout=PATIENCE)
        for number in range(client, 600, 6):
            try:
                acknowledged[number] = register(hub, connection, number)
            except (OSError, http.client.HTTPException):
                return
            if len(acknowledged) >= 100:
                enough.set()

    killed = HubProcess(database, home)
    clients = [threading.Thread(target=write, args=(killed, client)) for client in range(6)]
    for client in clients:
        client.start()
    assert enough.wait(PATIENCE)
    killed.end(signal.SIGKILL)
    for client in clients:
        client.join(PATIENCE)
    assert 100 <= len(acknowledged) < 600
    again = HubProcess(database, home)
    try:
        connection = http.client.HTTPConnection(again.address, timeout=PATIENCE)
        tried = range(max(acknowledged) + 7)  # what was under way at the end, too
        answered = {number: register(again, connection, number) for number in tried}
        connection.request("GET", "/api/v1/agent/list?limit=1", headers={})
        total = json.loads(connection.getresponse().read())["total"]
    finally:
        again.end(signal.SIGTERM)
    assert acknowledged.items() <= answered.items()
    assert total == len(set(answered.values())) == len(tried)


def test_a_handler_may_open_two_transactions_and_look_afterwards(hub: Hub) -> None:
    first = add(hub, "k", tool="shelf_move", path="/r")
    assert first["id"].startswith("rp_") and add(hub, "k", tool="shelf_move", path="/r") == first
    assert added_subjects(hub) == ["/r"]


def test_a_block_that_fails_is_taken_back_alone_when_the_handler_goes_on(hub: Hub) -> None:
    hub.store.texts["shelf_bug"] = "DELETE FROM no_such_table"
    for key in (None, "k"):
        assert add(hub, key, tool="shelf_try", path="/r") == {"found": None}
    assert added_subjects(hub) == ["instead", "instead"]


def test_a_repeat_is_in_the_call_log_as_the_success_it_is(hub: Hub, clock: Clock) -> None:
    add(hub, "k")
    clock.advance(1)
    with pytest.raises(Conflict):
        add(hub, "k", name="y")
    hub.calls.close()  # nothing is written behind the calls any more
    assert len(calls(hub)) == 2
    clock.advance(1)
    add(hub, "k")
    assert calls(hub) == [("shelf_add", 1, None), ("shelf_add", 0, "CONFLICT"), ("shelf_add", 1, None)]


def test_a_reading_client_gets_no_kept_answer(hub: Hub) -> None:
    add(hub, "k")
    with pytest.raises(Forbidden, match="read-only profile"):
        add(hub, "k", OPERATOR.reading_only())


@pytest.mark.slow
@sqlite
def test_one_key_through_every_way_is_one_agent(live: Live) -> None:
    bodies = {
        name: interface(live, "agent_register", ADA | {KEY: "k"}, live.token) for name, interface in INTERFACES.items()
    }
    assert len({json.dumps(body) for body in bodies.values()}) == 1 and "id" in bodies["rest"], bodies
    refused = {
        name: interface(live, "agent_register", ADA | {KEY: ""}, live.token)["code"]
        for name, interface in INTERFACES.items()
    }
    assert set(refused.values()) == {"INVALID_INPUT"}
    assert live.hub.call("agent_list", {}, OPERATOR)["total"] == 1


def test_the_command_line_has_a_flag_for_the_key() -> None:
    words = ["ada", "codex", "--idempotency-key", "k"]
    assert arguments_of(describe(registry().find("agent_register")), words) == ADA | {KEY: "k"}


@sqlite
@pytest.mark.parametrize("key", ["", "k" * 201, 7, ["k"]])
def test_what_is_no_key_is_refused(hub: Hub, key: Any) -> None:
    with pytest.raises(InvalidInput, match="argument 'idempotency_key'"):
        add(hub, key)
    assert added_subjects(hub) == []


def test_the_key_is_declared_for_the_tools_that_create_and_no_handler_sees_it() -> None:
    for tool in registry().tools:
        assert (KEY in tool.input_schema["properties"]) == tool.creates, tool.name
        assert KEY not in tool.input_schema.get("required", [])
    assert {"agent_register", "repository_register"} <= {tool.name for tool in registry().tools if tool.creates}


def test_an_answer_that_is_kept_holds_no_secret() -> None:
    for tool in registry().tools:
        if tool.creates:
            assert not {"token", "secret", "password"} & set(tool.output_schema["properties"]), tool.name


@pytest.mark.parametrize("more", [{}, {"changes": True, "pace": "long"}])
def test_a_tool_that_reads_or_waits_cannot_take_a_key(more: dict[str, Any]) -> None:
    def handler(call: Call) -> dict[str, Any]:
        """Do."""
        return {}

    with pytest.raises(AssertionError, match="cannot take a key"):
        Family("wrong", "", "crewhall.families.work").tool("wrong_do", creates=True, **more)(handler)
