"""Jobs against the clock: fired when due, once, whatever becomes of the process, the machine and its clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import pytest
from msgspec import structs

from bubbot.errors import ConfigError, StoreUnavailable
from bubbot.features.schedule.changes import JobChanges, JobRequester
from bubbot.features.schedule.facts import SCHEDULE_TAPE, Actor, ChatRef
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import JobState
from bubbot.features.schedule.store import ScheduleStore
from bubbot.features.schedule.timer import JobTimer
from bubbot.ports.channel import Inbound, Role
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from bubbot.times.refusal import TimeRefused
from tests.schedules import NOON, WallClock, scheduler_reads, timed
from tests.turns import Played, says
from tests.virtual import virtual


def said() -> Played:
    return Played(says("done"))


class TestDue:
    @virtual
    async def test_a_reminder_comes_at_its_time_and_never_again(self) -> None:
        async with timed(InMemoryStore(), said()) as bot:
            told = await bot.say(",remind in 20m: tea")
            assert "once, on Sun 22 Nov 2026 at 12:20 (UTC)" in told
            await bot.passes(minutes=19, seconds=58)
            assert bot.texts == [told]
            await bot.passes(seconds=4)
            assert bot.texts == [told, "⏰ tea"]
            await bot.passes(days=2)
            assert bot.texts == [told, "⏰ tea"]
            assert await bot.names() == ["added", "fired", "over", "ran"]
            assert bot.bench.requests == []  # no model was asked
            assert "is over (it was for one time)" in await bot.say(f",schedule.pause {await bot.job()}")

    @virtual
    async def test_a_reminder_in_plain_words_says_what_was_understood_and_how_to_change_it(self) -> None:
        async with timed(InMemoryStore(), said()) as bot:  # 12:00
            told = await bot.say(",remind me to stretch at 5")
            job = await bot.job()
            assert told == (
                f"Scheduled stretch ({job}): once, on Sun 22 Nov 2026 at 17:00 (UTC).\n"
                f"If you meant once, on Mon 23 Nov 2026 at 05:00: ,schedule.edit {job} 2026-11-23 05:00"
            )
            assert (await bot.say(f",schedule.edit {job} 2026-11-23 05:00")).startswith(
                f"Changed stretch ({job}): once, on Mon 23 Nov 2026 at 05:00 (UTC).\nTo change: ,schedule.edit {job} "
            )
            await bot.passes(hours=17)
            assert bot.texts[-1] == "⏰ stretch"

    @pytest.mark.parametrize(
        ("typed", "answer"),
        [
            (",remind 5pm", "what shall I remind you of? Say it behind the time: ,remind 5pm: TEXT"),
            (",remind at 8pm:", "what shall I remind you of? Say it behind the time: ,remind at 8pm: TEXT"),
            (",remind 晚上八点：", "what shall I remind you of? Say it behind the time: ,remind 晚上八点: TEXT"),
            (",schedule @daily", "what shall I do then? Say it behind the time: ,schedule @daily: PROMPT"),
        ],
    )
    @virtual
    async def test_a_time_alone_asks_for_the_text(self, typed: str, answer: str) -> None:
        async with timed(InMemoryStore(), said()) as bot:
            assert await bot.say(typed) == answer
            assert await bot.names() == []

    @virtual
    async def test_a_mere_clock_keeps_the_days_of_a_job_that_is_named_by_two_words(self) -> None:
        async with timed(InMemoryStore(), said()) as bot:
            await bot.say(',remind name="stand up" 每个工作日上午8点 站会')
            assert "every weekday at 09:15 (UTC), next Mon 23 Nov 2026." in await bot.say(
                ",schedule.edit stand up at 9:15am"
            )
            refused = await bot.say(",schedule.edit stand up yesterday")
            assert "has passed already" in refused
            assert "tomorrow at 9am" in refused

    @virtual
    async def test_what_is_not_sure_is_asked_and_plans_nothing(self) -> None:
        async with timed(InMemoryStore(), said()) as bot:
            assert "both look like a time" in await bot.say(",remind tomorrow call Ann at 5pm")
            assert "what shall I remind you of" in await bot.say(",remind in 5m")
            assert await bot.say(",schedules") == "Nothing is scheduled here."

    @virtual
    async def test_a_reminder_with_a_zone_comes_by_the_clock_of_that_zone(self) -> None:
        async with timed(InMemoryStore(), said(), zone="Europe/Berlin") as bot:  # 13:00 there
            told = await bot.say(",remind tomorrow at 9am EST call mum")
            assert told.startswith(
                f"Scheduled call mum ({await bot.job()}): once, on Mon 23 Nov 2026 at 15:00 (Europe/Berlin)."
            )
            await bot.passes(hours=25, minutes=59)
            assert bot.texts == [told]
            await bot.passes(minutes=1, seconds=2)
            assert bot.texts == [told, "⏰ call mum"]

    @virtual
    async def test_a_repetition_with_a_zone_stays_in_it_when_it_is_changed(self) -> None:
        async with timed(InMemoryStore(), said()) as bot:  # 12:00, 07:00 in New York
            told = await bot.say(",remind every day at 9am EST: stand up")
            assert "every day at 09:00 (America/New_York), next Sun 22 Nov 2026." in told
            changed = await bot.say(f",schedule.edit {await bot.job()} at 8am")
            assert "every day at 08:00 (America/New_York), next Sun 22 Nov 2026." in changed
            await bot.passes(minutes=59)
            assert bot.texts == [told, changed]
            await bot.passes(minutes=1, seconds=2)
            assert bot.texts == [told, changed, "⏰ stand up"]
            again = await bot.say(f",schedule.edit {await bot.job()} every weekday at 9:30 London time")
            assert "every weekday at 09:30 (Europe/London), next Mon 23 Nov 2026." in again

    @virtual
    async def test_a_refusal_lists_what_can_be_typed_and_each_of_it_works(self) -> None:
        async with timed(InMemoryStore(), said()) as bot:
            refused = await bot.say(",remind tomorrow 9am CST call mum")
            first, *nearest = refused.splitlines()
            assert first.startswith("'CST' stands for several time zones")
            assert await bot.names() == []
            assert len(nearest) == 3
            for words in nearest:
                assert (await bot.say(f",remind {words}")).startswith("Scheduled call mum (")

    @virtual
    async def test_a_prompt_is_asked_and_its_answer_sent(self) -> None:
        async with timed(InMemoryStore(), said(), zone="Europe/Berlin") as bot:
            told = await bot.say(",schedule 0 9 * * 1-5: is there news?")
            assert "every weekday at 09:00 (Europe/Berlin), next Mon 23 Nov 2026." in told
            await bot.passes(days=3)
            assert bot.texts == [told, *["done"] * 3]
            shown = str(bot.bench.requests[0].messages[-1]["content"])
            assert "Scheduled job 0000a1, due 2026-11-23 09:00 Europe/Berlin" in shown
            assert shown.endswith("is there news?")

    @virtual
    async def test_every_command_and_list(self) -> None:
        async with timed(InMemoryStore(), said()) as bot:
            await bot.say(",schedule every 90m: ,schedules")
            await bot.passes(hours=4)
            assert [text.partition(";")[0] for text in bot.texts[1:]] == [
                ",schedules (0000a1)  on: every 1 hour 30 minutes, counted from Sun 22 Nov 2026 at 12:00 (UTC)"
            ] * 2


class TestAway:
    @virtual
    async def test_a_one_shot_missed_while_away_is_told_as_late(self) -> None:
        store, clock = InMemoryStore(), WallClock()
        async with timed(store, said(), clock=clock) as bot:
            await bot.say(",remind in 20m: tea")
        await asyncio.sleep(7200)
        async with timed(store, said(), clock=clock, life="second") as bot:
            await bot.passes(seconds=1)
            (text,) = bot.texts
            assert text.startswith("This was due on Sunday 2026-11-22 12:20, 1 hour 40 minutes ago; I was away")
            assert text.endswith("tea")
            await bot.passes(days=1)
            assert len(bot.texts) == 1

    @virtual
    async def test_catching_up_skips_does_it_once_or_all_within_the_limit(self) -> None:
        store, clock = InMemoryStore(), WallClock()
        async with timed(store, said(), clock=clock) as bot:
            await bot.say(",remind catch_up=skip 0 * * * *: skip")
            await bot.say(",remind catch_up=once 0 * * * *: once")
            await bot.say(",remind catch_up=all catch_limit=3 0 * * * *: all")
        await asyncio.sleep(10 * 3600 + 600)
        async with timed(store, said(), clock=clock, life="second") as bot:
            await bot.passes(minutes=2)
            assert sorted(text.rpartition("\n")[2] for text in bot.texts) == ["⏰ all", "⏰ all", "⏰ all", "⏰ once"]
            marks = [one.payload["data"]["mark"] for one in await bot.facts("fired")]
            assert sorted(marks) == ["2026-11-22T20:00:00Z", "2026-11-22T21:00:00Z", *["2026-11-22T22:00:00Z"] * 2]
            spans = [(one.payload["data"]["first"], one.payload["data"]["last"]) for one in await bot.facts("skipped")]
            assert {(first[11:16], last[11:16]) for first, last in spans} == {
                ("13:00", "22:00"), ("13:00", "21:00"), ("13:00", "19:00")
            }  # fmt: skip
            await bot.passes(hours=1)
            assert len(bot.texts) == 7

    @virtual
    async def test_a_skipped_one_shot_is_not_deleted_in_silence(self) -> None:
        store, clock = InMemoryStore(), WallClock()
        async with timed(store, said(), clock=clock) as bot:
            await bot.say(",remind catch_up=skip in 20m: tea")
        await asyncio.sleep(7200)
        async with timed(store, said(), clock=clock, life="second") as bot:
            await bot.passes(seconds=5)
            assert bot.texts == [
                "While I was away this was due and was not done: tea (0000a1), on Sunday 2026-11-22 12:20."
            ]
            assert (await bot.names())[-2:] == ["skipped", "over"]
            assert "over (its time passed while I was away)" in await bot.say(",schedules")

    @virtual
    async def test_a_restart_in_the_minute_it_is_due_fires_once(self) -> None:
        for before in (-30.0, -0.5, 0.5, 30.0):
            store = InMemoryStore()
            clock = WallClock(NOON - timedelta(seconds=asyncio.get_running_loop().time()))
            async with timed(store, said(), clock=clock) as bot:
                await bot.say(",remind 5 12 * * *: tea")
                await bot.passes(seconds=300 + before)
            first = bot.texts[1:]
            async with timed(store, said(), clock=clock, life="second") as bot:
                await bot.passes(seconds=90)
                assert [*first, *bot.texts] == ["⏰ tea"], before

    @virtual
    async def test_a_restart_does_not_move_every(self) -> None:
        store, clock = InMemoryStore(), WallClock()
        async with timed(store, said(), clock=clock) as bot:
            await bot.say(",remind every 90m: tea")
            await bot.passes(minutes=100)
        async with timed(store, said(), clock=clock, life="second") as bot:
            await bot.passes(minutes=79)
            assert bot.texts == []
            await bot.passes(minutes=2)
            assert bot.texts == ["⏰ tea"]


class TestTheClockOnTheWall:
    @virtual
    async def test_a_machine_that_slept_for_a_day_is_late_by_a_beat_at_most(self) -> None:
        async with timed(InMemoryStore(), said()) as bot:
            await bot.say(",remind 0 18 * * *: tea")
            await bot.say(",remind every 1h: hourly")
            bot.clock.forward = timedelta(days=1)  # the loop's own clock stood still meanwhile
            await bot.passes(seconds=25)
            late = [text.partition("\n")[0] for text in bot.texts[2:]]
            assert sorted(late) == [
                "This was due on Sunday 2026-11-22 18:00, 18 hours ago; I was away or it was quiet.", "⏰ hourly"
            ]  # fmt: skip

    @virtual
    async def test_a_clock_that_is_set_back_repeats_nothing(self) -> None:
        async with timed(InMemoryStore(), said()) as bot:
            await bot.say(",remind */10 * * * *: tea")
            await bot.passes(minutes=31)
            assert len(bot.texts) == 4
            bot.clock.forward = timedelta(minutes=-31)
            await bot.passes(minutes=29)
            assert len(bot.texts) == 4
            await bot.passes(minutes=12)
            assert len(bot.texts) == 5

    @virtual
    @pytest.mark.parametrize(("rule", "step"), [("every 10m", timedelta(minutes=10)), ("every 2d", timedelta(days=2))])
    async def test_a_repetition_begun_by_a_clock_that_was_ahead_goes_on_from_the_present(
        self, rule: str, step: timedelta
    ) -> None:
        async with timed(InMemoryStore(), said()) as bot:
            bot.clock.forward = timedelta(days=3)
            await bot.say(f",remind {rule}: tea")
            await bot.say(",remind every 2d from 2026-11-30 09:00: not before")  # said so, and never begun
            bot.clock.forward = timedelta()
            await bot.passes(seconds=2 * step.total_seconds())
            assert [text for text in bot.texts[2:] if text == "⏰ tea"] == ["⏰ tea", "⏰ tea"]
            assert "not before" not in bot.texts[2:]
            assert len(await bot.facts("clock")) == 2
            state = bot.book.state
            await bot.book.load()
            assert bot.book.state == state

    @virtual
    @pytest.mark.parametrize("restarted", [False, True])
    async def test_jobs_go_on_from_the_present_after_a_clock_that_was_ahead(
        self, restarted: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        store, clock = InMemoryStore(), WallClock()
        async with AsyncExitStack() as stack:
            bot = await stack.enter_async_context(timed(store, said(), clock=clock))
            await bot.say(",remind 0 * * * *: tea")
            await bot.passes(hours=1, minutes=1)  # 13:00
            clock.forward = timedelta(hours=3)
            await bot.passes(minutes=1)  # 16:02: 14:00 and 15:00 are passed over, 16:00 fires
            assert [one.payload["data"]["mark"][11:16] for one in await bot.facts("fired")] == ["13:00", "16:00"]
            if restarted:
                await stack.aclose()
            clock.forward = timedelta()
            if restarted:
                bot = await stack.enter_async_context(timed(store, said(), clock=clock, life="second"))
            await bot.passes(hours=4)
            fired = [one.payload["data"]["mark"][11:16] for one in await bot.facts("fired")]
            assert fired == ["13:00", "16:00", "14:00", "15:00", "17:00"]
            assert len(await bot.facts("clock")) == 1
            assert "resume from the present" in caplog.text
            (standing,) = bot.book.state.jobs.values()
            assert standing.runs == 5
            await bot.book.load()
            assert bot.book.state.jobs[standing.job.id] == standing

    @virtual
    @pytest.mark.parametrize("catch_up", ["skip", "once"])
    async def test_times_that_were_passed_over_while_the_clock_was_ahead_are_passed_over_again(
        self, catch_up: str
    ) -> None:
        store, clock = InMemoryStore(), WallClock()
        async with timed(store, said(), clock=clock) as bot:
            await bot.say(f",remind catch_up={catch_up} 0 * * * *: tea")
            for _ in range(3):  # each time the same times pass at once
                clock.forward += timedelta(hours=3, minutes=30)
                await bot.passes(minutes=1)
                assert {job.covered for job in bot.book.state.jobs.values()} == {NOON + timedelta(hours=3)}
                clock.forward -= timedelta(hours=3, minutes=30)
                await bot.passes(minutes=1)
            clock.forward += timedelta(hours=3, minutes=30)
            await bot.passes(minutes=27)  # 16:01
            assert bot.texts[-1] == "⏰ tea"
            assert (await bot.facts("fired"))[-1].data["mark"] == "2026-11-22T16:00:00Z"

    @virtual
    async def test_one_command_lets_the_jobs_of_a_clock_that_was_ahead_go_on(self) -> None:
        store, clock = InMemoryStore(), WallClock()
        async with timed(store, said(), clock=clock, keep=False) as bot:
            clock.forward = timedelta(days=2)
            await bot.say(",remind 0 * * * *: tea")
            clock.forward = timedelta()
            told = await bot.say(f",schedule.resume {await bot.job()}")
            assert "goes on" in told
            assert "next Sun 22 Nov 2026 at 13:00" in told
            assert "not paused" in await bot.say(f",schedule.resume {await bot.job()}")


@dataclass
class Kept:
    """Jobs and their timer without a bot: `fired` has the minute and second, and the mark, of each attempt."""

    book: ScheduleStore
    clock: WallClock
    errors: list[Exception] = field(default_factory=list)
    """What the next attempts raise."""
    writes_facts: bool = True
    fired: list[tuple[str, str]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    async def fire(self, inbound: Inbound, also: Mapping[str, Sequence[TapeEntry]]) -> bool:
        """Accept a firing, unless it was before."""
        self.fired.append((f"{self.clock():%M:%S}", inbound.external_id.partition("@")[2]))
        if self.errors:
            raise self.errors.pop(0)
        if not self.writes_facts:
            return True
        before = dict(self.book.state.jobs)
        await self.book.tape.append(also[SCHEDULE_TAPE], if_absent=True)
        await self.book.catch_up()
        return self.book.state.jobs != before

    async def tell(self, job_state: JobState, key: str, facts: Sequence[TapeEntry]) -> None:
        """Tell that a job was missed."""
        self.missed.append(key)
        if self.errors:
            raise self.errors.pop(0)
        await self.book.tape.append(facts)

    def timer(self) -> JobTimer:
        """A timer of these jobs, not at work."""
        return JobTimer(self.book, self.fire, notify_missed=self.tell)

    def changes(self) -> JobChanges:
        """What an owner may do."""
        asker = JobRequester(Actor("test", "1"), Role.OWNER, ChatRef("test", "1"))
        return JobChanges(self.book.state, asker, self.clock(), self.book.new_id, ScheduleSettings(), "UTC")

    async def add(self, when: str, **options: object) -> str:
        """Add a job; return its id."""
        job, facts = self.changes().add({"when": when, "text": "x", **options})
        await self.book.write(facts)
        return job.id

    async def facts(self) -> list[tuple[str, str]]:
        """Return name and reason of each fact."""
        found = (await self.book.tape.fetch([TapeQuery(SCHEDULE_TAPE)]))[0]
        return [((one.name or "").partition("/")[2], one.data.get("reason", "")) for one in found]


@asynccontextmanager
async def kept() -> AsyncIterator[Kept]:
    """Jobs whose timer is at work."""
    store, clock, numbers = InMemoryStore(), WallClock(), count(1)

    def new_id() -> str:
        return f"{next(numbers):06}"

    book = ScheduleStore(
        TapeService(store, SCHEDULE_TAPE, now=clock, new_id=new_id), now=clock, new_id=new_id, zone="UTC"
    )
    jobs = Kept(book, clock)
    await book.load()
    with scheduler_reads(clock):
        keeping = asyncio.create_task(jobs.timer().run())
        await asyncio.sleep(0)
        try:
            yield jobs
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


class TestFailures:
    @virtual
    async def test_a_firing_that_fails_is_tried_again_at_the_next_beat(self, caplog: pytest.LogCaptureFixture) -> None:
        async with kept() as jobs:
            await jobs.add("* * * * *", runs=1)
            jobs.errors = [StoreUnavailable("locked"), StoreUnavailable("locked")]
            await asyncio.sleep(125)
            assert jobs.fired == [(at, "2026-11-22T12:01:00Z") for at in ("01:00", "01:20", "01:40")]
            assert caplog.text.count("job not fired, retrying: locked") == 2
            assert await jobs.facts() == [("added", ""), ("fired", ""), ("over", "reason_runs")]

    @virtual
    async def test_a_time_that_is_refused_meanwhile_is_logged_as_a_sentence(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with kept() as jobs:
            await jobs.add("* * * * *", runs=1)
            jobs.errors = [TimeRefused("zone_unknown", name="Mars/Base")]
            await asyncio.sleep(100)
            assert len(jobs.fired) == 2
            told = Texts().say("zone_unknown", name="Mars/Base")
            assert f"job not fired, retrying: {told}" in caplog.text

    @virtual
    async def test_a_job_that_stays_as_it_was_is_looked_at_at_the_next_beat(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with kept() as jobs:
            jobs.writes_facts = False
            await jobs.add("* * * * *", runs=1)
            await asyncio.sleep(110)
            assert [at for at, _ in jobs.fired] == ["01:00", "01:20", "01:40"]
            assert caplog.text.count("job unchanged, retrying") == 3
            jobs.writes_facts = True
            await asyncio.sleep(21)
            assert (await jobs.facts())[-2:] == [("fired", ""), ("over", "reason_runs")]

    @virtual
    async def test_a_job_whose_channel_does_not_run_is_paused_and_says_so(self) -> None:
        async with kept() as jobs:
            job = await jobs.add("* * * * *")
            jobs.errors = [ConfigError("no channel test")]
            await asyncio.sleep(200)
            assert len(jobs.fired) == 1
            gone = "reason_channel_gone"
            assert await jobs.facts() == [("added", ""), ("fired", ""), ("refused", gone), ("paused", gone)]
            state = jobs.book.state.jobs[job]
            assert (state.status, state.detail, state.runs) == ("paused", "test", 1)

    @virtual
    async def test_a_missed_job_ends_though_its_channel_does_not_run(self) -> None:
        async with kept() as jobs:
            job = await jobs.add("at 12:05", catch_up="skip")
            jobs.errors = [ConfigError("no channel test")]
            jobs.clock.forward += timedelta(hours=1)
            await asyncio.sleep(21)
            assert jobs.missed == [f"missed:{job}@2026-11-22T12:05:00Z"]
            assert await jobs.facts() == [("added", ""), ("skipped", "reason_catch_up"), ("over", "reason_missed")]

    @virtual
    async def test_what_people_ask_for_comes_besides_what_is_due(self) -> None:
        async with kept() as jobs:
            job = await jobs.add("* * * * *", runs=3)
            for _ in range(2):
                await jobs.book.write(jobs.changes().run(jobs.book.state.jobs[job]))
            await jobs.book.write(jobs.changes().pause(jobs.book.state.jobs[job]))
            await asyncio.sleep(1)
            assert [(at, mark[:20]) for at, mark in jobs.fired] == [("00:00", "2026-11-22T12:00:00Z")] * 2
            await asyncio.sleep(100)
            assert len(jobs.fired) == 2
            await jobs.book.write(jobs.changes().resume(jobs.book.state.jobs[job]))
            await asyncio.sleep(240)
            assert [at for at, _ in jobs.fired[2:]] == ["02:00", "03:00", "04:00"]

    @virtual
    async def test_jobs_fire_only_while_their_timer_runs(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        async with kept() as jobs:
            await jobs.add("* * * * *")
            assert jobs.book.is_timer_running
            await asyncio.sleep(61)
            assert caplog.text.count("job fired") == 1
        assert not jobs.book.is_timer_running
        await jobs.add("* * * * *")
        await asyncio.sleep(120)
        assert len(jobs.fired) == 1

    @virtual
    async def test_the_library_that_keeps_time_is_heard_only_if_something_is_wrong(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        caplog.set_level(logging.INFO, "apscheduler")
        async with kept() as jobs:
            await jobs.add("* * * * *", runs=1)
            await asyncio.sleep(100)
        assert {record.name.partition(".")[0] for record in caplog.records} == {"bubbot"}

    @virtual
    async def test_a_clock_that_was_ahead_is_noticed_at_the_next_beat(self) -> None:
        async with kept() as jobs:
            jobs.clock.forward = timedelta(hours=3)
            job = await jobs.add("0 * * * *")
            jobs.clock.forward = timedelta()
            await asyncio.sleep(19)
            assert jobs.book.state.jobs[job].covered == NOON + timedelta(hours=3)
            await asyncio.sleep(2)
            assert jobs.book.state.jobs[job].covered == NOON + timedelta(seconds=20)
            assert await jobs.facts() == [("added", ""), ("clock", "")]

    @virtual
    async def test_two_looks_at_once_fire_once(self) -> None:
        async with kept() as jobs:
            job = await jobs.add("0 * * * *")
            jobs.clock.forward += timedelta(hours=1)
            timer = jobs.timer()
            await asyncio.gather(timer.check_job(job), timer.check_job(job))
            assert len(jobs.fired) == 1

    @virtual
    async def test_three_hundred_jobs_are_fired_at_once(self) -> None:
        async with kept() as jobs:
            job, _ = jobs.changes().add({"when": "30 * * * *", "text": "x"})
            many = [structs.replace(job, id=f"{number:04}").to_entry() for number in range(300)]
            await jobs.book.write(many)
            await asyncio.sleep(29 * 60)
            assert jobs.fired == []
            await asyncio.sleep(61)
            assert jobs.fired == [("30:00", "2026-11-22T12:30:00Z")] * 300
            await asyncio.sleep(3600)
            assert len(jobs.fired) == 600
            assert {one.runs for one in jobs.book.state.jobs.values()} == {2}


class TestRacing:
    @virtual
    async def test_two_keepers_over_one_store_fire_once(self) -> None:
        store, clock = InMemoryStore(), WallClock()
        async with timed(store, said(), clock=clock) as one:
            await one.say(",remind */5 * * * *: tea")
            async with timed(store, said(), clock=clock, life="second") as other:
                await one.passes(hours=1, seconds=1)
                await one.stop()
                await other.stop()
                await one.quiet()
                await other.quiet()
                fired = [entry.payload["data"]["mark"] for entry in await one.facts("fired")]
                # A thread that takes its time lets the virtual clock run on: twelve, or a few more.
                assert len(fired) == len(set(fired)) >= 12
                assert [*one.texts[1:], *other.texts] == ["⏰ tea"] * len(fired)
                assert NOON.isoformat()[:10] in fired[0]
