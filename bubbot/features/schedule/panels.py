"""Schedules on the trace page: the jobs, and what each firing did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bubbot.errors import AccessError, ScheduleRefused
from bubbot.features.schedule.changes import job_label
from bubbot.features.schedule.firing import describe_action
from bubbot.features.schedule.formatter import JobFormatter
from bubbot.features.schedule.plan import next_times
from bubbot.features.schedule.state import (
    FIRING_EVENTS,
    JOB_ADDED,
    JOB_CHANGED,
    LASTING_EVENTS,
    SCHEDULE_PROJECTION,
    DeliveriesView,
    DeliveryState,
    JobState,
)
from bubbot.ports.outbox import OUTBOX_PREFIX
from bubbot.ports.panel import (
    Block,
    Cell,
    Moment,
    Number,
    Panel,
    PanelLink,
    PanelQuery,
    PanelReader,
    Paragraph,
    Table,
    TapeLink,
)
from bubbot.tape.boundary import SharedTape
from bubbot.tape.entry import Kind, TapeEntry, timestamp
from bubbot.tape.projection import read_projection
from bubbot.tape.query import TapeQuery
from bubbot.tape.shards import shard_tape

TAPE = SCHEDULE_PROJECTION.tapes
SCHEDULES = SharedTape(TAPE, "job", (JOB_ADDED, JOB_CHANGED))
DELIVERIES = SharedTape(f"{OUTBOX_PREFIX}/")
MAX_FACTS_READ = 5_000
"""Facts of all jobs among which a page looks for those of one."""


async def read_jobs(reader: PanelReader, query: PanelQuery) -> list[Block]:
    """Show the jobs of a chat, or all that the viewer may see, and the history of the chosen one."""
    texts = reader.texts
    state = await read_projection(SCHEDULE_PROJECTION, reader.tapes.open_tape(TAPE))
    jobs = state.jobs_of(query.session) if query.tape else list(state.jobs.values())
    chosen = next((each for each in jobs if each.job.id == query.params.get("job")), None)
    blocks: list[Block] = await _read_history(reader, query, chosen) if chosen else []
    start = query.cursor_id() or 0 if not chosen else 0
    rows = tuple(_job_row(reader, each) for each in jobs[start : start + query.limit])
    more = str(start + query.limit) if len(jobs) > start + query.limit else ""
    columns = tuple(
        map(
            texts.say,
            ("panel_does", "panel_state", "panel_chat", "panel_schedule", "panel_next", "panel_runs", "panel_job"),
        )
    )
    return [*blocks, Table(texts.say("panel_jobs"), columns, rows, texts.say("panel_jobs_none"), more)]


def _formatter(reader: PanelReader) -> JobFormatter:
    return JobFormatter(reader.texts, reader.now, str(reader.zone))


def _job_row(reader: PanelReader, state: JobState) -> tuple[Cell, ...]:
    job, formatter = state.job, _formatter(reader)
    try:
        following = next_times(state, reader.now, 1)
    except ScheduleRefused:  # a schedule that this version does not know
        following = []
    return (
        PanelLink(describe_action(job, reader.texts), params={"job": job.id}),
        formatter.format_state(state),
        TapeLink(job.session, session=job.session),
        formatter.format_schedule(job),
        Moment(timestamp(following[0])) if following else "",
        Number(state.runs),
        job_label(job),
    )


async def _read_history(reader: PanelReader, query: PanelQuery, state: JobState) -> list[Block]:
    """Show what a job does, and its facts, newest first: firing, turn and delivery are different facts."""
    job, texts = state.job, reader.texts
    tape = reader.tapes.open_tape(TAPE)
    facts_query = TapeQuery(
        TAPE,
        query.below_cursor,
        kinds=(Kind.EVENT,),
        names=(*LASTING_EVENTS, *FIRING_EVENTS),
        newest=True,
        limit=MAX_FACTS_READ,
    )
    found = (await tape.fetch([facts_query]))[0]
    own = [entry for entry in found if not entry.erased and entry.data.get("job") == job.id]
    facts = own[: query.limit]
    is_cut = len(own) > query.limit or len(found) == MAX_FACTS_READ
    more = str(facts[-1].id if len(own) > query.limit else found[-1].id) if is_cut else ""
    deliveries = await _read_deliveries(reader, job.session, job.target.channel, facts)
    rows = tuple(_fact_row(reader, job.session, entry, deliveries) for entry in facts)
    columns = tuple(
        map(texts.say, ("panel_fact", "panel_when", "panel_firing", "panel_result", "panel_turn", "panel_delivery"))
    )
    return [
        Paragraph(_formatter(reader).format_details(state), "quote"),
        Paragraph(describe_action(job, texts), "quote"),
        Table(texts.say("panel_job_history", job=job_label(job)), columns, rows, next_cursor=more),
    ]


async def _read_deliveries(
    reader: PanelReader, session: str, channel: str, facts: Sequence[TapeEntry]
) -> Mapping[str, DeliveryState]:
    turns = [str(entry.data["turn"]) for entry in facts if entry.data.get("turn")]
    name = shard_tape(f"{OUTBOX_PREFIX}/{channel}", session, reader.tapes.tape_shards)
    try:
        return await reader.tapes.open_tape(name).read(DeliveriesView(turns)) if turns else {}
    except AccessError:  # the job speaks in a chat that the viewer may not see
        return {}


def _fact_row(
    reader: PanelReader, session: str, entry: TapeEntry, deliveries: Mapping[str, DeliveryState]
) -> tuple[Cell, ...]:
    data = entry.data
    turn = str(data.get("turn", ""))
    reason = str(data.get("reason", ""))
    if reason.startswith("reason_"):
        reason = _formatter(reader).format_reason(reason, str(data.get("detail", "")))
    delivery = deliveries.get(turn)
    return (
        TapeLink((entry.name or "").removeprefix("schedule/"), tape=TAPE, entry=entry.id),
        Moment(entry.date),
        str(data.get("mark", "")),
        " ".join(filter(None, (str(data.get("status", "")), reason))),
        TapeLink(turn[:8], session=session, turn=turn) if turn else "",
        delivery.state if delivery else "",
    )


PANELS = (
    Panel("schedule", "Schedules", "session", read_jobs, (SCHEDULES, DELIVERIES)),
    Panel("schedule", "Schedules", "deployment", read_jobs, (SCHEDULES, DELIVERIES)),
)
