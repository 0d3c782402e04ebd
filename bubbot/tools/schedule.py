"""Tools about schedules: what a model may plan, and a person may type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from bubbot.errors import ScheduleRefused, ToolRetry
from bubbot.outbox import outbox_tape
from bubbot.ports.channel import Role
from bubbot.ports.tool import Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.schedule.changes import SCHEDULE_TAPE, JobChanges, JobRequester
from bubbot.schedule.firing import named, what_words
from bubbot.schedule.formatter import JobFormatter
from bubbot.schedule.refusal import told
from bubbot.schedule.store import ScheduleStore
from bubbot.schedule.when import duration
from bubbot.views.schedule import Actor, ChatRef, DeliveriesView, JobHistoryView, JobState

WHEN = (
    "five cron fields (0 9 * * 1-5), @daily, every 90m, every 2d from 2026-12-01 09:00, at 2026-12-24 18:00, at 18:00, "
    "at tomorrow 9:00 or in 20m"
)


class _JobOptions(ToolArgs):
    """What a job may have besides."""

    prompt: str = Field(default="", description="what I am to be asked then")
    command: str = Field(default="", description="a comma command to run then, such as ,memory.show")
    text: str = Field(default="", description="a text to send then as it is, without asking a model")
    zone: str = Field(default="", description="IANA time zone; the chat's where left out")
    name: str = Field(default="", description="a short name")
    catch_up: Literal["", "skip", "once", "all"] = Field(
        default="", description="what to do with firings missed while I was away: skip, once (the usual) or all"
    )
    catch_limit: int | None = Field(default=None, description="how many all catches up with at most")
    jitter: str = Field(default="", description="come up to this much later, such as 5m")
    until: str = Field(default="", description="the last day or time, such as 2026-12-31")
    runs: int | None = Field(default=None, description="how often it comes at most")
    budget: str = Field(default="", description="how long it may take, such as 2m")
    urgent: bool | None = Field(default=None, description="come in quiet hours too (owners only, in a direct chat)")
    nested: bool | None = Field(default=None, description="its turns may schedule too (owners only, in a direct chat)")
    to: str = Field(
        default="", description="another chat that gets the answer, such as telegram:42 (owners only, in a direct chat)"
    )

    def given(self) -> dict[str, Any]:
        """What was given, lengths of time in seconds. Raises `ScheduleRefused`."""
        found = self.model_dump(exclude_unset=True)
        for one in ("jitter", "budget"):
            if found.get(one):
                found[one] = 0 if found[one] in ("0", "none") else duration(found[one])
            else:
                found.pop(one, None)
        return found


class AddJobArgs(_JobOptions):
    """What `schedule.add` takes. Typed, `WHEN: WORDS` is a prompt, or a command where the words begin with a comma."""

    when: str = Field(description=WHEN)
    positional: ClassVar[tuple[str, ...]] = ("when",)

    @model_validator(mode="before")
    @classmethod
    def _typed(cls, given: Any) -> Any:
        return _split(given, "prompt")


class RemindArgs(_JobOptions):
    """What `schedule.remind` takes. Typed, `WHEN: WORDS` sends these words."""

    when: str = Field(description=WHEN)
    positional: ClassVar[tuple[str, ...]] = ("when",)

    @model_validator(mode="before")
    @classmethod
    def _typed(cls, given: Any) -> Any:
        return _split(given, "text")


def _split(given: Any, name: str) -> Any:
    """What stands before `: ` is when, what comes after it is what is to be done."""
    when = given.get("when")
    if not isinstance(when, str) or ": " not in when or any(given.get(one) for one in ("prompt", "command", "text")):
        return given
    first, _, rest = when.partition(": ")
    rest = rest.strip()
    return {**given, "when": first, "command" if rest.startswith(",") and name == "prompt" else name: rest}


class EditJobArgs(_JobOptions):
    """What `schedule.edit` takes; what is left out stays."""

    job: str = Field(description="the job's id, its beginning, or its name")
    when: str = Field(default="", description=WHEN)
    positional: ClassVar[tuple[str, ...]] = ("job",)


class JobArgs(ToolArgs):
    """What tools about one job take."""

    job: str = Field(description="the job's id, its beginning, or its name")


class ListJobsArgs(ToolArgs):
    """What `schedule.list` takes."""

    every: bool = Field(default=False, description="those of all chats (owners only, in a direct chat)")
    over: bool = Field(default=False, description="those too that have come to their end")


class JobHistoryArgs(ToolArgs):
    """What `schedule.history` takes."""

    job: str = Field(description="the job's id, its beginning, or its name")
    limit: int = Field(default=20, ge=1, le=200, description="how many facts")


class ChatRulesArgs(ToolArgs):
    """What `schedule.chat` takes; without anything it tells."""

    zone: str = Field(default="", description="IANA time zone in which times are read here, such as Europe/Berlin")
    quiet: str = Field(default="", description="quiet hours, such as 22:00-07:00, or none")


@contextmanager
def _mendable(turn: Turn) -> Iterator[None]:
    """What a schedule refuses can be mended by whoever asked."""
    try:
        yield
    except ScheduleRefused as error:
        raise ToolRetry(told(error, turn.texts)) from error


def schedule_tools(book: ScheduleStore) -> list[Tool]:
    """The tools over a book of jobs. What they change is merged with the turn."""

    def changes(turn: Turn) -> JobChanges:
        asked = turn.inbounds[0].inbound
        sender = turn.sender
        by = Actor(asked.channel, sender.id, sender.name, tuple(sender.roles))
        place = ChatRef(asked.channel, asked.chat, asked.thread, asked.direct, asked.space)
        state = book.state.after(turn.tape.staged(SCHEDULE_TAPE))
        owns_all = turn.has_power_over_other_chats
        asker = JobRequester(by, turn.role, place, nested=not turn.may_schedule, owns_all=owns_all)
        return JobChanges(state, asker, turn.now(), book.new_id, book.limits, book.zone)

    def teller(turn: Turn) -> JobFormatter:
        return JobFormatter(turn.texts, turn.now(), book.zone)

    async def add(turn: Turn, args: AddJobArgs | RemindArgs) -> str:
        with _mendable(turn):
            made = changes(turn)
            job, facts = made.add(args.given())
            turn.tape.stage(SCHEDULE_TAPE, facts)
            unkept = "" if book.kept else "\n" + turn.texts.say("job_unkept")
            return teller(turn).made("job_added", job, made) + unkept

    @tool("schedule.add", commands=("schedule",))
    async def schedule_add(turn: Turn, args: AddJobArgs) -> str:
        """Schedule a prompt, a command or a fixed text, for one time or again and again. Tell the person the schedule
        in words, with its zone and the next times, as the result says them."""
        return await add(turn, args)

    @tool("schedule.remind", commands=("remind",), for_model=False)
    async def schedule_remind(turn: Turn, args: RemindArgs) -> str:
        """Send a fixed text at a time: `,remind at 18:00: call Ann`."""
        return await add(turn, args)

    @tool("schedule.edit")
    async def schedule_edit(turn: Turn, args: EditJobArgs) -> str:
        """Change a job; what is left out stays as it is."""
        with _mendable(turn):
            made, given = changes(turn), args.given()
            job, facts = made.edit(made.find(args.job), {name: value for name, value in given.items() if name != "job"})
            turn.tape.stage(SCHEDULE_TAPE, facts)
            return teller(turn).made("job_changed", job, changes(turn))

    return [
        schedule_add,
        schedule_remind,
        *_looking(book, changes, teller),
        schedule_edit,
        *_switching(changes, teller),
    ]


def _looking(book: ScheduleStore, changes: Any, teller: Any) -> list[Tool]:
    """The tools that look at jobs."""

    @tool("schedule.list", commands=("schedules",))
    async def schedule_list(turn: Turn, args: ListJobsArgs) -> str:
        """List the jobs of this chat with their next times."""
        with _mendable(turn):
            jobs: list[JobState] = changes(turn).listed(every=args.every, over=args.over)
        text: str = teller(turn).listed(jobs, turn.session)
        return text

    @tool("schedule.show")
    async def schedule_show(turn: Turn, args: JobArgs) -> str:
        """Show everything about one job."""
        with _mendable(turn):
            text: str = teller(turn).shown(changes(turn).find(args.job))
            return text

    @tool("schedule.history")
    async def schedule_history(turn: Turn, args: JobHistoryArgs) -> str:
        """Tell what happened with a job: when it fired, ran, failed, and was delivered."""
        with _mendable(turn):
            job = changes(turn).find(args.job).job
        view = JobHistoryView(job.id, args.limit)
        facts = view.fold(await turn.tape.fetch(view.queries(SCHEDULE_TAPE)))
        seen = DeliveriesView([str(one.payload["data"]["turn"]) for one in facts if "turn" in one.payload["data"]])
        sent = seen.fold(await turn.tape.fetch(seen.queries(outbox_tape(job.target.channel))))
        text: str = teller(turn).history(job, facts, sent)
        return text

    @tool("schedule.chat", role=Role.MEMBER)
    async def schedule_chat(turn: Turn, args: ChatRulesArgs) -> str:
        """Tell or set this chat's time zone and quiet hours."""
        with _mendable(turn):
            if args.zone or args.quiet:
                facts = changes(turn).chat(turn.session, args.zone, args.quiet)
                turn.tape.stage(SCHEDULE_TAPE, facts)
            text: str = teller(turn).chat(changes(turn).state, turn.session)
            return text

    return [schedule_list, schedule_show, schedule_history, schedule_chat]


