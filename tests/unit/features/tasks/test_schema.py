"""`task.toml`: what it says, and what is told of what it says wrong."""

from __future__ import annotations

import pytest

from bubbot.features.tasks.schema import MAX_NODES, TaskNode, TaskSchema, parse_schema
from bubbot.features.tasks.sources import DefinitionInvalid

DIGEST = """
title = "Weekly digest"
description = "News of the week."
result = "post"
parallel = 4
tokens = 200000
timeout = "2h"
progress = "none"
role = "admin"

[nodes.search]
title = "Look for news"
prompt = "Look for news."
agent = "lia"
tools = ["web.search", "web.*"]
steps = 12
tokens = 60000
timeout = "10m"
retries = 1
backoff = 60
repairs = 3
shown = ["config", "artifacts"]
view_tokens = 9000
artifact = { type = "object", required = ["items"] }

[nodes.ok]
after = ["search"]
confirm = "Publish version {version}?"
by = "owner"
hours = 1.5

[nodes.post]
after = ["ok"]
prompt = "Write the post."
"""


def refused(text: str) -> list[str]:
    with pytest.raises(DefinitionInvalid) as caught:
        parse_schema(text)
    return [str(problem) for problem in caught.value.problems]


def node_refused(line: str) -> str:
    (problem,) = refused(f'[nodes.a]\nprompt = "Do it."\n{line}')
    return problem


def test_every_key_is_read() -> None:
    search = TaskNode(
        title="Look for news",
        prompt="Look for news.",
        agent="lia",
        tools=("web.search", "web.*"),
        steps=12,
        tokens=60_000,
        timeout=600,
        retries=1,
        backoff=60,
        repairs=3,
        shown=("config", "artifacts"),
        view_tokens=9_000,
        artifact={"type": "object", "required": ["items"]},
    )
    gate = TaskNode(after=("search",), confirm="Publish version {version}?", by="owner", hours=1.5)
    assert parse_schema(DIGEST) == TaskSchema(
        title="Weekly digest",
        description="News of the week.",
        result="post",
        parallel=4,
        tokens=200_000,
        timeout=7200,
        progress="none",
        role="admin",
        nodes={"search": search, "ok": gate, "post": TaskNode(after=("ok",), prompt="Write the post.")},
    )


def test_what_is_left_out_has_its_default() -> None:
    schema = parse_schema('[nodes.a]\nprompt = "Do it."')
    assert schema == TaskSchema(nodes={"a": TaskNode(prompt="Do it.")})
    assert (schema.parallel, schema.tokens, schema.timeout, schema.role) == (3, None, None, "member")
    assert schema.nodes["a"].shown == ("schema", "config", "description", "harness", "artifacts")


def test_a_gate_is_a_node_with_a_question() -> None:
    nodes = parse_schema(DIGEST).nodes
    assert [name for name, node in nodes.items() if node.is_gate] == ["ok"]


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    assert refused(
        'titel = "x"\nparallel = 17\nrole = "admn"\n'
        '[nodes.a]\nafter = "b"\nstpes = 4\nprompt = "x"\n'
        "[nodes.B]\n"
        "[nodes.c]\nprompt = 3\n"
    ) == [
        "titel: unknown key; did you mean 'title'?",
        "parallel: it is 17, and must be a whole number from 1 to 16.",
        "role: it is 'admn', and must be one of member, admin, owner; did you mean 'admin'?",
        "nodes.a.after: it is 'b', and must be a list, in brackets.",
        "nodes.a.stpes: unknown key; did you mean 'steps'?",
        "nodes.B: 'B' is not the name of a node: write 1 to 32 small letters, digits, _ and -, a letter first.",
        "nodes.B: it has neither prompt nor confirm: write exactly one, prompt for a model or confirm for a question to people.",
        "nodes.c.prompt: it is 3, and must be a text in quotes.",
    ]


def test_an_unknown_key_like_no_other_is_told_the_keys_there_are() -> None:
    assert "unknown key; there are: title, after, prompt, confirm" in node_refused("zzzzzz = 1")


