"""
Trials of operations: for each kind that a family declares, how a test starts one, and what of it is there outside.

A kind without a trial fails tests/test_journal_walk.py. Add a class here, and a line to START and TRIALS.
"""

import os
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from crewhall.app import Hub, Tick
from crewhall.config import Settings
from crewhall.fakehosts.github import FakeGitHub
from crewhall.families.all import registry
from crewhall.families.crew.run_directory import run_directory
from crewhall.families.crew.site import tmux_of
from crewhall.families.crew.steps import ANSWER_MS, ENDING, end_later
from crewhall.families.review.judge_steps import JUDGING
from crewhall.identity import Actor
from crewhall.journal import settle_all
from crewhall.outside.processes import Marked, marked_by
from crewhall.outside.tmux import Tmux
from tests.conftest import settings_for
from tests.families.judge.judge_site import FakeClaude, command_for, rules
from tests.families.work.workflows import sql
from tests.outside.repos import commit, git, make_repository

TOKEN = "ghp_Hubs0wnT0ken"
PERSON = Actor("operator", "operator", proof="token")


class Trial(ABC):
    """One operation outside. It has settings for the hubs that work on it, and words that another process can use."""

    settings: Mapping[str, Any]
    words: tuple[Any, ...]

    @abstractmethod
    def outside(self) -> str:
        """`all` or `nothing` of it is there; any other word says what is half there."""


class PullTrial(Trial):
    """A pull on a fake GitHub."""

    words = ()

    def __init__(self, host: FakeGitHub) -> None:
        self.repo = host.add_repository("octo", "ops", {"README.md": b"Hello\n"})
        self.settings = {"pulls__github_url": host.url, "pulls__github_token": TOKEN, "pulls__pause": "1ms"}

    def outside(self) -> str:
        branches = [name for name in self.repo.branches if name.startswith("claude-ops/")]
        pulls = [pull.head for pull in self.repo.pulls.values() if pull.state == "open"]
        if not branches and not pulls:
            return "nothing"
        labels = [sorted(pull.labels) for pull in self.repo.pulls.values()]
        is_whole = branches == pulls and labels == [["automated", "claude-ops"]]
        return "all" if is_whole else f"branches {branches}, pulls {pulls}, labels {labels}"


def start_pull(hub: Hub) -> None:
    change = {"title": "Add a check", "body": "It was missing.", "change_type": "check"}
    files = [{"path": "checks/new.md", "content": "# New\n"}]
    hub.call("create_pr", {"repo_owner": "octo", "repo_name": "ops", "files": files, **change}, PERSON)


@contextmanager
def pull_open(home: Path) -> Iterator[Trial]:
    with FakeGitHub({TOKEN: "octocat"}) as host:
        yield PullTrial(host)


class InstanceTrial(Trial):
    """An instance whose program waits, in a new repository, on the tmux server of the walk's own hall.

    It ignores SIGHUP, so the end of its session alone does not end it.
    """

    ids = ("work-trial-a1",)
    RUNTIMES: ClassVar = {"custom": {"command": ["sh", "-c", "trap '' HUP; echo ready; exec sleep 600"]}}

    def __init__(self, directory: Path, home: Path) -> None:
        self.repository = make_repository(directory / "shop")
        self.home = home
        self.settings = {"crew__runtimes": self.RUNTIMES}
        self.words: tuple[Any, ...] = (self.repository.root,)

    @property
    def config(self) -> Settings:
        return settings_for(str(self.home / "hall.db"), self.home, **self.settings)

    @property
    def tmux(self) -> Tmux:
        return tmux_of(self.config)

    def facts(self) -> dict[str, Any]:
        """What of the instance is there: on the disk, in git, in tmux, among the processes, in the hall."""
        found = run_directory(self.config, self.ids[0])
        with closing(Hub(self.config, registry())) as hub:
            rows = sql(hub, "SELECT status FROM instance")
            tokens = sql(hub, "SELECT count(*) AS n FROM token WHERE kind = 'agent' AND revoked_at IS NULL")[0]["n"]
            agents = sql(hub, "SELECT count(*) AS n FROM agent")[0]["n"]
        has_session = self.ids[0] in self.tmux.panes()
        return {
            "worktree": Path(f"{self.repository.root}-worktrees", self.ids[0]).is_dir(),
            "branch": self.repository.branch_exists(self.ids[0]),
            "files": found.path.is_dir(),
            "session": has_session,
            "released": (found.path / "go").exists(),
            "orphans": not has_session and bool(self.processes),
            "row": rows[0]["status"] if rows else None,
            "tokens": tokens,
            "agents": agents,
        }

    @property
    def processes(self) -> list[Marked]:
        """The programs of the walk's instances, with a session or without."""
        return [one for found in marked_by("CREWHALL_INSTANCE", f"CREWHALL_HOME={self.home}").values() for one in found]

    def close(self) -> None:
        for session in self.tmux.panes():
            self.tmux.kill(session)
        for one in self.processes:
            with suppress(ProcessLookupError):
                os.kill(one.process.pid, signal.SIGKILL)


