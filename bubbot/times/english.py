"""Times in English: the phrases of which one is made, and what each of them says. Pure.

The patterns are matched against text in lower case, one after the other from where the last one ended; a phrase that
cannot stand there is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct, structs

from bubbot.times.clocks import Clock
from bubbot.times.reading import Repetition, Span, TimeWords
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import ALL_DAYS, WORKDAYS

Read: TypeAlias = Callable[[TimeWords, "re.Match[str]"], bool]
"""Add what a phrase says; return false, with nothing changed, if it cannot stand here."""


class Phrase(Struct, frozen=True):
    """A pattern, and what it says."""

    pattern: re.Pattern[str]
    read: Read


_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_TO_NINTH = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_ORDINALS = (
    *_TO_NINTH, "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth",
    "eighteenth", "nineteenth", "twentieth", *(f"twenty-{name}" for name in _TO_NINTH), "thirtieth", "thirty-first",
)  # fmt: skip
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_END = r"(?![\w])"
_NO_LETTER = r"(?![a-z_])"
_ONE = rf"(?:{'|'.join(sorted(_ONES, key=len, reverse=True))})"
_WORD_NUMBER = rf"(?:(?:{'|'.join(_TENS)})(?:[ -](?:one|two|three|four|five|six|seven|eight|nine))?|{_ONE}){_END}"
_NUMBER = rf"(?:\d{{1,6}}(?:\.\d{{1,2}})?|{_WORD_NUMBER})"
_DIGIT_ORDINAL = rf"\d{{1,2}}(?:st|nd|rd|th){_END}"
_WORD_ORDINAL = (
    rf"(?:thirty[ -]first|(?:twenty[ -])?(?:{'|'.join(_TO_NINTH)})|tenth|eleventh|twelfth"
    rf"|(?:thir|four|fif|six|seven|eigh|nine)teenth|twentieth|thirtieth){_END}"
)
_ORDINAL = rf"(?:{_DIGIT_ORDINAL}|{_WORD_ORDINAL})"
_DAY_NUMBER = rf"(?:\d{{1,2}}(?:st|nd|rd|th)?|{_WORD_ORDINAL})"
_YEAR = r"(?:19|2\d)\d\d"
_SHORT_YEAR = rf"(?:{_YEAR}|(?<=[-/])\d\d|'\d\d)"
"""Two digits are a year only in a row of numbers, such as 15-4-27, or with an apostrophe."""
MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    rf"|nov(?:ember)?|dec(?:ember)?){_NO_LETTER}\.?"
)
_WEEKDAY = r"(?:sun|mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?)(?:days?)?" + _END + r"\.?"
FULL_WEEKDAY = rf"(?:sun|mon|tues|wednes|thurs|fri|satur)days?{_END}"
_DATE_ENDS = r"\s*(?:$|[,:.]|(?:at|@)\s|\d{4}\b)"
"""What follows a date that could be other words, too, such as `march first`."""
_UNIT = (
    r"(?:seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|wks?|w|fortnights?|months?|mos?|years?|yrs?|y|decades?)"
    + _END
)
_JOIN = r"\s*(?:,\s*and\b|,|and\b|&|\+(?!\d\d:?\d\d))\s*"
_PIECE = (
    rf"(?:(?:a\s+)?half(?:\s+an?)?|(?:a\s+)?quarter(?:\s+of)?(?:\s+an)?|three[ -]quarters?(?:\s+of)?\s+an"
    rf"|a\s+(?:couple|pair)(?:\s+of)?|[1-9]/[1-9]|{_NUMBER}(?:\s+and\s+an?\s+half)?(?:\s+more)?|an?{_END}(?!\s+half)"
    rf"|\d{{1,2}}(?=[smhdwy]\d))\s*-?(?:{_UNIT}|[smhdw](?=\d))(?:\s+and\s+an?\s+half{_END})?"
)
_SPAN = rf"{_PIECE}(?:\s*(?:,\s*and\b|,|and\b)?\s*{_PIECE})*"
_ABOUT = r"(?:(?:about|around|approximately|exactly)\s+)?"
"""A length of time may be rounded; a time of day may not: then it is rather a part of what to do."""
_UNITS: Mapping[str, Span] = MappingProxyType(
    {
        "s": Span(seconds=1), "m": Span(seconds=60), "h": Span(seconds=3600), "d": Span(days=1), "w": Span(days=7),
        "f": Span(days=14), "mo": Span(months=1), "y": Span(months=12), "de": Span(months=120),
    }
)  # fmt: skip
_GERMAN_DAY = r"(?:\d{1,2}\.|\w+tag\b|mittwoch|\w*abend|wochenende|morgen|(?:letzt|erst|nächst|kommend)en)"
_HALF = rf"(?:(?!\s+am\s+{_GERMAN_DAY})\s*(?:in\s+the\s+)?[ap]\.?\s?m\b\.?)"
"""In `um 9 am Freitag`, `am` belongs to the day."""
_OCLOCK = rf"\s*o['’]?\s?clock{_END}"
_PART_AFTER = r"\s+(?:in\s+(?:the\s+)?(?:morning|afternoon|evening)|at\s+night)\b"
_NAMED_HOUR = rf"(?:noon|midday|midnight){_END}"
_SAID_MINUTE = rf"(?:oh?[ -](?:{'|'.join(_ONES[1:10])})|(?:{'|'.join(_TENS[:4])})(?:[ -](?:{'|'.join(_ONES[1:10])}))?|{'|'.join(_ONES[10:])}){_END}"
_CLOCK = (
    rf"(?:(?:12\s+|(?:the\s+)?(?=mid))?(?P<noon>noon|mid\s?day|midnight){_END}"
    rf"|(?:a\s+)?(?P<past>half|quarter|twenty(?=\s+after)|(?:{_NUMBER})(?=\s+minutes?\s|\s+past))(?:\s+minutes?)?\s+(?:past|after)\s+(?P<past_hour>{_NUMBER}|{_NAMED_HOUR})(?:{_HALF}|h{_END})?"
    rf"|(?:a\s+)?(?P<to>quarter|(?:five|ten|twenty|twenty[- ]five){_END}|(?:{_NUMBER})(?=\s+minutes?\s|\s+to\s+noon))(?:\s+minutes?)?\s+(?:to|before)\s+(?P<to_hour>{_NUMBER}|{_NAMED_HOUR}){_HALF}?"
    rf"|half\s+(?P<half_hour>{_ONE}){_END}"
    rf"|(?P<hour>\d{{1,2}})(?P<colon>[:h])(?P<minute>\d{{2}})(?::(?P<second>\d{{2}})(?:\.\d{{1,6}})?)?(?:(?<=:\d\d)[ap]\b\.?|(?![\d:]){_HALF}?)(?:{_OCLOCK})?"
    rf"|(?P<dot_hour>\d{{1,2}})\.(?P<dot_minute>\d{{2}})(?![\d.]){_HALF}"
    rf"|(?P<joined_hour>\d{{1,2}})(?P<joined_minute>[0-5]\d)(?:{_HALF}|(?={_PART_AFTER}))"
    rf"|(?P<said_hour>{_ONE})[ -](?P<said_minute>{_SAID_MINUTE}){_HALF}"
    rf"|(?P<full>\d{{1,2}}|{_ONE})(?:{_HALF}|{_OCLOCK}{_HALF}?|(?:(?<=at \d)|(?<=at \d\d))[ap]\b\.?|h{_END})"
    rf"|(?:(?<=at )|(?<=@ ))(?P<apart_hour>\d{{1,2}})\s(?P<apart_minute>[0-5]\d)(?=$|{_PART_AFTER}))"
)
_BARE = (
    rf"(?:(?P<bare_hour>{_ONE})[ -](?P<bare_minute>{_SAID_MINUTE})|(?P<bare>\d{{1,2}}[.]\d{{2}}(?![\d.])|\d{{4}}|\d{{1,2}}|{_ONE}))"
    rf"(?![\w:./]|\s*(?:{_UNIT}|%))"
)
_CLOCK_LIST_ITEM = re.compile(rf"{_JOIN}(?:at\s+)?")
_PART_FOLLOWS = re.compile(rf"{_PART_AFTER}|\s+(?:tonight|tomorrow|this\s+(?:morning|afternoon|evening))\b")
_PIECES = re.compile(_PIECE)
_CLOCKS = re.compile(_CLOCK)
_BARES = re.compile(_BARE)


LAST_DAY_OF_MONTH = Repetition(weekdays=ALL_DAYS, ordinal=-1)
"""What many mean by the 31st of every month."""


def number_of(word: str) -> float:
    """Return the number that a word or digits stand for."""
    if word[:1].isdigit():
        return float(word)
    tens, _, ones = word.replace("-", " ").partition(" ")
    if tens in _TENS:
        return (_TENS.index(tens) + 2) * 10 + (_ONES.index(ones.strip()) if ones.strip() else 0)
    return _ONES.index(tens)


def _ordinal_of(word: str) -> int:
    return int(re.sub(r"\D", "", word)) if word[0].isdigit() else _ORDINALS.index(word.replace(" ", "-")) + 1


def _weekday_of(word: str) -> int:
    return _WEEKDAYS.index(word[:3])


def _month_of(word: str) -> int:
    return _MONTHS.index(word[:3]) + 1


def _unit_of(word: str) -> Span:
    return _UNITS[word[:2] if word[:2] in _UNITS else word[0]]


def add_spans(pieces: list[tuple[float, Span]]) -> Span | None:
    """Add amounts of units; None if a part of a month or a year is left that has no length."""
    months = sum(amount * unit.months for amount, unit in pieces)
    days = sum(amount * unit.days for amount, unit in pieces)
    seconds = sum(amount * unit.seconds for amount, unit in pieces)
    seconds += (days % 1) * 86400
    if months % 1 or seconds % 1:
        return None
    return Span(int(months), int(days), int(seconds))


def _span_of(text: str) -> Span | None:
    pieces = []
    for match in _PIECES.finditer(text):
        piece = match[0]
        more = bool(re.search(r"and\s+an?\s+half$", piece))
        piece = re.sub(r"\s+and\s+an?\s+half$", "", piece)
        unit = re.search(r"[a-z]+$", piece)
        assert unit is not None
        amount = piece[: unit.start()].strip(" -")
        if re.match(r"three[ -]quarter", amount):
            value = 0.75
        elif "quarter" in amount:
            value = 0.25
        elif re.match(r"(a\s+)?half", amount):
            value = 0.5
        elif re.search("couple|pair", amount):
            value = 2
        elif "/" in amount:
            value = int(amount[0]) / int(amount[2])
        elif amount in ("a", "an"):
            value = 1
        else:
            number = re.split(r"\s+(?:and|more)\b", amount)[0].strip()
            value = number_of(number) + (0.5 if "half" in amount else 0)
        pieces.append((value + 0.5 * more, _unit_of(unit[0])))
    return add_spans(pieces)


def _clock_of(match: re.Match[str]) -> Clock:
    """Return the clock of a match of `_CLOCK`."""
    source, half = match[0].strip(), ""
    if found := re.search(rf"([ap])(?:\.?\s?m\.?|(?<=\d[ap])\.?)(?:{_OCLOCK})?$", source):
        half = f"{found[1]}m"
    if match["noon"]:
        return Clock(
            source, 0 if match["noon"] == "midnight" else 12, is_exact=True, is_midnight=match["noon"] == "midnight"
        )
    if match["past"]:
        minute = {"half": 30, "quarter": 15}.get(match["past"]) or int(number_of(match["past"]))
        past_hour, half = _hour_of(match["past_hour"], half)
        return Clock(source, past_hour, minute, half=half)
    if match["half_hour"]:
        return Clock(source, int(number_of(match["half_hour"])), 30)
    if match["to"]:
        minute = 60 - ({"quarter": 15}.get(match["to"]) or int(number_of(match["to"])))
        next_hour, half = _hour_of(match["to_hour"], half)
        if half and next_hour == 12:
            half = "am" if half == "pm" else "pm"
        return Clock(source, (next_hour - 2) % 12 + 1 if next_hour <= 12 else next_hour - 1, minute, half=half)
    if match["said_hour"]:
        return Clock(source, int(number_of(match["said_hour"])), _minute_of(match["said_minute"]), half=half)
    hour = match["hour"] or match["dot_hour"] or match["joined_hour"] or match["apart_hour"]
    if hour:
        is_exact = not half and (hour.startswith("0") or match["colon"] == "h" or int(hour) > 12)
        minute = int(match["minute"] or match["dot_minute"] or match["joined_minute"] or match["apart_minute"])
        return Clock(source, int(hour), minute, int(match["second"] or 0), half, is_exact=is_exact)
    is_exact = source.endswith("h") and not half
    return Clock(source, int(number_of(match["full"])), half=half, is_exact=is_exact)


def _minute_of(words: str) -> int:
    """Return the minute of `thirty` or `oh five`."""
    return int(number_of(re.sub(r"^oh?[ -]", "", words)))


def _hour_of(word: str, half: str) -> tuple[int, str]:
    """Return the hour that a number or a name stands for, and its half of the day."""
    named = {"n": "pm", "m": "am" if word == "midnight" else "pm"}
    return (12, named[word[0]]) if word in ("noon", "midday", "midnight") else (int(number_of(word)), half)


def _bare_clock(match: re.Match[str]) -> Clock:
    """Return the clock of a match of `_BARE`: only a number."""
    text = match["bare"]
    if text is None:
        return Clock(match[0], int(number_of(match["bare_hour"])), _minute_of(match["bare_minute"]))
    if "." in text:
        hour, _, minute = text.partition(".")
        return Clock(text, int(hour), int(minute), is_exact=hour.startswith("0"))
    if len(text) == 4 and text.isdigit():
        return Clock(text, int(text[:2]), int(text[2:]), is_exact=True)
    return Clock(text, int(number_of(text)), is_exact=text.startswith("0") and len(text) == 2, is_bare=True)


_AT = re.compile(r"(?:(?:at|by|@)\s*(?=[\w])(?:exactly\s+)?)?")


def find_english_clocks(
    text: str, position: int, *, has_anchor: bool, may_be_year: bool = False
) -> tuple[list[Clock], int]:
    """Find times of day, joined by commas and `and`; return where they end, too.

    Args:
        has_anchor: words before them named a day, so that a bare number can be an hour.
        may_be_year: they named a date without a year, so that a bare number can be that, too.
    """
    clocks: list[Clock] = []
    intro = _AT.match(text, position)
    has_at = intro is not None and intro.end() > position
    position = end = intro.end() if intro else position
    may_be_bare = has_at or has_anchor
    while True:
        if found := _CLOCKS.match(text, position):
            clocks.append(_clock_of(found))
        elif (found := _BARES.match(text, position)) and (may_be_bare or _PART_FOLLOWS.match(text, found.end())):
            clock = structs.replace(_bare_clock(found), is_loose=not (has_at or clocks))
            if (may_be_year and clock.is_loose and clock.is_bare) or (clock.is_loose and found["bare"] is None):
                break
            clocks.append(clock)
        else:
            break
        end = found.end()
        joined = _CLOCK_LIST_ITEM.match(text, end)
        if joined is None:
            break
        position, may_be_bare = joined.end(), may_be_bare and not clocks[-1].half
    return clocks, end


def read_once(_words: TimeWords, _match: re.Match[str]) -> bool:
    """Read that it comes once, which says nothing more."""
    return True


def _instant(words: TimeWords, match: re.Match[str]) -> bool:
    if words.has_date and not words.has_start:
        return False
    if words.clocks:
        return False
    try:
        words.instant = datetime.fromisoformat(f"{match['date']}T{match['time']}{match['offset'].upper()}")
    except ValueError:
        raise TimeRefused("date_unknown", given=match[0]) from None
    return True


def read_numbered_date(words: TimeWords, match: re.Match[str]) -> bool:
    """Read a date of which month and day are numbers."""
    if has_calendar_day(words):
        return False
    parts = match.groupdict()
    month, day = int(parts["month"]), int(parts["day"])
    if "slash" in parts:
        words.is_order_open = month <= 12 and day <= 12 and month != day
        if month > 12:
            month, day = day, month
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        raise TimeRefused("date_unknown", given=match[0])
    words.month, words.day = month, day
    if parts.get("year"):
        words.year = year_of(parts["year"])
        words.is_iso = "iso" in parts
    return True


def year_of(digits: str) -> int:
    """Return a year that may have two digits only."""
    number = int(digits.lstrip("'"))
    return number if number > 99 else 2000 + number


def has_calendar_day(words: TimeWords) -> bool:
    """Return true if a date other than a day of the week was said."""
    return words.day is not None or words.days is not None or bool(words.ordinal) or words.instant is not None


def _named_date(words: TimeWords, match: re.Match[str]) -> bool:
    if has_calendar_day(words) or words.month_offset is not None:
        return False
    day, year = match["day"], match["year"]
    number = int(re.sub(r"\D", "", day)) if day[0].isdigit() else _ordinal_of(day)
    if not 1 <= number <= 31:
        raise TimeRefused("date_unknown", given=match[0])
    if words.every is not None and words.every.span == Span(months=12) and not words.has_start and not year:
        words.every = Repetition(month_days=(number,), months=(_month_of(match["month"]),))
        return True
    words.day, words.month = number, _month_of(match["month"])
    words.year = year_of(year) if year else None
    return True


def read_year(words: TimeWords, match: re.Match[str]) -> bool:
    """Read the year that is put after the date and its time of day."""
    if words.month is None or words.year is not None or not (words.clocks or match["word"]):
        return False
    words.year = int(match["year"])
    return True


_MONTH_OFFSETS = MappingProxyType({"this": 0, "the": 0, "current": 0, "next": 1})


def _day_of_month(words: TimeWords, match: re.Match[str]) -> bool:
    if has_calendar_day(words) or (words.every is not None and not words.has_start):
        return False
    if not (match["intro"] or match["month"] or words.weekday is not None):
        return False
    words.day = int(re.sub(r"\D", "", match["day"])) if match["day"][0].isdigit() else _ordinal_of(match["day"])
    if match["month"]:
        words.month_offset = _MONTH_OFFSETS[match["month"]]
    if not 1 <= words.day <= 31:
        raise TimeRefused("date_unknown", given=match[0])
    return True


def set_counted_day(
    words: TimeWords,
    ordinal: int,
    weekdays: tuple[int, ...],
    *,
    month: int | None = None,
    year: int | None = None,
    offset: int | None = None,
) -> bool:
    """Set a day that is counted in one month, such as the last Monday of March; `offset`: months from this one on."""
    if words.has_date or words.every is not None:
        return False
    if month is not None and not 1 <= month <= 12:
        raise TimeRefused("date_unknown", given=str(month))
    if weekdays == ALL_DAYS and ordinal > 0:
        words.day = ordinal
    else:
        words.ordinal, words.counted = ordinal, weekdays
    words.month, words.year, words.month_offset = month, year, offset
    return True


def set_nth_weekday(words: TimeWords, weekday: int, count: int) -> bool:
    """Set a day of the week that is counted from tomorrow on, such as the second Friday from now."""
    if words.has_date or words.span is not None or words.every is not None or count < 1:
        return False
    words.weekday, words.is_counted_weekday, words.shift = weekday, True, Span(days=7 * (count - 1))
    return True


def _counted_day(words: TimeWords, match: re.Match[str]) -> bool:
    return set_counted_day(
        words,
        -1 if match["nth"] == "last" else _ordinal_of(match["nth"]),
        _counted_days(match["name"]),
        month=_month_of(match["month"]) if match["month"] else None,
        year=int(match["year"]) if match["year"] else None,
        offset=_MONTH_OFFSETS[match["offset"]] if match["offset"] else None,
    )


def _counted_days(name: str) -> tuple[int, ...]:
    if re.match(r"week|work|business", name):
        return WORKDAYS
    return ALL_DAYS if name == "day" else (_weekday_of(name),)


_DAYS = MappingProxyType({"today": 0, "tomorrow": 1, "tmrw": 1, "tmr": 1, "tomorow": 1, "tommorow": 1, "tommorrow": 1})


def _day(words: TimeWords, match: re.Match[str]) -> bool:
    if words.days is not None or words.day is not None or words.span is not None or words.week is not None:
        return False
    words.days = 2 if match["after"] else 1 if match["next"] else _DAYS[match["day"]]
    return True


def _tonight(words: TimeWords, match: re.Match[str]) -> bool:
    if words.days not in (None, 0) or words.part or (words.has_date and words.days is None):
        return False
    words.days, words.part = 0, match["part"] or "evening"
    return True


def _part(words: TimeWords, match: re.Match[str]) -> bool:
    if words.part or not (match["intro"] or words.has_date or words.span or words.every):
        return False
    words.part = match["part"]
    return True


def read_over(words: TimeWords, _match: re.Match[str]) -> bool:
    """Read a time that has passed."""
    words.is_over = True
    return True


def read_vague(words: TimeWords, _match: re.Match[str]) -> bool:
    """Read a time that is no time."""
    words.is_vague = True
    return True


def _weekday(words: TimeWords, match: re.Match[str]) -> bool:
    name = match["name"].rstrip(".")
    if words.weekday is not None or words.span is not None or words.is_weekend:
        return False
    if words.every is not None and not words.has_start:
        return False
    if name.endswith("days") or (name.endswith("s") and name[:-1] in _WEEKDAYS and name != "tues"):
        return False
    words.weekday = _weekday_of(name)
    modifier, week = match["modifier"] or "", match["week"]
    if week:
        words.week = {"this": 0, "next": 1}[week]
    elif modifier == "next" and words.week is None:
        words.is_next_weekday = True
    return True


def _weekend(words: TimeWords, match: re.Match[str]) -> bool:
    if words.has_date or words.every is not None:
        return False
    words.is_weekend = True
    if match["next"]:
        words.week = 1
    return True


def _next_unit(words: TimeWords, match: re.Match[str]) -> bool:
    match match["unit"]:
        case "week" if words.week is None and not has_calendar_day(words):
            words.week = 1
        case "month" if words.month_offset is None and words.week is None:
            words.month_offset = 1
        case "year" if words.year_offset is None and words.year is None and words.week is None:
            words.year_offset = 1
        case _:
            return False
    return True


def _shift(words: TimeWords, match: re.Match[str]) -> bool:
    """Read how long after the date that follows."""
    span = _span_of(match["span"])
    if words.is_time or words.shift is not None or span is None or span.seconds:
        return False
    words.shift = span
    return True


def _nth_weekday_ahead(words: TimeWords, match: re.Match[str]) -> bool:
    """Read `three fridays from now` and `friday after next`."""
    return set_nth_weekday(words, _weekday_of(match["name"]), int(number_of(match["count"])) if match["count"] else 2)


def _span(words: TimeWords, match: re.Match[str]) -> bool:
    if words.days == 0 and not (words.clocks or words.part):  # `today in an hour`
        words.days = None
    if words.has_date or words.span is not None or words.every is not None:
        return False
    span = _span_of(match["span"])
    if span is None:
        return False
    words.span = span
    return True


def set_every(words: TimeWords, every: Repetition | None) -> bool:
    """Set how often it comes, unless that was said."""
    if words.every is not None or words.has_date or words.span is not None or every is None:
        return False
    words.every = every
    return True


_NAMED_SPANS: Mapping[str, Repetition] = MappingProxyType(
    {
        "day": Repetition(Span(days=1)), "daily": Repetition(Span(days=1)), "nightly": Repetition(Span(days=1)),
        "week": Repetition(Span(days=7)), "weekly": Repetition(Span(days=7)),
        "fortnight": Repetition(Span(days=14)), "fortnightly": Repetition(Span(days=14)),
        "month": Repetition(Span(months=1)), "monthly": Repetition(Span(months=1)),
        "year": Repetition(Span(months=12)), "yearly": Repetition(Span(months=12)),
        "annually": Repetition(Span(months=12)),
        "hour": Repetition(Span(seconds=3600)), "hourly": Repetition(Span(seconds=3600)),
        "minute": Repetition(Span(seconds=60)),
        "weekday": Repetition(weekdays=WORKDAYS), "workday": Repetition(weekdays=WORKDAYS),
        "weekend": Repetition(weekdays=(0, 6)),
        "quarter of the year": Repetition(month_days=(1,), months=(1, 4, 7, 10)),
    }
)  # fmt: skip


def repeat_date(words: TimeWords, every: Repetition) -> bool:
    """Let the date that was said come again every week, month or year; return false if it cannot."""
    if (
        words.every is not None
        or words.span is not None
        or words.year is not None
        or words.has_start
        or words.is_order_open
    ):
        return False
    is_weekday = words.weekday is not None and words.week is None and words.day is None and not words.is_next_weekday
    if every.span == Span(days=7) and is_weekday:
        words.every, words.weekday = Repetition(weekdays=(words.weekday or 0,)), None
        return True
    months = {Span(months=1): (), Span(months=12): (words.month or 0,)}.get(every.span or Span())
    if words.day is None or months is None or (words.month is None) is bool(months) or words.month_offset is not None:
        return False
    words.every, words.day, words.month = Repetition(month_days=(words.day,), months=months), None, None
    return True


def _every_name(words: TimeWords, match: re.Match[str]) -> bool:
    name = re.sub(r"\s+", " ", match["name"])
    if name in _NAMED_SPANS and words.has_date:
        return repeat_date(words, _NAMED_SPANS[name])
    if name in ("morning", "afternoon", "evening", "night"):
        if words.part or not set_every(words, _NAMED_SPANS["day"]):
            return False
        words.part = name
        return True
    name = re.sub(r"^(?:working|business) ?day", "weekday", name)
    name = name.removesuffix("s") if name.endswith(("days", "ends")) else name
    if name == "nightly" and not words.part:
        words.part = "night"
    return set_every(words, _NAMED_SPANS["quarter of the year" if name.startswith("quarter") else name])


def _every_span(words: TimeWords, match: re.Match[str]) -> bool:
    span = _span_of(match["span"])
    return span is not None and set_every(words, Repetition(span))


def _every_nth_unit(words: TimeWords, match: re.Match[str]) -> bool:
    word = match["nth"]
    count = 2 if word == "other" else _ordinal_of(word)
    unit = _unit_of(match["unit"])
    span = Span(unit.months * count, unit.days * count, unit.seconds * count)
    return set_every(words, Repetition(span))


def _every_nth_weekday(words: TimeWords, match: re.Match[str]) -> bool:
    weekdays = (_weekday_of(match["name"]),)
    word = match["nth"]
    fortnightly = Repetition(Span(days=14), weekdays=weekdays)
    if word == "other":
        return set_every(words, fortnightly)
    if word == "last":
        return set_every(words, Repetition(weekdays=weekdays, ordinal=-1))
    count = _ordinal_of(word)
    of_month = Repetition(weekdays=weekdays, ordinal=count)
    if count == 2:
        return set_every(words, structs.replace(fortnightly, others=(of_month,)))
    return count <= 4 and set_every(words, of_month)


_WEEKDAY_NAMES = re.compile(rf"(?P<first>{_WEEKDAY})(?:\s*(?:-|–|to|through|thru)\s*(?P<last>{_WEEKDAY}))?")


def _weekdays_of(text: str) -> tuple[int, ...]:
    """Return the days of the week of a list with ranges."""
    found: set[int] = set()
    for match in _WEEKDAY_NAMES.finditer(text):
        first = _weekday_of(match["first"])
        last = _weekday_of(match["last"]) if match["last"] else first
        found |= {day % 7 for day in range(first, last + (8 if last < first else 1))}
    return tuple(sorted(found))


def _every_weekdays(words: TimeWords, match: re.Match[str]) -> bool:
    text = match["names"]
    has_plural = re.search(r"(?:days|(?:mon|wed|thu|fri|sat|sun)s)\b", text) is not None
    has_range = re.search(r"-|–|\b(?:to|through|thru)\b", text) is not None
    if not (match["every"] or has_plural or has_range):
        return False
    return set_every(words, Repetition(weekdays=_weekdays_of(text)))


def read_weekday_of_weeks(words: TimeWords, weekdays: tuple[int, ...]) -> bool:
    """Read the day of the week after a number of weeks, as in `every 2 weeks on friday`."""
    span = words.every.span if words.every is not None and not words.has_start else None
    if words.every is None or words.every.weekdays or span is None or span.months or span.seconds or span.days % 7:
        return False
    if span.days > 7 and len(weekdays) > 1:
        return False
    words.every = Repetition(weekdays=weekdays) if span.days == 7 else structs.replace(words.every, weekdays=weekdays)
    return True


def _weekday_of_weeks(words: TimeWords, match: re.Match[str]) -> bool:
    return read_weekday_of_weeks(words, _weekdays_of(match["names"]))


def _numbers_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a list with ranges."""
    found: set[int] = set()
    for match in re.finditer(r"(\d{1,2})(?:\s*(?:-|–|to|至|到)\s*(\d{1,2}))?", text):
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def checked_days(days: tuple[int, ...], source: str) -> tuple[int, ...]:
    """Return days of the month as they are. Raise `TimeRefused` for what is none."""
    if not days or days[0] < 1 or days[-1] > 31:
        raise TimeRefused("date_unknown", given=source)
    return days


