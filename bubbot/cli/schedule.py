"""`bubbot schedule`: jobs of every chat, from the shell."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from bubbot.app.bot import now, open_tapes
from bubbot.cli.output import show
from bubbot.cli.session_names import tape_service
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.cli.write_command import run_write_command
from bubbot.errors import ConfigError, ScheduleRefused, StoreUnavailable
from bubbot.features.schedule.changes import SCHEDULE_TAPE, JobChanges
from bubbot.features.schedule.formatter import JobFormatter
from bubbot.features.schedule.state import DeliveriesView, DeliveryState, JobHistoryView
from bubbot.features.schedule.store import ScheduleStore
from bubbot.features.schedule.when import find_zone, next_instants, parse_duration, parse_when
from bubbot.features.schedule.words import describe_schedule, format_moment
from bubbot.gateway.outbox import outbox_tape
from bubbot.log import printable
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts

SCHEDULE_WRITE_ACTIONS = frozenset({"add", "edit", "pause", "resume", "run", "remove", "chat"})
"""The actions that write; the others only read, also while the bot runs."""
JOB_OPTIONS = (
    "when", "prompt", "command", "text", "zone", "name", "catch_up", "catch_limit", "jitter", "until", "runs", "budget",
    "urgent", "nested", "to",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the help texts and the subcommands."""
    parser.description = (
        "Schedule prompts, commands and texts, once or repeatedly, and see their results. `bubbot run` fires the "
        "jobs. `list`, `show`, `history` and `next` are read-only and work while the bot runs."
    )
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, helps: str, example: str) -> argparse.ArgumentParser:
        subparser: argparse.ArgumentParser = commands.add_parser(
            name,
            help=helps,
            description=f"{helps[0].upper()}{helps[1:]}.",
            epilog=f"example: bubbot schedule {example}",
        )
        return subparser

    def job(of: argparse.ArgumentParser) -> None:
        of.add_argument("job", help="its id, the beginning of it, or its name; list shows them")

    action("list", "show the jobs of every chat", "list")
    commands.choices["list"].add_argument("--over", action="store_true", help="also jobs that have ended")
    job(action("show", "show everything about a job", "show 3fa9c1"))
    history = action("history", "tell when a job fired, ran, failed and was delivered", "history 3fa9c1")
    job(history)
    history.add_argument("--limit", type=int, default=20, metavar="N", help="how many facts (default: 20)")
    next_firings = action("next", "say what a schedule means, without planning anything", "next '0 9 * * 1-5'")
    next_firings.add_argument("when", help="such as '0 9 * * 1-5', '@daily', 'every 90m' or 'at 2026-12-24 18:00'")
    next_firings.add_argument("--zone", metavar="ZONE", default="", help="IANA time zone (default: the bot's)")
    next_firings.add_argument("--count", type=int, default=5, metavar="N", help="how many times (default: 5)")
    add = action("add", "plan a job in a chat", "add telegram:42 '0 9 * * 1-5' --text 'Stand-up!'")
    add.add_argument("session", help="the chat, such as telegram:42")
    add.add_argument("when", help="such as '0 9 * * 1-5', '@daily', 'every 90m' or 'at 2026-12-24 18:00'")
    _add_job_options(add)
    edit = action("edit", "change a job; what is left out stays", "edit 3fa9c1 --when 'every 2h'")
    job(edit)
    edit.add_argument("--when", metavar="WHEN", default=argparse.SUPPRESS, help="another schedule")
    _add_job_options(edit)
    job(action("pause", "pause a job", "pause 3fa9c1"))
    resume = action("resume", "let a paused job go on, or all that wait since the clock was ahead", "resume 3fa9c1")
    resume.add_argument("job", nargs="?", default="", help="a paused job; without one, all that wait for the clock")
    job(action("run", "run a job now, in addition to its schedule", "run 3fa9c1"))
    job(action("remove", "remove a job", "remove 3fa9c1"))
    chat = action("chat", "set the time zone and quiet hours of a chat", "chat telegram:42 --quiet 22:00-07:00")
    chat.add_argument("session", help="the chat, such as telegram:42")
    chat.add_argument("--zone", metavar="ZONE", default="", help="IANA time zone in which times are read there")
    chat.add_argument("--quiet", metavar="HOURS", default="", help="such as 22:00-07:00, or none")


