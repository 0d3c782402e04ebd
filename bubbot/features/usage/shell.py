"""The command `bubbot usage`: calls of models and their costs. Its settings build the reporter of a budget tape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from bubbot.errors import ConfigError
from bubbot.features.usage.bars import format_bars
from bubbot.features.usage.reporter import Period, UsageReporter, format_period
from bubbot.features.usage.spending import SPENDING_DIMENSIONS, SpendingReport
from bubbot.log import printable
from bubbot.ports.command import Argument, CommandContext, CommandGroup, CommandResult, command
from bubbot.ports.text import escape_json
from bubbot.ports.tool import ToolArgs
from bubbot.ports.usage import BUDGET_TAPE
from bubbot.texts import Texts


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


class ReportUsage(ToolArgs):
    """Which calls, and how they are reported."""

    period: Annotated[Period, Argument("default: day")] = "day"
    by: Annotated[
        Literal["chat", "user", "job", "model", "day"] | None, Argument("only this table (default: all)")
    ] = None  # fmt: skip
    chat: Annotated[str, Argument("only this chat, such as telegram:42", "CHAT", parse_chat)] = ""
    chart: Annotated[
        str, Argument("draw a chart into this new file, a .png or .svg (default period: month)", "FILE", parse_chart_file)
    ] = ""  # fmt: skip
    json_: Annotated[bool, Argument("one JSON object, with the entries that each sum cites")] = False
    positional: ClassVar[tuple[str, ...]] = ("period",)

    @property
    def shown_period(self) -> Period:
        """The period that was typed; a chart of one day would have no days."""
        return "month" if self.chart and "period" not in self.model_fields_set else self.period


def report_nothing(_settings: Any, args: ReportUsage) -> CommandResult:
    """Report that nothing was spent."""
    texts = Texts()
    none = texts.say("usage_none", period=format_period(texts, args.shown_period))
    return CommandResult((json.dumps({"total": None}) if args.json_ else none) + "\n", code=1 if args.chart else 0)


@command("usage", example="usage month --by user", on_missing_home=report_nothing)
async def report(context: CommandContext, args: ReportUsage) -> CommandResult:
    """Report the spending and the limits of budgets."""
    reporter: UsageReporter = context.settings(context.open_tape(BUDGET_TAPE), context.now, context.zone)
    period = args.shown_period
    spending = await reporter.read_spending(period, args.chat)
    tables: list[str] = (
        [args.by] if args.by else [name for name in SPENDING_DIMENSIONS if name != "day" or period != "day"]
    )
    if args.chart:
        return await _draw(reporter, args, spending, tables)
    if args.json_:
        data = json.dumps(_as_json(reporter, period, spending, tables), ensure_ascii=False)
        return CommandResult(f"{escape_json(data)}\n")
    texts = Texts()
    lines = [reporter.format_summary(texts, period, spending, args.chat)]
    if context.terminal_width:
        lines += format_bars(reporter, texts, spending, tables, context.terminal_width)
        lines += reporter.format_notes(texts, spending.total)
    else:
        lines += reporter.format_report(texts, spending, tables, 10**9)
    limits = await reporter.report_limits(texts, [("chat", args.chat)] if args.chat else None)
    lines += [texts.say("usage_limits"), *limits] if limits else []
    return CommandResult(printable("\n".join(lines), keep="\n") + "\n")


async def _draw(
    reporter: UsageReporter, args: ReportUsage, spending: SpendingReport, tables: list[str]
) -> CommandResult:
    # Imported here: few of these commands draw.
    from bubbot.features.usage.chart import build_chart, charts_are_installed, draw_chart, format_install_command

    if args.json_:
        raise ConfigError("usage draws a chart or prints JSON: leave out --chart or --json")
    texts, period = Texts(), args.shown_period
    summary = reporter.format_summary(texts, period, spending, args.chat)
    if not any(spending.by[table] for table in tables):
        nothing = f"There is nothing to draw by {args.by}.\n" if spending.total.calls else ""
        return CommandResult(f"{summary}\n{nothing}", code=1)
    if not charts_are_installed():
        raise ConfigError(texts.say("usage_no_charts", command=format_install_command()))
    chart = build_chart(reporter, texts, period, spending, by=tables, chat=args.chat)
    drawn = await draw_chart(texts, {**chart, "format": args.chart[-3:].lower()})
    lines = [summary, *drawn.format_numbered(texts)]
    return CommandResult(printable("\n".join(lines), keep="\n") + "\n", file=args.chart, content=drawn.image)


def _as_json(reporter: UsageReporter, period: Period, report: SpendingReport, tables: list[str]) -> dict[str, Any]:
    return {
        "period": period,
        "since": reporter.period_start(period),
        "tape": BUDGET_TAPE,
        "answers": report.answers,
        "total": report.total.as_json(),
        "by": {table: {name: spending.as_json() for name, spending in report.by[table].items()} for table in tables},
    }


USAGE_COMMANDS = CommandGroup(
    "usage",
    (report,),
    "Show model calls and their cost by chat, person, job, model and day, and how much of each budget is used: "
    "as bars in a terminal, as text in a pipe, or as a chart. Read-only; works while the bot runs.",
)
