"""What the tests of workspaces share: a real repository beside a hall, and a git that notes how it is called."""

import os
import shlex
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.identity import OPERATOR
from tests.conftest import eventually
from tests.families.work.workflows import plan_workflow, task
from tests.outside.repos import change, commit, git, make_repository, refs

Body = dict[str, Any]
OURS = '*"{words}"*) if mkdir {once} 2>/dev/null; then {what}; fi;;'


class GitWatch:
    """The git that every process of the test finds: it notes its words, and can be told to do more at some of them."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.real, self._log, self._rule = shutil.which("git") or "git", folder / "words", folder / "rule"
        self._folder = folder
        folder.mkdir()
        script = folder / "git"
        note = f"printf '%s\\n' \"$*\" >> {self._log}"
        script.write_text(f'#!/bin/sh\n{note}\n[ -f {self._rule} ] && . {self._rule}\nexec {self.real} "$@"\n')
        script.chmod(0o755)
        self._log.touch()
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def calls(self, words: str = "") -> list[str]:
        """The commands since the last `forget` that hold these words."""
        return [line for line in self._log.read_text("utf-8", "replace").splitlines() if words in line]

    def forget(self) -> None:
        self._log.write_text("")

    def _at(self, words: str, what: str) -> None:
        once = self._rule.with_name(f"once-{len(os.listdir(self._rule.parent))}")
        rule = OURS.format(words=words, once=once, what=what)
        draft = self._rule.with_name("draft")
        draft.write_text(f'case "$*" in\n{rule}\nesac\n')
        draft.rename(self._rule)

    def run_at(self, words: str, script: str) -> None:
        """Run a script before the next such command."""
        self._at(words, script)

    def kill_at(self, words: str, *, after: bool) -> None:
        """Kill the process that runs such a command, once: before git does it, or right after."""
        first = f'{self.real} "$@"; ' if after else ""
        self._at(words, f"{first}kill -9 $PPID; exit 1")

    def hold_at(self, words: str, gate: str = "gate") -> None:
        """Let the next such command wait at a gate until `let_go`."""
        if not (self._folder / gate).exists():
            os.mkfifo(self._folder / gate)
        where = shlex.quote(str(self._folder / gate))
        self._at(words, f"touch {where}-reached; read line < {where}")

    def wait_until_held(self, gate: str = "gate") -> None:
        eventually((self._folder / f"{gate}-reached").exists, 30)

    def let_go(self, gate: str = "gate") -> None:
        (self._folder / gate).write_text("go\n")

    def let_all_go(self) -> None:
        """Hold nobody any more, also when a test has failed."""
        self._rule.unlink(missing_ok=True)
        for gate in filter(Path.is_fifo, self._folder.iterdir()):
            with suppress(OSError):  # nobody waits
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))


class WorkspaceSite:
    """A repository, and a hall that works in it."""

    def __init__(self, hub: Hub, root: Path, files: int = 3) -> None:
        self.hub, self.root = hub, root
        if not root.exists():
            make_repository(root, files)
        self.before = refs(root)

    def ask(self, tool: str, /, **given: Any) -> Body:
        return self.hub.call(tool, given, OPERATOR)

    def workflow(self, *names: str | Body, **more: Any) -> tuple[str, dict[str, str]]:
        """A workflow in the repository, ready, and its tasks by name: `one` if none is named."""
        tasks = [task(name) if isinstance(name, str) else name for name in names or ("one",)]
        return plan_workflow(self.ask, *tasks, **{"repository_path": str(self.root), "max_parallel_tasks": 20} | more)

    def workspace(self, workflow: str, branch: str, **more: Any) -> Body:
        return self.ask("workspace_create", workflow_id=workflow, branch=branch, **more)

    def end(self, workspace: str, status: str = "abandoned", **more: Any) -> Body:
        return self.ask("workspace_update", id=workspace, status=status, **more)

    def workspaces(self, workflow: str, **more: Any) -> list[Body]:
        found: list[Body] = self.ask("workspace_list", workflow_id=workflow, **more)["workspaces"]
        return found

    @property
    def home(self) -> Path:
        return self.root.with_name(f"{self.root.name}-worktrees")

    def worktrees(self) -> list[str]:
        """Paths of the worktrees that git knows, but the main one."""
        lines = git(self.root, "worktree", "list", "--porcelain").splitlines()
        return [line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")][1:]

    def is_as_before(self) -> bool:
        """Whether nothing of a workspace is left: no worktree, branch, ref, lock or directory."""
        left = [path for path in (self.root / ".git").rglob("*") if path.name.endswith(".lock")]
        assert (self.worktrees(), refs(self.root), left) == ([], self.before, [])
        assert not self.home.exists() and not list((self.root / ".git").glob("worktrees/*"))
        return True


def edit(workspace: Body, file: str, text: str, *, committed: bool = True, line: int = 0) -> str:
    """Change a file of a workspace, and commit it unless told otherwise; the commit, if there is one."""
    where = Path(workspace["path"])
    change(where / file, text, line)
    return commit(where, text) if committed else ""


def run_together(*steps: Callable[[], Any], allowed: frozenset[str] = frozenset()) -> list[Any]:
    """Start all steps together; the result of each, or the code of its failure if that is allowed."""
    together = threading.Barrier(len(steps))

    def run(step: Callable[[], Any]) -> Any:
        together.wait(20)
        try:
            return step()
        except Failure as failure:
            assert failure.code in allowed, (failure.message, failure)
            return failure.code

    with ThreadPoolExecutor(len(steps)) as threads:
        return list(threads.map(run, steps, timeout=120))
