"""Messages through the door, on both databases."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crewhall.app import Hub, Tick
from crewhall.errors import Forbidden, InvalidInput, NotFound
from crewhall.families.work.message.model import URGENCY
from crewhall.identity import Actor
from crewhall.store.transaction import Row
from tests.conftest import Agent, Clock
from tests.sizes import size

Ask = Callable[..., dict[str, Any]]
PERSON = Actor("operator", "operator", proof="token")
LIVED_IN = settings(  # one hall for all examples: what is promised holds in any hall
    max_examples=size(6, 15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def operator(hub: Hub) -> Ask:
    """Calls with the operator's token: that a person looks into an inbox is no sign of life of its agent."""

    def ask(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hub.call(tool, arguments, PERSON)

    return ask


@pytest.fixture(scope="module")
def common(common_hub: Hub) -> Ask:
    """Calls with the operator's token to the hall that tests share."""
    return lambda tool, /, **arguments: common_hub.call(tool, arguments, PERSON)


@pytest.fixture(scope="module")
def common_ada(common: Ask) -> str:
    return register(common, "ada")


@pytest.fixture
def ada(operator: Ask) -> str:
    return register(operator, "ada")


@pytest.fixture
def bob(operator: Ask) -> str:
    return register(operator, "bob")


def register(operator: Ask, name: str, **more: Any) -> str:
    found: str = operator("agent_register", name=name, **{"runtime": "codex", **more})["id"]
    return found


def send(operator: Ask, sender: str, recipient: str, body: Any = "hello", **more: Any) -> dict[str, Any]:
    told = {"sender_id": sender, "recipient_id": recipient, "message_type": "query", "body": body}
    return operator("message_send", **told | more)


def bodies(found: dict[str, Any]) -> list[Any]:
    return [message["body"] for message in found["messages"]]


def events(operator: Ask) -> list[tuple[str, str, Any]]:
    found = operator("event_list", topic="message", limit=500)["events"]
    return [(event["what"], event["subject"], event["data"]) for event in found]


def sql(hub: Hub, text: str, **params: Any) -> list[Row]:
    """What only the test asks of the database."""
    hub.store.texts["test"] = hub.store.dialect.query(text)
    with hub.own_work() as tx:
        if text.startswith("SELECT"):
            return tx.all("test", **params)
        tx.run("test", **params)
    return []


def lose(hub: Hub, agent: str, lease_until: int | None, has_left: int = 0) -> None:
    change = "UPDATE agent SET status = 'offline', lease_until = :until, has_left = :has_left WHERE id = :id"
    sql(hub, change, id=agent, until=lease_until, has_left=has_left)


def assert_counted(hub: Hub) -> None:
    """The counters are what is stored."""
    counted = sql(hub, "SELECT agent_id, status, priority, messages FROM inbox_tally WHERE messages <> 0")
    stored = sql(
        hub,
        "SELECT recipient_id AS agent_id, status, priority, count(*) AS messages FROM message GROUP BY 1, 2, 3",
    )
    assert sorted(map(str, counted)) == sorted(map(str, stored))


def pages(operator: Ask, **more: Any) -> Iterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        page = operator("message_list", **more, **({"cursor": cursor} if cursor else {}))
        yield page
        cursor = page["next_cursor"]
        if cursor is None:
            return


def test_a_message_arrives_with_the_seeds_fields(operator: Ask, clock: Clock, ada: str, bob: str) -> None:
    sent = send(operator, ada, bob, {"do": ["this", 1.5, None]}, subject="A task", message_type="task_assignment")
    assert operator("message_list", agent_id=ada)["messages"] == []
    found = operator("message_list", agent_id=bob)
    assert (found["unread_count"], found["total"], found["next_cursor"]) == (1, 1, None)
    assert found["messages"] == [
        {
            "id": sent["id"],
            "sender_id": ada,
            "recipient_id": bob,
            "message_type": "task_assignment",
            "subject": "A task",
            "body": {"do": ["this", 1.5, None]},
            "priority": "normal",
            "workflow_id": None,
            "task_id": None,
            "thread_id": sent["thread_id"],
            "reply_to_id": None,
            "status": "unread",
            "created_at": clock.now,
            "read_at": None,
            "archived_at": None,
            "expires_at": None,
            "left_out": None,
        }
    ]
    assert sent["id"].startswith("ms_") and sent["thread_id"].startswith("th_")


@pytest.mark.parametrize(
    "body", ["", "text", '{"not": "parsed"}', "é漢🙂", {}, {"a": {"b": [True, None, 10**20, "é"]}}]
)
def test_a_body_comes_back_as_it_was_given(common: Ask, common_ada: str, body: Any) -> None:
    bob = register(common, "bob")
    sent = send(common, common_ada, bob, body)
    assert common("message_get", id=sent["id"])["body"] == body
    assert bodies(common("message_list", agent_id=bob, status="all")) == [body]


@pytest.mark.parametrize("kind", ["task_assignment", "status_update", "query", "response", "notification"])
def test_every_type_of_message_is_sent_and_listed_by_it(common: Ask, common_ada: str, kind: str) -> None:
    bob = register(common, "bob")
    send(common, common_ada, bob, "it", message_type=kind)
    send(common, common_ada, bob, "other", message_type="query" if kind != "query" else "response")
    found = common("message_list", agent_id=bob, message_type=[kind])
    assert bodies(found) == ["it"] and (found["total"], found["unread_count"]) == (1, 2)


def test_the_person_has_an_inbox_and_writes_to_agents(hub: Hub, operator: Ask) -> None:
    ada = Agent(hub, "ada")
    sent = ada.call("message_send", recipient_id="operator", message_type="query", body="May I?")
    assert bodies(operator("message_list", agent_id="operator")) == ["May I?"]
    answer = {"recipient_id": ada.id, "reply_to_id": sent["id"], "message_type": "response", "body": "Yes."}
    operator("message_send", sender_id="operator", **answer)
    assert ada.call("message_list")["messages"][0]["sender_id"] == "operator"
    assert operator("message_count_unread", agent_id="operator")["count"] == 1


def test_no_agent_acts_as_another_or_as_the_person(hub: Hub) -> None:
    ada, bob = Agent(hub, "ada"), Agent(hub, "bob")
    told = {"recipient_id": ada.id, "message_type": "query", "body": "x"}
    for other in (bob.id, "operator", "hall"):
        with pytest.raises(Forbidden, match="your token is that of"):
            ada.call("message_send", sender_id=other, **told)
        with pytest.raises(Forbidden):
            ada.call("message_broadcast", sender_id=other, message_type="notification", body="x")
        for tool in ("message_list", "message_count_unread"):
            with pytest.raises(Forbidden):
                ada.call(tool, agent_id=other)


def test_replies_join_the_thread_in_the_order_sent(operator: Ask, ada: str, bob: str) -> None:
    first = send(operator, ada, bob, "1", priority="low")
    second = send(operator, bob, ada, "2", reply_to_id=first["id"], priority="urgent")
    send(operator, ada, bob, "3", reply_to_id=first["id"])
    send(operator, ada, bob, "elsewhere")
    eve = register(operator, "eve")
    send(operator, eve, bob, "4", reply_to_id=second["id"], priority="high")
    operator("message_mark_read", message_ids=[first["id"]])
    thread = first["thread_id"]
    assert second["thread_id"] == thread
    assert bodies(operator("message_list", agent_id=bob, thread_id=thread)) == ["1", "2", "3", "4"]
    assert bodies(operator("message_list", agent_id=ada, thread_id=thread)) == ["1", "2", "3"]
    assert bodies(operator("message_list", agent_id=bob, thread_id=thread, status="unread")) == ["2", "3", "4"]
    assert bodies(operator("message_list", agent_id=bob, thread_id=thread, status="read")) == ["1"]
    read = [page["total"] for page in pages(operator, agent_id=bob, thread_id=thread, limit=1)]
    assert read == [4, 4, 4, 4]
    assert operator("message_list", agent_id=bob, thread_id="th_none")["total"] == 0


def test_the_most_urgent_comes_first_and_the_newest_within_a_priority(operator: Ask, ada: str, bob: str) -> None:
    for number, priority in enumerate(["normal", "urgent", "low", "high", "urgent", "normal"]):
        send(operator, ada, bob, f"{priority}{number}", priority=priority)
    order = ["urgent4", "urgent1", "high3", "normal5", "normal0", "low2"]
    assert bodies(operator("message_list", agent_id=bob)) == order
    assert bodies(operator("message_list", agent_id=bob, status="all")) == order
    found = operator("message_list", agent_id=bob, priority=["low", "high"])
    assert bodies(found) == ["high3", "low2"] and (found["total"], found["unread_count"]) == (2, 6)
    assert operator("message_list", agent_id=bob, priority=[])["total"] == 6


def test_a_list_is_filtered_by_status_workflow_and_time(
    hub: Hub, operator: Ask, clock: Clock, ada: str, bob: str
) -> None:
    sql(
        hub,
        "INSERT INTO workflow (id, name, status, source_type, source_content, max_parallel_tasks, "
        "auto_create_workspaces, created_at, updated_at) VALUES ('wf_1', 'w', 'planning', 'prompt', 'c', 1, 0, 0, 0)",
    )
    read = send(operator, ada, bob, "read")["id"]
    operator("message_get", id=read)
    clock.advance(10)
    send(operator, ada, bob, "later", workflow_id="wf_1")
    assert bodies(operator("message_list", agent_id=bob)) == ["later"]
    assert bodies(operator("message_list", agent_id=bob, status="unread")) == ["later"]
    assert bodies(operator("message_list", agent_id=bob, status="read")) == ["read"]
    assert bodies(operator("message_list", agent_id=bob, status="all")) == ["later", "read"]
    for since in (clock.now, clock.now / 1000, clock.now // 1000 - 9):
        found = operator("message_list", agent_id=bob, status="all", since=since)
        assert bodies(found) == ["later"] and found["total"] == 1
    assert operator("message_list", agent_id=bob, status="all", since=clock.now + 1)["total"] == 0
    assert bodies(operator("message_list", agent_id=bob, status="all", workflow_id="wf_1")) == ["later"]
    assert bodies(operator("message_list", agent_id=bob, status="read", workflow_id="wf_1")) == []


def test_a_message_names_a_workflow_and_task_that_exist(operator: Ask, ada: str, bob: str) -> None:
    for what in ("workflow", "task"):
        with pytest.raises(NotFound, match=f"there is no {what} 'xx_1'"):
            send(operator, ada, bob, **{f"{what}_id": "xx_1"})
    with pytest.raises(NotFound, match="there is no workflow 'wf_1'"):
        operator("message_broadcast", sender_id=ada, message_type="notification", body="x", workflow_id="wf_1")
    assert operator("message_list", agent_id=bob)["total"] == 0


def test_unknown_ids_are_not_found_and_change_nothing(operator: Ask, ada: str) -> None:
    known = send(operator, ada, ada)["id"]
    tries: list[tuple[str, dict[str, Any]]] = [
        ("message_send", {"sender_id": "ag_0", "recipient_id": ada, "message_type": "query", "body": "x"}),
        ("message_send", {"sender_id": ada, "recipient_id": "ag_0", "message_type": "query", "body": "x"}),
        ("message_send", {"sender_id": ada, "recipient_id": "hall", "message_type": "query", "body": "x"}),
        (
            "message_send",
            {"sender_id": ada, "recipient_id": ada, "message_type": "query", "body": "x", "reply_to_id": "ms_0"},
        ),
        ("message_broadcast", {"sender_id": "ag_0", "message_type": "notification", "body": "x"}),
        ("message_list", {"agent_id": "ag_0"}),
        ("message_count_unread", {"agent_id": "ag_0"}),
        ("message_get", {"id": "ms_0"}),
        ("message_mark_read", {"message_ids": [known, "ms_0"]}),
        ("message_archive", {"message_ids": [known, "ms_0"]}),
    ]
    for tool, arguments in tries:
        with pytest.raises(NotFound, match=r"there is no (agent 'ag_0'|agent 'hall'|message 'ms_0')"):
            operator(tool, **arguments)
    assert operator("message_list", agent_id=ada, status="all")["total"] == 1
    assert operator("message_count_unread", agent_id=ada)["count"] == 1


BAD: list[tuple[str, dict[str, Any]]] = [
    ("message_send", {"message_type": "shout"}),
    ("message_send", {"priority": "asap"}),
    ("message_send", {"body": None}),
    ("message_send", {"body": ["a", "list"]}),
    ("message_send", {"body": 7}),
    ("message_send", {"body": "x" * 3 * 2**20}),
    ("message_send", {"body": {"t": "x" * 64_000}}),
    ("message_send", {"subject": "x" * 501}),
    ("message_send", {"expires_in": 0}),
    ("message_send", {"expires_in": 30 * 86_400 + 1}),
    ("message_send", {"expires_in": 1.5}),
    ("message_send", {"recipient_id": ["a"]}),
    ("message_send", {"cc": "x"}),
    ("message_broadcast", {"message_type": "query"}),
    ("message_broadcast", {"recipient_filter": {"status": "offline"}}),
    ("message_broadcast", {"recipient_filter": {"role": "boss"}}),
    ("message_broadcast", {"recipient_filter": {"name": "bob"}}),
    ("message_broadcast", {"recipient_filter": "all"}),
    ("message_list", {"limit": -1}),
    ("message_list", {"limit": 501}),
    ("message_list", {"status": "archived"}),
    ("message_list", {"since": -1}),
    ("message_list", {"since": "yesterday"}),
    ("message_list", {"priority": "high"}),
    ("message_list", {"priority": ["asap"]}),
    ("message_list", {"message_type": ["shout"]}),
    ("message_list", {"cursor": "1.ms_x"}),
    ("message_list", {"cursor": "1.1", "thread_id": "th_1"}),
    ("message_get", {"mark_read": "yes"}),
    ("message_mark_read", {"message_ids": "ms_1"}),
    ("message_mark_read", {"message_ids": ["ms_1"] * 501}),
    ("message_archive", {"message_ids": [1]}),
    ("message_count_unread", {"priority": ["asap"]}),
]


@pytest.mark.parametrize(("tool", "wrong"), BAD, ids=lambda value: value if isinstance(value, str) else str(value)[:40])
def test_bad_input_is_refused_and_changes_nothing(
    common: Ask, common_ada: str, tool: str, wrong: dict[str, Any]
) -> None:
    good: dict[str, dict[str, Any]] = {
        "message_send": {"sender_id": common_ada, "recipient_id": common_ada, "message_type": "query", "body": "x"},
        "message_broadcast": {"sender_id": "operator", "message_type": "notification", "body": "x"},
        "message_list": {"agent_id": common_ada},
        "message_get": {"id": send(common, common_ada, common_ada)["id"]},
        "message_mark_read": {"message_ids": []},
        "message_archive": {"message_ids": []},
        "message_count_unread": {"agent_id": common_ada},
    }
    common(tool, **good[tool])
    before = common("message_list", agent_id=common_ada, status="all")["total"], events(common)
    with pytest.raises(InvalidInput):
        common(tool, **good[tool] | wrong)
    assert (common("message_list", agent_id=common_ada, status="all")["total"], events(common)) == before


def test_a_body_that_is_too_large_is_refused_with_its_size(operator: Ask, ada: str) -> None:
    with pytest.raises(InvalidInput, match="body is 3145728 characters, and 100000 are allowed"):
        send(operator, ada, ada, "x" * 3 * 2**20)


def test_a_broadcast_reaches_all_who_are_here_but_its_sender(hub: Hub, operator: Ask, ada: str, bob: str) -> None:
    eve, gone = register(operator, "eve", role="coordinator", runtime="gemini"), Agent(hub, "gone")
    operator("agent_update", id=bob, status="busy")
    sent = operator("message_broadcast", sender_id=ada, message_type="notification", body="all", priority="high")
    assert sent["sent_count"] == 2 and len(set(sent["message_ids"])) == 2
    found = [operator("message_list", agent_id=one)["messages"] for one in (bob, eve)]
    assert [(one["body"], one["priority"], one["id"] in sent["message_ids"]) for (one,) in found] == [
        ("all", "high", True)
    ] * 2
    (thread,) = {one["thread_id"] for (one,) in found}
    assert operator("message_list", agent_id=ada, thread_id=thread)["total"] == 2
    assert operator("message_list", agent_id=gone.id)["total"] == 0
    assert operator("message_list", agent_id=ada)["total"] == 0
    told = [(what, subject, data["sent"]) for what, subject, data in events(operator)]
    assert told == [("message.broadcast", thread, 2)]


def test_a_broadcast_is_filtered_by_role_status_and_runtime(operator: Ask, ada: str, bob: str) -> None:
    names = {ada: "ada", bob: "bob", register(operator, "eve", role="coordinator", runtime="gemini"): "eve"}
    operator("agent_update", id=bob, status="busy")

    def names_reached(**wanted: str) -> set[str]:
        told = {"sender_id": "operator", "message_type": "status_update", "body": "x"}
        ids = operator("message_broadcast", recipient_filter=wanted, **told)["message_ids"]
        return {names[operator("message_get", id=one)["recipient_id"]] for one in ids}

    assert names_reached() == {"ada", "bob", "eve"}
    assert names_reached(role="worker") == {"ada", "bob"}
    assert names_reached(status="busy") == {"bob"}
    assert names_reached(status="online", role="worker") == {"ada"}
    assert names_reached(runtime="gemini") == {"eve"}
    before = len(events(operator))
    assert names_reached(runtime="opencode") == set()
    assert len(events(operator)) == before


def test_read_state_is_the_recipients_alone(hub: Hub, operator: Ask) -> None:
    ada, bob = Agent(hub, "ada"), Agent(hub, "bob")
    sent = ada.call("message_send", recipient_id=bob.id, message_type="query", body="x")["id"]
    assert ada.call("message_get", id=sent)["status"] == "unread"
    for tool in ("message_mark_read", "message_archive"):
        with pytest.raises(Forbidden, match=f"is for {bob.id}, and you are {ada.id}"):
            ada.call(tool, message_ids=[sent])
    assert bob.call("message_get", id=sent, mark_read=False)["status"] == "unread"
    assert bob.call("message_count_unread")["count"] == 1
    read = bob.call("message_get", id=sent)
    assert (read["status"], read["read_at"]) == ("read", hub.clock())
    assert bob.call("message_count_unread")["count"] == 0
    assert ada.call("message_get", id=sent)["status"] == "read"


def test_marking_is_all_or_nothing_and_twice_is_once(hub: Hub, operator: Ask, clock: Clock) -> None:
    ada, bob = Agent(hub, "ada"), Agent(hub, "bob")
    mine = [bob.call("message_send", recipient_id=ada.id, message_type="query", body="x")["id"] for _ in range(3)]
    his = ada.call("message_send", recipient_id=bob.id, message_type="query", body="x")["id"]
    with pytest.raises(Forbidden):
        ada.call("message_mark_read", message_ids=[*mine, his])
    assert ada.call("message_count_unread")["count"] == 3
    before = len(events(operator))
    assert ada.call("message_mark_read", message_ids=[*mine[:2], mine[0]]) == {"success": True}
    clock.advance(5)
    assert ada.call("message_mark_read", message_ids=mine[:2]) == {"success": True}
    assert ada.call("message_get", id=mine[0])["read_at"] == clock.now - 5_000
    assert events(operator)[before:] == [("message.read", mine[0], {"count": 2, "recipients": [ada.id]})]
    assert operator("message_archive", message_ids=[mine[2], his, mine[0]]) == {"success": True}
    assert operator("message_mark_read", message_ids=[mine[2]]) == {"success": True}
    kept = ada.call("message_get", id=mine[2])
    assert (kept["status"], kept["read_at"], kept["archived_at"]) == ("archived", None, clock.now)
    both = {"count": 3, "recipients": sorted((ada.id, bob.id))}
    assert events(operator)[before + 1 :] == [("message.archived", mine[2], both)]
    assert ada.call("message_mark_read", message_ids=[]) == {"success": True}
    assert_counted(hub)


def test_unread_messages_are_counted_by_priority(operator: Ask, ada: str, bob: str) -> None:
    nothing = {"low": 0, "normal": 0, "high": 0, "urgent": 0}
    assert operator("message_count_unread", agent_id=bob) == {"count": 0, "by_priority": nothing}
    for priority in ("low", "high", "high", "urgent"):
        send(operator, ada, bob, priority=priority)
    send(operator, ada, bob)
    found = {"low": 1, "normal": 1, "high": 2, "urgent": 1}
    assert operator("message_count_unread", agent_id=bob) == {"count": 5, "by_priority": found}
    some = operator("message_count_unread", agent_id=bob, priority=["high", "low"])
    assert some == {"count": 3, "by_priority": nothing | {"high": 2, "low": 1}}
    assert operator("message_count_unread", agent_id=bob, priority=[])["count"] == 5


def test_an_unread_message_expires_at_its_moment_and_a_read_one_stays(
    hub: Hub, operator: Ask, clock: Clock, ada: str, bob: str
) -> None:
    late, read = (
        send(operator, ada, bob, "late", expires_in=60)["id"],
        send(operator, ada, bob, "read", expires_in=60)["id"],
    )
    send(operator, ada, bob, "kept")
    operator("message_mark_read", message_ids=[read])
    clock.advance(59.999)
    assert operator("message_count_unread", agent_id=bob)["count"] == 2
    clock.advance(0.001)

    def inbox_state() -> tuple[Any, ...]:
        found = operator("message_list", agent_id=bob)
        every = {one["body"]: one["status"] for one in operator("message_list", agent_id=bob, status="all")["messages"]}
        typed = operator("message_list", agent_id=bob, message_type=["query"])["total"]
        count = operator("message_count_unread", agent_id=bob)["count"]
        assert operator("message_get", id=late)["status"] == "expired"
        return bodies(found), found["total"], found["unread_count"], typed, count, every

    expected = (["kept"], 1, 1, 1, 1, {"late": "expired", "read": "read", "kept": "unread"})
    assert inbox_state() == expected
    operator("message_mark_read", message_ids=[late])
    hub.chores.run_due()
    assert inbox_state() == expected
    assert sql(hub, "SELECT status FROM message WHERE id = :id", id=late) == [{"status": "expired"}]
    assert [event for event in events(operator) if event[0] == "message.expired"] == [
        ("message.expired", late, {"count": 1, "recipients": [bob]})
    ]
    operator("message_archive", message_ids=[late])
    assert_counted(hub)


def test_a_broadcast_expires_too(hub: Hub, operator: Ask, clock: Clock, ada: str, bob: str) -> None:
    told = {"sender_id": "operator", "message_type": "notification", "body": "x"}
    operator("message_broadcast", expires_in=5, **told)
    clock.advance(5)
    hub.chores.run_due()
    assert [operator("message_count_unread", agent_id=one)["count"] for one in (ada, bob)] == [0, 0]
    assert events(operator)[-1][2] == {"count": 2, "recipients": sorted((ada, bob))}


def test_more_messages_than_one_batch_expire_in_one_tick(hub: Hub, operator: Ask, clock: Clock, ada: str) -> None:
    for _ in range(3):
        send(operator, ada, ada, expires_in=1)
    sql(  # 600 more of the same, as one would never send them by hand
        hub,
        "INSERT INTO message SELECT m.id || e.value, m.sender_id, m.recipient_id, 10, m.thread_id, m.turn, "
        "m.reply_to_id, m.message_type, m.priority, m.urgency, m.subject, m.text_id, m.workflow_id, m.task_id, "
        "m.status, m.expires_at, m.created_at, m.read_at, m.archived_at FROM message AS m, {each:ids} AS e",
        ids=json.dumps([str(number) for number in range(200)]),
    )
    sql(hub, "UPDATE inbox_tally SET messages = 603")
    clock.advance(1)
    assert operator("message_count_unread", agent_id=ada)["count"] == 0
    hub.chores.run_due()
    assert_counted(hub)
    assert sql(hub, "SELECT status, count(*) AS n FROM message GROUP BY status") == [{"status": "expired", "n": 603}]


def test_what_nobody_is_there_to_read_comes_back_once(
    hub: Hub, operator: Ask, clock: Clock, ada: str, bob: str
) -> None:
    sent = send(operator, ada, bob, "secret", subject="Help")
    send(operator, ada, bob, "read")
    operator("message_mark_read", message_ids=[operator("message_list", agent_id=bob)["messages"][0]["id"]])
    send(operator, "operator", bob, "from the person")
    lose(hub, bob, clock.now)
    hub.chores.run_due()
    assert operator("message_list", agent_id=ada)["total"] == 0, "its lease is not over yet"
    clock.advance(1)
    hub.chores.run_due()
    clock.advance(100)
    hub.chores.run_due()
    (note,) = operator("message_list", agent_id=ada)["messages"]
    assert (note["sender_id"], note["message_type"], note["priority"]) == ("hall", "notification", "high")
    assert (note["thread_id"], note["reply_to_id"]) == (sent["thread_id"], sent["id"])
    assert note["subject"] == "Undelivered: Help" and bob in note["body"] and sent["id"] in note["body"]
    assert operator("message_list", agent_id="operator")["total"] == 1
    assert operator("message_count_unread", agent_id=bob)["count"] == 2, "it stays for when bob is back"
    assert next(subject for what, subject, _ in events(operator) if what == "message.returned") == sent["id"]
    assert "secret" not in json.dumps(operator("event_list"))
    later = send(operator, ada, bob, "later")
    clock.advance(10)
    hub.chores.run_due()
    assert operator("message_list", agent_id=ada)["messages"][0]["reply_to_id"] == later["id"]
    assert operator("message_count_unread", agent_id=ada)["count"] == 2
    assert bodies(operator("message_list", agent_id=ada, thread_id=sent["thread_id"])) == ["secret", note["body"]]
    assert_counted(hub)


def test_nothing_comes_back_for_one_who_left_or_for_the_hall_or_past_its_time(
    hub: Hub, operator: Ask, clock: Clock, ada: str, bob: str
) -> None:
    eve = register(operator, "eve")
    send(operator, eve, bob)
    send(operator, ada, bob, expires_in=1)
    send(operator, bob, bob)
    lose(hub, eve, clock.now, has_left=1)
    lose(hub, bob, clock.now)
    clock.advance(10)
    hub.chores.run_due()
    assert [operator("message_list", agent_id=one, status="all")["total"] for one in (ada, eve, bob)] == [0, 0, 3]
    send(operator, ada, bob)
    clock.advance(10)
    hub.chores.run_due()
    lose(hub, ada, clock.now - 1)
    clock.advance(10)
    hub.chores.run_due()
    assert operator("message_list", agent_id=bob, status="all")["total"] == 4, "the hall's own note does not come back"
    assert operator("message_list", agent_id=ada)["total"] == 1


def test_a_long_row_of_messages_comes_back_over_some_ticks(
    hub: Hub, operator: Ask, clock: Clock, ada: str, bob: str
) -> None:
    sent = {send(operator, ada, bob)["id"] for _ in range(230)}
    lose(hub, bob, clock.now)
    back: list[int] = []
    for _ in range(5):
        clock.advance(10)
        hub.chores.run_due()
        back.append(operator("message_count_unread", agent_id=ada)["count"])
    assert back == [100, 200, 230, 230, 230]
    found = [one for page in pages(operator, agent_id=ada) for one in page["messages"]]
    assert {one["reply_to_id"] for one in found} == sent and len(found) == 230


def test_a_chore_with_nothing_to_do_writes_nothing(hub: Hub, operator: Ask, clock: Clock, ada: str, bob: str) -> None:
    send(operator, ada, bob)
    send(operator, ada, bob, expires_in=1000)
    hub.chores.run_due()
    lose(hub, bob, None)
    gone = Agent(hub, "gone")
    before = sql(hub, "SELECT agent_id, last_place, looked_through, is_waiting FROM inbox")
    clock.advance(10)
    hub.chores.run_due()
    assert sql(hub, "SELECT agent_id, last_place, looked_through, is_waiting FROM inbox") == before
    assert operator("message_list", agent_id=gone.id)["total"] == 0


def test_a_note_that_cannot_be_written_leaves_nothing_behind(
    hub: Hub, operator: Ask, clock: Clock, ada: str, bob: str
) -> None:
    sent = send(operator, ada, bob)["id"]
    lose(hub, bob, clock.now)
    text, hub.store.texts["inbox_looked"] = hub.store.texts["inbox_looked"], "no SQL at all"
    clock.advance(10)
    hub.chores.run_due()
    assert operator("message_list", agent_id=ada)["total"] == 0
    hub.store.texts["inbox_looked"] = text
    clock.advance(10)
    hub.chores.run_due()
    assert [one["reply_to_id"] for one in operator("message_list", agent_id=ada)["messages"]] == [sent]
    assert_counted(hub)


def test_a_list_stays_small_whatever_is_stored_and_reaches_every_message(operator: Ask, ada: str, bob: str) -> None:
    texts: list[Any] = [
        "x" * 100_000,
        {"t": "y" * 60_000},
        "\x01" * 100_000,
        "🙂" * 100_000,
        "z",
        "z" * 2_000,
        {"t": "\x01" * 300},
    ]
    sent = {send(operator, ada, bob, body, subject="\x01" * 500)["id"]: body for body in texts * 4}
    seen: list[str] = []
    for page in pages(operator, agent_id=bob, limit=500):
        assert len(json.dumps(page, ensure_ascii=False).encode()) <= 20_000 and page["total"] == len(sent)
        for one in page["messages"]:
            whole, left = sent[one["id"]], (one["left_out"] or {"body": 0})["body"]
            shown = one["body"] or ""
            assert shown == whole if not left else isinstance(whole, dict) or whole == shown + whole[-left:]
        seen += [one["id"] for one in page["messages"]]
    assert sorted(seen) == sorted(sent)


def test_a_long_body_is_read_on_piece_by_piece(operator: Ask, ada: str, bob: str) -> None:
    text = "".join(f"{number} é\n" for number in range(12_000))
    large: dict[str, Any] = {"t": text[:45_000]}
    for body, whole in ((text, text), (large, json.dumps(large, ensure_ascii=False, separators=(",", ":")))):
        sent = send(operator, ada, bob, body)["id"]
        first = operator("message_get", id=sent)
        assert first["left_out"]["body"] == len(whole) - len(first["body"] or "")
        read = ""
        while len(read) < len(whole):
            piece = operator("text_read", id=sent, field="body", offset=len(read))
            assert len(json.dumps(piece, ensure_ascii=False).encode()) < 26_000
            read += piece["text"]
            assert piece["next_offset"] == (len(read) if len(read) < len(whole) else None)
        assert read == whole


def test_the_limit_is_twenty_unless_another_is_given(operator: Ask, ada: str, bob: str) -> None:
    for number in range(22):
        send(operator, ada, bob, str(number))
    assert [len(page["messages"]) for page in pages(operator, agent_id=bob)] == [20, 2]
    assert [len(page["messages"]) for page in pages(operator, agent_id=bob, limit=11)] == [11, 11]
    assert len(operator("message_list", agent_id=bob, limit=500)["messages"]) == 22


def test_a_list_of_many_short_messages_stays_small_too(operator: Ask, ada: str) -> None:
    for _ in range(70):
        send(operator, ada, "operator", "")
    found = list(pages(operator, agent_id="operator", limit=500))
    assert [len(json.dumps(page, ensure_ascii=False)) <= 20_000 for page in found] == [True, True]
    assert sum(len(page["messages"]) for page in found) == 70


def test_every_event_of_a_message_tells_who_and_never_what(operator: Ask, ada: str, bob: str) -> None:
    sent = send(operator, ada, bob, "secret", subject="secret")
    operator("message_get", id=sent["id"])
    operator("message_archive", message_ids=[sent["id"]])
    assert events(operator) == [
        ("message.sent", sent["id"], {"sender": ada, "recipient": bob, "thread": sent["thread_id"]}),
        ("message.read", sent["id"], {"count": 1, "recipients": [bob]}),
        ("message.archived", sent["id"], {"count": 1, "recipients": [bob]}),
    ]


PRIORITIES = st.sampled_from(list(URGENCY))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), PRIORITIES, st.sampled_from([None, 3, 30])),
        st.tuples(st.just("broadcast"), PRIORITIES, st.sampled_from([None, 3])),
        st.tuples(st.sampled_from(["read", "archive"]), st.sets(st.integers(0, 30), max_size=6), st.none()),
        st.tuples(st.sampled_from(["wait", "chores", "get"]), st.integers(0, 30), st.none()),
    ),
    min_size=5,
    max_size=25,
)


