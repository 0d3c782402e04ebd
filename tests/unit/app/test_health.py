"""Looking over a whole bot: what it has is found, whatever a channel or the database does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from bubbot.app.bot import Bot, open_app
from bubbot.app.health import HealthCollector
from bubbot.app.offline import offline_snapshot
from bubbot.app.tapes import now, open_tapes
from bubbot.gateway.health.snapshot import as_json
from bubbot.home import Home
from bubbot.ports.channel import ChannelHealth, Inbound, Outbound, Role, Sender
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.texts import Texts
from tests.e2e.small_disk import ROOT_ONLY, small_disk

SETTINGS = Settings(model=ModelSettings(name="scripted"))


class Telling:
    """A channel of this bot that reports, as it is told to."""

    name = "stdin"

    def __init__(self, health: ChannelHealth | Exception) -> None:
        self._health = health

    def health(self) -> ChannelHealth:
        """See `ReportsHealth`."""
        if isinstance(self._health, Exception):
            raise self._health
        return self._health


def said(text: str, number: int = 1) -> Inbound:
    return Inbound("stdin", str(number), "default", Sender("0", "owner"), text, "2026-11-21T20:21:00Z")


@asynccontextmanager
async def opened(home: Home) -> AsyncIterator[Bot]:
    async with open_app(SETTINGS, home, channel_settings={"write": lambda _: None}) as app:
        yield app


async def test_a_running_bot_and_its_database_alone_say_the_same_of_what_is_kept(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with opened(home) as app:
        await app.ask(said("hello"))
        later = (now() + timedelta(hours=1)).strftime("%Y-%m-%d %H:%M")
        await app.ask(said(f",schedule.remind at {later}: tea", 2))
        running = await app.health_collector.snapshot()
        reports = app.health_collector.features(Texts(), Role.MEMBER)
        (schedule,) = [report for report in reports if report.name == "schedule"]
        assert schedule.data == {"firings": []}, "a thousand jobs take long, and members do not read them"
    async with open_tapes(home) as (store, _):
        alone = await offline_snapshot(store, home, SETTINGS, now=now)
    values = as_json(running)
    (firing,) = values["firings"]
    assert firing["session"] == "stdin:default"
    assert (running.pid is None, alone.pid) == (False, None)
    assert [(report.name, report.data) for report in alone.reports] == [
        (report.name, report.data) for report in running.reports
    ]
    assert alone.owed == running.owed
    assert values["budget"][1]["used"] > 0
    assert running.database is not None
    assert alone.database is not None
    assert alone.database.entries == running.database.entries > 10
    assert running.database.size + running.database.wal > 10_000
    assert running.load.running == alone.load.waiting == 0


async def test_what_an_earlier_process_left_open_is_counted(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with opened(home) as app:
        await app.channel_runtime.inbox.accept(said("left open"))
        parts = tuple(app.channel_runtime.link.split(Outbound("stdin", "default", "hi")))
        await app.channel_runtime.outbox.enqueue("stdin:default", "k", parts, {})
    async with open_tapes(home) as (store, _):
        alone = await offline_snapshot(store, home, SETTINGS, now=now)
    assert alone.load.waiting == 1
    assert [(one.channel, one.count) for one in alone.owed] == [("stdin", 1)]
    assert alone.owed[0].oldest.startswith("20")


@pytest.mark.parametrize(
    ("health", "ready", "note"),
    [
        (ChannelHealth(is_ready=True, last_seen_at="2026-11-22T10:00:00Z"), True, ""),
        (ChannelHealth(is_ready=False, note="deaf"), False, "deaf"),
        (ValueError("a defect"), False, "ValueError"),
    ],
)
async def test_a_channel_tells_how_it_is_or_that_it_cannot(
    tmp_path: Path, health: ChannelHealth | Exception, *, ready: bool, note: str
) -> None:
    async with opened(Home(tmp_path / "home")) as app:
        assert app.health_collector.channels() == ()
        app.channel_runtime.channel = Telling(health)  # type: ignore[assignment]
        app.health_collector.channel_states = lambda: ({"stdin": "running"}, {})
        (found,) = app.health_collector.channels()
        assert (found.state, found.ready, found.note, found.is_receiving) == ("running", ready, note, ready)
        app.health_collector.channel_states = lambda: ({"stdin": "refused"}, {"stdin": "its token"})
        (found,) = app.health_collector.channels()
        assert (found.note, found.is_receiving) == ("its token", False)


async def test_who_asks_in_a_chat_is_answered_also_where_the_database_is_gone(tmp_path: Path) -> None:
    async with opened(Home(tmp_path / "home")) as app:
        watch = app.health_collector
        assert (await watch.report(Role.OWNER, direct=True))[0].startswith("bot: bubbot ")
        assert not await watch.report(Role.MEMBER, direct=True)
        await app.base_store.aclose()
        assert await watch.report(Role.OWNER, direct=True) == ("I could not look at the rest: the store is closed.",)


async def test_without_a_database_there_are_no_amounts(tmp_path: Path) -> None:
    values = as_json(await offline_snapshot(None, Home(tmp_path), SETTINGS, now=now))
    assert [values[key] for key in ("currency", "firings", "budget", "failing")] == ["USD", [], [], []]
    assert "database" not in values


class FullStore:
    """A store whose writes wait, as one on a disk that takes nothing."""

    is_full = True

    async def wait_for_room(self) -> None:
        """See `WaitsForRoom`."""

    def stop_waiting_for_room(self) -> None:
        """See `WaitsForRoom`."""


@ROOT_ONLY
def test_a_disk_that_is_read_only_is_not_called_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", 1) as disk:
        store, sources = cast("Any", FullStore()), cast("Any", None)
        collector = HealthCollector(store, Home(disk.path), sources, SETTINGS, Texts(), now=now)
        disk.fill()
        assert collector.disk_problem() == "full"
        disk.make_read_only()
        assert collector.disk_problem() == "read-only"
        collector.store = cast("Any", object())
        assert collector.disk_problem() == ""
