"""Every tool, prompt, setting and error is declared fit for every client, documented, and as the snapshots have it."""

import ast
import json
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from mcp.shared.uri_template import UriTemplate

from crewhall.app import Call
from crewhall.config import Setting, seconds
from crewhall.declaration import KEY, Declaration
from crewhall.edges.http.rest import describe, openapi
from crewhall.edges.mcp.resources import resources
from crewhall.edges.mcp.server import as_mcp
from crewhall.errors import every_failure
from crewhall.families.all import registry
from crewhall.families.work.model import AgentId, Done
from crewhall.store.sql import Queries
from crewhall.tool import ANYONE, DECLARING, PROFILES, Family, Prompt, Registry, Tool, is_declaring
from tools.docs import default_text, pages

ROOT = Path(__file__).parent.parent
TOOLS = registry().tools
SEEDS = {"review": "000", "work": "003", "project": "001", "pulls": "002", "judge": "004"}
# Arguments of ours in the seeds' tools; every KEY is one, too.
FENCED = (
    *("task_release", "task_set_plan", "task_update_status", "task_replan", "checkpoint_add"),
    "task_assign_workspace",
)
ASKING = ("claude_judge_review", "claude_validate_proposal", "claude_security_audit", "claude_resolve_conflict")
ADDED = {f"{tool}.claim_epoch" for tool in FENCED} | {f"{tool}.fresh" for tool in ASKING}
ADDED |= {f"{tool}.timeout_seconds" for tool in ASKING[1:]} | {
    *("agent_list.limit", "agent_list.offset", "task_get_available.offset"),
    *("workflow_next_tasks.limit", "workflow_next_tasks.cursor", "workflow_progress.cursor"),
    "task_check_dependencies.cursor",
    *("task_get_available.repository_path", "task_load_context.agent_id"),
    *("workspace_list.limit", "workspace_list.offset", "template_list.limit", "template_list.offset"),
    "template_apply.auto_create_workspaces",
    *("message_send.expires_in", "message_broadcast.expires_in", "message_list.cursor"),
    *("read_file.offset", "read_file.limit", "get_project_context.max_tokens", "get_project_context.sources"),
    *("list_directory.include_ignored", "list_directory.limit", "list_directory.offset"),
    *("workflow_list.halted_by", "workflow_list.include_archived", "agent_list.include_archived"),
    *("list_prs.limit", "list_prs.offset"),
    *("workflow_create.reviewer", "request_review.items", "send_feedback.resolved_items"),
    "create_pull_request.resolved_items",
    *("request_review.instance_id", "send_feedback.instance_id", "create_pull_request.instance_id"),
    *(f"create_issues.{name}" for name in ("issues", "plan_file", "repo_owner", "repo_name", "instance_id")),
}
DECLARES = re.compile(r"^@\w+\.(tool|chore|prompt|source)\(", re.MULTILINE)
WHOLE = (".result", ".defaults", ".enums")  # what a seed says of a tool as a whole
PROMPTS = registry().prompts
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
each_prompt = pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)


def modules_that_declare() -> dict[str, Path]:
    """The modules of families in which something is declared, by name."""
    top = ROOT / "src"
    found = (path for path in (top / "crewhall/families").rglob("*.py") if DECLARES.search(path.read_text()))
    return {".".join(path.relative_to(top).with_suffix("").parts): path for path in found}


def test_what_a_family_declares_is_loaded() -> None:
    for name, path in modules_that_declare().items():
        assert is_declaring(name), (
            f"{path.relative_to(ROOT)} declares something, and no hub loads it: "
            f"move that to a module whose name begins with {', '.join(DECLARING)}"
        )
        assert name in sys.modules, (
            f"no hub loads {path.relative_to(ROOT)}: each folder above it needs an __init__.py, "
            "and its family a line in families/all.py"
        )


@each_tool
def test_a_tool_tells_what_it_does(tool: Tool) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]{2,50}", tool.name)
    assert tool.summary.endswith(".") and len(tool.description) <= 1024
    assert all(tool.command) and (tool.profiles or tool.who == ("operator",) or tool.family != "work")


