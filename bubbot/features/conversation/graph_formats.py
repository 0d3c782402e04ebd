"""The graph of a tape's anchors as text, as Mermaid and as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from xml.etree import ElementTree as ET

from bubbot.features.conversation.graph import AnchorGraph, GraphAnchor, GraphLink
from bubbot.formatting import cell_width, replace_controls
from bubbot.tape.query import format_date
from bubbot.texts import Texts

ROW, BOX_HEIGHT, LEFT, BOX_WIDTH, MARGIN, MAX_BEND = 76, 52, 170, 480, 40, 120
"""Lengths in the SVG, in pixels."""
STUB_LEFT, STUB_WIDTH, STUB_HEIGHT = LEFT + BOX_WIDTH + MAX_BEND + MARGIN, 240, 26
"""Place and size of the boxes of anchors that have no row."""
MAX_LABEL_CELLS = 66
"""Columns of text that fit into a box."""
_NO_XML = {0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}
_PLAIN = frozenset(" ,./_-()…")
_ARROWS = {"next": "-->", "within": "---", "parent": "==>"}
_STYLES = {
    "next": "stroke:#555",
    "within": "stroke:#bbb",
    "parent": "stroke:#b34700;stroke-width:2.5",
    "recall": "stroke:#3572a5;stroke-dasharray:6 4",
}


def format_graph(graph: AnchorGraph, zone: tzinfo, texts: Texts, name_tape: Callable[[str], str]) -> str:
    """Format the graph as lines, oldest anchor first.

    Args:
        graph: the graph.
        zone: of the dates.
        texts: the language.
        name_tape: names another tape.
    """
    if not graph.anchors:
        return texts.say("anchors_none")
    links, lines = graph.links_to(), []
    for anchor in graph.anchors:
        lines.append(f"{'●' if anchor.opens_window else '○'} {' '.join(_labels(anchor, zone, texts))}")
        parents = [link for link in links.get(anchor.id, ()) if link.kind == "parent"]
        if parents:
            names = ", ".join(_name_source(link, texts, name_tape) for link in parents)
            lines.append(texts.say("graph_parents", entries=names))
        lines += [
            texts.say("graph_recalls", entries=_format_spans(link.spans), anchor=link.source)
            for link in links.get(anchor.id, ())
            if link.kind == "recall"
        ]
    lines += [texts.say("graph_legend"), *format_cut(graph, texts)]
    return "\n".join(lines)


def format_cut(graph: AnchorGraph, texts: Texts) -> list[str]:
    """Return the sentence that there are older anchors, if there are."""
    return [texts.say("graph_cut", number=len(graph.anchors))] if graph.is_cut else []


def format_mermaid(graph: AnchorGraph, zone: tzinfo, texts: Texts, name_tape: Callable[[str], str]) -> str:
    """Format the graph as a Mermaid flowchart (see `format_graph`).

    Links: `-->` to the next window, `---` to an anchor that opened none, `==>` from a parent, `-.->` what is recalled.
    """
    lines = ["flowchart TD"]
    for anchor in graph.anchors:
        label = "<br/>".join(map(_escape_mermaid, _labels(anchor, zone, texts)))
        lines.append(f'  a{anchor.id}["{label}"]' if anchor.opens_window else f'  a{anchor.id}("{label}")')
    missing = _find_missing(graph)
    for link, name in missing.items():
        lines.append(f'  {name}(["{_escape_mermaid(_name_source(link, texts, name_tape))}"])')
    for link in graph.links:
        arrow = _ARROWS.get(link.kind) or f'-. "{_escape_mermaid(_format_spans(link.spans))}" .->'
        lines.append(f"  {missing.get(_source_of(link), f'a{link.source}')} {arrow} a{link.target}")
    lines += [f"  %% {' '.join(line.split())}" for line in format_cut(graph, texts)]
    return "\n".join(lines) + "\n"


def _escape_mermaid(text: str) -> str:
    """Write everything that Mermaid or HTML may read as syntax as the number of its character."""
    return "".join(char if char.isalnum() or char in _PLAIN else f"#{ord(char)};" for char in text)


def _labels(anchor: GraphAnchor, zone: tzinfo, texts: Texts) -> list[str]:
    """Return the lines of an anchor: id and name, date, first words of the summary."""
    name = texts.say("graph_erased") if anchor.erased else anchor.name
    lines = [f"#{anchor.id} {name}", format_date(anchor.date, zone, undated=texts.say("undated")), anchor.summary]
    return [_clean(line) for line in lines if line]


def _source_of(link: GraphLink) -> GraphLink:
    """Return a link that is equal for all links from the same anchor."""
    return GraphLink("parent", link.source, 0, link.tape)


def _find_missing(graph: AnchorGraph) -> dict[GraphLink, str]:
    """Name the older anchors that are not in the graph: of other tapes, or cut."""
    drawn = {anchor.id for anchor in graph.anchors}
    sources = [_source_of(link) for link in graph.links if link.tape or link.source not in drawn]
    return {link: f"x{number}" for number, link in enumerate(dict.fromkeys(sources), 1)}


def _name_source(link: GraphLink, texts: Texts, name_tape: Callable[[str], str]) -> str:
    if not link.tape:
        return f"#{link.source}"
    return texts.say("graph_other_tape", entry=link.source, tape=_clean(name_tape(link.tape)))


def _clean(text: str) -> str:
    """Return the text on one line, without control characters and what XML cannot hold."""
    return " ".join(replace_controls(text).translate(_NO_XML).split())


def _format_spans(spans: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"#{low}" if low == high else f"#{low}-{high}" for low, high in spans)


def format_svg(graph: AnchorGraph, zone: tzinfo, texts: Texts, name_tape: Callable[[str], str]) -> str:
    """Format the graph as an SVG picture (see `format_graph`): a row for each anchor, oldest first.

    The order of the windows runs through the boxes, parents on the left, recalls on the right. Older anchors that have no row
    stand on the right, each beside the first anchor that it leads to.
    """
    missing = _find_missing(graph)
    rows = {anchor.id: MARGIN + place * ROW for place, anchor in enumerate(graph.anchors)}
    stubs = _place_stubs(graph, missing, rows)
    lowest = max([MARGIN + len(rows) * ROW, *(y + ROW // 2 for y in stubs.values())])
    height = lowest + MARGIN
    width = STUB_LEFT + (STUB_WIDTH + MARGIN if missing else 0)
    picture = ET.Element(
        "svg",
        {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width} {height}", "width": str(width)}
        | {"height": str(height), "font-family": "sans-serif", "font-size": "12"},
    )
    ET.SubElement(picture, "title").text = f"{graph.tape}"
    ET.SubElement(picture, "rect", {"width": "100%", "height": "100%", "fill": "white"})
    _add_arrow_head(picture)
    for link in graph.links:
        _add_link(picture, link, rows, stubs.get(_source_of(link)))
    for anchor in graph.anchors:
        box = (LEFT, rows[anchor.id], BOX_WIDTH, BOX_HEIGHT)
        _add_box(picture, box, _labels(anchor, zone, texts), rounded=not anchor.opens_window)
    for link, y in stubs.items():
        _add_box(picture, (STUB_LEFT, y, STUB_WIDTH, STUB_HEIGHT), [_name_source(link, texts, name_tape)], rounded=True)
    for line in format_cut(graph, texts):
        ET.SubElement(picture, "text", {"x": str(LEFT), "y": str(height - MARGIN // 2)}).text = line
    return ET.tostring(picture, encoding="unicode") + "\n"


def _place_stubs(graph: AnchorGraph, missing: Iterable[GraphLink], rows: Mapping[int, int]) -> dict[GraphLink, int]:
    """Return the upper edges of the boxes of older anchors that have no row, by their source."""
    first: dict[GraphLink, int] = {}
    for link in graph.links:
        first.setdefault(_source_of(link), rows[link.target])
    places: dict[GraphLink, int] = {}
    free = 0
    for source in sorted(missing, key=first.__getitem__):
        places[source] = max(first[source], free)
        free = places[source] + ROW // 2
    return places


def _add_arrow_head(picture: ET.Element) -> None:
    options = {"id": "head", "viewBox": "0 0 8 8", "refX": "8", "refY": "4", "markerWidth": "9", "markerHeight": "9"}
    marker = ET.SubElement(
        ET.SubElement(picture, "defs"), "marker", {**options, "markerUnits": "userSpaceOnUse", "orient": "auto"}
    )
    ET.SubElement(marker, "path", {"d": "M0,0 L8,4 L0,8 z", "fill": "#555"})


def _add_box(picture: ET.Element, box: tuple[int, int, int, int], lines: Sequence[str], *, rounded: bool) -> None:
    """Draw a box, given as left and upper edge, width and height, with its lines."""
    x, y, width, height = box
    corner = {"rx": str(min(18, height // 2))} if rounded else {"rx": "2"}
    place = {"x": str(x), "y": str(y), "width": str(width), "height": str(height)}
    ET.SubElement(picture, "rect", {**place, **corner, "fill": "#f6f8fa", "stroke": "#555"})
    cells = MAX_LABEL_CELLS * width // BOX_WIDTH
    for number, line in enumerate(lines):
        text = ET.SubElement(picture, "text", {"x": str(x + 12), "y": str(y + 16 + 15 * number)})
        text.text = _cut_cells(line, cells)
        if not number:
            text.set("font-weight", "bold")


def _cut_cells(text: str, cells: int) -> str:
    if cell_width(text) <= cells:
        return text
    while cell_width(text) > cells - 1:
        text = text[:-1]
    return f"{text}…"


def _add_link(picture: ET.Element, link: GraphLink, rows: Mapping[int, int], stub: int | None) -> None:
    """Draw a link; `stub`: the upper edge of an older anchor that has no row."""
    end = rows[link.target]
    path = {"fill": "none", "style": _STYLES[link.kind], "class": link.kind}
    if link.kind != "within":
        path["marker-end"] = "url(#head)"
    if stub is not None:
        x, y, middle, bend = LEFT + BOX_WIDTH, stub + STUB_HEIGHT // 2, end + BOX_HEIGHT // 2, MAX_BEND // 2
        path["d"] = f"M{STUB_LEFT},{y} C{STUB_LEFT - bend},{y} {x + bend},{middle} {x},{middle}"
    else:
        start = rows[link.source]
        path["d"] = "".join(_draw_path(link, start, end))
    line = ET.SubElement(picture, "path", path)
    if link.spans:
        ET.SubElement(line, "title").text = _format_spans(link.spans)


def _draw_path(link: GraphLink, start: int, end: int) -> Iterator[str]:
    middle, bend = BOX_HEIGHT // 2, min(30 + (end - start) // 8, MAX_BEND)
    if link.kind in ("next", "within"):
        x = LEFT + (30 if link.kind == "next" else 60)
        yield f"M{x},{start + BOX_HEIGHT} L{x},{end}"
    else:
        x, side = (LEFT, -bend) if link.kind == "parent" else (LEFT + BOX_WIDTH, bend)
        yield f"M{x},{start + middle} C{x + side},{start + middle} {x + side},{end + middle} {x},{end + middle}"
