"""What `bubbot schedule` changes, in this process or in the bot that runs for the home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from bubbot.cli.session_names import service
from bubbot.cli.write_command import CommandContext, CommandResult
from bubbot.errors import ConfigError, ScheduleRefused
from bubbot.ports.channel import Role
from bubbot.schedule.changes import SCHEDULE_TAPE, TERMINAL, JobChanges, JobRequester, ScheduleLimits, place_named
from bubbot.schedule.firing import named, what_words
from bubbot.schedule.formatter import JobFormatter
from bubbot.schedule.store import ScheduleStore
from bubbot.settings.loader import Settings
from bubbot.tape.entry import TapeEntry
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from bubbot.views.schedule import Actor, ChatRef
from bubbot.wiring.app import new_id, now


@dataclass(frozen=True, slots=True)
class ChangeSchedule:
    """One change as it was typed; what an action does not take, or was not given, is empty. `given`: the names of the
    options that were given."""

    action: str
    given: tuple[str, ...] = ()
    session: str = ""
    job: str = ""
    when: str = ""
    prompt: str = ""
    command: str = ""
    text: str = ""
    zone: str = ""
    name: str = ""
    catch_up: str = ""
    catch_limit: int = 0
    jitter: int = 0
    until: str = ""
    runs: int = 0
    budget: int = 0
    urgent: bool = False
    nested: bool = False
    to: str = ""
    quiet: str = ""


NOWHERE = ChatRef(TERMINAL, TERMINAL)


async def change(desk: CommandContext, asked: ChangeSchedule) -> CommandResult:
    """Does it, through the bot's own book where that runs, so that it counts at once."""
    book = desk.schedules
    if book is None:
        book = book_of(service(desk.store, SCHEDULE_TAPE), desk.settings)
        await book.load()
    try:
        text, facts = _changed(book, asked)
    except ScheduleRefused as error:
        raise ConfigError(str(error)) from error
    await book.write(facts)
    later = desk.schedules is None and asked.action in ("add", "edit", "resume", "run")
    return CommandResult(f"{text}\n" + ("`bubbot run` keeps the time; it does not run just now.\n" if later else ""))


def book_of(tape: TapeService, settings: Settings) -> ScheduleStore:
    """The book of a home in which no bot runs."""
    rules = settings.schedule
    limits = ScheduleLimits(rules.per_chat, rules.failures, rules.endless)
    return ScheduleStore(tape, now=now, new_id=new_id, zone=settings.bot.timezone, limits=limits)


def changes_of(book: ScheduleStore, session: str = "") -> JobChanges:
    """Changes by whoever sits at the terminal: the owner of everything."""
    place = place_named(session) if session else NOWHERE
    asker = JobRequester(Actor(place.channel, TERMINAL), Role.OWNER, place, owns_all=True)
    return JobChanges(book.state, asker, now(), new_id, book.limits, book.zone)


def _changed(book: ScheduleStore, asked: ChangeSchedule) -> tuple[str, Sequence[TapeEntry]]:
    made, texts = changes_of(book, asked.session), Texts()
    teller = JobFormatter(texts, made.now, book.zone)
    if asked.action == "chat":
        facts = made.chat(made.asker.session, asked.zone, asked.quiet)
        return teller.chat(book.state.after(facts), made.asker.session), facts
    what = {one.name: getattr(asked, one.name) for one in fields(asked) if one.name in asked.given}
    if asked.action == "add":
        job, facts = made.add(what)
        return teller.made("job_added", job, made), facts
    if asked.action == "resume" and not asked.job:
        facts = made.resume_waiting()
        return f"{len(facts)} jobs go on from the present; what fired before does not fire again.", facts
    standing = made.find(asked.job)
    if asked.action == "edit":
        job, facts = made.edit(standing, what)
        return teller.made("job_changed", job, made), facts
    if asked.action == "resume":
        facts = made.resume(standing)
        return f"{named(standing.job)} goes on.", facts
    if asked.action == "pause":
        return texts.say("job_paused", job=standing.job.id), made.pause(standing)
    if asked.action == "run":
        return texts.say("job_run", job=named(standing.job)), made.run(standing)
    told = texts.say("job_removed", job=named(standing.job), what=what_words(standing.job, texts))
    return told, made.remove(standing)
