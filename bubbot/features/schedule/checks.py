"""What the doctor finds of schedules: jobs that wait because the clock was ahead."""

from __future__ import annotations

from bubbot.errors import StoreError, TapeCorrupt
from bubbot.features.schedule.facts import SCHEDULE_TAPE
from bubbot.features.schedule.plan import waits_for_clock
from bubbot.features.schedule.state import SCHEDULE_PROJECTION
from bubbot.ports.checks import Check, Finding, HomeReader
from bubbot.tape.projection import read_projection


async def check_jobs(home: HomeReader) -> list[Finding]:
    """Report the jobs that are silent because the clock was ahead when they last fired."""
    try:
        async with home.open_tape(SCHEDULE_TAPE) as tape:
            state = await read_projection(SCHEDULE_PROJECTION, tape)
    except (StoreError, TapeCorrupt):
        return []  # the check of the database reports it
    waiting = [job for job in state.jobs.values() if waits_for_clock(job, home.now())]
    if not waiting:
        return []
    until = max(job.covered for job in waiting)
    cause = (
        f"The clock was ahead: {len(waiting)} jobs are done up to {until:%Y-%m-%d %H:%M} UTC and do not come before. "
        "The command lets them go on from the present, if this clock is right; nothing fires twice."
    )
    return [Finding("clock.jobs", "warning", cause, "bubbot schedule resume")]


CHECKS = (Check("the schedule", check_jobs, reads_tapes=True, needs_settings=False),)
