"""Stand-ins shared by all tests: a clock that moves when it is read, ids and salts that can be named beforehand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import shake_256
from itertools import count
from typing import Any

NO_RUNNER: Any = None
"""The runner of a turn that asks no model."""
START = datetime(2026, 11, 21, 20, 21, tzinfo=UTC)


class SteppingClock:
    """Tells `START` first and a second more at every reading; `moment` is what it will tell next."""

    def __init__(self, moment: datetime = START, step: timedelta = timedelta(seconds=1)) -> None:
        self.moment = moment
        self.step = step

    def __call__(self) -> datetime:
        told = self.moment
        self.moment += self.step
        return told

    def advance(self, by: timedelta) -> None:
        """Lets time pass."""
        self.moment += by


class FixedClock:
    """Tells `START` until a test lets time pass, as a function or in place of the class `datetime`."""

    def __init__(self) -> None:
        self.moment = START

    def __call__(self) -> datetime:
        """Return the moment."""
        return self.moment

    def now(self, zone: tzinfo) -> datetime:
        """Return the moment in a time zone."""
        return self.moment.astimezone(zone)

    def advance(self, **by: float) -> None:
        """Let time pass: `hours=2`, as `timedelta` has it."""
        self.moment += timedelta(**by)


class CountingIds:
    """fork-1, fork-2, …"""

    def __init__(self, prefix: str = "fork") -> None:
        self._prefix = prefix
        self._numbers = count(1)

    def __call__(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"


class CountingSalt:
    """Bytes that differ from call to call and are the same in every run."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def __call__(self, size: int) -> bytes:
        return shake_256(str(next(self._numbers)).encode()).digest(size)