def _add_job_options(of: argparse.ArgumentParser) -> None:
    def option(name: str, helps: str, **settings: Any) -> None:
        of.add_argument(f"--{name}", default=argparse.SUPPRESS, help=helps, **({"metavar": "TEXT"} | settings))

    option("prompt", "what the bot is to be asked")
    option("command", "a comma command to run, such as ,memory.show", dest="comma")
    option("text", "a text to send as it is, without asking a model")
    option("zone", "IANA time zone (default: the chat's)", metavar="ZONE")
    option("name", "a short name", metavar="NAME")
    option("catch-up", "what to do with missed firings", choices=("skip", "once", "all"), metavar="HOW")
    option("catch-limit", "how many --catch-up all does at most", type=int, metavar="N")
    option("jitter", "come up to this much later, such as 5m", type=_seconds, metavar="LENGTH")
    option("until", "the last day or time, such as 2026-12-31", metavar="DATE")
    option("runs", "how often it comes at most; 0 for no limit", type=int, metavar="N")
    option("budget", "how long it may take, such as 2m; 0 for no limit", type=_seconds, metavar="LENGTH")
    option("to", "another chat that gets the answer, such as telegram:42", metavar="SESSION")
    of.add_argument("--urgent", action="store_true", default=argparse.SUPPRESS, help="fire in quiet hours too")
    of.add_argument("--nested", action="store_true", default=argparse.SUPPRESS, help="its turns may create schedules")


def _seconds(text: str) -> int:
    try:
        return 0 if text == "0" else parse_duration(text)
    except ScheduleRefused as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(args: argparse.Namespace) -> int:
    """Run one action; return its exit code."""
    setup = load_setup(args)
    if args.action in SCHEDULE_WRITE_ACTIONS:
        # Imported here: reading actions do not need it.
        from bubbot.cli.schedule_change import ChangeSchedule

        options = {name: value for name, value in vars(args).items() if name != "command"}  # that is `schedule`
        if "comma" in options:
            options["command"] = options.pop("comma")
        fields = {name: value for name, value in options.items() if name in ChangeSchedule.__dataclass_fields__}
        job_options = tuple(name for name in JOB_OPTIONS if name in fields)
        return asyncio.run(run_write_command(setup, "schedule", ChangeSchedule(**fields, given=job_options)))
    try:
        text = asyncio.run(_ACTIONS[args.action](setup, args))
        show("\n".join(printable(line) for line in text.splitlines()))
    except ScheduleRefused as error:
        raise ConfigError(str(error)) from error
    return 0


async def _read(
    setup: CommandSetup, render: Callable[[JobChanges, JobFormatter, TapeStore, ScheduleStore], Awaitable[str]]
) -> str:
    """Read the jobs and render them with `render`; a home without tapes has no jobs."""
    from bubbot.cli.schedule_change import make_changes, make_store

    try:
        async with open_tapes(setup.home, setup.settings.store) as (store, _):
            book = make_store(tape_service(store, SCHEDULE_TAPE), setup.settings)
            await book.load()
            formatter = JobFormatter(Texts(), now(), setup.settings.bot.timezone)
            return await render(make_changes(book), formatter, store, book)
    except StoreUnavailable:
        if setup.home.database.exists():
            raise
        return Texts().say("jobs_none")


async def _list(setup: CommandSetup, args: argparse.Namespace) -> str:
    async def render(changes: JobChanges, formatter: JobFormatter, _store: TapeStore, _jobs: ScheduleStore) -> str:
        return formatter.format_list(changes.list_jobs(in_all_chats=True, include_ended=args.over), "")

    return await _read(setup, render)


async def _show(setup: CommandSetup, args: argparse.Namespace) -> str:
    async def render(changes: JobChanges, formatter: JobFormatter, _store: TapeStore, _jobs: ScheduleStore) -> str:
        return formatter.format_details(changes.find(args.job))

    return await _read(setup, render)


async def _history(setup: CommandSetup, args: argparse.Namespace) -> str:
    async def render(changes: JobChanges, formatter: JobFormatter, store: TapeStore, jobs: ScheduleStore) -> str:
        job = changes.find(args.job).job
        facts = await jobs.tape.read(JobHistoryView(job.id, max(args.limit, 1)))
        turns = [str(fact.payload["data"]["turn"]) for fact in facts if "turn" in fact.payload["data"]]
        sent: dict[str, DeliveryState] = {}
        for tape in tape_service(store, outbox_tape(job.target.channel)).shards():
            sent |= await tape.read(DeliveriesView(turns))
        return formatter.format_history(job, facts, sent)

    return await _read(setup, render)


async def _next(setup: CommandSetup, args: argparse.Namespace) -> str:
    zone, texts = find_zone(args.zone or setup.settings.bot.timezone), Texts()
    when = parse_when(args.when, now(), zone)
    lines = [describe_schedule(when, zone, texts)]
    with suppress(OverflowError):
        lines += [
            format_moment(moment, zone, texts)
            for moment in next_instants(when, zone, now(), min(max(args.count, 1), 100))
        ]
    return "\n".join(lines)


_ACTIONS: Mapping[str, Callable[[CommandSetup, argparse.Namespace], Coroutine[Any, Any, str]]] = {
    "list": _list,
    "show": _show,
    "history": _history,
    "next": _next,
}
