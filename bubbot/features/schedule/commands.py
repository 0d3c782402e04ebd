"""The commands about schedules: those of people in chats and shells, and the tools of models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

from msgspec import structs

from bubbot.arguments.fields import write_given
from bubbot.command import Caller, Surface, command, explain_refusals, make_group, make_tools
from bubbot.errors import ValueInvalid
from bubbot.features.schedule.arguments import (
    MAX_NEXT_TIMES,
    AddJobArgs,
    AddJobToChatArgs,
    ChatRulesArgs,
    EditJobArgs,
    JobArgs,
    JobHistoryArgs,
    ListAllJobsArgs,
    ListJobsArgs,
    LongJobHistoryArgs,
    NextTimesArgs,
    ResumeJobArgs,
    SetChatRulesArgs,
)
from bubbot.features.schedule.changes import (
    TERMINAL,
    JobChanges,
    JobRequester,
    due_fields,
    job_label,
    parse_chat_ref,
)
from bubbot.features.schedule.facts import SCHEDULE_TAPE, Actor, ChatRef, Job
from bubbot.features.schedule.firing import ScheduledTurn, describe_action
from bubbot.features.schedule.records import (
    ChatRulesResult,
    JobChange,
    JobDetails,
    JobHistory,
    JobHistoryResult,
    JobList,
    JobRecord,
    JobsChanged,
    JobsListed,
    NextTimesResult,
    NextTimesWorkedOut,
    format_for,
)
from bubbot.features.schedule.refusal import build_command_refusal
from bubbot.features.schedule.state import DeliveriesView, DeliveryState, JobHistoryView, JobState
from bubbot.features.schedule.store import ScheduleStore
from bubbot.gateway.outbox import outbox_tape
from bubbot.ports.channel import Role
from bubbot.ports.session_names import keep_session
from bubbot.ports.turn import Turn
from bubbot.shell_command import CommandContext
from bubbot.tape.entry import TapeEntry
from bubbot.tape.provenance import most_foreign, note_source
from bubbot.times.reading import ReadingContext, TimeReading
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import find_zone, next_instants
from bubbot.tool import (
    ADMINISTERS,
    CHANGES_JOBS,
    READS_OWN,
    READS_PEOPLE,
    STOPS_JOBS,
    CallPlan,
    CommandHelp,
    HelpTopic,
    PlanCall,
    Tool,
)

TERMINAL_CHAT = ChatRef(TERMINAL, TERMINAL)
CONNECTORS = " :,-：，、"
"""What may stand between a time and a text; alone it is no text."""


def _help(brief: str, *examples: str, **more: Any) -> CommandHelp:
    return CommandHelp(HelpTopic.TIMES, brief, examples, **more)


@contextmanager
def _explained(caller: Caller) -> Iterator[None]:
    """Turn the refusal of a time into that of a command, and say why a job is over in the words of the caller."""
    try:
        yield
    except ValueInvalid as error:
        if error.code != "job_over":
            raise
        reason = caller.result_texts.say(str(error.values["reason"]), detail=error.values["detail"])
        raise ValueInvalid(error.code, job=error.values["job"], reason=reason) from error
    except TimeRefused as error:
        raise build_command_refusal(error, caller.result_texts) from error


class ScheduleCommands:
    """The commands, over the jobs of a bot or of a home. In a turn their facts are merged with it."""

    def __init__(self, store: ScheduleStore, first_session: Callable[[str], Awaitable[str]] = keep_session) -> None:
        """Take the jobs, and what returns a session as it is stored (see `Kernel.first_session`)."""
        self._store = store
        self._first_session = first_session

    @command(
        "schedule add <session> <when>",
        chat=("schedule.add", "schedule"),
        example="telegram:42 '0 9 * * 1-5' --text 'Stand-up!'",
        effect=CHANGES_JOBS,
        for_model=True,
        help=_help(
            "Schedule a prompt or a command",
            ",schedule every day at 8:00: What is on today?",
            ',schedule when="at 18:00" command=",usage"',
        ),
    )
    async def add(self, caller: Caller, args: AddJobArgs | AddJobToChatArgs) -> JobChange:
        """Schedule a prompt, a command or a fixed text, for one time or again and again. Tell the person the schedule
        in words, with its zone and the next times, as the result says them."""
        return await self._add(caller, args, "prompt")

    @command(
        "schedule remind",
        chat=("schedule.remind", "remind"),
        in_shell=False,
        effect=CHANGES_JOBS,
        help=_help(
            "Remind you at a time",
            ",remind at 18:00: call Ann",
            ',remind when="every day at 9:00" text="Take the pills"',
            in_menu=True,
        ),
    )
    async def remind(self, caller: Caller, args: AddJobArgs) -> JobChange:
        """Send a fixed text at a time: `,remind me to call Ann at 6pm`."""
        return await self._add(caller, args, "text")

    @command(
        "schedule list",
        chat=("schedule.list", "schedules"),
        effect=READS_PEOPLE,
        for_model=True,
        help=_help(
            "Your reminders and jobs", ",schedules", ",schedules every=true", in_menu=True, words=("reminders",)
        ),
    )
    async def list_jobs(self, caller: Caller, args: ListJobsArgs | ListAllJobsArgs) -> JobList:
        """List the jobs of this chat with their next times."""
        in_all_chats = args.every if isinstance(args, ListJobsArgs) else True
        with _explained(caller):
            pending = self.plan_changes(caller)
            states = pending.list_jobs(in_all_chats=in_all_chats, include_ended=args.over)
        note_source(most_foreign(*(state.provenance for state in states)))
        records = tuple([JobRecord.of(state, pending.now) for state in states])
        return JobsListed(records, states=states, pending=pending)

    @command(
        "schedule show <job>",
        chat=("schedule.show",),
        example="3fa9c1",
        effect=READS_PEOPLE,
        for_model=True,
        help=_help("Everything about one job", ",schedule.show a1b2", ",schedule.show stretch"),
    )
    async def show(self, caller: Caller, args: JobArgs) -> JobRecord:
        """Show everything about one job."""
        pending, state = self._find(caller, args.job)
        note_source(state.provenance)
        return JobDetails.of(state, pending.now, state=state, pending=pending)

    @command(
        "schedule history <job>",
        chat=("schedule.history",),
        example="3fa9c1",
        effect=READS_PEOPLE,
        for_model=True,
        help=_help("What happened with a job", ",schedule.history a1b2", ",schedule.history stretch"),
    )
    async def history(self, caller: Caller, args: JobHistoryArgs | LongJobHistoryArgs) -> JobHistoryResult:
        """Tell what happened with a job: when it fired, ran, failed, and was delivered."""
        pending, state = self._find(caller, args.job)
        note_source(state.provenance)
        facts = await self._read_history(caller, JobHistoryView(state.job.id, max(args.limit, 1)))
        turns = [str(fact.data["turn"]) for fact in facts if "turn" in fact.data]
        sent = await self._read_deliveries(caller, outbox_tape(state.job.target.channel), DeliveriesView(turns))
        return JobHistory.of_facts(state.job, facts, sent, pending)

    async def _read_history(self, caller: Caller, view: JobHistoryView) -> Sequence[TapeEntry]:
        if caller.turn is None:
            return await self._store.tape.read(view)
        return view.fold(await caller.turn.tape.fetch(view.queries(SCHEDULE_TAPE)))

    async def _read_deliveries(self, caller: Caller, tape: str, view: DeliveriesView) -> Mapping[str, DeliveryState]:
        sent: dict[str, DeliveryState] = {}
        if caller.turn is not None:
            for name in caller.turn.tape.shards_of(tape):
                sent |= view.fold(await caller.turn.tape.fetch(view.queries(name)))
        elif caller.context is not None:
            for shard in caller.context.open_tape(tape).shards():
                sent |= await shard.read(view)
        return sent

    @command(
        "schedule chat <session>",
        chat=("schedule.chat",),
        example="telegram:42 --quiet 22:00-07:00",
        effect=STOPS_JOBS,
        for_model=True,
        help=CommandHelp(
            HelpTopic.SETTINGS,
            "Time zone and quiet hours",
            (",schedule.chat", ",schedule.chat zone=Europe/Berlin quiet=22:00-07:00"),
            words=("settings",),
        ),
    )
    async def set_chat_rules(self, caller: Caller, args: ChatRulesArgs | SetChatRulesArgs) -> ChatRulesResult:
        """Tell or set this chat's time zone and quiet hours."""
        with _explained(caller):
            pending = self.plan_changes(caller, await self._find_chat(args))
            session = caller.turn.session if caller.turn else pending.requester.session
            if args.zone or args.quiet:
                pending = await self._save(caller, pending, pending.set_chat_rules(session, args.zone, args.quiet))
        rules = pending.state.rules_of(session)
        return ChatRulesResult(session, rules.zone or self._store.zone, rules.quiet or None)

    @command(
        "schedule edit <job>",
        chat=("schedule.edit",),
        example="3fa9c1 --when 'every 2h'",
        effect=STOPS_JOBS,
        for_model=True,
        help=_help("Change a job", ",schedule.edit a1b2 at 9:00", ',schedule.edit a1b2 text="Stretch"'),
    )
    async def edit(self, caller: Caller, args: EditJobArgs) -> JobChange:
        """Change a job; what is left out stays as it is."""
        with _explained(caller):
            pending, options = self.plan_changes(caller), await self._read_options(args)
            if args.when or caller.surface is Surface.SHELL:
                state, time = pending.find(args.job), args.when
            else:  # a person types the time after the job
                state, time = pending.find_at_start(args.job)
            reading = pending.read_time(time, args.zone, state.job) if time else None
            job, facts = pending.edit(state, options | (due_fields(reading) if reading else {}))
            pending = await self._save(caller, pending, facts)
        return self._answer(caller, "changed", job, pending, facts=facts, reading=reading)

    @command(
        "schedule pause <job>",
        chat=("schedule.pause",),
        example="3fa9c1",
        effect=STOPS_JOBS,
        for_model=True,
        help=_help("Pause a job", ",schedule.pause a1b2", ",schedule.pause stretch"),
    )
    async def pause(self, caller: Caller, args: JobArgs) -> JobChange:
        """Pause a job."""
        return await self._change(caller, "paused", args, JobChanges.pause)

    @command(
        "schedule resume [job]",
        chat=("schedule.resume",),
        example="3fa9c1",
        effect=CHANGES_JOBS,
        for_model=True,
        help=_help("Let a paused job go on", ",schedule.resume a1b2", ",schedule.resume stretch"),
    )
    async def resume(self, caller: Caller, args: JobArgs | ResumeJobArgs) -> JobChange:
        """Let a paused job go on."""
        if isinstance(args, JobArgs) or args.job:
            return await self._change(caller, "resumed", args, JobChanges.resume)
        pending = self.plan_changes(caller)
        facts = pending.resume_waiting()
        pending = await self._save(caller, pending, facts)
        return self._answer(caller, "all_resumed", None, pending, facts=facts)

    @command(
        "schedule run <job>",
        chat=("schedule.run",),
        example="3fa9c1",
        effect=CHANGES_JOBS,
        for_model=True,
        help=_help("Run a job now", ",schedule.run a1b2", ",schedule.run stretch"),
    )
    async def run_now(self, caller: Caller, args: JobArgs) -> JobChange:
        """Run a job now, besides its schedule."""
        return await self._change(caller, "run", args, JobChanges.run)

    @command(
        "schedule remove <job>",
        chat=("schedule.remove",),
        example="3fa9c1",
        effect=STOPS_JOBS,
        for_model=True,
        help=_help("Remove a job", ",schedule.remove a1b2", ",schedule.remove stretch", words=("cancel",)),
    )
    async def remove(self, caller: Caller, args: JobArgs) -> JobChange:
        """Remove a job; what it did stays on the tapes."""
        return await self._change(caller, "removed", args, JobChanges.remove)

    @command("schedule next <when>", example="'0 9 * * 1-5'", effect=READS_OWN)
    async def find_next_times(self, caller: Caller, args: NextTimesArgs) -> NextTimesResult:
        """Say what a schedule means, without planning anything."""
        from bubbot.times.phrases import read_time  # compiled when a time is read

        if not 1 <= args.count <= MAX_NEXT_TIMES:
            raise ValueInvalid("next_count", given=args.count, most=MAX_NEXT_TIMES)
        now = self._store.now()
        with _explained(caller):
            zone = find_zone(args.zone or self._store.zone)
            reading = read_time(args.when, ReadingContext(now, zone, self._store.limits.default_clock))
            zone = find_zone(reading.zone) if reading.zone else zone
            moments: list[datetime] = []
            with suppress(OverflowError):
                moments = next_instants(reading.when, zone, now, args.count)
        return NextTimesWorkedOut.of_reading(reading, zone, moments)

    def plan_changes(self, caller: Caller, session: str = "") -> JobChanges:
        """Return what a caller may change: in a shell the owner of every job, as if in the chat of a session."""
        store, turn = self._store, caller.turn
        if turn is None:
            chat = parse_chat_ref(session) if session else TERMINAL_CHAT
            requester = JobRequester(Actor(chat.channel, TERMINAL), Role.OWNER, chat, owns_all=True)
            return JobChanges(store.state, requester, store.now(), store.new_id, store.limits, store.zone)
        inbound, sender = turn.inbounds[0].inbound, turn.sender
        actor = Actor(inbound.channel, sender.id, sender.name, tuple(sender.roles))
        chat = ChatRef(inbound.channel, inbound.chat, inbound.thread, inbound.direct, inbound.space)
        state = store.state.with_facts(turn.tape.staged_entries(SCHEDULE_TAPE))
        scheduled = turn.find_metadata(ScheduledTurn)
        nested = scheduled is not None and not scheduled.may_schedule
        requester = JobRequester(actor, turn.role, chat, nested=nested, owns_all=turn.has_power_over_other_chats)
        return JobChanges(state, requester, turn.now(), store.new_id, store.limits, store.zone, turn.tape.source)

    def _find(self, caller: Caller, job: str) -> tuple[JobChanges, JobState]:
        with _explained(caller):
            pending = self.plan_changes(caller)
            return pending, pending.find(job)

    async def _find_chat(self, args: AddJobArgs | ChatRulesArgs) -> str:
        """Return the chat that a shell names, as it is stored; empty in a chat."""
        if isinstance(args, (AddJobToChatArgs, SetChatRulesArgs)):
            return await self._first_session(args.session.strip())
        return ""

    async def _read_options(self, args: AddJobArgs | EditJobArgs) -> dict[str, Any]:
        """Return what was said of a job, with the chat that gets the answers as its session is stored."""
        options = args.options()
        return options | ({"to": await self._first_session(args.to.strip())} if args.to else {})

    async def _add(self, caller: Caller, args: AddJobArgs, action: Literal["prompt", "text"]) -> JobChange:
        with _explained(caller):
            pending = self.plan_changes(caller, await self._find_chat(args))
            options = await self._read_options(args)
            reading, typed = read_request(pending, options, "" if caller.surface is Surface.SHELL else action)
            job, facts = pending.add({**options, **typed, **due_fields(reading)})
            pending = await self._save(caller, pending, facts)
        return self._answer(caller, "added", job, pending, facts=facts, reading=reading)

    async def _change(
        self,
        caller: Caller,
        variant: Literal["paused", "resumed", "run", "removed"],
        args: JobArgs | ResumeJobArgs,
        act: Callable[[JobChanges, JobState], list[TapeEntry]],
    ) -> JobChange:
        with _explained(caller):
            pending = self.plan_changes(caller)
            state = pending.find(args.job)
            facts = act(pending, state)
            pending = await self._save(caller, pending, facts)
        return self._answer(caller, variant, state.job, pending, facts=facts)

    async def _save(self, caller: Caller, pending: JobChanges, facts: Sequence[TapeEntry]) -> JobChanges:
        """Save facts, in a turn with it; return what may be changed then."""
        after = structs.replace(pending, state=pending.state.with_facts(facts))
        if caller.turn is not None:
            caller.turn.tape.stage(SCHEDULE_TAPE, facts)
        else:
            await self._store.write(facts)
        return after

    def _answer(
        self,
        caller: Caller,
        variant: Literal["added", "changed", "paused", "resumed", "all_resumed", "run", "removed"],
        job: Job | None,
        pending: JobChanges,
        *,
        facts: Sequence[TapeEntry],
        reading: TimeReading | None = None,
    ) -> JobChange:
        """Return what was changed; in a chat add buttons, and tell people what happened, whatever a model says of it."""
        ids, jobs = dict.fromkeys(str(fact.data["job"]) for fact in facts), pending.state.jobs
        others = reading.others if reading else ()
        result = JobsChanged(
            tuple([JobRecord.of(jobs[job_id], pending.now) for job_id in ids if job_id in jobs]),
            tuple([job_id for job_id in ids if job_id not in jobs]),
            variant=variant,
            job=job,
            pending=pending,
            others=tuple(others),
            is_kept=self._store.is_timer_running,
        )
        if caller.turn is not None:
            if job is not None and variant in ("added", "changed"):
                caller.turn.buttons.append(format_for(caller, pending).change_buttons(job, others))
            if variant in ("changed", "paused", "removed"):
                caller.turn.alert(result.describe(caller).partition("\n")[0])
        return result


