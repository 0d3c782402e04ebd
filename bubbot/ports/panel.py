"""The panel port: what a feature shows on the trace page.

A feature declares its panels, and the page draws them; neither imports the other. A panel reads through the boundary of
its viewer alone, and returns blocks of plain values: the page escapes every text. Panels of bubbot's features are in the
`panels.py` of their folders, listed in `bubbot.app.panels`; an installed package has `FeatureFactory.panels`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime, tzinfo
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from bubbot.records import dataclass
from bubbot.tape.boundary import SharedTape, TapeBoundary
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.texts import Texts

DEFAULT_PANEL_ROWS = 50
"""Rows of a page of a panel."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number.

    Attributes:
        value: the number.
        unit: what it counts, such as `tokens`; empty for none.
        text: the number as people read it; empty: the page writes it.
    """

    value: float
    unit: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as the tape has it, ISO 8601 with its offset; the page shows it in the time zone of the deployment."""

    at: str


@dataclass(frozen=True, slots=True)
class TapeLink:
    """A link to what the page shows of a tape. The page shows the text alone if the viewer may not see the tape.

    Attributes:
        text: what is shown; of a session's own id the page shows the name of the chat, if there is one.
        session: the session; empty if `tape` is given.
        tape: the name of the tape; empty: that of the session.
        entry: an entry; 0 for none.
        turn: the id of a turn; empty for none.
    """

    text: str
    session: str = ""
    tape: str = ""
    entry: int = 0
    turn: str = ""


@dataclass(frozen=True, slots=True)
class PersonName:
    """A person by the account, such as `telegram:42`; the page shows the name that people know, if there is one."""

    account: str


@dataclass(frozen=True, slots=True)
class PanelLink:
    """A link to a panel.

    Attributes:
        text: what is shown.
        panel: its name; empty for the same panel.
        session: the session; empty for the same one, or for none.
        params: the values of `PanelQuery.params`.
    """

    text: str
    panel: str = ""
    session: str = ""
    params: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


