"""What APScheduler does by itself, as measured here, and what happens with us."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.cron import CronTrigger

from bubbot.app.bot import open_app
from bubbot.features.schedule.changes import JobChanges, JobRequester
from bubbot.features.schedule.facts import SCHEDULE_TAPE, Actor, ChatRef, FiringsSkipped
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import SCHEDULE_PROJECTION
from bubbot.features.schedule.store import ScheduleStore
from bubbot.features.schedule.timer import JobTimer
from bubbot.gateway.inbox import Inbox, inbox_tape
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.times.phrases import parse_when
from bubbot.times.reading import ReadingContext
from tests.doubles import CountingIds, CountingSalt, SteppingClock

BERLIN = ZoneInfo("Europe/Berlin")


def theirs(text: str, start: datetime, count: int) -> list[str]:
    """When APScheduler's own trigger fires."""
    trigger, found, last = CronTrigger.from_crontab(text, BERLIN), [], None
    now = start
    for _ in range(count):
        last = trigger.get_next_fire_time(last, now)
        now = last + timedelta(seconds=1)
        found.append(last.astimezone(BERLIN).strftime("%a %m-%d %H:%M"))
    return found


def ours(text: str, start: datetime, count: int) -> list[str]:
    when, found = parse_when(text, ReadingContext(start, BERLIN)), []
    for _ in range(count):
        following = when.next_after(start, BERLIN)
        assert following is not None
        start = following
        found.append(start.astimezone(BERLIN).strftime("%a %m-%d %H:%M"))
    return found


class TestFields:
    def test_zero_is_sunday(self) -> None:
        start = datetime(2026, 11, 20, 12, tzinfo=UTC)
        assert theirs("0 9 * * 0", start, 1) == ["Mon 11-23 09:00"]
        assert ours("0 9 * * 0", start, 1) == ["Sun 11-22 09:00"]

    def test_either_day_is_enough(self) -> None:
        start = datetime(2026, 11, 22, 12, tzinfo=UTC)
        assert theirs("0 0 13 * fri", start, 1) == ["Fri 08-13 00:00"]
        assert ours("0 0 13 * fri", start, 3) == ["Fri 11-27 00:00", "Fri 12-04 00:00", "Fri 12-11 00:00"]

    def test_a_repeated_time_comes_once(self) -> None:
        start = datetime(2026, 10, 24, 12, tzinfo=UTC)
        assert theirs("30 2 * * *", start, 2) == ["Sun 10-25 02:30", "Sun 10-25 02:30"]
        assert ours("30 2 * * *", start, 2) == ["Sun 10-25 02:30", "Mon 10-26 02:30"]


async def test_two_connections_to_one_database_race_for_a_firing(tmp_path: Path) -> None:
    """Two books and keepers that know nothing of each other, each with its own connection."""
    clock = [datetime(2026, 11, 22, 12, 0, tzinfo=UTC)]
    accepted: list[str] = []
    keepers: list[JobTimer] = []
    path, stores = tmp_path / "tapes.sqlite", []
    for life in ("one", "two"):
        store = await open_store(path, salt=CountingSalt(), now=lambda: clock[0])
        stores.append(store)
        ids = CountingIds(life)

        def service(name: str, store=store, ids=ids) -> TapeService:  # type: ignore[no-untyped-def]
            return TapeService(store, name, now=lambda: clock[0], new_id=ids)

        inbox = Inbox(service(inbox_tape("test")), ids)

        async def fire(inbound: Inbound, also: Mapping[str, Sequence[TapeEntry]], inbox: Inbox = inbox) -> bool:
            if (found := await inbox.accept(inbound, also)) is not None:
                accepted.append(inbound.external_id)
            return found is not None

        async def tell(*_: object) -> None:
            raise AssertionError

        book = ScheduleStore(service(SCHEDULE_TAPE), now=lambda: clock[0], new_id=ids, zone="UTC")
        if life == "one":
            asker = JobRequester(Actor("test", "1"), Role.OWNER, ChatRef("test", "1"))
            made = JobChanges(book.state, asker, clock[0], lambda: "abcdef", ScheduleSettings(), "UTC")
            await book.write(made.add({"when": "*/5 * * * *", "text": "x", "catch_up": "all", "catch_limit": 30})[1])
        await book.load()
        keepers.append(JobTimer(book, fire, notify_missed=tell))
    try:
        for minutes in (5, 6, 20, 60, 61):
            clock[0] = datetime(2026, 11, 22, 12, tzinfo=UTC) + timedelta(minutes=minutes)
            await asyncio.gather(*(keeper.check_job("abcdef") for keeper in keepers))
        for keeper in keepers:
            await keeper.tick()  # what met the other's lock is tried again
        found = (await stores[0].fetch([TapeQuery(SCHEDULE_TAPE)]))[0]
        marks = [one.payload["data"]["mark"] for one in found if one.name == "schedule/fired"]
        assert len(marks) == len(set(marks)) == 12
        assert {one.name for one in found} == {"schedule/added", "schedule/fired"}
        assert sorted(accepted) == sorted(f"schedule:abcdef@{mark}" for mark in marks)
    finally:
        for store in stores:
            await store.aclose()


async def test_erasing_a_chat_erases_its_jobs(tmp_path: Path) -> None:
    settings = Settings(model=ModelSettings(name="scripted"))
    async with open_app(settings, Home(tmp_path / "home"), channel_settings={"write": lambda _: None}) as app:

        async def ask(number: int, text: str) -> str:
            said = Inbound("stdin", str(number), "default", Sender("0", "owner"), text, "2026-11-21T20:21:00Z")
            return (await app.ask(said)).text

        assert "Nothing keeps the time just now" in await ask(1, ",remind in 5m: a secret")
        assert app.schedule_store is not None
        assert len(app.schedule_store.state.jobs) == 1
        await ask(2, ",reset erase")
        assert dict(app.schedule_store.state.jobs) == {}
        (entry,) = (await app.store.fetch([TapeQuery(SCHEDULE_TAPE)]))[0]
        assert entry.erased


async def test_a_checkpoint_is_written_after_so_many_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    often = replace(SCHEDULE_PROJECTION, interval=3)
    monkeypatch.setattr("bubbot.features.schedule.store.SCHEDULE_PROJECTION", often)
    tape = TapeService(InMemoryStore(), SCHEDULE_TAPE, now=SteppingClock(), new_id=CountingIds())
    jobs = ScheduleStore(tape, now=SteppingClock(), new_id=CountingIds(), zone="UTC")
    skipped = FiringsSkipped("none", "", "", "")
    await jobs.write([skipped.to_entry(), skipped.to_entry()])
    await jobs.write_checkpoint()
    assert await tape.head() == 2
    await jobs.write([skipped.to_entry()])
    await jobs.write_checkpoint()
    await jobs.write_checkpoint()
    assert await tape.head() == 4
