"""The line of the day: what the database holds, under one hash, in a place that is not the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from bubbot.errors import StoreError
from bubbot.tape.handle import Clock

log = logging.getLogger(__name__)

MAX_SLEEP_SECONDS = 3600.0
"""Seconds of one wait: a clock may be set, and a machine may sleep, while it is waited for midnight."""


@dataclass(frozen=True, slots=True)
class DeploymentHead:
    """The deployment head, over how many entries, and the bytes of the database."""

    head: str
    entries: int
    size: int


@dataclass(frozen=True, slots=True)
class DailyDigest:
    """Logs the deployment head at once and after each midnight of the zone, until it is cancelled."""

    read: Callable[[], Awaitable[DeploymentHead]]
    zone: ZoneInfo
    now: Clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self) -> None:
        """A database that cannot be read is told, and asked again the next day."""
        while True:
            try:
                found = await self.read()
            except StoreError as error:
                log.warning("no line of the day: %s", error, extra={"action": "tape.no_head"})
            else:
                log.info(
                    "the tapes: head %s, %d entries, %d bytes",
                    found.head,
                    found.entries,
                    found.size,
                    extra={"action": "tape.head", "head": found.head, "entries": found.entries, "size": found.size},
                )
            midnight = next_midnight(self.now(), self.zone)
            while (left := (midnight - self.now()).total_seconds()) > 0:
                await self.sleep(min(left, MAX_SLEEP_SECONDS))


def next_midnight(now: datetime, zone: ZoneInfo) -> datetime:
    """When the next day begins in the zone, in UTC; where clocks skip midnight, the first instant after it."""
    tomorrow = now.astimezone(zone).date() + timedelta(days=1)
    return datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=zone).astimezone(UTC)
