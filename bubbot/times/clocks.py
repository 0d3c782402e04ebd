"""Times of day as people say them: `5pm`, `at 5`, `half past nine`, 晚上八点半. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import time, timedelta
from types import MappingProxyType

from msgspec import Struct

from bubbot.times.refusal import TimeRefused

LIKELY_HOURS = range(7, 23)
"""Of two readings of a time, the next one within these hours is taken."""
DEFAULT_TIME = time(9)
"""The time of day of a date that names none, unless the settings say otherwise."""


class DayPart(Struct, frozen=True):
    """A part of the day.

    Attributes:
        default: its time if no clock is given; None: ask.
        hours: the hour that is meant, by the hour as said; 24 is the midnight at its end.
    """

    default: time | None
    hours: Mapping[int, int]


def _hours(*spans: tuple[int, int, int]) -> Mapping[int, int]:
    """Map the hours `first` to `last` to themselves plus `shift`, and the shifted ones to themselves."""
    said = {hour: hour + shift for first, last, shift in spans for hour in range(first, last + 1)}
    return MappingProxyType({meant: meant for meant in said.values() if meant < 24} | said)


DAY_PARTS: Mapping[str, DayPart] = MappingProxyType(
    {
        "dawn": DayPart(None, _hours((0, 6, 0), (12, 12, -12))),
        "morning": DayPart(time(9), _hours((1, 11, 0))),
        "noon": DayPart(time(12), _hours((11, 12, 0), (1, 2, 12))),
        "afternoon": DayPart(time(15), _hours((12, 12, 0), (1, 7, 12))),
        "dusk": DayPart(time(18), _hours((4, 8, 12))),
        "evening": DayPart(time(19), _hours((4, 12, 12))),
        "night": DayPart(time(21), _hours((6, 12, 12))),
    }
)


class ClockTime(Struct, frozen=True):
    """A time of day, as the clock of a zone shows it.

    Attributes:
        time: the time of day.
        days: 1 if it belongs to the next day: the midnight at the end of an evening.
    """

    time: time
    days: int = 0

    @property
    def is_likely(self) -> bool:
        """True if people are usually awake then."""
        return self.time.hour in LIKELY_HOURS

    @property
    def offset(self) -> timedelta:
        """The time since the day began."""
        return timedelta(days=self.days, hours=self.time.hour, minutes=self.time.minute, seconds=self.time.second)


class Clock(Struct, frozen=True):
    """A time of day as it was said.

    Attributes:
        source: the words.
        hour: the hour as said.
        minute: the minute.
        second: the second.
        half: `am` or `pm`; empty if not said.
        part: the part of the day that was said with it; empty: none.
        is_exact: written so that only one time can be meant, such as 05:30.
        is_bare: only a number, so that a number that follows may belong to it.
        is_loose: a bare number without `at` before it, which may belong to the words that follow.
        is_midnight: the word midnight, which a day has two of.
    """

    source: str
    hour: int
    minute: int = 0
    second: int = 0
    half: str = ""
    part: str = ""
    is_exact: bool = False
    is_bare: bool = False
    is_loose: bool = False
    is_midnight: bool = False

    def readings(self, part: str = "") -> list[ClockTime]:
        """Return the times that can be meant, at most two. Raise `TimeRefused` if there is none."""
        hour, part = self.hour, self.part or part
        if hour > 23 or not 0 <= self.minute <= 59 or self.second > 59 or (self.half and not 1 <= hour <= 12):
            raise TimeRefused("clock_range", given=self.source)
        if self.half:
            hour = hour % 12 + (12 if self.half == "pm" else 0)
        if part and not self.is_midnight:
            meant = DAY_PARTS[part].hours.get(hour)
            if meant is None:
                raise TimeRefused("clock_part", given=self.source)
            return [self._at(meant)]
        if self.is_exact or self.half or self.is_midnight or not 1 <= hour <= 12:
            return [self._at(hour)]
        return [self._at(hour % 12), self._at(hour % 12 + 12)]

    def _at(self, hour: int) -> ClockTime:
        return ClockTime(time(hour % 24, self.minute, self.second), hour // 24)


def default_reading(part: str, default: time) -> ClockTime:
    """Return the time of a date without a clock. Raise `TimeRefused` if nobody can tell."""
    moment = (DAY_PARTS[part].default if part else None) or default
    if part and DAY_PARTS[part].default is None:
        raise TimeRefused("clock_missing")
    return ClockTime(moment)
