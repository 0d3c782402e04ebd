"""Wall-clock times and their instants: time zones and their changes. Pure.

One rule covers both changes of a clock: a time of day is due when the clock first reaches or passes it. A time that is
skipped in spring is due at the change; one that is repeated in autumn is due only the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo


def wall_time(instant: datetime, zone: tzinfo) -> datetime:
    """Return the wall-clock time at an instant, without a zone."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def first_instant(wall: datetime, zone: tzinfo) -> datetime:
    """Return the instant, in UTC, at which the clock of the zone first shows this time or a later one."""
    instant = _at(wall, zone, 0)
    if wall_time(instant, zone) == wall:
        return instant
    # The time is skipped: the clock jumps past it somewhere between these two.
    low, high = sorted((_at(wall, zone, 1), instant))
    while wall_time(low, zone) >= wall:
        low -= timedelta(hours=1)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        if middle <= low:
            break
        if wall_time(middle, zone) >= wall:
            high = middle
        else:
            low = middle
    return high


def find_clock_setback(after: datetime, zone: tzinfo) -> tuple[datetime, datetime, datetime] | None:
    """Find a change within hours of an instant that puts the clock back; None if there is none.

    Return the instant of the change, and the first and last wall-clock time that the clock then shows again.
    """
    if _offset(after - timedelta(hours=4), zone) <= _offset(after + timedelta(hours=4), zone):
        return None  # the usual case
    for start in _hours(after - timedelta(hours=3), after + timedelta(hours=3)):
        end = start + timedelta(hours=1)
        if _offset(end, zone) < _offset(start, zone):
            change = _change(start, end, zone)
            back = _offset(start, zone) - _offset(end, zone)
            begins = wall_time(change, zone)
            if change + back > after:
                return change, begins, begins + back
    return None


def _hours(first: datetime, last: datetime) -> Iterator[datetime]:
    moment = first.replace(minute=0, second=0, microsecond=0)
    while moment < last:
        yield moment
        moment += timedelta(hours=1)


def _change(low: datetime, high: datetime, zone: tzinfo) -> datetime:
    """Return the first second of the new offset, between two instants with different offsets."""
    new = _offset(high, zone)
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) // 2).replace(microsecond=0)
        if _offset(middle, zone) == new:
            high = middle
        else:
            low = middle
    return high


def _offset(instant: datetime, zone: tzinfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()


def _at(wall: datetime, zone: tzinfo, fold: int) -> datetime:
    return wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
