"""The command that reports model calls and their cost in a chat, as text or as a chart."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field, model_validator

from bubbot.errors import ToolFailed
from bubbot.features.usage.reporter import Period, UsageReporter
from bubbot.features.usage.spending import SPENDING_DIMENSIONS, SpendingReport
from bubbot.gateway.names import NameBook
from bubbot.ports.channel import OutboundFile
from bubbot.ports.tool import READS_OWN, CommandHelp, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn

MAX_USAGE_ROWS = 20
"""Rows of one table at most; the shell shows all."""


class UsageArgs(ToolArgs):
    """The arguments of `session.usage`. Plain words are a period, the word `chart`, or both in any order."""

    period: Period = Field(default="day", description="day (default), month, or all")
    chart: bool = Field(default=False, description="send a chart, of this month by default")
    positional: ClassVar[tuple[str, ...]] = ("period",)

    @model_validator(mode="before")
    @classmethod
    def _parse_chart(cls, arguments: Any) -> Any:
        """Read the word `chart` among the plain words."""
        words = str(arguments.get("period", "")).split()
        if "chart" not in words:
            return arguments
        words.remove("chart")
        return {**arguments, "chart": True, "period": " ".join(words) or "month"}


def usage_tool(reporter: UsageReporter) -> Tool:
    """Build `session.usage` for the budget tape."""
    drawing = asyncio.Lock()  # one chart at a time: each takes the memory of a process

    async def send_chart(
        turn: Turn, period: Period, spending: SpendingReport, by: Sequence[str], chat: str
    ) -> list[str]:
        # Imported here: few processes draw one.
        from bubbot.features.usage.chart import build_chart, charts_are_installed, draw_chart, format_install_command

        if not charts_are_installed():
            if turn.has_power_over_other_chats:
                raise ToolFailed(turn.texts.say("usage_no_charts", command=format_install_command()))
            raise ToolFailed(turn.texts.say("usage_no_charts_here"))
        async with drawing:
            drawn = await draw_chart(turn.texts, build_chart(reporter, turn.texts, period, spending, by=by, chat=chat))
        digest = await turn.tape.put_blob(drawn.image)
        turn.files.append(OutboundFile(f"usage-{reporter.period_start('day')}.png", "image/png", digest=digest))
        return [*drawn.format_numbered(turn.texts)]

    @tool(
        "session.usage",
        effect=READS_OWN,
        commands=("usage",),
        for_model=False,
        help=CommandHelp(
            HelpTopic.HISTORY, "What answers cost", (",usage", ",usage month", ",usage chart"), words=("cost",)
        ),
    )
    async def session_usage(turn: Turn, args: UsageArgs) -> str:
        """Say what models were asked here and what that cost; to the owner, in a direct chat, everything."""
        here = ":".join(turn.session.split(":", 2)[:2])
        everything = turn.has_power_over_other_chats
        chat = "" if everything else here
        spending = await reporter.read_spending(args.period, chat)
        places = [*spending.by["chat"], *spending.by["user"]] if everything else []  # a group is told its own sums only
        names = await NameBook.find(turn.tape, turn.texts, places)
        spending = spending.with_names(names)
        groupings = SPENDING_DIMENSIONS if everything else ("model", "day")
        by = [grouping for grouping in groupings if grouping != "day" or args.period != "day"]
        summary = reporter.format_summary(turn.texts, args.period, spending, chat)
        if args.chart and spending.total.calls:
            return "\n".join([summary, *await send_chart(turn, args.period, spending, by, chat)])
        lines = [summary, *reporter.format_report(turn.texts, spending, by, MAX_USAGE_ROWS, has_bars=True)]
        person = f"{turn.session.partition(':')[0]}:{turn.sender.id}"
        limits = await reporter.report_limits(
            turn.texts, None if everything else (("chat", here), ("user", person)), names
        )
        return "\n".join([*lines, *([turn.texts.say("usage_limits"), *limits[:MAX_USAGE_ROWS]] if limits else [])])

    return session_usage
