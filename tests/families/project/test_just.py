"""run_just_task: one entry of a fixed menu, run by the real just, and nothing left running."""

import resource
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.errors import Cancelled, Failure, Forbidden, InvalidInput, InvalidState, NotFound, PathOutsideRoot
from crewhall.identity import OPERATOR
from crewhall.outside.root_path import identity_of
from crewhall.stop import Stop
from tests.conftest import eventually
from tests.outside.descendants import marked_environment
from tests.sizes import size

pytestmark = [pytest.mark.parametrize("database", ["sqlite"], indirect=True), pytest.mark.slow]
Run = Callable[..., dict[str, Any]]
VAST = size(2**27, 2**30)  # bytes

JUSTFILE = """
x := "unset"
alias g := greet
mod tools

greet:
    @echo out; echo err >&2; echo {{x}}
_hidden:
    touch ran
[private]
private:
    touch ran
needs word:
    touch ran {{word}}
optional word="hello":
    @echo {{word}}
[confirm]
sure:
    touch ran
fail:
    @exit 7
killed:
    @kill -9 $$
kills:
    @kill -9 $PPID; sleep 3600
asks:
    @read word; echo "got [$word]"
garbled:
    @printf 'a\\377b\\303\\244\\n'
variables:
    @env
endless:
    @echo begun; touch begun; sleep 3600
vast:
    @echo first; yes | head -c VAST; echo last
edits:
    @printf 'other:\\n' > justfile; echo edited
plain:
    @sleep 3600 & echo done
nohup:
    @nohup sleep 3600 > /dev/null 2>&1 & echo done
session:
    @setsid sleep 3600 & echo done
twice:
    @(setsid sh -c 'sleep 3600 &' > /dev/null 2>&1 < /dev/null &); echo done
meets:
    @touch here-$$; while [ $(ls here-* | wc -l) -lt 8 ]; do sleep 0.02; done; setsid sleep 3600 & echo met
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    path.mkdir()
    (path / "justfile").write_text(JUSTFILE.replace("VAST", str(VAST)))
    (path / "tools.just").write_text("lint:\n    @echo linted\n")
    return path


@pytest.fixture
def run(make_hub: Callable[..., Hub], root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a task in the root; in the end none of the processes that began there is alive."""
    hub = make_hub(project__just_seconds="20", programs__variables="SHOP_*,CREWHALL_TOKEN")

    def ask(name: str, **more: Any) -> dict[str, Any]:
        return hub.call(
            "run_just_task",
            {"task_name": name},
            OPERATOR,
            origin=Origin(worktree=str(root), identity=identity_of(str(root))),
            **more,
        )

    with marked_environment() as (env, alive):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        yield ask
        assert not alive()


def test_a_task_s_output_and_exit_code_come_back(run: Run) -> None:
    answer = run("greet")
    assert answer.pop("duration_ms") > 0
    assert answer == {
        "task_name": "greet",
        "exit_code": 0,
        "timed_out": False,
        "output": "out\nerr\nunset\n",
        "left_out_bytes": 0,
        "ended_leftovers": 0,
    }


@pytest.mark.parametrize(
    ("name", "code", "output"),
    [
        ("g", 0, "out\nerr\nunset\n"),
        ("tools::lint", 0, "linted\n"),
        ("optional", 0, "hello\n"),
        ("fail", 7, "exit code 7"),
        ("killed", 137, "by signal 9"),
        ("kills", -9, ""),
        ("asks", 0, "got []\n"),
        ("garbled", 0, "a\ufffdbä\n"),
        ("sure", 1, "not confirmed"),
    ],
)
def test_however_a_task_ends_is_an_answer(run: Run, root: Path, name: str, code: int, output: str) -> None:
    answer = run(name)
    assert (answer["exit_code"], answer["timed_out"]) == (code, False)
    assert output in answer["output"]
    assert not (root / "ran").exists()


@pytest.mark.parametrize(
    ("name", "failure", "words"),
    [
        ("gret", NotFound, "Did you mean 'greet'?"),
        ("wholly unlike", NotFound, "There are asks, edits, "),
        ("_hidden", NotFound, ""),
        ("private", NotFound, ""),
        ("tools::gone", NotFound, "Did you mean 'tools::lint'?"),
        ("gone::lint", NotFound, ""),
        ("tools", NotFound, ""),
        ("::greet", NotFound, "Did you mean 'greet'?"),
        ("greet fail", NotFound, ""),
        ("tools lint", NotFound, ""),
        (" greet", NotFound, ""),
        ("greet\n", NotFound, ""),
        ("Greet", NotFound, ""),
        ("x=1", NotFound, ""),
        ("../greet", NotFound, ""),
        ("-n", NotFound, ""),
        ("--evaluate", NotFound, ""),
        ("--command=touch", NotFound, ""),
        ("$(touch ran)", NotFound, ""),
        ("", InvalidInput, "needs task_name"),
        ("needs", InvalidInput, "a recipe that calls it with fixed ones"),
    ],
)
def test_what_is_not_exactly_a_listed_name_is_refused(
    run: Run, root: Path, name: str, failure: type[Failure], words: str
) -> None:
    with pytest.raises(failure) as refused:
        run(name)
    assert words in refused.value.hint and refused.value.hint
    assert not (root / "ran").exists()


