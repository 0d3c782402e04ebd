"""The graph of a tape's anchors: the order of its windows, the parents that anchors name, and what windows recall."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from bubbot.features.conversation.anchors import MAX_ANCHORS_READ, is_zone_marker
from bubbot.tape.anchor import find_parents, recalled_ranges
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import Span, TapeQuery, union
from bubbot.tape.view import QueryAnswers

DEFAULT_GRAPH_ANCHORS = 200
MAX_SUMMARY_CHARS = 60
LinkKind = Literal["next", "within", "parent", "recall"]


class GraphAnchor(Struct, frozen=True):
    """An anchor.

    Attributes:
        id: its entry.
        name: its name; empty if it was erased.
        date: its time, ISO 8601; empty if it came from a file without one.
        summary: the first words of the summary that was handed over; empty without one.
        opens_window: a window begins with it.
        erased: its content was erased.
    """

    id: int
    name: str
    date: str
    summary: str = ""
    opens_window: bool = True
    erased: bool = False


class GraphLink(Struct, frozen=True):
    """A link from an older anchor to a newer one.

    Attributes:
        kind: `next` (the window after a window), `within` (an anchor that opened no window, in its window), `parent` (the newer
            one names the older one as a parent), `recall` (the window of the newer one shows entries of that of the older one).
        source: the older anchor, which may be missing among the anchors.
        target: the newer anchor.
        tape: the tape of the older one; empty for the tape of the graph.
        spans: the ranges of ids that are recalled, each as its first and last id.
    """

    kind: LinkKind
    source: int
    target: int
    tape: str = ""
    spans: tuple[tuple[int, ...], ...] = ()


class AnchorGraph(Struct, frozen=True):
    """The graph of a tape's newest anchors. No path leads from an anchor back to itself.

    Attributes:
        tape: the name of the tape.
        anchors: oldest first, without the markers of the memory zone.
        links: by target, in the order of the anchors.
        is_cut: there are older anchors.
    """

    tape: str
    anchors: tuple[GraphAnchor, ...]
    links: tuple[GraphLink, ...]
    is_cut: bool = False

    def links_to(self) -> Mapping[int, tuple[GraphLink, ...]]:
        """Return the links by the id of the newer anchor."""
        found: dict[int, list[GraphLink]] = {}
        for link in self.links:
            found.setdefault(link.target, []).append(link)
        return {target: tuple(links) for target, links in found.items()}


class GraphView(Struct, frozen=True):
    """The graph of the newest `limit` anchors of a tape."""

    tape: str
    limit: int = DEFAULT_GRAPH_ANCHORS
    heavy: bool = True

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest anchors, through their index."""
        return (TapeQuery(tape, kinds=(Kind.ANCHOR,), newest=True, limit=self._read),)

    @property
    def _read(self) -> int:
        return max(self.limit + 1, MAX_ANCHORS_READ)

    def fold(self, answers: QueryAnswers) -> AnchorGraph:
        """Build the graph."""
        found = [entry for entry in answers[0] if not is_zone_marker(entry)]
        entries = found[: max(self.limit, 0)][::-1]
        links = tuple(_find_links(self.tape, entries))
        is_cut = len(found) > len(entries) or len(answers[0]) == self._read
        return AnchorGraph(self.tape, tuple(map(_describe, entries)), links, is_cut)


def _describe(entry: TapeEntry) -> GraphAnchor:
    state = entry.payload.get("state")
    summary = state.get("summary") if isinstance(state, Mapping) else None
    text = " ".join(summary.split()) if isinstance(summary, str) else ""
    if len(text) > MAX_SUMMARY_CHARS:
        text = f"{text[: MAX_SUMMARY_CHARS - 1].rstrip()}…"
    return GraphAnchor(entry.id, entry.name or "", entry.date, text, entry.opens_window, entry.erased)


def _find_links(tape: str, entries: Sequence[TapeEntry]) -> Iterator[GraphLink]:
    windows = [entry.id for entry in entries if entry.opens_window]
    for entry in entries:
        before = bisect_left(windows, entry.id)
        if before:
            yield GraphLink("next" if entry.opens_window else "within", windows[before - 1], entry.id)
        for name, parent in find_parents(entry, tape):
            yield GraphLink("parent", parent, entry.id, "" if name == tape else name)
        if entry.opens_window:
            for source, spans in _find_recalls(windows[:before], recalled_ranges(entry)).items():
                yield GraphLink("recall", source, entry.id, spans=tuple(spans))


def _find_recalls(windows: Sequence[int], ranges: Sequence[Span]) -> dict[int, list[tuple[int, int]]]:
    """Return what is recalled from each of these windows, by the anchors that open them, oldest first."""
    found: dict[int, list[tuple[int, int]]] = {}
    for low, end in union(ranges):
        high = low if end is None else end
        for place in range(max(bisect_right(windows, low) - 1, 0), bisect_right(windows, high)):
            last = min(high, windows[place + 1] - 1) if place + 1 < len(windows) else high
            first = max(low, windows[place])
            if first <= last:
                found.setdefault(windows[place], []).append((first, last))
    return found
