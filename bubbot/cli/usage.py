"""`bubbot usage`: calls of models and their costs, by chat, person, job, model and day."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any
from zoneinfo import ZoneInfo

from bubbot.app.bot import now, open_tapes
from bubbot.app.budget import model_facts
from bubbot.cli.output import escape_json, show
from bubbot.cli.session_names import tape_service
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.errors import StoreUnavailable
from bubbot.features.budget.limits import budget_limits
from bubbot.features.budget.report import LimitReporter
from bubbot.features.usage.spending import SPENDING_DIMENSIONS, SpendingReport
from bubbot.features.usage.tools import Period, UsageReporter
from bubbot.log import printable
from bubbot.ports.usage import BUDGET_TAPE, Currency
from bubbot.texts import Texts


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's help texts and options."""
    parser.description = (
        "Show model calls and their cost by chat, person, job, model and day, and how much of each budget is used. "
        "Read-only; works while the bot runs."
    )
    parser.epilog = "example: bubbot usage month --by user"
    parser.add_argument("period", nargs="?", choices=("day", "month", "all"), default="day", help="default: day")
    parser.add_argument("--by", choices=SPENDING_DIMENSIONS, help="only this table (default: all)")
    parser.add_argument("--chat", type=_chat, default=None, metavar="CHAT", help="only this chat, such as telegram:42")
    parser.add_argument("--json", action="store_true", help="one JSON object, with the entries that each sum cites")


def run(args: argparse.Namespace) -> int:
    """Print the report."""
    show(asyncio.run(_read(load_setup(args), args)))
    return 0


def _chat(text: str) -> str:
    channel, _, chat = text.partition(":")
    if not channel.strip() or not chat.strip(": "):
        raise argparse.ArgumentTypeError(f"{text!r} is not a chat: use its channel and id, such as telegram:42")
    return text


async def _read(setup: CommandSetup, args: argparse.Namespace) -> str:
    settings = setup.settings
    limits = budget_limits(settings.budget, model_facts(settings))
    currency, zone = (
        Currency(settings.budget.currency, settings.budget.usd_rate or 1.0),
        ZoneInfo(settings.bot.timezone),
    )
    try:
        async with open_tapes(setup.home, setup.settings.store) as (store, _):
            tape = tape_service(store, BUDGET_TAPE)
            limit_reporter = LimitReporter(tape, limits, lambda: now().astimezone(zone).strftime("%Y-%m-%d"), currency)
            return await _render(UsageReporter(tape, now, zone, limit_reporter.report_limits, currency), args)
    except StoreUnavailable:
        if setup.home.database.exists():
            raise
        return json.dumps({"total": None}) if args.json else Texts().say("usage_none")


async def _render(reporter: UsageReporter, args: argparse.Namespace) -> str:
    period: Period = args.period
    report = await reporter.read_spending(period, args.chat or "")
    tables = [args.by] if args.by else [table for table in SPENDING_DIMENSIONS if table != "day" or period != "day"]
    if args.json:
        return escape_json(json.dumps(_as_json(reporter, period, report, tables), ensure_ascii=False))
    texts = Texts()
    lines = [*reporter.format_report(texts, period, report, tables, 10**9)]
    limits = await reporter.report_limits(texts, [("chat", args.chat)] if args.chat else None)
    return printable("\n".join([*lines, *([texts.say("usage_limits"), *limits] if limits else [])]), keep="\n")


def _as_json(reporter: UsageReporter, period: Period, report: SpendingReport, tables: list[str]) -> dict[str, Any]:
    return {
        "period": period,
        "since": reporter.period_start(period),
        "tape": BUDGET_TAPE,
        "total": report.total.as_json(),
        "by": {table: {name: spending.as_json() for name, spending in report.by[table].items()} for table in tables},
    }