def _month_days(words: TimeWords, match: re.Match[str]) -> bool:
    ordinals = re.findall(_ORDINAL, match["days"])
    days = tuple(sorted({_ordinal_of(word) for word in ordinals})) if ordinals else _numbers_of(match["days"])
    is_monthly = words.every is not None and words.every.span == Span(months=1)
    is_open = match.groupdict().get("every") in ("the", None) and not is_monthly
    every = Repetition(
        month_days=checked_days(days, match[0]),
        others=(LAST_DAY_OF_MONTH,) if days == (31,) else (),
        is_open=is_open and "day_word" not in match.groupdict(),
    )
    if is_monthly:
        words.every = every
        return True
    return set_every(words, every)


def _month_days_after(words: TimeWords, match: re.Match[str]) -> bool:
    """Read `on the 1st and 15th` after `every month`."""
    if words.every is None or words.every.span != Span(months=1) or words.has_start:
        return False
    return _month_days(words, match)


def _ordinal_weekday(words: TimeWords, match: re.Match[str]) -> bool:
    word, name = match["nth"], match["name"]
    ordinal = -1 if word == "last" else _ordinal_of(word)
    is_monthly = words.every is not None and words.every.span == Span(months=1)
    scope = match["scope"]
    if ordinal > 4 or not (scope or is_monthly):
        return False
    every = Repetition(weekdays=_counted_days(name), ordinal=ordinal, is_open=scope == "the" and not match["every"])
    if name == "day" and ordinal > 0:
        every = Repetition(month_days=(ordinal,), is_open=every.is_open)
    if is_monthly:
        words.every = structs.replace(every, is_open=False)
        return True
    return set_every(words, every)


