"""Five-field cron expressions with the meaning that people know from crontab. Pure.

Sunday is 0 and 7. If both day fields are restricted, either of them is enough; a field that begins with `*` counts as
not restricted. A job that names its hours runs once for each time of day, also when the clock is changed. A job for
every hour follows the hours that really pass: it ignores times that are skipped in spring, and runs twice at those
that are repeated in autumn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from types import MappingProxyType

from msgspec import Struct

from bubbot.times.instants import find_clock_setback, first_instant, wall_time
from bubbot.times.refusal import TimeRefused

HORIZON_YEARS = 41
"""Years in which something has to happen: 29 February of a year such as 2100 is eight years away at most, and on one
day of the week forty."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NICKNAMES: Mapping[str, str] = MappingProxyType(
    {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@hourly": "0 * * * *",
    }
)
_ITEM = r"(?a)(?P<low>\*|\w+)(?:-(?P<high>\w+))?(?:/(?P<step>\d{1,4}))?"


class _Field(Struct, frozen=True):
    """A cron field.

    Attributes:
        name: of the sentence that describes it.
        low: the lowest number.
        high: the highest number.
        words: names of the numbers, from `low` on.
    """

    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day", 1, 31),
    _Field("month", 1, 12, MONTHS),
    _Field("weekday", 0, 7, WEEKDAYS),
)


class CronExpression(Struct, frozen=True):
    """The allowed values of each field, ascending; weekdays are 0 (Sunday) to 6.

    `matches_either_day`: one of the day fields is enough.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    matches_either_day: bool

    @property
    def is_every_hour(self) -> bool:
        """True if it names no hours: it follows the hours that pass."""
        return len(self.hours) == 24

    def next_after(self, after: datetime, zone: tzinfo) -> datetime | None:
        """Return the first instant after this one, in UTC; None if there is none within `HORIZON_YEARS` years."""
        for wall in self.wall_times(wall_time(after, zone)):
            if (instant := first_instant(wall, zone)) > after and not (
                self.is_every_hour and wall_time(instant, zone) != wall
            ):
                first: datetime | None = instant
                break
        else:
            first = None
        repeated = self._next_repeated(after, zone) if self.is_every_hour else None
        return min(first, repeated) if first and repeated else first or repeated

    def _next_repeated(self, after: datetime, zone: tzinfo) -> datetime | None:
        """Return the first matching time that the clock shows again, after it was put back."""
        if (passed := find_clock_setback(after, zone)) is None:
            return None
        change, begins, ends = passed
        for wall in self.wall_times(begins):
            if wall >= ends:
                return None
            if (instant := change + (wall - begins)) > after:
                return instant
        return None

    def wall_times(self, start: datetime) -> Iterator[datetime]:
        """Yield the matching wall-clock times, from the minute of `start` on."""
        first = start.replace(second=0, microsecond=0)
        day = first.replace(hour=0, minute=0)
        last = day.year + HORIZON_YEARS
        while day.year <= min(last, 9990):
            if day.month not in self.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._matches_day(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        if (wall := day.replace(hour=hour, minute=minute)) >= first:
                            yield wall
            day += timedelta(days=1)

    def _matches_day(self, day: datetime) -> bool:
        by_date, by_name = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_name if self.matches_either_day else by_date and by_name


def parse_cron(text: str) -> CronExpression:
    """Parse a cron expression. Raise `TimeRefused`, which names the field and its values."""
    source = " ".join(text.split())
    if source.startswith("@"):
        if source.lower() not in NICKNAMES:
            raise TimeRefused("cron_nickname", given=source, names=", ".join(NICKNAMES))
        fields = NICKNAMES[source.lower()].split()
    else:
        fields = source.split()
    if len(fields) != 5:
        raise TimeRefused("cron_fields", given=source, count=len(fields))
    minutes, hours, days, months, weekdays = (
        _parse_field(part, field) for part, field in zip(fields, _FIELDS, strict=True)
    )
    either = not (fields[2].startswith("*") or fields[4].startswith("*"))
    expression = CronExpression(
        source, minutes, hours, days, months, tuple(sorted({weekday % 7 for weekday in weekdays})), either
    )
    if next(expression.wall_times(datetime(2000, 1, 1)), None) is None:  # noqa: DTZ001 - a wall-clock time
        raise TimeRefused("cron_never", given=source)
    return expression


def _parse_field(text: str, field: _Field) -> tuple[int, ...]:
    numbers: set[int] = set()
    for item in text.split(","):
        match = re.fullmatch(_ITEM, item)
        if match is None:
            raise TimeRefused(f"cron_{field.name}", given=text)
        numbers |= _numbers(match, field, text)
    return tuple(sorted(numbers))


def _numbers(match: re.Match[str], field: _Field, text: str) -> set[int]:
    step = int(match["step"]) if match["step"] else 1
    if match["low"] == "*":
        if match["high"]:
            raise TimeRefused(f"cron_{field.name}", given=text)
        low, high = field.low, 6 if field.name == "weekday" else field.high
    else:
        low = _number(match["low"], field, text)
        high = _number(match["high"], field, text) if match["high"] else low
        if match["step"] and not match["high"]:
            raise TimeRefused("cron_step_alone", given=text, low=match["low"], high=field.high, step=step)
    if step < 1 or step > field.high - field.low + 1:
        raise TimeRefused("cron_step", given=text, step=step)
    if field.name == "weekday" and high < low:  # fri-mon goes past the end of the week
        high += 7
        return {number % 7 for number in range(low, high + 1, step)}
    if high < low:
        raise TimeRefused("cron_backwards", given=text)
    return set(range(low, high + 1, step))


def _number(word: str, field: _Field, text: str) -> int:
    if word.isdigit() and len(word) <= 2 and field.low <= int(word) <= field.high:
        return int(word)
    if word.lower() in field.words:
        return field.words.index(word.lower()) + field.low
    raise TimeRefused(f"cron_{field.name}", given=text)


def format_instant(instant: datetime) -> str:
    """Format an instant for keys and facts: UTC, to the second."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
