"""
What a call of each tool costs on PostgreSQL: trips to the server, statements, transactions. bench/trips.md tells.

    call, as an edge makes it for an agent's token ──▶ the store's traffic before and after ──▶ the table's row
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.app.hub import DATABASE_FIRST
from crewhall.families.all import registry
from crewhall.identity import Credentials, operator_token
from crewhall.store.postgres import PostgresStore
from tests.conftest import Agent
from tests.families.work.repositories import WorkspaceSite
from tests.families.work.workflows import HOW, PLAN, plan_workflow, register, task

Cost = tuple[int, int, int]  # trips, statements, transactions
TABLE = Path(__file__).parents[3] / "bench" / "trips.md"
ROW = re.compile(r"\| `([\w ]+)` +\| +(\d+) \| +(\d+) \| +(\d+) \|")
# Writing calls that end more than one transaction, and why.
TWICE = {
    "setting_set": "the caller is proven first: only tools of family work begin in the database",
    "message_get": "it looks first, since a message that is read already costs no commit",
    "template_apply": "the plan is filled in before the transaction, so that nothing waits for that",
    "task_update_status in_progress unclaimed": "it tries to share the workflow first, as a holder's step does",
    "file_reserve for a task": "the repository must be known, and its directories looked at, before the transaction",
}


@pytest.fixture
def database(postgres_url: str) -> str:
    return postgres_url


class Costs:
    """Calls that are counted, each by one token, which the hub has seen before."""

    def __init__(self, hub: Hub) -> None:
        assert isinstance(hub.store, PostgresStore)
        self._hub, self._traffic = hub, hub.store.traffic
        self.found: dict[str, Cost] = {}
        hub.calls.close()  # its thread would write between two calls

    def by(self, token: str) -> Callable[..., dict[str, Any]]:
        credentials = Credentials(token=token)
        self._hub.identify(credentials)

        def count(tool: str, variant: str = "", /, **arguments: Any) -> dict[str, Any]:
            actor = self._hub.guess(credentials)
            assert actor is not None
            before = self._now()
            body = self._hub.call(tool, arguments, actor)
            trips, statements, ends = (after - was for after, was in zip(self._now(), before, strict=True))
            self.found[f"{tool} {variant}".strip()] = trips, statements, ends
            return body

        return count

    def _now(self) -> Cost:
        return self._traffic.trips, self._traffic.statements, self._traffic.commits


def in_table() -> dict[str, Cost]:
    return {name: (int(one), int(two), int(three)) for name, one, two, three in ROW.findall(TABLE.read_text("utf-8"))}


def as_row(name: str, cost: Cost) -> str:
    return f"| `{name}` | {' | '.join(map(str, cost))} |"


def verdict(name: str, cost: Cost, before: Cost | None) -> str | None:
    """What is to be done about a call whose cost is not what the table says."""
    if before is None:
        return f"{name} has no row: add {as_row(name, cost)}"
    if cost == before:
        return None
    if all(now <= was for now, was in zip(cost, before, strict=True)):
        return f"{name} costs less than it did: lower its row to {as_row(name, cost)}"
    return (
        f"{name} costs {cost}, and its row allows {before} (trips, statements, transactions): let what it asks travel "
        "with tx.ahead, or ask it in one statement. A hint that has other parameters than its query costs a statement "
        f"and saves no trip. If it must cost that, raise its row to {as_row(name, cost)}"
    )


def new_table(found: dict[str, Cost]) -> str:
    """bench/trips.md as it would be right, with the sentences that it has."""
    kept = [line for line in TABLE.read_text("utf-8").splitlines() if ROW.fullmatch(line) is None]
    return "\n".join([*kept, *(as_row(name, cost) for name, cost in found.items())]) + "\n"


def make_costs(hub: Hub, site: WorkspaceSite) -> Costs:
    """Typical calls of every tool, counted."""
    costs = Costs(hub)
    with hub.own_work() as tx:
        token = operator_token(tx, hub.settings.home, hub.clock())
    person = costs.by(token)
    ada = Agent(hub, "ada", "coordinator")
    bob = register(site.ask, "bob")
    workflow, tasks = plan_workflow(
        site.ask,
        *(task(f"t{number}", parallel_group="g") for number in range(12)),
        task("last", depends_on=["t11"]),
        task("later", 2),
        repository_path=str(site.root),
        max_parallel_tasks=20,
    )
    ask = costs.by(ada.token)
    _count_life(ask, tasks["t0"], bob)
    _count_tasks(ask, workflow, tasks)
    _count_messages(ask, site.ask, ada.id, bob)
    _count_workflows(ask, site.ask, workflow)
    _count_files(ask, site, workflow, tasks["t3"])
    _count_hall(ask, ada.id, tasks["t3"], workflow)
    _count_hand_over(ask, tasks["t4"], bob, register(site.ask, "cat"))
    _count_agents(ask, person, ada.id, bob, tasks["t3"])
    return costs


Ask = Callable[..., dict[str, Any]]


def _count_life(ask: Ask, one: str, bob: str) -> None:
    ask("task_get_available")
    ask("task_claim", task_id=one)
    ask("task_update_status", "in_progress", id=one, status="in_progress")
    ask("checkpoint_add", task_id=one, type="progress", summary="half")
    ask("task_update_status", "completed", id=one, status="completed", outcome="done")
    ask("message_send", recipient_id=bob, message_type="query", body="hi")


def _count_tasks(ask: Ask, workflow: str, tasks: dict[str, str]) -> None:
    one, two = tasks["t1"], tasks["t2"]
    ask("task_get_available", "with none", workflow_id=workflow, repository_path="/")
    ask("task_update_status", "in_progress unclaimed", id=one, status="in_progress")
    ask("task_set_plan", id=one, plan=HOW)
    ask("task_replan", id=one, reason="otherwise", new_plan=HOW)
    ask("task_release", task_id=one)
    ask("task_claim", "again", task_id=two)
    ask("task_claim", "again", task_id=two)
    ask("task_update_status", "in_progress", id=two, status="in_progress")
    ask("task_update_status", "failed", id=two, status="failed", error="broken")
    ask("task_get", id=one)
    ask("task_get", "with checkpoints", id=one, include_checkpoints=True)
    ask("task_list", workflow_id=workflow, status=["pending"])
    ask("task_check_dependencies", task_id=tasks["last"])
    ask("task_check_dependencies", "of sequences", task_id=tasks["later"])
    ask("checkpoint_list", task_id=one)
    ask("task_claim", task_id=tasks["t3"])
    ask("task_load_context", task_id=tasks["t3"])
    ask("task_load_context", "of mine")


def _count_hand_over(ask: Ask, one: str, bob: str, cat: str) -> None:
    ask("task_claim", task_id=one)
    ask("task_hand_over", task_id=one, to=bob, reason="it knows css")
    ask("task_hand_over", "by a coordinator", task_id=one, to=cat, reason="it is free")


def _count_messages(ask: Ask, operator: Ask, ada: str, bob: str) -> None:
    def receive() -> str:
        sent: str = operator("message_send", sender_id=bob, recipient_id=ada, message_type="query", body="?")["id"]
        return sent

    first = receive()
    ask("message_list")
    ask("message_list", "filtered", message_type=["query"])
    ask("message_count_unread")
    ask("message_get", id=first)
    ask("message_get", "read already", id=first)
    ask("message_mark_read", message_ids=[receive(), receive()])
    ask("message_archive", message_ids=[first])
    ask("message_broadcast", message_type="notification", body="all")
    ask("message_send", "as a reply", recipient_id=bob, message_type="response", body="!", reply_to_id=first)


def _count_workflows(ask: Ask, operator: Ask, workflow: str) -> None:
    source = {"source_type": "prompt", "source_content": "do it"}
    made = ask("workflow_create", name="w", **source)["id"]
    ask("workflow_set_plan", id=made, plan=PLAN | {"tasks": [task("a"), task("b", depends_on=["a"])]})
    added = ask("workflow_add_tasks", id=made, tasks=[task("c")])["task_ids"]
    ask("workflow_remove_task", id=made, task_id=added[0])
    ask("workflow_set_parallelism", id=made, max_parallel_tasks=3)
    template = ask("template_create", name="t", template={"tasks": [task("{{what}}")]})["id"]
    ask("template_create", "from a workflow", name="t2", from_workflow_id=made)
    ask("template_list")
    ask("template_get", id=template)
    ask("template_apply", template_id=template, workflow_name="w2", variables={"what": "x"})
    ask("workflow_update_status", id=made, status="in_progress")
    ask("workflow_update_status", "abandoned", id=made, status="abandoned")
    ask("workflow_archive", id=made)
    ask("workflow_get", id=workflow)
    ask("workflow_get", "with tasks", id=workflow, include_tasks=True)
    ask("workflow_get", "with whole tasks", id=workflow, include_tasks=True, include_task_summaries=False)
    ask("workflow_list")
    ask("workflow_next_tasks", workflow_id=workflow)
    ask("workflow_progress", workflow_id=workflow)
    ask("workflow_get_summary", id=workflow)


def _count_files(ask: Ask, site: WorkspaceSite, workflow: str, one: str) -> None:
    root = str(site.root)
    ask("repository_register", path=root)
    ask("repository_list")
    ask("repository_get", path=root)
    ask("file_reserve", paths=["a"], repository_path=root)
    ask("file_reserve", paths=["b"], repository_path=root)
    ask("file_reserve", "for a task", paths=["c"], task_id=one)
    ask("file_reservations", repository_path=root)
    ask("file_release", paths=["a"], repository_path=root)
    place = site.workspace(workflow, "fix")["id"]
    ask("task_assign_workspace", task_id=one, workspace_id=place)
    ask("workspace_list", workflow_id=workflow)


def _count_hall(ask: Ask, ada: str, one: str, workflow: str) -> None:
    ask("agent_get", id=ada)
    ask("agent_list")
    ask("event_list", limit=5)
    ask("call_list", limit=5)
    ask("text_read", id=workflow, field="source_content")
    ask("review_list")
    ask("judge_report_list")
    ask("worktree_list")


def _count_agents(ask: Ask, person: Ask, ada: str, bob: str, one: str) -> None:
    ask("agent_register", name="ada", runtime="codex")
    ask("agent_heartbeat")
    ask("agent_heartbeat", "at a task", current_task_id=one)
    ask("agent_update", id=ada, metadata={"k": "v"})
    person("agent_register", "by a person", name="eve", runtime="codex")
    person("agent_token_create", agent_id=bob)
    new = person("agent_token_create", "for a new agent", name="new")["agent_id"]
    person("agent_archive", id=new)
    person("agent_token_revoke", agent_id=bob)
    person("hall_pause", reason="r")
    person("hall_resume")
    person("setting_get", key="work.enforce_parallelism")
    person("setting_set", key="work.enforce_parallelism", value="true")
    ask("agent_unregister", id=ada)


def test_every_tool_costs_on_postgres_what_the_table_says(hub: Hub, site: WorkspaceSite, tmp_path: Path) -> None:
    costs, table = make_costs(hub, site), in_table()
    found = [verdict(name, cost, table.get(name)) for name, cost in costs.found.items()]
    wrong = [one for one in found if one is not None]
    wrong += [f"{name} is called no more: take its row out of bench/trips.md" for name in table.keys() - costs.found]
    (tmp_path / "trips.md").write_text(new_table(costs.found), "utf-8")
    assert not wrong, "\n".join([*wrong, f"{tmp_path}/trips.md has the rows as they are now, for bench/trips.md"])


def test_every_tool_of_work_has_a_row() -> None:
    """But those that wait for programs anyway."""
    called = {name.split()[0] for name in in_table()}
    ours = {tool.name for tool in registry().tools if tool.family == "work" and tool.pace not in ("long", "own")}
    assert ours <= called, (
        f"give {sorted(ours - called)} a typical call in {Path(__file__).name}, and bench/trips.md a row"
    )


def test_a_task_is_done_in_thirty_trips() -> None:
    """The five calls of its life: look, claim, in_progress, completed, message."""
    table = in_table()
    life = ("task_get_available", "task_claim", "task_update_status in_progress", "task_update_status completed")
    assert sum(table[name][0] for name in (*life, "message_send")) <= 30


def test_a_writing_call_is_one_transaction() -> None:
    """Unless it has a reason not to be, and every look is one."""
    tools = {tool.name: tool for tool in registry().tools}
    more = {name for name, cost in in_table().items() if cost[2] != 1 and tools[name.split()[0]].changes}
    assert more == set(TWICE)


def test_a_read_is_a_trip_unless_it_asks_by_what_it_read() -> None:
    """Three at most, of those whose parameters are what other queries gave."""
    tools = {tool.name: tool for tool in registry().tools}
    reads = {name: cost for name, cost in in_table().items() if not tools[name.split()[0]].changes}
    own = {name: cost[2] for name, cost in reads.items() if tools[name.split()[0]].family in DATABASE_FIRST}
    assert set(own.values()) == {1}, "of other families the caller is proven first"
    assert max(cost[0] for cost in reads.values()) == 3
