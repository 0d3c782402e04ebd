"""The line of the day: at the start, and at each midnight of the deployment."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from bubbot.errors import StoreUnavailable
from bubbot.gateway.daily_digest import DailyDigest, DeploymentHead, next_midnight
from tests.virtual import virtual

BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2026, 10, 24, 20, 0, tzinfo=UTC)
"""Ten in the evening in Berlin; the day after has 25 hours there."""


@virtual
async def test_the_head_is_logged_at_the_start_and_at_each_midnight_of_the_zone() -> None:
    caught: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = caught.append  # type: ignore[method-assign,assignment]
    logger = logging.getLogger("bubbot.gateway.daily_digest")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    asked: list[datetime] = []
    clock = asyncio.get_running_loop().time

    def now() -> datetime:
        return START + timedelta(seconds=clock())

    async def read() -> DeploymentHead:
        asked.append(now())
        if len(asked) == 2:
            raise StoreUnavailable("busy")
        return DeploymentHead(f"{len(asked)}:abc", 10 * len(asked), 4096)

    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3 * 86400):
                await DailyDigest(read, BERLIN, now).run()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    hours = [(one - START).total_seconds() / 3600 for one in asked]
    assert hours == pytest.approx([0, 2, 27, 51])
    told = [(one.__dict__["action"], one.__dict__.get("head"), one.__dict__.get("entries")) for one in caught]
    assert told == [
        ("tape.head", "1:abc", 10),
        ("tape.no_head", None, None),
        ("tape.head", "3:abc", 30),
        ("tape.head", "4:abc", 40),
    ]


def test_at_midnight_the_next_one_is_that_of_the_day_after() -> None:
    midnight = next_midnight(START, BERLIN)
    assert midnight == datetime(2026, 10, 24, 22, tzinfo=UTC)
    assert next_midnight(midnight, BERLIN) == datetime(2026, 10, 25, 23, tzinfo=UTC)


def test_where_clocks_skip_midnight_the_day_begins_after_it() -> None:
    beirut = ZoneInfo("Asia/Beirut")  # 2026-03-29 begins at one there
    found = next_midnight(datetime(2026, 3, 28, 12, tzinfo=UTC), beirut)
    assert found.astimezone(beirut).date().isoformat() == "2026-03-29"
