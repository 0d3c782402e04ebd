"""Tools about schedules, for models and for people."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from bubbot.errors import ScheduleRefused, ToolRetry
from bubbot.features.schedule.changes import JobChanges, JobRequester, due_fields, job_label
from bubbot.features.schedule.facts import SCHEDULE_TAPE, Actor, ChatRef
from bubbot.features.schedule.firing import ScheduledTurn, describe_action
from bubbot.features.schedule.formatter import JobFormatter
from bubbot.features.schedule.refusal import refusal_text
from bubbot.features.schedule.state import DeliveriesView, DeliveryState, JobHistoryView
from bubbot.features.schedule.store import ScheduleStore
from bubbot.gateway.outbox import outbox_tape
from bubbot.ports.channel import Role
from bubbot.ports.session_names import keep_session
from bubbot.ports.turn import Turn
from bubbot.tape.provenance import most_foreign, note_source
from bubbot.times.reading import TimeReading
from bubbot.times.refusal import build_refusal
from bubbot.tool import (
    ADMINISTERS,
    CHANGES_JOBS,
    READS_PEOPLE,
    STOPS_JOBS,
    CallPlan,
    CommandHelp,
    HelpTopic,
    PlanCall,
    Tool,
    ToolArgs,
    tool,
)

CONNECTORS = " :,-：，、"
"""What may stand between a time and a text; alone it is no text."""
WHEN = (
    "in words, English or Chinese: tomorrow at 9am, in half an hour, every weekday at 8, last friday of the month at "
    "16:00; or 2026-12-24 18:00, every 90m, every 2d from 2026-12-01 09:00, 0 9 * * 1-5, @daily"
)


class _JobOptions(ToolArgs):
    """The options of a job."""

    prompt: str = Field(default="", description="what I am to be asked then")
    command: str = Field(default="", description="a comma command to run, such as ,memory.show")
    text: str = Field(default="", description="a text to send as it is")
    zone: str = Field(default="", description="IANA time zone (default: the chat's)")
    name: str = Field(default="", description="a short name")
    catch_up: Literal["", "skip", "once", "all"] = Field(
        default="", description="firings missed while I was away: skip, once (usual) or all"
    )
    catch_limit: int | None = Field(default=None, description="how many of these at most")
    jitter: str = Field(default="", description="come up to this much later, such as 5m")
    until: str = Field(default="", description="the last day or time, such as 2026-12-31")
    runs: int | None = Field(default=None, description="how often it comes at most")
    budget: str = Field(default="", description="how long it may take, such as 2m")
    urgent: bool | None = Field(default=None, description="fire in quiet hours too (owners, in a direct chat)")
    nested: bool | None = Field(default=None, description="its turns may create schedules (owners, in a direct chat)")
    to: str = Field(
        default="", description="another chat that gets the answer, such as telegram:42 (owners, in a direct chat)"
    )
    allow: list[str] | None = Field(
        default=None,
        description="tools that its turns may use to act or read outside, such as web.search or web.fetch:example.org "
        "(owners, in a direct chat)",
    )

    def options(self) -> dict[str, Any]:
        """Return the options that were set, durations in seconds. Raise `ScheduleRefused`."""
        from bubbot.times.phrases import parse_duration  # compiled when a time is read

        options = self.model_dump(exclude_unset=True)
        for name in ("jitter", "budget"):
            if options.get(name):
                options[name] = 0 if options[name] in ("0", "none") else parse_duration(options[name])
            else:
                options.pop(name, None)
        return options


class AddJobArgs(_JobOptions):
    """The arguments of `schedule.add`. A typed `when` holds the prompt, too, or a command that begins with a comma."""

    when: str = Field(description=WHEN)
    positional: ClassVar[tuple[str, ...]] = ("when",)


class RemindArgs(_JobOptions):
    """The arguments of `schedule.remind`. A typed `when` holds the text, too."""

    when: str = Field(description=WHEN)
    positional: ClassVar[tuple[str, ...]] = ("when",)


class EditJobArgs(_JobOptions):
    """The arguments of `schedule.edit`; an option that is left out stays."""

    job: str = Field(description="the job's id, its beginning, its name, or words of its text")
    when: str = Field(default="", description=f"{WHEN}; only a time of day keeps the days")
    positional: ClassVar[tuple[str, ...]] = ("job",)


class JobArgs(ToolArgs):
    """The arguments of tools about one job."""

    job: str = Field(description="the job's id, its beginning, its name, or words of its text")


class ListJobsArgs(ToolArgs):
    """The arguments of `schedule.list`."""

    every: bool = Field(default=False, description="those of all chats (owners, in a direct chat)")
    over: bool = Field(default=False, description="those too that have come to their end")


class JobHistoryArgs(ToolArgs):
    """The arguments of `schedule.history`."""

    job: str = Field(description="the job's id, its beginning, its name, or words of its text")
    limit: int = Field(default=20, ge=1, le=200, description="how many facts")


class ChatRulesArgs(ToolArgs):
    """The arguments of `schedule.chat`; without any it reports the rules."""

    zone: str = Field(default="", description="IANA time zone in which times are read here, such as Europe/Berlin")
    quiet: str = Field(default="", description="quiet hours, such as 22:00-07:00, or none")


@contextmanager
def _retry_if_refused(turn: Turn) -> Iterator[None]:
    """Raise `ToolRetry` for `ScheduleRefused`: the caller can fix the request."""
    try:
        yield
    except ScheduleRefused as error:
        raise ToolRetry(refusal_text(error, turn.texts)) from error


def _read_request(
    pending: JobChanges, options: Mapping[str, Any], action: Literal["prompt", "text"]
) -> tuple[TimeReading, dict[str, str]]:
    """Read when a job is due, and from a typed request what it does. Raise `ScheduleRefused`."""
    zone = options.get("zone", "")
    if any(options.get(name) for name in ("prompt", "command", "text")):
        return pending.read_time(options["when"], zone), {}
    request = pending.split_request(options["when"], zone)
    if not request.text.strip(CONNECTORS):
        sentence = "job_text_missing" if action == "text" else "job_prompt_missing"
        raise build_refusal(sentence, when=options["when"].strip(CONNECTORS))
    is_command = action == "prompt" and request.text.startswith(",")
    return request.reading, {"command" if is_command else action: request.text}


def _holds_command(pending: JobChanges, turn: Turn, args: AddJobArgs) -> bool:
    with _retry_if_refused(turn):
        return bool(args.command) or "command" in _read_request(pending, args.options(), "prompt")[1]


async def _with_target(options: dict[str, Any], first_session: Callable[[str], Awaitable[str]]) -> dict[str, Any]:
    """Return the options with the chat that gets the answers as its session is stored."""
    return options | {"to": await first_session(options["to"])} if options.get("to") else options


def schedule_tools(store: ScheduleStore, first_session: Callable[[str], Awaitable[str]] = keep_session) -> list[Tool]:
    """Build the tools for this store of jobs. Their changes are merged with the turn.

    Args:
        store: the jobs.
        first_session: see `Kernel.first_session`.
    """

    def changes(turn: Turn) -> JobChanges:
        inbound = turn.inbounds[0].inbound
        sender = turn.sender
        actor = Actor(inbound.channel, sender.id, sender.name, tuple(sender.roles))
        chat = ChatRef(inbound.channel, inbound.chat, inbound.thread, inbound.direct, inbound.space)
        state = store.state.with_facts(turn.tape.staged_entries(SCHEDULE_TAPE))
        owns_all = turn.has_power_over_other_chats
        scheduled = turn.find_metadata(ScheduledTurn)
        nested = scheduled is not None and not scheduled.may_schedule
        requester = JobRequester(actor, turn.role, chat, nested=nested, owns_all=owns_all)
        return JobChanges(state, requester, turn.now(), store.new_id, store.limits, store.zone, turn.tape.source)

    def formatter(turn: Turn) -> JobFormatter:
        return JobFormatter(turn.texts, turn.now(), store.zone)

    async def add(turn: Turn, args: AddJobArgs | RemindArgs, action: Literal["prompt", "text"]) -> str:
        with _retry_if_refused(turn):
            pending = changes(turn)
            options = await _with_target(args.options(), first_session)
            reading, typed = _read_request(pending, options, action)
            job, facts = pending.add({**options, **typed, **due_fields(reading)})
            turn.tape.stage(SCHEDULE_TAPE, facts)
            warning = "" if store.is_timer_running else "\n" + turn.texts.say("job_unkept")
            turn.buttons.append(formatter(turn).change_buttons(job, reading.others))
            return formatter(turn).format_change("job_added", job, pending, reading.others) + warning

    async def plan_add(turn: Turn, args: AddJobArgs) -> CallPlan:
        """Say whether a job would have powers. A command has: when it is due, it runs as if it had been typed."""
        has_power = args.to or args.nested or args.allow or _holds_command(changes(turn), turn, args)
        return CallPlan(ADMINISTERS if has_power else CHANGES_JOBS, _plan_text(args))

    async def plan_change(turn: Turn, args: EditJobArgs | JobArgs) -> CallPlan:
        """Say which job would change. One with permissions, or of another chat, takes an owner's word."""
        with _retry_if_refused(turn):
            pending = changes(turn)
            is_edit = isinstance(args, EditJobArgs) and not args.when
            job = (pending.find_at_start(args.job)[0] if is_edit else pending.find(args.job)).job
        adds_power = isinstance(args, EditJobArgs) and bool(args.to or args.nested or args.allow or args.command)
        has_power = adds_power or job.allow or job.nested or job.session != turn.session
        what = f"{job_label(job)}: {describe_action(job, turn.texts)}"
        return CallPlan(ADMINISTERS if has_power else CHANGES_JOBS, _plan_text(args, what))

    @tool(
        "schedule.add",
        effect=CHANGES_JOBS,
        plan=plan_add,
        commands=("schedule",),
        help=CommandHelp(
            HelpTopic.TIMES,
            "Schedule a prompt or a command",
            (",schedule every day at 8:00: What is on today?", ',schedule when="at 18:00" command=",usage"'),
        ),
    )
    async def schedule_add(turn: Turn, args: AddJobArgs) -> str:
        """Schedule a prompt, a command or a fixed text, for one time or again and again. Tell the person the schedule
        in words, with its zone and the next times, as the result says them."""
        return await add(turn, args, "prompt")

    @tool(
        "schedule.remind",
        effect=CHANGES_JOBS,
        commands=("remind",),
        for_model=False,
        help=CommandHelp(
            HelpTopic.TIMES,
            "Remind you at a time",
            (",remind at 18:00: call Ann", ',remind when="every day at 9:00" text="Take the pills"'),
            in_menu=True,
        ),
    )
    async def schedule_remind(turn: Turn, args: RemindArgs) -> str:
        """Send a fixed text at a time: `,remind me to call Ann at 6pm`."""
        return await add(turn, args, "text")

    @tool(
        "schedule.edit",
        effect=STOPS_JOBS,
        plan=_plan_as_stop(plan_change),
        is_rare=True,
        help=CommandHelp(
            HelpTopic.TIMES, "Change a job", (",schedule.edit a1b2 at 9:00", ',schedule.edit a1b2 text="Stretch"')
        ),
    )
    async def schedule_edit(turn: Turn, args: EditJobArgs) -> str:
        """Change a job; what is left out stays as it is."""
        with _retry_if_refused(turn):
            pending = changes(turn)
            options = {
                name: value
                for name, value in (await _with_target(args.options(), first_session)).items()
                if name != "job"
            }
            job_state, time = (pending.find(args.job), args.when) if args.when else pending.find_at_start(args.job)
            reading = pending.read_time(time, args.zone, job_state.job) if time else None
            if reading is not None:
                options |= due_fields(reading)
            job, facts = pending.edit(job_state, options)
            turn.tape.stage(SCHEDULE_TAPE, facts)
            others = reading.others if reading else ()
            turn.buttons.append(formatter(turn).change_buttons(job, others))
            return _alert(turn, formatter(turn).format_change("job_changed", job, changes(turn), others))

    return [
        schedule_add,
        schedule_remind,
        *_view_tools(changes, formatter),
        schedule_edit,
        *_control_tools(changes, formatter, plan_change),
    ]


