"""Usage on the trace page: what model calls took and cost, as bars and as tables, and what is left of the budgets."""

from __future__ import annotations

from base64 import b64encode
from typing import cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from bubbot.errors import CommandFailed
from bubbot.features.usage.chart import Drawing, build_chart, charts_are_installed, draw_chart
from bubbot.features.usage.reporter import Period, UsageReporter, format_heading, format_period
from bubbot.features.usage.spending import SPENDING_DIMENSIONS, UsageSum
from bubbot.gateway.names import NameBook
from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.ports.usage import BUDGET_TAPE
from bubbot.tape.boundary import SharedTape

CALLS = SharedTape(BUDGET_TAPE)
MAX_ROWS = 50


class SpendingTable(Struct, frozen=True):
    """A part of the spending: each row has a name, its sum, and the cost as people read it."""

    by: str
    title: str
    rows: tuple[tuple[str, UsageSum, str], ...]


class UsagePage(Struct, frozen=True):
    """The spending of a period.

    Attributes:
        period: the period.
        summary: one sentence; empty: nothing of it is known, as of what an erasure left of a chat.
        periods: the other periods, each with its name.
        warnings: what the sums do not say.
        limits: what is left of the budgets; empty for auditors, since it counts every chat.
        drawing: the charts; None without calls.
        can_draw: matplotlib is installed, and was not asked.
        picture: the charts as matplotlib drew them, an address that holds a whole SVG document. It is shown as an image, in
            which nothing runs and nothing is loaded. Empty if it was not asked or could not.
        notes: lines about the picture; `problem`: why there is none.
        tables: the parts of the spending.
    """

    period: Period
    summary: str = ""
    periods: tuple[tuple[Period, str], ...] = ()
    warnings: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    drawing: Drawing | None = None
    can_draw: bool = False
    picture: str = ""
    notes: tuple[str, ...] = ()
    problem: str = ""
    tables: tuple[SpendingTable, ...] = ()


async def read_usage(reader: PanelReader, query: PanelQuery) -> UsagePage:
    """Read the calls of a chat, or all that the viewer may see; asked for a picture, let matplotlib draw, for a second."""
    texts = reader.texts
    asked = query.params.get("period", "")
    period = cast("Period", asked if asked in get_args(Period) else "month")
    if query.tape and not query.session:  # what an erasure left of a chat: no call names a tape
        return UsagePage(period)
    tape = reader.tapes.open_tape(BUDGET_TAPE)
    reporter: UsageReporter = reader.settings(tape, lambda: reader.now, reader.zone)
    spending = await reporter.read_spending(period, query.session)
    names = await NameBook.read(reader.tapes, texts, query.session)
    named = spending.with_names(names)
    sees_limits = not query.session and reader.tapes.viewer.sees_all
    page = UsagePage(
        period,
        reporter.format_summary(texts, period, named, query.session),
        tuple((each, format_period(texts, each)) for each in get_args(Period) if each != period),
        tuple(reporter.format_notes(texts, spending.total)),
        tuple(await reporter.report_limits(texts, names=names)) if sees_limits else (),
    )
    if not spending.total.calls:
        return page
    by = [name for name in SPENDING_DIMENSIONS if not (query.session and name == "chat")]
    drawing = build_chart(reporter, texts, period, named, by=by, chat=query.session)
    tables = tuple(
        SpendingTable(
            name,
            format_heading(texts, name).rstrip(":："),
            tuple((each, usage, reporter.format_cost(texts, usage)) for each, usage in [*sums.items()][:MAX_ROWS]),
        )
        for name in by
        if (sums := spending.by[name])
    )
    page = replace(page, drawing=drawing, tables=tables, can_draw=charts_are_installed())
    if not page.can_draw or query.params.get("drawn") != "yes":
        return page
    try:
        drawn = await draw_chart(replace(drawing, format="svg"))
    except CommandFailed as error:
        return replace(page, can_draw=False, problem=texts.say(error.code, **error.values))
    picture = f"data:image/svg+xml;base64,{b64encode(drawn.image).decode()}"
    return replace(page, can_draw=False, picture=picture, notes=tuple(drawn.format_numbered(texts)))


PANELS = (
    Panel("usage", "Usage", "session", read_usage, "bubbot.features.usage:usage.html", (CALLS,)),
    Panel("usage", "Usage and budgets", "deployment", read_usage, "bubbot.features.usage:usage.html", (CALLS,)),
)
