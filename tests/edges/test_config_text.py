"""Settings files edited as text: what is said changes as meant, and nothing else in the file does."""

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.errors import InvalidInput
from crewhall.outside.clients import jsonc, toml
from crewhall.outside.clients.jsonc_read import COMMA, COMMENT, EXTRAS, MARK, TOKEN, parse

AT = ("mcpServers", "crewhall")
ENTRY = {"command": "/bin/crewhall", "args": ["mcp"]}


def is_within(part: str, whole: str) -> bool:
    """Whether all letters of a text are in another, in their order: then nothing was taken away."""
    letters = iter(whole)
    return all(letter in letters for letter in part)


def read(text: str) -> Any:
    return parse(text).data


def comments(text: str) -> list[str]:
    return [found[0] for found in TOKEN.finditer(text.lstrip("\ufeff")) if found[0][:2] in ("//", "/*")]


# JSON with comments


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '{\n  "s": {\n    "k": 1\n  }\n}\n'),
        ("// mine\n", '// mine\n{\n  "s": {\n    "k": 1\n  }\n}\n'),
        ("\ufeff", '\ufeff{\n  "s": {\n    "k": 1\n  }\n}\n'),
        ("{}", '{\n  "s": {\n    "k": 1\n  }\n}'),
        ('{"a":1}\n', '{"a":1, "s": {"k": 1}}\n'),
        ('{"s": {}}', '{"s": {"k": 1}}'),
        ('{ "s": { "a": [1,2,], } }', '{ "s": { "a": [1,2,], "k": 1, } }'),
        ('{\n\t"s": {}\n}\n', '{\n\t"s": {\n\t\t"k": 1\n\t}\n}\n'),
        ('{\n    "s": {\n    }\n}', '{\n    "s": {\n        "k": 1\n    }\n}'),
        ('{\r\n "s": {\r\n  "a": 1\r\n }\r\n}\r\n', '{\r\n "s": {\r\n  "a": 1,\r\n  "k": 1\r\n }\r\n}\r\n'),
        ('{\n "s": {\n  "a": 1 // x\n  /* y */  \n }\n}', '{\n "s": {\n  "a": 1, // x\n  /* y */  \n  "k": 1\n }\n}'),
        ('{\n "s": {\n  "a": 1, // one\n },\n}', '{\n "s": {\n  "a": 1, // one\n  "k": 1,\n },\n}'),
        ('{\n "s": { // none yet\n }\n}', '{\n "s": { // none yet\n  "k": 1\n }\n}'),
        ('{\n "s": {"a": 1}\n}', '{\n "s": {"a": 1, "k": 1}\n}'),
        ('{\n "s": {\n  "a": 1}}', '{\n "s": {\n  "a": 1,\n  "k": 1\n }}'),
    ],
)  # fmt: skip
def test_a_new_member_stands_as_the_file_has_its_own(text: str, expected: str) -> None:
    assert jsonc.put(text, ("s", "k"), 1) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"k": 1}', "{}"),
        ('{ "k": 1, "b": 2 }', '{ "b": 2 }'),
        ('{"a": 1, "k": 2}', '{"a": 1}'),
        ('{"a": 1, "k": 2,}', '{"a": 1,}'),
        ('{\n  "k": {\n    "x": 1\n  },\n  "b": 2\n}\n', '{\n  "b": 2\n}\n'),
        ('{\n  "a": 1, // one\n  "k": 2\n}\n', '{\n  "a": 1 // one\n}\n'),
        ('{\n  "a": 1,\n  "k": 2, // ours\n  "b": 3\n}\n', '{\n  "a": 1,\n  // ours\n  "b": 3\n}\n'),
        ('{\n  "k": 1 /* x */,\n  "b": 3\n}\n', '{\n  /* x */\n  "b": 3\n}\n'),
        ('{"k": 1, "b": 2, "k": 3}', '{"b": 2}'),
        ('{\r\n  "k": 1\r\n}\r\n', "{}\r\n"),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_a_member_goes_with_its_comma_and_its_line(text: str, expected: str) -> None:
    assert jsonc.drop(text, ("k",)) == expected


def test_an_entry_is_changed_where_it_differs_and_nowhere_else() -> None:
    text = '{\n  "k": { // ours\n    "a": 1, // too\n    "b": [1, 2], "c": {"d": "x"} /* too */\n  }\n}\n'
    changed = jsonc.put(text, ("k",), {"a": 1, "c": {"d": "y"}, "e": True})
    assert changed == '{\n  "k": { // ours\n    "a": 1, // too\n    "c": {"d": "y"}, /* too */\n    "e": true\n  }\n}\n'
    assert jsonc.put(changed, ("k",), {"c": {"d": "y"}, "e": True, "a": 1}) == changed
    assert jsonc.put('{"k": 1}', ("k",), True) == '{"k": true}', "one is not true"


