"""Refusals of a bot that the platform accepted before: when to believe them, and how long to wait between two tries.

A platform that accepted the token may refuse it once by mistake, and a second poller may stop. So a refusal never ends a
channel: it reports the problem and retries forever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec import Struct, structs

from bubbot.concurrency import Backoff

log = logging.getLogger(__name__)


class RefusalTiming(Struct, frozen=True):
    """Timing of retries and of belief in refusals, in seconds.

    Attributes:
        first_wait: the wait after the first refusal; it doubles with each one.
        max_wait: the limit of that doubling.
        confirmed_wait: seconds between two tries once the refusals are believed.
        confirmed_after: seconds of refusals before they are believed.
        min_refusals: refusals needed within that time.
    """

    first_wait: float = 1.0
    max_wait: float = 15.0
    confirmed_wait: float = 60.0
    confirmed_after: float = 120.0
    min_refusals: int = 3


class RefusalMonitor:
    """A counter of one channel's refusals of one sort. It logs when they begin, are believed, and end.

    Args:
        timing: when to believe refusals and how long to wait.
        jitter: random numbers from 0 to 1.
        quiet_seconds: seconds without a refusal that end the outage; 0: the first success ends it.
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
        self._backoff = Backoff(jitter, timing.first_wait, timing.max_wait, spread=(0.5, 1.0))
        self._confirmed_backoff = structs.replace(
            self._backoff, first_seconds=timing.confirmed_wait, max_seconds=timing.confirmed_wait
        )
        self._quiet_seconds = quiet_seconds
        self._count = 0
        self._first = self._last = 0.0
        self._sentence = ""
        self._is_confirmed = False

    @property
    def problem(self) -> str:
        """The problem, for the operator; empty if nothing is refused."""
        return self._sentence

    def record_refusal(self, problem: str) -> float:
        """Count a refusal and return the seconds to wait before the next try."""
        now = self._monotonic()
        if self._count and self._quiet_seconds and now - self._last > self._quiet_seconds:
            self._count, self._is_confirmed = 0, False
        if not self._count:
            self._first = now
            log.warning(
                "platform refuses the bot, retrying: %s",
                problem,
                extra={"action": "channel.doubted", "channel": self._channel},
            )
        self._count, self._last, self._sentence = self._count + 1, now, problem
        timing = self._timing
        is_lasting = now - self._first >= timing.confirmed_after
        if not self._is_confirmed and is_lasting and self._count >= timing.min_refusals:
            self._is_confirmed = True
            log.error(
                "channel down, retrying every %.0f seconds: %s",
                timing.confirmed_wait,
                problem,
                extra={"action": "channel.down", "channel": self._channel},
            )
        backoff = self._confirmed_backoff if self._is_confirmed else self._backoff
        return backoff.delay_seconds(self._count)

    def record_success(self) -> None:
        """Record a success, which ends the refusals if they were quiet for long enough."""
        if not self._count or self._monotonic() - self._last < self._quiet_seconds:
            return
        seconds = self._monotonic() - self._first
        self._count, self._is_confirmed, self._sentence = 0, False, ""
        log.info(
            "platform accepts the bot again: channel=%s after=%.0fs",
            self._channel,
            seconds,
            extra={"action": "channel.up", "channel": self._channel},
        )