def read_request(
    pending: JobChanges, options: Mapping[str, Any], action: Literal["", "prompt", "text"]
) -> tuple[TimeReading, dict[str, str]]:
    """Read when a job is due and, from a typed request, what it does. Raise `ValueInvalid` or `TimeRefused`.

    Args:
        pending: reads times.
        options: what was said of the job.
        action: what the words after the time are; empty if only options say what a job does.
    """
    zone = options.get("zone", "")
    if not action or any(options.get(name) for name in ("prompt", "command", "text")):
        return pending.read_time(options["when"], zone), {}
    request = pending.split_request(options["when"], zone)
    if not request.text.strip(CONNECTORS):
        sentence = "job_text_missing" if action == "text" else "job_prompt_missing"
        raise ValueInvalid(sentence, when=options["when"].strip(CONNECTORS))
    is_command = action == "prompt" and request.text.startswith(",")
    return request.reading, {"command" if is_command else action: request.text}


# What only a call of a model needs


@contextmanager
def _explained_to_model(turn: Turn) -> Iterator[Caller]:
    caller = Caller.of_turn(turn)
    with explain_refusals(turn, ",schedule"), _explained(caller):
        yield caller


def schedule_tools(store: ScheduleStore, first_session: Callable[[str], Awaitable[str]] = keep_session) -> list[Tool]:
    """Build the tools for this store of jobs. Their changes are merged with the turn.

    Args:
        store: the jobs.
        first_session: see `Kernel.first_session`.
    """
    commands = ScheduleCommands(store, first_session)

    async def plan_add(turn: Turn, args: AddJobArgs) -> CallPlan:
        """Say whether a job would have powers. A command has: when it is due, it runs as if it had been typed."""
        has_power = bool(args.to or args.nested or args.allow or args.command)
        if not has_power:
            with _explained_to_model(turn) as caller:
                has_power = "command" in read_request(commands.plan_changes(caller), args.options(), "prompt")[1]
        return CallPlan(ADMINISTERS if has_power else CHANGES_JOBS, write_given(args, indent=2))

    async def plan_change(turn: Turn, args: EditJobArgs | JobArgs) -> CallPlan:
        """Say which job would change. One with permissions, or of another chat, takes an owner's word."""
        with _explained_to_model(turn) as caller:
            pending = commands.plan_changes(caller)
            is_edit = isinstance(args, EditJobArgs) and not args.when
            job = (pending.find_at_start(args.job)[0] if is_edit else pending.find(args.job)).job
        adds_power = isinstance(args, EditJobArgs) and bool(args.to or args.nested or args.allow or args.command)
        has_power = adds_power or job.allow or job.nested or job.session != turn.session
        details = f"{job_label(job)}: {describe_action(job, turn.texts)}\n{write_given(args, indent=2)}"
        return CallPlan(ADMINISTERS if has_power else CHANGES_JOBS, details)

    plan_stop = _plan_as_stop(plan_change)
    options: dict[str, dict[str, Any]] = {
        "schedule_add": {"plan": plan_add},
        "schedule_show": {"is_rare": True},
        "schedule_history": {"is_rare": True},
        "schedule_chat": {"plan": _plan_chat, "is_rare": True},
        "schedule_edit": {"plan": plan_stop, "is_rare": True},
        "schedule_pause": {"plan": plan_stop, "is_rare": True},
        "schedule_resume": {"plan": plan_change, "is_rare": True},
        "schedule_run": {"plan": plan_change, "is_rare": True},
        "schedule_remove": {"plan": plan_stop, "is_rare": True},
    }
    return make_tools(ScheduleCommands, lambda: commands, **options)


