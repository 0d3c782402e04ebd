"""`bubbot usage`: which models were asked, for whom, and what that cost."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from bubbot.cli.output import escape_json, show
from bubbot.cli.session_names import service
from bubbot.cli.setup import CommandSetup, setup
from bubbot.errors import StoreUnavailable
from bubbot.log import printable
from bubbot.texts import Texts
from bubbot.tools.usage import Period, UsageReporter
from bubbot.views.budget import BUDGET_TAPE
from bubbot.views.spending import BY, SpendingReport
from bubbot.wiring.app import new_id, now, open_tapes
from bubbot.wiring.budget import ledger_of, plan_of
from bubbot.wiring.channel_factory import Deps


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = (
        "Show what models were asked and what that cost, by chat, person, job, model and day, and how much of each "
        "budget is used. It only reads, and works beside a running bot."
    )
    parser.epilog = "example: bubbot usage month --by user"
    parser.add_argument("period", nargs="?", choices=("day", "month", "all"), default="day", help="day where left out")
    parser.add_argument("--by", choices=BY, help="only this table; all of them where left out")
    parser.add_argument("--chat", type=_chat, default=None, metavar="CHAT", help="only this chat, such as telegram:42")
    parser.add_argument("--json", action="store_true", help="one JSON object, with the entries that each sum cites")


def run(args: argparse.Namespace) -> int:
    """Prints the report."""
    show(asyncio.run(_read(setup(args), args)))
    return 0


def _chat(text: str) -> str:
    channel, _, chat = text.partition(":")
    if not channel.strip() or not chat.strip(": "):
        raise argparse.ArgumentTypeError(f"{text!r} is no chat; give its channel and its id, such as telegram:42")
    return text


async def _read(made: CommandSetup, args: argparse.Namespace) -> str:
    plan = plan_of(made.settings)
    try:
        async with open_tapes(made.home) as (store, _):
            ledger = ledger_of(made.settings, service(store, BUDGET_TAPE), Deps(now, new_id), plan)
            return await _told(ledger, args)
    except StoreUnavailable:
        if made.home.database.exists():
            raise
        return json.dumps({"total": None}) if args.json else Texts().say("usage_none")


async def _told(ledger: UsageReporter, args: argparse.Namespace) -> str:
    period: Period = args.period
    found = await ledger.spending(period, args.chat or "")
    words = [args.by] if args.by else [word for word in BY if word != "day" or period != "day"]
    if args.json:
        return escape_json(json.dumps(_as_json(ledger, period, found, words), ensure_ascii=False))
    texts = Texts()
    lines = [*ledger.report(texts, period, found, words, 10**9)]
    limits = await ledger.limits(texts, [("chat", args.chat)] if args.chat else None)
    return printable("\n".join([*lines, *([texts.say("usage_limits"), *limits] if limits else [])]), keep="\n")


def _as_json(ledger: UsageReporter, period: Period, found: SpendingReport, words: list[str]) -> dict[str, Any]:
    return {
        "period": period,
        "since": ledger.since(period),
        "tape": BUDGET_TAPE,
        "total": found.total.as_json(),
        "by": {word: {name: one.as_json() for name, one in found.by[word].items()} for word in words},
    }
