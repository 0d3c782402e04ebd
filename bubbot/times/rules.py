"""Rules of when something is due: cron, every, at, and days of a month that are counted. Pure: time and zone are passed in.

The text of a rule is what a tape keeps: it means the same at any later time, so that a restart moves nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import TypeAlias
from zoneinfo import ZoneInfo

from msgspec import Struct

from bubbot.times.cron import WEEKDAYS, CronExpression, format_instant, parse_cron
from bubbot.times.instants import first_instant, wall_time
from bubbot.times.refusal import TimeRefused

MIN_INTERVAL = timedelta(minutes=1)
MAX_INTERVAL = timedelta(days=3660)
MAX_YEAR = 9000
ALL_DAYS, WORKDAYS = (0, 1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5)
"""Days of the week as cron counts them, from Sunday."""
_SPANS = tuple(timedelta(hours=hours) for hours in (1, 24, 200, 1000, 10_000))
_UNITS = {
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hr": 3600, "hrs": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400, "w": 604800, "week": 604800, "weeks": 604800,
}  # fmt: skip
_PIECE = r"(?a)(\d{1,6})\s*([a-z]+)"
_EVERY = r"(?a)every (.+) from (\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z)"
_AT = r"(?a)(?:at )?(\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(?::\d{2})?)\s*(Z|[+-]\d{2}:\d{2})?"
_MONTHLY = r"(?a)monthly ([1-4]|last) (day|weekday|[a-z]{3}) at ((?:\d{2}:\d{2},?)+)"
_CRON = r"(?a)@\w.*|\*.*|[\d,/-]+ .*\*.*|[\d,/-]+ [\d,/-]+ [\d,/-]+ [\w,/-]+ [\w,/-]+"

_COUNTED_CRON = r"(?ai)(\S+) (\S+) (?:(L) \* [*?]|[*?] \* (\w+)(?:#([1-4])|L))"
"""The last day of the month, and a counted day of the week, as some crons write them."""


class Interval(Struct, frozen=True):
    """A repetition from the anchor on.

    Attributes:
        text: as stored.
        anchor: the first instant.
        seconds: the interval in seconds that really pass; 0 if `days` is set.
        days: the interval in days, at the anchor's time of day even if the clock is changed.
    """

    text: str
    anchor: datetime
    seconds: int = 0
    days: int = 0

    def next_after(self, after: datetime, zone: tzinfo) -> datetime | None:
        """Return the first instant after this one."""
        if self.days:
            start = wall_time(self.anchor, zone)
            count = max(0, (wall_time(after, zone).date() - start.date()).days // self.days - 1)
            while (instant := first_instant(start + timedelta(days=count * self.days), zone)) <= after:
                count += 1
            return instant
        count = max(0, (after - self.anchor) // timedelta(seconds=self.seconds) + 1)
        return self.anchor + timedelta(seconds=count * self.seconds)

    def begun_before(self, moment: datetime, zone: tzinfo) -> Interval:
        """Return the same repetition, with an anchor that is not after this moment."""
        if not self.days:
            steps = max(0, -((moment - self.anchor) // timedelta(seconds=self.seconds)))
            return interval(self.anchor - timedelta(seconds=steps * self.seconds), seconds=self.seconds)
        start = wall_time(self.anchor, zone)
        steps = max(0, -((wall_time(moment, zone) - start) // timedelta(days=self.days)))
        return interval(first_instant(start - timedelta(days=steps * self.days), zone), days=self.days)


class OneTime(Struct, frozen=True):
    """One time: a time of day of the zone (`wall`), or an `instant`."""

    text: str
    wall: datetime | None = None
    instant: datetime | None = None

    def next_after(self, after: datetime, zone: tzinfo) -> datetime | None:
        """Return the instant, if it is still to come."""
        instant = self.due_instant(zone)
        return instant if instant > after else None

    def due_instant(self, zone: tzinfo) -> datetime:
        """Return the instant at which it is due."""
        if self.wall is not None:
            return first_instant(self.wall, zone)
        assert self.instant is not None
        return self.instant


class OrdinalDay(Struct, frozen=True):
    """A day of each month that is found by counting, such as its last Friday.

    Attributes:
        text: as stored.
        ordinal: 1 to 4, or -1 for the last one.
        weekdays: the days of the week that count.
        times: the times of day.
    """

    text: str
    ordinal: int
    weekdays: tuple[int, ...]
    times: tuple[time, ...]

    def next_after(self, after: datetime, zone: tzinfo) -> datetime | None:
        """Return the first instant after this one."""
        first = wall_time(after, zone).date().replace(day=1)
        while first.year <= MAX_YEAR:
            day = ordinal_date(first, self.ordinal, self.weekdays)
            for moment in self.times:
                if day is not None and (instant := first_instant(datetime.combine(day, moment), zone)) > after:
                    return instant
            first = (first + timedelta(days=32)).replace(day=1)
        return None


When: TypeAlias = CronExpression | Interval | OneTime | OrdinalDay


def parse_rule_text(text: str) -> When | None:
    """Parse the text of a rule; return None for any other text. Raise `TimeRefused`."""
    if match := re.fullmatch(_AT, text):
        moment = _parse_iso(match[1] + (match[2] or ""), text)
        return one_time(moment, text) if match[2] else wall_rule(moment, text)
    if match := re.fullmatch(_EVERY, text):
        seconds = parse_seconds(match[1], text)
        anchor, units = _parse_iso(match[2], text), {unit for _, unit in re.findall(_PIECE, _with_number(match[1]))}
        is_by_day = all(_UNITS.get(unit, 0) >= 86400 for unit in units)
        return interval(anchor, days=seconds // 86400) if is_by_day else interval(anchor, seconds=seconds)
    if match := re.fullmatch(_MONTHLY, text):
        names = {"day": ALL_DAYS, "weekday": WORKDAYS}
        weekdays = names.get(match[2]) or (WEEKDAYS.index(match[2]),)
        times = [time.fromisoformat(part) for part in match[3].split(",")]
        return ordinal_day(-1 if match[1] == "last" else int(match[1]), weekdays, times)
    if match := re.fullmatch(_COUNTED_CRON, text):
        return _counted_cron(match)
    return parse_cron(text) if re.fullmatch(_CRON, text) else None


def _counted_cron(match: re.Match[str]) -> OrdinalDay:
    """Return the rule of `0 9 L * *`, `0 9 * * mon#1` and `0 9 * * friL`. Raise `TimeRefused`."""
    expression = parse_cron(f"{match[1]} {match[2]} * * {match[4] or '*'}")
    times = [time(hour, minute) for hour in expression.hours for minute in expression.minutes]
    return ordinal_day(int(match[5]) if match[5] else -1, ALL_DAYS if match[3] else expression.weekdays, times)


def parse_stored_when(text: str) -> When:
    """Parse the text of a rule that a tape keeps. Raise `TimeRefused`."""
    rule = parse_rule_text(" ".join(text.split()))
    if rule is None:
        raise TimeRefused("when_unknown", given=text)
    return rule


def interval(anchor: datetime, *, seconds: int = 0, days: int = 0) -> Interval:
    """Make the repetition that counts from this instant. Raise `TimeRefused` if it is too often or too rare."""
    total, anchor = seconds + days * 86400, anchor.astimezone(UTC).replace(microsecond=0)
    unit, size = next((unit, size) for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if seconds % size == 0)
    length = f"{days}d" if days else f"{seconds // size}{unit}"
    if not MIN_INTERVAL.total_seconds() <= total <= MAX_INTERVAL.total_seconds():
        raise TimeRefused("every_range", given=f"every {length}")
    return Interval(f"every {length} from {format_instant(anchor)}", anchor, seconds, days)


def one_time(moment: datetime, source: str) -> OneTime:
    """Make the rule for one instant. Raise `TimeRefused` if it is too far away."""
    moment = moment.astimezone(UTC).replace(microsecond=0)
    if moment.year > MAX_YEAR:
        raise TimeRefused("when_far", given=source)
    return OneTime(f"at {format_instant(moment)}", instant=moment)


def wall_rule(wall: datetime, source: str) -> OneTime:
    """Make the rule for one time of the zone's clock. Raise `TimeRefused` if it is too far away."""
    if wall.year > MAX_YEAR:
        raise TimeRefused("when_far", given=source)
    return OneTime(f"at {wall.isoformat(sep=' ')}", wall=wall)


