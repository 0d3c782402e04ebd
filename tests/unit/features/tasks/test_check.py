"""What a check tells of a task before anything runs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from bubbot.features.tasks.check import check_definition
from bubbot.features.tasks.config import layer_config
from bubbot.features.tasks.definition import TaskDefinition
from bubbot.features.tasks.schema import TaskNode, TaskSchema, parse_schema
from bubbot.ports.channel import Role
from bubbot.toml_tables import Problem

TOOLS = {"web.search": Role.MEMBER, "web.fetch": Role.MEMBER, "config.set": Role.OWNER, "shell.run": Role.ADMIN}
CONFIG = layer_config([("task", {"version": "1.0", "limits": {"items": 3}})])


def define(schema: TaskSchema) -> TaskDefinition:
    return TaskDefinition(name="t", schema=schema, config=CONFIG, harness={})


def check(
    text: str,
    *,
    role: Role = Role.MEMBER,
    harness: list[Problem] | None = None,
) -> list[str]:
    """The problems of a task, warnings with an exclamation mark before them."""
    found = check_definition(
        define(parse_schema(text)),
        tools=TOOLS,
        role=role,
        agents=["lia", "max"],
        harness_problems=harness or [],
    )
    return ["!" * problem.is_warning + str(problem) for problem in found]


def nodes(**lines: str) -> str:
    return "\n".join(f"[nodes.{name}]\n{line}" for name, line in lines.items())


def node(line: str = "", **more: Any) -> list[str]:
    return check(f'[nodes.a]\nprompt = "x"\n{line}', **more)


def test_a_good_task_has_no_problems() -> None:
    text = 'result = "post"\n' + nodes(
        search='prompt = "{limits.items} items"\ntools = ["web.*"]\nagent = "lia"\nmodel = "big"\nartifact = {}',
        ok='after = ["search"]\nconfirm = "Publish {version}?"',
        post='after = ["ok", "search"]\nprompt = "Write."',
    )
    assert check(text) == []


def test_a_loop_is_named_and_told_once() -> None:
    text = nodes(
        a='prompt = "x"\nafter = ["c"]\nartifact = {}',
        b='prompt = "x"\nafter = ["a"]\nartifact = {}',
        c='prompt = "x"\nafter = ["b"]\nartifact = {}',
    )
    (problem,) = check(text)
    loop = problem.partition("loop, ")[2].partition(":")[0].split(" → ")
    assert {*pairwise(loop)} == {("a", "b"), ("b", "c"), ("c", "a")}


def test_a_long_loop_is_shortened() -> None:
    text = nodes(**{f"n{at}": f'prompt = "x"\nafter = ["n{(at - 1) % 100}"]\nartifact = {{}}' for at in range(100)})
    (problem,) = check(text)
    assert "→ … →" in problem
    assert len(problem) < 250


def test_an_unknown_parent_names_the_nearest_node() -> None:
    text = nodes(search='prompt = "x"\nartifact = {}', b='prompt = "x"\nafter = ["serch", "search"]')
    assert check(text) == ["nodes.b.after: 'serch' is not a node; did you mean 'search'?"]


def test_an_unknown_parent_like_no_node_is_told_the_nodes_there_are() -> None:
    assert node('after = ["zzz"]') == ["nodes.a.after: 'zzz' is not a node; there are: a."]


def test_what_waits_for_a_loop_or_an_unknown_node_is_unreachable() -> None:
    text = nodes(
        a='prompt = "x"\nafter = ["a"]\nartifact = {}',
        behind='prompt = "x"\nafter = ["a"]\nartifact = {}',
        further='prompt = "x"\nafter = ["behind"]',
        lost='prompt = "x"\nafter = ["zzz"]\nartifact = {}',
        later='prompt = "x"\nafter = ["lost"]',
    )
    found = [problem for problem in check(text) if "unreachable" in problem]
    assert found == [
        "nodes.behind.after: the node is unreachable: it waits for a, which can never begin.",
        "nodes.further.after: the node is unreachable: it waits for behind, which can never begin.",
        "nodes.later.after: the node is unreachable: it waits for lost, which can never begin.",
    ]


def test_a_node_whose_artifact_others_read_needs_a_contract() -> None:
    text = nodes(a='prompt = "x"', b='prompt = "x"\nafter = ["a"]')
    assert check(text) == [
        "!nodes.a.artifact: missing contract: b will read any text that it writes; add a JSON Schema."
    ]


def test_a_node_whose_artifact_nobody_is_shown_needs_none() -> None:
    assert check(nodes(a='prompt = "x"', b='prompt = "x"\nafter = ["a"]\nshown = ["config"]')) == []


def test_a_gate_makes_no_artifact_and_needs_no_contract() -> None:
    assert check(nodes(a='confirm = "x"', b='prompt = "x"\nafter = ["a"]')) == []


def test_a_parent_that_is_named_twice_is_a_warning() -> None:
    text = nodes(a='prompt = "x"\nartifact = {}', b='prompt = "x"\nafter = ["a", "a"]')
    assert check(text) == ["!nodes.b.after: it names a node twice: remove one of them."]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('tools = ["web.serch"]', "nodes.a.tools: 'web.serch' names no tool; did you mean 'web.search'?"),
        ('tools = ["zzz.*"]', "nodes.a.tools: 'zzz.*' names no tool."),
        ('tools = ["shell.run"]', "nodes.a.tools: a member may not use 'shell.run', which needs the role admin."),
        ('tools = ["config.*"]', "nodes.a.tools: a member may not use 'config.*', which needs the role owner."),
        ('agent = "lja"', "nodes.a.agent: 'lja' is not an agent; did you mean 'lia'?"),
        ('agent = "zzz"', "nodes.a.agent: 'zzz' is not an agent; there are: lia, max."),
    ],
)
def test_names_of_what_is_not_there_or_not_allowed_are_told(line: str, expected: str) -> None:
    assert node(line) == [expected]


def test_tools_are_judged_by_the_role() -> None:
    line = 'tools = ["shell.run", "config.set", "*.run"]'
    assert len(node(line)) == 3
    assert len(node(line, role=Role.ADMIN)) == 1
    assert node(line, role=Role.OWNER) == []


def test_a_pattern_needs_one_tool_that_the_role_may_use() -> None:
    assert node('tools = ["*.s*"]') == []


def test_a_task_for_others_is_told_to_a_person_below_its_role() -> None:
    assert check('role = "admin"\n' + nodes(a='prompt = "x"')) == [
        "role: only admins may run the task, and this is checked for a member."
    ]


@pytest.mark.parametrize(
    "line", ['tools = ["web.search"]', 'agent = "lia"', 'model = "big"', 'strategy = "full"', "artifact = {}"]
)
def test_a_gate_has_nothing_of_a_model(line: str) -> None:
    key = line.partition(" ")[0]
    assert check(nodes(a=f'confirm = "x"\n{line}')) == [
        f"nodes.a.{key}: people answer a gate, so it has no {key}: remove it."
    ]


def test_a_gate_has_no_prompt() -> None:
    definition = define(TaskSchema(nodes={"a": TaskNode(prompt="x", confirm="y")}))
    (problem,) = check_definition(definition, tools={}, role=Role.OWNER, agents=())
    assert problem.where == "nodes.a.prompt"


@pytest.mark.parametrize("line", ['by = "owner"', "hours = 3"])
def test_a_node_with_a_prompt_has_nothing_of_a_gate(line: str) -> None:
    key = line.partition(" ")[0]
    assert node(line) == [f"!nodes.a.{key}: only a gate has it, and this node has a prompt: remove it."]


def test_nodes_that_wait_for_a_gate_of_others_are_named() -> None:
    text = nodes(ok='confirm = "x"\nby = "owner"', post='prompt = "x"\nafter = ["ok"]')
    assert check(text) == [
        "!nodes.ok.by: only an owner can answer, and a member who runs the task cannot: post will wait for an owner."
    ]
    assert check(text, role=Role.OWNER) == []


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("pst", "result: 'pst' is not a node; did you mean 'post'?"),
        ("ok", "result: 'ok' is a gate, which has no artifact: name a node with a prompt."),
    ],
)
def test_a_result_that_no_node_makes_is_told(result: str, expected: str) -> None:
    assert check(f'result = "{result}"\n' + nodes(ok='confirm = "x"', post='prompt = "x"')) == [expected]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("verson", "{verson} names no key of the config; did you mean 'version'?"),
        ("zzz", "{zzz} names no key of the config; for the words {zzz} write {{zzz}}."),
        ("limits", "{limits} stands for a table of the config: name one of its keys."),
    ],
)
def test_a_placeholder_that_the_config_lacks_is_told(key: str, expected: str) -> None:
    assert check(nodes(a=f'prompt = "Use {{{key}}}."')) == [f"nodes.a.prompt: {expected}"]
    assert check(nodes(a=f'confirm = "Use {{{key}}}?"')) == [f"nodes.a.confirm: {expected}"]


@pytest.mark.parametrize("field", ["prompt", "confirm"])
def test_a_text_that_the_config_makes_too_long_is_told(field: str) -> None:
    schema = parse_schema(f'[nodes.a]\n{field} = "{"{k}" * 2_000}"')
    config = layer_config([("task", {"k": "x" * 65_000})])
    definition = TaskDefinition(name="t", schema=schema, config=config, harness={})
    (problem,) = check_definition(definition, tools={}, role=Role.OWNER, agents=())
    assert problem.where == f"nodes.a.{field}"
    assert "with the values of the config it has 130006000 characters" in problem.message


def test_errors_come_before_warnings_and_those_of_the_harness_are_among_them() -> None:
    harness = [
        Problem("scripts/a.feature:3", "it can never fire", is_warning=True),
        Problem("scripts/b.feature:1", "no step"),
    ]
    text = nodes(a='prompt = "{zzz}"', b='prompt = "x"\nafter = ["a"]')
    assert [problem.partition(": ")[0] for problem in check(text, harness=harness)] == [
        "nodes.a.prompt", "scripts/b.feature:1", "!nodes.a.artifact", "!scripts/a.feature:3",
    ]  # fmt: skip
