"""Schedules on the trace page: the jobs, and what each firing did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from bubbot.errors import AccessError
from bubbot.features.schedule.changes import job_label
from bubbot.features.schedule.facts import SCHEDULE_TAPE, SESSION_EVENTS
from bubbot.features.schedule.firing import describe_action
from bubbot.features.schedule.formatter import JobFormatter
from bubbot.features.schedule.plan import next_times
from bubbot.features.schedule.state import SCHEDULE_PROJECTION, DeliveriesView, DeliveryState, JobState
from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.ports.outbox import OUTBOX_PREFIX
from bubbot.tape.boundary import SharedTape
from bubbot.tape.entry import Kind, TapeEntry, timestamp
from bubbot.tape.projection import read_projection
from bubbot.tape.query import TapeQuery
from bubbot.tape.shards import shard_tape
from bubbot.times.refusal import TimeRefused

SCHEDULES = SharedTape(SCHEDULE_TAPE, "job", SESSION_EVENTS)
DELIVERIES = SharedTape(f"{OUTBOX_PREFIX}/")
MAX_FACTS_READ = 5_000
"""Facts of all jobs among which a page looks for those of one."""


class JobLine(Struct, frozen=True):
    """A job in words; `next_at` is ISO 8601, empty if it does not fire again."""

    id: str
    does: str
    state: str
    session: str
    schedule: str
    next_at: str
    runs: int
    label: str


class JobFact(Struct, frozen=True):
    """A fact of a job, with the turn it led to and what became of the answer."""

    id: int
    name: str
    date: str
    mark: str
    result: str
    turn: str
    delivery: str


class JobHistoryData(Struct, frozen=True):
    """The chosen job, and a page of its facts, newest first."""

    session: str
    details: str
    does: str
    label: str
    facts: tuple[JobFact, ...]
    more: str
    tape: str = SCHEDULE_TAPE


class Jobs(Struct, frozen=True):
    """A page of jobs, and the history of the chosen one."""

    jobs: tuple[JobLine, ...]
    more: str
    chosen: JobHistoryData | None = None


async def read_jobs(reader: PanelReader, query: PanelQuery) -> Jobs:
    """Read the jobs of a chat, or all that the viewer may see, and the history of the chosen one."""
    state = await read_projection(SCHEDULE_PROJECTION, reader.tapes.open_tape(SCHEDULE_TAPE))
    jobs = state.jobs_of(query.session) if query.tape else list(state.jobs.values())
    chosen = next((each for each in jobs if each.job.id == query.params.get("job")), None)
    history = await _read_history(reader, query, chosen) if chosen else None
    start = query.cursor_id() or 0 if not chosen else 0
    more = str(start + query.limit) if len(jobs) > start + query.limit else ""
    return Jobs(tuple(_describe_job(reader, each) for each in jobs[start : start + query.limit]), more, history)


def _formatter(reader: PanelReader) -> JobFormatter:
    return JobFormatter(reader.texts, reader.now, str(reader.zone))


def _describe_job(reader: PanelReader, state: JobState) -> JobLine:
    job, formatter = state.job, _formatter(reader)
    try:
        following = next_times(state, reader.now, 1)
    except TimeRefused:  # a schedule that this version does not know
        following = []
    return JobLine(
        job.id,
        describe_action(job, reader.texts),
        formatter.format_state(state),
        job.session,
        formatter.format_schedule(job),
        timestamp(following[0]) if following else "",
        state.runs,
        job_label(job),
    )


async def _read_history(reader: PanelReader, query: PanelQuery, state: JobState) -> JobHistoryData:
    """Read what a job does, and its facts, newest first: firing, turn and delivery are different facts."""
    job = state.job
    tape = reader.tapes.open_tape(SCHEDULE_TAPE)
    facts_query = TapeQuery(
        SCHEDULE_TAPE,
        query.below_cursor,
        kinds=(Kind.EVENT,),
        names=SCHEDULE_PROJECTION.events,
        newest=True,
        limit=MAX_FACTS_READ,
    )
    found = (await tape.fetch([facts_query]))[0]
    own = [entry for entry in found if not entry.erased and entry.data.get("job") == job.id]
    facts = own[: query.limit]
    is_cut = len(own) > query.limit or len(found) == MAX_FACTS_READ
    more = str(facts[-1].id if len(own) > query.limit else found[-1].id) if is_cut else ""
    deliveries = await _read_deliveries(reader, job.session, job.target.channel, facts)
    details, does = _formatter(reader).format_details(state), describe_action(job, reader.texts)
    shown = tuple(_describe_fact(reader, entry, deliveries) for entry in facts)
    return JobHistoryData(job.session, details, does, job_label(job), shown, more)


async def _read_deliveries(
    reader: PanelReader, session: str, channel: str, facts: Sequence[TapeEntry]
) -> Mapping[str, DeliveryState]:
    turns = [str(entry.data["turn"]) for entry in facts if entry.data.get("turn")]
    name = shard_tape(f"{OUTBOX_PREFIX}/{channel}", session, reader.tapes.tape_shards)
    try:
        return await reader.tapes.open_tape(name).read(DeliveriesView(turns)) if turns else {}
    except AccessError:  # the job speaks in a chat that the viewer may not see
        return {}


def _describe_fact(reader: PanelReader, entry: TapeEntry, deliveries: Mapping[str, DeliveryState]) -> JobFact:
    data = entry.data
    turn, reason = str(data.get("turn", "")), str(data.get("reason", ""))
    if reason.startswith("reason_"):
        reason = _formatter(reader).format_reason(reason, str(data.get("detail", "")))
    delivery = deliveries.get(turn)
    return JobFact(
        entry.id,
        (entry.name or "").removeprefix("schedule/"),
        entry.date,
        str(data.get("mark", "")),
        " ".join(filter(None, (str(data.get("status", "")), reason))),
        turn,
        delivery.state if delivery else "",
    )


TEMPLATE = "bubbot.features.schedule:jobs.html"
PANELS = (
    Panel("schedule", "Schedules", "session", read_jobs, TEMPLATE, (SCHEDULES, DELIVERIES)),
    Panel("schedule", "Schedules", "deployment", read_jobs, TEMPLATE, (SCHEDULES, DELIVERIES)),
)
