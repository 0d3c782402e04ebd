"""A schedule in words, in the language of the chat. `read_time` reads what `describe_schedule` writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo

from bubbot.texts import Texts
from bubbot.texts.lengths import format_length
from bubbot.times.cron import CronExpression
from bubbot.times.instants import first_instant, wall_time
from bubbot.times.rules import ALL_DAYS, WORKDAYS, Interval, OneTime, OrdinalDay, When

MAX_LISTED_TIMES = 8
"""The most times of day that are listed one by one."""


def describe_schedule(when: When, zone: tzinfo, texts: Texts) -> str:
    """Describe the schedule and its zone."""
    return texts.say("w_in_zone", words=describe_rule(when, zone, texts), zone=str(zone))


def describe_rule(when: When, zone: tzinfo, texts: Texts) -> str:
    """Describe the schedule without its zone."""
    match when:
        case OneTime():
            return texts.say("w_once", moment=format_date_time(when.due_instant(zone), zone, texts))
        case Interval(days=0):
            anchor = format_date_time(when.anchor, zone, texts)
            return texts.say(
                "w_every", length=_length(when.seconds, ("hours", "minutes", "seconds"), texts), anchor=anchor
            )
        case Interval():
            length = _length(when.days * 86400, ("weeks", "days"), texts)
            wall = wall_time(when.anchor, zone)
            if when.anchor != first_instant(wall, zone):  # the second pass of an hour that is repeated
                return texts.say("w_every", length=length, anchor=format_date_time(when.anchor, zone, texts))
            date = format_date(when.anchor, zone, texts)
            return texts.say("w_every_days", length=length, time=_clock(wall), anchor=date)
        case OrdinalDay():
            clocks = _join([f"{moment:%H:%M}" for moment in when.times], texts)
            return texts.say("w_cron", days=_ordinal(when, texts), times=texts.say("w_at", times=clocks), months="")
        case CronExpression():
            return _cron(when, texts)


def format_moment(instant: datetime, zone: tzinfo, texts: Texts) -> str:
    """Format a moment with its day of the week, as the clock of the zone shows it."""
    weekday = texts.say(f"weekday_{wall_time(instant, zone).isoweekday() % 7}")
    return texts.say("w_moment", weekday=weekday, moment=_minute(instant, zone))


def format_date(instant: datetime, zone: tzinfo, texts: Texts) -> str:
    """Format the date of a moment with its day of the week."""
    wall = wall_time(instant, zone)
    weekday = texts.say("w_weekdays_short").split()[wall.isoweekday() % 7]
    month = texts.say("w_months_short").split()[wall.month - 1]
    return texts.say("w_date", weekday=weekday, day=wall.day, month=month, year=wall.year)


def format_date_time(instant: datetime, zone: tzinfo, texts: Texts) -> str:
    """Format a moment with its date; with its offset if the clock shows that time twice."""
    wall = wall_time(instant, zone)
    if first_instant(wall, zone) != instant:
        return instant.astimezone(zone).isoformat(sep=" ")
    return texts.say("w_date_time", date=format_date(instant, zone, texts), time=_clock(wall))


def format_delay(delay: timedelta, texts: Texts) -> str:
    """Format a delay, to the minute."""
    return format_length(int(delay.total_seconds()) // 60 * 60, texts)


def has_one_clock(when: When) -> bool:
    """Return true if the words for a rule name its one time of day, so that its next times need only a date."""
    match when:
        case CronExpression():
            return len(when.hours) * len(when.minutes) == 1
        case OrdinalDay():
            return len(when.times) == 1
        case Interval():
            return when.days > 0
    return False


def _clock(wall: datetime) -> str:
    return wall.strftime("%H:%M:%S" if wall.second else "%H:%M")


def _minute(instant: datetime, zone: tzinfo) -> str:
    wall = wall_time(instant, zone)
    return wall.strftime("%Y-%m-%d %H:%M:%S" if wall.second else "%Y-%m-%d %H:%M")


def _length(seconds: int, units: Sequence[str], texts: Texts) -> str:
    """Format a length of time exactly, in these units only: a day is not always 24 hours."""
    sizes = {"weeks": 604800, "days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}
    parts: list[str] = []
    for unit in units:
        count, seconds = divmod(seconds, sizes[unit])
        if count:
            parts.append(texts.say(f"w_{unit}", count=count).strip())
    return " ".join(parts)


def _ordinal(rule: OrdinalDay, texts: Texts) -> str:
    if rule.weekdays == ALL_DAYS:
        return texts.say("w_last_day")
    name = texts.say("w_weekday" if rule.weekdays == WORKDAYS else f"weekday_{rule.weekdays[0]}")
    return texts.say("w_ordinal_last" if rule.ordinal < 0 else f"w_ordinal_{rule.ordinal}", day=name)


def _cron(cron: CronExpression, texts: Texts) -> str:
    months = ""
    if len(cron.months) < 12:
        months = texts.say("w_months", months=_ranges(cron.months, texts, lambda month: texts.say(f"month_{month}")))
    times, often = _times(cron, texts)
    sentence = "w_cron_often" if often else "w_cron"
    days = _days(cron, texts)
    if often and days == texts.say("w_daily"):
        return texts.say("w_cron", days=times, times="", months=months).replace("  ", " ").strip()
    return " ".join(texts.say(sentence, days=days, times=times, months=months).split(" "))


def _times(cron: CronExpression, texts: Texts) -> tuple[str, bool]:
    """Describe the times of day; return also true if they are rather a pace."""
    minutes, hours = cron.minutes, cron.hours
    if len(hours) * len(minutes) <= MAX_LISTED_TIMES:
        times = [f"{hour:02}:{minute:02}" for hour in hours for minute in minutes]
        return texts.say("w_at", times=_join(times, texts)), False
    if len(minutes) == 60:
        pace = texts.say("w_each_minute")
    elif (step := _step(minutes)) is not None:
        pace = texts.say("w_step", count=step)
    else:
        pace = texts.say("w_minute_list", minutes=_ranges(minutes, texts))
    if len(hours) == 24:
        return texts.say("w_in_each_hour", minutes=pace), True
    return texts.say("w_in_hours", minutes=pace, hours=_ranges(hours, texts)), True


def _step(minutes: Sequence[int]) -> int | None:
    """Return the step of minutes that divide the hour evenly; None if they do not."""
    step = 60 // len(minutes)
    return step if tuple(minutes) == tuple(range(0, 60, step)) and 60 % len(minutes) == 0 and step < 60 else None


def _days(cron: CronExpression, texts: Texts) -> str:
    by_date, by_name = len(cron.days) < 31, len(cron.weekdays) < len(ALL_DAYS)
    dates = ""
    if by_date:
        dates = texts.say("w_dates", days=_ranges(cron.days, texts, lambda day: texts.say("w_month_day", day=day)))
    names = _ranges(cron.weekdays, texts, lambda day: texts.say(f"weekday_{day}")) if by_name else ""
    if by_date and by_name:
        return texts.say("w_either" if cron.matches_either_day else "w_both", dates=dates, days=names)
    if by_date:
        return dates
    if not by_name:
        return texts.say("w_daily")
    return texts.say("w_weekdays") if cron.weekdays == WORKDAYS else texts.say("w_on", days=names)


def _ranges(numbers: Sequence[int], texts: Texts, say_number: Callable[[int], str] = str) -> str:
    """Join numbers or their names, with runs of three and more as ranges."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts: list[str] = []
    for run in runs:
        items = [say_number(number) for number in run]
        parts += [items[0] + texts.say("w_to") + items[-1]] if len(run) > 2 else items
    return _join(parts, texts)


def _join(words: Sequence[str], texts: Texts) -> str:
    if len(words) < 2:
        return "".join(words)
    return texts.say("w_comma").join(words[:-1]) + texts.say("w_and") + words[-1]
