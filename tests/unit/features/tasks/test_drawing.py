"""The drawing of a graph: layers, edges past the nodes between them, and the direction that fits a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.features.tasks.drawing import BOX_HEIGHT, BOX_WIDTH, EMPTY_DRAWING, GraphDrawing, draw_graph, order_layers

DIAMOND: Mapping[str, Sequence[str]] = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
CHAIN: Mapping[str, Sequence[str]] = {str(n): [str(n - 1)] if n else [] for n in range(12)}
WIDE: Mapping[str, Sequence[str]] = {**{str(n): [] for n in range(28)}, "end": [str(n) for n in range(28)]}


def corners(drawing: GraphDrawing) -> dict[str, tuple[int, int]]:
    return {node.node: (node.x, node.y) for node in drawing.nodes}


def test_a_node_is_below_all_that_it_waits_for() -> None:
    drawing = draw_graph(DIAMOND)
    places = corners(drawing)
    assert drawing.direction == "down"
    assert places["a"][1] < places["b"][1] == places["c"][1] < places["d"][1]
    assert {(edge.source, edge.target) for edge in drawing.edges} == {("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")}


@pytest.mark.parametrize(("graph", "direction"), [(CHAIN, "down"), (WIDE, "right")])
def test_a_graph_is_drawn_in_the_direction_that_is_narrow(graph: Mapping[str, Sequence[str]], direction: str) -> None:
    drawing = draw_graph(graph)
    assert (drawing.direction, drawing.width < 500) == (direction, True)


def test_an_edge_goes_past_the_nodes_of_the_layers_that_it_crosses() -> None:
    layers = order_layers({"a": [], "b": ["a"], "c": ["b", "a"]}, {"a": 0, "b": 1, "c": 2})
    assert [sorted(layer) for layer in layers] == [[("a", 0)], [("a", 1), ("b", 1)], [("c", 2)]]


def test_nodes_of_a_layer_stand_in_the_order_of_what_they_wait_for() -> None:
    crossed = {"a": [], "b": [], "of b": ["b"], "of a": ["a"]}
    assert [name for name, _ in order_layers(crossed, {"a": 0, "b": 0, "of b": 1, "of a": 1})[1]] == ["of a", "of b"]


def test_nothing_is_drawn_of_nothing() -> None:
    assert draw_graph({}).nodes == EMPTY_DRAWING.nodes


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    size = draw(st.integers(1, 30))
    return {
        str(n): draw(st.lists(st.sampled_from([str(m) for m in range(n)]), max_size=4)) if n else []
        for n in range(size)
    }


@given(graphs())
def test_boxes_stand_within_the_drawing_and_none_covers_another(graph: dict[str, list[str]]) -> None:
    drawing = draw_graph(graph)
    places = corners(drawing)
    assert places.keys() == graph.keys()
    for x, y in places.values():
        assert 0 <= x <= drawing.width - BOX_WIDTH
        assert 0 <= y <= drawing.height - BOX_HEIGHT
    for (x1, y1), (x2, y2) in combinations(places.values(), 2):
        assert abs(x1 - x2) >= BOX_WIDTH or abs(y1 - y2) >= BOX_HEIGHT
    pairs = {(source, target) for target, sources in graph.items() for source in sources}
    assert {(edge.source, edge.target) for edge in drawing.edges} == pairs
