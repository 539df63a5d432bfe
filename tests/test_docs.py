"""Pages are true: links lead somewhere, commands are there, and what the pages of the nouns show really happens."""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.edges.bridge.address_files import AddressFile
from crewhall.edges.cli.arguments import arguments_of
from crewhall.edges.cli.commands import BRIDGES, OWN_COMMANDS
from crewhall.edges.cli.main import split_flags
from crewhall.edges.http.rest import describe
from crewhall.errors import InvalidInput
from crewhall.fakehosts.github import FakeGitHub
from crewhall.families.all import registry
from crewhall.families.crew.site import tmux_of
from crewhall.tool import Tool
from tests.blocks import Block, blocks_of, commands_of, run, shows
from tests.conftest import Live, settings_for
from tests.edges.fake_judge import write_fake_claude
from tests.outside.repos import commit, git

ROOT = Path(__file__).parent.parent
NOUNS = ROOT / "docs" / "nouns"
INDEX = NOUNS / "README.md"
NOUN_PAGES = sorted(path for path in NOUNS.glob("*.md") if path != INDEX)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), INDEX, *NOUN_PAGES]
COMMANDS = {" ".join(tool.command): describe(tool) for tool in registry().tools}
# A tool is on the page of the folder that declares it (families/work/context), else of its name's noun (task_claim),
# else of its family.
FAMILY_PAGES = {"review": "review", "project": "worktree", "pulls": "pull", "judge": "report"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FILES = {"README.md": "# Shop\n", "app.py": 'print("hello")\n', "style.css": "body { color: black }\n"}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
each_noun = pytest.mark.parametrize("page", NOUN_PAGES, ids=lambda path: path.stem)


def links_of(page: Path) -> list[tuple[Path, str]]:
    """Where a page's own links lead: the file and the anchor in it, which may be empty."""
    targets = [target for target in LINK.findall(FENCED.sub("", page.read_text())) if "://" not in target]
    split = [target.partition("#")[::2] for target in targets]
    return [((page.parent / name).resolve() if name else page, anchor) for name, anchor in split]


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as the forges make them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in links_of(page):
        assert target.exists(), f"{page.name} links to {target}, which is not there"
        assert not anchor or anchor in anchors_of(target), f"{page.name} links to #{anchor}, which {target.name} lacks"


def page_of(tool: Tool) -> str:
    """The concept page on which a tool belongs."""
    folder, noun = tool.handler.__module__.split(".")[-2], tool.name.partition("_")[0]
    pages = {page.stem for page in NOUN_PAGES}
    return next((name for name in (folder, noun) if name in pages), FAMILY_PAGES.get(tool.family, noun))


def test_every_tool_is_on_the_page_of_its_noun_and_on_no_other() -> None:
    linked = {(anchor, page.stem) for page in NOUN_PAGES for _, anchor in links_of(page)}
    for tool in registry().tools:
        page, link = page_of(tool), f"[`{tool.name}`](../tools.md#{tool.name})"
        assert (tool.name, page) in linked, f"docs/nouns/{page}.md does not name {tool.name}: add {link} to 'Its tools'"
        others = sorted(stem for name, stem in linked if name == tool.name and stem != page)
        assert not others, f"docs/nouns/{others[0]}.md links {tool.name}, which is on {page}.md: remove the link"


def test_the_index_has_every_noun_and_each_page_leads_to_neighbours() -> None:
    assert {target for target, _ in links_of(INDEX)} >= set(NOUN_PAGES)
    for page in NOUN_PAGES:
        assert {target for target, _ in links_of(page)} & (set(NOUN_PAGES) - {page})


def refusal_of(words: Sequence[str]) -> str | None:
    """What is wrong with the words after `crewhall`, by the command line's own reading of them."""
    flags, rest = split_flags(list(words))
    if not rest or rest[0] in {*BRIDGES, *OWN_COMMANDS}:
        return None if flags or rest else "says nothing"
    tool = COMMANDS.get(" ".join(rest[:2]))
    if tool is None:
        return f"{' '.join(rest[:2])} is no command"
    try:
        given = set(arguments_of(tool, ["{}" if word.startswith("@") else word for word in rest[2:]]))
    except InvalidInput as error:
        return error.message
    schema = tool["input_schema"]
    if unknown := given - set(schema["properties"]):
        return f"{unknown} is no argument of {' '.join(rest[:2])}"
    missing = set(schema.get("required", [])) - given
    return f"{' '.join(rest[:2])} needs {missing}" if missing else None


@each_page
def test_every_command_on_a_page_is_there_with_its_flags(page: Path) -> None:
    for block in blocks_of(page.read_text(), is_ours=lambda kind: kind in ("", "sh") or kind.startswith("sh ")):
        for words in commands_of(block.script):
            assert refusal_of(words) is None, f"line {block.line}: {' '.join(words)}"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("crewhall tasks list", "tasks list is no command"),
        ("WF=$(crewhall workflow lost | awk 1)", "workflow lost is no command"),
        ("crewhall task list $WF --stats x", "{'stats'} is no argument of task list"),
        ("A=1 crewhall task list", "task list needs {'workflow_id'}"),
        ("crewhall workflow set-plan $WF '{\n\"a\": 1}' --pan x", "{'pan'} is no argument of workflow set-plan"),
        ("crewhall task list \\\n  --limt 3 $WF", "unknown option '--limt', did you mean '--limit'?"),
        ("crewhall --json task list $WF --status pending,blocked | head # --nope", None),
        ("crewhall backup FILE", None),
    ],
)
def test_a_command_that_is_not_there_is_noticed(script: str, problem: str | None) -> None:
    assert [refusal_of(words) for words in commands_of(script)] == [problem]