def test_a_wrong_justfile_is_refused_in_just_s_words(run: Run, root: Path) -> None:
    (root / "justfile").write_text("greet:\n    @pwd\noops oops\n")
    with pytest.raises(InvalidState, match=r"expected .* justfile:3:"):
        run("greet")


def test_a_recipe_gets_the_variables_that_the_operator_names(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOP_PASS", "STRIPE_KEY", "DATABASE_URL", "CREWHALL_TOKEN"):
        monkeypatch.setenv(name, "value")
    names = {line.partition("=")[0] for line in run("variables")["output"].splitlines()}
    assert names & {"SHOP_PASS", "STRIPE_KEY", "DATABASE_URL", "CREWHALL_TOKEN"} == {"SHOP_PASS"}


def test_a_secret_or_a_file_elsewhere_is_no_justfile(run: Run, root: Path) -> None:
    (root / ".env").write_text("PASSWORD=abc\n")
    (root / "justfile").write_text("import '.env'\n")
    with pytest.raises(Forbidden, match=r"'\.env' is not given out"):
        run("greet")
    (root / "justfile").write_text("import '/etc/passwd'\n")
    with pytest.raises(PathOutsideRoot):
        run("greet")
    (root / "justfile").unlink()
    (root / "justfile").symlink_to(".env")
    with pytest.raises(Forbidden, match=r"'\.env' is not given out"):
        run("greet")


@pytest.mark.parametrize("limit", ["project.just_seconds", "tool.timeout"])
def test_at_its_limit_what_a_task_has_printed_is_the_answer(
    make_hub: Callable[..., Hub], run: Run, root: Path, limit: str
) -> None:
    hub = make_hub(project__just_seconds="0.5" if limit == "project.just_seconds" else "20")
    stop = Stop(2.0 if limit == "tool.timeout" else 60.0)
    answer = hub.call(
        "run_just_task",
        {"task_name": "endless"},
        OPERATOR,
        origin=Origin(worktree=str(root), identity=identity_of(str(root))),
        stop=stop,
    )
    assert (answer["exit_code"], answer["timed_out"]) == (None, True)
    assert answer["output"].startswith("begun\n")
    assert answer["duration_ms"] < 10_000


def test_a_cancel_ends_all_of_it(run: Run, root: Path) -> None:
    stop, caught = Stop(60), list[Failure]()

    def wait() -> None:
        try:
            run("endless", stop=stop)
        except Cancelled as failure:
            caught.append(failure)

    waiter = threading.Thread(target=wait)
    waiter.start()
    eventually((root / "begun").exists)
    stop.cancel()
    waiter.join(10)
    assert caught


def test_a_gibibyte_costs_no_memory_and_is_cut_in_the_middle(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """So much in `make soak`: otherwise an eighth, which is more than memory may grow by, too."""
    monkeypatch.setattr("crewhall.outside.run.NEWS", 0.05)
    told: list[tuple[float, str]] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = run("vast", progress=lambda done, total, message: told.append((done, message)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # kB
    head, cut, tail = answer["output"].partition(f"\n[{answer['left_out_bytes']} bytes are left out here]\n")
    assert cut and head.startswith("first\ny\ny\n") and tail.endswith("y\ny\nlast\n")
    assert len(head) + len(tail) + answer["left_out_bytes"] == VAST + len("first\nlast\n")
    assert [done for done, _ in told] == sorted({done for done, _ in told}) and told[-1][1] == "y"


@pytest.mark.parametrize("name", ["plain", "nohup", "session", "twice"])
def test_what_a_task_leaves_behind_is_ended_and_counted(run: Run, name: str) -> None:
    answer = run(name)
    assert (answer["output"], answer["exit_code"]) == ("done\n", 0)
    assert answer["ended_leftovers"] >= 1


def test_a_task_may_edit_the_justfile(run: Run) -> None:
    assert run("edits")["output"] == "edited\n"
    with pytest.raises(NotFound, match="'edits'"):
        run("edits")


def test_eight_run_at_once(run: Run) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(run, ["meets"] * 8))
    assert [(answer["output"], answer["ended_leftovers"]) for answer in answers] == [("met\n", 1)] * 8
