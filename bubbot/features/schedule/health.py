"""What schedules report of their health: the next firings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import asdict

from bubbot.features.schedule.changes import shorten_action
from bubbot.features.schedule.facts import SCHEDULE_TAPE
from bubbot.features.schedule.plan import next_times
from bubbot.features.schedule.state import SCHEDULE_PROJECTION, ScheduleState
from bubbot.ports.checks import HomeReader
from bubbot.ports.health import FeatureHealth, HealthContext, HealthRow
from bubbot.tape.projection import read_projection
from bubbot.times.cron import format_instant
from bubbot.times.refusal import TimeRefused

MAX_FIRINGS = 5
"""Number of next firings to report."""


class NextFiring(Struct, frozen=True):
    """The next firing of a job; `text` is the beginning of what it says, asks or runs."""

    job: str
    name: str
    session: str
    at: str
    text: str = ""


def next_firings(state: ScheduleState, at: str) -> tuple[NextFiring, ...]:
    """Return the next firings of all jobs after a time (ISO 8601), the soonest first."""
    now, firings = datetime.fromisoformat(at), list[NextFiring]()
    for job_state in state.jobs.values():
        try:
            times = next_times(job_state, now, 1)
        except TimeRefused:  # written by a newer version; the job's own status says so
            continue
        job = job_state.job
        firings += [
            NextFiring(job.id, job.name, job.session, format_instant(time), shorten_action(job)) for time in times
        ]
    return tuple(sorted(firings, key=lambda firing: firing.at)[:MAX_FIRINGS])


def schedule_health(context: HealthContext, firings: Sequence[NextFiring]) -> FeatureHealth:
    """Report the next firings."""
    say = context.texts.say
    lines = tuple(
        say(
            "st_next_is",
            job=firing.name or firing.text or firing.job[:8],
            session=context.chats.get(firing.session, firing.session),
            at=context.format_time(firing.at),
        )
        for firing in firings
    )
    row = HealthRow(say("st_next"), lines or (say("st_none"),))
    return FeatureHealth(name="schedule", rows=(row,), data={"firings": [asdict(firing) for firing in firings]})


async def read_health(home: HomeReader, context: HealthContext) -> FeatureHealth:
    """Report the same from the tape, if no bot runs."""
    async with home.open_tape(SCHEDULE_TAPE) as tape:
        state = await read_projection(SCHEDULE_PROJECTION, tape)
    return schedule_health(context, next_firings(state, context.at))