@pytest.mark.slow
@each_noun
def test_what_a_page_shows_really_happens(page: Path, tmp_path: Path) -> None:
    blocks = blocks_of(page.read_text())
    assert any(block.text for block in blocks)
    shop = tmp_path / "shop"
    _make_shop(shop)
    with FakeGitHub(tokens={"ghp_kims": "kim"}) as host:
        host.add_repository("kim", "shop", {name: text.encode() for name, text in FILES.items()})
        settings: dict[str, Any] = {"pulls__github_url": host.url, "pulls__github_token": "ghp_kims"}
        settings["crew__runtimes"] = {"custom": {"command": ["sh", "-c", "cat {prompt_file}; exec sleep 600"]}}
        with hub_at(tmp_path / "hall", **settings, judge__command=write_fake_claude(tmp_path / "claude")):
            run(blocks, shop, tmp_path / "hall")
    for block in blocks:
        assert block.text is None or shows(block.text, block.printed), _difference(page, block)
    assert git(shop, "status", "--short") == "", "a page leaves no files behind in the repository"


@contextmanager
def hub_at(home: Path, **settings: Any) -> Iterator[None]:
    """A hub on a real port, found as any other is; in this process, since one of its own takes seconds to start."""
    hub = Hub(settings_for(str(home / "hall.db"), home, **settings), registry())
    with closing(hub):
        live = Live(hub)
        address_file = AddressFile(hub.settings)
        address_file.write(live.url)
        try:
            yield
        finally:
            address_file.remove()
            live.stop()
            tmux = tmux_of(hub.settings)
            for session in tmux.panes() if shutil.which("tmux") else ():
                tmux.kill(session)


def _make_shop(root: Path) -> None:
    """The repository in which a reader of the pages is."""
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for name, text in FILES.items():
        (root / name).write_text(text)
    commit(root, "first")


def _difference(page: Path, block: Block) -> str:
    return f"{page.name}, line {block.line}, says\n{block.text}\nand this was printed\n{block.printed}"


@each_noun
def test_a_page_is_short_and_says_what_it_must(page: Path) -> None:
    text = page.read_text()
    parts = ("For a person", "For an agent", "What it promises", "What it does not do", "Its tools")
    assert re.findall(r"^## (.+)$", FENCED.sub("", text), re.MULTILINE) == list(parts)
    assert text.count("\n") <= 105 and max(map(len, text.splitlines())) <= 120


# The runner itself


@pytest.mark.parametrize(
    ("text", "printed", "is_shown"),
    [
        ("a  b\n", "a b\n", True),
        ("a", "a\nb", False),
        ("id tk_…", "id   tk_123", True),
        ("id tk_…", "id tk_1\n2", False),
        ("…\nb", "x\ny\nb", True),
        ("a\n…\nb", "a\nb", True),
        ("…\nb", "xb", False),
        ("a.c", "abc", False),
    ],
)
def test_dots_stand_for_what_differs_and_for_nothing_else(text: str, printed: str, is_shown: bool) -> None:
    assert shows(text, printed) is is_shown


def _run(tmp_path: Path, *scripts: str) -> Iterator[str]:
    page = "\n".join(f"```sh\n{script}\n```\n" for script in scripts)
    return (block.printed for block in run(blocks_of(page), tmp_path, tmp_path / "hall"))


def test_blocks_are_one_session_and_each_knows_what_it_printed(tmp_path: Path) -> None:
    assert list(_run(tmp_path, "A=1; echo one; echo two >&2", "(exit 3)   # exit code 3\necho $A")) == [
        "one\ntwo\n",
        "1\n",
    ]


@pytest.mark.parametrize("script", ["false\ntrue", "false | true", "true   # exit code 3", "(exit 2)   # exit code 3"])
def test_a_block_that_ends_otherwise_is_noticed(tmp_path: Path, script: str) -> None:
    with pytest.raises(AssertionError, match="line 5 ended with"):
        _run(tmp_path, "echo fine", script)


def test_a_text_belongs_to_the_block_right_before_it() -> None:
    page = "```sh\na\n```\n\n```text\nA\n```\n\nand\n\n```sh\nb\n```\n\nso\n\n```text\nB\n```\n"
    assert blocks_of(page) == [Block(1, "a\n", "A\n"), Block(11, "b\n")]
