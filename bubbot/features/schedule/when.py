"""The forms of a schedule: cron, every, at. Pure: the current time and the zone are passed in.

The stored parts of a schedule are its text, its zone and its anchor, so that a restart moves nothing.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeAlias
from zoneinfo import ZoneInfo

from bubbot.features.schedule.clock import first_instant, wall_time
from bubbot.features.schedule.cron import CronExpression, format_instant, parse_cron
from bubbot.features.schedule.refusal import build_refusal

MIN_INTERVAL = timedelta(minutes=1)
MAX_INTERVAL = timedelta(days=3660)
MAX_YEAR = 9000
_SPANS = tuple(timedelta(hours=hours) for hours in (1, 24, 200, 1000, 10_000))
_UNITS = {
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hr": 3600, "hrs": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400, "w": 604800, "week": 604800, "weeks": 604800,
}  # fmt: skip
_PIECE = re.compile(r"(\d{1,6})\s*([a-z]+)", re.ASCII)
_DATE = re.compile(r"(?:(today|tomorrow)\b|(\d{4}-\d{2}-\d{2}))?(?:[ T]*(\d{1,2}:\d{2}(?::\d{2})?))?", re.ASCII)
_INSTANT = re.compile(r"(\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(?::\d{2})?)\s*(Z|[+-]\d{2}:\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Interval:
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


@dataclass(frozen=True, slots=True)
class OneTime:
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


When: TypeAlias = CronExpression | Interval | OneTime


def parse_when(text: str, now: datetime, zone: tzinfo) -> When:
    """Parse a schedule. Raise `ScheduleRefused`.

    `0 9 * * 1-5`, `@daily`, `every 90m`, `every 2d from 2026-12-01 09:00`, `at 2026-12-24 18:00`, `at 18:00`,
    `at tomorrow 18:00`, `in 20m`. The `text` of the result means the same at any later time.
    """
    source = " ".join(text.split())
    word, _, rest = source.partition(" ")
    match word.lower():
        case "every":
            return _parse_every(source, rest, now, zone)
        case "at":
            return _parse_at(source, rest, now, zone)
        case "in":
            moment = now + timedelta(seconds=_parse_seconds(rest, source))
            return _one_time(moment.replace(microsecond=0), source)
    if source and (source[0] in "@*" or len(source.split()) >= 5 or source[0].isdigit()):
        if _DATE.fullmatch(source) or _INSTANT.fullmatch(source):
            return _parse_at(source, source, now, zone)
        return parse_cron(source)
    raise build_refusal("when_unknown", given=source)


def parse_stored_when(text: str, anchor: datetime, zone: tzinfo) -> When:
    """Parse a text that `parse_when` has made."""
    return parse_when(text, anchor, zone)


def find_zone(name: str) -> ZoneInfo:
    """Return the zone of this IANA name. Raise `ScheduleRefused`."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise build_refusal("zone_unknown", name=name) from None


def newest_instants(when: When, zone: tzinfo, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """Return the last instants after `after` and up to `until`, oldest first, `limit` at most.

    Its cost follows the limit, not the time between.
    """
    for span in (*_SPANS, until - after):
        start = max(after, until - span)
        instants: deque[datetime] = deque(maxlen=limit)
        moment = when.next_after(start, zone)
        while moment is not None and moment <= until:
            instants.append(moment)
            moment = when.next_after(moment, zone)
        if len(instants) == limit or start == after:
            return list(instants)
    return []


def next_instants(when: When, zone: tzinfo, after: datetime, count: int) -> list[datetime]:
    """Return the next instants, `count` at most."""
    instants: list[datetime] = []
    while len(instants) < count and (moment := when.next_after(instants[-1] if instants else after, zone)) is not None:
        instants.append(moment)
    return instants


def parse_duration(text: str) -> int:
    """Return the seconds of a duration such as `90m` or `1h30m`. Raise `ScheduleRefused`."""
    return _parse_seconds(text, text)


def _parse_every(source: str, rest: str, now: datetime, zone: tzinfo) -> Interval:
    length, _, start = rest.partition(" from ")
    seconds = _parse_seconds(length, source)
    if seconds < MIN_INTERVAL.total_seconds():
        raise build_refusal("every_range", given=source)
    anchor = _parse_moment(start, source, now, zone) if start else now.replace(microsecond=0)
    units = {unit for _, unit in _PIECE.findall(f"1{length}" if length[:1].isalpha() else length.lower())}
    by_day = all(_UNITS.get(unit, 0) >= 86400 for unit in units)
    text = f"every {length.strip()} from {format_instant(anchor)}"
    return Interval(text, anchor, days=seconds // 86400) if by_day else Interval(text, anchor, seconds=seconds)


def _parse_at(source: str, rest: str, now: datetime, zone: tzinfo) -> OneTime:
    if rest.startswith("+"):
        return _one_time((now + timedelta(seconds=_parse_seconds(rest[1:], source))).replace(microsecond=0), source)
    if match := _INSTANT.fullmatch(rest):
        return _one_time(_parse_iso(f"{match[1]}{match[2]}", source), source)
    wall = _parse_wall(rest, source, now, zone)
    return OneTime(f"at {wall.isoformat(sep=' ')}", wall=wall)


def _one_time(moment: datetime, source: str) -> OneTime:
    if moment.year > MAX_YEAR:
        raise build_refusal("when_unknown", given=source)
    return OneTime(f"at {format_instant(moment)}", instant=moment.astimezone(UTC))


def _parse_moment(text: str, source: str, now: datetime, zone: tzinfo) -> datetime:
    if match := _INSTANT.fullmatch(text.strip()):
        return _parse_iso(f"{match[1]}{match[2]}", source).astimezone(UTC)
    return first_instant(_parse_wall(text.strip(), source, now, zone), zone)


def _parse_wall(text: str, source: str, now: datetime, zone: tzinfo) -> datetime:
    """Parse a time of day; without a date, return the next one."""
    match, today = _DATE.fullmatch(text.strip()), wall_time(now, zone)
    if match is None or match[3] is None:
        raise build_refusal("at_unknown", given=source)
    hour, _, rest = match[3].partition(":")
    day = match[2] or (today + timedelta(days=match[1] == "tomorrow")).date().isoformat()
    wall = _parse_iso(f"{day}T{int(hour):02}:{rest}", source)
    if not match[1] and not match[2] and first_instant(wall, zone) <= now:
        wall += timedelta(days=1)
    if wall.year > MAX_YEAR:
        raise build_refusal("at_unknown", given=source)
    return wall


def _parse_iso(text: str, source: str) -> datetime:
    try:
        return datetime.fromisoformat(text.replace(" ", "T"))
    except ValueError:
        raise build_refusal("at_unknown", given=source) from None


def _parse_seconds(text: str, source: str) -> int:
    text = text.strip().lower()
    if text[:1].isalpha():
        text = f"1 {text}"  # every day, every hour
    pieces = _PIECE.findall(text)
    if (
        not pieces
        or re.sub(r"[\s,]|\band\b", "", _PIECE.sub("", text))
        or any(unit not in _UNITS for _, unit in pieces)
    ):
        raise build_refusal("duration_unknown", given=source)
    seconds = sum(int(number) * _UNITS[unit] for number, unit in pieces)
    if not 0 < seconds <= MAX_INTERVAL.total_seconds():
        raise build_refusal("every_range", given=source)
    return seconds
