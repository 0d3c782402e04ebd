"""`bubbot schedule`: jobs of every chat, from the shell."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from bubbot.cli.output import show
from bubbot.cli.session_names import service
from bubbot.cli.setup import CommandSetup, setup
from bubbot.cli.write_command import perform
from bubbot.errors import ConfigError, ScheduleRefused, StoreUnavailable
from bubbot.log import printable
from bubbot.outbox import outbox_tape
from bubbot.schedule.changes import SCHEDULE_TAPE
from bubbot.schedule.formatter import JobFormatter
from bubbot.schedule.when import duration, parse_when, upcoming, zone_named
from bubbot.schedule.words import in_words, moment_words
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.texts import Texts
from bubbot.views.schedule import DeliveriesView, JobHistoryView
from bubbot.wiring.app import now, open_tapes

SCHEDULE_WRITE_ACTIONS = frozenset({"add", "edit", "pause", "resume", "run", "remove", "chat"})
"""The actions that write; the others work beside a running bot."""
JOB_OPTIONS = (
    "when", "prompt", "command", "text", "zone", "name", "catch_up", "catch_limit", "jitter", "until", "runs", "budget",
    "urgent", "nested", "to",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands."""
    parser.description = (
        "Plan what the bot is to be asked, to run or to say, once or again and again, and see what became of it. "
        "`bubbot run` keeps the time. List, show, history and next only read, and work beside a running bot."
    )
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, helps: str, example: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(
            name,
            help=helps,
            description=f"{helps[0].upper()}{helps[1:]}.",
            epilog=f"example: bubbot schedule {example}",
        )
        return made

    def job(of: argparse.ArgumentParser) -> None:
        of.add_argument("job", help="its id, the beginning of it, or its name; list shows them")

    action("list", "show the jobs of every chat", "list")
    commands.choices["list"].add_argument("--over", action="store_true", help="also those that have come to their end")
    job(action("show", "show everything about a job", "show 3fa9c1"))
    history = action("history", "tell when a job fired, ran, failed and was delivered", "history 3fa9c1")
    job(history)
    history.add_argument("--limit", type=int, default=20, metavar="N", help="how many facts, 20 where left out")
    coming = action("next", "say what a schedule means, without planning anything", "next '0 9 * * 1-5'")
    coming.add_argument("when", help="such as '0 9 * * 1-5', '@daily', 'every 90m' or 'at 2026-12-24 18:00'")
    coming.add_argument("--zone", metavar="ZONE", default="", help="IANA time zone; the bot's where left out")
    coming.add_argument("--count", type=int, default=5, metavar="N", help="how many times, 5 where left out")
    add = action("add", "plan a job in a chat", "add telegram:42 '0 9 * * 1-5' --text 'Stand-up!'")
    add.add_argument("session", help="the chat, such as telegram:42")
    add.add_argument("when", help="such as '0 9 * * 1-5', '@daily', 'every 90m' or 'at 2026-12-24 18:00'")
    _options(add)
    edit = action("edit", "change a job; what is left out stays", "edit 3fa9c1 --when 'every 2h'")
    job(edit)
    edit.add_argument("--when", metavar="WHEN", default=argparse.SUPPRESS, help="another schedule")
    _options(edit)
    job(action("pause", "pause a job", "pause 3fa9c1"))
    resume = action("resume", "let a paused job go on, or all that wait since the clock was ahead", "resume 3fa9c1")
    resume.add_argument("job", nargs="?", default="", help="a paused job; without one, all that wait for the clock")
    job(action("run", "run a job now, besides its schedule", "run 3fa9c1"))
    job(action("remove", "remove a job", "remove 3fa9c1"))
    chat = action("chat", "set the time zone and quiet hours of a chat", "chat telegram:42 --quiet 22:00-07:00")
    chat.add_argument("session", help="the chat, such as telegram:42")
    chat.add_argument("--zone", metavar="ZONE", default="", help="IANA time zone in which times are read there")
    chat.add_argument("--quiet", metavar="HOURS", default="", help="such as 22:00-07:00, or none")


