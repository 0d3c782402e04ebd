"""The command that reports model calls and their cost: as text, as bars, or as a chart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from bubbot.arguments.fields import Args
from bubbot.command import Caller, Surface, command, make_group
from bubbot.errors import ValueInvalid
from bubbot.features.usage import chart as charts
from bubbot.features.usage.chart import DrawnChart
from bubbot.features.usage.reporter import Period, UsageReporter
from bubbot.features.usage.spending import SPENDING_DIMENSIONS, SpendingReport, UsageTotals
from bubbot.gateway.names import NameBook
from bubbot.ports.channel import OutboundFile
from bubbot.ports.session_names import read_current_sessions
from bubbot.ports.turn import Turn
from bubbot.ports.usage import BUDGET_TAPE
from bubbot.shell_command import Argument, CommandContext
from bubbot.texts import Texts
from bubbot.tool import READS_OWN, CommandHelp, HelpTopic

MAX_USAGE_ROWS = 20
"""Rows of one table at most; the shell shows all."""


def parse_chat(text: str) -> str:
    """Check that a text is a chat. Raise `ValueError`."""
    channel, _, chat = text.partition(":")
    if not channel.strip() or not chat.strip(": "):
        raise ValueError(f"{text!r} is not a chat: use its channel and id, such as telegram:42")
    return text


def parse_chart_file(text: str) -> str:
    """Check that a text names an image. Raise `ValueError`."""
    if Path(text).suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"{text!r} is not a name of a chart: end it in .png or .svg")
    return text


class UsageArgs(Args, frozen=True):
    """Which calls of this chat or, for an owner, of all chats."""

    period: Annotated[Period, Meta(description="day (default), month, or all")] = "day"
    chart: Annotated[bool, Meta(description="send a chart, of this month by default")] = False

    @classmethod
    def normalize(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the word `chart` before or after the period."""
        words = str(values.get("period", "")).split()
        if "chart" not in words:
            return values
        words.remove("chart")
        return {**values, "chart": True, "period": " ".join(words) or "month"}


class UsageReportArgs(Args, frozen=True):
    """Which calls, and how a shell reports them."""

    period: Annotated[Period | UnsetType, Argument("default: day")] = UNSET
    by: Annotated[
        Literal["chat", "user", "job", "agent", "model", "day"] | None, Argument("only this table (default: all)")
    ] = None  # fmt: skip
    chat: Annotated[str, Argument("only this chat, such as telegram:42", "CHAT", parse_chat)] = ""
    chart: Annotated[
        str, Argument("draw a chart into this new file, a .png or .svg (default period: month)", "FILE", parse_chart_file)
    ] = ""  # fmt: skip


class UsageResult(Struct, frozen=True):
    """Model calls and their cost.

    Attributes:
        period: the period.
        since: its first day in the time zone of the bot, YYYY-MM-DD; empty for all.
        tape: the tape of the entries in `reservations`.
        answers: the turns in which a model wrote something.
        total: all calls.
        by: the tables `chat`, `user`, `job`, `agent`, `model` and `day`; in each the calls by name.
    """

    period: Period
    since: str
    tape: str
    answers: int
    total: UsageTotals
    by: Mapping[str, Mapping[str, UsageTotals]]


class UsageReport(UsageResult, frozen=True, kw_only=True):
    """The same with what people are shown.

    Attributes:
        reporter: formats the lines.
        spending: the calls, with the names that people know.
        chat: the only chat of the calls; empty for all.
        limits: a line for each budget.
        chart_by: the table of the chart that was asked for, or `all`; empty for no chart.
        chart: the chart; None if none was drawn.
        file: the new file of the chart, in a shell.
    """

    reporter: UsageReporter
    spending: SpendingReport
    chat: str = ""
    limits: Sequence[str] = ()
    chart_by: str = ""
    chart: DrawnChart | None = None
    file: str | None = None

    @property
    def content(self) -> bytes:
        """The image for the file."""
        return self.chart.image if self.chart and self.file else b""

    @property
    def exit_code(self) -> int:
        """1 if there was nothing to draw."""
        return 1 if self.chart_by and self.chart is None else 0

    def describe(self, caller: Caller) -> str:
        """Return the summary, and below it the chart's numbers or the tables and the budgets."""
        texts = caller.texts
        lines = [self.reporter.format_summary(texts, self.period, self.spending, self.chat)]
        if self.chart:
            lines += self.chart.format_numbered(texts)
        elif self.chart_by and self.spending.total.calls:
            lines.append(texts.say("usage_nothing_to_draw", table=self.chart_by))
        elif not self.chart_by:
            lines += self._format_tables(caller)
            shown = self.limits if caller.turn is None else self.limits[:MAX_USAGE_ROWS]
            lines += [texts.say("usage_limits"), *shown] if shown else []
        return "\n".join(lines)

    def _format_tables(self, caller: Caller) -> list[str]:
        texts, by, reporter = caller.texts, [*self.by], self.reporter
        width = caller.context.terminal_width if caller.context else 0
        if caller.surface is not Surface.SHELL:
            return [*reporter.format_report(texts, self.spending, by, MAX_USAGE_ROWS, has_bars=True)]
        if not width:
            return [*reporter.format_report(texts, self.spending, by, 10**9)]
        notes = reporter.format_notes(texts, self.spending.total)
        return [*reporter.format_bars(texts, self.spending, by, width), *notes]


