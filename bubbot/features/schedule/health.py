"""What schedules report of their health."""

from __future__ import annotations

from bubbot.errors import ScheduleRefused
from bubbot.features.schedule.cron import format_instant
from bubbot.features.schedule.plan import next_times
from bubbot.features.schedule.state import ScheduleState
from bubbot.ports.health import NextFiring
from bubbot.tape.handle import Clock

MAX_FIRINGS = 5
"""Number of next firings to report."""


def next_firings(state: ScheduleState, now: Clock) -> tuple[NextFiring, ...]:
    """Return the next firings of all jobs, the soonest first."""
    firings: list[NextFiring] = []
    for job_state in state.jobs.values():
        try:
            times = next_times(job_state, now(), 1)
        except ScheduleRefused:  # written by a newer version; the job's own status says so
            continue
        job = job_state.job
        firings += [NextFiring(job.id, job.name, job.session, format_instant(time)) for time in times]
    return tuple(sorted(firings, key=lambda firing: firing.at)[:MAX_FIRINGS])