RUNNING: dict[str, Any] = {"worktree": True, "branch": True, "files": True, "session": True, "released": True}
RUNNING |= {"orphans": False, "row": "started", "tokens": 1, "agents": 1}
NOTHING: dict[str, Any] = dict.fromkeys(RUNNING, False) | {"row": None, "tokens": 0, "agents": 0}
STOPPED = RUNNING | {"session": False, "row": "terminated", "tokens": 0}
GONE = NOTHING | {"row": "abandoned", "agents": 1}


class StartTrial(InstanceTrial):
    whole, none = RUNNING, NOTHING

    def outside(self) -> str:
        facts = self.facts()
        if facts == self.whole:
            return "all"
        return "nothing" if facts == self.none else f"{facts}"


class RestartTrial(StartTrial):
    """A stopped one; the file `go` of its first run may be there or not."""

    def __init__(self, directory: Path, home: Path) -> None:
        super().__init__(directory, home)
        with closing(Hub(self.config, registry())) as hub:
            start_instance(hub, self.repository.root)
            stop_instance(hub, self.repository.root)

    def facts(self) -> dict[str, Any]:
        facts = super().facts()
        return facts if facts["session"] else facts | {"released": True}

    none = STOPPED


class StopTrial(StartTrial):
    whole, none = STOPPED, RUNNING

    def __init__(self, directory: Path, home: Path) -> None:
        super().__init__(directory, home)
        with closing(Hub(self.config, registry())) as hub:
            start_instance(hub, self.repository.root)


class AbandonTrial(StopTrial):
    whole = GONE


class EndTrial(StopTrial):
    whole = NOTHING | {"row": "terminated", "agents": 1}


def start_instance(hub: Hub, repository: str) -> None:
    arguments = {"prompt": "Try it", "title": "trial", "repository_path": repository, "runtime": "custom"}
    hub.call("instance_start", arguments, PERSON)


def stop_instance(hub: Hub, repository: str) -> None:
    hub.call("instance_stop", {"id": InstanceTrial.ids[0]}, PERSON)


def restart_instance(hub: Hub, repository: str) -> None:
    hub.call("instance_restart", {"id": InstanceTrial.ids[0]}, PERSON)


def abandon_instance(hub: Hub, repository: str) -> None:
    hub.call("instance_abandon", {"id": InstanceTrial.ids[0]}, PERSON)


def end_instance(hub: Hub, repository: str) -> None:
    """What a chore does some seconds after it was left to it."""
    with hub.own_work() as tx:
        row = tx.one("instance_get", id=InstanceTrial.ids[0])
        assert row is not None
        end_later(hub.journal, tx, row, "terminated")
    hub.journal.clock = lambda: hub.clock() + ANSWER_MS
    settle_all(ENDING, Tick(hub, hub.journal.clock(), awake_since=0))


class ReviewTrial(InstanceTrial):
    """A coder that asks for a review, and its reviewer."""

    def __init__(self, directory: Path, home: Path) -> None:
        super().__init__(directory, home)
        with closing(Hub(self.config, registry())) as hub:
            start_instance(hub, self.repository.root)

    def all_facts(self) -> dict[str, Any]:
        """What of the reviewer, its round and its feedback is there."""
        with closing(Hub(self.config, registry())) as hub:
            reviews = sql(hub, "SELECT relationship_type, outcome FROM instance_relationships")
            feedback = sql(hub, "SELECT merge_commit FROM review_feedback")
            statuses = {row["id"]: row["status"] for row in sql(hub, "SELECT id, status FROM instance")}
        tree = Path(f"{self.repository.root}-worktrees")
        subjects = git(tree / self.ids[0], "log", "--format=%s").splitlines()
        return {
            "reviews": [(row["relationship_type"], row["outcome"]) for row in reviews],
            "feedback": [row["merge_commit"] is not None for row in feedback],
            "statuses": statuses,
            "session": REVIEWER in self.tmux.panes(),
            "tree": (tree / REVIEWER).is_dir(),
            "branch": self.repository.branch_exists(REVIEWER),
            "merges": subjects.count("Merge review feedback, round 1"),
            "file": (tree / self.ids[0] / "REVIEW_FEEDBACK.md").exists(),
            "clean": git(tree / self.ids[0], "status", "--porcelain") == "",
            "refs": git(self.repository.root, "for-each-ref", "refs/crewhall/feedback"),
        }

    whole: ClassVar[dict[str, Any]]
    none: ClassVar[dict[str, Any]]

    def outside(self) -> str:
        facts = self.all_facts()
        if facts == self.whole:
            return "all"
        return "nothing" if facts == self.none else f"{facts}"


