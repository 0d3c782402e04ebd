"""The forms of a schedule: cron, every, at. Pure: the current time and the zone are passed in.

What is kept of a schedule is its text, its zone and its anchor, so that a restart moves nothing.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeAlias
from zoneinfo import ZoneInfo

from bubbot.schedule.clock import comes, wall_of
from bubbot.schedule.cron import CronExpression, instant_text, parse_cron
from bubbot.schedule.refusal import refused

SHORTEST = timedelta(minutes=1)
MAX_INTERVAL = timedelta(days=3660)
LAST_YEAR = 9000
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
    """From the anchor on. `days`: so many days at the anchor's time of day, whatever the clock does; else `seconds`
    that really pass."""

    text: str
    anchor: datetime
    seconds: int = 0
    days: int = 0

    def next(self, after: datetime, zone: tzinfo) -> datetime | None:
        """The first instant after this one."""
        if self.days:
            start = wall_of(self.anchor, zone)
            count = max(0, (wall_of(after, zone).date() - start.date()).days // self.days - 1)
            while (found := comes(start + timedelta(days=count * self.days), zone)) <= after:
                count += 1
            return found
        count = max(0, (after - self.anchor) // timedelta(seconds=self.seconds) + 1)
        return self.anchor + timedelta(seconds=count * self.seconds)


@dataclass(frozen=True, slots=True)
class OneTime:
    """Once: at a time of day of the zone (`wall`), or at an `instant`."""

    text: str
    wall: datetime | None = None
    instant: datetime | None = None

    def next(self, after: datetime, zone: tzinfo) -> datetime | None:
        """The instant, where it is still to come."""
        found = self.due(zone)
        return found if found > after else None

    def due(self, zone: tzinfo) -> datetime:
        """When it is due."""
        if self.wall is not None:
            return comes(self.wall, zone)
        assert self.instant is not None
        return self.instant


When: TypeAlias = CronExpression | Interval | OneTime


def parse_when(text: str, now: datetime, zone: tzinfo) -> When:
    """A schedule as somebody gives it. Raises `ScheduleRefused`.

    `0 9 * * 1-5`, `@daily`, `every 90m`, `every 2d from 2026-12-01 09:00`, `at 2026-12-24 18:00`, `at 18:00`,
    `at tomorrow 18:00`, `in 20m`. The `text` of what is returned stands for the same at any later time.
    """
    given = " ".join(text.split())
    word, _, rest = given.partition(" ")
    match word.lower():
        case "every":
            return _every(given, rest, now, zone)
        case "at":
            return _at(given, rest, now, zone)
        case "in":
            moment = now + timedelta(seconds=_seconds(rest, given))
            return _instant(moment.replace(microsecond=0), given)
    if given and (given[0] in "@*" or len(given.split()) >= 5 or given[0].isdigit()):
        if _DATE.fullmatch(given) or _INSTANT.fullmatch(given):
            return _at(given, given, now, zone)
        return parse_cron(given)
    raise refused("when_unknown", given=given)


def stored_when(text: str, anchor: datetime, zone: tzinfo) -> When:
    """The schedule of a text that `parse_when` has made."""
    return parse_when(text, anchor, zone)


def zone_named(name: str) -> ZoneInfo:
    """The zone of this IANA name. Raises `ScheduleRefused`."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise refused("zone_unknown", name=name) from None


def newest(when: When, zone: tzinfo, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """The last instants after one and up to another, oldest first, `limit` at most. Its cost follows the limit, not
    the time between."""
    for span in (*_SPANS, until - after):
        start = max(after, until - span)
        found: deque[datetime] = deque(maxlen=limit)
        moment = when.next(start, zone)
        while moment is not None and moment <= until:
            found.append(moment)
            moment = when.next(moment, zone)
        if len(found) == limit or start == after:
            return list(found)
    return []


def upcoming(when: When, zone: tzinfo, after: datetime, count: int) -> list[datetime]:
    """The next instants, `count` at most."""
    found: list[datetime] = []
    while len(found) < count and (moment := when.next(found[-1] if found else after, zone)) is not None:
        found.append(moment)
    return found


def duration(text: str) -> int:
    """The seconds of a duration such as `90m` or `1h30m`. Raises `ScheduleRefused`."""
    return _seconds(text, text)


def _every(given: str, rest: str, now: datetime, zone: tzinfo) -> Interval:
    length, _, start = rest.partition(" from ")
    seconds = _seconds(length, given)
    if seconds < SHORTEST.total_seconds():
        raise refused("every_range", given=given)
    anchor = _moment(start, given, now, zone) if start else now.replace(microsecond=0)
    units = {unit for _, unit in _PIECE.findall(f"1{length}" if length[:1].isalpha() else length.lower())}
    by_day = all(_UNITS.get(unit, 0) >= 86400 for unit in units)
    text = f"every {length.strip()} from {instant_text(anchor)}"
    return Interval(text, anchor, days=seconds // 86400) if by_day else Interval(text, anchor, seconds=seconds)


def _at(given: str, rest: str, now: datetime, zone: tzinfo) -> OneTime:
    if rest.startswith("+"):
        return _instant((now + timedelta(seconds=_seconds(rest[1:], given))).replace(microsecond=0), given)
    if found := _INSTANT.fullmatch(rest):
        return _instant(_read(f"{found[1]}{found[2]}", given), given)
    wall = _wall(rest, given, now, zone)
    return OneTime(f"at {wall.isoformat(sep=' ')}", wall=wall)


def _instant(moment: datetime, given: str) -> OneTime:
    if moment.year > LAST_YEAR:
        raise refused("when_unknown", given=given)
    return OneTime(f"at {instant_text(moment)}", instant=moment.astimezone(UTC))


def _moment(text: str, given: str, now: datetime, zone: tzinfo) -> datetime:
    if found := _INSTANT.fullmatch(text.strip()):
        return _read(f"{found[1]}{found[2]}", given).astimezone(UTC)
    return comes(_wall(text.strip(), given, now, zone), zone)


def _wall(text: str, given: str, now: datetime, zone: tzinfo) -> datetime:
    """A time of day; without a date it is the next one."""
    found, today = _DATE.fullmatch(text.strip()), wall_of(now, zone)
    if found is None or found[3] is None:
        raise refused("at_unknown", given=given)
    hour, _, rest = found[3].partition(":")
    day = found[2] or (today + timedelta(days=found[1] == "tomorrow")).date().isoformat()
    wall = _read(f"{day}T{int(hour):02}:{rest}", given)
    if not found[1] and not found[2] and comes(wall, zone) <= now:
        wall += timedelta(days=1)
    if wall.year > LAST_YEAR:
        raise refused("at_unknown", given=given)
    return wall


def _read(text: str, given: str) -> datetime:
    try:
        return datetime.fromisoformat(text.replace(" ", "T"))
    except ValueError:
        raise refused("at_unknown", given=given) from None


def _seconds(text: str, given: str) -> int:
    text = text.strip().lower()
    if text[:1].isalpha():
        text = f"1 {text}"  # every day, every hour
    pieces = _PIECE.findall(text)
    if (
        not pieces
        or re.sub(r"[\s,]|\band\b", "", _PIECE.sub("", text))
        or any(unit not in _UNITS for _, unit in pieces)
    ):
        raise refused("duration_unknown", given=given)
    seconds = sum(int(number) * _UNITS[unit] for number, unit in pieces)
    if not 0 < seconds <= MAX_INTERVAL.total_seconds():
        raise refused("every_range", given=given)
    return seconds
