"""Times of jobs that passed while a home was a backup: the original bot has handled them."""

from __future__ import annotations

from datetime import datetime

from bubbot.features.schedule.facts import SCHEDULE_TAPE, FiringRefused, FiringsSkipped, JobOver
from bubbot.features.schedule.firing import fired_entry
from bubbot.features.schedule.plan import parse_rule
from bubbot.features.schedule.state import JobState
from bubbot.features.schedule.store import ScheduleStore
from bubbot.shell_command import CommandContext
from bubbot.tape.entry import TapeEntry
from bubbot.times.cron import format_instant
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import OneTime, newest_instants

RESTORED_REASON = "reason_restored"


async def end_open_work(context: CommandContext, at: datetime) -> tuple[str, list[TapeEntry], int]:
    """Return the tape and the facts that skip what has passed, and the number of jobs."""
    schedules = ScheduleStore(
        context.open_tape(SCHEDULE_TAPE), now=context.now, new_id=context.new_id, zone=str(context.zone)
    )
    await schedules.load()
    skipped = [facts for job in schedules.state.jobs.values() if (facts := skip_past_firings(job, at))]
    return SCHEDULE_TAPE, [fact for facts in skipped for fact in facts], len(skipped)


def skip_past_firings(job_state: JobState, now: datetime) -> list[TapeEntry]:
    """Make the facts that a job's past is skipped."""
    if job_state.status == "over":
        return []
    job = job_state.job
    facts = []
    for request in job_state.requests:
        mark = request.fact.mark
        refused = FiringRefused(job=job.id, mark=mark, turn="", reason=RESTORED_REASON, detail="")
        facts += [fired_entry(job, mark), refused.to_entry()]
    try:
        when, zone = parse_rule(job)
    except TimeRefused:  # the timer ends the job, with the reason
        return facts
    first = when.next_after(job_state.covered, zone)
    if job_state.status != "on" or first is None or first > now:
        return facts
    last = format_instant(newest_instants(when, zone, job_state.covered, now, 1)[-1])
    facts.append(FiringsSkipped(job.id, format_instant(first), last, RESTORED_REASON).to_entry())
    if isinstance(when, OneTime):  # its one time has passed, and nobody needs a notice that it was missed
        facts.append(JobOver(job.id, RESTORED_REASON, "").to_entry())
    return facts