def _months(words: TimeWords, match: re.Match[str]) -> bool:
    if words.every is None or words.every.months:
        return False
    found: set[int] = set()
    for part in re.finditer(rf"({MONTH})(?:\s*(?:-|–|to|through)\s*({MONTH}))?", match["months"]):
        first, last = _month_of(part[1]), _month_of(part[2] or part[1])
        found |= {(month - 1) % 12 + 1 for month in range(first, last + (13 if last < first else 1))}
    words.every = structs.replace(words.every, months=tuple(sorted(found)))
    return True


def _yearly_date(words: TimeWords, match: re.Match[str]) -> bool:
    day = int(re.sub(r"\D", "", match["day"])) if match["day"][0].isdigit() else _ordinal_of(match["day"])
    days = checked_days((day,), match[0])
    return set_every(words, Repetition(month_days=days, months=(_month_of(match["month"]),)))


def read_start(words: TimeWords, _match: re.Match[str]) -> bool:
    """Read that a start follows, after how often it comes."""
    if words.every is None or words.has_start or words.has_date:
        return False
    words.has_start = True
    return True


def _also_weekdays(words: TimeWords, match: re.Match[str]) -> bool:
    """Read the days of the week after days of the month: of both, as cron has it, or either."""
    if words.every is None or not words.every.month_days or words.every.weekdays:
        return False
    words.every = structs.replace(
        words.every, weekdays=_weekdays_of(match["names"]), needs_both="if" in match["link"], is_open=False
    )
    return True