def test_a_wrong_item_of_a_list_is_told_with_its_place() -> None:
    problems = refused('[nodes.a]\nprompt = "x"\nafter = ["b", "C", 4]')
    assert [problem.partition(":")[0] for problem in problems] == ["nodes.a.after[1]", "nodes.a.after[2]"]
    assert "the name of a node" in problems[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("steps = true", "nodes.a.steps: it is true, and must be a whole number from 1 to 1000."),
        ("steps = 1.0", "nodes.a.steps: it is 1.0, and must be a whole number from 1 to 1000."),
        ("steps = 1001", "nodes.a.steps: it is 1001, and must be a whole number from 1 to 1000."),
        ("retries = -1", "nodes.a.retries: it is -1, and must be a whole number from 0 to 10."),
        ("hours = 0", "nodes.a.hours: it is 0, and must be a number more than 0 and at most 720."),
        ("hours = nan", "nodes.a.hours: it is NaN, and must be a number more than 0 and at most 720."),
        ('by = "ownr"', "nodes.a.by: it is 'ownr', and must be one of asker, owner; did you mean 'owner'?"),
        ("shown = [3]", "nodes.a.shown[0]: it is 3, and must be one of schema, config, description, harness, artifacts."),
        ('agent = "a b"', "nodes.a.agent: it is 'a b', and must be a name of at most 200 characters without spaces."),
        ('tools = ["a b"]', "nodes.a.tools[0]: it is 'a b', and must be the name of a tool, or a pattern such as web.*."),
        ('artifact = 3', "nodes.a.artifact: a contract is a JSON Schema, which is a table, or the path of a JSON file with one."),
        ('artifact = {type = "objct"}', "nodes.a.artifact: at $.type of the JSON Schema: 'objct' is not valid"),
        ("artifact = {minimum = 2026-01-01}", "nodes.a.artifact: the JSON Schema holds a date, 2026-01-01"),
        ('artifact = "a.json"', "nodes.a.artifact: a.json: there is no folder to read it from"),
        ('title = "' + "x" * 201 + '"', "nodes.a.title: it has 201 characters, and may have 200: shorten it."),
        ("after = [" + '"b",' * 1001 + "]", "nodes.a.after: it has 1001 items, and may have 1000: remove some."),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_what_is_expected(line: str, expected: str) -> None:
    assert node_refused(line).startswith(expected)


@pytest.mark.parametrize(
    ("written", "seconds"), [("90", 90), ('"90m"', 5400), ('"1h 30m"', 5400), ('"45 seconds"', 45)]
)
def test_a_time_limit_is_a_length_or_seconds(written: str, seconds: int) -> None:
    assert parse_schema(f'[nodes.a]\nprompt = "x"\ntimeout = {written}').nodes["a"].timeout == seconds


@pytest.mark.parametrize("written", ['"tomorrow"', '"2 months"', '""', "0", '"2 days"', "1.5"])
def test_a_wrong_time_limit_is_told_both_forms(written: str) -> None:
    problem = node_refused(f"timeout = {written}")
    assert 'must be a number of seconds from 1 to 86400, or a length such as "90m" or "2h"' in problem


@pytest.mark.parametrize(
    "lines",
    ['prompt = "x"\nconfirm = "y"', 'prompt = "x"\nconfirm = " "', "", 'confirm = " "', 'prompt = " "', 'title = "x"'],
)
def test_a_node_has_exactly_one_of_prompt_and_confirm(lines: str) -> None:
    (problem,) = refused(f"[nodes.a]\n{lines}")
    assert "write exactly one" in problem


@pytest.mark.parametrize("text", ["", "nodes = 3", "[nodes]", 'nodes = ["a"]', "nodes.a = 3"])
def test_a_task_has_nodes(text: str) -> None:
    (problem,) = refused(text)
    assert problem.startswith("nodes")


@pytest.mark.parametrize("name", ["a", "a1", "a-b_c", "a" * 32])
def test_a_good_name_of_a_node(name: str) -> None:
    assert name in parse_schema(f'[nodes.{name}]\nprompt = "x"').nodes


@pytest.mark.parametrize("name", ["A", "1a", "_a", "a" * 33, '"a b"', '"a\\n"', '"ä"', '""', '"a.b"'])
def test_a_bad_name_of_a_node(name: str) -> None:
    (problem,) = refused(f'[nodes.{name}]\nprompt = "x"')
    assert "is not the name of a node" in problem
    assert "\n" not in problem


def test_a_thousand_nodes_are_allowed_and_no_more() -> None:
    nodes = [f'[nodes.n{number}]\nprompt = "x"' for number in range(MAX_NODES + 1)]
    assert len(parse_schema("\n".join(nodes[:-1])).nodes) == MAX_NODES
    assert "there are 1001 nodes" in refused("\n".join(nodes))[0]


def test_a_syntax_error_is_told_with_its_line() -> None:
    assert refused('title = "x"\nparallel = = 3') == ["task.toml:2: the file is not TOML: Invalid value."]
    assert refused('title = """x') == ["task.toml:1: the file is not TOML: Unterminated string."]


def test_a_file_that_is_nested_too_deep_is_refused_without_a_crash() -> None:
    (problem,) = refused("a = " + "[" * 5000)
    assert "nested deeper than 64" in problem


def test_a_text_with_many_problems_spells_out_twenty() -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        parse_schema("\n".join(f"key{number} = 1" for number in range(50)))
    assert len(caught.value.problems) == 51
    assert str(caught.value).endswith("Further problems: 31.")


def test_a_contract_in_a_file_takes_the_place_of_its_path() -> None:
    files = {"schemas/a.json": '{"type": "object"}'}
    schema = parse_schema('[nodes.a]\nprompt = "x"\nartifact = "schemas/a.json"', files.__getitem__)
    assert schema.nodes["a"].artifact == {"type": "object"}


def test_a_contract_in_a_file_is_checked_and_its_file_named() -> None:
    text = '[nodes.a]\nprompt = "x"\nartifact = "a.json"'
    with pytest.raises(DefinitionInvalid, match=r"nodes\.a\.artifact \(a\.json\): at \$\.type of the JSON Schema"):
        parse_schema(text, lambda _path: '{"type": 3}')
    with pytest.raises(
        DefinitionInvalid, match=r"nodes\.a\.artifact: a\.json:2: the file is not JSON: Expecting value"
    ):
        parse_schema(text, lambda _path: '{\n"type": }')
