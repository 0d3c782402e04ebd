"""A bot with schedules whose clock is that of a virtual loop: days pass at once, and both clocks of the keeper agree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch
from zoneinfo import ZoneInfo

from msgspec import UNSET, UnsetType, structs

from bubbot.features.schedule.facts import BOT, Actor, ChatRef, Job, JobOver, JobPaused
from bubbot.features.schedule.feature import ScheduleFeature
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import JobState, ScheduleState
from bubbot.features.schedule.store import ScheduleStore
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.directory import ChannelDirectory
from bubbot.ports.model import Model
from bubbot.tape.entry import TapeEntry
from bubbot.tape.fact import Cited, Fact
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from tests.doubles import CountingIds, SteppingClock
from tests.kernels import make_kernel
from tests.turns import Bench, KeptChannel, Options, running

NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)  # a Sunday


def make_job(when: str = "0 * * * *", /, **fields: Any) -> Job:
    """A job of the chat `test:1`."""
    place = fields.get("place", ChatRef("test", "1"))
    made: dict[str, Any] = {"id": "j", "by": Actor("test", "1"), "do": "text", "text": "tea", "zone": "UTC"}
    made |= {"since": NOON.isoformat(), "place": place, "session": place.session, **fields}
    return Job(when=when, **made)


def fold(*facts: Fact | TapeEntry) -> ScheduleState:
    """The state after these facts on a tape of their own."""
    entries = [fact if isinstance(fact, TapeEntry) else fact.to_entry() for fact in facts]
    return ScheduleState().apply([replace(entry, id=number) for number, entry in enumerate(entries, 1)])


def fold_job(job: Job, *facts: Fact | TapeEntry) -> JobState:
    """A job after these facts."""
    return fold(job, *facts).jobs[job.id]


def stop(state: JobState, status: str = "paused", reason: str = "", detail: str | UnsetType = UNSET) -> JobState:
    """A job after it was paused, or came to its end; as it is if the status is `on`."""
    job = state.job.id
    if status == "on":
        return state
    fact = JobPaused(job, BOT, reason, detail) if status == "paused" else JobOver(job, reason, detail)
    return structs.replace(state, stopped=Cited(fact))


@dataclass
class WallClock:
    """What the clock on the wall shows: the loop's own time from `start` on, plus what it was put forward."""

    start: datetime = NOON
    forward: timedelta = field(default_factory=timedelta)

    def __call__(self) -> datetime:
        return self.start + timedelta(seconds=asyncio.get_running_loop().time()) + self.forward


@contextmanager
def scheduler_reads(clock: WallClock) -> Iterator[None]:
    """APScheduler looks at this clock too."""

    class Shown(datetime):
        """The time on the wall."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return clock().astimezone(tz or UTC)

    with patch("apscheduler.schedulers.base.datetime", Shown):
        yield


@dataclass
class Timed:
    """A bench with schedules; `keeping` is the keeper at work."""

    bench: Bench
    schedule: ScheduleFeature
    clock: WallClock
    directory: ChannelDirectory
    keeping: asyncio.Task[None] | None = None

    @property
    def book(self) -> ScheduleStore:
        return self.schedule.store

    @property
    def texts(self) -> list[str]:
        """What people have read."""
        return self.bench.channel.texts

    def start(self) -> None:
        """Begins to keep time."""
        self.keeping = asyncio.create_task(self.schedule.run_timer())

    async def stop(self) -> None:
        """Keeps time no more."""
        if self.keeping is not None:
            self.keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self.keeping
            self.keeping = None

    async def passes(self, **length: float) -> None:
        """Lets time pass, and what it brings be done."""
        await asyncio.sleep(timedelta(**length).total_seconds())
        await self.quiet()

    async def quiet(self) -> None:
        """Returns when no turn runs and nothing is delivered."""
        for _ in range(20):
            await asyncio.sleep(0)
        await self.bench.app.wait_idle()
        await self.bench.deliverer.wait_until_idle()

    async def say(self, text: str, **given: Any) -> str:
        """Says something, and returns what is answered."""
        return (await (await self.bench.post(text, **given))).text

    async def job(self) -> str:
        """The id of the newest job."""
        return list(self.book.state.jobs)[-1]

    async def facts(self, *names: str) -> list[TapeEntry]:
        """The facts of schedules, of these names or all."""
        found = (await self.bench.store.fetch([TapeQuery("bubbot/schedule")]))[0]
        return [one for one in found if not names or (one.name or "").partition("/")[2] in names]

    async def names(self) -> list[str]:
        """The names of all facts."""
        return [(one.name or "").partition("/")[2] for one in await self.facts()]


@asynccontextmanager
async def timed(
    store: TapeStore,
    model: Model,
    options: Options | None = None,
    *,
    clock: WallClock | None = None,
    channel: KeptChannel | None = None,
    life: str = "first",
    zone: str = "UTC",
    limits: ScheduleSettings | None = None,
    keep: bool = True,
) -> AsyncIterator[Timed]:
    """A bot whose keeper is at work, unless not to `keep` time. Two over one store are two processes."""
    clock = clock or WallClock()
    options, ids = options or Options(), CountingIds(f"{life}-x")
    short = (f"{number:06x}" for number in range(0xA1, 0xFFFFFF))
    lines: dict[str, ChannelRuntime] = {}
    directory = ChannelDirectory(lines, Texts())
    kernel = make_kernel(
        home=Path("unused"),
        now=clock,
        new_id=lambda: next(short) + life,
        zone=ZoneInfo(zone),
        texts=Texts(),
        projections=ProjectionRunner(),
        open_tape=lambda name: TapeService(store, name, now=clock, new_id=ids),
        role_of=directory.role_of,
        accept=directory.accept,
        send=directory.send,
        notify=directory.notify,
        find_texts=directory.find_texts,
    )
    schedule = ScheduleFeature(kernel, limits or ScheduleSettings())
    stepping = cast("SteppingClock", clock)
    chosen = replace(options, features=[*options.features, schedule.feature()], clock=stepping)
    with scheduler_reads(clock):
        async with running(store, model, chosen, channel=channel, life=life) as bench:
            lines[bench.channel.name] = bench.line
            directory.join(bench.line, schedule.end_jobs_of_chat)
            bench.app.reload({bench.channel.name: bench.line.link}, bench.app.deps)
            time = Timed(bench, schedule, clock, directory)
            recovered = await bench.find_open_work()
            await schedule.store.load()
            await bench.deliverer.resume(queued=bench.line.policy.deliver_in_background)
            bench.line.resume(recovered)
            if keep:
                time.start()
            try:
                yield time
            finally:
                await time.stop()
