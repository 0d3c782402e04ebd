"""Times of jobs that passed while a home was a backup: the original bot has handled them."""

from __future__ import annotations

from datetime import datetime

from bubbot.errors import ScheduleRefused
from bubbot.schedule.cron import instant_text
from bubbot.schedule.firing import fired
from bubbot.schedule.plan import rule_of
from bubbot.schedule.when import OneTime, newest
from bubbot.tape.entry import TapeEntry, event
from bubbot.views.schedule import NOT_RUN, OVER, SKIPPED, JobState

REASON = "reason_restored"


def passed_over(standing: JobState, now: datetime) -> list[TapeEntry]:
    """Make the facts that a job's past is skipped."""
    if standing.status == "over":
        return []
    job = standing.job
    facts = []
    for request in standing.asked:
        data = {"job": job.id, "mark": request.mark, "turn": "", "reason": REASON, "detail": ""}
        facts += [fired(job, request.mark), event(NOT_RUN, data)]
    try:
        when, zone = rule_of(job)
    except ScheduleRefused:  # the timer ends the job, with the reason
        return facts
    first = when.next(standing.covered, zone)
    if standing.status != "on" or first is None or first > now:
        return facts
    last = instant_text(newest(when, zone, standing.covered, now, 1)[-1])
    skipped = {"job": job.id, "first": instant_text(first), "last": last, "reason": REASON}
    facts.append(event(SKIPPED, skipped, key=f"skipped:{job.id}@{last}"))
    if isinstance(when, OneTime):  # its one time has passed, and nobody needs a notice that it was missed
        facts.append(event(OVER, {"job": job.id, "reason": REASON, "detail": ""}))
    return facts
