"""The graph of a task: its order, its loops, and what can begin."""

from __future__ import annotations

from itertools import pairwise

from bubbot.features.tasks.graph import TaskGraph
from bubbot.features.tasks.schema import TaskNode, TaskSchema


def graph(result: str = "", gates: str = "", **after: str) -> TaskGraph:
    """A graph of nodes, each with the words of what it waits for."""
    nodes = {
        name: TaskNode(after=tuple(parents.split()), prompt="x")
        if name not in gates.split()
        else TaskNode(after=tuple(parents.split()), confirm="x")
        for name, parents in after.items()
    }
    return TaskGraph(TaskSchema(nodes=nodes, result=result))


DIAMOND = {"top": "", "left": "top", "right": "top", "end": "left right"}


def test_parents_and_children_are_in_the_order_of_the_file() -> None:
    diamond = graph(**DIAMOND)
    assert diamond.parents == {"top": (), "left": ("top",), "right": ("top",), "end": ("left", "right")}
    assert diamond.children == {"top": ("left", "right"), "left": ("end",), "right": ("end",), "end": ()}


def test_a_parent_that_is_named_twice_counts_once() -> None:
    twice = graph(a="", b="a a")
    assert (twice.parents["b"], twice.children["a"]) == (("a",), ("b",))


def test_the_order_has_each_node_after_its_parents() -> None:
    assert graph(end="left right", left="top", right="top", top="").list_order() == ["top", "left", "right", "end"]


def test_the_order_lacks_what_can_never_begin() -> None:
    assert graph(a="", b="c", c="b", d="c a", e="gone", f="e", g="a").list_order() == ["a", "g"]


def test_a_cycle_is_found_in_the_direction_of_the_run() -> None:
    found = graph(a="c", b="a", c="b", d="").find_cycle()
    assert found[0] == found[-1]
    assert {*pairwise(found)} == {("a", "b"), ("b", "c"), ("c", "a")}


def test_a_node_that_waits_for_itself_is_a_cycle() -> None:
    assert graph(a="a").find_cycle() == ["a", "a"]


def test_a_graph_without_a_cycle_has_none() -> None:
    assert graph(**DIAMOND).find_cycle() == []


def test_nodes_begin_when_all_their_parents_succeeded() -> None:
    diamond = graph(**DIAMOND)
    assert diamond.ready({}) == ["top"]
    assert diamond.ready({"top": "running"}) == []
    assert diamond.ready({"top": "succeeded"}) == ["left", "right"]
    assert diamond.ready({"top": "succeeded", "left": "succeeded", "right": "failed"}) == []
    assert diamond.ready({"top": "succeeded", "left": "succeeded", "right": "succeeded"}) == ["end"]


def test_a_node_that_has_begun_is_not_ready_again() -> None:
    assert graph(a="", b="").ready({"a": "failed"}) == ["b"]


def test_a_node_with_an_unknown_parent_is_never_ready() -> None:
    assert graph(a="gone").ready({}) == []


def test_descendants_are_all_that_wait_for_a_node() -> None:
    diamond = graph(**DIAMOND)
    assert diamond.descendants("top") == {"left", "right", "end"}
    assert diamond.descendants("end") == set()
    assert graph(a="b", b="a").descendants("a") == {"a", "b"}


def test_a_node_behind_a_cycle_is_not_reachable() -> None:
    looped = graph(a="b", b="a", c="b", d="")
    assert looped.list_order() == ["d"]


def test_the_result_is_the_declared_node_or_the_only_end() -> None:
    assert graph(**DIAMOND).result == "end"
    assert graph(result="left", **DIAMOND).result == "left"
    assert graph(a="", b="").result == ""
    assert graph(a="", ok="a", gates="ok").result == ""


def test_a_chain_of_a_thousand_nodes_is_no_recursion() -> None:
    chain = {"n0": ""} | {f"n{number}": f"n{number - 1}" for number in range(1, 1000)}
    long = graph(**chain)
    assert long.list_order() == [*chain]
    assert len(long.descendants("n0")) == 999
    assert len(graph(**{**chain, "n0": "n999"}).find_cycle()) == 1001
