"""Jobs: whether some wait for a time that the clock has shown already."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

from bubbot.errors import StoreError, TapeCorrupt
from bubbot.home import Home
from bubbot.ops.doctor.finding import Finding
from bubbot.ops.doctor.stuck import never
from bubbot.schedule.changes import SCHEDULE_TAPE
from bubbot.schedule.plan import waits_for_clock
from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.service import TapeService
from bubbot.views.schedule import JobState, ScheduleCheckpointView, ScheduleView


def check_jobs(home: Home, *, now: datetime) -> Iterator[Finding]:
    """Name the jobs that are silent because the clock was ahead when they last fired."""
    try:
        waiting = [one for one in asyncio.run(_jobs(home)) if waits_for_clock(one, now)]
    except (StoreError, TapeCorrupt):
        return  # told with the database
    if waiting:
        until = max(one.covered for one in waiting)
        cause = (
            f"The clock was ahead: {len(waiting)} jobs are done up to {until:%Y-%m-%d %H:%M} UTC and do not come before. "
            "The command lets them go on from the present, if this clock is right; nothing fires twice."
        )
        yield Finding("clock.jobs", "warning", cause, "bubbot schedule resume")


async def _jobs(home: Home) -> list[JobState]:
    store = await open_readonly(home.database)
    try:
        tape = TapeService(store, SCHEDULE_TAPE, now=never, new_id=str, session="")
        after, counts = await tape.read(ScheduleCheckpointView())
        return list((await tape.read(ScheduleView(after, counts))).jobs.values())
    finally:
        await store.aclose()
