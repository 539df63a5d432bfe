"""The whole review loop: scripted agents in a real tmux work, review, fix and approve, until the host has merged it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.families.all import registry
from crewhall.families.crew.run_directory import run_directory
from crewhall.outside.processes import marked_by
from tests.conftest import eventually
from tests.edges.landing import HOSTS, Landing, landing
from tests.edges.raw_http import http
from tests.edges.test_instance_custom import Site, make_site, tokens_in
from tests.outside.repos import git, refs

Json = dict[str, Any]
ENDS = 20.0  # seconds in which an instance that is done has left; about 5 when nobody else needs the machine
FEEDBACK = "REVIEW_FEEDBACK.md"
COMMIT = "git add -A && git -c user.name=Ada -c user.email=ada@example.org commit -qm"


class Loop:
    """A hub whose repository is on a host, and the tokens of the instances that there were."""

    def __init__(self, site: Site, landing: Landing) -> None:
        self.site, self.landing = site, landing
        self.tokens: set[str] = set()

    def start_coder(self) -> str:
        """The operator starts a coding instance on the command line."""
        words = ["Make it blue", "--title", "blue", "--runtime", "custom", "--repository-path"]
        done = self.site.program.run("instance", "start", *words, str(self.site.repository))
        assert done.code == 0, done
        return self.connect("work-blue-a1")

    def connect(self, instance: str) -> str:
        self.site.connected(instance)
        self.tokens |= tokens_in(run_directory(self.site.program.settings, instance).mcp_config)
        return instance

    def sees(self, instance: str) -> set[str]:
        """The tools of the loop that the instance's program is shown."""
        (tools,) = self.site.lines(instance, "tools.jsonl")
        return {"request_review", "send_feedback", "create_pull_request"}.intersection(tools)

    def statuses(self) -> dict[str, str]:
        return {one["id"]: one["status"] for one in self.site.ask("instance_list")["instances"]}

    def prompt(self, instance: str) -> str:
        """What the instance's program was started with."""
        (run,) = self.site.lines(instance, "runs.jsonl")
        assert run["directory"] == self.site.ask("instance_get", id=instance)["worktree"]
        return "\n".join(run["words"])

    def await_end(self, instance: str, status: str) -> None:
        """Wait until the instance is over, and see that its place in the world is empty."""
        row = self.site.ask("instance_get", id=instance)
        eventually(lambda: self.statuses()[instance] == status, ENDS)
        assert instance not in self.site.tmux.panes() and not Path(row["worktree"]).exists()
        assert not run_directory(self.site.program.settings, instance).path.exists()

    def rounds(self) -> list[tuple[int, str, str | None]]:
        found = self.site.ask("review_get", instance_id="work-blue-a1")["rounds"]
        return [(one["review_iteration"], one["reviewer"], one["outcome"]) for one in found]

    def look_after_pulls(self) -> None:
        """Another hub of the hall looks after pull requests: the first would within a minute."""
        with closing(Hub(self.site.program.settings, registry())) as other:
            other.chores.run_one("instance_pulls")
            assert other.chores.records["instance_pulls"].error is None

    def left_over(self) -> list[Any]:
        """What there still is of the instances: sessions, worktrees, files, processes, differences, open tokens."""
        home = self.site.program.home
        trees = git(self.site.repository, "worktree", "list", "--porcelain").split("\n\n")
        found: list[Any] = [self.site.tmux.panes(), trees[1:], list((home / "instances").iterdir())]
        found += [marked_by("CREWHALL_INSTANCE", f"CREWHALL_HOME={home}")]
        found += [self.site.ask("instance_check")["differences"]]
        return [*found, [token for token in self.tokens if self._opens(token)]]

    def _opens(self, token: str) -> bool:
        answer = http.post(
            f"{self.site.url}/api/v1/message/list", json={}, headers={"Authorization": f"Bearer {token}"}
        )
        assert answer.status_code in (200, 401), answer.text
        return answer.status_code == 200


