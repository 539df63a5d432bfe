"""A process of an instance's session is that instance through every interface, whatever token it brings along."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall import __version__
from crewhall.app import Hub
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.edges.web.pages import make_link
from crewhall.families.work.workflow.halt import halt
from crewhall.identity import OPERATOR, operator_token
from crewhall.token_file import read_operator_token
from tests.conftest import Live, eventually
from tests.edges.in_session import Session, end_sessions, hall
from tests.edges.interfaces import CREWHALL, announce, http
from tests.families.work.workflows import plan_workflow, register, task
from tests.outside.repos import make_repository
from tests.trials import PERSON

Json = dict[str, Any]
PROBE = str(Path(__file__).with_name("probe.py"))
SERVED = ("rest", "mcp", "sse", "socket", "bridge", "cli")  # interfaces of a running hub
SLOW = ("cli", "standalone")  # a process for each call, or one that imports all of crewhall
BY_COMMAND = ("task_claim", "message_send", "instance_start", "agent_token_create")


class Guarded:
    """An instance that obeys, another agent, a task, and a workflow that a judge has halted."""

    def __init__(self, hub: Hub, session: Session, url: str = "http://127.0.0.1:1") -> None:
        self.hub, self.session, self.url = hub, session, url
        self.other = register(self.call, "other")
        _, tasks = plan_workflow(self.call, task("a"), task("b"))
        self.task = tasks["a"]
        self.halted, _ = plan_workflow(self.call, task("c"))
        with hub.own_work() as tx:
            assert halt(tx, self.halted, "a report", tx.now)

    def call(self, tool: str, /, **arguments: Any) -> Json:
        return self.hub.call(tool, arguments, OPERATOR)

    @property
    def tokens(self) -> dict[str, str | None]:
        own = json.loads((self.hub.settings.instances / self.session.id / "mcp.json").read_text())
        entry = own["mcpServers"]["crewhall"]["env"]
        return {"own": entry["CREWHALL_TOKEN"], "none": None, "operator": read_operator_token(self.hub.settings.home)}

    @property
    def forbidden(self) -> list[tuple[str, Json]]:
        """Acting as another, what is done to instances, and what is the operator's."""
        start = {"prompt": "x", "repository_path": self.session.made["worktree_path"], "runtime": "custom"}
        mail = {"recipient_id": self.session.agent, "message_type": "notification", "body": "x"}
        return [
            ("task_claim", {"task_id": self.task, "agent_id": self.other}),
            ("agent_update", {"id": self.other, "status": "offline"}),
            *(("message_send", {"sender_id": one, **mail}) for one in (self.other, "operator")),
            ("instance_start", start),
            ("instance_send", {"id": self.session.id, "text": "x"}),
            *((f"instance_{verb}", {"id": self.session.id}) for verb in ("stop", "restart", "abandon")),
            ("instance_repair", {}),
            *(("agent_token_create", one) for one in ({"agent_id": self.session.agent}, {"name": "new"})),
            ("agent_token_revoke", {"agent_id": self.other}),
            ("workflow_update_status", {"id": self.halted, "status": "in_progress"}),
        ]

    def ask(self, calls: list[tuple[str, str | None, str, Json]], nested: int = 0) -> list[Json]:
        """The bodies that the probe gets in the session, so many shells below the program."""
        commands = {tool: self.hub.registry.find(tool).command for _, _, tool, _ in calls}
        asked: Json = {"url": self.url, "home": str(self.hub.settings.home), "program": CREWHALL}
        asked |= {
            "version": __version__,
            "socket": HubSocket(self.hub.settings).socket.name,
            "commands": commands,
            "calls": calls,
        }
        words = [sys.executable, "-S", PROBE]
        for _ in range(nested):
            words = ["sh", "-c", f"{shlex.join(words)}; true"]
        done = self.session.run(*words, text=json.dumps(asked))
        assert done.out, done
        found: list[Json] = json.loads(done.out)
        return found

    @property
    def others(self) -> dict[str, str | None]:
        """The tokens that are not its own."""
        return {name: token for name, token in self.tokens.items() if name != "own"}

    def refuses_everywhere(self, *interfaces: str) -> None:
        """Every forbidden call through each interface with each token is FORBIDDEN; of slow ones a part is made."""
        names = {token: name for name, token in self.tokens.items()}
        calls = [
            (interface, token, tool, arguments)
            for interface in interfaces
            for token, name in names.items()
            for tool, arguments in self.forbidden
            if interface not in SLOW or (name != "own" and (interface != "cli" or tool in BY_COMMAND))
        ]
        codes = [body.get("code", body) for body in self.ask(calls)]
        wrong = [
            (interface, names[token], tool, code)
            for (interface, token, tool, _), code in zip(calls, codes, strict=True)
            if code != "FORBIDDEN"
        ]
        assert wrong == []


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with hall(tmp_path_factory.mktemp("guard")) as (hub, start):
        live = Live(hub)
        announce(live)
        try:
            yield Guarded(hub, start(), live.url)
        finally:
            live.stop()


