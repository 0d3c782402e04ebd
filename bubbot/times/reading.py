"""What the words of a time amount to, and the rule that they mean at a moment. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta, tzinfo
from itertools import product

from msgspec import Struct, structs

from bubbot.times.clocks import DEFAULT_TIME, Clock, ClockTime, default_reading
from bubbot.times.cron import CronExpression, parse_cron
from bubbot.times.instants import first_instant, wall_time
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import (
    ALL_DAYS,
    MAX_INTERVAL,
    MAX_YEAR,
    Interval,
    OneTime,
    OrdinalDay,
    When,
    interval,
    one_time,
    ordinal_date,
    ordinal_day,
    wall_rule,
)
from bubbot.times.zones import SpokenZone

RECENT_DATE = timedelta(days=60)
"""A date without a year that passed within these days is refused: it is rather a mistake than one of next year."""
LAST_SAFE_DAY = 28
"""The last day that every month has."""


class TimeReading(Struct, frozen=True):
    """A time that was understood.

    Attributes:
        when: the rule that was taken.
        others: rules that the words can mean, too.
        zone: the zone that was said with a repetition: it is due in this zone; empty if none was.
    """

    when: When
    others: tuple[When, ...] = ()
    zone: str = ""


class TimedRequest(Struct, frozen=True):
    """What was asked for.

    Attributes:
        reading: when.
        text: what is to happen; empty if only a time was typed.
    """

    reading: TimeReading
    text: str


class ReadingContext(Struct, frozen=True):
    """What the words refer to.

    Attributes:
        now: the current time.
        zone: the zone in which times are read.
        default_time: the time of day of a date that names none.
        current: the rule that is changed: a mere time of day keeps its days.
        calendar: the zone whose date is today; None: `zone`.
    """

    now: datetime
    zone: tzinfo
    default_time: time = DEFAULT_TIME
    current: When | None = None
    calendar: tzinfo | None = None

    @property
    def today(self) -> date:
        """The date today."""
        return wall_time(self.now, self.calendar or self.zone).date()


class Span(Struct, frozen=True):
    """A length of time in units of the calendar and of the clock."""

    months: int = 0
    days: int = 0
    seconds: int = 0

    @property
    def is_zero(self) -> bool:
        """True if nothing lies between."""
        return not (self.months or self.days or self.seconds)


class Repetition(Struct, frozen=True):
    """How often something comes.

    Attributes:
        span: the time between; None for days that have a name.
        weekdays: days of the week, from Sunday 0.
        month_days: days of the month.
        months: months of the year.
        ordinal: which of the `weekdays` of a month, -1 for the last; 0: all.
        minutes: the minutes of the hours that are named.
        hours: the hours that are named.
        needs_both: a day must be one of `month_days` and of `weekdays`.
        others: what the words can mean, too.
        is_open: nothing says that it repeats; the first time alone can be meant, too.
    """

    span: Span | None = None
    weekdays: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    months: tuple[int, ...] = ()
    ordinal: int = 0
    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    needs_both: bool = False
    others: tuple[Repetition, ...] = ()
    is_open: bool = False

    def cron(self, minutes: Sequence[int], hours: Sequence[int]) -> CronExpression:
        """Return the cron expression that comes at these minutes of these hours."""
        days, weekdays = _cron_field(self.month_days, 31), _cron_field(self.weekdays, 7)
        if self.needs_both:  # a field that begins with a star leaves the decision to the other, too
            starred = "*/31," if self.month_days[0] == 1 else ""
            days = f"{starred}{days}"
            weekdays = weekdays if starred else f"*/7,{weekdays}"
        months = _cron_field(self.months, 12)
        return parse_cron(f"{_cron_field(minutes, 60)} {_cron_field(hours, 24)} {days} {months} {weekdays}")


@dataclass(slots=True)
class TimeWords:
    """The words of a time, as they are read one after the other.

    Attributes:
        clocks: times of day.
        part: a part of the day.
        days: days from today on.
        weekday: a day of the week.
        week: weeks from this one on, from Monday; None: no week was named.
        is_next_weekday: the word next before a day of the week, which people understand in two ways.
        is_counted_weekday: the day of the week is counted from tomorrow on.
        year: a year.
        month: a month.
        day: a day of the month.
        is_order_open: `month` and `day` may stand for each other.
        ordinal: which of the `counted` days of the month, -1 for the last; 0: none.
        counted: days of the week that count for `ordinal`.
        month_offset: months from this one on.
        year_offset: years from this one on.
        is_weekend: the weekend.
        instant: a date and a time with their offset from UTC.
        span: a time from now.
        shift: a time after the date, as in `2 days after tomorrow`.
        zone: the zone by whose clock it is.
        every: a repetition.
        has_start: the date is that of the first time of a repetition.
        is_over: words for a time that has passed.
        is_vague: words that name no time, such as soon.
        is_iso: a date written as 2026-12-24, whose clock has 24 hours.
    """

    clocks: list[Clock] = field(default_factory=list)
    part: str = ""
    days: int | None = None
    weekday: int | None = None
    week: int | None = None
    is_next_weekday: bool = False
    is_counted_weekday: bool = False
    year: int | None = None
    month: int | None = None
    day: int | None = None
    is_order_open: bool = False
    ordinal: int = 0
    counted: tuple[int, ...] = ()
    month_offset: int | None = None
    year_offset: int | None = None
    is_weekend: bool = False
    instant: datetime | None = None
    span: Span | None = None
    shift: Span | None = None
    zone: SpokenZone | None = None
    every: Repetition | None = None
    has_start: bool = False
    is_over: bool = False
    is_vague: bool = False
    is_iso: bool = False

    @property
    def has_date(self) -> bool:
        """True if a date was said."""
        named = (self.days, self.weekday, self.week, self.day, self.month_offset, self.year_offset, self.instant)
        return bool(self.ordinal) or self.is_weekend or any(value is not None for value in named)

    @property
    def is_whole_unit(self) -> bool:
        """True if a week, a month or a year was said, but no day of it: it may begin then, or be meant from today on."""
        is_named = self.week is not None or self.month_offset is not None or self.year_offset is not None
        return is_named and not (self.ordinal or self.is_weekend or self.weekday is not None or self.day is not None)

    @property
    def has_anchor(self) -> bool:
        """True if there is something that a bare number can be the hour of."""
        return self.has_date or self.every is not None or bool(self.part) or self.span is not None

    @property
    def is_time(self) -> bool:
        """True if these words name a time at all."""
        return bool(self.clocks) or self.has_anchor or self.is_over or self.is_vague

    @property
    def is_clock_only(self) -> bool:
        """True if nothing but a time of day was said."""
        return bool(self.clocks) and not (self.has_date or self.every or self.span or self.is_over or self.is_vague)

    def readings_of(self, clock: Clock) -> list[ClockTime]:
        """Return the times that a clock can mean with these words. Raise `TimeRefused` if there is none."""
        readings = clock.readings(self.part)
        if not self.is_iso:
            return readings
        return [reading for reading in readings if reading.time.hour == clock.hour] or readings[:1]

    def read(self, source: str, context: ReadingContext) -> TimeReading:
        """Return the rule that the words mean now. Raise `TimeRefused` if they mean none, or too many."""
        if self.is_vague:
            raise TimeRefused("when_vague", given=source)
        if self.is_over:
            raise TimeRefused("when_over", given=source)
        if self.zone is None or self.zone.zone is None or str(self.zone.zone) == str(context.zone):
            return self._read(source, context)
        current = context.current
        if isinstance(current, OneTime):
            current = one_time(current.due_instant(context.zone), source)
        calendar = None if self.is_clock_only else context.zone
        there = structs.replace(context, zone=self.zone.zone, current=current, calendar=calendar)
        reading = self._read(source, there)
        if not isinstance(reading.when, OneTime):
            if not self.zone.name:
                raise TimeRefused("zone_offset", given=source)
            return structs.replace(reading, zone=self.zone.name)
        first, *others = _instants(reading, there, source)
        if self.zone.literal is not None:
            by_letter = structs.replace(there, zone=self.zone.literal)
            others = [*_instants(self._read(source, by_letter), by_letter, source)[:1], *others]
        return TimeReading(first, tuple(dict.fromkeys(other for other in others if other != first))[:2])

    def _read(self, source: str, context: ReadingContext) -> TimeReading:
        try:
            if self.every is not None:
                return _RepeatedTime(self, source, context).read(self.every)
            if self.is_clock_only and context.current is not None:
                changed = _RepeatedTime(self, source, context).change_clock(context.current)
                if changed is not None:
                    return changed
            return _SingleTime(self, source, context).read()
        except (OverflowError, ValueError):
            raise TimeRefused("when_far", given=source) from None


def _instants(reading: TimeReading, context: ReadingContext, source: str) -> list[OneTime]:
    """Return the readings of a single time as instants, which are the same in every zone."""
    rules = (reading.when, *reading.others)
    return [one_time(rule.due_instant(context.zone), source) for rule in rules if isinstance(rule, OneTime)]


class _SingleTime(Struct, frozen=True):
    """A time that comes once."""

    words: TimeWords
    source: str
    context: ReadingContext

    def read(self) -> TimeReading:
        words, context = self.words, self.context
        if len(words.clocks) > 1:
            raise TimeRefused("when_two_clocks", given=self.source)
        if words.instant is not None:
            return TimeReading(self._checked(one_time(words.instant, self.source)))
        if words.span is not None and not (words.clocks or words.part):
            return TimeReading(one_time(self._after(words.span), self.source))
        days = self._days()
        if not words.clocks:
            reading = default_reading(words.part, context.default_time)
            moments = [datetime.combine(day, time()) + reading.offset for day in days]
            return self._reading(moments, moments)
        readings = words.readings_of(words.clocks[0])
        if words.clocks[0].is_midnight and (words.has_date or words.span is not None):
            raise TimeRefused("clock_midnight", given=self.source)
        moments = [datetime.combine(day, time()) + reading.offset for day in days for reading in readings]
        likely = [datetime.combine(day, time()) + reading.offset for day in days for reading in readings
                  if len(readings) == 1 or reading.is_likely]  # fmt: skip
        return self._reading(likely, moments)

    def _reading(self, likely: Sequence[datetime], moments: Sequence[datetime]) -> TimeReading:
        """Take the first of the likely moments that is still to come; the others that can be meant are offered."""
        words, context = self.words, self.context
        future = [wall for wall in sorted(likely) if first_instant(wall, context.zone) > context.now]
        rest = [wall for wall in sorted(set(moments)) if first_instant(wall, context.zone) > context.now]
        if not future and not rest:
            raise self._over(wall_rule(max(moments), self.source))
        taken = (future or rest)[0]
        passed = [wall for wall in sorted(moments) if wall not in rest]
        if words.month is not None and words.year is None and passed and not self._is_far(passed[-1]):
            raise self._over(wall_rule(passed[-1], self.source))
        others = [wall for wall in rest if wall != taken and self._competes(wall, taken)]
        if words.is_clock_only and len({wall.time() for wall in moments}) > 1:
            others = [wall for wall in rest if wall.time() != taken.time()][:1]
        return TimeReading(wall_rule(taken, self.source), tuple(wall_rule(wall, self.source) for wall in others[:2]))

    def _is_far(self, wall: datetime) -> bool:
        """Return true if a date without a year passed so long ago that the one of next year must be meant."""
        return self.context.today - wall.date() > RECENT_DATE

    def _competes(self, wall: datetime, taken: datetime) -> bool:
        """Return true if the words can mean this moment, too, and not only a later repetition of their date."""
        words = self.words
        if wall.date() == taken.date():
            return True
        if words.is_next_weekday or words.is_weekend or words.is_whole_unit:
            return wall.time() == taken.time()
        is_today = words.weekday is not None and taken.date() == self.context.today
        return is_today and words.week is None and words.day is None and wall.time() == taken.time()

    def _days(self) -> list[date]:
        """Return the dates that can be meant, soonest first. Raise `TimeRefused`."""
        shift = self.words.shift or Span()
        return [_add_months(day, shift.months) + timedelta(days=shift.days) for day in self._said_days()]

    def _said_days(self) -> list[date]:
        words, today = self.words, self.context.today
        if words.span is not None:
            if words.span.seconds or words.span.is_zero:
                raise TimeRefused("when_two_clocks", given=self.source)
            return [_add_months(today, words.span.months) + timedelta(days=words.span.days)]
        if words.day is not None or words.ordinal or words.month_offset is not None or words.year_offset is not None:
            return self._calendar_days()
        if words.days is not None:
            days = [today + timedelta(days=words.days)]
        elif words.weekday is not None:
            days = self._weekdays(words.weekday)
        elif words.week is not None:
            monday = today - timedelta(days=today.weekday()) + timedelta(weeks=words.week)
            if words.is_weekend:
                days = [monday + timedelta(days=5), monday + timedelta(days=6)]
            else:
                days = [monday, today + timedelta(weeks=words.week)] if words.week else [monday]
        elif words.is_weekend:
            saturday = today + timedelta(days=(5 - today.weekday()) % 7)
            days = [today] if today.weekday() == 6 else [saturday, saturday + timedelta(days=1)]
        elif words.shift is not None:
            raise TimeRefused("when_start", given=self.source)
        else:
            days = [today, today + timedelta(days=1), today + timedelta(days=2)]
        if words.weekday is not None and any(day.isoweekday() % 7 != words.weekday for day in days):
            raise TimeRefused("date_weekday", given=self.source)
        return days

    def _weekdays(self, weekday: int) -> list[date]:
        words, today = self.words, self.context.today
        ahead = (weekday - today.isoweekday()) % 7
        if words.week is not None:
            monday = today - timedelta(days=today.weekday())
            return [monday + timedelta(weeks=words.week, days=(weekday - 1) % 7)]
        soonest = today + timedelta(days=ahead)
        if words.is_counted_weekday:
            return [soonest + timedelta(days=7 * (ahead == 0))]
        if not words.is_next_weekday:
            return [soonest, soonest + timedelta(days=7)]
        soonest += timedelta(days=7 * (ahead == 0))
        in_this_week = soonest.isocalendar().week == today.isocalendar().week
        return [soonest, soonest + timedelta(days=7)] if in_this_week else [soonest]

    def _calendar_days(self) -> list[date]:
        """Return the dates of days of the month, or of months and years from now on."""
        words, today = self.words, self.context.today
        if words.is_order_open:
            return self._days_in_either_order()
        if words.is_whole_unit:
            count = words.month_offset if words.month_offset is not None else 12 * (words.year_offset or 0)
            later = _add_months(today, count)
            return [later.replace(day=1) if words.month_offset is not None else date(later.year, 1, 1), later]
        first = today.replace(day=1)
        if words.year is not None or words.year_offset is not None:
            year = words.year if words.year is not None else today.year + (words.year_offset or 0)
            months = [date(year, words.month or 1, 1)]
        elif words.month is not None:
            months = [date(today.year + years, words.month, 1) for years in range(9)]
        elif words.month_offset is not None:
            months = [_add_months(first, words.month_offset)]
        else:
            months = [_add_months(first, offset) for offset in range(13)]
        if words.ordinal:
            found = (ordinal_date(month, words.ordinal, words.counted) for month in months)
        else:
            found = (_day_of(month, words.day or 1) for month in months)
        days = [day for day in found if day is not None]
        if not days:
            raise TimeRefused("date_unknown", given=self.source)
        if words.weekday is not None:
            if words.month is not None:
                days = next(([day] for day in days if day >= today), days[:1])
            days = [day for day in days if day.isoweekday() % 7 == words.weekday]
            if not days:
                raise TimeRefused("date_weekday", given=self.source)
        return days

    def _days_in_either_order(self) -> list[date]:
        """Return the dates of a day and a month in the order that the day of the week allows. Raise `TimeRefused`."""
        words = replace(self.words, is_order_open=False)
        orders = words, replace(words, month=words.day, day=words.month)
        found: list[list[date]] = []
        for one in orders if words.weekday is not None else ():
            with suppress(TimeRefused):
                found.append(structs.replace(self, words=one)._calendar_days())  # noqa: SLF001 - of this module
        if len(found) != 1:
            first, second = (self._iso(one.month or 0, one.day or 0) for one in orders)
            raise TimeRefused("date_order", given=self.source, first=first, second=second)
        return found[0]

    def _iso(self, month: int, day: int) -> str:
        """Return a date, the next one if no year was said."""
        today = self.context.today
        year = self.words.year or today.year + ((month, day) < (today.month, today.day))
        return f"{year}-{month:02}-{day:02}"

    def _after(self, span: Span) -> datetime:
        """Return the instant this long after now: months and days by the calendar, the rest as time that passes."""
        now, zone = self.context.now, self.context.zone
        if span.is_zero:
            raise TimeRefused("when_zero", given=self.source)
        wall = wall_time(now, zone)
        day = _add_months(wall.date(), span.months) + timedelta(days=span.days)
        if day - wall.date() + timedelta(seconds=span.seconds) > MAX_INTERVAL:
            raise TimeRefused("when_far", given=self.source)
        if not (span.days or span.months):
            return now + timedelta(seconds=span.seconds)
        return first_instant(datetime.combine(day, wall.time()), zone) + timedelta(seconds=span.seconds)

    def _checked(self, rule: OneTime) -> OneTime:
        if rule.due_instant(self.context.zone) <= self.context.now:
            raise self._over(rule)
        return rule

    def _over(self, rule: OneTime) -> Exception:
        moment = wall_time(rule.due_instant(self.context.zone), self.context.zone)
        return TimeRefused("at_past", given=self.source, instant=f"{moment:%Y-%m-%d %H:%M}")


class _RepeatedTime(Struct, frozen=True):
    """A time that comes again and again."""

    words: TimeWords
    source: str
    context: ReadingContext

    def read(self, every: Repetition) -> TimeReading:
        words = self.words
        if words.span is not None or words.shift is not None or (words.has_date and not words.has_start):
            raise TimeRefused("when_start", given=self.source)
        readings = self._times()
        rules = [self._rule(one, times) for one in (every, *every.others) for times in readings]
        others = rules[1:]
        if every.is_open and (first := rules[0].next_after(self.context.now, self.context.zone)) is not None:
            others.append(wall_rule(wall_time(first, self.context.zone), self.source))
        return TimeReading(rules[0], tuple(others))

    def change_clock(self, current: When) -> TimeReading | None:
        """Return the current rule at another time of day; None if it has none."""
        rules: list[When] = []
        for times in self._times():
            match current:
                case CronExpression() if not current.is_every_hour:
                    fields = current.text.split()
                    days = fields[2:] if len(fields) == 5 else _fields_of(current)
                    minutes, hours = _minutes_and_hours(times, self.source)
                    rules.append(parse_cron(" ".join([_cron_field(minutes, 60), _cron_field(hours, 24), *days])))
                case OrdinalDay():
                    rules.append(ordinal_day(current.ordinal, current.weekdays, [one.time for one in times]))
                case Interval(days=days) if days:
                    rules.append(
                        interval(self._instant(wall_time(current.anchor, self.context.zone), times), days=days)
                    )
                case OneTime():
                    wall = wall_time(current.due_instant(self.context.zone), self.context.zone)
                    if (moment := self._instant(wall, times)) > self.context.now:
                        rules.append(wall_rule(wall_time(moment, self.context.zone), self.source))
        return TimeReading(rules[0], tuple(rules[1:])) if rules else None

    def _instant(self, wall: datetime, times: Sequence[ClockTime]) -> datetime:
        if len(times) != 1:
            raise TimeRefused("when_two_clocks", given=self.source)
        return first_instant(datetime.combine(wall.date(), time()) + times[0].offset, self.context.zone)

    def _times(self) -> list[list[ClockTime]]:
        """Return the times of day: those that are taken, and what else one ambiguous clock can mean."""
        words = self.words
        if not words.clocks:
            return [[default_reading(words.part, self.context.default_time)]]
        readings = [words.readings_of(clock) for clock in words.clocks]
        taken = [next((one for one in choices if one.is_likely), choices[0]) for choices in readings]
        if len(readings) > 1:
            return [taken]
        return [taken, *([one] for one in readings[0] if one not in taken)]

    def _rule(self, every: Repetition, times: Sequence[ClockTime]) -> When:
        words, context = self.words, self.context
        if every.span is not None and every.span.seconds:
            if words.part or (words.clocks and not words.has_start) or every.months:
                raise TimeRefused("when_start", given=self.source)
            if every.span.days or every.span.months:
                raise TimeRefused("every_range", given=self.source)
            return interval(self._start(times) or context.now, seconds=every.span.seconds)
        if every.minutes or every.hours:
            if words.clocks or words.part or words.has_start:
                raise TimeRefused("when_two_clocks", given=self.source)
            return every.cron(every.minutes or (0,), every.hours or range(24))
        if any(one.days for one in times):  # midnight at the end of a day is the beginning of the next one
            if every.weekdays or every.month_days or every.ordinal or words.has_start:
                raise TimeRefused("clock_midnight", given=self.source)
            times = [structs.replace(one, days=0) for one in times]
        if words.clocks and words.clocks[0].is_midnight and (every.weekdays or every.month_days or every.ordinal):
            raise TimeRefused("clock_midnight", given=self.source)
        return self._by_day(every, times)

    def _by_day(self, every: Repetition, times: Sequence[ClockTime]) -> When:
        words, context, span = self.words, self.context, every.span
        if every.ordinal:
            if every.months or words.has_start:
                raise TimeRefused("when_start", given=self.source)
            return ordinal_day(every.ordinal, every.weekdays or ALL_DAYS, [one.time for one in times])
        if span is not None and span.is_zero:
            raise TimeRefused("when_zero", given=self.source)
        if span is not None and span.months:
            every, span = self._by_month(every, span), None
        if span is not None and (span.days > 1 or words.has_start):
            if every.months:
                raise TimeRefused("when_start", given=self.source)
            if span.days == 7 and not every.weekdays and not words.has_start:
                every, span = structs.replace(every, weekdays=(context.today.isoweekday() % 7,)), None
            else:
                return interval(self._first(every, times), days=span.days)
        if words.has_start:
            if len(every.weekdays) != 1 or every.month_days or every.months:
                raise TimeRefused("when_start", given=self.source)
            return interval(self._first(every, times), days=7)
        minutes, hours = _minutes_and_hours(times, self.source)
        return every.cron(minutes, hours)

    def _by_month(self, every: Repetition, span: Span) -> Repetition:
        """Return a number of months as days of months, from today's on."""
        today, count = self.context.today, span.months
        if span.days or 12 % count or self.words.has_start or every.months:
            raise TimeRefused("when_months", given=self.source)
        if today.day > LAST_SAFE_DAY and not every.month_days:
            raise TimeRefused("when_month_day", given=self.source)
        months = tuple(sorted((today.month - 1 + offset) % 12 + 1 for offset in range(0, 12, count)))
        return structs.replace(
            every, span=None, month_days=every.month_days or (today.day,), months=months if count > 1 else ()
        )

    def _first(self, every: Repetition, times: Sequence[ClockTime]) -> datetime:
        """Return the instant from which a repetition by days is counted."""
        if (start := self._start(times)) is not None:
            if not every.weekdays:
                return start
            wall = wall_time(start, self.context.zone)
            days = next(days for days in range(7) if (wall + timedelta(days=days)).isoweekday() % 7 in every.weekdays)
            return first_instant(wall + timedelta(days=days), self.context.zone)
        wall = datetime.combine(self.context.today, time())
        if not every.weekdays:
            return self._instant(wall, times)
        for days in range(8):
            day = wall + timedelta(days=days)
            if day.isoweekday() % 7 in every.weekdays and self._instant(day, times) > self.context.now:
                return self._instant(day, times)
        raise AssertionError  # a week has every day

    def _start(self, times: Sequence[ClockTime]) -> datetime | None:
        """Return the instant that was said for the first time."""
        if not self.words.has_start:
            return None
        if self.words.instant is not None:
            return self.words.instant
        single = _SingleTime(replace(self.words, every=None, part="", clocks=[]), self.source, self.context)
        days = single._days()  # noqa: SLF001 - of this module
        moments = [self._instant(datetime.combine(day, time()), times) for day in days]
        return next((moment for moment in moments if moment > self.context.now), moments[0])