@contextmanager
def make_loop(directory: Path, kind: str) -> Iterator[Loop]:
    with landing(kind) as place, make_site(directory, place.settings) as site:
        place.publish(site.repository)
        yield Loop(site, place)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("kind", HOSTS)
def test_work_is_reviewed_fixed_approved_and_merged(tmp_path: Path, kind: str) -> None:
    with make_loop(tmp_path, kind) as loop:
        site, repo = loop.site, loop.landing.repo
        coder = loop.start_coder()
        site.runs(coder, f"echo red > colour.txt && {COMMIT} 'a colour'")
        asked = site.has(coder, "request_review", completion_message="It has a colour now.")
        first = loop.connect(asked["review_instance_id"])
        assert loop.statuses() == {coder: "waiting_review", first: "started"}
        assert (asked["review_iteration"], asked["branch_name"]) == (1, coder)
        assert loop.sees(coder) == {"request_review", "create_pull_request"}
        assert loop.sees(first) == {"send_feedback", "create_pull_request"}
        prompt = loop.prompt(first)
        assert "> Make it blue" in prompt and "> It has a colour now." in prompt and "colour.txt" in prompt
        assert site.runs(first, "pwd; cat colour.txt") == f"{asked['worktree_path']}\nred\n"

        items = ["Make it blue, not red", {"text": "Say which blue", "file": "colour.txt", "line": 1}]
        found = {"feedback": "The colour is wrong.", "feedback_type": "needs_work", "actionable_items": items}
        sent = site.has(first, "send_feedback", **found)
        assert (sent["target_instance_id"], sent["merge_pending"]) == (coder, False)
        assert loop.statuses()[coder] == "started"
        (heard,) = eventually(lambda: site.lines(coder, "heard.jsonl"))
        assert "[blocks] Make it blue, not red" in heard["text"] and "call request_review" in heard["text"]
        file = site.runs(coder, f"git status --porcelain; git rev-parse HEAD; cat {FEEDBACK}")
        assert file.startswith(f"{sent['git_commit_hash']}\n---\nround: 1\n") and "The colour is wrong." in file
        loop.await_end(first, "terminated")

        site.runs(coder, f"echo 'blue #00f' > colour.txt && {COMMIT} 'the right colour'")
        second = loop.connect(site.has(coder, "request_review")["review_instance_id"])
        assert loop.statuses() == {coder: "waiting_review", first: "terminated", second: "started"}
        assert "round 2 of at most 3" in loop.prompt(second) and "Make it blue, not red" in loop.prompt(second)
        assert site.runs(second, "cat colour.txt") == "blue #00f\n"
        opened = site.has(second, "create_pull_request", title="Make it blue", description="It had no colour.")
        (pull,) = repo.pulls.values()
        assert (pull.number, pull.head, pull.state) == (opened["pr_number"], coder, "open")
        assert repo.files(coder)["colour.txt"] == b"blue #00f\n" and FEEDBACK not in repo.files(coder)
        loop.await_end(second, "terminated")
        shown = site.ask("instance_get", id=coder)
        assert (shown["status"], shown["pull_url"], shown["state"]["name"]) == ("pr_created", opened["pr_url"], "idle")
        assert loop.rounds() == [(2, second, "approved"), (1, first, "feedback")]

        loop.landing.merge(pull.number)
        assert repo.files("main")["colour.txt"] == b"blue #00f\n" and FEEDBACK not in repo.files("main")
        loop.look_after_pulls()
        loop.await_end(coder, "pr_merged")
        assert loop.statuses() == {coder: "pr_merged", first: "terminated", second: "terminated"}
        assert len(loop.tokens) == 3 and [one for one in loop.left_over() if one] == []
        assert set(refs(site.repository)) == {"refs/heads/main", f"refs/heads/{coder}"}