def _plan_as_stop(plan_change: PlanCall[Any]) -> PlanCall[Any]:
    """Return a plan for changes after which what a person relies on may not happen."""

    async def plan_stop(turn: Turn, args: EditJobArgs | JobArgs) -> CallPlan:
        plan = await plan_change(turn, args)
        return structs.replace(plan, effect=STOPS_JOBS) if plan.effect == CHANGES_JOBS else plan

    return plan_stop


async def _plan_chat(_turn: Turn, args: ChatRulesArgs) -> CallPlan:
    """Say whether a call changes anything: without rules it only tells them. Quiet hours hold reminders back."""
    return CallPlan(STOPS_JOBS if args.zone or args.quiet else READS_PEOPLE, write_given(args, indent=2))


# What only a shell has


async def _open_commands(context: CommandContext) -> ScheduleCommands:
    """Return the commands over the running bot's own jobs, or over those of the home."""
    store = context.service(ScheduleStore)
    if store is None:
        store = ScheduleStore(
            context.open_tape(SCHEDULE_TAPE),
            now=context.now,
            new_id=context.new_id,
            zone=str(context.zone),
            limits=context.settings,
        )
        await store.load()
    return ScheduleCommands(store, context.first_session)


def _shell_help(text: str, **more: Any) -> dict[str, Any]:
    return {"help": f"{text[:1].lower()}{text[1:-1]}", "description": text, **more}


_OPTIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "list": _shell_help("Show the jobs of every chat."),
        "show": _shell_help("Show everything about a job."),
        "history": _shell_help("Tell when a job fired, ran, failed and was delivered."),
        "next": {"needs_home": False},
        "add": _shell_help("Plan a job in a chat."),
        "edit": _shell_help("Change a job; what is left out stays."),
        "pause": {},
        "resume": _shell_help("Let a paused job go on, or all that wait since the clock was ahead."),
        "run": _shell_help("Run a job now, in addition to its schedule."),
        "remove": _shell_help("Remove a job."),
        "chat": _shell_help("Set the time zone and quiet hours of a chat."),
    }
)
"""What only a shell has, in the order of its help: most of the words for chats and models speak of one chat."""
_MADE = make_group(
    "schedule",
    ScheduleCommands,
    _open_commands,
    "Schedule prompts, commands and texts, once or repeatedly, and see their results. `bubbot run` fires the "
    "jobs. `list`, `show`, `history` and `next` are read-only and work while the bot runs.",
    (),
    help_line="schedule prompts, commands and texts, and see their results",
    section="Change",
    **_OPTIONS,
)
COMMANDS = replace(_MADE, commands=tuple(sorted(_MADE.commands, key=lambda each: [*_OPTIONS].index(each.action))))
