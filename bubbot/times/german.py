"""Times in German: the phrases of which one is made, and what each of them says. Pure.

As for English. Umlauts may be spelled with an e. The short names of days, such as `do` and `so`, count only where no English
word can be meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import structs

from bubbot.times.clocks import Clock
from bubbot.times.english import (
    LAST_DAY_OF_MONTH,
    Phrase,
    Read,
    add_spans,
    checked_days,
    has_calendar_day,
    read_numbered_date,
    read_once,
    read_over,
    read_start,
    read_vague,
    read_weekday_of_weeks,
    repeat_date,
    set_counted_day,
    set_every,
    set_nth_weekday,
    year_of,
)
from bubbot.times.reading import Repetition, Span, TimeWords
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import ALL_DAYS, WORKDAYS

_SPELLED = MappingProxyType({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"})
_FOLD = str.maketrans(dict(_SPELLED))
_ONES = (
    "null", "ein", "zwei", "drei", "vier", "fuenf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwoelf", "dreizehn",
    "vierzehn", "fuenfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
)  # fmt: skip
_TENS = ("zwanzig", "dreissig", "vierzig", "fuenfzig", "sechzig", "siebzig", "achtzig", "neunzig")
_ORDINALS = ("erst", "zweit", "dritt", "viert", "fuenft", "sechst", "siebt", "acht", "neunt", "zehnt")
_WEEKDAYS = ("so", "mo", "di", "mi", "do", "fr", "sa")
_MONTHS = ("jan", "feb", "maer", "apr", "mai", "jun", "jul", "aug", "sep", "okt", "nov", "dez")
_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "frueh": "morning", "fruehmorgens": "morning", "morgen": "morning", "vormittag": "morning", "mittag": "noon",
        "nachmittag": "afternoon", "abend": "evening", "nacht": "night",
    }
)  # fmt: skip
_UNITS: Mapping[str, Span] = MappingProxyType(
    {
        "se": Span(seconds=1), "mi": Span(seconds=60), "st": Span(seconds=3600), "h": Span(seconds=3600), "ta": Span(days=1),
        "wo": Span(days=7), "mo": Span(months=1), "qu": Span(months=3), "ja": Span(months=12),
    }
)  # fmt: skip


def spell_umlauts(pattern: str) -> str:
    """Return a pattern whose umlauts may be spelled with an e, too."""
    return "".join(f"(?:{char}|{_SPELLED[char]})" if char in _SPELLED else char for char in pattern)


_END = r"(?!\w)"
_ONE = (
    r"(?:null|eins|eine[rmns]?|ein|zwei|zwo|dreizehn|drei|vierzehn|vier|fünfzehn|fünf|sechzehn|sechs|siebzehn|sieben|achtzehn|acht"
    r"|neunzehn|neun|zehn|elf|zwölf)"
)
_TEN = r"(?:(?:ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun)und)?(?:zwanzig|dreißig|vierzig|fünfzig|sechzig|siebzig|achtzig|neunzig)"
_N = rf"(?:\d{{1,6}}(?:[.,]\d{{1,2}})?|{_TEN}|{_ONE})"
_ORDINAL_WORD = r"(?:erste|zweite|dritte|vierte|fünfte|sechste|siebte|achte|neunte|zehnte)[nrs]?"
_DAY_NUMBER = rf"(?:\d{{1,2}}(?:te[nrs]?|\.)?|{_ORDINAL_WORD})"
_UNIT = r"(?:sekunden?|sek|minuten?|min|stunden?|std|h|tage?n?|wochen?|monate?n?|quartale?n?|jahre?n?)" + _END + r"\.?"
_HALVED = r"(?:sekunden?|minuten?|stunden?|tage?n?|wochen?|monate?n?|jahre?n?)" + _END
_PIECE = (
    rf"(?:(?:eine[rmns]?\s+|ein\s+)?(?P<part>dreiviertel|viertel|halbe[rmns]?)[\s-]*{_HALVED}"
    rf"|(?P<more>anderthalb|{_N}einhalb)\s*{_UNIT}|(?P<number>{_N})\s*{_UNIT})"
)
_UNNAMED_PIECE = re.sub(r"\?P<\w+>", "?:", _PIECE)
_SPAN = rf"{_UNNAMED_PIECE}(?:\s*(?:,|und\b)?\s*{_UNNAMED_PIECE})*"
WEEKDAY = r"(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonnabend|sonntag)"
_SHORT = r"(?:mo|di|mi|do|fr|sa|so)\b\.?"
MONTH = (
    r"(?:januar|jänner|jan|februar|feb|märz|mär|april|apr|mai|juni|jun|juli|jul|august|aug|september|sept|sep|oktober|okt"
    r"|november|nov|dezember|dez)" + _END + r"\.?"
)
_PART = r"(?:frühmorgens|früh|morgen|vormittag|mittag|nachmittag|abend|nacht)"
_BREAK = r"\s*(?:,\s*und\b|,|und\b|&|\+(?!\d\d:?\d\d)|/)\s*"
_RANGE = r"\s*(?:-|–|bis\b)\s*"
_NUMBERS = rf"\d{{1,2}}\.?(?:(?:{_BREAK}|{_RANGE})\d{{1,2}}\.?(?![\d:]))*"
_NAMES = rf"{WEEKDAY}s?{_END}(?:(?:{_BREAK}|{_RANGE})(?:jeden\s+)?{WEEKDAY}s?{_END})*"
_SHORT_NAMES = rf"{_SHORT}(?:(?:{_BREAK}|{_RANGE}){_SHORT})*"
_MONTH_NAMES = rf"{MONTH}(?:(?:{_BREAK}|{_RANGE}){MONTH})*"
_NEXT = r"(?:nächste[nrs]?|kommende[nrs]?)"
_EVERY = r"(?:jede[nrsm]?|alle)"
_OF_MONTH = r"(?:(?:jede[ns]|eines\s+jeden)\s+monats|(?:im|des|in\s+jedem)\s+monate?s?)" + _END
_PIECES = re.compile(spell_umlauts(rf"{_PIECE}"))
_CLOCK = re.compile(
    spell_umlauts(
        rf"(?:(?P<midnight>mitternacht|(?:24|00?)(?:[:.]00)?\s*uhr){_END}"
        rf"|(?:(?P<away>{_N})(?:\s*min(?:uten?)?)?\s+(?P<way>vor|nach)\s+)?(?P<half>halb)\s+(?P<half_hour>{_N}){_END}"
        rf"|(?P<quarter>dreiviertel|viertel)\s+(?:(?P<quarter_way>vor|nach)\s+)?(?P<quarter_hour>{_N}){_END}"
        rf"|(?P<minutes>{_N})(?:\s*min(?:uten?)?)?\s+(?P<minutes_way>vor|nach)\s+(?P<minutes_hour>{_N}){_END}"
        r"|(?P<digits>\d{1,2})(?P<colon>[:.])(?P<digit_minute>\d{2})(?::(?P<second>\d{2}))?(?![\d:.])"
        rf"|(?P<hour>\d{{1,2}}|{_TEN}|{_ONE})(?=\s*uhr)(?:\s*uhr\s+(?P<minute>\d{{2}}|{_TEN}|fünf|zehn|fünfzehn){_END}(?!\s*{_UNIT}))?"
        rf"|(?P<bare>\d{{1,2}}|{_ONE})(?![\w:.%]|\s*(?:{_UNIT}|%)))(?P<uhr>\s*uhr{_END})?"
    )
)
_CLOCK_JOIN = re.compile(rf"{_BREAK}(?:um\s+)?")
_UM = re.compile(r"(?:(?:genau|pünktlich|puenktlich)\s+)?(?:um\s+)?(?:(?:genau|pünktlich|puenktlich)\s+)?")


def fold(text: str) -> str:
    """Return a text with its umlauts spelled with an e."""
    return text.translate(_FOLD)


def number_of(word: str) -> float:
    """Return the number that a word or digits stand for."""
    if word[:1].isdigit():
        return float(word.replace(",", "."))
    word = fold(word)
    for place, ten in enumerate(_TENS):
        if word.endswith(ten):
            ones = word.removesuffix(ten).removesuffix("und")
            return 20 + 10 * place + (_ONES.index(ones) if ones else 0)
    if word == "zwo":
        return 2
    return _ONES.index(word) if word in _ONES else 1  # eine, einer, eins


def _ordinal_of(word: str) -> int:
    return (
        int(re.sub(r"\D", "", word)) if word[0].isdigit() else _ORDINALS.index(re.sub(r"e[nrs]?$", "", fold(word))) + 1
    )


def _weekday_of(word: str) -> int:
    return _WEEKDAYS.index(word[:2])


def _month_of(word: str) -> int:
    word = fold(word).replace("jaen", "jan")
    return next(place for place, name in enumerate(_MONTHS, 1) if word.startswith(name))


def _unit_of(word: str) -> Span:
    return _UNITS[word[:2] if word[:2] in _UNITS else word[:1]]


def _span_of(text: str) -> Span | None:
    pieces = []
    for match in _PIECES.finditer(text):
        unit = re.search(r"[a-z]+\.?$", match[0])
        assert unit is not None
        word = re.sub(r"^(?:dreiviertel|viertel)", "", unit[0])
        if part := match["part"]:
            amount = {"d": 0.75, "v": 0.25}.get(part[0], 0.5)
        elif more := match["more"]:
            amount = 1.5 if more == "anderthalb" else number_of(more.removesuffix("einhalb")) + 0.5
        else:
            amount = number_of(match["number"])
        pieces.append((amount, _unit_of(word)))
    return add_spans(pieces)


def _before(hour: int) -> int:
    """Return the hour before this one, as it is said."""
    return (hour - 2) % 12 + 1 if hour <= 12 else hour - 1


def _clock_of(match: re.Match[str]) -> Clock:
    """Return the clock of a match of `_CLOCK`. With the word `uhr` the day has 24 hours."""
    source = match[0].strip()
    if match["midnight"]:
        if match["midnight"].startswith("0"):
            return Clock(source, 0, is_exact=True)
        return Clock(source, 0, is_exact=True, is_midnight=True)
    if match["half"]:
        away = int(number_of(match["away"])) * (-1 if match["way"] == "vor" else 1) if match["away"] else 0
        return Clock(source, _before(int(number_of(match["half_hour"]))), 30 + away)
    if match["quarter"]:
        hour, is_after = int(number_of(match["quarter_hour"])), match["quarter_way"] == "nach"
        minute = 15 if is_after or not (match["quarter_way"] or match["quarter"][0] == "d") else 45
        return Clock(source, hour if is_after else _before(hour), minute)
    if match["minutes"]:
        hour, minute = int(number_of(match["minutes_hour"])), int(number_of(match["minutes"]))
        return (
            Clock(source, hour, minute) if match["minutes_way"] == "nach" else Clock(source, _before(hour), 60 - minute)
        )
    if match["digits"]:
        hours = match["digits"]
        is_exact = bool(match["uhr"]) or hours.startswith("0") or int(hours) > 12
        return Clock(source, int(hours), int(match["digit_minute"]), int(match["second"] or 0), is_exact=is_exact)
    if match["hour"]:
        minute = int(number_of(match["minute"])) if match["minute"] else 0
        return Clock(source, int(number_of(match["hour"])), minute, is_exact=True)
    return Clock(source, int(number_of(match["bare"])), is_bare=True)


def find_german_clocks(text: str, position: int) -> tuple[list[Clock], int]:
    """Find times of day, joined by commas and `und`; return where they end, too. A mere number needs `um` before it."""
    clocks: list[Clock] = []
    intro = _UM.match(text, position)
    start = intro.end() if intro else position
    is_bare_allowed, end = "um" in text[position:start].split(), position
    position = start
    while found := _CLOCK.match(text, position):
        is_sure = (
            found["uhr"] or found["hour"] or found["midnight"] or found["half"] or found["quarter"] or found["minutes"]
        )
        if not (is_sure or is_bare_allowed or found["colon"] == ":"):
            break
        clocks.append(_clock_of(found))
        end = found.end()
        if (joined := _CLOCK_JOIN.match(text, end)) is None:
            break
        position = joined.end()
    if clocks and text[:end].endswith("uhr"):
        clocks = [
            structs.replace(clock, is_exact=True, is_bare=False) if clock.is_bare or ":" in clock.source else clock
            for clock in clocks
        ]
    return clocks, end


def _part_of(word: str) -> str:
    word = fold(word)
    return _PARTS.get(word) or _PARTS[word.removesuffix("s")]


_DAYS: Mapping[str, int] = MappingProxyType(
    {"heut": 0, "heute": 0, "morgen": 1, "uebermorgen": 2, "ueberuebermorgen": 3}
)


def _day(words: TimeWords, match: re.Match[str]) -> bool:
    if words.days is not None or words.day is not None or words.span is not None or words.week is not None:
        return False
    if match["part"] and words.part:
        return False
    words.days = _DAYS[fold(match["day"])]
    words.part = _part_of(match["part"]) if match["part"] else words.part
    return True


def _part(words: TimeWords, match: re.Match[str]) -> bool:
    if words.part:
        return False
    name = match["on"] or match["during"] or match["name"]
    part = _part_of(name)
    is_late = part == "night" and (match["early"] is not None or any(clock.hour <= 5 for clock in words.clocks))
    if not (match["on"] or match["during"] or name.endswith("s") or words.is_time):
        return False
    words.part = "dawn" if is_late else part
    return True


def _weekday(words: TimeWords, match: re.Match[str]) -> bool:
    if words.weekday is not None or words.span is not None or words.is_weekend:
        return False
    if words.every is not None and not words.has_start:
        return False
    if match["part"] and words.part:
        return False
    words.weekday = _weekday_of(match["name"])
    words.part = _part_of(match["part"]) if match["part"] else words.part
    if match["week"]:
        words.week = 0 if match["week"].startswith("d") else 1
    elif match["modifier"] and match["modifier"].startswith("n") and words.week is None:
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
    match match["unit"][0]:
        case "w" if words.week is None and not has_calendar_day(words):
            words.week = 1
        case "m" if words.month_offset is None and words.week is None:
            words.month_offset = 1
        case "j" if words.year_offset is None and words.year is None and words.week is None:
            words.year_offset = 1
        case _:
            return False
    return True


def _date(words: TimeWords, match: re.Match[str]) -> bool:
    if has_calendar_day(words) or words.month_offset is not None:
        return False
    number, month = _ordinal_of(match["day"]), _month_of(match["month"])
    if not 1 <= number <= 31:
        raise TimeRefused("date_unknown", given=match[0])
    is_yearly = words.every is not None and words.every.span == Span(months=12)
    if is_yearly and not words.has_start and not match["year"]:
        words.every = Repetition(month_days=(number,), months=(month,))
        return True
    words.day, words.month = number, month
    words.year = year_of(match["year"]) if match["year"] else None
    return True


def _counted_day(words: TimeWords, match: re.Match[str]) -> bool:
    """Read a day that is counted in one month, such as `am letzten Montag im März`."""
    return set_counted_day(
        words,
        -1 if match["nth"].startswith("l") else _ordinal_of(match["nth"]),
        _counted_days(match["name"]),
        month=_month_of(match["month"]) if match["month"] else None,
        year=int(match["year"]) if match["year"] else None,
        offset=(0 if match["offset"].startswith("d") else 1) if match["offset"] else None,
    )


def _counted_days(name: str) -> tuple[int, ...]:
    return ALL_DAYS if name == "tag" else WORKDAYS if name.startswith(("werk", "arbeit")) else (_weekday_of(name),)


def _weekday_after_next(words: TimeWords, match: re.Match[str]) -> bool:
    return set_nth_weekday(words, _weekday_of(match["name"]), 2)


def _day_of_month(words: TimeWords, match: re.Match[str]) -> bool:
    if words.every is not None and words.every.span == Span(months=1) and not words.has_start:
        return _month_days(words, match)
    if has_calendar_day(words) or (words.every is not None and not words.has_start):
        return False
    days = _numbers_of(match["days"])
    if len(days) != 1:
        return False
    words.day = checked_days(days, match[0])[0]
    if match["month"]:
        words.month_offset = 1 if match["month"].startswith(("n", "k")) else 0
    return True


def _last_day(words: TimeWords, match: re.Match[str]) -> bool:
    if words.has_date:
        return False
    words.ordinal, words.counted = -1, ALL_DAYS
    words.month_offset = 1 if match["month"] and match["month"].startswith(("n", "k")) else 0
    return True


def _span(words: TimeWords, match: re.Match[str]) -> bool:
    if words.has_date or words.span is not None or words.every is not None:
        return False
    span = _span_of(match["span"])
    if span is None:
        return False
    words.span = span
    return True


_NAMED_SPANS: Mapping[str, Repetition] = MappingProxyType(
    {
        "tag": Repetition(Span(days=1)), "taeglich": Repetition(Span(days=1)),
        "woche": Repetition(Span(days=7)), "woechentlich": Repetition(Span(days=7)),
        "vierzehntaegig": Repetition(Span(days=14)), "zweiwoechentlich": Repetition(Span(days=14)),
        "monat": Repetition(Span(months=1)), "monatlich": Repetition(Span(months=1)),
        "jahr": Repetition(Span(months=12)), "jaehrlich": Repetition(Span(months=12)),
        "stunde": Repetition(Span(seconds=3600)), "stuendlich": Repetition(Span(seconds=3600)),
        "minute": Repetition(Span(seconds=60)), "viertelstunde": Repetition(Span(seconds=900)),
        "halbe stunde": Repetition(Span(seconds=1800)),
        "werktag": Repetition(weekdays=WORKDAYS), "wochenende": Repetition(weekdays=(0, 6)),
        "quartal": Repetition(month_days=(1,), months=(1, 4, 7, 10)),
    }
)  # fmt: skip


def _every_name(words: TimeWords, match: re.Match[str]) -> bool:
    name = re.sub(r"\s+", " ", fold(match["name"]))
    if name.startswith(("werk", "wochentag", "arbeits")):
        name = "werktag"
    elif name.startswith("wochenend"):
        name = "wochenende"
    elif name in ("vierteljaehrlich", "quartalsweise"):
        name = "quartal"
    if name in _PARTS:
        if words.part or not set_every(words, _NAMED_SPANS["tag"]):
            return False
        words.part = _PARTS[name]
        return True
    if words.has_date:
        return repeat_date(words, _NAMED_SPANS[name])
    return set_every(words, _NAMED_SPANS[name])


def _every_span(words: TimeWords, match: re.Match[str]) -> bool:
    span = _span_of(match["span"])
    return span is not None and set_every(words, Repetition(span))


def _every_nth_unit(words: TimeWords, match: re.Match[str]) -> bool:
    count, unit = _ordinal_of(match["nth"]), _unit_of(match["unit"])
    return set_every(words, Repetition(Span(unit.months * count, unit.days * count, unit.seconds * count)))


def _ordinal_weekday(words: TimeWords, match: re.Match[str]) -> bool:
    """Read `jeden ersten Montag`, and `am letzten Werktag jedes Monats`."""
    is_monthly = words.every is not None and words.every.span == Span(months=1)
    ordinal, scope, name = (
        -1 if match["nth"].startswith("l") else _ordinal_of(match["nth"]),
        match["scope"],
        match["name"],
    )
    if ordinal > 4 or not (scope or is_monthly or match["every"]):
        return False
    weekdays = _counted_days(name)
    every = Repetition(weekdays=weekdays, ordinal=ordinal)
    if weekdays == ALL_DAYS:
        if not (scope or is_monthly):
            return False
        every = every if ordinal < 0 else Repetition(month_days=(ordinal,))
    elif ordinal == 2 and not (scope or is_monthly):
        every = Repetition(Span(days=14), weekdays=weekdays, others=(every,))
    if is_monthly:
        words.every = every
        return True
    return set_every(
        words, structs.replace(every, is_open=bool(scope) and scope.startswith("d") and not match["every"])
    )


def _weekdays_of(text: str) -> tuple[int, ...]:
    """Return the days of the week of a list with ranges."""
    found: set[int] = set()
    name = rf"(?:{WEEKDAY}|{_SHORT})"
    for match in re.finditer(rf"({name})s?(?:{_RANGE}({name}))?", text):
        first = _weekday_of(match[1])
        last = _weekday_of(match[2]) if match[2] else first
        found |= {day % 7 for day in range(first, last + (8 if last < first else 1))}
    return tuple(sorted(found))


def _every_weekdays(words: TimeWords, match: re.Match[str]) -> bool:
    names = match["names"]
    is_repeated = match["every"] or re.search(r"(?:tag|woch|abend)s\b", names) or re.search(_RANGE, names)
    if read_weekday_of_weeks(words, _weekdays_of(names)):
        return True
    if not is_repeated:
        return False
    if not set_every(words, Repetition(weekdays=_weekdays_of(names))):
        return _also_weekdays(words, names)
    return True


def _also_weekdays(words: TimeWords, names: str, *, needs_both: bool = False) -> bool:
    """Read days of the week after days of the month, or after minutes."""
    if words.every is None or words.every.weekdays or not (words.every.month_days or words.every.minutes):
        return False
    words.every = structs.replace(words.every, weekdays=_weekdays_of(names), needs_both=needs_both, is_open=False)
    return True


def _and_weekdays(words: TimeWords, match: re.Match[str]) -> bool:
    return _also_weekdays(words, match["names"], needs_both="wenn" in match["link"])


def _every_workday(words: TimeWords, match: re.Match[str]) -> bool:
    if words.every is not None and words.every.minutes and not words.every.weekdays:
        words.every = structs.replace(words.every, weekdays=WORKDAYS)
        return True
    return _every_name(words, match)


def _numbers_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a list with ranges."""
    found: set[int] = set()
    for match in re.finditer(rf"(\d{{1,2}})\.?(?:{_RANGE}(\d{{1,2}}))?", text):
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def _month_days(words: TimeWords, match: re.Match[str]) -> bool:
    named = match.groupdict().get("named")
    days = checked_days((_ordinal_of(named),) if named else _numbers_of(match["days"]), match[0])
    every = Repetition(month_days=days, others=(LAST_DAY_OF_MONTH,) if days == (31,) else ())
    if words.every is not None and words.every.minutes and not words.every.month_days:
        words.every = structs.replace(words.every, month_days=days)
        return True
    if words.every is not None and words.every.span == Span(months=1):
        words.every = every
        return True
    return set_every(words, every)