class UsageCommands:
    """The command, over the budget tape.

    Attributes:
        reporter: reads the tape.
        drawing: held while a chart is drawn: each takes the memory of a process.
    """

    def __init__(self, reporter: UsageReporter, drawing: asyncio.Lock | None = None) -> None:
        self.reporter, self.drawing = reporter, drawing or asyncio.Lock()

    @command(
        "usage [period]",
        chat=("session.usage", "usage"),
        form="[period]",
        example="month --by user",
        effect=READS_OWN,
        help=CommandHelp(
            HelpTopic.HISTORY, "What answers cost", (",usage", ",usage month", ",usage chart"), words=("cost",)
        ),
    )
    async def report(self, caller: Caller, args: UsageArgs | UsageReportArgs) -> UsageResult:
        """Say what models were asked here and what that cost; to the owner, in a direct chat, everything."""
        if isinstance(args, UsageReportArgs):
            return await self._report_in_shell(caller, args)
        return await self._report_in_chat(caller, caller.required_turn, args)

    async def _report_in_chat(self, caller: Caller, turn: Turn, args: UsageArgs) -> UsageReport:
        here = ":".join(turn.session.split(":", 2)[:2])
        chat, person = "" if caller.has_power else here, f"{caller.channel}:{turn.sender.id}"
        tables = SPENDING_DIMENSIONS if caller.has_power else ("agent", "model", "day")
        report = await self._read(args.period, chat, _without_day(tables, args.period))
        spending = report.spending
        names = await NameBook.find(turn.tape, caller.texts, _places(spending) if caller.has_power else ())
        report = replace(report, spending=spending.with_names(names))
        if args.chart and spending.total.calls:
            drawn = await self._draw(caller.texts, report, may_install=caller.has_power)
            digest = await turn.tape.put_blob(drawn.image)
            name = f"usage-{self.reporter.period_start('day')}.png"
            turn.files.append(OutboundFile(name, "image/png", digest=digest))
            return replace(report, chart_by="all", chart=drawn)
        scopes = None if caller.has_power else (("chat", here), ("user", person))
        return replace(report, limits=await self.reporter.report_limits(caller.texts, scopes, names))

    async def _report_in_shell(self, caller: Caller, args: UsageReportArgs) -> UsageReport:
        assert caller.context is not None
        period: Period = ("month" if args.chart else "day") if args.period is UNSET else args.period
        chat = await caller.context.first_session(args.chat) if args.chat else ""
        report = await self._read(period, chat, [args.by] if args.by else _without_day(SPENDING_DIMENSIONS, period))
        spending = report.spending
        names = await NameBook.find(caller.context.store, caller.texts, _places(spending))
        report = replace(report, spending=spending.with_names(names))
        if not args.chart:
            scopes = [("chat", chat)] if chat else None
            return replace(report, limits=await self.reporter.report_limits(caller.texts, scopes, names))
        report = replace(report, chart_by=args.by or "all")
        if not any(spending.by[table] for table in report.by):
            return report
        drawn = await self._draw(
            caller.texts, report, image_format="svg" if args.chart.lower().endswith("svg") else "png"
        )
        return replace(report, chart=drawn, file=args.chart)

    async def _read(self, period: Period, chat: str, tables: Sequence[str]) -> UsageReport:
        spending = await self.reporter.read_spending(period, chat)
        return UsageReport(
            period,
            self.reporter.period_start(period),
            BUDGET_TAPE,
            spending.answers,
            spending.total.totals(),
            {table: {name: calls.totals() for name, calls in spending.by[table].items()} for table in tables},
            reporter=self.reporter,
            spending=spending,
            chat=chat,
        )

    async def _draw(
        self,
        texts: Texts,
        report: UsageReport,
        *,
        may_install: bool = True,
        image_format: Literal["png", "svg"] = "png",
    ) -> DrawnChart:
        if not charts.charts_are_installed():
            if may_install:
                raise ValueInvalid("usage_no_charts", command=charts.format_install_command())
            raise ValueInvalid("usage_no_charts_here")
        spending, by = report.spending, [*report.by]
        drawing = charts.build_chart(self.reporter, texts, report.period, spending, by=by, chat=report.chat)
        async with self.drawing:
            return await charts.draw_chart(replace(drawing, format=image_format))


def _without_day(tables: Sequence[str], period: Period) -> list[str]:
    """Return the tables without that of days if there is only one day."""
    return [name for name in tables if name != "day" or period != "day"]


def _places(spending: SpendingReport) -> list[str]:
    return [*spending.by["chat"], *spending.by["user"]]


async def open_usage(context: CommandContext) -> UsageCommands:
    """Return the command over the tapes of a home; its settings build the reporter."""
    current_session = await read_current_sessions(context.store)
    reporter = context.settings(context.open_tape(BUDGET_TAPE), context.now, context.zone, current_session)
    return UsageCommands(reporter)


COMMANDS = make_group(
    "usage",
    UsageCommands,
    open_usage,
    "Show model calls and their cost by chat, person, job, agent, model and day, and how much of each budget is used: "
    "as bars in a terminal, as text in a pipe, or as a chart. Read-only; works while the bot runs.",
    section="Look",
    help_line="show model calls and their cost",
)