def ordinal_day(ordinal: int, weekdays: Sequence[int], times: Sequence[time]) -> OrdinalDay:
    """Make the rule for a day of each month that is counted."""
    name = {ALL_DAYS: "day", WORKDAYS: "weekday"}.get(tuple(weekdays)) or WEEKDAYS[weekdays[0]]
    clocks = ",".join(f"{moment:%H:%M}" for moment in sorted(times))
    text = f"monthly {'last' if ordinal < 0 else ordinal} {name} at {clocks}"
    return OrdinalDay(text, ordinal, tuple(weekdays), tuple(sorted(times)))


def ordinal_date(first: date, ordinal: int, weekdays: Sequence[int]) -> date | None:
    """Return a day that is counted in the month that begins with `first`; None if the month has not so many."""
    days = (first + timedelta(days=offset) for offset in range(31))
    counted = [day for day in days if day.month == first.month and day.isoweekday() % 7 in weekdays]
    return counted[-1 if ordinal < 0 else ordinal - 1] if ordinal <= len(counted) else None


def find_zone(name: str) -> ZoneInfo:
    """Return the zone of this IANA name. Raise `TimeRefused`."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise TimeRefused("zone_unknown", name=name) from None


def newest_instants(when: When, zone: tzinfo, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """Return the last instants after `after` and up to `until`, oldest first, `limit` at most.

    Its cost follows the limit, not the time between.
    """
    for span in (*_SPANS, until - after):
        start = max(after, until - span)
        instants: deque[datetime] = deque(maxlen=limit)
        for moment in _instants(when, zone, start):
            if moment > until:
                break
            instants.append(moment)
        if len(instants) == limit or start == after:
            return list(instants)
    return []


def next_instants(when: When, zone: tzinfo, after: datetime, count: int) -> list[datetime]:
    """Return the next instants, `count` at most."""
    return [moment for _, moment in zip(range(count), _instants(when, zone, after), strict=False)]


def _instants(when: When, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    moment = when.next_after(after, zone)
    while moment is not None:
        yield moment
        moment = when.next_after(moment, zone)


def _with_number(length: str) -> str:
    """Return the length with its number: `day` is `1 day`."""
    length = length.strip().lower()
    return f"1 {length}" if length[:1].isalpha() else length


def parse_seconds(length: str, source: str) -> int:
    """Return the seconds of a length such as `1h30m`. Raise `TimeRefused`."""
    length = _with_number(length)
    pieces = re.findall(_PIECE, length)
    rest = re.sub(r"[\s,]|\band\b", "", re.sub(_PIECE, "", length))
    if not pieces or rest or any(unit not in _UNITS for _, unit in pieces):
        raise TimeRefused("duration_unknown", given=source)
    seconds = sum(int(number) * _UNITS[unit] for number, unit in pieces)
    if not 0 < seconds <= MAX_INTERVAL.total_seconds():
        raise TimeRefused("every_range", given=source)
    return seconds


def _parse_iso(text: str, source: str) -> datetime:
    try:
        return datetime.fromisoformat(text.replace(" ", "T"))
    except ValueError:
        raise TimeRefused("date_unknown", given=source) from None
