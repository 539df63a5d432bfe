"""
What pulls cost against their own requests: the hub's tools and bare httpx2 take turns at one pretended host.

The floor sends the same requests, one after the other over one kept connection, and reads no more of an answer than
the next request needs. The pretended host has a process of its own (`python -m bench.pulls github`); its time is in
both sides by the clock, and in neither by the processor.
"""

import base64
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from crewhall import config
from crewhall.app import Hub
from crewhall.fakehosts.gitea import FakeGitea
from crewhall.fakehosts.github import FakeGitHub
from crewhall.families.all import registry
from crewhall.identity import Actor

ROUNDS, WARM = 20, 3
PULLS = 1000
TOKEN = "ghp_bench"
LABELS = ("claude-ops", "automated")
WHO = Actor("operator", "operator", proof="token")
HERE, MANY = "/repos/octo/ops", "/repos/octo/many"
count = itertools.count()


def pulls() -> None:
    """create_pr with 1 and 300 files, and list_prs of 1,000, on both hosts."""
    for kind in ("github", "gitea"):
        with pretended(kind) as url, tempfile.TemporaryDirectory() as home:
            flags = {"home": home, f"pulls.{kind}_token": TOKEN, f"pulls.{kind}_url": url}
            hub = Hub(config.load({}, flags), registry())
            print(f"\n{kind}, against the same requests by bare httpx2")
            _compare(hub, Bare(kind, url))
            hub.close()


def _compare(hub: Hub, bare: "Bare") -> None:
    _show("create_pr, 1 file", lambda: bare.create(1), lambda: _create(hub, 1))
    _show("create_pr, 300 files", lambda: bare.create(300), lambda: _create(hub, 300))
    _show(f"list_prs, {PULLS}", bare.list, lambda: _list(hub))
    bare.client.close()


@contextmanager
def pretended(kind: str) -> Iterator[str]:
    """A pretended host in a process of its own; its address."""
    command = [sys.executable, "-m", "bench.pulls", kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def serve(kind: str) -> None:
    """Pretend until stdin ends."""
    with (FakeGitHub if kind == "github" else FakeGitea)(tokens={TOKEN: "octocat"}) as host:
        for name in ("ops", "many"):
            repository = host.add_repository("octo", name, files={"README.md": b"Hello\n"})
            for label in LABELS:
                repository.add_label(label)
        for number in range(PULLS):
            repository.add_pull(title=f"Pull {number}", head=f"b{number}", labels=LABELS)
        print(host.url, flush=True)
        sys.stdin.read()


def _files(files: int) -> tuple[str, dict[str, str]]:
    """A new title, and new files that no pull has yet."""
    number = next(count)
    return f"Change {number}", {f"checks/{number}-{one}.md": f"Look at {number}, {one}\n" * 20 for one in range(files)}


def _create(hub: Hub, files: int) -> None:
    title, made = _files(files)
    rows = [{"path": path, "content": content, "action": "create"} for path, content in made.items()]
    about = {"repo_owner": "octo", "repo_name": "ops", "title": title, "body": "Why", "change_type": "check"}
    assert not hub.call("create_pr", {**about, "files": rows}, WHO)["warnings"]


def _list(hub: Hub) -> None:
    assert hub.call("list_prs", {"repo_owner": "octo", "repo_name": "many"}, WHO)["total"] == PULLS


class Bare:
    """The requests alone."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        api = url + ("/api/v3" if kind == "github" else "/api/v1")
        self.client = httpx2.Client(base_url=api, headers={"Authorization": f"token {TOKEN}"}, timeout=30)

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        answer = self.client.request(method, path, json=body, params=query or None)
        return answer.json()

    def create(self, files: int) -> None:
        title, made = _files(files)
        branch = f"claude-ops/check/{title.lower().replace(' ', '-')}"
        self.ask("GET", HERE)
        (self._github if self.kind == "github" else self._gitea)(title, branch, made)
        number = self.ask("POST", f"{HERE}/pulls", {"title": title, "body": "Why", "head": branch, "base": "main"})[
            "number"
        ]
        labels: list[Any] = list(LABELS)
        if self.kind == "gitea":
            labels = [one["id"] for one in self.ask("GET", f"{HERE}/labels", limit=50, page=1)]
        self.ask("POST", f"{HERE}/issues/{number}/labels", {"labels": labels})

    def _github(self, title: str, branch: str, made: dict[str, str]) -> None:
        self.ask("GET", f"{HERE}/git/matching-refs/heads/{branch}")
        head = self.ask("GET", f"{HERE}/branches/main")["commit"]
        base = head["commit"]["tree"]["sha"]
        self.ask("GET", f"{HERE}/git/trees/{base}", recursive="1")
        rows = [{"path": path, "mode": "100644", "type": "blob", "content": one} for path, one in made.items()]
        tree = self.ask("POST", f"{HERE}/git/trees", {"base_tree": base, "tree": rows})["sha"]
        commit = {"message": title, "tree": tree, "parents": [head["sha"]]}
        sha = self.ask("POST", f"{HERE}/git/commits", commit)["sha"]
        self.ask("POST", f"{HERE}/git/refs", {"ref": f"refs/heads/{branch}", "sha": sha})

    def _gitea(self, title: str, branch: str, made: dict[str, str]) -> None:
        self.ask("GET", f"{HERE}/git/refs/heads/{branch}")
        sha = self.ask("GET", f"{HERE}/branches/main")["commit"]["id"]
        self.ask("GET", f"{HERE}/git/trees/{sha}", recursive="true", page=1, per_page=1000)
        rows = [
            {"operation": "create", "path": path, "content": base64.b64encode(one.encode()).decode()}
            for path, one in made.items()
        ]
        self.ask("POST", f"{HERE}/contents", {"branch": "main", "new_branch": branch, "message": title, "files": rows})

    def list(self) -> None:
        size, most = ("per_page", 100) if self.kind == "github" else ("limit", 50)
        self.ask("GET", MANY)
        pages = (
            self.ask("GET", f"{MANY}/pulls", state="open", page=page + 1, **{size: most})
            for page in range(PULLS // most)
        )
        assert sum(map(len, pages)) == PULLS


def _show(title: str, floor: Callable[[], None], ours: Callable[[], None]) -> None:
    taken: dict[Callable[[], None], list[tuple[float, float]]] = {floor: [], ours: []}
    for number in range(ROUNDS + WARM):
        for side, times in taken.items():
            began, busy = time.perf_counter(), time.process_time()
            side()
            if number >= WARM:
                times.append((time.perf_counter() - began, time.process_time() - busy))
    (clock, busy), (our_clock, our_busy) = (
        (statistics.median(t for t, _ in times), statistics.median(b for _, b in times)) for times in taken.values()
    )
    ratio = statistics.median(a / b for (a, _), (b, _) in zip(taken[ours], taken[floor], strict=True))
    print(
        f"  {title:22} {ratio:5.2f} x by the clock ({clock * 1e3:.1f} ms), processor {our_busy / busy:5.2f} x", end=""
    )
    print(f" ({busy * 1e3:.1f} ms); {our_clock * 1e3:.1f} ms")


PARTS = {"pulls": pulls}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1])
    else:
        pulls()