@given(steps=STEPS)
@LIVED_IN
def test_the_counters_are_what_is_stored_after_any_steps(
    hub: Hub, operator: Ask, clock: Clock, steps: list[Any]
) -> None:
    ada, bob = register(operator, "ada"), register(operator, "bob")
    sent: list[str] = []
    for step, what, expires_in in steps:
        more = {"expires_in": expires_in} if expires_in else {}
        if step == "send":
            sent.append(send(operator, ada, bob, priority=what, **more)["id"])
        elif step == "broadcast":
            told = {"sender_id": ada, "message_type": "notification", "body": "x", "priority": what}
            sent += operator("message_broadcast", **told, **more)["message_ids"]
        elif step == "wait":
            clock.advance(what)
        elif step == "chores":
            hub.chores.run_due()
        elif sent and step == "get":
            operator("message_get", id=sent[what % len(sent)])
        elif sent:
            tool = {"read": "message_mark_read", "archive": "message_archive"}[step]
            operator(tool, message_ids=[sent[one % len(sent)] for one in what])
    assert_counted(hub)
    every = [one for page in pages(operator, agent_id=bob, status="all", limit=50) for one in page["messages"]]
    unread = sum(one["status"] == "unread" for one in every)
    found = operator("message_list", agent_id=bob)
    assert found["unread_count"] == found["total"] == unread == operator("message_count_unread", agent_id=bob)["count"]
    for agent in (ada, bob):  # else later examples broadcast to them too
        operator("agent_unregister", id=agent)