def test_of_two_with_one_name_the_later_counts_as_it_does_for_the_client() -> None:
    text = '{"k": 1, "k": 2}'
    assert json.loads(jsonc.put(text, ("k",), 3)) == {"k": 3}


@pytest.mark.parametrize(
    ("text", "line", "column", "wrong"),
    [
        ("{", 1, 2, "a name in double quotes or } should stand here, not the end of the file"),
        ('{"a" 1}', 1, 6, "a colon should stand here, not 1"),
        ('{\n  "a": 1\n  "b": "secret"\n}', 3, 3, "a comma or } should stand here, not a text"),
        ('{"a": [1 2]}', 1, 10, "a comma or ] should stand here, not 2"),
        ('{"a": NaN}', 1, 7, "a value should stand here, not NaN"),
        ('{"a": 01}', 1, 7, "a value should stand here, not 01"),
        ('{"a": 1} x', 1, 10, "the end of the file should stand here, not x"),
        ('{"a":\n"x}', 2, 1, "this text has no end"),
        ("{'a': 1}", 1, 2, '"\'" has no place in JSON'),
        ("{ /* }", 1, 3, "this comment has no end"),
        ("[]", 1, 1, "an object should stand here"),
        ('{\n "s": []}', 2, 7, "an object should stand here, to hold 'k'"),
        ('{"a": ' + "[" * 5000, 1, None, "this is nested too deeply"),
    ],
)
def test_a_file_that_is_broken_is_refused_where_it_is(text: str, line: int, column: int | None, wrong: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        jsonc.put(text, ("s", "k"), 1)
    assert refused.value.message.endswith(wrong) and refused.value.fields["line"] == line
    assert column in (None, refused.value.fields["column"])
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    ("extra", "text", "line", "column"),
    [
        (MARK, '\ufeff{"a": 1}', 1, 1),
        (COMMENT, '{"a": 1,\n "b": {"c": [ // x\n]}}', 2, 15),
        (COMMENT, '{"a": 1} /* x */', 1, 10),
        (COMMA, '{"a": [1, 2,\n]}', 1, 12),
        (COMMA, '{"a": {"b": 1, }}', 1, 14),
        (COMMA, '{"a": 1,\n}', 1, 8),
    ],
)
def test_what_is_no_json_is_read_for_those_clients_that_do(extra: str, text: str, line: int, column: int) -> None:
    assert "a" in parse(text, extras=(extra,)).data
    with pytest.raises(InvalidInput, match=f"here is {extra}, which this client does not read") as refused:
        parse(text, extras=tuple(one for one in EXTRAS if one != extra))
    assert (refused.value.fields["line"], refused.value.fields["column"]) == (line, column)


def test_only_what_is_on_the_way_is_taken_apart() -> None:
    """Else a file of megabytes, as Claude Code's grows to be, takes seconds."""
    whole = parse('{"projects": {"p": {}}, "mcpServers": {"a": {}, "crewhall": {}}}', AT)
    assert whole.members is not None
    projects, servers = (member.value for member in whole.members)
    assert projects.members is None and servers.members is not None
    assert [one.value.members for one in servers.members] == [None, []]


gaps = st.sampled_from(["", "", " ", "\n", "\n    ", "\r\n\t", '// c, "}\n', "/* { */", " /**/\n", "\t// d\r\n  "])
keys = st.sampled_from(["mcpServers", "crewhall", "a", "b", "c\\u0022\\n"])
plain = st.sampled_from(["1", "-0.5e3", "true", "null", '""', '"// no, \\"}"', '"ä€🜁"', "[]", "{}"])


def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(items(inner).map(lambda text: f"[{text}]"), objects(inner))