def test_no_interface_lets_an_instance_be_another(guarded: Guarded) -> None:
    before = guarded.call("instance_list")["total"], guarded.call("agent_list")["total"]
    guarded.refuses_everywhere(*SERVED)
    assert before == (guarded.call("instance_list")["total"], guarded.call("agent_list")["total"])


def test_every_interface_knows_an_instance_whatever_token_it_sends(guarded: Guarded) -> None:
    """Two shells further down as well."""
    mail = {"recipient_id": "operator", "message_type": "notification", "body": "here"}
    calls = [(one, token, "message_send", mail) for one in SERVED for token in (*guarded.tokens.values(), "ch_agent_x")]
    sent = [body["id"] for body in guarded.ask(calls, nested=2)]
    assert {guarded.call("message_get", id=one)["sender_id"] for one in sent} == {guarded.session.agent}


def test_commands_for_the_operator_are_refused_in_a_session(guarded: Guarded, tmp_path: Path) -> None:
    home = guarded.hub.settings.home
    words = [["link"], ["backup", str(tmp_path / "copy")], ["up", "--port", "0"]]
    words += [["config", "--client", "claude", "--agent", "new"]]
    for token in guarded.others.values():
        for one in words:
            assert guarded.session.crewhall(*one, token=token).get("code") == "FORBIDDEN", one
        found = guarded.session.crewhall("doctor", "--fix", token=token)["findings"]
        assert any("instance_repair is for operator" in one["finding"] for one in found)
    assert not (tmp_path / "copy").exists() and not list(home.glob("*.json.part"))


def test_a_link_to_the_dashboard_signs_no_instance_in(guarded: Guarded) -> None:
    with guarded.hub.own_work() as tx:
        link = make_link(tx, guarded.url, guarded.hub.clock())
    assert "FORBIDDEN" in guarded.session.run("curl", "-s", link).out
    answer = http.get(link)
    assert answer.status_code == 303, "the link is still good for a person"
    cookie = answer.headers["set-cookie"].partition(";")[0]
    asked = guarded.session.run("curl", "-s", "-b", cookie, "-d", "", f"{guarded.url}/api/v1/instance/repair").out
    assert json.loads(asked)["code"] == "FORBIDDEN"


def test_without_a_hub_an_instance_is_no_one_else_either(tmp_path: Path) -> None:
    with hall(tmp_path) as (hub, start):
        with hub.own_work() as tx:
            operator_token(tx, hub.settings.home, hub.clock())
        alone = Guarded(hub, start())
        alone.refuses_everywhere("standalone")
        calls = [(hub.registry.find(tool).command, given) for tool, given in alone.forbidden if tool in BY_COMMAND]
        commands = [[*words, "--input", json.dumps(given)] for words, given in calls]
        commands += [["backup", "copy"], ["restore", "copy"], ["up", "--port", "0"]]
        for token in alone.others.values():
            for command in commands:
                assert alone.session.crewhall(*command, token=token).get("code") == "FORBIDDEN", command
        # As programs of their own, two shells further down; the command finds the operator's token by itself.
        below = alone.ask([("cli", None, *one) for one in alone.forbidden[:1]], nested=2)
        assert [body["code"] for body in below] == ["FORBIDDEN"]


# $1 is a file with curl's options: the instance's program calls a hub at once, and waits.
CALL = 'curl -s -K "$1" -o "$1.part"; mv "$1.part" "$1.out"; sleep 600'


def test_a_second_hub_knows_an_instance_from_its_first_call(serve: Callable[..., Live], tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    runtime = {"custom": {"command": ["sh", "-c", CALL, "sh", str(asked)]}}
    first, second = serve(crew__runtimes=runtime), serve(crew__runtimes=runtime)
    lines = [f'url = "{second.url}/api/v1/agent/token"', 'data = "{\\"name\\": \\"new\\"}"']
    lines += ['header = "Content-Type: application/json"', f'header = "Authorization: Bearer {second.token}"']
    asked.write_text("\n".join(lines))
    words = {"prompt": "x", "title": "guard", "runtime": "custom"}
    words["repository_path"] = make_repository(tmp_path / "shop").root
    try:
        first.hub.call("instance_start", words, PERSON)
        answer = json.loads(eventually(Path(f"{asked}.out").read_text))
        assert answer["code"] == "FORBIDDEN", answer
    finally:
        end_sessions(first.hub)