def _minutes_of_hours(words: TimeWords, match: re.Match[str]) -> bool:
    hours = _numbers_of(match["hours"]) if match["hours"] else ()
    if match["step"]:
        step = int(match["step"])
        if not 1 <= step <= 30 or 60 % step:
            raise TimeRefused("every_range", given=match[0])
        minutes = tuple(range(0, 60, step))
    else:
        minutes = _numbers_of(match["minutes"]) if match["minutes"] else tuple(range(60))
    if (hours and hours[-1] > 23) or minutes[-1] > 59:
        raise TimeRefused("clock_range", given=match[0])
    every = Repetition(minutes=minutes, hours=hours)
    if words.every is None:
        return set_every(words, every)
    if words.every.minutes or words.every.span is not None:
        return False
    words.every = structs.replace(words.every, minutes=minutes, hours=hours)
    return True


def _then_every(words: TimeWords, match: re.Match[str]) -> bool:
    """Read the days of a repetition after its minutes, or `every day` after the date of the first time."""
    if words.every is None or not words.every.minutes or words.every.weekdays or words.every.month_days:
        return False
    other = TimeWords()
    if match["names"]:
        weekdays = WORKDAYS if match["names"].startswith("weekday") else _weekdays_of(match["names"])
        other.every = Repetition(weekdays=weekdays)
    else:
        other.every = Repetition(month_days=checked_days(_numbers_of(match["days"]), match[0]))
    words.every = structs.replace(words.every, weekdays=other.every.weekdays, month_days=other.every.month_days)
    return True