def items(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.tuples(gaps, inner, gaps).map("".join)
    return st.tuples(st.lists(one, max_size=3), gaps, st.booleans()).map(_joined)


def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(keys.map(lambda key: f'"{key}"'), gaps, st.just(":"), gaps, inner).map("".join)
    return items(member).map(lambda text: f"{{{text}}}")


def _joined(parts: tuple[list[str], str, bool]) -> str:
    texts, gap, has_comma = parts
    return ",".join(texts) + ("," if has_comma and texts else "") + gap


values = st.recursive(plain, containers, max_leaves=6)
documents = st.tuples(st.sampled_from(["", "\ufeff"]), gaps, objects(values), gaps).map("".join)


@settings(max_examples=40, deadline=None)
@given(documents)
def test_a_new_entry_takes_nothing_away_whatever_the_file_holds(text: str) -> None:
    before = read(text)
    try:
        changed = jsonc.put(text, AT, ENTRY)
    except InvalidInput:
        assert not isinstance(before.get("mcpServers", {}), dict)
        return
    servers = before.get("mcpServers", {})
    assert read(changed) == {**before, "mcpServers": {**servers, "crewhall": ENTRY}}
    assert jsonc.put(changed, AT, ENTRY) == changed
    if "crewhall" not in servers:
        assert is_within(text, changed) and comments(text) == comments(changed)


@settings(max_examples=40, deadline=None)
@given(documents)
def test_an_entry_taken_out_leaves_all_else(text: str) -> None:
    before = read(text)
    servers = before.get("mcpServers", {})
    if not isinstance(servers, dict):
        return
    changed = jsonc.drop(text, AT)
    assert "crewhall" not in read(changed).get("mcpServers", {})
    if servers:
        rest = {key: value for key, value in servers.items() if key != "crewhall"}
        assert read(changed) == {**before, "mcpServers": rest}
    if "crewhall" not in servers:
        assert changed == text
    assert comments(changed) == comments(without_entries(text))


def without_entries(text: str) -> str:
    """The text with the entries themselves cut out, and what is left of it no matter."""
    servers = [one.value for one in parse(text, AT[:1]).members or [] if one.key == "mcpServers"]
    entries = [one for one in (servers[-1].members or [] if servers else []) if one.key == "crewhall"]
    for one in reversed(entries):
        text = text[: one.start] + text[one.value.end :]
    return text


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet='{}[]":,/*\\\n\ufeff ab1-.', max_size=12))
def test_any_text_is_read_or_refused_and_plain_json_as_python_reads_it(text: str) -> None:
    try:
        found = parse(text).data
    except InvalidInput:
        found = None
    try:
        expected = json.loads(text)
    except ValueError:
        return
    assert found == (expected if isinstance(expected, dict) else None)


# TOML


TABLE = ("mcp_servers", "crewhall")
COMMAND = ENTRY["command"]
BLOCK = f'[mcp_servers.crewhall]\ncommand = "{COMMAND}"\nargs = ["mcp"]\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", BLOCK),
        ('model = "x" # mine', f'model = "x" # mine\n\n{BLOCK}'),
        ("x=1\r\n", "x=1\r\n\r\n" + BLOCK.replace("\n", "\r\n")),
        ("\ufeffx=1\n", f"\ufeffx=1\n\n{BLOCK}"),
        ('[mcp_servers.crewhall]\n[mcp_servers.crewhall.env]\nA = "1"\n[z]\n', f"{BLOCK}[z]\n"),
        ('[mcp_servers.crewhall.env]\nA = "1"\n[z]\n', f"{BLOCK}[z]\n"),
        ("[mcp_servers.crewhall]", BLOCK),
        ("[mcp_servers.crewhall]\r\n", BLOCK.replace("\n", "\r\n")),
        ("[[mcp_servers.crewhall]]\nx = 1\n[z]\n", f"[z]\n\n{BLOCK}"),
        ("[[mcp_servers.crewhall.args]]\nx = 1\n", BLOCK),
        ('mcp_servers = {crewhall = {command = "y"}}\nx = 1\n', f"x = 1\n\n{BLOCK}"),
        (
            '[mcp_servers]\n  crewhall.command = "y" # old\nb = {url = "u"}\n',
            f'[mcp_servers]\n  crewhall.command = "{COMMAND}" # old\n  crewhall.args = ["mcp"]\nb = {{url = "u"}}\n',
        ),
        (
            'mcp_servers.crewhall = {command = "y"}  # old\nx = 1\n',
            f'mcp_servers.crewhall = {{ command = "{COMMAND}", args = ["mcp"] }}  # old\nx = 1\n',
        ),
    ],
)
def test_an_entry_is_changed_in_the_way_it_is_written(text: str, expected: str) -> None:
    assert toml.put(text, TABLE, ENTRY) == expected


def test_a_list_takes_the_place_of_tables() -> None:
    text = "[[mcp_servers.crewhall.args]]\nx = 1\n"
    assert toml.read(toml.put(text, TABLE, dict(reversed(ENTRY.items())))) == {"mcp_servers": {"crewhall": ENTRY}}