def _last_day_of_months(words: TimeWords, _match: re.Match[str]) -> bool:
    if words.every is not None and words.every.span == Span(months=1):
        words.every = LAST_DAY_OF_MONTH
        return True
    return set_every(words, LAST_DAY_OF_MONTH)


def _yearly_date(words: TimeWords, match: re.Match[str]) -> bool:
    days = checked_days((_ordinal_of(match["day"]),), match[0])
    return set_every(words, Repetition(month_days=days, months=(_month_of(match["month"]),)))


def _months(words: TimeWords, match: re.Match[str]) -> bool:
    if words.every is None or words.every.months:
        return False
    found: set[int] = set()
    for part in re.finditer(spell_umlauts(rf"({MONTH})(?:{_RANGE}({MONTH}))?"), match["months"]):
        first, last = _month_of(part[1]), _month_of(part[2] or part[1])
        found |= {(month - 1) % 12 + 1 for month in range(first, last + (13 if last < first else 1))}
    words.every = structs.replace(words.every, months=tuple(sorted(found)))
    return True


def _minutes_of_hours(words: TimeWords, match: re.Match[str]) -> bool:
    hours = _numbers_of(match["hours"]) if match["hours"] else ()
    minutes = _numbers_of(match["minutes"]) if match["minutes"] else tuple(range(60))
    if match["step"]:
        step = int(match["step"])
        if not 1 <= step <= 30 or 60 % step:
            raise TimeRefused("every_range", given=match[0])
        minutes = tuple(range(0, 60, step))
    if (hours and hours[-1] > 23) or minutes[-1] > 59:
        raise TimeRefused("clock_range", given=match[0])
    if words.every is None:
        return set_every(words, Repetition(minutes=minutes, hours=hours))
    if words.every.minutes or words.every.span is not None:
        return False
    words.every = structs.replace(words.every, minutes=minutes, hours=hours)
    return True