@each_tool
def test_schemas_are_plain_enough_for_every_client(tool: Tool) -> None:
    for schema in (tool.input_schema, tool.output_schema):
        jsonschema_rs.meta.validate(schema)
        assert schema["type"] == "object" and schema["additionalProperties"] is False
        assert not {"anyOf", "oneOf", "allOf", "$ref", "$defs"} & set(schema), "some clients refuse these at the top"
        assert '"title": "' not in json.dumps(schema), "an argument may have this name, a schema has none"
        assert "$ref" not in json.dumps(schema)


def test_no_two_tools_share_a_command_or_a_name() -> None:
    assert len({tool.command for tool in TOOLS}) == len({tool.name for tool in TOOLS}) == len(TOOLS)
    family = Family("twice", "", "crewhall.families.work")
    family.tools += [TOOLS[0], TOOLS[0]]
    with pytest.raises(ValueError, match="two tools have the same name"):
        Registry([family])
    family = Family("twice", "", "crewhall.families.work", prompts=[PROMPTS[0], PROMPTS[0]])
    with pytest.raises(ValueError, match="two prompts have the same name"):
        Registry([family])


def test_another_name_of_a_tool_is_no_tools_own_and_is_told() -> None:
    aliases = [alias for tool in TOOLS for alias in tool.aliases]
    assert "claude_review" in aliases and len(set(aliases)) == len(aliases)
    assert not set(aliases) & {tool.name for tool in TOOLS}
    assert all(f"Also called `{alias}`." in (ROOT / "docs/tools.md").read_text() for alias in aliases)


def test_an_address_leads_to_one_tool() -> None:
    declared = [uri for uri, _ in resources(TOOLS)]
    assert declared
    for uri in declared:
        example = UriTemplate.parse(uri).expand({"id": "1", "after": "1"})
        assert [other for other in declared if UriTemplate.parse(other).match(example) is not None] == [uri]


@pytest.mark.parametrize(
    ("uri", "changes"),
    [
        ("crewhall://agents/{id}", True),
        ("crewhall://agents/{name}", False),
        ("crewhall://agents/{id}/{call}", False),
        ("crewhall://agents", False),
        ("file:///agents/{id}", False),
    ],
)
def test_an_address_that_does_not_fit_its_tool_cannot_be_declared(uri: str, changes: bool) -> None:
    def handler(call: Call, id: AgentId, more: int = 0) -> Done:
        """Read."""
        return Done(success=True)

    family = Family("wrong", "", "crewhall.families.work")
    family.tool("agent_read", resources=("crewhall://agents/{id}", "crewhall://agents/{id}/{more}"))(handler)
    with pytest.raises(AssertionError):
        family.tool("agent_read", changes=changes, resources=(uri,))(handler)


@each_prompt
def test_a_prompt_tells_what_it_does_and_what_it_takes(prompt: Prompt) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]{2,50}", prompt.name) and prompt.description.endswith(".")
    assert all(one.get("description") for one in prompt.input_schema["properties"].values())


@each_prompt
def test_a_prompt_names_only_calls_that_can_be_made(prompt: Prompt) -> None:
    text = prompt.text(dict.fromkeys(prompt.input_schema.get("required", []), "ada"))
    calls = re.findall(r"(\w+)\(([^)]*)\)", text)
    assert calls
    for name, given in calls:
        assert set(re.findall(r"(\w+)=", given)) <= set(registry().find(name).input_schema["properties"]), name
    known = json.dumps([describe(tool) for tool in TOOLS])
    assert all(f'"{word}"' in known for word in re.findall(r"\b[a-z]+_[a-z_]+\b", text)), "nor other names"


@pytest.mark.parametrize("declared", [*TOOLS, *PROMPTS], ids=lambda declared: declared.name)
def test_what_suggests_names_a_query_that_is_there(declared: Declaration) -> None:
    queries = Queries(family.queries for family in registry().families).statements
    for argument in declared.arguments.model_fields:
        _, query = declared.suggestions(argument)
        assert query is None or {":prefix", ":limit"} <= set(re.findall(r":\w+", queries[query]))