Cell: TypeAlias = str | Number | Moment | PersonName | TapeLink | PanelLink
"""What stands in a table. Every text is foreign: the page escapes it, and isolates its writing direction."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence.

    Attributes:
        text: the sentence.
        tone: `quote` for words of people or of the model.
        links: links that follow it.
    """

    text: str
    tone: Literal["plain", "warning", "quote"] = "plain"
    links: tuple[TapeLink | PanelLink, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows.

    Attributes:
        title: its heading.
        columns: the headings of the columns.
        rows: the cells, one for each column.
        empty: what is said if there are no rows.
        next_cursor: the cursor of the next page; empty if this is the last one.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str = ""
    next_cursor: str = ""


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A bar of a chart: its label, its value, and the value as people read it."""

    label: str
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A bar chart. Its points are also its table, for those who cannot see it.

    Attributes:
        title: its heading, with the unit.
        kind: `columns` for days, `bars` for names.
        points: the bars.
        svg: the drawing, a whole SVG document, if a library has drawn it; empty: the page draws bars itself. It is shown
            as an image, in which nothing runs and nothing is loaded.
    """

    title: str
    kind: Literal["columns", "bars"]
    points: tuple[ChartPoint, ...]
    svg: bytes = b""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two texts; the page shows what was added and removed, line by line.

    Attributes:
        title: its heading.
        before: the older text.
        after: the newer text.
        link: the entry that made the change; None for none.
    """

    title: str
    before: str
    after: str
    link: TapeLink | None = None


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a graph.

    Attributes:
        id: its name in the edges.
        label: its text.
        detail: a second line.
        link: where it leads; None for nowhere.
        lane: its column, 0 on the left.
        is_minor: it is drawn small.
    """

    id: str
    label: str
    detail: str = ""
    link: TapeLink | PanelLink | None = None
    lane: int = 0
    is_minor: bool = False


EdgeKind: TypeAlias = Literal["plain", "weak", "strong", "dashed"]
"""The stroke of an edge."""


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An edge from an older node to a newer one; `kind` chooses its stroke, `label` says what it is."""

    source: str
    target: str
    kind: EdgeKind = "plain"
    label: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """A directed graph without cycles.

    Attributes:
        title: its heading.
        nodes: oldest first, one below the other.
        edges: between nodes.
        legend: what each kind of edge means.
    """

    title: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """A field to type into, and a button: the page shows the panel again with the text as a parameter.

    Attributes:
        param: the name of the parameter.
        label: what to type.
        button: the text of the button.
        value: what was typed.
    """

    param: str
    label: str
    button: str
    value: str = ""


Block: TypeAlias = Paragraph | Table | Chart | Difference | Graph | Form
"""A part of a panel, drawn in the order given."""


@dataclass(frozen=True, slots=True)
class PanelReader:
    """What a panel may read, in the viewer's boundary.

    Attributes:
        tapes: the tapes that the viewer may see. Nothing can be written through it.
        settings: the settings of the feature, as its commands get them; None if it has none.
        zone: the time zone of the deployment.
        now: the current time.
        texts: the language of the page.
    """

    tapes: TapeBoundary
    settings: Any
    zone: tzinfo
    now: datetime
    texts: Texts


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """What is asked of a panel.

    Attributes:
        session: the session; empty in a panel of the deployment, and for an archive or a tape without one.
        tape: the name of the tape; empty in a panel of the deployment.
        cursor: that of a page, as a table gave it; empty for the first page. Foreign: anything may stand in it.
        limit: rows at most.
        params: further parameters of a link or a form. Foreign, too.
    """

    session: str = ""
    tape: str = ""
    cursor: str = ""
    limit: int = DEFAULT_PANEL_ROWS
    params: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def cursor_id(self) -> int | None:
        """Return the cursor as the id of an entry; None for the first page and for a text that is none."""
        return int(self.cursor) if self.cursor.isascii() and self.cursor.isdigit() and len(self.cursor) < 19 else None

    @property
    def below_cursor(self) -> IdRanges:
        """The ids that come on this page and later ones, if the newest come first."""
        cursor = self.cursor_id()
        return IdRanges(((1, None if cursor is None else max(cursor - 1, 0)),))

    async def read_page(self, tape: TapeHandle, *names: str) -> tuple[list[TapeEntry], str]:
        """Read the newest events of these names, without erased ones; return them with the cursor of the next page."""
        query = TapeQuery(
            tape.name, self.below_cursor, kinds=(Kind.EVENT,), names=names, newest=True, limit=self.limit + 1
        )
        found = (await tape.fetch([query]))[0]
        more = str(found[self.limit - 1].id) if len(found) > self.limit else ""
        return [entry for entry in found[: self.limit] if not entry.erased], more


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the trace page.

    Attributes:
        name: unique among the panels of its scope; lower-case letters, digits and hyphens, as it stands in an address.
        title: its heading in English; `Texts.panel` translates those of bubbot.
        scope: whether it shows one session or the deployment.
        read: reads its blocks. Raises `AccessError` if the viewer may not see what it needs; the page says so.
        shared: the tapes it reads that hold facts about many sessions.
    """

    name: str
    title: str
    scope: Literal["session", "deployment"]
    read: Callable[[PanelReader, PanelQuery], Awaitable[Sequence[Block]]]
    shared: Sequence[SharedTape] = ()


@dataclass(frozen=True, slots=True)
class FeaturePanel:
    """A panel with what its feature gets.

    Attributes:
        feature: the name of the feature.
        panel: the panel.
        settings: see `PanelReader.settings`.
    """

    feature: str
    panel: Panel
    settings: Any

    async def read(
        self, tapes: TapeBoundary, query: PanelQuery, *, zone: tzinfo, now: datetime, texts: Texts
    ) -> Sequence[Block]:
        """Read the blocks of the panel in the boundary of a viewer. Raise as the panel does."""
        return await self.panel.read(PanelReader(tapes, self.settings, zone, now, texts), query)