@given(
    priorities=st.lists(PRIORITIES, min_size=1, max_size=25),
    limit=st.integers(1, 7),
    marks=st.sets(st.integers(0, 24)),
    status=st.sampled_from(["unread", "all"]),
)
@LIVED_IN
def test_paging_reaches_every_message_once_while_others_are_marked(
    operator: Ask, priorities: list[str], limit: int, marks: set[int], status: str
) -> None:
    ada = register(operator, "ada")
    sent = [send(operator, ada, ada, priority=priority)["id"] for priority in priorities]
    seen: list[str] = []
    for page in pages(operator, agent_id=ada, limit=limit, status=status):
        seen += [one["id"] for one in page["messages"]]
        operator("message_mark_read", message_ids=[one for one in seen if sent.index(one) in marks])
        send(operator, ada, ada, "newer", priority="urgent")
    urgency = {one: URGENCY[priority] for one, priority in zip(sent, priorities, strict=True)}
    assert seen == sorted(sent, key=lambda one: (-urgency[one], -sent.index(one)))
    operator("agent_unregister", id=ada)


def test_senders_readers_and_broadcasters_at_once_lose_nothing(hub: Hub, operator: Ask, clock: Clock) -> None:
    agents = [register(operator, f"a{number}") for number in range(6)]
    rounds = size(6, 12)

    def work(number: int) -> int:
        sent: list[str] = []
        for turn in range(rounds):
            mine, other = agents[(number + turn) % 6], agents[(number * 5 + turn * 3 + 1) % 6]
            told = {"sender_id": mine, "message_type": "notification", "body": "x"}
            sent.append(send(operator, mine, other, expires_in=1 if turn % 3 == 0 else None)["id"])
            sent += operator("message_broadcast", **told)["message_ids"]
            some = sent[:: -2 if number % 2 else 2][:9]
            operator("message_archive" if turn % 2 else "message_mark_read", message_ids=some)
            if number == 0:
                clock.advance(1)
                hub.chores.run_due()
        return len(sent)

    with ThreadPoolExecutor(8) as pool:
        total = sum(pool.map(work, range(8)))
    assert total == 8 * rounds * 6
    assert_counted(hub)
    assert sql(hub, "SELECT count(*) AS n FROM message") == [{"n": total}]
    twice = "SELECT recipient_id FROM message GROUP BY recipient_id, place HAVING count(*) > 1"
    assert sql(hub, twice) == [], "every message has a place of its own"


