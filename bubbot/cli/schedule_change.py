"""The changes of `bubbot schedule`, made in this process or in the running bot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from bubbot.app.bot import new_id, now
from bubbot.cli.session_names import tape_service
from bubbot.cli.write_command import CommandContext, CommandResult
from bubbot.errors import ConfigError, ScheduleRefused
from bubbot.features.schedule.changes import (
    SCHEDULE_TAPE,
    TERMINAL,
    JobChanges,
    JobRequester,
    ScheduleLimits,
    parse_chat_ref,
)
from bubbot.features.schedule.firing import describe_action, job_label
from bubbot.features.schedule.formatter import JobFormatter
from bubbot.features.schedule.state import Actor, ChatRef
from bubbot.features.schedule.store import ScheduleStore
from bubbot.ports.channel import Role
from bubbot.settings.loader import Settings
from bubbot.tape.entry import TapeEntry
from bubbot.tape.service import TapeService
from bubbot.texts import Texts


@dataclass(frozen=True, slots=True)
class ChangeSchedule:
    """A change as typed; fields that the action does not take, or that were not typed, are empty.

    Attributes:
        action: `add`, `edit`, `pause`, `resume`, `run`, `remove` or `chat`.
        given: the names of the options that were typed.
        session: the chat, such as `telegram:42`, for `add` and `chat`.
        job: the id of a job, the beginning of it, or its name.
        when: a schedule, such as `0 9 * * 1-5`.
        prompt: a prompt for the bot.
        command: a comma command to run.
        text: a text to send as it is.
        zone: an IANA time zone.
        name: a short name of the job.
        catch_up: `skip`, `once` or `all`, for missed firings.
        catch_limit: the most firings that `all` makes up for.
        jitter: the longest random delay, in seconds.
        until: the last day or time.
        runs: the number of firings; 0 for no limit.
        budget: the longest duration, in seconds; 0 for no limit.
        urgent: fire in quiet hours, too.
        nested: let the turns of the job schedule jobs.
        to: another chat that gets the answer.
        quiet: quiet hours such as `22:00-07:00`, or `none`; for `chat`.
    """

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


TERMINAL_CHAT = ChatRef(TERMINAL, TERMINAL)


async def change(context: CommandContext, arguments: ChangeSchedule) -> CommandResult:
    """Apply the change; a running bot's own schedule store applies it, so that it takes effect at once."""
    book = context.schedules
    if book is None:
        book = make_store(tape_service(context.store, SCHEDULE_TAPE), context.settings)
        await book.load()
    try:
        text, facts = _apply(book, arguments)
    except ScheduleRefused as error:
        raise ConfigError(str(error)) from error
    await book.write(facts)
    needs_daemon = context.schedules is None and arguments.action in ("add", "edit", "resume", "run")
    return CommandResult(f"{text}\n" + ("`bubbot run` fires jobs; it is not running.\n" if needs_daemon else ""))


def make_store(tape: TapeService, settings: Settings) -> ScheduleStore:
    """Make the schedule store of a home in which no bot runs."""
    rules = settings.schedule
    limits = ScheduleLimits(rules.max_jobs_per_chat, rules.max_failures, rules.min_unbounded_interval)
    return ScheduleStore(tape, now=now, new_id=new_id, zone=settings.bot.timezone, limits=limits)


def make_changes(book: ScheduleStore, session: str = "") -> JobChanges:
    """Make changes on behalf of the person at the terminal, who owns every job."""
    chat = parse_chat_ref(session) if session else TERMINAL_CHAT
    requester = JobRequester(Actor(chat.channel, TERMINAL), Role.OWNER, chat, owns_all=True)
    return JobChanges(book.state, requester, now(), new_id, book.limits, book.zone)


def _apply(book: ScheduleStore, arguments: ChangeSchedule) -> tuple[str, Sequence[TapeEntry]]:
    changes, texts = make_changes(book, arguments.session), Texts()
    formatter = JobFormatter(texts, changes.now, book.zone)
    if arguments.action == "chat":
        facts = changes.set_chat_rules(changes.requester.session, arguments.zone, arguments.quiet)
        return formatter.format_chat_rules(book.state.apply(facts), changes.requester.session), facts
    options = {
        option.name: getattr(arguments, option.name) for option in fields(arguments) if option.name in arguments.given
    }
    if arguments.action == "add":
        job, facts = changes.add(options)
        return formatter.format_change("job_added", job, changes), facts
    if arguments.action == "resume" and not arguments.job:
        facts = changes.resume_waiting()
        return f"{len(facts)} jobs go on from the present; what fired before does not fire again.", facts
    job_state = changes.find(arguments.job)
    if arguments.action == "edit":
        job, facts = changes.edit(job_state, options)
        return formatter.format_change("job_changed", job, changes), facts
    if arguments.action == "resume":
        facts = changes.resume(job_state)
        return f"{job_label(job_state.job)} goes on.", facts
    if arguments.action == "pause":
        return texts.say("job_paused", job=job_state.job.id), changes.pause(job_state)
    if arguments.action == "run":
        return texts.say("job_run", job=job_label(job_state.job)), changes.run(job_state)
    text = texts.say("job_removed", job=job_label(job_state.job), what=describe_action(job_state.job, texts))
    return text, changes.remove(job_state)
