"""Times of jobs that passed while a home was a backup: somebody else has seen to them."""

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
    """The facts that nothing of a job's past is to be caught up with."""
    if standing.status == "over":
        return []
    job = standing.job
    facts = []
    for one in standing.asked:
        data = {"job": job.id, "mark": one.mark, "turn": "", "reason": REASON, "detail": ""}
        facts += [fired(job, one.mark), event(NOT_RUN, data)]
    try:
        when, zone = rule_of(job)
    except ScheduleRefused:  # it ends by itself, and says why
        return facts
    first = when.next(standing.covered, zone)
    if standing.status != "on" or first is None or first > now:
        return facts
    last = instant_text(newest(when, zone, standing.covered, now, 1)[-1])
    passed = {"job": job.id, "first": instant_text(first), "last": last, "reason": REASON}
    facts.append(event(SKIPPED, passed, key=f"skipped:{job.id}@{last}"))
    if isinstance(when, OneTime):  # it had one time, and nobody has to be told that it was missed
        facts.append(event(OVER, {"job": job.id, "reason": REASON, "detail": ""}))
    return facts
