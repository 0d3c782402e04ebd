"""The daily digest: one hash of the whole database, logged outside of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from bubbot.errors import StoreError
from bubbot.tape.handle import Clock

log = logging.getLogger(__name__)

MAX_SLEEP_SECONDS = 3600.0
"""Seconds of one sleep at most: the clock may be set and the machine may sleep before midnight."""


class DeploymentHead(Struct, frozen=True):
    """The state of all tapes.

    Attributes:
        entries: the number of entries that it covers.
        size: bytes of the database.
    """

    head: str
    entries: int
    size: int


class DailyDigest(Struct, frozen=True):
    """Logs the deployment head at once and after each midnight of the zone, until it is cancelled."""

    read_head: Callable[[], Awaitable[DeploymentHead]]
    zone: ZoneInfo
    now: Clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self) -> None:
        """Log a head each day. If the database is unreadable, log that and try again the next day."""
        while True:
            try:
                head = await self.read_head()
            except StoreError as error:
                log.warning("daily tape digest failed: %s", error, extra={"action": "tape.no_head"})
            else:
                log.info(
                    "daily tape digest: head %s, %d entries, %d bytes",
                    head.head,
                    head.entries,
                    head.size,
                    extra={"action": "tape.head", "head": head.head, "entries": head.entries, "size": head.size},
                )
            midnight = next_midnight(self.now(), self.zone)
            while (seconds := (midnight - self.now()).total_seconds()) > 0:
                await self.sleep(min(seconds, MAX_SLEEP_SECONDS))


def next_midnight(now: datetime, zone: ZoneInfo) -> datetime:
    """Return the beginning of the next day in the zone, in UTC; if clocks skip midnight, the first instant after it."""
    tomorrow = now.astimezone(zone).date() + timedelta(days=1)
    return datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=zone).astimezone(UTC)
