"""The commands `bubbot schedule`: jobs of every chat."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from bubbot.errors import ConfigError, ScheduleRefused
from bubbot.features.schedule.changes import (
    TERMINAL,
    JobChanges,
    JobRequester,
    due_fields,
    job_label,
    parse_chat_ref,
)
from bubbot.features.schedule.facts import SCHEDULE_TAPE, Actor, ChatRef
from bubbot.features.schedule.feature import schedule_limits
from bubbot.features.schedule.formatter import JobFormatter
from bubbot.features.schedule.refusal import refusal_text
from bubbot.features.schedule.results import (
    ChatRulesResult,
    JobChange,
    JobHistoryResult,
    JobList,
    JobRecord,
    NextTimesResult,
    chat_rules_result,
    job_history,
    job_record,
)
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import DeliveriesView, DeliveryState, JobHistoryView
from bubbot.features.schedule.store import ScheduleStore
from bubbot.features.schedule.words import describe_rule, describe_schedule, format_moment
from bubbot.gateway.outbox import outbox_tape
from bubbot.log import printable
from bubbot.ports.channel import Role
from bubbot.records import json_data
from bubbot.shell_command import Argument, Command, CommandContext, CommandGroup, CommandResult, command, described_by
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts
from bubbot.times.reading import ReadingContext
from bubbot.times.rules import find_zone, next_instants
from bubbot.tool import ToolArgs

TERMINAL_CHAT = ChatRef(TERMINAL, TERMINAL)
WHEN_HELP = "such as 'tomorrow at 9am', 'every weekday at 8', '0 9 * * 1-5', 'every 90m' or '2026-12-24 18:00'"
JobId: TypeAlias = Annotated[
    str, Argument("its id, the beginning of it, its name, or words of its text; list shows them")
]
Chat: TypeAlias = Annotated[str, Argument("the chat, such as telegram:42")]


MAX_NEXT_TIMES = 100
"""The times of a schedule that `schedule next` works out."""


def parse_seconds(text: str) -> int:
    """Parse a duration such as `5m`; 0 stands for itself. Raise `ValueError`."""
    from bubbot.times.phrases import parse_duration  # compiled when a time is read

    try:
        return 0 if text == "0" else parse_duration(text)
    except ScheduleRefused as error:
        raise ValueError(refusal_text(error, Texts())) from error


class ListJobs(ToolArgs):
    over: Annotated[bool, Argument("also jobs that have ended")] = False


class JobReference(ToolArgs):
    job: JobId


class JobHistory(ToolArgs):
    job: JobId
    limit: Annotated[int, Argument("how many facts (default: 20)", "N")] = 20


class NextTimes(ToolArgs):
    when: Annotated[str, Argument(WHEN_HELP)]
    zone: Annotated[str, Argument("IANA time zone (default: the bot's)", "ZONE")] = ""
    count: Annotated[int, Argument("how many times, 1 to 100 (default: 5)", "N")] = 5


class _ShellJobOptions(ToolArgs):
    """The options of a job; one that was not typed changes nothing."""

    prompt: Annotated[str, Argument("what the bot is to be asked", "TEXT")] = ""
    command: Annotated[str, Argument("a comma command to run, such as ,memory.show", "TEXT")] = ""
    text: Annotated[str, Argument("a text to send as it is, without asking a model", "TEXT")] = ""
    zone: Annotated[str, Argument("IANA time zone (default: the chat's)", "ZONE")] = ""
    name: Annotated[str, Argument("a short name", "NAME")] = ""
    catch_up: Annotated[Literal["", "skip", "once", "all"], Argument("what to do with missed firings", "HOW")] = ""
    catch_limit: Annotated[int, Argument("how many --catch-up all does at most", "N")] = 0
    jitter: Annotated[int, Argument("come up to this much later, such as 5m", "LENGTH", parse_seconds)] = 0
    until: Annotated[str, Argument("the last day or time, such as 2026-12-31", "DATE")] = ""
    runs: Annotated[int, Argument("how often it comes at most; 0 for no limit", "N")] = 0
    budget: Annotated[
        int, Argument("how long it may take, such as 2m; 0 for no limit", "LENGTH", parse_seconds)
    ] = 0  # fmt: skip
    to: Annotated[str, Argument("another chat that gets the answer, such as telegram:42", "SESSION")] = ""
    urgent: Annotated[bool, Argument("fire in quiet hours too")] = False
    nested: Annotated[bool, Argument("its turns may create schedules")] = False
    allow: Annotated[
        str,
        Argument(
            "what its turns may do besides, such as 'web.search, web.fetch:example.org'; none for nothing", "WHAT"
        ),
    ] = ""

    def options(self) -> dict[str, Any]:
        """Return what was typed of the job itself."""
        options = self.model_dump(exclude_unset=True, exclude={"session", "job"})
        return options | {"allow": self.allow.split(",")} if self.allow else options


class AddJob(_ShellJobOptions):
    session: Chat
    when: Annotated[str, Argument(WHEN_HELP)]


class _EditedJob(ToolArgs):
    job: JobId
    when: Annotated[str, Argument("another time, such as 'at 9am'; a mere time of day keeps the days")] = ""


class EditJob(_ShellJobOptions, _EditedJob):
    """A job, and what to change."""


class ResumeJob(ToolArgs):
    """A job to resume, or all that wait."""

    job: Annotated[str, Argument("a paused job; without one, all that wait for the clock")] = ""
    positional: ClassVar[tuple[str, ...]] = ("job",)


class ChatRulesArguments(ToolArgs):
    session: Chat
    zone: Annotated[str, Argument("IANA time zone in which times are read there", "ZONE")] = ""
    quiet: Annotated[str, Argument("such as 22:00-07:00, or none", "HOURS")] = ""


async def _open_jobs(context: CommandContext) -> ScheduleStore:
    """Return the running bot's own jobs, or load those of the home."""
    store = context.service(ScheduleStore)
    if store is None:
        store = ScheduleStore(
            context.open_tape(SCHEDULE_TAPE),
            now=context.now,
            new_id=context.new_id,
            zone=str(context.zone),
            limits=schedule_limits(context.settings),
        )
        await store.load()
    return store