def _plan_as_stop(plan_change: PlanCall[Any]) -> PlanCall[Any]:
    """Return a plan for changes after which what a person relies on may not happen."""

    async def plan_stop(turn: Turn, args: ToolArgs) -> CallPlan:
        plan = await plan_change(turn, args)
        return replace(plan, effect=STOPS_JOBS) if plan.effect == CHANGES_JOBS else plan

    return plan_stop


def _alert(turn: Turn, answer: str) -> str:
    """Tell people what happened to a job, by the first line of the answer, whatever the model says of it."""
    turn.alert(answer.partition("\n")[0])
    return answer


async def _plan_chat(_turn: Turn, args: ChatRulesArgs) -> CallPlan:
    """Say whether a call changes anything: without rules it only tells them. Quiet hours hold reminders back."""
    return CallPlan(STOPS_JOBS if args.zone or args.quiet else READS_PEOPLE, _plan_text(args))


def _plan_text(args: ToolArgs, *lines: str) -> str:
    return "\n".join([*lines, args.model_dump_json(indent=2, exclude_unset=True)])


def _view_tools(changes: Callable[[Turn], JobChanges], formatter: Callable[[Turn], JobFormatter]) -> list[Tool]:
    """Build the tools that show jobs."""

    @tool(
        "schedule.list",
        effect=READS_PEOPLE,
        commands=("schedules",),
        help=CommandHelp(
            HelpTopic.TIMES,
            "Your reminders and jobs",
            (",schedules", ",schedules every=true"),
            in_menu=True,
            words=("reminders",),
        ),
    )
    async def schedule_list(turn: Turn, args: ListJobsArgs) -> str:
        """List the jobs of this chat with their next times."""
        with _retry_if_refused(turn):
            jobs = changes(turn).list_jobs(in_all_chats=args.every, include_ended=args.over)
        note_source(most_foreign(*(job_state.provenance for job_state in jobs)))
        return formatter(turn).format_list(jobs, turn.session)

    @tool(
        "schedule.show",
        effect=READS_PEOPLE,
        is_rare=True,
        help=CommandHelp(
            HelpTopic.TIMES, "Everything about one job", (",schedule.show a1b2", ",schedule.show stretch")
        ),
    )
    async def schedule_show(turn: Turn, args: JobArgs) -> str:
        """Show everything about one job."""
        with _retry_if_refused(turn):
            job_state = changes(turn).find(args.job)
        note_source(job_state.provenance)
        return formatter(turn).format_details(job_state)

    @tool(
        "schedule.history",
        effect=READS_PEOPLE,
        is_rare=True,
        help=CommandHelp(
            HelpTopic.TIMES, "What happened with a job", (",schedule.history a1b2", ",schedule.history stretch")
        ),
    )
    async def schedule_history(turn: Turn, args: JobHistoryArgs) -> str:
        """Tell what happened with a job: when it fired, ran, failed, and was delivered."""
        with _retry_if_refused(turn):
            job_state = changes(turn).find(args.job)
        job = job_state.job
        note_source(job_state.provenance)
        view = JobHistoryView(job.id, args.limit)
        facts = view.fold(await turn.tape.fetch(view.queries(SCHEDULE_TAPE)))
        turns = [str(fact.data["turn"]) for fact in facts if "turn" in fact.data]
        deliveries = DeliveriesView(turns)
        sent: dict[str, DeliveryState] = {}
        for tape in turn.tape.shards_of(outbox_tape(job.target.channel)):
            sent |= deliveries.fold(await turn.tape.fetch(deliveries.queries(tape)))
        return formatter(turn).format_history(job, facts, sent)

    @tool(
        "schedule.chat",
        effect=STOPS_JOBS,
        plan=_plan_chat,
        is_rare=True,
        role=Role.MEMBER,
        help=CommandHelp(
            HelpTopic.SETTINGS,
            "Time zone and quiet hours",
            (",schedule.chat", ",schedule.chat zone=Europe/Berlin quiet=22:00-07:00"),
            words=("settings",),
        ),
    )
    async def schedule_chat(turn: Turn, args: ChatRulesArgs) -> str:
        """Tell or set this chat's time zone and quiet hours."""
        with _retry_if_refused(turn):
            if args.zone or args.quiet:
                facts = changes(turn).set_chat_rules(turn.session, args.zone, args.quiet)
                turn.tape.stage(SCHEDULE_TAPE, facts)
            return formatter(turn).format_chat_rules(changes(turn).state, turn.session)

    return [schedule_list, schedule_show, schedule_history, schedule_chat]


