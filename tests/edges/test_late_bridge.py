"""A bridge whose hello ends while the hub already waits for others: its call is answered too, in the time there is."""

import json
import threading
from collections.abc import Callable

import pytest

from crewhall.app import Call
from crewhall.edges.bridge.hello import BYE, LEAVING
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.families.work.model import Done
from crewhall.tool import Family, Registry
from tests.conftest import Live, eventually
from tests.edges.interfaces import META
from tests.edges.stdio import Stdio, hall_of


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_bridge_that_is_greeted_by_a_leaving_hub_gets_its_answer(serve: Callable[..., Live]) -> None:
    gates = {name: (threading.Event(), threading.Event()) for name in ("first", "late")}
    family = Family("lab", "Tools for tests.", "crewhall.families.work")

    @family.tool("lab_gate", pace="long")
    def lab_gate(call: Call, name: str) -> Done:
        """Wait until the test opens this gate."""
        started, opened = gates[name]
        started.set()
        while not opened.is_set():
            call.stop.wait(0.01)
        return Done(success=True)

    live = serve(tools=Registry([family]), server__shutdown_seconds="30")
    place = HubSocket(live.hub.settings)
    first = Stdio(live.hub.settings.home, **hall_of(live))
    with place.connect() as late, late.makefile("rwb") as lines:
        lines.write(b'{"crewhall": "0.1.0"')
        lines.flush()
        asked = first.send("tools/call", name="lab_gate", arguments={"name": "first"})  # connected after the late one
        assert gates["first"][0].wait(20)
        stopping = threading.Thread(target=live.stop)
        stopping.start()
        eventually(lambda: not place.socket.exists())  # the hub takes no more, and waits for the first
        call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
        call |= {"params": {"name": "lab_gate", "arguments": {"name": "late"}, "_meta": META}}
        lines.write(b"}\n" + json.dumps(call).encode() + b"\n" + BYE + b"\n")
        lines.flush()
        assert gates["late"][0].wait(20)
        gates["first"][1].set()
        assert first.answer(asked)["result"]["structuredContent"]["success"]
        assert json.loads(lines.readline())["max_bytes"] and lines.readline().strip() == LEAVING
        late.settimeout(0.5)
        with pytest.raises(TimeoutError):  # nobody has hung up
            late.recv(1, 2)
        late.settimeout(20)
        gates["late"][1].set()
        assert json.loads(late.makefile("rb").readline() or b"{}").get("id") == 7
        stopping.join(30)
    first.kill()
