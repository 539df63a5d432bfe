"""The import contracts turn red when an import goes the wrong way: each is tried on a copy of the sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FAMILIES = "Families use each other one way BROKEN"
QUICK = "The bridge and the command line start with the standard library alone BROKEN"
DOWN = "Arrows go down BROKEN"
EDGES = "The hub's edges know no command line, and bridges know none of them BROKEN"

pytestmark = pytest.mark.slow


def lint(tree: Path) -> tuple[int, str]:
    """The exit code and the output of import-linter for a copy of the sources."""
    words = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


WRONG = [  # a module, what it must not import, and the contract that says so
    ("families/project/root.py", "crewhall.families.work.model", FAMILIES),
    ("families/work/task/rules.py", "crewhall.families.pulls.model", FAMILIES),
    ("families/judge/menu.py", "crewhall.families.pulls.rules_rival", FAMILIES),
    ("edges/bridge/lines.py", "pydantic", QUICK),
    ("config.py", "httpx2", QUICK),
    ("outside/git.py", "crewhall.app", DOWN),
    ("edges/cli/doctor.py", "crewhall.fakehosts.host", DOWN),
    ("edges/http/reply.py", "crewhall.edges.cli.render", EDGES),
]


def test_every_import_that_goes_the_wrong_way_breaks_its_contract(tree: Path) -> None:
    for module, imported, _ in WRONG:
        path = tree / "src/crewhall" / module
        path.write_text(f"{path.read_text()}\n\nimport {imported}\n")
    code, output = lint(tree)
    assert code == 1
    said = " ".join(output.split())
    for module, imported, contract in WRONG:
        importer = f"crewhall.{module.removesuffix('.py').replace('/', '.')}"
        assert contract in output, output
        assert f"{importer} -> {imported}" in said or f"{importer} imports {imported}" in said, (importer, output)


def test_the_sources_as_they_are_break_none(tree: Path) -> None:
    assert lint(tree)[0] == 0


def test_a_family_without_its_place_in_the_order_breaks_the_contract(tree: Path) -> None:
    (tree / "src/crewhall/families/newcomer").mkdir()
    (tree / "src/crewhall/families/newcomer/__init__.py").write_text('"""A family that nobody listed."""\n')
    code, output = lint(tree)
    assert (code, FAMILIES in output) == (1, True), output
