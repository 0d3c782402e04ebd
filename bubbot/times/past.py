"""Days that are over, as people type them: `monday`, `yesterday`, `3 days ago`, `vor zwei Wochen`, 昨天. Pure."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime, time, timedelta, tzinfo

from bubbot.times import english, german
from bubbot.times.instants import wall_time
from bubbot.times.phrases import normalize, parse_duration, read_words, strip_closing
from bubbot.times.reading import ReadingContext
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import OneTime

_DAYS_AGO = {
    **dict.fromkeys(("today", "heute", "今天", "今日"), 0),
    **dict.fromkeys(("the day before yesterday", "vorgestern", "前天"), 2),
    **dict.fromkeys(("yesterday", "gestern", "昨天", "昨日"), 1),
}
_AGO = re.compile(r"(?:(?P<english>.+) ago|vor (?P<german>.+)|(?P<chinese>.+?)[之以]?前)")
_LAST = re.compile(r"^(?:(?:last|this|on|letzte[nr]?|am)\s+|上个?|这个?)")
_COMING = re.compile(r"next|nächst|下")
_LOOKED_BACK = (timedelta(days=7), timedelta(days=366))
"""How long ago a day is looked for that has a name of its week or its year."""
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


def read_past_day(source: str, now: datetime, zone: tzinfo) -> date | None:
    """Return the newest day that a text can mean and that is not in the future; None if it means none."""
    text = strip_closing(normalize(" ".join(source.split())))
    today = wall_time(now, zone).date()
    if text in _DAYS_AGO:
        return today - timedelta(days=_DAYS_AGO[text])
    if match := _AGO.fullmatch(text):
        with suppress(TimeRefused):
            seconds = parse_duration(match["english"] or match["german"] or match["chinese"])
            return wall_time(now - timedelta(seconds=seconds), zone).date()
    if _COMING.search(text):
        return None
    if year := _YEAR.search(text):
        day = _read_day(text, datetime(int(year.group()), 1, 1, tzinfo=zone) - timedelta(days=1), zone)
        return day if day is not None and day <= today else None
    for before in _LOOKED_BACK:
        day, of_next_day = (_read_day(text, now - before + shift, zone) for shift in (timedelta(), timedelta(days=1)))
        # What moves along with the day on which it is said, such as `in 3 days`, names no day.
        if day is not None and day <= today and (of_next_day is None or of_next_day - day != timedelta(days=1)):
            return day
    return None


def _read_day(text: str, now: datetime, zone: tzinfo) -> date | None:
    """Return the first day after an instant that a text means; None if it means none."""
    with suppress(TimeRefused):
        when = read_words(_LAST.sub("", text, count=1), ReadingContext(now, zone, time())).when
        if isinstance(when, OneTime):
            return wall_time(when.due_instant(zone), zone).date()
    return None


_WEEKDAY = rf"(?:{english.FULL_WEEKDAY}|{german.WEEKDAY}\b)"
_CHINESE_WEEKDAY = r"(?:周|星期|礼拜)[一二三四五六日天]"
_MONTH = rf"(?:{english.MONTH}|{german.spell_umlauts(german.MONTH)})"
_COUNT = r"(?:\d{1,3}|an?|one|two|three|four|five|six|ein(?:em|er)?|zwei|drei|vier|fünf|sechs)"
_NAMED_DAYS = "|".join(rf"\b{name}\b" if name.isascii() else name for name, days in _DAYS_AGO.items() if days)
_MENTIONED = re.compile(
    rf"""
    (?P<past>
        {_NAMED_DAYS.replace(" ", "[ ]")}
        | \b(?:last|letzten)\s+{_WEEKDAY} | 上个?{_CHINESE_WEEKDAY}
        | \b{_COUNT}\s+(?:days?|weeks?)\s+ago\b | \bvor\s+{_COUNT}\s+(?:tagen?|wochen?)\b
        | [\d一二两三四五六七八九十]{{1,3}}天[之以]?前
        | \b\d{{4}}-\d\d-\d\d\b
    )
    | (?P<week>\b(?:last\s+week|letzte[rn]?\s+woche)\b | 上个?(?:周|星期|礼拜))
    | (?P<weekday>\b{_WEEKDAY} | {_CHINESE_WEEKDAY})
    | (?P<date>
        \b{_MONTH}\s*\d{{1,2}}(?:st|nd|rd|th)?(?!\d)(?:,?\s+\d{{4}}\b)?
        | \b\d{{1,2}}(?:st|nd|rd|th|\.)?\s*(?:of\s+)?{_MONTH}(?:\s+\d{{4}}\b)?
        | (?:\d{{4}}年)?\d{{1,2}}月\d{{1,2}}[日号]
    )
    """,
    re.VERBOSE,
)
_WEEK = timedelta(days=7)
_MAX_DAYS_AGO = {"weekday": 3, "date": 305}
"""How long ago a name can mean a day: of more, the next one is what people speak of, in half a week or in two months."""
_MAX_MENTIONS, _MAX_CHARS = 4, 2_000


def find_past_days(source: str, now: datetime, zone: tzinfo) -> list[tuple[date, date]]:
    """Find the days and weeks that a text speaks of and that are over, in its order: the first and the last day of each.

    What can mean a day that comes as well, such as `monday` and `May 4`, is left out if that one comes soon.
    """
    today = wall_time(now, zone).date()
    days = dict[tuple[date, date], None]()  # in order, each once
    for match in _MENTIONED.finditer(normalize(source[:_MAX_CHARS])):
        mention, name = match.group().strip(), match.lastgroup or ""
        if name == "week":
            monday = today - timedelta(days=today.weekday()) - _WEEK
            days[monday, monday + timedelta(days=6)] = None
        elif day := _read_mention(mention, now, zone):
            most = None if _YEAR.search(mention) else _MAX_DAYS_AGO.get(name)
            if most is None or today - day <= timedelta(days=most):
                days[day, day] = None
        if len(days) == _MAX_MENTIONS:
            break
    return [*days]


def _read_mention(text: str, now: datetime, zone: tzinfo) -> date | None:
    with suppress(ValueError):
        day = date.fromisoformat(text)
        return day if day <= wall_time(now, zone).date() else None
    return read_past_day(text, now, zone)