REVIEWER = "review-trial-a1"
UNREVIEWED: dict[str, Any] = {"reviews": [], "feedback": [], "statuses": {"work-trial-a1": "started"}, "session": False}
UNREVIEWED |= {"tree": False, "branch": False, "merges": 0, "file": False, "clean": True, "refs": ""}
REVIEWED = UNREVIEWED | {
    "reviews": [("spawned_review", None)],
    "statuses": {"work-trial-a1": "waiting_review", REVIEWER: "started"},
    "session": True,
    "tree": True,
    "branch": True,
}
HEARD = UNREVIEWED | {
    "reviews": [("spawned_review", "feedback")],
    "feedback": [True],
    "statuses": {"work-trial-a1": "started", REVIEWER: "terminated"},
    "merges": 1,
    "file": True,
}


JUDGED_WORK = HEARD | {"statuses": {"work-trial-a1": "started"}}


class RequestTrial(ReviewTrial):
    whole, none = REVIEWED, UNREVIEWED


class FeedbackTrial(ReviewTrial):
    whole, none = HEARD, REVIEWED

    def __init__(self, directory: Path, home: Path) -> None:
        super().__init__(directory, home)
        with closing(Hub(self.config, registry())) as hub:
            request_review(hub, self.repository.root)


class JudgeTrial(ReviewTrial):
    """A coder whose workflow the judge reviews; the fake Claude finds one thing."""

    def __init__(self, directory: Path, home: Path) -> None:
        place = directory / "claude"
        place.mkdir()
        self.claude = FakeClaude(place / "shop-worktrees")
        super().__init__(directory, home)
        self.settings = {**self.settings, "judge__command": command_for(place)}
        with closing(Hub(self.config, registry())) as hub:
            given = {"name": "Blue", "source_type": "prompt", "source_content": "x", "reviewer": "judge"}
            workflow = hub.call("workflow_create", given, PERSON)["id"]
            plan = {"summary": "s", "approach": "a", "tasks": [{"name": "t", "description": "d", "sequence": 1}]}
            hub.call("workflow_set_plan", {"id": workflow, "plan": plan}, PERSON)
            (one,) = hub.call("task_list", {"workflow_id": workflow}, PERSON)["tasks"]
            agent = hub.call("instance_get", {"id": self.ids[0]}, PERSON)["agent_id"]
            hub.call("task_claim", {"task_id": one["id"], "agent_id": agent}, PERSON)
        self.claude.plays(rules("FAIL", one["id"]))
        tree = Path(f"{self.repository.root}-worktrees", self.ids[0])
        (tree / "file-0").write_text("changed")
        commit(tree, "work")

    def outside(self) -> str:
        facts = self.all_facts()
        trees = list(Path(f"{self.repository.root}-worktrees").glob("judge-*"))
        branches = git(self.repository.root, "for-each-ref", "refs/heads/judge-*", "refs/crewhall")
        left = f"trees {trees}, branches {branches}" if trees or branches else ""
        if facts == JUDGED_WORK and not left:
            return "all" if len(self.claude.runs()) == 1 else f"{len(self.claude.runs())} runs of the judge"
        return "nothing" if facts == UNREVIEWED and not left else f"{facts} {left}"

    def close(self) -> None:
        super().close()
        self.claude.close()


def ask_judge(hub: Hub, repository: str) -> None:
    """A request, and what a chore does about it some seconds later."""
    request_review(hub, repository)
    settle_all(JUDGING, Tick(hub, hub.clock(), awake_since=0))


