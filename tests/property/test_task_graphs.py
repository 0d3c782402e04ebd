"""Graphs of tasks that chance makes: their order, what can begin, their loops, and their definitions as JSON."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bubbot.features.tasks.check import check_definition
from bubbot.features.tasks.config import ConfigValue
from bubbot.features.tasks.definition import TaskDefinition
from bubbot.features.tasks.graph import SUCCEEDED, TaskGraph
from bubbot.features.tasks.schema import ALL_SHOWN, TaskNode, TaskSchema
from bubbot.ports.channel import Role
from bubbot.tape.entry import encode, freeze

NAMES = [f"n{number}" for number in range(12)]
KEYS = st.text("abc_", min_size=1, max_size=4)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


@st.composite
def graphs(draw: st.DrawFn, *, is_acyclic: bool = False) -> TaskSchema:
    """Nodes in any order, each after any others, of which some may be unknown; acyclic ones only after known earlier ones."""
    names = draw(st.permutations(NAMES[: draw(st.integers(1, len(NAMES)))]))
    after = {
        name: draw(st.lists(st.sampled_from(names[:place] if is_acyclic else [*names, "gone"]), max_size=3))
        if place or not is_acyclic
        else []
        for place, name in enumerate(names)
    }
    order = draw(st.permutations(names))
    return TaskSchema(nodes={name: TaskNode(prompt="x", after=tuple(after[name])) for name in order})


def has_cycle(schema: TaskSchema) -> bool:
    """Whether a node waits for itself, by the definition: some way along dependencies leads back."""
    reached = {name: {parent for parent in node.after if parent in schema.nodes} for name, node in schema.nodes.items()}
    for _ in schema.nodes:
        reached = {name: ends.union(*(reached[end] for end in ends)) for name, ends in reached.items()}
    return any(name in ends for name, ends in reached.items())


@given(graphs(is_acyclic=True))
def test_the_order_has_every_node_after_its_parents(schema: TaskSchema) -> None:
    order = TaskGraph(schema).list_order()
    assert sorted(order) == sorted(schema.nodes)
    place = {name: at for at, name in enumerate(order)}
    assert all(place[parent] < place[name] for name, node in schema.nodes.items() for parent in node.after)


@given(graphs(), st.data())
def test_what_is_ready_has_only_parents_that_succeeded(schema: TaskSchema, data: st.DataObject) -> None:
    states = data.draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([SUCCEEDED, "running", "failed"])))
    ready = TaskGraph(schema).ready(states)
    expected = [
        name
        for name, node in schema.nodes.items()
        if name not in states and {states.get(parent) for parent in node.after} <= {SUCCEEDED}
    ]
    assert ready == expected


@given(graphs(), st.data())
def test_a_run_goes_on_until_all_that_can_begin_has_succeeded(schema: TaskSchema, data: st.DataObject) -> None:
    graph = TaskGraph(schema)
    states: dict[str, str] = {}
    while ready := graph.ready(states):
        states[data.draw(st.sampled_from(ready))] = SUCCEEDED
    assert {*states} == {*graph.list_order()}


@given(graphs())
def test_every_cycle_is_reported_and_nothing_else(schema: TaskSchema) -> None:
    cycle = TaskGraph(schema).find_cycle()
    assert bool(cycle) == has_cycle(schema)
    assert all(before in schema.nodes[name].after for before, name in pairwise(cycle))
    definition = TaskDefinition(name="t", schema=schema, config={}, harness={})
    problems = check_definition(definition, tools={}, role=Role.OWNER, agents=())
    assert any("in a loop" in problem.message for problem in problems) == bool(cycle)
    stuck = {name for name in schema.nodes if name not in TaskGraph(schema).list_order()}
    told = {problem.where.split(".")[1] for problem in problems if not problem.is_warning}
    assert told | {*cycle} == stuck


@given(graphs())
def test_descendants_are_the_nodes_that_reach_it(schema: TaskSchema) -> None:
    graph = TaskGraph(schema)
    for name in schema.nodes:
        below = graph.descendants(name)
        assert all(child in below for node in (name, *below) for child in graph.children[node])
        assert all(below & {*graph.parents[child]} or name in graph.parents[child] for child in below)


@st.composite
def definitions(draw: st.DrawFn) -> TaskDefinition:
    schema = draw(graphs())
    nodes = {
        name: TaskNode(
            prompt=draw(TEXTS),
            after=node.after,
            title=draw(TEXTS),
            steps=draw(st.integers(1, 1000)),
            hours=draw(st.floats(0.1, 720)),
            shown=tuple(draw(st.lists(st.sampled_from(ALL_SHOWN), unique=True))),
            artifact=draw(st.none() | st.dictionaries(KEYS, VALUES, max_size=3)),
        )
        for name, node in schema.nodes.items()
    }
    values = st.builds(ConfigValue, VALUES, st.sampled_from(["product", "home", "task", "run"]))
    return TaskDefinition(
        name="t",
        schema=TaskSchema(nodes=nodes, title=draw(TEXTS), tokens=draw(st.none() | st.integers(1, 10**8))),
        config=draw(st.dictionaries(KEYS, values, max_size=4)),
        harness=draw(st.dictionaries(KEYS, TEXTS, max_size=3)),
    )


@given(definitions())
def test_a_definition_comes_back_equal_from_a_tape(definition: TaskDefinition) -> None:
    text = encode(definition.to_json())
    back = TaskDefinition.of_json(freeze(json.loads(text)))
    assert TaskDefinition.of_text(definition.to_text()) == back
    assert back == definition
    assert (back.digest, encode(back.to_json())) == (definition.digest, text)


@given(definitions(), definitions())
def test_digests_are_equal_only_for_equal_definitions(one: TaskDefinition, other: TaskDefinition) -> None:
    assert (one.digest == other.digest) == (encode(one.to_json()) == encode(other.to_json()))