def bytes_read(tools: list[Tool]) -> int:
    """What a model reads of tools: names, descriptions and input schemas, as MCP lists them."""
    listed = [as_mcp(tool) for tool in tools]
    told = [{"name": one.name, "description": one.description, "inputSchema": one.input_schema} for one in listed]
    return len(json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode())


@pytest.mark.parametrize("name", [name for name, profile in PROFILES.items() if profile.most_tools])
def test_a_profile_stays_short(name: str) -> None:
    profile = PROFILES[name]
    tools = registry().visible_tools(ANYONE, (), name)
    removable = ", ".join(tool.name for tool in tools if tool.ours)
    advice = f"take '{name}' out of the profiles of a tool that no seed asks for ({removable})"
    most_tools, most_bytes = profile.most_tools or 0, profile.most_bytes or 0
    assert len(tools) <= most_tools, (
        f"profile '{name}' has {len(tools)} tools and may have {most_tools} (PROFILES in crewhall/tool.py): {advice}"
    )
    assert bytes_read(tools) <= most_bytes, (
        f"a model reads {bytes_read(tools)} bytes of profile '{name}', and may read {most_bytes}: "
        f"shorten descriptions, or {advice}"
    )


@pytest.mark.parametrize(("family", "most_tools", "most_bytes"), [("work", 64, 45_000), ("judge", 7, 4_500)])
def test_a_family_stays_short(family: str, most_tools: int, most_bytes: int) -> None:
    tools = registry().visible_tools(ANYONE, (family,), "all")
    assert len(tools) <= most_tools, (
        f"family '{family}' has {len(tools)} tools, and {most_tools} were enough so far: "
        "extend a tool instead, or raise the number at this test and say why in the commit"
    )
    assert bytes_read(tools) <= most_bytes, (
        f"a model reads {bytes_read(tools)} bytes of family '{family}', and may read {most_bytes}: shorten descriptions"
    )


@each_tool
def test_what_a_model_reads_of_a_schema_says_the_same_without_limits(tool: Tool) -> None:
    limits = r'"(min|max)(Length|Items|imum)": |"additionalProperties": true'
    brief = json.dumps(tool.brief_schema)
    assert set(tool.brief_schema["properties"]) == set(tool.input_schema["properties"])
    assert tool.brief_schema.get("required") == tool.input_schema.get("required")
    assert "maxLength" not in brief and len(brief) <= len(json.dumps(tool.input_schema))
    assert tool.brief_schema["additionalProperties"] is False
    assert re.sub(limits, "", brief).count('"type"') == json.dumps(tool.input_schema).count('"type"')


def test_generated_pages_and_snapshots_are_up_to_date() -> None:
    made = pages(registry())
    stale = [path for path, text in made.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text]
    assert stale == [], "run make docs"
    kept = {f"tests/snapshots/{path.name}" for path in (ROOT / "tests/snapshots").iterdir()}
    assert kept == {path for path in made if path.startswith("tests/snapshots/")}


def test_only_a_time_is_documented_in_seconds() -> None:
    assert default_text(Setting("a.pause", 0.5, "A time.", seconds)) == "0.5s"
    assert default_text(Setting("a.share", 0.5, "A part of the whole.", float)) == "0.5"


def test_openapi_is_valid_and_has_every_tool() -> None:
    description = openapi(registry())
    operations = [one["operationId"] for path in description["paths"].values() for one in path.values()]
    assert {tool.name for tool in TOOLS} <= set(operations) and len(set(operations)) == len(operations)
    assert description["openapi"].startswith("3.1")


def test_every_failure_has_a_sentence_and_a_line_in_the_tree() -> None:
    tree = (ROOT / "src/crewhall/errors.py").read_text().split('"""')[1]
    for failure in every_failure():
        assert failure.__doc__ and 400 <= failure.status < 600 and failure.exit_code > 0
        if failure.__module__ == "crewhall.errors":
            assert re.search(rf"{failure.__name__}\s+{failure.code}\s+{failure.status}\s+{failure.exit_code}\b", tree)


