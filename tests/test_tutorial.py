"""docs/tutorial.md, typed command by command into real terminals, with real Claude Code and a scripted model."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.blocks import shows
from tests.conftest import eventually
from tests.edges.claude import use
from tests.edges.interfaces import CREWHALL
from tests.edges.prefork import environment as prefork_environment
from tests.edges.terminal import Terminal
from tests.npm import need
from tests.postgres import free_port
from tools.clients import surroundings
from tools.npm import CLAUDE_CODE
from tools.stubs.anthropic import Play, Use, plays

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorial.md"
FENCED = re.compile(r"^```sh *(?P<where>[^\n]*)\n(?P<commands>.*?)^```\n(\n```text\n(?P<text>.*?)^```\n)?", re.M | re.S)
FILES = {
    "prices": 'PRICES = {"tea": 300, "cup": 450}\n',
    "cart": "def add(cart, name, count=1):\n    return cart | {name: cart.get(name, 0) + count}\n",
    "bill": "from prices import PRICES\n\n\ndef total(cart):\n    return sum(PRICES[it] * cart[it] for it in cart)\n",
}


@dataclass(frozen=True)
class Step:
    """Commands of the page, the terminal that they are typed into, and the text that the page says they print."""

    where: str
    commands: str
    text: str | None


def steps() -> list[Step]:
    return [Step(**found.groupdict()) for found in FENCED.finditer(PAGE.read_text())]


@pytest.mark.parametrize(
    ("text", "printed", "is_shown"),
    [
        ("a  b", "a b\n", True),
        ("a", "a\nb", False),
        ("id tk_…", "id   tk_123", True),
        ("id tk_…", "id tk_1\n2", False),
        ("…\nb", "x\ny\nb", True),
        ("…\nb", "b", True),
        ("…\nb", "xb", False),
        ("a\n…\nb", "a\nb", True),
        ("a…", "b", False),
        ("1.5 (x)", "1a5 (x)", False),
    ],
)
def test_dots_stand_for_what_differs_and_for_nothing_else(text: str, printed: str, is_shown: bool) -> None:
    assert shows(text, printed) is is_shown


def agents(asked: str) -> Play:
    """The model of ada and bob: it does what it is asked, with the hall's tools and Claude Code's own."""
    if name := re.search(r"<command-args>(\w+)</command-args>", asked):
        task, claim = yield from takes(name[1])
        yield from works(task, claim["claim_epoch"], claim["workspace"]["path"])
    elif "Then stop" in asked:
        task, claim = yield from takes("ada")
        yield from begins(task["id"], claim["claim_epoch"])
        yield "It is begun, and I stop."
    else:
        held = (yield use("task_load_context"))["current_task"]
        claim = yield use("task_claim", task_id=held["id"], agent_id=held["claimed_by"])
        noted = {"type": "recovery", "summary": f"went on after: {held['checkpoints'][-1]['summary']}"}
        yield use("checkpoint_add", task_id=held["id"], claim_epoch=claim["claim_epoch"], **noted)
        yield from finishes(held, claim["claim_epoch"], claim["workspace"]["path"])


def takes(name: str) -> Any:
    """The first task that is to be had, and its claim."""
    me = (yield use("agent_register", name=name, runtime="claude_code"))["id"]
    for task in (yield use("task_get_available", agent_id=me))["tasks"]:
        claim = yield use("task_claim", task_id=task["id"], agent_id=me)
        if claim["success"]:
            return task, claim
    raise AssertionError(f"no task for {name}")


def begins(task_id: str, epoch: int) -> Play:
    yield use("task_load_context", task_id=task_id)
    yield use(
        "task_set_plan", id=task_id, plan={"approach": "one file", "steps": ["write", "commit"]}, claim_epoch=epoch
    )
    yield use("task_update_status", id=task_id, status="in_progress", claim_epoch=epoch)
    yield use("checkpoint_add", task_id=task_id, type="progress", summary="read the plan", claim_epoch=epoch)


def works(task: dict[str, Any], epoch: int, path: str) -> Play:
    yield from begins(task["id"], epoch)
    yield from finishes(task, epoch, path)


def finishes(task: dict[str, Any], epoch: int, path: str) -> Play:
    """Write the file and commit it where the task is to be done, and nowhere else."""
    file = f"{task['name']}.py"
    yield Use("Write", {"file_path": f"{path}/{file}", "content": FILES[task["name"]]})
    yield Use(
        "Bash", {"command": f"cd {path} && git add {file} && git commit -qm 'Add {file}'", "description": "Commit"}
    )
    done = {"status": "completed", "outcome": f"{file} is written and committed", "claim_epoch": epoch}
    yield use("task_update_status", id=task["id"], **done)
    yield f"{task['name']} is done."


@dataclass
class Person:
    """Somebody with a home of their own, who follows the page."""

    home: Path
    port: int
    environment: dict[str, str]
    terminals: ExitStack

    def open(self) -> Terminal:
        return self.terminals.enter_context(closing(Terminal(ROOT, self.environment)))

    def script(self, step: Step) -> Path:
        path = self.home / f"typed-{steps().index(step)}.sh"
        path.write_text(step.commands)
        return path

    def expects(self, step: Step) -> str:
        """The page's text; it names the port that a hall has if nobody says otherwise."""
        return (step.text or "…\n").replace("3001", str(self.port))

    def asks(self, *words: str) -> dict[str, Any]:
        words = (CREWHALL, "--json", *words)
        done = subprocess.run(words, env=self.environment, capture_output=True, check=True, timeout=60)
        body: dict[str, Any] = json.loads(done.stdout)
        return body

    def git(self, *words: str) -> str:
        words = ("git", "-C", str(self.home / "tea-shop"), *words)
        return subprocess.run(words, env=self.environment, capture_output=True, check=True, text=True).stdout


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    need(CLAUDE_CODE)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = Grace\nemail = grace@example.org\n")
    port = free_port()
    with plays(agents) as url, ExitStack() as terminals:
        model = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
        around = surroundings(home) | prefork_environment() | model | {"MCP_SERVER_PORT": str(port), "LANG": "C.UTF-8"}
        yield Person(home, port, around, terminals)


