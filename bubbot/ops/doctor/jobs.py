"""Jobs that wait because the clock was ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

from bubbot.app.stores import open_home_store
from bubbot.errors import StoreError, TapeCorrupt
from bubbot.features.schedule.changes import SCHEDULE_TAPE
from bubbot.features.schedule.plan import waits_for_clock
from bubbot.features.schedule.state import SCHEDULE_PROJECTION, JobState
from bubbot.home import Home
from bubbot.ops.doctor.finding import Finding
from bubbot.ops.doctor.stuck import unused_clock
from bubbot.settings.sections import DEFAULT_STORE, StoreSettings
from bubbot.tape.projection import read_projection
from bubbot.tape.service import TapeService


def check_jobs(home: Home, *, now: datetime, store: StoreSettings = DEFAULT_STORE) -> Iterator[Finding]:
    """Report the jobs that are silent because the clock was ahead when they last fired."""
    try:
        waiting = [job for job in asyncio.run(_read_jobs(home, store)) if waits_for_clock(job, now)]
    except (StoreError, TapeCorrupt):
        return  # the check of the database reports it
    if waiting:
        until = max(job.covered for job in waiting)
        cause = (
            f"The clock was ahead: {len(waiting)} jobs are done up to {until:%Y-%m-%d %H:%M} UTC and do not come before. "
            "The command lets them go on from the present, if this clock is right; nothing fires twice."
        )
        yield Finding("clock.jobs", "warning", cause, "bubbot schedule resume")


async def _read_jobs(home: Home, store_settings: StoreSettings) -> list[JobState]:
    store = await open_home_store(store_settings, home, now=unused_clock, readonly=True)
    try:
        tape = TapeService(store, SCHEDULE_TAPE, now=unused_clock, new_id=str, session="")
        return list((await read_projection(SCHEDULE_PROJECTION, tape)).jobs.values())
    finally:
        await store.aclose()
