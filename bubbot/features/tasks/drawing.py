"""The drawing of a graph of nodes: in layers, each node after all that it waits for. Pure; it counts in pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct

BOX_WIDTH, BOX_HEIGHT = 184, 46
GAP = 18
"""Between neighbours in a layer."""
LAYER_GAP = 44
"""Between layers, where edges bend."""
BUNDLE_WIDTH = 8
"""Of the edges of one node where they cross a layer between its other nodes."""
MARGIN = 4
ARROW = 6
SWEEPS = 4
"""Passes that order the nodes of the layers; more change little."""

_Place: TypeAlias = tuple[str, int]
"""A node with its layer; with a later layer the bundle of its edges that crosses it."""
_Point: TypeAlias = tuple[int, int]
"""How far along the edges, and across them."""


class DrawnNode(Struct, frozen=True):
    """A node, with the upper left corner of its box."""

    node: str
    x: int
    y: int


class DrawnEdge(Struct, frozen=True):
    """A dependency: the path of an SVG, and the path of its arrow."""

    source: str
    target: str
    path: str
    arrow: str


class GraphDrawing(Struct, frozen=True):
    """A graph, its nodes layer by layer.

    Attributes:
        direction: that of the edges; of both, the one with the narrower drawing.
    """

    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
    width: int
    height: int
    direction: Literal["down", "right"]


EMPTY_DRAWING = GraphDrawing((), (), 0, 0, "down")


def draw_graph(parents: Mapping[str, Sequence[str]]) -> GraphDrawing:
    """Draw a graph.

    Args:
        parents: what each node waits for, all of it nodes, and none in a circle.
    """
    depths = find_depths(parents)
    layers = order_layers(parents, depths)
    widest = max((_measure(layer, depths, BOX_WIDTH) for layer in layers), default=0)
    is_down = widest <= len(layers) * (BOX_WIDTH + LAYER_GAP)
    along, across = (BOX_HEIGHT, BOX_WIDTH) if is_down else (BOX_WIDTH, BOX_HEIGHT)
    breadth = max((_measure(layer, depths, across) for layer in layers), default=0)
    corners: dict[_Place, _Point] = {}
    for number, layer in enumerate(layers):
        offset = MARGIN + (breadth - _measure(layer, depths, across)) // 2
        for place in layer:
            corners[place] = MARGIN + number * (along + LAYER_GAP), offset
            offset += _size(place, depths, across) + GAP

    def turn(point: _Point) -> _Point:
        return point[::-1] if is_down else point

    nodes = [DrawnNode(name, *turn(corners[name, depth])) for name, depth in sorted(corners) if depths[name] == depth]
    nodes.sort(key=lambda node: corners[node.node, depths[node.node]])
    edges = []
    for target, sources in parents.items():
        for source in dict.fromkeys(sources):
            points: list[_Point] = []
            for place in [
                *((source, layer) for layer in range(depths[source], depths[target])),
                (target, depths[target]),
            ]:
                start, offset = corners[place]
                middle = offset + _size(place, depths, across) // 2
                points += [(start, middle), (start + along, middle)]
            edges.append(
                DrawnEdge(source, target, *_draw_edge([turn(point) for point in points[1:-1]], is_down=is_down))
            )
    width, height = turn((len(layers) * (along + LAYER_GAP) - LAYER_GAP + 2 * MARGIN, breadth + 2 * MARGIN))
    return GraphDrawing(tuple(nodes), tuple(edges), width, height, "down" if is_down else "right")


def find_depths(parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the layer of each node, from 0: the one after the last of its parents."""
    depths: dict[str, int] = {}
    for name in TopologicalSorter(parents).static_order():
        depths[name] = max((depths[parent] + 1 for parent in parents[name]), default=0)
    return depths


def order_layers(parents: Mapping[str, Sequence[str]], depths: Mapping[str, int]) -> list[list[_Place]]:
    """Return the layers, with the bundles that cross them; each place near those that it is joined with."""
    ends = dict(depths)
    for target, sources in parents.items():
        for source in sources:
            ends[source] = max(ends[source], depths[target] - 1)
    layers: list[list[_Place]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for name in parents:
        for number in range(depths[name], ends[name] + 1):
            layers[number].append((name, number))
    before: dict[_Place, list[_Place]] = {}
    after: dict[_Place, list[_Place]] = {place: [] for layer in layers for place in layer}
    for name, number in after:
        joined = parents[name] if number == depths[name] else [name]
        before[name, number] = [(each, number - 1) for each in joined]
    for place, earlier in before.items():
        for each in earlier:
            after[each].append(place)
    for sweep in range(SWEEPS):
        is_back = sweep % 2 == 1
        neighbours = after if is_back else before
        for layer in reversed(layers) if is_back else layers:
            ranks = {place: rank for each in layers for rank, place in enumerate(each)}
            means = {place: _mean([ranks[each] for each in neighbours[place]], ranks[place]) for place in layer}
            layer.sort(key=means.__getitem__)
    return layers


def _mean(values: Sequence[int], default: int) -> float:
    return sum(values) / len(values) if values else default


def _size(place: _Place, depths: Mapping[str, int], across: int) -> int:
    name, layer = place
    return across if depths[name] == layer else BUNDLE_WIDTH


def _measure(layer: Sequence[_Place], depths: Mapping[str, int], across: int) -> int:
    return sum(_size(place, depths, across) + GAP for place in layer) - GAP


def _draw_edge(points: Sequence[_Point], *, is_down: bool) -> tuple[str, str]:
    """Return the paths of an edge, which bends between two layers and is straight where it crosses one, and of its arrow."""
    (x, y), path = points[0], [f"M{points[0][0]} {points[0][1]}"]
    for number, ((x1, y1), (x, y)) in enumerate(pairwise(points)):
        if number % 2:
            path.append(f"L{x} {y}")
        elif is_down:
            path.append(f"C{x1} {(y1 + y) // 2} {x} {(y1 + y) // 2} {x} {y}")
        else:
            path.append(f"C{(x1 + x) // 2} {y1} {(x1 + x) // 2} {y} {x} {y}")
    half = ARROW // 2 + 1
    arrow = (
        f"L{x - half} {y - ARROW} L{x + half} {y - ARROW}"
        if is_down
        else f"L{x - ARROW} {y - half} L{x - ARROW} {y + half}"
    )
    return " ".join(path), f"M{x} {y} {arrow} Z"