def test_a_table_is_changed_pair_by_pair_and_all_comments_stay() -> None:
    text = """\
# of the table
[mcp_servers.crewhall] # header
command = "y" # why
# between
"url" = 'u#=' # gone, but not this
args = [
    "mcp", # first
]

[mcp_servers.crewhall.env] # variables
A = "1" # one
B = "2"
# of z
[z]
"""
    entry = {"command": "x", "args": ["mcp"], "env": {"A": "1", "C": "3"}, "timeout": 5}
    changed = text.replace('"y"', '"x"').replace("\"url\" = 'u#=' # gone", "# gone").replace('B = "2"', 'C = "3"')
    changed = changed.replace("first\n]\n", "first\n]\ntimeout = 5\n")
    assert toml.put(text, TABLE, entry) == changed and toml.put(changed, TABLE, entry) == changed
    assert toml.drop(changed, TABLE) == "# of the table\n# of z\n[z]\n"


def test_what_only_looks_like_a_table_is_none() -> None:
    text = 'x = """\n[mcp_servers.crewhall]\n"""\ny = [\n  ["mcp_servers"], # ]\n]\nz = \'[mcp_servers.crewhall]\'\n'
    changed = toml.put(text, TABLE, ENTRY)
    assert changed == f"{text}\n{BLOCK}" and toml.drop(changed, TABLE) == text


def test_values_of_all_kinds_are_written_as_toml_reads_them() -> None:
    entry = {"a": 'q"\\\n\x7f€', "b": [1, True, 1.5], "c d": {"e.f": "g"}, "h": tomllib.loads("d = 2026-11-16")["d"]}
    assert toml.read(toml.render_table(("x", "y z"), entry)) == {"x": {"y z": entry}}


@pytest.mark.parametrize(
    ("text", "line", "column", "wrong"),
    [
        ("x = 1\ny", 2, 2, "Expected '=' after a key in a key/value pair"),
        ('x = "a', 1, 7, "Unterminated string"),
        ("x = 1\nx = 2\n", 2, 6, "Cannot overwrite a value"),
        ("\ufeffx =", 1, 4, "Invalid value"),
        ('a = 1\nmcp_servers = {b = {command = "y"}}\n', 2, 1, "cannot be changed in the way that this is written"),
        ("mcp_servers = {crewhall = {}, b = {}}\n", 1, 1, "cannot be changed in the way that this is written"),
        ("mcp_servers = 1\n", 1, 1, "cannot be changed in the way that this is written"),
        ("x = " + "[" * 3000, 1, 1, "this is nested too deeply"),
    ],
)
def test_toml_that_is_broken_is_refused_where_it_is(text: str, line: int, column: int, wrong: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        toml.put(text, TABLE, ENTRY)
    assert refused.value.message.endswith(wrong), refused.value.message
    assert (refused.value.fields["line"], refused.value.fields["column"]) == (line, column)


statements = st.sampled_from(
    [
        "# a comment [x]\n",
        "\n",
        "  # indented\n",
        "k1 = 1 # one\n",
        'k2 = """\n[mcp_servers.crewhall]\n"""\n',
        "k3 = [ # [\n  1,\n  ['a'],\n]\n",
        "k4 = '''#\"\"\"'''\n",
        'mcp_servers.d.command = "dotted"\n',
        "[t1]\nx = {a = 1, b = [2]}\n",
        "[t1.sub]\n",
        "[[list]]\nx = 1\n",
        "[mcp_servers]\n",
        '[mcp_servers.a]\ncommand = "a" # of a\n',
        '[mcp_servers.a.env]\nX = "[y]"\n',
        '[ mcp_servers . "b c" ]\nurl = "u"\r\n',
        '[mcp_servers.crewhall] # ours\n# command\ncommand = "old" # old\n',
        '[mcp_servers.crewhall.env]\nA = "1"\n',
    ]
)


def toml_comments(text: str) -> list[str]:
    return [part.rstrip() for part in toml.PART.findall(text) if part.startswith("#")]


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


@settings(max_examples=40, deadline=None)
@given(st.lists(statements, max_size=7).map("".join).filter(_is_toml))
def test_a_table_is_put_in_and_out_and_all_else_stays(text: str) -> None:
    before = tomllib.loads(text)
    servers = before.get("mcp_servers", {})
    changed = toml.put(text, TABLE, ENTRY)
    assert tomllib.loads(changed) == {**before, "mcp_servers": {**servers, "crewhall": ENTRY}}
    assert toml.put(changed, TABLE, ENTRY) == changed
    if "k3" not in repr(servers.get("crewhall")):  # a list that goes takes its comments along
        assert toml_comments(changed) == toml_comments(text)
    without = toml.drop(changed, TABLE)
    assert "crewhall" not in tomllib.loads(without).get("mcp_servers", {})
    if "crewhall" not in servers:
        assert changed.startswith(text) and without == text
