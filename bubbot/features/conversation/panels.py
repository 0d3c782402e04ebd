"""The anchors of a tape on the trace page: windows, topics, parents and what windows recall, as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bubbot.features.conversation.graph import AnchorGraph, GraphAnchor, GraphView, LinkKind
from bubbot.ports.panel import (
    Block,
    EdgeKind,
    Graph,
    GraphEdge,
    GraphNode,
    Panel,
    PanelQuery,
    PanelReader,
    Paragraph,
    TapeLink,
)
from bubbot.tape.query import format_date

STROKES: Mapping[LinkKind, tuple[EdgeKind, str]] = MappingProxyType(
    {
        "next": ("plain", "panel_edge_next"),
        "within": ("weak", "panel_edge_within"),
        "parent": ("strong", "panel_edge_parent"),
        "recall": ("dashed", "panel_edge_recall"),
    }
)
"""The stroke of each kind of link, and the sentence that names it."""


async def read_anchors(reader: PanelReader, query: PanelQuery) -> list[Block]:
    """Show the newest anchors; each leads to its place in the timeline."""
    texts = reader.texts
    graph = await reader.tapes.open_tape(query.tape, query.session).read(GraphView(query.tape))
    if not graph.anchors:
        return [Paragraph(texts.say("anchors_none"))]
    rows = {anchor.id for anchor in graph.anchors}
    nodes = [*_other_nodes(graph, rows), *(_node(reader, query.tape, anchor) for anchor in graph.anchors)]
    edges = tuple(
        GraphEdge(
            _id(link.tape, link.source),
            str(link.target),
            STROKES[link.kind][0],
            texts.say(STROKES[link.kind][1]),
        )
        for link in graph.links
    )
    legend = tuple((stroke, texts.say(name)) for stroke, name in STROKES.values())
    blocks: list[Block] = [Graph(texts.say("panel_anchors"), tuple(nodes), edges, legend)]
    if graph.is_cut:
        blocks.append(Paragraph(texts.say("graph_cut", number=len(graph.anchors))))
    return blocks


def _node(reader: PanelReader, tape: str, anchor: GraphAnchor) -> GraphNode:
    label = anchor.name or reader.texts.say("panel_erased")
    date = format_date(anchor.date, reader.zone) if anchor.date else ""
    return GraphNode(
        str(anchor.id),
        f"{label} #{anchor.id}",
        " ".join(filter(None, (date, anchor.summary))),
        TapeLink(label, tape=tape, entry=anchor.id),
        lane=0 if anchor.opens_window else 1,
        is_minor=not anchor.opens_window,
    )


def _other_nodes(graph: AnchorGraph, rows: set[int]) -> list[GraphNode]:
    """Return nodes for what has no row: anchors of other tapes, and older ones of this tape."""
    found = {}
    for link in graph.links:
        if link.tape or link.source not in rows:
            name = _id(link.tape, link.source)
            target = TapeLink(name, tape=link.tape or graph.tape, entry=link.source)
            found[name] = GraphNode(name, f"#{link.source} {link.tape}".strip(), "", target, lane=2, is_minor=True)
    return list(found.values())


def _id(tape: str, entry: int) -> str:
    return f"{tape}#{entry}" if tape else str(entry)


PANELS = (Panel("anchors", "Anchors", "session", read_anchors),)
