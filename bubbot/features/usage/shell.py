"""The command `bubbot usage`: calls of models and their costs. Its settings build the reporter of a budget tape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from bubbot.features.usage.spending import SPENDING_DIMENSIONS, UsageSum, UsageTotals
from bubbot.features.usage.tools import Period, UsageReporter
from bubbot.log import printable
from bubbot.ports.command import Argument, CommandContext, CommandGroup, CommandResult, command
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


class ReportUsage(ToolArgs):
    """Which calls, and how they are reported."""

    period: Annotated[Period, Argument("default: day")] = "day"
    by: Annotated[
        Literal["chat", "user", "job", "model", "day"] | None, Argument("only this table (default: all)")
    ] = None  # fmt: skip
    chat: Annotated[str, Argument("only this chat, such as telegram:42", "CHAT", parse_chat)] = ""
    positional: ClassVar[tuple[str, ...]] = ("period",)


@dataclass(frozen=True, slots=True)
class UsageResult:
    """Model calls and their cost.

    Attributes:
        period: the period.
        since: its first day in the time zone of the bot, YYYY-MM-DD; empty for all.
        tape: the tape of the entries in `reservations`.
        total: all calls.
        by: the tables `chat`, `user`, `job`, `model` and `day`; in each the calls by name.
    """

    period: Period
    since: str
    tape: str
    total: UsageTotals
    by: Mapping[str, Mapping[str, UsageTotals]]


def report_nothing(_settings: Any, args: ReportUsage) -> CommandResult:
    """Report that nothing was spent."""
    tables = _tables(args)
    data = UsageResult(args.period, "", BUDGET_TAPE, UsageSum().totals(), {table: {} for table in tables})
    return CommandResult(Texts().say("usage_none") + "\n", data=json_data(data))


def _tables(args: ReportUsage) -> list[str]:
    return [args.by] if args.by else [name for name in SPENDING_DIMENSIONS if name != "day" or args.period != "day"]


@command("usage", example="usage month --by user", on_missing_home=report_nothing, result=UsageResult)
async def report(context: CommandContext, args: ReportUsage) -> CommandResult:
    """Report the spending and the limits of budgets."""
    reporter: UsageReporter = context.settings(context.open_tape(BUDGET_TAPE), context.now, context.zone)
    period = args.period
    spending = await reporter.read_spending(period, args.chat)
    tables = _tables(args)
    texts = Texts()
    lines = [*reporter.format_report(texts, period, spending, tables, 10**9)]
    limits = await reporter.report_limits(texts, [("chat", args.chat)] if args.chat else None)
    lines += [texts.say("usage_limits"), *limits] if limits else []
    by = {table: {name: calls.totals() for name, calls in spending.by[table].items()} for table in tables}
    data = UsageResult(period, reporter.period_start(period), BUDGET_TAPE, spending.total.totals(), by)
    return CommandResult(printable("\n".join(lines), keep="\n") + "\n", data=json_data(data))


USAGE_COMMANDS = CommandGroup(
    "usage",
    (report,),
    "Show model calls and their cost by chat, person, job, model and day, and how much of each budget is used. "
    "Read-only; works while the bot runs.",
)