def _switching(changes: Any, teller: Any) -> list[Tool]:
    """The tools that stop jobs, let them go on, or run them."""

    @tool("schedule.pause")
    async def schedule_pause(turn: Turn, args: JobArgs) -> str:
        """Pause a job."""
        with _mendable(turn):
            made: JobChanges = changes(turn)
            standing = made.find(args.job)
            turn.tape.stage(SCHEDULE_TAPE, made.pause(standing))
            return turn.texts.say("job_paused", job=standing.job.id)

    @tool("schedule.resume")
    async def schedule_resume(turn: Turn, args: JobArgs) -> str:
        """Let a paused job go on."""
        with _mendable(turn):
            made: JobChanges = changes(turn)
            standing = made.find(args.job)
            turn.tape.stage(SCHEDULE_TAPE, made.resume(standing))
            text: str = teller(turn).made("job_resumed", standing.job, changes(turn))
            return text

    @tool("schedule.run")
    async def schedule_run(turn: Turn, args: JobArgs) -> str:
        """Run a job now, besides its schedule."""
        with _mendable(turn):
            made: JobChanges = changes(turn)
            standing = made.find(args.job)
            turn.tape.stage(SCHEDULE_TAPE, made.run(standing))
            return turn.texts.say("job_run", job=named(standing.job))

    @tool("schedule.remove")
    async def schedule_remove(turn: Turn, args: JobArgs) -> str:
        """Remove a job; what it did stays on the tapes."""
        with _mendable(turn):
            made: JobChanges = changes(turn)
            standing = made.find(args.job)
            turn.tape.stage(SCHEDULE_TAPE, made.remove(standing))
            return turn.texts.say("job_removed", job=named(standing.job), what=what_words(standing.job, turn.texts))

    return [schedule_pause, schedule_resume, schedule_run, schedule_remove]