def _changes(store: ScheduleStore, session: str = "") -> JobChanges:
    """Make changes on behalf of the person at the terminal, who owns every job."""
    chat = parse_chat_ref(session) if session else TERMINAL_CHAT
    requester = JobRequester(Actor(chat.channel, TERMINAL), Role.OWNER, chat, owns_all=True)
    return JobChanges(store.state, requester, store.now(), store.new_id, store.limits, store.zone)


def _formatter(store: ScheduleStore) -> JobFormatter:
    """Make the formatter whose hints can be typed in a shell."""
    return JobFormatter(Texts(), store.now(), store.zone, edit_command="bubbot schedule edit {job} --when '{when}'")


Read: TypeAlias = Callable[[CommandContext, ScheduleStore, JobFormatter, Any], Awaitable[tuple[str, object]]]
"""Answers for people, and for programs."""
Facts: TypeAlias = tuple[str, Sequence[TapeEntry]]
"""The answer, and what to write."""
Change: TypeAlias = Callable[[JobChanges, JobFormatter, Any], Facts]


def _reads(example: str, result: type) -> Callable[[Read], Command]:
    """Make a command of what renders jobs as a `result`; its name is the first word of the example."""
    action = example.partition(" ")[0]

    def decorate(read: Read) -> Command:
        async def run(context: CommandContext, args: Any) -> CommandResult:
            jobs = await _open_jobs(context)
            with _config_error():
                text, data = await read(context, jobs, _formatter(jobs), args)
                return _printable(text, data)

        def on_missing_home(_settings: Any, args: Any) -> CommandResult:
            if action != "list":
                raise ConfigError(_describe_unknown_job(args.job))
            return _printable(Texts().say("jobs_none"), JobList())

        return Command(
            name=f"schedule {action}",
            run=run,
            example=f"schedule {example}",
            on_missing_home=on_missing_home,
            result=result,
            **described_by(read),
        )

    return decorate


