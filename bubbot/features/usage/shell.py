"""The command `bubbot usage`: calls of models and their costs. Its settings build the reporter of a budget tape."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

from bubbot.features.usage.spending import SPENDING_DIMENSIONS, SpendingReport
from bubbot.features.usage.tools import Period, UsageReporter
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


class ReportUsage(ToolArgs):
    """Which calls, and how they are reported."""

    period: Annotated[Period, Argument("default: day")] = "day"
    by: Annotated[
        Literal["chat", "user", "job", "model", "day"] | None, Argument("only this table (default: all)")
    ] = None  # fmt: skip
    chat: Annotated[str, Argument("only this chat, such as telegram:42", "CHAT", parse_chat)] = ""
    json_: Annotated[bool, Argument("one JSON object, with the entries that each sum cites")] = False
    positional: ClassVar[tuple[str, ...]] = ("period",)


def report_nothing(_settings: Any, args: ReportUsage) -> CommandResult:
    """Report that nothing was spent."""
    return CommandResult((json.dumps({"total": None}) if args.json_ else Texts().say("usage_none")) + "\n")


@command("usage", example="usage month --by user", on_missing_home=report_nothing)
async def report(context: CommandContext, args: ReportUsage) -> CommandResult:
    """Report the spending and the limits of budgets."""
    reporter: UsageReporter = context.settings(context.open_tape(BUDGET_TAPE), context.now, context.zone)
    period = args.period
    spending = await reporter.read_spending(period, args.chat)
    tables: list[str] = (
        [args.by] if args.by else [name for name in SPENDING_DIMENSIONS if name != "day" or period != "day"]
    )
    if args.json_:
        data = json.dumps(_as_json(reporter, period, spending, tables), ensure_ascii=False)
        return CommandResult(f"{escape_json(data)}\n")
    texts = Texts()
    lines = [*reporter.format_report(texts, period, spending, tables, 10**9)]
    limits = await reporter.report_limits(texts, [("chat", args.chat)] if args.chat else None)
    lines += [texts.say("usage_limits"), *limits] if limits else []
    return CommandResult(printable("\n".join(lines), keep="\n") + "\n")


def _as_json(reporter: UsageReporter, period: Period, report: SpendingReport, tables: list[str]) -> dict[str, Any]:
    return {
        "period": period,
        "since": reporter.period_start(period),
        "tape": BUDGET_TAPE,
        "total": report.total.as_json(),
        "by": {table: {name: spending.as_json() for name, spending in report.by[table].items()} for table in tables},
    }


USAGE_COMMANDS = CommandGroup(
    "usage",
    (report,),
    "Show model calls and their cost by chat, person, job, model and day, and how much of each budget is used. "
    "Read-only; works while the bot runs.",
)
