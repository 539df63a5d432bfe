"""A hall with a coding instance that can be reviewed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.errors import Failure
from crewhall.families.crew.steps import ANSWER_MS
from crewhall.identity import Credentials
from tests.families.crew.conftest import Site, make_site  # noqa: F401 - a fixture
from tests.outside.repos import commit


class Loop:
    """A site with a coder, and calls made by its instances."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.coder = site.start("Make it blue", title="blue")
        self.tree = Path(self.instance(self.coder)["worktree"])

    def instance(self, name: str) -> dict[str, Any]:
        return self.site.call("instance_get", id=name)

    def status(self, name: str | None = None) -> str:
        return str(self.instance(name or self.coder)["status"])

    def by(self, name: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """A call that an instance makes with its own token."""
        token = self.site.received(name)["environment"]["CREWHALL_TOKEN"]
        return self.site.hub.call(tool, arguments, self.site.hub.identify(Credentials(token=token)))

    def refusal(self, name: str, tool: str, /, **arguments: Any) -> Failure:
        with pytest.raises(Failure) as refused:
            self.by(name, tool, **arguments)
        assert refused.value.message and refused.value.hint
        return refused.value

    def work(self, text: str = "blue") -> str:
        """A commit of the coder's."""
        (self.tree / "colour.txt").write_text(text)
        return commit(self.tree, f"make it {text}")

    def request(self, **arguments: Any) -> str:
        """The coder asks for a review; its reviewer."""
        return str(self.by(self.coder, "request_review", **arguments)["review_instance_id"])

    def send(self, reviewer: str, **more: Any) -> dict[str, Any]:
        given = {"feedback": "Too dark.", "feedback_type": "needs_work", **more}
        return self.by(reviewer, "send_feedback", **given)

    def run_chores(self) -> None:
        """What happens within some seconds by itself."""
        self.site.clock.now += ANSWER_MS
        for chore in ("instances", "reviews", "settle_instance_end", "review_merges"):
            self.site.hub.chores.run_one(chore)
            assert self.site.hub.chores.records[chore].error is None, self.site.hub.chores.records[chore]

    def round(self, **more: Any) -> dict[str, Any]:
        """A whole round: asked for, answered, the reviewer gone."""
        sent = self.send(self.request(), **more)
        self.run_chores()
        return sent

    def events(self, topic: str = "review") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.site.call("event_list", topic=topic, limit=100)["events"]
        return found


@pytest.fixture
def loop(make_site: Callable[..., Site]) -> Iterator[Loop]:  # noqa: F811
    one = Loop(make_site())
    one.work()
    yield one
