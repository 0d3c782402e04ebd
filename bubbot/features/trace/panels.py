"""Panels of other features on the page: addresses of their links, and drawings of their graphs and charts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from bubbot.features.trace.render import url
from bubbot.features.trace.request import ChangedLine, compare_lines
from bubbot.gateway.names import NameBook
from bubbot.ports.panel import (
    Block,
    Cell,
    Chart,
    Difference,
    FeaturePanel,
    Graph,
    Moment,
    Number,
    PanelLink,
    PanelQuery,
    PersonName,
    TapeLink,
)
from bubbot.records import dataclass
from bubbot.tape.boundary import TapeBoundary
from bubbot.tape.service import session_tape
from bubbot.tape.store import SYSTEM_TAPE_PREFIX

PARAMETER = "p."
"""The beginning of the names of a panel's own parameters in an address."""
NODE_HEIGHT, LANE_WIDTH, NODE_RADIUS = 44, 22, 7
MAX_LABEL_CHARS = 60
LABEL_WIDTH = 620


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node with its place."""

    x: int
    y: int
    radius: int
    label: str
    detail: str
    address: str


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge as the path of an SVG."""

    path: str
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """A graph with places: a row for each node, a column for each lane, the labels to the right of all lanes."""

    width: int
    height: int
    text_x: int
    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]


@dataclass(frozen=True, slots=True)
class ChartBar:
    """A bar of a chart: its label, its value as text, and its length as a part of the longest one, 0 to 100."""

    label: str
    text: str
    percent: float