def _options(of: argparse.ArgumentParser) -> None:
    def option(name: str, helps: str, **how: Any) -> None:
        of.add_argument(f"--{name}", default=argparse.SUPPRESS, help=helps, **({"metavar": "TEXT"} | how))

    option("prompt", "what the bot is to be asked")
    option("command", "a comma command to run, such as ,memory.show", dest="comma")
    option("text", "a text to send as it is, without asking a model")
    option("zone", "IANA time zone; the chat's where left out", metavar="ZONE")
    option("name", "a short name", metavar="NAME")
    option("catch-up", "what to do with missed firings", choices=("skip", "once", "all"), metavar="HOW")
    option("catch-limit", "how many --catch-up all does at most", type=int, metavar="N")
    option("jitter", "come up to this much later, such as 5m", type=_length, metavar="LENGTH")
    option("until", "the last day or time, such as 2026-12-31", metavar="DATE")
    option("runs", "how often it comes at most; 0 for no limit", type=int, metavar="N")
    option("budget", "how long it may take, such as 2m; 0 for no limit", type=_length, metavar="LENGTH")
    option("to", "another chat that gets the answer, such as telegram:42", metavar="SESSION")
    of.add_argument("--urgent", action="store_true", default=argparse.SUPPRESS, help="come in quiet hours too")
    of.add_argument("--nested", action="store_true", default=argparse.SUPPRESS, help="its turns may schedule too")


def _length(text: str) -> int:
    try:
        return 0 if text == "0" else duration(text)
    except ScheduleRefused as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(args: argparse.Namespace) -> int:
    """Runs one action."""
    made = setup(args)
    if args.action in SCHEDULE_WRITE_ACTIONS:
        # Loaded here: what only reads needs nothing of it.
        arguments = import_module("bubbot.cli.schedule_change").ChangeSchedule
        typed = {name: value for name, value in vars(args).items() if name != "command"}  # that is `schedule`
        if "comma" in typed:
            typed["command"] = typed.pop("comma")
        known = {name: value for name, value in typed.items() if name in arguments.__dataclass_fields__}
        given = tuple(name for name in JOB_OPTIONS if name in known)
        return asyncio.run(perform(made, "schedule", arguments(**known, given=given)))
    try:
        told = asyncio.run(_ACTIONS[args.action](made, args))
        show("\n".join(printable(line) for line in told.splitlines()))
    except ScheduleRefused as error:
        raise ConfigError(str(error)) from error
    return 0


async def _read(made: CommandSetup, then: Callable[[Any, Any, SqliteStore, Any], Awaitable[str]]) -> str:
    """Opens the tapes and reads the jobs; in a home without tapes there are none."""
    change = import_module("bubbot.cli.schedule_change")
    try:
        async with open_tapes(made.home) as (store, _):
            book = change.book_of(service(store, SCHEDULE_TAPE), made.settings)
            await book.load()
            teller = JobFormatter(Texts(), now(), made.settings.bot.timezone)
            return await then(change.changes_of(book), teller, store, book)
    except StoreUnavailable:
        if made.home.database.exists():
            raise
        return Texts().say("jobs_none")


async def _list(made: CommandSetup, args: argparse.Namespace) -> str:
    async def listed(changes: Any, teller: JobFormatter, _store: SqliteStore, _book: Any) -> str:
        return teller.listed(changes.listed(every=True, over=args.over), "")

    return await _read(made, listed)


async def _show(made: CommandSetup, args: argparse.Namespace) -> str:
    async def shown(changes: Any, teller: JobFormatter, _store: SqliteStore, _book: Any) -> str:
        return teller.shown(changes.find(args.job))

    return await _read(made, shown)


async def _history(made: CommandSetup, args: argparse.Namespace) -> str:
    async def told(changes: Any, teller: JobFormatter, store: SqliteStore, book: Any) -> str:
        job = changes.find(args.job).job
        facts = await book.tape.read(JobHistoryView(job.id, max(args.limit, 1)))
        turns = [str(one.payload["data"]["turn"]) for one in facts if "turn" in one.payload["data"]]
        sent = await service(store, outbox_tape(job.target.channel)).read(DeliveriesView(turns))
        return teller.history(job, facts, sent)

    return await _read(made, told)


async def _next(made: CommandSetup, args: argparse.Namespace) -> str:
    zone, texts = zone_named(args.zone or made.settings.bot.timezone), Texts()
    when = parse_when(args.when, now(), zone)
    lines = [in_words(when, zone, texts)]
    with suppress(OverflowError):
        lines += [moment_words(one, zone, texts) for one in upcoming(when, zone, now(), min(max(args.count, 1), 100))]
    return "\n".join(lines)


_ACTIONS: Mapping[str, Callable[[CommandSetup, argparse.Namespace], Coroutine[Any, Any, str]]] = {
    "list": _list,
    "show": _show,
    "history": _history,
    "next": _next,
}
