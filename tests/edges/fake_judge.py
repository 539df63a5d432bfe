"""What the tests of the judge by every way in stand on: a tiny stand-in for the Claude CLI, and a tree to be judged."""

import json
from pathlib import Path
from typing import Any

from tests.outside.repos import commit, git

# What it says, by the first words of the prompt; TASK is the task of the contract.
ISSUE = {"file": "style.css", "line": 1, "issue": "black is not one of the named colours"}
SAYS: dict[str, dict[str, Any]] = {
    "You are the judge": {
        "task_id": "TASK",
        "verdict": "CONDITIONAL",
        "summary": "The colours have names, but for one.",
        "blocking_issues": [ISSUE],
        "suggestions": [],
    },
    "You check a proposal": {"valid": False, "issues": ["no goal can be checked"]},
    "You audit files": {"summary": "One.", "findings": [{"severity": "low", "file": "app.py", "issue": "says hello"}]},
    "A floor manager": {"side": "judge", "reasoning": "Line 1 has it."},
}
USAGE = {"input_tokens": 1200, "output_tokens": 34}
SCRIPT = """\
#!/bin/sh
[ "$1" = --version ] && echo "9.9.9 (stand-in)" && exit
read -r first
task=$(sed -n 's/.*"task_id": "\\([^"]*\\)".*/\\1/p' | head -n 1)
case "$first" in
"""


def write_fake_claude(path: Path) -> str:
    """A command for the setting judge.command: a script of a few lines, which starts in a millisecond."""
    told = {"type": "result", "subtype": "success", "is_error": False, "usage": USAGE, "total_cost_usd": 0.02}
    cases = ""
    for number, (first, answer) in enumerate(SAYS.items()):
        said = path.with_name(f"{path.name}-{number}.json")
        said.write_text(json.dumps(told | {"result": json.dumps(answer)}))
        cases += f"'{first}'*) exec sed \"s/TASK/$task/\" '{said}';;\n"
    path.write_text(f"{SCRIPT}{cases}esac\n")
    path.chmod(0o755)
    return str(path)


def make_tree(root: Path, *tasks: str) -> Path:
    """A working tree with a contract, a proposal and a rebuttal for each task, which git does not look at."""
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "style.css").write_text("body { color: black }\n")
    (root / "app.py").write_text('print("hello")\n')
    (root / ".gitignore").write_text("handoff-*/\n")
    commit(root, "first")
    for task in tasks:
        _hand_over(root / f"handoff-{task}", task)
    return root


def _hand_over(directory: Path, task: str) -> None:
    directory.mkdir()
    contract = {
        "task_id": task,
        "specification": {"requirements": ["every colour has a name"]},
        "acceptance_criteria": ["no colour is written out"],
        "changed_files": ["style.css"],
    }
    (directory / "contract.json").write_text(json.dumps(contract))
    for name in ("proposal", "rebuttal", "report"):
        (directory / f"{name}.md").write_text(f"# The {name} of {task}\n")