def _control_tools(
    changes: Callable[[Turn], JobChanges],
    formatter: Callable[[Turn], JobFormatter],
    plan_change: PlanCall[JobArgs],
) -> list[Tool]:
    """Build the tools that pause, resume, run or remove jobs."""
    plan_stop = _plan_as_stop(plan_change)

    @tool(
        "schedule.pause",
        effect=STOPS_JOBS,
        plan=plan_stop,
        is_rare=True,
        help=CommandHelp(HelpTopic.TIMES, "Pause a job", (",schedule.pause a1b2", ",schedule.pause stretch")),
    )
    async def schedule_pause(turn: Turn, args: JobArgs) -> str:
        """Pause a job."""
        with _retry_if_refused(turn):
            pending = changes(turn)
            state = pending.find(args.job)
            turn.tape.stage(SCHEDULE_TAPE, pending.pause(state))
            return _alert(turn, turn.texts.say("job_paused", job=job_label(state.job), id=state.job.id))

    @tool(
        "schedule.resume",
        effect=CHANGES_JOBS,
        plan=plan_change,
        is_rare=True,
        help=CommandHelp(
            HelpTopic.TIMES, "Let a paused job go on", (",schedule.resume a1b2", ",schedule.resume stretch")
        ),
    )
    async def schedule_resume(turn: Turn, args: JobArgs) -> str:
        """Let a paused job go on."""
        with _retry_if_refused(turn):
            pending = changes(turn)
            state = pending.find(args.job)
            turn.tape.stage(SCHEDULE_TAPE, pending.resume(state))
            return formatter(turn).format_change("job_resumed", state.job, changes(turn))

    @tool(
        "schedule.run",
        effect=CHANGES_JOBS,
        plan=plan_change,
        is_rare=True,
        help=CommandHelp(HelpTopic.TIMES, "Run a job now", (",schedule.run a1b2", ",schedule.run stretch")),
    )
    async def schedule_run(turn: Turn, args: JobArgs) -> str:
        """Run a job now, besides its schedule."""
        with _retry_if_refused(turn):
            pending = changes(turn)
            state = pending.find(args.job)
            turn.tape.stage(SCHEDULE_TAPE, pending.run(state))
            return turn.texts.say("job_run", job=job_label(state.job))

    @tool(
        "schedule.remove",
        effect=STOPS_JOBS,
        plan=plan_stop,
        help=CommandHelp(
            HelpTopic.TIMES, "Remove a job", (",schedule.remove a1b2", ",schedule.remove stretch"), words=("cancel",)
        ),
    )
    async def schedule_remove(turn: Turn, args: JobArgs) -> str:
        """Remove a job; what it did stays on the tapes."""
        with _retry_if_refused(turn):
            pending = changes(turn)
            state = pending.find(args.job)
            turn.tape.stage(SCHEDULE_TAPE, pending.remove(state))
            return _alert(turn, formatter(turn).format_removed(state.job))

    return [schedule_pause, schedule_resume, schedule_run, schedule_remove]