def _minutes_and_hours(times: Sequence[ClockTime], source: str) -> tuple[list[int], list[int]]:
    """Return the cron fields of times of day. Raise `TimeRefused` if one expression cannot name them all."""
    moments = {(one.time.hour, one.time.minute) for one in times}
    hours, minutes = sorted({hour for hour, _ in moments}), sorted({minute for _, minute in moments})
    if moments != set(product(hours, minutes)):
        raise TimeRefused("when_clocks_differ", given=source)
    if any(one.time.second for one in times):
        raise TimeRefused("clock_seconds", given=source)
    return minutes, hours


def _cron_field(numbers: Sequence[int], count: int) -> str:
    """Format the numbers of a cron field; all or none of them are a star."""
    if not numbers or len(numbers) == count:
        return "*"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(str(number) for number in numbers)


def _fields_of(cron: CronExpression) -> Iterator[str]:
    """Return the fields of the days of an expression that was written as a nickname."""
    yield _cron_field(cron.days, 31)
    yield _cron_field(cron.months, 12)
    yield _cron_field(cron.weekdays, 7)


def _add_months(day: date, months: int) -> date:
    """Return the same day so many months later, or the last one of that month."""
    years, month = divmod(day.month - 1 + months, 12)
    if day.year + years > MAX_YEAR:
        raise OverflowError
    first = day.replace(year=day.year + years, month=month + 1, day=1)
    last = (first + timedelta(days=32)).replace(day=1) - timedelta(days=1)
    return first.replace(day=min(day.day, last.day))


def _day_of(first: date, day: int) -> date | None:
    """Return this day of the month that begins with `first`; None if there is none."""
    try:
        return first.replace(day=day)
    except ValueError:
        return None
