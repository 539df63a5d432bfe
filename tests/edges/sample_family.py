"""A family that only tests have: tools that wait, report, fail and break, to see what the edges make of it."""

import threading
from typing import Any

from crewhall.app import Call
from crewhall.errors import InvalidState
from crewhall.families.work.model import Done
from crewhall.tool import Family, Registry


class SampleFamily:
    """A registry with the lab's tools, and the signals that its tests wait for."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.ended: list[str] = []
        self.proceed = threading.Event()
        family = Family("lab", "Tools for tests.", "crewhall.families.work")

        @family.tool("lab_wait", changes=True, pace="long", profiles=("standard", "worker"))
        def lab_wait(call: Call) -> Done:
            """Write a repository, then wait until the client goes away or the test lets go."""
            with call.begin() as tx:
                tx.run(
                    "repository_put",
                    id="rp_lab",
                    path="/lab",
                    name="lab",
                    default_name="lab",
                    actor="operator",
                    now=call.now,
                )
                tx.event("lab.waited", "rp_lab")
                self.started.set()
                self._wait(call)
            return Done(success=True)

        @family.tool("lab_count", profiles=("standard", "worker"))
        def lab_count(call: Call, steps: int = 3) -> Done:
            """Report progress, step by step."""
            for step in range(steps):
                call.progress(step + 1, steps, f"step {step + 1}")
            return Done(success=True)

        @family.tool("lab_quiet", pace="long", profiles=("standard", "worker"))
        def lab_quiet(call: Call) -> Done:
            """Say nothing until the test lets go."""
            self.started.set()
            self._wait(call)
            return Done(success=True)

        @family.tool("lab_refuse", profiles=("standard", "worker"))
        def lab_refuse(call: Call) -> Done:
            """Refuse."""
            raise InvalidState(
                "it is not the time", hint="Come back later.", instance_id="work-1-a1", suggestions=["wait"]
            )

        @family.tool("lab_break", profiles=("standard", "worker"))
        def lab_break(call: Call) -> Done:
            """Fail with a bug."""
            raise ZeroDivisionError("secret detail")

        @family.tool("lab_big", profiles=("standard", "worker"))
        def lab_big(call: Call, size: int) -> dict[str, Any]:
            """Answer with a large text."""
            return {"text": "x" * size}

        @family.tool("lab_origin", profiles=("standard", "worker"))
        def lab_origin(call: Call) -> dict[str, Any]:
            """Tell where the call came from."""
            return {"directory": call.origin.directory, "variables": dict(call.origin.variables), "edge": call.edge}

        self.registry = Registry([family])

    def _wait(self, call: Call) -> None:
        try:
            while not self.proceed.is_set():
                call.stop.wait(0.01)
            self.ended.append("done")
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