WORDS = ("hall", "hub", "actor", "operator", "agent", "event", "cursor", "profile", "family", "resource", "prompt")


@pytest.mark.parametrize("word", [*WORDS, "pull", "scope", "judge", "verdict", "contract"])
def test_the_glossary_has_the_words_of_the_house(word: str) -> None:
    assert re.search(rf"^\*\*{word}\*\*", (ROOT / "docs/words.md").read_text(), re.MULTILINE)


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = list(project["project"]["dependencies"])
    for group in [*project["dependency-groups"].values(), *project["project"]["optional-dependencies"].values()]:
        wanted += group
    reasons = (ROOT / "docs/why.md").read_text()
    missing = [name for name in (re.split(r"[\[<>=]", one)[0] for one in wanted) if f"`{name}`" not in reasons]
    assert missing == []


def test_the_readme_names_no_command_that_is_not_there() -> None:
    text = (ROOT / "README.md").read_text() + (ROOT / "AGENTS.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)\b", text)) <= targets | {"sure"}
    commands = {" ".join(tool.command) for tool in TOOLS}
    nouns = {tool.command[0] for tool in TOOLS}
    for noun, verb in re.findall(r"crewhall ([a-z]+) ([a-z-]+)", text):
        if noun in nouns:
            assert f"{noun} {verb}" in commands


def test_what_agents_md_quotes_is_in_the_code() -> None:
    """Each block there that begins with a path is a part of that file."""
    text = (ROOT / "AGENTS.md").read_text()
    quotes = re.findall(r"^```\w+\n(?:#|--) (src/\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(quotes) == 3 and len(text.splitlines()) <= 200
    for path, quote in quotes:
        assert quote in (ROOT / path).read_text(), f"AGENTS.md quotes {path}, which has changed: copy its lines again"
    for path in re.findall(r"`((?:src|tests|docs)/[\w/]+\.\w+)`", text):
        assert (ROOT / path).exists(), f"AGENTS.md names {path}, which is not there: correct the path"


# The requirements of the seeds, both ways


@cache
def requirements() -> dict[str, dict[str, Any]]:
    listed: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "tests/requirements.toml").read_text())["requirement"]
    return listed


@cache
def test_names(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


test_names.__test__ = False  # type: ignore[attr-defined]


def test_every_requirement_names_tests_that_exist() -> None:
    for key, requirement in requirements().items():
        assert requirement["what"] and requirement["tests"], key
        for test in requirement["tests"]:
            path, _, name = test.partition("::")
            assert name in test_names(path), f"{key} names {test}, which is not there"


def test_every_argument_of_a_seeds_tool_is_a_requirement_and_back() -> None:
    seeds = {tool: SEEDS[tool.family] for tool in TOOLS if not tool.ours}
    declared = {f"{seed}.{tool.name}" for tool, seed in seeds.items()}
    declared |= {f"{s}.{tool.name}.{name}" for tool, s in seeds.items() for name in tool.input_schema["properties"]}
    declared -= {f"{seed}.{name}" for seed in SEEDS.values() for name in ADDED}
    declared -= {f"{seed}.{tool.name}.{KEY}" for tool, seed in seeds.items()}
    of_tools = {key for key in requirements() if key.split(".")[1] in {tool.name for tool in TOOLS}}
    listed = {key for key in of_tools if not key.endswith(WHOLE)}
    for key in sorted(declared - listed):
        _, name, *argument = key.split(".")
        remedy = f"add '{name}.{argument[0]}' to ADDED here" if argument else f"declare {name} with ours=True"
        raise AssertionError(f"tests/requirements.toml has no '{key}': add it, or if no seed asks for it, {remedy}")
    for key in sorted(listed - declared):
        raise AssertionError(f"tests/requirements.toml has '{key}', which no tool of a seed declares: remove that line")
    told = {key.rpartition(".")[0] for key in of_tools if key.endswith(".result")}
    for key in sorted(told ^ {key for key in declared if key.count(".") == 1}):
        raise AssertionError(f"tests/requirements.toml needs '{key}.result' exactly if a seed asks for the tool")