@pytest.mark.timeout(120)
def test_the_tutorial_is_true_command_by_command(person: Person) -> None:
    """Each command ends well and prints what the page says; then the work of both agents is in the repository."""
    *story, end = steps()
    hub, *rest = story
    beside = [(start_step(person, hub), hub)]
    eventually(lambda: shows(person.expects(hub), beside[0][0].lately), 60)
    ours = person.open()
    for step in rest:
        if step.where:
            beside.append((start_step(person, step), step))
        else:
            follow(person, step, ours)
    for terminal, step in beside:
        assert shows(person.expects(step) + "…\n", terminal.lately), f"{step.text}\nbut printed\n{terminal.lately}"
    _is_all_done(person)
    follow(person, end, ours)
    assert not list(person.home.glob("tea-shop*"))


def start_step(person: Person, step: Step) -> Terminal:
    """A new terminal in which a step's command goes on."""
    terminal = person.open()
    terminal.begin(person.script(step))
    return terminal


def follow(person: Person, step: Step, terminal: Terminal) -> None:
    printed = terminal.run(person.script(step))
    assert shows(person.expects(step), printed), f"{step.commands}\n{step.text}\nbut printed\n{printed}"


def _is_all_done(person: Person) -> None:
    """Both changes are merged, no worktree or branch is left, every task is completed by who took it."""
    assert person.git("ls-files").split() == ["bill.py", "cart.py", "plan.json", "prices.py"]
    assert person.git("status", "--short") == ""
    assert len(person.git("worktree", "list").splitlines()) == 1
    assert person.git("branch", "--format=%(refname:short)").split() == ["main"]
    by_name = {one["name"]: one for one in person.asks("workflow", "list")["workflows"]}
    tasks = person.asks("task", "list", by_name["Tea shop"]["id"])["tasks"]
    assert {one["name"]: one["status"] for one in tasks} == dict.fromkeys(FILES, "completed")
    assert by_name["Tea shop"]["status"] == "completed" and by_name["Another tea shop"]["status"] == "ready"
    events = person.asks("event", "list", "--limit", "100")["events"]
    claimers = [one["actor"] for one in events if one["what"] == "task.claimed"]
    assert len(set(claimers[:2])) == 2, "two agents, a task each"