def _writes(example: str) -> Callable[[Change], Command]:
    """Make a command of what changes jobs; its name is the first word of the example."""
    action = example.partition(" ")[0]

    def decorate(change: Change) -> Command:
        async def run(context: CommandContext, args: Any) -> CommandResult:
            jobs = await _open_jobs(context)
            with _config_error():
                for field in ("session", "to"):  # the chats that a command names
                    if name := getattr(args, field, ""):
                        args = args.model_copy(update={field: await context.first_session(name.strip())})
                changes = _changes(jobs, getattr(args, "session", ""))
                text, facts = change(changes, _formatter(jobs), args)
            await jobs.write(facts)
            data = _changed_jobs(jobs, facts, args) if action != "chat" else _chat_rules(jobs, changes)
            needs_daemon = not context.is_daemon and action in ("add", "edit", "resume", "run")
            return CommandResult(
                f"{text}\n" + ("`bubbot run` fires jobs; it is not running.\n" if needs_daemon else ""),
                data=json_data(data),
            )

        return Command(
            name=f"schedule {action}",
            run=run,
            example=f"schedule {example}",
            writes=True,
            result=ChatRulesResult if action == "chat" else JobChange,
            **described_by(change),
        )

    return decorate


def _changed_jobs(jobs: ScheduleStore, facts: Sequence[TapeEntry], args: Any) -> JobChange:
    """Return the jobs that the facts are about; if nothing changed, the one that was named."""
    ids = list(dict.fromkeys(str(fact.data["job"]) for fact in facts))
    if not ids and getattr(args, "job", None):
        ids = [_changes(jobs).find(args.job).job.id]
    states, now = jobs.state.jobs, jobs.now()
    return JobChange(
        tuple(job_record(states[job], now) for job in ids if job in states),
        tuple(job for job in ids if job not in states),
    )


def _chat_rules(jobs: ScheduleStore, changes: JobChanges) -> ChatRulesResult:
    session = changes.requester.session
    return chat_rules_result(jobs.state.rules_of(session), jobs.zone)


@contextmanager
def _config_error() -> Iterator[None]:
    """Raise `ConfigError` for `ScheduleRefused`, in the words of a shell where a chat has others."""
    try:
        yield
    except ScheduleRefused as error:
        message = refusal_text(error, Texts())
        if error.sentence == "job_unknown":
            message = _describe_unknown_job(error.values["job"])
        elif error.sentence == "job_what":
            message = "say what the job does, in one way: --prompt, --command or --text"
        raise ConfigError(message) from error


def _describe_unknown_job(job: object) -> str:
    return f"there is no job {job!r}; bubbot schedule list shows all jobs"


def _printable(text: str, data: object) -> CommandResult:
    return CommandResult("\n".join(printable(line) for line in text.splitlines()) + "\n", data=json_data(data))


@_reads("list", JobList)
async def list_jobs(
    _context: CommandContext, jobs: ScheduleStore, formatter: JobFormatter, args: ListJobs
) -> tuple[str, JobList]:
    """Show the jobs of every chat."""
    states = _changes(jobs).list_jobs(in_all_chats=True, include_ended=args.over)
    return formatter.format_list(states, ""), JobList(tuple(job_record(state, jobs.now()) for state in states))


@_reads("show 3fa9c1", JobRecord)
async def show(
    _context: CommandContext, jobs: ScheduleStore, formatter: JobFormatter, args: JobReference
) -> tuple[str, JobRecord]:
    """Show everything about a job."""
    state = _changes(jobs).find(args.job)
    return formatter.format_details(state), job_record(state, jobs.now())


@_reads("history 3fa9c1", JobHistoryResult)
async def history(
    context: CommandContext, jobs: ScheduleStore, formatter: JobFormatter, args: JobHistory
) -> tuple[str, JobHistoryResult]:
    """Tell when a job fired, ran, failed and was delivered."""
    job = _changes(jobs).find(args.job).job
    facts = await jobs.tape.read(JobHistoryView(job.id, max(args.limit, 1)))
    turns = [str(fact.data["turn"]) for fact in facts if "turn" in fact.data]
    sent: dict[str, DeliveryState] = {}
    for tape in context.open_tape(outbox_tape(job.target.channel)).shards():
        sent |= await tape.read(DeliveriesView(turns))
    return formatter.format_history(job, facts, sent), job_history(job.id, facts, sent)


