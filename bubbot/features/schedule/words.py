"""A schedule in words, in the language of the chat."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

from bubbot.features.schedule.clock import wall_time
from bubbot.features.schedule.cron import CronExpression
from bubbot.features.schedule.when import Interval, OneTime, When
from bubbot.texts import Texts
from bubbot.texts.lengths import format_length

MAX_LISTED_TIMES = 8
"""The most times of day that are listed one by one."""
_ALL_DAYS, _WORKDAYS = 7, (1, 2, 3, 4, 5)


def describe_schedule(when: When, zone: tzinfo, texts: Texts) -> str:
    """Describe the schedule and its zone."""
    if isinstance(when, OneTime):
        text = texts.say("w_once", moment=format_moment(when.due_instant(zone), zone, texts))
    elif isinstance(when, Interval):
        length = format_length(when.seconds or when.days * 86400, texts)
        text = texts.say("w_every", length=length.strip(), anchor=_minute(when.anchor, zone))
    else:
        text = _cron(when, texts)
    return texts.say("w_in_zone", words=text, zone=str(zone))


def format_moment(instant: datetime, zone: tzinfo, texts: Texts) -> str:
    """Format a moment with its day of the week, as the clock of the zone shows it."""
    weekday = texts.say(f"weekday_{wall_time(instant, zone).isoweekday() % 7}")
    return texts.say("w_moment", weekday=weekday, moment=_minute(instant, zone))


def format_delay(delay: timedelta, texts: Texts) -> str:
    """Format a delay, to the minute."""
    return format_length(int(delay.total_seconds()) // 60 * 60, texts)


def _minute(instant: datetime, zone: tzinfo) -> str:
    wall = wall_time(instant, zone)
    return wall.strftime("%Y-%m-%d %H:%M:%S" if wall.second else "%Y-%m-%d %H:%M")


def _cron(cron: CronExpression, texts: Texts) -> str:
    months = ""
    if len(cron.months) < 12:
        months = texts.say("w_months", months=_ranges(cron.months, texts, "month_"))
    times, often = _times(cron, texts)
    sentence = "w_cron_often" if often else "w_cron"
    days = _days(cron, texts)
    if often and days == texts.say("w_daily") and not months:
        return times
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
        pace = ""
    if len(hours) == 24:
        return pace or texts.say("w_each_hour", minutes=_ranges(minutes, texts)), True
    within = pace or texts.say("w_minute_list", minutes=_ranges(minutes, texts))
    return texts.say("w_in_hours", minutes=within, hours=_ranges(hours, texts)), True


def _step(minutes: Sequence[int]) -> int | None:
    """Return the step of minutes that divide the hour evenly; None if they do not."""
    step = 60 // len(minutes)
    return step if tuple(minutes) == tuple(range(0, 60, step)) and 60 % len(minutes) == 0 and step < 60 else None


def _days(cron: CronExpression, texts: Texts) -> str:
    by_date, by_name = len(cron.days) < 31, len(cron.weekdays) < _ALL_DAYS
    dates = texts.say("w_dates", days=_ranges(cron.days, texts)) if by_date else ""
    names = _ranges(cron.weekdays, texts, "weekday_") if by_name else ""
    if by_date and by_name:
        return texts.say("w_either" if cron.matches_either_day else "w_both", dates=dates, days=names)
    if by_date:
        return dates
    if not by_name:
        return texts.say("w_daily")
    return texts.say("w_weekdays") if cron.weekdays == _WORKDAYS else texts.say("w_on", days=names)


def _ranges(numbers: Sequence[int], texts: Texts, names: str = "") -> str:
    """Join numbers or their names, with runs of three and more as ranges."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts: list[str] = []
    for run in runs:
        items = [texts.say(f"{names}{number}") if names else str(number) for number in run]
        parts += [items[0] + texts.say("w_to") + items[-1]] if len(run) > 2 else items
    return _join(parts, texts)


def _join(words: Sequence[str], texts: Texts) -> str:
    if len(words) < 2:
        return "".join(words)
    return texts.say("w_comma").join(words[:-1]) + texts.say("w_and") + words[-1]
