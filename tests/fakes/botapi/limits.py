"""Flood control: what the platform allows a bot to send. Edits count as well; what only asks does not."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from math import ceil

from tests.fakes.botapi.errors import too_many

Window = tuple[int, float]
"""So many requests in so many seconds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """About what the Bot FAQ says: one message a second and chat with short bursts, 20 a minute in a group, 30/s."""

    chat: Window = (3, 3.0)
    group: Window = (20, 60.0)
    bot: Window = (30, 1.0)


@dataclass(slots=True)
class FloodControl:
    """Counts what was let through, per bot and chat."""

    limits: Limits | None
    passed: defaultdict[tuple[int, object], deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def check(self, bot: int, chat: int, now: float, *, group: bool) -> None:
        """Lets one request through or refuses it with the seconds to wait; a refused one does not count."""
        if self.limits is None:
            return
        windows = [((bot, chat), self.limits.chat), ((bot, "all"), self.limits.bot)]
        if group:
            windows.append(((bot, ("group", chat)), self.limits.group))
        wait = max(self._wait(key, window, now) for key, window in windows)
        if wait > 0:
            raise too_many(ceil(wait))
        for key, _ in windows:
            self.passed[key].append(now)

    def _wait(self, key: tuple[int, object], window: Window, now: float) -> float:
        count, seconds = window
        times = self.passed[key]
        while times and times[0] <= now - seconds:
            times.popleft()
        return 0.0 if len(times) < count else times[-count] + seconds - now