@command("schedule next", example="schedule next '0 9 * * 1-5'", needs_home=False, result=NextTimesResult)
async def show_next(context: CommandContext, args: NextTimes) -> CommandResult:
    """Say what a schedule means, without planning anything."""
    from bubbot.times.phrases import read_time  # compiled when a time is read

    if not 1 <= args.count <= MAX_NEXT_TIMES:
        raise ConfigError(f"--count is {args.count}, but must be a number from 1 to {MAX_NEXT_TIMES}")
    texts, now = Texts(), context.now()
    with _config_error():
        zone = find_zone(args.zone or str(context.zone))
        default_time = schedule_limits(context.settings or ScheduleSettings()).default_time
        reading = read_time(args.when, ReadingContext(now, zone, default_time))
        when, zone = reading.when, find_zone(reading.zone) if reading.zone else zone
        lines = [describe_schedule(when, zone, texts)]
        lines += [texts.say("next_other", words=describe_rule(other, zone, texts)) for other in reading.others]
        moments: list[datetime] = []
        with suppress(OverflowError):
            moments = next_instants(when, zone, now, args.count)
        lines += [format_moment(moment, zone, texts) for moment in moments]
        data = NextTimesResult(
            when.text,
            str(zone),
            tuple(describe_rule(other, zone, texts) for other in reading.others),
            tuple(moment.isoformat() for moment in moments),
        )
        return _printable("\n".join(lines), data)


@_writes("add telegram:42 '0 9 * * 1-5' --text 'Stand-up!'")
def add(changes: JobChanges, formatter: JobFormatter, args: AddJob) -> Facts:
    """Plan a job in a chat."""
    reading = changes.read_time(args.when, args.zone)
    job, facts = changes.add({**args.options(), **due_fields(reading)})
    return formatter.format_change("job_added", job, changes, reading.others), facts


@_writes("edit 3fa9c1 --when 'every 2h'")
def edit(changes: JobChanges, formatter: JobFormatter, args: EditJob) -> Facts:
    """Change a job; what is left out stays."""
    job_state, options = changes.find(args.job), args.options()
    reading = changes.read_time(args.when, args.zone, job_state.job) if args.when else None
    if reading is not None:
        options |= due_fields(reading)
    job, facts = changes.edit(job_state, options)
    return formatter.format_change("job_changed", job, changes, reading.others if reading else ()), facts


@_writes("pause 3fa9c1")
def pause(changes: JobChanges, formatter: JobFormatter, args: JobReference) -> Facts:
    """Pause a job."""
    job_state = changes.find(args.job)
    return formatter.texts.say("job_paused", job=job_label(job_state.job), id=job_state.job.id), changes.pause(
        job_state
    )


@_writes("resume 3fa9c1")
def resume(changes: JobChanges, _formatter: JobFormatter, args: ResumeJob) -> Facts:
    """Let a paused job go on, or all that wait since the clock was ahead."""
    if not args.job:
        facts = changes.resume_waiting()
        return f"{len(facts)} jobs go on from the present; what fired before does not fire again.", facts
    job_state = changes.find(args.job)
    return f"{job_label(job_state.job)} goes on.", changes.resume(job_state)


@_writes("run 3fa9c1")
def run_now(changes: JobChanges, formatter: JobFormatter, args: JobReference) -> Facts:
    """Run a job now, in addition to its schedule."""
    job_state = changes.find(args.job)
    return formatter.texts.say("job_run", job=job_label(job_state.job)), changes.run(job_state)


@_writes("remove 3fa9c1")
def remove(changes: JobChanges, formatter: JobFormatter, args: JobReference) -> Facts:
    """Remove a job."""
    job_state = changes.find(args.job)
    return formatter.format_removed(job_state.job), changes.remove(job_state)


@_writes("chat telegram:42 --quiet 22:00-07:00")
def set_chat_rules(changes: JobChanges, formatter: JobFormatter, args: ChatRulesArguments) -> Facts:
    """Set the time zone and quiet hours of a chat."""
    session = changes.requester.session
    facts = changes.set_chat_rules(session, args.zone, args.quiet)
    return formatter.format_chat_rules(changes.state.with_facts(facts), session), facts


COMMANDS = CommandGroup(
    "schedule",
    (list_jobs, show, history, show_next, add, edit, pause, resume, run_now, remove, set_chat_rules),
    "Schedule prompts, commands and texts, once or repeatedly, and see their results. `bubbot run` fires the "
    "jobs. `list`, `show`, `history` and `next` are read-only and work while the bot runs.",
    "schedule prompts, commands and texts, and see their results",
)
