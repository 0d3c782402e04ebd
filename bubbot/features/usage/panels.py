"""Usage on the trace page: what model calls took and cost, as bars and as tables, and what is left of the budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

from msgspec.structs import replace

from bubbot.errors import ToolFailed
from bubbot.features.usage.chart import build_chart, charts_are_installed, draw_chart
from bubbot.features.usage.reporter import Period, UsageReporter, format_heading, format_period
from bubbot.features.usage.spending import SPENDING_DIMENSIONS, SpendingReport, UsageSum
from bubbot.gateway.names import NameBook
from bubbot.ports.panel import (
    Block,
    Cell,
    Chart,
    ChartPoint,
    Number,
    Panel,
    PanelLink,
    PanelQuery,
    PanelReader,
    Paragraph,
    PersonName,
    Table,
    TapeLink,
)
from bubbot.ports.usage import BUDGET_TAPE
from bubbot.tape.boundary import SharedTape

CALLS = SharedTape(BUDGET_TAPE)
MAX_ROWS = 50


async def read_usage(reader: PanelReader, query: PanelQuery) -> list[Block]:
    """Show the calls of a chat, or all that the viewer may see."""
    texts = reader.texts
    if query.tape and not query.session:  # what an erasure left of a chat: no call names a tape
        return [Paragraph(texts.say("panel_usage_none"))]
    tape = reader.tapes.open_tape(BUDGET_TAPE)
    reporter: UsageReporter = reader.settings(tape, lambda: reader.now, reader.zone)
    asked = query.params.get("period", "")
    period = cast("Period", asked if asked in get_args(Period) else "month")
    spending = await reporter.read_spending(period, query.session)
    names = await NameBook.read(reader.tapes, texts, query.session)
    named = spending.with_names(names)
    periods = tuple(
        PanelLink(format_period(texts, each), params={"period": each}) for each in get_args(Period) if each != period
    )
    blocks: list[Block] = [
        Paragraph(reporter.format_summary(texts, period, named, query.session), links=periods),
        *(Paragraph(note, "warning") for note in reporter.format_notes(texts, spending.total)),
    ]
    if not query.session and reader.tapes.viewer.sees_all:  # the state of budgets counts every chat
        blocks += [Paragraph(line) for line in await reporter.report_limits(texts, names=names)]
    if spending.total.calls:
        blocks += await _draw(reader, query, reporter, period, named)
        sums = {name: spending.by[name] for name in _dimensions(query)}
        blocks += [_table(reader, reporter, name, parts) for name, parts in sums.items() if parts]
    return blocks


def _dimensions(query: PanelQuery) -> list[str]:
    """Return the tables: in a chat all calls are of this chat."""
    return [name for name in SPENDING_DIMENSIONS if not (query.session and name == "chat")]


async def _draw(
    reader: PanelReader, query: PanelQuery, reporter: UsageReporter, period: Period, spending: SpendingReport
) -> list[Block]:
    """Build a chart for each table; asked for a picture, let matplotlib draw them, which takes a second."""
    texts = reader.texts
    by = _dimensions(query)
    drawing = build_chart(reporter, texts, period, spending, by=by, chat=query.session)
    charts: list[Block] = [
        Chart(
            panel.title[0],
            panel.kind,
            tuple(ChartPoint(row.label[0], row.value, row.amount[0]) for row in panel.rows),
        )
        for panel in drawing.panels
    ]
    if not charts_are_installed():
        return charts
    if query.params.get("drawn") != "yes":
        link = PanelLink(texts.say("panel_usage_draw"), params={"period": period, "drawn": "yes"})
        return [*charts, Paragraph("", links=(link,))]
    try:
        drawn = await draw_chart(texts, replace(drawing, format="svg"))
    except ToolFailed as error:
        return [*charts, Paragraph(str(error), "warning")]
    points = tuple(point for each in charts if isinstance(each, Chart) for point in each.points)
    return [Chart(drawing.title[0], "bars", points, drawn.image), *map(Paragraph, drawn.format_numbered(texts))]


def _label(by: str, name: str) -> Cell:
    """Return a chat as a link, and a person by the name that people know."""
    return TapeLink(name, session=name) if by == "chat" else PersonName(name) if by == "user" else name


def _table(reader: PanelReader, reporter: UsageReporter, by: str, sums: Mapping[str, UsageSum]) -> Table:
    texts = reader.texts
    columns = tuple(
        map(texts.say, ("panel_name", "panel_cost", "panel_calls", "panel_input", "panel_cached", "panel_output"))
    )
    rows: list[tuple[Cell, ...]] = [
        (
            _label(by, name),
            Number(usage.cost_nanousd, text=reporter.format_cost(texts, usage)),
            Number(usage.calls),
            Number(usage.input_tokens),
            Number(usage.cached_tokens),
            Number(usage.output_tokens),
        )
        for name, usage in list(sums.items())[:MAX_ROWS]
    ]
    return Table(format_heading(texts, by).rstrip(":："), columns, tuple(rows))


PANELS = (
    Panel("usage", "Usage", "session", read_usage, (CALLS,)),
    Panel("usage", "Usage and budgets", "deployment", read_usage, (CALLS,)),
)
