"""A server by stdio of the standard library alone, of the 2025 era: it starts at once, and does whatever it is told."""

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

NAMES = sys.argv[1:] or ["pid"]  # of tools; one written name=alias has an alias
PAGE = 4  # tools in one answer
DOINGS = ("answer", "refuse", "wait", "tick", "meet", "leave", "bring_up", "heard", "show", "grow")
notices: list[dict[str, Any]] = []
turn = threading.Lock()


def send(**message: Any) -> None:
    with turn:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def tool_entry(name: str) -> dict[str, Any]:
    name, _, alias = name.partition("=")
    meta = {"_meta": {"crewhall/aliases": [alias]}} if alias else {}
    return {"name": name, "inputSchema": {"type": "object"}} | meta


def structured_result(body: dict[str, Any]) -> dict[str, Any]:
    return {"content": [], "structuredContent": body}


def bring_up(seconds: float) -> int:
    """Start a process that holds our pipes and ends for SIGKILL alone; it is deaf when this returns."""
    heard, says = os.pipe()
    deaf = "import os, signal, time; signal.signal(15, signal.SIG_IGN)"
    words = f"{deaf}; os.write({says}, b'.'); time.sleep({seconds})"
    process = subprocess.Popen([sys.executable, "-Sc", words], stdin=sys.stdin, pass_fds=[says])
    os.read(heard, 1)
    return process.pid


def call_result(name: str, given: dict[str, Any], token: Any) -> dict[str, Any] | None:
    """The result of a call, or nothing when it is not to be answered."""
    if name == "answer":
        return dict(given["result"])
    if name == "tick":
        for tick in range(given["times"]):
            time.sleep(given["seconds"])
            send(method="notifications/progress", params={"progressToken": token, "progress": tick, "message": "on"})
    elif name == "meet":
        os.close(os.open(given["fifo"], os.O_RDONLY if given["reads"] else os.O_WRONLY))
    elif name == "leave":
        print(given.get("words", ""), file=sys.stderr, flush=True)
        os._exit(given["code"])
    elif name == "bring_up":
        return structured_result({"pid": bring_up(60)})
    elif name == "heard":
        return structured_result({"notices": notices})
    elif name == "show":
        return structured_result({"environment": dict(os.environ), "directory": os.getcwd()})
    elif name == "grow":
        NAMES.append(given["name"])
    elif name == "wait":
        notices.append({"method": "(it waits)"})
        return None
    return structured_result({"name": name, "pid": os.getpid()})


def answer(request: dict[str, Any]) -> None:
    name, params = request["method"], request.get("params", {})
    if name == "initialize":
        info = {"name": "plain", "version": "1"}
        body = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        send(id=request["id"], result=body)
    elif name == "tools/list" and NAMES != ["no tools"]:
        names, at = (*NAMES, *DOINGS), int(params.get("cursor", 0))
        more = {"nextCursor": str(at + PAGE)} if at + PAGE < len(names) else {}
        send(id=request["id"], result={"tools": [tool_entry(each) for each in names[at : at + PAGE]], **more})
    elif name != "tools/call":
        send(id=request["id"], error={"code": -32601, "message": "unknown"})
    elif params["name"] == "refuse":
        send(id=request["id"], error=params["arguments"]["error"])
    else:
        result = call_result(params["name"], params.get("arguments", {}), params.get("_meta", {}).get("progressToken"))
        if result is not None:
            send(id=request["id"], result=result)


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        threading.Thread(target=answer, args=(message,), daemon=True).start()
    else:
        notices.append(message)
