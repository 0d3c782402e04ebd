"""The command `bubbot usage`: calls of models and their costs. Its settings build the reporter of a budget tape."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from bubbot.errors import ConfigError
from bubbot.features.usage.bars import format_bars
from bubbot.features.usage.reporter import Period, UsageReporter, format_period
from bubbot.features.usage.spending import SPENDING_DIMENSIONS, SpendingReport, UsageSum, UsageTotals
from bubbot.gateway.names import NameBook
from bubbot.log import printable
from bubbot.ports.command import Argument, CommandContext, CommandGroup, CommandResult, command
from bubbot.ports.session_names import read_current_sessions
from bubbot.ports.tool import ToolArgs
from bubbot.ports.usage import BUDGET_TAPE
from bubbot.records import dataclass, json_data
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
    positional: ClassVar[tuple[str, ...]] = ("period",)

    @property
    def shown_period(self) -> Period:
        """The period that was typed; a chart of one day would have no days."""
        return "month" if self.chart and "period" not in self.model_fields_set else self.period


@dataclass(frozen=True, slots=True)
class UsageResult:
    """Model calls and their cost.

    Attributes:
        period: the period.
        since: its first day in the time zone of the bot, YYYY-MM-DD; empty for all.
        tape: the tape of the entries in `reservations`.
        answers: the turns in which a model wrote something.
        total: all calls.
        by: the tables `chat`, `user`, `job`, `model` and `day`; in each the calls by name.
    """

    period: Period
    since: str
    tape: str
    answers: int
    total: UsageTotals
    by: Mapping[str, Mapping[str, UsageTotals]]


def report_nothing(_settings: Any, args: ReportUsage) -> CommandResult:
    """Report that nothing was spent."""
    texts = Texts()
    text = texts.say("usage_none", period=format_period(texts, args.shown_period)) + "\n"
    tables = _tables(args)
    data = UsageResult(args.shown_period, "", BUDGET_TAPE, 0, UsageSum().totals(), {table: {} for table in tables})
    return CommandResult(text, code=1 if args.chart else 0, data=json_data(data))


def _tables(args: ReportUsage) -> list[str]:
    return (
        [args.by] if args.by else [name for name in SPENDING_DIMENSIONS if name != "day" or args.shown_period != "day"]
    )


@command("usage", example="usage month --by user", on_missing_home=report_nothing, result=UsageResult)
async def report(context: CommandContext, args: ReportUsage) -> CommandResult:
    """Report the spending and the limits of budgets."""
    current_session = await read_current_sessions(context.store)
    reporter: UsageReporter = context.settings(
        context.open_tape(BUDGET_TAPE), context.now, context.zone, current_session
    )
    if args.chat:
        args = args.model_copy(update={"chat": await context.first_session(args.chat)})
    period = args.shown_period
    spending = await reporter.read_spending(period, args.chat)
    tables = _tables(args)
    by = {table: {name: calls.totals() for name, calls in spending.by[table].items()} for table in tables}
    total = spending.total.totals()
    data = UsageResult(period, reporter.period_start(period), BUDGET_TAPE, spending.answers, total, by)
    texts = Texts()
    places = [*spending.by["chat"], *spending.by["user"]]
    names = await NameBook.find(context.store, texts, places)
    spending = spending.with_names(names)
    if args.chart:
        return replace(await _draw(reporter, args, spending, tables), data=json_data(data))
    lines = [reporter.format_summary(texts, period, spending, args.chat)]
    if context.terminal_width:
        lines += format_bars(reporter, texts, spending, tables, context.terminal_width)
        lines += reporter.format_notes(texts, spending.total)
    else:
        lines += reporter.format_report(texts, spending, tables, 10**9)
    limits = await reporter.report_limits(texts, [("chat", args.chat)] if args.chat else None, names)
    lines += [texts.say("usage_limits"), *limits] if limits else []
    return CommandResult(printable("\n".join(lines), keep="\n") + "\n", data=json_data(data))


async def _draw(
    reporter: UsageReporter, args: ReportUsage, spending: SpendingReport, tables: list[str]
) -> CommandResult:
    # Imported here: few of these commands draw.
    from bubbot.features.usage.chart import build_chart, charts_are_installed, draw_chart, format_install_command

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


USAGE_COMMANDS = CommandGroup(
    "usage",
    (report,),
    "Show model calls and their cost by chat, person, job, model and day, and how much of each budget is used: "
    "as bars in a terminal, as text in a pipe, or as a chart. Read-only; works while the bot runs.",
    "show model calls and their cost",
)
