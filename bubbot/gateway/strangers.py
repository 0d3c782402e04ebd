"""A count of ignored messages of strangers, for the log."""

from __future__ import annotations

import asyncio
import logging

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 60.0
"""The shortest time between two lines about one channel."""


class StrangerCounter:
    """Logs how many messages of strangers a channel ignored: the first at once, then a sum each minute."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self) -> None:
        """Count an ignored message."""
        self._count += 1
        if self._timer is None:
            self._write()

    def close(self) -> None:
        """Log the count since the last line and cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._count:
            self._log()

    def _write(self) -> None:
        """Log the count and repeat in a minute; if that minute has none, wait for the next stranger."""
        if not self._count:
            self._timer = None
            return
        self._log()
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_SECONDS, self._write)

    def _log(self) -> None:
        log.info(
            "strangers ignored",
            extra={"action": "receive.strangers", "channel": self._channel, "messages": self._count},
        )
        self._count = 0