def _daily_after_minutes(words: TimeWords, _match: re.Match[str]) -> bool:
    return words.every is not None and bool(words.every.minutes)


def phrase(pattern: str, read: Read) -> Phrase:
    """Compile a phrase."""
    return Phrase(re.compile(spell_umlauts(pattern)), read)


GERMAN_PHRASES: tuple[Phrase, ...] = (
    phrase(rf"einmal(?:ig)?{_END}\s*,?", read_once),
    phrase(
        r"(?:am|de[nr])\s+(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?:(?P<year>\d{4}|\d\d))?" + _END, read_numbered_date
    ),
    phrase(
        rf"(?:am\s+|der\s+)?(?P<nth>letzte[nrs]?|{_ORDINAL_WORD}|\d{{1,2}}\.)\s+(?P<name>{WEEKDAY}|werktag|arbeitstag|tag)\s+"
        rf"(?:(?:im|des)\s+(?P<month>{MONTH})(?:\s*(?P<year>(?:19|2\d)\d\d){_END}(?![:.]))?|(?:im\s+|des\s+)?(?P<offset>diese[ns]|{_NEXT})\s+monate?s?{_END})",
        _counted_day,
    ),
    # How often. The longer phrases come first.
    phrase(
        rf"(?:in\s+minuten?\s+(?P<minutes>{_NUMBERS})|alle\s+(?P<step>\d{{1,2}})\s+minuten|jede\s+minute)\s+in\s+"
        rf"(?:jeder\s+stunde{_END}|stunden?\s+(?P<hours>{_NUMBERS}){_END})",
        _minutes_of_hours,
    ),
    phrase(
        rf"(?:am\s+|(?P<every>jede[nrs]\s+)(?:monat\s+am\s+)?)?(?P<nth>letzte[nrs]?|{_ORDINAL_WORD}|\d{{1,2}}\.)\s+"
        rf"(?P<name>{WEEKDAY}|werktag|arbeitstag|tag){_END}(?:\s+(?P<scope>{_OF_MONTH}))?",
        _ordinal_weekday,
    ),
    phrase(rf"(?:am\s+)?(?:monatsende|ende\s+jedes\s+monats|letzten\s+tag\s+{_OF_MONTH}){_END}", _last_day_of_months),
    phrase(rf"(?:am\s+)?(?:(?P<days>{_NUMBERS})|(?P<named>{_ORDINAL_WORD}))\s+(?:tag\s+)?{_OF_MONTH}", _month_days),
    phrase(rf"(?P<link>,?\s*wenn\s+es\s+ein|und\s+jeden)\s+(?P<names>{_NAMES})(?:\s+ist{_END})?", _and_weekdays),
    phrase(
        rf"jede[ns]\s+(?:jahr\s+am\s+)?(?P<day>\d{{1,2}}\.|{_ORDINAL_WORD})\s*(?P<month>{MONTH})",
        _yearly_date,
    ),
    phrase(
        rf"jede[nrs]?\s+(?P<nth>{_ORDINAL_WORD}|\d{{1,2}}\.)\s+(?P<unit>tag|woche|monat|stunde|minute|jahr){_END}",
        _every_nth_unit,
    ),
    phrase(rf"jeden\s+(?P<days>\d{{1,2}}\.){_END}(?!\s*{MONTH})(?:\s+{_OF_MONTH})?", _month_days),
    phrase(
        rf"(?:{_EVERY}\s+|an\s+)?(?P<name>werktags?|werktagen|wochentags|wochentagen|arbeitstags?|arbeitstagen){_END}"
        r"(?:\s+\(montag\s+bis\s+freitag\))?",
        _every_workday,
    ),
    phrase(
        rf"(?:(?:jedes|an)\s+(?=wochenenden?{_END}))?(?P<name>wochenenden|(?<=jedes )wochenende|wochenends){_END}",
        _every_name,
    ),
    phrase(rf"jeden\s+tag{_END}", _daily_after_minutes),
    phrase(
        rf"jede[nrs]?\s+(?P<name>tag|morgen|vormittag|mittag|nachmittag|abend|nacht|woche|monat|jahr|viertelstunde|halbe\s+stunde|stunde"
        rf"|minute|quartal){_END}",
        _every_name,
    ),
    phrase(
        r"(?P<name>täglich|wöchentlich|vierzehntägig|zweiwöchentlich|monatlich|vierteljährlich|quartalsweise|jährlich|stündlich)"
        + _END,
        _every_name,
    ),
    phrase(rf"(?P<every>{_EVERY}\s+)?(?:am\s+)?(?P<names>{_NAMES})", _every_weekdays),
    phrase(rf"(?P<every>{_EVERY}\s+)(?P<names>{_SHORT_NAMES})", _every_weekdays),
    phrase(rf"(?P<every>)(?P<names>{_SHORT}\s*[-–]\s*{_SHORT})", _every_weekdays),
    phrase(rf"{_EVERY}\s+(?P<span>{_SPAN})", _every_span),
    phrase(rf"im\s+(?P<months>{_MONTH_NAMES})(?!\s*\d)", _months),
    phrase(rf",?\s*(?:gezählt\s+ab|beginnend(?:\s+(?:am|ab|mit))?|ab(?:\s+(?:dem|am))?){_END}", read_start),
    # Which day.
    phrase(rf"(?:vorgestern|gestern)(?:\s+{_PART})?{_END}", read_over),
    phrase(rf"(?:letzte|vergangene|vorige)[nrs]?\s+(?:woche|monat|jahr|nacht|{WEEKDAY}){_END}", read_over),
    phrase(rf"vor\s+{_SPAN}{_END}", read_over),
    phrase(rf"(?:bald|später|irgendwann|gleich|sofort|jetzt|demnächst|nachher|mal){_END}", read_vague),
    phrase(rf"in\s+(?:kürze|einer\s+weile|(?:ein\s+)?paar\s+\w+|einigen\s+\w+){_END}", read_vague),
    phrase(
        rf"(?:am\s+|de[nr]\s+)?(?P<day>{_DAY_NUMBER})\s*(?P<month>{MONTH})"
        rf"(?:\s*(?P<year>(?:19|2\d)\d\d|'\d\d){_END}(?![:.]))?",
        _date,
    ),
    phrase(
        rf"(?:am\s+)?(?:letzten\s+tag|ende)\s+(?P<month>dieses|des\s+monats|des\s+{_NEXT}|{_NEXT})(?:\s+monats)?{_END}",
        _last_day,
    ),
    phrase(
        rf"am\s+(?P<days>{_NUMBERS})(?:(?<=\.)|$)(?:\s+(?:des\s+)?(?P<month>dieses|{_NEXT})\s+monats{_END})?(?!\s*\d)",
        _day_of_month,
    ),
    phrase(
        rf"(?P<day>überübermorgen|übermorgen|heute|heut|morgen){_END}(?:\s+(?P<part>{_PART}){_END}(?!\s+essen))?", _day
    ),
    phrase(
        rf"(?:am\s+(?:frühen\s+|späten\s+)?(?P<on>morgen|vormittag|mittag|nachmittag|abend)|in\s+der\s+(?P<during>nacht|früh)"
        rf"|(?P<name>frühmorgens|früh|morgens|vormittags?|mittags?|nachmittags?|abends?|nachts?)){_END}(?!\s+essen)"
        r"(?P<early>(?=\s+um\s+(?:[0-5]|eins?|zwei|drei|vier|fünf)(?!\w)))?",
        _part,
    ),
    phrase(rf"(?:am\s+)?übernächste[nr]?\s+(?P<name>{WEEKDAY}){_END}", _weekday_after_next),
    phrase(rf"(?:am\s+)?(?P<name>{WEEKDAY})\s+nach\s+dem\s+nächsten{_END}", _weekday_after_next),
    phrase(
        rf"(?:am\s+)?(?P<name>{_SHORT}),?\s+(?:den\s+)?(?=\d{{1,2}}\.)(?P<part>(?!))?(?P<modifier>)(?P<week>)", _weekday
    ),
    phrase(
        rf"(?:(?:am|den)\s+)?(?:(?P<modifier>diese[nr]|{_NEXT})\s+)?(?P<name>{WEEKDAY}|(?<=\bam ){_SHORT})\s*(?P<part>{_PART})?{_END}"
        rf"(?:\s+(?:in\s+|(?:in\s+)?der\s+)?(?P<week>diese[r]?|{_NEXT})\s+woche{_END})?",
        _weekday,
    ),
    phrase(rf"(?:(?:am|dieses)\s+)?(?P<next>{_NEXT}\s+)?wochenende{_END}", _weekend),
    phrase(rf"{_NEXT}\s+(?P<unit>woche|monats?|jahr){_END}", _next_unit),
    phrase(rf"(?:in|nach)\s+(?:(?:etwa|ungefähr|circa|zirka|genau)\s+|ca\.?\s+)?(?P<span>{_SPAN}){_END}", _span),
)
