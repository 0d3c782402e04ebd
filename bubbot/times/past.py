"""Days that are over, as people type them: `monday`, `yesterday`, `3 days ago`, `vor zwei Wochen`, 昨天. Pure."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime, time, timedelta, tzinfo

from bubbot.times.instants import wall_time
from bubbot.times.phrases import normalize, parse_duration, read_words, strip_closing
from bubbot.times.reading import ReadingContext
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import OneTime

_DAYS_AGO = {
    **dict.fromkeys(("today", "heute", "今天", "今日"), 0),
    **dict.fromkeys(("yesterday", "gestern", "昨天", "昨日"), 1),
    **dict.fromkeys(("the day before yesterday", "vorgestern", "前天"), 2),
}
_AGO = re.compile(r"(?:(?P<english>.+) ago|vor (?P<german>.+)|(?P<chinese>.+?)[之以]?前)")
_LAST = re.compile(r"^(?:(?:last|this|on|letzte[nr]?|am)\s+|上个?|这个?)")
_COMING = re.compile(r"next|nächst|下")
_LOOKED_BACK = (timedelta(days=7), timedelta(days=366))
"""How long ago a day is looked for that has a name of its week or its year."""


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
