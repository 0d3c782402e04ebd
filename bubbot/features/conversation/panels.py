"""The anchors of a tape on the trace page: windows, topics, parents and what windows recall, as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from bubbot.features.conversation.graph import AnchorGraph, GraphAnchor, GraphView, LinkKind
from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.tape.query import format_date

STROKES: Mapping[LinkKind, tuple[str, str]] = MappingProxyType(
    {
        "next": ("plain", "panel_edge_next"),
        "within": ("weak", "panel_edge_within"),
        "parent": ("strong", "panel_edge_parent"),
        "recall": ("dashed", "panel_edge_recall"),
    }
)
"""The stroke of each kind of link, and the sentence that names it."""
NODE_HEIGHT, LANE_WIDTH, NODE_RADIUS = 44, 22, 7


class AnchorNode(Struct, frozen=True):
    """An anchor in its row and lane of the drawing, which counts in pixels."""

    tape: str
    entry: int
    label: str
    detail: str
    x: int
    y: int
    radius: int


class AnchorEdge(Struct, frozen=True):
    """A link as the path of an SVG, with its stroke and the sentence that names it."""

    source: AnchorNode
    target: AnchorNode
    stroke: str
    sentence: str
    path: str


class AnchorDrawing(Struct, frozen=True):
    """The anchors of a tape as a graph, oldest first; anchors of other tapes come before them. Labels begin at `text_x`."""

    graph: AnchorGraph
    nodes: tuple[AnchorNode, ...]
    edges: tuple[AnchorEdge, ...]
    text_x: int
    height: int
    strokes: tuple[tuple[str, str], ...] = tuple(STROKES.values())


async def read_anchors(reader: PanelReader, query: PanelQuery) -> AnchorDrawing:
    """Read the newest anchors, and place them: a row for each, a column for each kind."""
    graph = await reader.tapes.open_tape(query.tape, query.session).read(GraphView(query.tape))
    rows = {anchor.id for anchor in graph.anchors}
    nodes: dict[tuple[str, int], AnchorNode] = {}
    for link in graph.links:
        place = link.tape, link.source
        if place not in nodes and (link.tape or link.source not in rows):
            label = f"#{link.source} {link.tape}".strip()
            nodes[place] = _node((link.tape or graph.tape, link.source), len(nodes), 2, label)
    for anchor in graph.anchors:
        label = f"{anchor.name or reader.texts.say('panel_erased')} #{anchor.id}"
        lane, detail = 0 if anchor.opens_window else 1, _detail(reader, anchor)
        nodes["", anchor.id] = _node((graph.tape, anchor.id), len(nodes), lane, label, detail)
    edges = tuple(
        AnchorEdge(source, target, *STROKES[link.kind], _curve(source, target))
        for link in graph.links
        for source, target in [(nodes[link.tape, link.source], nodes["", link.target])]
    )
    text_x = max((node.x for node in nodes.values()), default=0) + LANE_WIDTH - 2
    return AnchorDrawing(graph, tuple(nodes.values()), edges, text_x, len(nodes) * NODE_HEIGHT + NODE_RADIUS)


def _detail(reader: PanelReader, anchor: GraphAnchor) -> str:
    date = format_date(anchor.date, reader.zone) if anchor.date else ""
    return " ".join(filter(None, (date, anchor.summary)))


def _node(entry: tuple[str, int], row: int, lane: int, label: str, detail: str = "") -> AnchorNode:
    """Place a node; those that open no window of this tape are small."""
    x, y = lane * LANE_WIDTH + NODE_RADIUS + 2, row * NODE_HEIGHT + NODE_HEIGHT // 2
    return AnchorNode(*entry, label, detail, x, y, NODE_RADIUS - 3 if lane else NODE_RADIUS)


def _curve(source: AnchorNode, target: AnchorNode) -> str:
    """Draw an edge that leaves its first node downwards, and arrives at the second from above."""
    x1, y1, x2, y2 = source.x, source.y, target.x, target.y
    if x1 == x2:
        bow = LANE_WIDTH // 2 if abs(y2 - y1) > NODE_HEIGHT else 0  # past the nodes between them
        return f"M{x1} {y1} C{x1 + bow} {y1 + 14} {x2 + bow} {y2 - 14} {x2} {y2}"
    return f"M{x1} {y1} C{x1} {y1 + 22} {x2} {y2 - 22} {x2} {y2}"


PANELS = (Panel("anchors", "Anchors", "session", read_anchors, "bubbot.features.conversation:anchors.html"),)