class PanelView:
    """A panel while its page is made: knows the addresses of what its blocks link to.

    Args:
        panel: the panel.
        query: what is asked of it.
        reader: the tapes of the viewer.
        panel_names: the panels of sessions, and those of the deployment.
        names: the names of chats and people.
    """

    def __init__(
        self,
        panel: FeaturePanel,
        query: PanelQuery,
        reader: TapeBoundary,
        panel_names: Mapping[str, Sequence[str]],
        names: NameBook,
    ) -> None:
        self._panel = panel
        self._query = query
        self._reader = reader
        self._panel_names = panel_names
        self._names = names

    def text(self, shown: str | PersonName | TapeLink | PanelLink) -> str:
        """Return the words of a cell: those of a person and of a link to a chat are the names."""
        if isinstance(shown, PersonName):
            return self._names.find_person(shown.account)
        if isinstance(shown, TapeLink) and shown.text == shown.session:
            return self._names.find_chat(shown.session)
        return shown if isinstance(shown, str) else shown.text

    def address(self, link: object) -> str:
        """Return the address of a link; empty if the viewer may not go there."""
        if isinstance(link, TapeLink):
            return self._tape_address(link)
        return self._panel_address(link) if isinstance(link, PanelLink) else ""

    def next_page(self, cursor: str) -> str:
        """Return the address of the next page of a table."""
        return self._own_address(self._panel.panel.name, self._query.tape, {**self._query.params}, cursor)

    @property
    def action(self) -> str:
        """The address that a form of the panel leads to."""
        return self._own_address(self._panel.panel.name, self._query.tape, {}, "")

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters of this page, which a form sends along."""
        return self._query.params

    @staticmethod
    def kind(block: Block) -> str:
        """Return the name of a block's template."""
        return type(block).__name__.lower()

    @staticmethod
    def cell_kind(cell: Cell) -> str:
        """Return `text`, `number`, `moment` or `link`."""
        if isinstance(cell, str | PersonName):
            return "text"
        return {Number: "number", Moment: "moment"}.get(type(cell), "link")

    @staticmethod
    def lines(block: Difference) -> list[ChangedLine]:
        """Return the lines of a difference."""
        return list(compare_lines(block.before, block.after))

    @staticmethod
    def bars(block: Chart) -> list[ChartBar]:
        """Return the bars of a chart."""
        most = max((point.value for point in block.points), default=0.0)
        return [
            ChartBar(point.label, point.text, round(100 * max(point.value, 0) / most, 2) if most > 0 else 0.0)
            for point in block.points
        ]

    @staticmethod
    def image(block: Chart) -> str:
        """Return the drawing of a chart as an address that holds it."""
        return f"data:image/svg+xml;base64,{b64encode(block.svg).decode()}"

    def draw(self, block: Graph) -> GraphDrawing:
        """Place the nodes of a graph."""
        places = {node.id: (index, node) for index, node in enumerate(block.nodes)}
        lanes = max((node.lane for node in block.nodes), default=0) + 1
        text_x = lanes * LANE_WIDTH + NODE_RADIUS
        nodes = tuple(
            DrawnNode(
                _x(node.lane),
                _y(index),
                NODE_RADIUS - 3 if node.is_minor else NODE_RADIUS,
                node.label[:MAX_LABEL_CHARS],
                node.detail[:MAX_LABEL_CHARS],
                self.address(node.link),
            )
            for index, node in places.values()
        )
        edges = []
        for edge in block.edges:
            if edge.source in places and edge.target in places:
                (above, source), (below, target) = places[edge.source], places[edge.target]
                path = _curve(_x(source.lane), _y(above), _x(target.lane), _y(below))
                edges.append(DrawnEdge(path, edge.kind, edge.label))
        height = len(block.nodes) * NODE_HEIGHT + NODE_RADIUS
        return GraphDrawing(text_x + LABEL_WIDTH, height, text_x, nodes, tuple(edges))

    def list_graph(self, block: Graph) -> list[tuple[Any, list[str]]]:
        """Return the nodes of a graph, each with the labels of those it comes from."""
        labels = {node.id: node.label for node in block.nodes}
        return [
            (node, [labels[edge.source] for edge in block.edges if edge.target == node.id and edge.source in labels])
            for node in block.nodes
        ]

    def _tape_address(self, link: TapeLink) -> str:
        tape = link.tape or (session_tape(self._reader.workspace, link.session) if link.session else self._query.tape)
        if not tape or not may_open(self._reader, tape):
            return ""
        if link.turn:
            return url("session", tape, "turn", link.turn)
        return url("session", tape, "entry", link.entry) if link.entry else url("session", tape)

    def _panel_address(self, link: PanelLink) -> str:
        name = link.panel or self._panel.panel.name
        tape = session_tape(self._reader.workspace, link.session) if link.session else self._query.tape
        if name in self._panel_names["session"] and tape:
            return self._own_address(name, tape, link.params, "") if self._reader.may_read(tape) else ""
        return self._own_address(name, "", link.params, "") if name in self._panel_names["deployment"] else ""

    def _own_address(self, name: str, tape: str, params: Mapping[str, str], cursor: str) -> str:
        parts = ("session", tape, "panel", name) if tape else ("panel", name)
        return url(*parts, **{"cursor": cursor, **{f"{PARAMETER}{key}": value for key, value in params.items()}})


def may_open(reader: TapeBoundary, tape: str) -> bool:
    """Return true for the tapes that a viewer may see whole."""
    return reader.viewer.sees_all or (reader.may_read(tape) and not tape.startswith(SYSTEM_TAPE_PREFIX))


def parse_panel_query(query: Mapping[str, str], session: str = "", tape: str = "") -> PanelQuery:
    """Return what an address asks of a panel."""
    params = {name.removeprefix(PARAMETER): text for name, text in query.items() if name.startswith(PARAMETER)}
    return PanelQuery(session, tape, query.get("cursor", ""), params=params)


def _x(lane: int) -> int:
    return lane * LANE_WIDTH + NODE_RADIUS + 2


def _y(index: int) -> int:
    return index * NODE_HEIGHT + NODE_HEIGHT // 2


def _curve(x1: int, y1: int, x2: int, y2: int) -> str:
    """Draw an edge that leaves its first node downwards, and arrives at the second from above."""
    if x1 == x2:
        bow = LANE_WIDTH // 2 if abs(y2 - y1) > NODE_HEIGHT else 0  # past the nodes between them
        return f"M{x1} {y1} C{x1 + bow} {y1 + 14} {x2 + bow} {y2 - 14} {x2} {y2}"
    return f"M{x1} {y1} C{x1} {y1 + 22} {x2} {y2 - 22} {x2} {y2}"
