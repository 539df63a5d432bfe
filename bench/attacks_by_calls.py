"""Attacks by calls of tools: an agent sends what is wrong a million times, or more than its share of what is good."""

import http.client
import json
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from bench.load import META, MODERN, rest_request, tool_request
from bench.running import RunningHub
from bench.under_attack import Target, attack

LONG = "a" * 4_000_000


def worktree(hub: RunningHub, place: Path, justfile: str, files: int = 0) -> str:
    """The port of an open worktree with this justfile and so many files."""
    root = place / "worktree"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "justfile").write_text(justfile)
    (root / "many").mkdir()
    for number in range(files):
        (root / "many" / str(number)).touch()
    return str(hub.call("worktree/open", path=str(root))["mcp"]["port"])


def context_request(target: Target) -> bytes:
    return tool_request(int(target.prepared), "get_project_context", {}, target.token)


@attack(
    3, prepare=lambda hub, place: worktree(hub, place, f"ok:\n  echo hi\nmod{' ' * 20_000}!\n"), read=context_request
)
def justfile_of_blanks(target: Target) -> None:
    target.ask(context_request(target))


def packed(path: str, target: Target, body: str) -> bytes:
    """A REST request with this JSON, which may be as large as a hub takes."""
    said = ("Content-Type: application/json", f"Authorization: Bearer {target.token}", f"Content-Length: {len(body)}")
    return target.head(f"POST /api/v1/{path}", *said) + body.encode()


WRONG_ITEMS = '{"status":[' + ",".join(['""'] * 1_300_000) + "]}"
WRONG_FIELDS = "{" + ",".join(f'"{number:x}":1' for number in range(400_000)) + "}"


@attack(4, attackers=4)
def wrong_items(target: Target) -> None:
    target.ask(packed("agent/list", target, WRONG_ITEMS))


@attack(4, attackers=4)
def wrong_arguments(target: Target) -> None:
    target.ask(packed("agent/list", target, WRONG_FIELDS))


@attack(4, attackers=4)
def wrong_arguments_by_mcp(target: Target) -> None:
    arguments = dict.fromkeys(map(str, range(280_000)), 1)
    target.ask(tool_request(target.port, "agent_list", arguments, target.token))


@attack(4, attackers=4)
def wrong_fields_of_tasks(target: Target) -> None:
    tasks = ",".join(['{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}'] * 20_000)
    plan = f'{{"summary":"","approach":"","tasks":[{tasks}]}}'
    target.ask(packed("workflow/set-plan", target, f'{{"id":"wf_1","plan":{plan}}}'))


@attack(4, attackers=16)
def good_requests_of_four_mib(target: Target) -> None:
    body = json.dumps({"sender_id": target.agent, "recipient_id": target.agent, "message_type": "query", "body": LONG})
    target.ask(packed("message/send", target, body))


SLEEPER = "sleep:\n  sleep 25\n"


@attack(13, attackers=1, prepare=lambda hub, place: worktree(hub, place, SLEEPER), read=context_request)
def long_recipes(target: Target) -> None:
    target.ask(*[tool_request(int(target.prepared), "run_just_task", {"task": "sleep"}, target.token)] * 16)


def crowd(hub: RunningHub, place: Path) -> str:
    for number in range(900):
        hub.call("agent/register", name=f"agent {number}", runtime="custom")
    return ""


@attack(13, attackers=16, prepare=crowd)
def broadcasts(target: Target) -> None:
    body = {"sender_id": target.agent, "message_type": "notification", "body": "x" * 90_000}
    target.ask(rest_request(target.port, "message/broadcast", body, target.token))


def large_task(hub: RunningHub, place: Path) -> str:
    """A task whose context is as large as one may be."""
    workflow = hub.call("workflow/create", name="w", source_type="prompt", source_content="x " * 20_000)["id"]
    tasks = [{"name": f"task {number}", "description": "word " * 10_000, "sequence": number} for number in range(40)]
    hub.call("workflow/set-plan", id=workflow, plan={"summary": "", "approach": "", "tasks": tasks})
    task = str(hub.call("task/list", workflow_id=workflow)["tasks"][0]["id"])
    for number in range(60):
        summary, detail = f"{number} " + "text " * 300, {"x": "y " * 9_000}
        hub.call("checkpoint/add", task_id=task, type="progress", summary=summary, detail=detail)
    return task


@attack(13, attackers=4, prepare=large_task)
def contexts(target: Target) -> None:
    request = rest_request(
        target.port, "task/load-context", {"task_id": target.prepared, "max_tokens": 200_000}, target.token
    )
    target.ask(*[request] * 16)


@attack(13, attackers=4, prepare=crowd)
def lists(target: Target) -> None:
    target.ask(*[rest_request(target.port, "agent/list", {"limit": 500}, target.token)] * 50)


@attack(13, attackers=2, prepare=lambda hub, place: worktree(hub, place, "", 60_000))
def directories(target: Target) -> None:
    request = tool_request(int(target.prepared), "list_directory", {"path": "many", "limit": 500}, target.token)
    target.ask(*[request] * 16)


@attack(13, attackers=2)
def plans(target: Target) -> None:
    chain = [[f"t{number - 1}"] if number else [] for number in range(10_000)]
    tasks = [{"name": f"t{n}", "description": "", "sequence": 1, "depends_on": one} for n, one in enumerate(chain)]
    made = rest_answer(target, "workflow/create", name="w", source_type="prompt", source_content="x")
    workflow = json.loads(made)["id"]
    rest_answer(target, "workflow/set-plan", id=workflow, plan={"summary": "", "approach": "", "tasks": tasks})


def rest_answer(target: Target, path: str, **arguments: object) -> bytes:
    with target.connect() as connection:
        connection.sendall(packed(path, target, json.dumps(arguments)))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.read()


def listen_request(target: Target, *addresses: str) -> bytes:
    said = {"notifications": {"resourceSubscriptions": addresses}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": said})
    more = (f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: subscriptions/listen", "Content-Type: application/json")
    accepted = ("Accept: application/json, text/event-stream", f"Authorization: Bearer {target.token}")
    return target.head("POST /mcp", *more, *accepted, f"Content-Length: {len(body)}") + body.encode()


@attack(13)
def listeners(target: Target) -> None:
    request = listen_request(target, "crewhall://agents", "crewhall://events")
    with ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(target.connect()).sendall(request)
        time.sleep(5)


@attack(14, attackers=4)
def long_lists_of_addresses(target: Target) -> None:
    target.ask(listen_request(target, *["crewhall://a"] * 200_000))