class BranchPullTrial(ReviewTrial):
    """A coder with a commit, whose repository is on a fake GitHub."""

    def __init__(self, directory: Path, home: Path) -> None:
        self.host = FakeGitHub({TOKEN: "octocat"}).__enter__()
        super().__init__(directory, home)
        there = {"pulls__github_url": self.host.url, "pulls__github_token": TOKEN, "pulls__pause": "1ms"}
        self.settings = {**self.settings, **there}
        self.repo, url = self.host.add_repository("octo", "shop"), f"{self.host.url}/octo/shop.git"
        git(self.repository.root, "remote", "add", "origin", url)
        git(self.repository.root, "push", "-q", url.replace("//", f"//any:{TOKEN}@"), "main")
        tree = Path(f"{self.repository.root}-worktrees", self.ids[0])
        (tree / "REVIEW_FEEDBACK.md").write_text("old feedback")
        (tree / "file-0").write_text("changed")
        commit(tree, "work")

    def outside(self) -> str:
        pulls = [(pull.head, pull.state) for pull in self.repo.pulls.values()]
        status = self.all_facts()["statuses"][self.ids[0]]
        if status == "pr_created" and pulls == [(self.ids[0], "open")]:
            return "all" if "REVIEW_FEEDBACK.md" not in self.repo.files(self.ids[0]) else "the feedback has landed"
        is_nothing = status == "started" and not pulls and self.ids[0] not in self.repo.branches
        return "nothing" if is_nothing else f"{status}, pulls {pulls}, branches {list(self.repo.branches)}"

    def close(self) -> None:
        super().close()
        self.host.__exit__(None, None, None)


class IssueTrial(BranchPullTrial):
    def __init__(self, directory: Path, home: Path) -> None:
        super().__init__(directory, home)
        with closing(Hub(self.config, registry())) as hub:
            given = {"prompt": "Plan it", "title": "plan", "runtime": "custom", "type": "planning"}
            hub.call("instance_start", {**given, "repository_path": self.repository.root}, PERSON)

    def outside(self) -> str:
        with closing(Hub(self.config, registry())) as hub:
            rows = sql(hub, "SELECT number FROM instance_issue")
        titles = [issue.title for issue in self.repo.issues.values()]
        if rows and rows[0]["number"] is not None and titles == ["Blue"]:
            return "all"
        return "nothing" if not rows and not titles else f"rows {rows}, issues {titles}"


def create_issue(hub: Hub, repository: str) -> None:
    hub.call("create_issues", {"instance_id": "plan-plan-a1", "issues": [{"title": "Blue", "body": "b"}]}, PERSON)


def create_pull_request(hub: Hub, repository: str) -> None:
    given = {"instance_id": InstanceTrial.ids[0], "title": "Blue", "description": "It was red."}
    hub.call("create_pull_request", given, PERSON)


def request_review(hub: Hub, repository: str) -> None:
    hub.call("request_review", {"instance_id": InstanceTrial.ids[0]}, PERSON)


def send_feedback(hub: Hub, repository: str) -> None:
    given = {"instance_id": REVIEWER, "feedback": "Too dark.", "feedback_type": "needs_work"}
    hub.call("send_feedback", given, PERSON)


def instance_trial(kind: type[InstanceTrial]) -> Callable[[Path], AbstractContextManager[Trial]]:
    @contextmanager
    def trial(home: Path) -> Iterator[Trial]:
        with tempfile.TemporaryDirectory(prefix="trial-") as directory:
            one = kind(Path(directory), home)
            try:
                yield one
            finally:
                one.close()

    return trial


# How each kind is begun and carried out, in a process that is killed at some point of it.
START: dict[str, Callable[..., None]] = {
    "pull_open": start_pull,
    "instance_start": start_instance,
    "instance_restart": restart_instance,
    "instance_stop": stop_instance,
    "instance_abandon": abandon_instance,
    "instance_end": end_instance,
    "review_start": request_review,
    "review_feedback": send_feedback,
    "review_judge": ask_judge,
    "branch_pull": create_pull_request,
    "issue_open": create_issue,
}
# What a trial is made of, in a hall's directory.
TRIALS: dict[str, Callable[[Path], AbstractContextManager[Trial]]] = {
    "pull_open": pull_open,
    "instance_start": instance_trial(StartTrial),
    "instance_restart": instance_trial(RestartTrial),
    "instance_stop": instance_trial(StopTrial),
    "instance_abandon": instance_trial(AbandonTrial),
    "instance_end": instance_trial(EndTrial),
    "review_start": instance_trial(RequestTrial),
    "review_feedback": instance_trial(FeedbackTrial),
    "review_judge": instance_trial(JudgeTrial),
    "branch_pull": instance_trial(BranchPullTrial),
    "issue_open": instance_trial(IssueTrial),
}