def test_what_comes_back_does_not_meet_readers_in_a_deadlock(hub: Hub, operator: Ask, clock: Clock) -> None:
    agents = [register(operator, f"a{number}") for number in range(4)]
    sent = [send(operator, one, other)["id"] for one in agents for other in agents if one != other] * 3
    for agent in agents:
        lose(hub, agent, clock.now - 1)

    def chores(_: int) -> None:
        for _ in range(size(5, 10)):
            clock.advance(10)
            hub.chores.run_due()

    def read(number: int) -> None:
        for turn in range(size(8, 20)):
            operator("message_mark_read", message_ids=sent[number + turn :: 5])
            send(operator, agents[number % 4], agents[turn % 4])

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(chores, 0), *(pool.submit(read, number) for number in range(7))]
        for job in jobs:
            job.result(60)
    clock.advance(10)
    hub.chores.run_due()
    assert_counted(hub)
    twice = "SELECT reply_to_id FROM message WHERE sender_id = 'hall' GROUP BY reply_to_id HAVING count(*) > 1"
    assert sql(hub, twice) == []


def test_two_hubs_give_a_message_back_once(make_hub: Callable[..., Hub], clock: Clock) -> None:
    hubs = [make_hub(clock=clock), make_hub(clock=clock)]

    def operator(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hubs[0].call(tool, arguments, PERSON)

    ada, bob = register(operator, "ada"), register(operator, "bob")
    for _ in range(30):
        send(operator, ada, bob)
    lose(hubs[0], bob, clock.now - 1)
    chore = next(one for one in hubs[0].registry.chores if one.name == "undeliverable")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: chore.run(Tick(hubs[number % 2], clock.now, 0)), range(8)))
    assert operator("message_count_unread", agent_id=ada)["count"] == 30


def test_a_person_who_looks_on_in_the_dashboard_marks_nothing(hub: Hub, operator: Ask, ada: str, bob: str) -> None:
    sent = send(operator, ada, bob)["id"]
    looker = Actor("operator", "operator", proof="cookie")
    assert hub.call("message_get", {"id": sent}, looker)["status"] == "unread"
    with pytest.raises(Forbidden):
        hub.call("message_archive", {"message_ids": [sent]}, looker)
    own = send(operator, ada, "operator")["id"]
    assert hub.call("message_get", {"id": own}, looker)["status"] == "read"
    assert operator("message_count_unread", agent_id=bob)["count"] == 1


def test_a_message_that_is_sent_again_with_its_key_is_there_once(operator: Ask, ada: str, bob: str) -> None:
    first, again = (send(operator, ada, bob, idempotency_key="k") for _ in range(2))
    assert first == again and operator("message_count_unread", agent_id=bob)["count"] == 1
    told = {"sender_id": ada, "message_type": "notification", "body": "all", "idempotency_key": "k"}
    assert operator("message_broadcast", **told) == operator("message_broadcast", **told)
    assert operator("message_count_unread", agent_id=bob)["count"] == 2