_EVERY = r"(?:every|each)"
_NUMBERS = r"\d{1,2}(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+|\s*(?:-|–|to)\s*)\d{1,2})*"
_WEEKDAY_LIST = rf"{_WEEKDAY}(?:(?:\s*(?:,\s*and\b|,|and\b|&|/|-|–|to\b|through\b|thru\b)\s*)(?:on\s+)?{_WEEKDAY})*"
_ORDINAL_LIST = rf"{_ORDINAL}(?:(?:\s*(?:,\s*and\b|,|and\b|&)\s*)(?:the\s+)?{_ORDINAL})*"
_MONTH_LIST = rf"{MONTH}(?:(?:\s*(?:,\s*and\b|,|and\b|&|-|–|to\b|through\b)\s*){MONTH})*"


def phrase(pattern: str, read: Read) -> Phrase:
    """Compile a phrase."""
    return Phrase(re.compile(pattern), read)


ENGLISH_PHRASES: tuple[Phrase, ...] = (
    phrase(rf"once{_END}\s*,?(?:\s*on\b)?", read_once),
    phrase(
        r"(?:(?:at|on)\s+)?(?P<date>\d{4}-\d{2}-\d{2})[ t](?P<time>\d{2}:\d{2}(?::\d{2}(?:\.\d{3,6})?)?)\s*(?P<offset>z|[+-]\d{2}:?\d{2})"
        + _END,
        _instant,
    ),
    phrase(
        r"(?:(?:on|at)\s+)?(?P<iso>)(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})(?:t(?=\d)|(?![\w]))",
        read_numbered_date,
    ),
    phrase(r"(?:on\s+)?(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?:(?P<year>\d{4}|\d\d))?" + _END, read_numbered_date),
    phrase(
        r"(?:on\s+)?(?P<slash>)(?P<month>\d{1,2})(?:/|\s/\s)(?P<day>\d{1,2})(?:/(?P<year>\d{4}|\d\d))?"
        + _END
        + r"(?!/)",
        read_numbered_date,
    ),
    phrase(
        r"(?:on\s+)?(?P<slash>)(?P<month>0?[1-9]|[12]\d|3[01])-(?P<day>0?[1-9]|[12]\d|3[01])-(?P<year>\d{4}|\d\d)(?![\w-])",
        read_numbered_date,
    ),
    # How often. The longer phrases come first.
    phrase(
        rf"(?:at\s+minute\s+(?P<minutes>{_NUMBERS})|every\s+(?P<step>\d{{1,2}})\s+minutes|every\s+minute)\s+of\s+"
        rf"(?:every\s+hour{_END}|hours?\s+(?P<hours>{_NUMBERS}){_END})",
        _minutes_of_hours,
    ),
    phrase(
        rf"(?:every\s+(?P<names>weekday{_END}|{_WEEKDAY_LIST})|on\s+day\s+(?P<days>{_NUMBERS})\s+of\s+(?:every|the)\s+month{_END})",
        _then_every,
    ),
    phrase(
        rf"(?:(?P<every>every|each)\s+)?(?:on\s+)?(?:the\s+)?(?P<nth>last|{_ORDINAL})\s+"
        rf"(?P<name>weekday|workday|working\s+day|business\s+day|day|{_WEEKDAY}){_END}"
        rf"(?:\s+(?:of|in)\s+(?P<scope>the|every|each|a)\s+month{_END})?",
        _ordinal_weekday,
    ),
    phrase(
        rf"(?:on\s+)?(?:the\s+)?(?:day\s+)?(?P<days>{_ORDINAL_LIST})(?:\s+day)?\s+(?:of\s+)?(?P<every>every|each|the)\s+month{_END}",
        _month_days,
    ),
    phrase(
        rf"(?:on\s+)?(?P<day_word>days?)\s+(?P<days>{_NUMBERS})\s+of\s+(?P<every>every|each|the)\s+month{_END}",
        _month_days,
    ),
    phrase(rf"(?:on\s+)?(?:the\s+)?(?P<days>{_ORDINAL_LIST}|(?<=on )\d{{1,2}}{_END})", _month_days_after),
    phrase(rf"(?P<link>and\s+every|,?\s*if\s+(?:it|that)\s+is\s+an?)\s+(?P<names>{_WEEKDAY_LIST})", _also_weekdays),
    phrase(
        rf"{_EVERY}\s+year\s+on\s+(?:the\s+)?(?P<day>\d{{1,2}}(?:st|nd|rd|th)?|{_ORDINAL})\s+(?:of\s+)?(?P<month>{MONTH})",
        _yearly_date,
    ),
    phrase(rf"{_EVERY}\s+(?P<day>\d{{1,2}}(?:st|nd|rd|th)?|{_ORDINAL})\s+(?:of\s+)?(?P<month>{MONTH})", _yearly_date),
    phrase(rf"{_EVERY}\s+(?P<month>{MONTH})\s+(?P<day>\d{{1,2}}(?:st|nd|rd|th)?){_END}", _yearly_date),
    phrase(rf"{_EVERY}\s+(?P<nth>other|{_ORDINAL})\s+(?P<unit>day|week|month|hour|minute|year){_END}", _every_nth_unit),
    phrase(rf"{_EVERY}\s+(?P<nth>other|last|{_ORDINAL})\s+(?P<name>{_WEEKDAY})", _every_nth_weekday),
    phrase(rf"{_EVERY}\s+(?P<day_word>)(?P<days>\d{{1,2}}(?:st|nd|rd|th)){_END}", _month_days),
    phrase(
        rf"(?:{_EVERY}\s+(?:single\s+)?|(?:on\s+)?(?=weekdays|weekends|workdays))"
        r"(?P<name>weekdays?|workdays?|working\s*days?|business\s+days?|weekends?|"
        r"quarter\s+of\s+(?:the|a)\s+year|day|morning|afternoon|evening|night|week|fortnight|month|year|hour|minute)"
        rf"{_END}(?!\s+and\s+(?:a|\d))(?:\s+\(monday\s+to\s+friday\))?",
        _every_name,
    ),
    phrase(rf"(?P<name>daily|nightly|weekly|fortnightly|monthly|yearly|annually|hourly){_END}", _every_name),
    phrase(rf"(?:on\s+|(?={FULL_WEEKDAY}))(?P<names>{_WEEKDAY_LIST})", _weekday_of_weeks),
    phrase(rf"(?:on\s+)?(?:(?P<every>every|each)\s+)?(?:on\s+)?(?P<names>{_WEEKDAY_LIST})", _every_weekdays),
    phrase(rf"{_EVERY}\s+(?P<span>{_SPAN})", _every_span),
    phrase(rf"in\s+(?P<months>{_MONTH_LIST})(?!\s*\d)", _months),
    phrase(
        rf",?\s*(?:counted\s+from|starting(?:\s+(?:from|on|at))?|beginning(?:\s+(?:from|on|at))?|from){_END}",
        read_start,
    ),
    # Which day.
    phrase(rf"(?:yesterday|(?:the\s+)?day\s+before\s+yesterday){_END}", read_over),
    phrase(rf"last\s+(?:week|month|year|night|evening|{_WEEKDAY}){_END}(?!\s+(?:of|in)\s)", read_over),
    phrase(rf"(?:{_SPAN})\s+ago{_END}", read_over),
    phrase(
        rf"(?:soon|later|sometime|someday|some\s+day|some\s+time|eventually|asap|now|right\s+now|immediately){_END}",
        read_vague,
    ),
    phrase(
        rf"in\s+(?:a\s+)?(?:bit|while|moment|(?:few|several|some)\s+\w+){_END}|a\s+(?:bit|while)\s+later{_END}",
        read_vague,
    ),
    phrase(
        rf"(?:on\s+)?(?:the\s+)?(?P<nth>last|{_ORDINAL})\s+(?P<name>weekday|workday|working\s+day|business\s+day|day|{_WEEKDAY}){_END}"
        rf"\s+(?:of|in)\s+(?:(?P<month>{MONTH})(?:,?\s*(?P<year>{_YEAR}){_END}(?!:))?|(?P<offset>this|next)\s+month{_END})",
        _counted_day,
    ),
    phrase(
        rf"(?:on\s+)?(?:the\s+)?(?P<day>{_DAY_NUMBER})(?:\s+of)?[ /-]*(?P<month>{MONTH})"
        rf"(?:,?[ /-]*(?P<year>{_SHORT_YEAR}){_END}(?!:))?",
        _named_date,
    ),
    phrase(
        rf"(?:on\s+)?(?P<month>{MONTH})[\s,]*(?:the\s+|(?=\d|{_WORD_ORDINAL}{_DATE_ENDS}))(?P<day>{_DAY_NUMBER})(?![\w:]|\s*[ap]\.?m)"
        rf"(?:,?\s*(?P<year>{_SHORT_YEAR}){_END}(?!:))?",
        _named_date,
    ),
    phrase(rf"(?:on\s+)?(?P<year>{_YEAR})[ /-](?P<month>{MONTH})[ /-]?(?P<day>{_DAY_NUMBER}){_END}", _named_date),
    phrase(rf"(?:(?P<word>year)\s+)?(?P<year>{_YEAR})(?=\s*(?:$|[,:.]))", read_year),
    phrase(
        rf"(?:(?P<intro>on\s+the|the|on)\s+|(?={_ORDINAL}(?:{_DATE_ENDS}|\s+(?:day\s+)?of\s)|\d{{1,2}}\s+of\s))"
        rf"(?P<day>{_ORDINAL}|\d{{1,2}}(?=\s+of\s))(?:\s+day)?"
        rf"(?:\s+of\s+(?:the\s+)?(?P<month>this|next|current)\s+month{_END})?(?!\s+(?:day\s+)?of{_END}|\s+{MONTH})",
        _day_of_month,
    ),
    phrase(
        rf"(?:(?:at|by)\s+)?(?:(?P<after>(?:the\s+)?day\s+after\s+tomorrow)|(?P<next>(?:the\s+)?next\s+day)|(?P<day>{'|'.join(_DAYS)})){_END}",
        _day,
    ),
    phrase(rf"(?:tonight|this\s+(?P<part>morning|afternoon|evening|night)){_END}", _tonight),
    phrase(
        rf"(?P<intro>(?:in|during)\s+(?:the\s+)?|at\s+(?=night))?(?P<part>morning|afternoon|evening|night){_END}", _part
    ),
    phrase(rf"(?P<count>\d{{1,2}}|{_ONE})\s+(?P<name>{_WEEKDAY})\s+from\s+(?:right\s+)?now{_END}", _nth_weekday_ahead),
    phrase(rf"(?:on\s+)?(?:the\s+)?(?P<count>)(?P<name>{_WEEKDAY})\s+after\s+next{_END}", _nth_weekday_ahead),
    phrase(
        rf"(?:(?:on|by)\s+)?(?:(?:the|this)\s+)?(?:(?P<modifier>this|next|coming)\s+)?(?P<name>{_WEEKDAY})"
        rf"(?:\s+(?:of\s+)?(?P<week>this|next)\s+week{_END})?",
        _weekday,
    ),
    phrase(rf"(?:(?:on|at)\s+)?(?:(?:this|the)\s+)?(?P<next>next\s+)?weekend{_END}", _weekend),
    phrase(rf"next\s+(?P<unit>week|month|year){_END}", _next_unit),
    phrase(
        rf"(?P<span>{_SPAN})\s+(?:after|from)\s+(?=today{_END}|tomorrow{_END}|(?:next|this|on|the)\s|{_WEEKDAY}|{MONTH}|\d)",
        _shift,
    ),
    phrase(rf"(?:in|after|(?:at\s*)?\+)\s*{_ABOUT}(?P<span>{_SPAN})(?:'?\s+(?:time|from\s+now))?{_END}", _span),
    phrase(rf"(?P<span>{_SPAN})\s+(?:from\s+(?:right\s+)?now|from\s+today|later|hence){_END}", _span),
)
