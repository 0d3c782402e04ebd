"""Refusals of a bot that the platform took before: when to believe them, and how long to wait between two tries.

A platform that took the token may refuse it once by mistake, and a second program that polls goes away again. So nothing
here ends a channel: it is down as long as the platform says so, shows that, and is tried again for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RefusalTiming:
    """Seconds. `first_wait` doubles with each refusal, up to `longest_wait`, until the refusals are believed; then
    `confirmed_wait` stands between two tries."""

    first_wait: float = 1.0
    longest_wait: float = 15.0
    confirmed_wait: float = 60.0
    confirmed_after: float = 120.0
    """How long the platform has to go on refusing until it is believed."""
    confirmations: int = 3
    """How often it has to refuse in that time."""


class RefusalMonitor:
    """Counts what refuses one channel in the same way, and logs it: once when it begins, when it is believed, and when
    it is over.

    `quiet_seconds`: how long nothing may be refused until it is over. 0: the first success ends it.
    """

    def __init__(
        self,
        channel: str,
        timing: RefusalTiming,
        *,
        monotonic: Callable[[], float],
        jitter: Callable[[], float],
        quiet_seconds: float = 0.0,
    ) -> None:
        self._channel = channel
        self._timing = timing
        self._monotonic = monotonic
        self._jitter = jitter
        self._quiet_seconds = quiet_seconds
        self._count = 0
        self._first = self._last = 0.0
        self._sentence = ""
        self._is_confirmed = False

    @property
    def sentence(self) -> str:
        """What is wrong, for the operator; empty if nothing is refused."""
        return self._sentence

    def refused(self, sentence: str) -> float:
        """Count a refusal and return the seconds to wait before the next try."""
        now = self._monotonic()
        if self._count and self._quiet_seconds and now - self._last > self._quiet_seconds:
            self._count, self._is_confirmed = 0, False
        if not self._count:
            self._first = now
            log.warning(
                "%s It is tried again.", sentence, extra={"action": "channel.doubted", "channel": self._channel}
            )
        self._count, self._last, self._sentence = self._count + 1, now, sentence
        timing = self._timing
        lasted = now - self._first >= timing.confirmed_after
        if not self._is_confirmed and lasted and self._count >= timing.confirmations:
            self._is_confirmed = True
            log.error(
                "%s The channel is down; it is tried again every %.0f seconds.",
                sentence,
                timing.confirmed_wait,
                extra={"action": "channel.down", "channel": self._channel},
            )
        most = min(timing.first_wait * 2 ** min(self._count - 1, 20), timing.longest_wait)
        return (timing.confirmed_wait if self._is_confirmed else most) * (0.5 + self._jitter() / 2)

    def accepted(self) -> None:
        """Take note that the platform accepted the bot, which ends the refusals if they were quiet for long enough."""
        if not self._count or self._monotonic() - self._last < self._quiet_seconds:
            return
        seconds = self._monotonic() - self._first
        self._count, self._is_confirmed, self._sentence = 0, False, ""
        log.info(
            "channel %s: the platform takes the bot again, after %.0f seconds",
            self._channel,
            seconds,
            extra={"action": "channel.up", "channel": self._channel},
        )
