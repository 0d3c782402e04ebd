"""Times in Chinese: the phrases of which one is made, and what each of them says. Pure.

As for English, with one difference: there are no spaces, so a phrase says itself how far it reaches.
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
    add_spans,
    phrase,
    read_once,
    read_over,
    read_start,
    read_vague,
    read_weekday_of_weeks,
    set_counted_day,
    set_every,
)
from bubbot.times.reading import Repetition, Span, TimeWords
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import ALL_DAYS, WORKDAYS

_DIGITS = "零一二三四五六七八九"
_WEEKDAYS = "日一二三四五六"
_N = r"(?:\d{1,4}(?:\.\d)?|[零〇一二两三四五六七八九十百廿卅]+)"
_WEEK = r"(?:个)?(?:周|星期|礼拜)"
_DAY = r"[一二三四五六日天1-7]"
_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "凌晨": "dawn", "清早": "morning", "清晨": "morning", "早晨": "morning", "早上": "morning", "上午": "morning",
        "早": "morning", "中午": "noon", "正午": "noon", "午后": "afternoon", "下午": "afternoon", "傍晚": "dusk",
        "晏昼": "afternoon", "下昼": "afternoon", "晚上": "evening", "夜晚": "evening", "夜里": "night", "深夜": "night", "晚": "evening",
    }
)  # fmt: skip
_PART = r"(?:凌晨|清早|清晨|早晨|早上|上午|中午|正午|午后|下午|[晏下]昼|傍晚|晚上|夜晚|夜里|深夜|[早晚](?=\s?\d))"
_UNITS: Mapping[str, Span] = MappingProxyType(
    {
        "秒": Span(seconds=1), "分": Span(seconds=60), "刻": Span(seconds=900), "小": Span(seconds=3600),
        "钟": Span(seconds=3600), "时": Span(seconds=3600), "天": Span(days=1), "日": Span(days=1), "周": Span(days=7),
        "星": Span(days=7), "礼": Span(days=7), "月": Span(months=1), "年": Span(months=12),
    }
)  # fmt: skip
_UNIT = r"(?:秒钟?|分钟?|刻钟|小时|钟头|天|日|周|星期|礼拜|月|年)"
_PIECE = rf"(?:半个?\s*(?:小时|钟头|天|年)|半分钟|{_N}\s*个?半?\s*{_UNIT}半?)"
_SPAN = rf"{_PIECE}(?:\s*[零又]?\s*{_PIECE})*"
_PIECES = re.compile(rf"(?P<half>半)?(?P<number>{_N})?\s*个?(?P<and_half>半)?\s*(?P<unit>秒|分|刻|小|钟头|天|日|周|星|礼|月|年)"
                     r"(?:钟|时|期|拜)?(?P<more>半)?")  # fmt: skip
_NOT_MINUTES = r"(?![个只条件位名块本张次杯片粒颗瓶碗遍元号月日年天小点分份件双把辆台篇封部首道顿罐袋箱盒包])"
_NOT_HALF = r"(?![价糖场程天年个小])"
_CLOCK = re.compile(
    rf"(?P<part>{_PART})?的?\s*(?:"
    r"(?P<digits>\d{1,2})[:：](?P<digit_minute>\d{2})(?:[:：](?P<second>\d{2}))?(?![\d:])"
    rf"|差\s*(?P<before>{_N})\s*(?P<before_unit>分|刻)钟?\s*(?P<before_hour>{_N})\s*点"
    rf"|(?P<hour>{_N})\s*[点时](?:\s*钟|整|正(?!在))?(?:\s*[踏搭]?(?P<half>半){_NOT_HALF}(?:\s*(?P<half_second>{_N})\s*秒)?|\s*(?:[踏搭](?P<fives>[一二两三四五六七八九十]{{1,2}})|(?P<fives_>[一二两三四五六七八九十]{{1,2}})个字)|\s*过?(?P<quarter>[一三1-3])\s*刻钟?"
    rf"|\s*过?(?P<minute>{_N})\s*分钟?(?!之?后)(?:\s*(?P<minute_second>{_N})\s*秒)?|\s*(?P<short>\d{{2}}|[零〇]\s*[一二三四五六七八九]|[二三四五]?十[一二三四五六七八九]?){_NOT_MINUTES})?"
    r"|(?P<midnight>半夜|午夜|零时)(?:(?:十二|12|零|0)点)?"
    r"|(?P<noon>正午)(?![\d一二三四五六七八九十]))"
)
_CLOCK_JOIN = re.compile(r"\s*(?:和|及|与|、|,|，|以及)\s*")
_IN = re.compile(r"(?:在|于|到|的)?\s*")


def number_of(text: str) -> float:
    """Return the number that digits or Chinese numerals stand for. Raise `ValueError` for other text."""
    if text[0].isdigit():
        return float(text)
    text = text.replace("〇", "零").replace("两", "二").replace("廿", "二十").replace("卅", "三十")
    hundreds, has_hundred, rest = text.rpartition("百")
    total = 100 * (_DIGITS.index(hundreds) if hundreds else 1) if has_hundred else 0
    rest = rest.lstrip("零") or ("零" if not has_hundred else "")
    tens, has_ten, ones = rest.rpartition("十")
    if has_ten:
        total += 10 * (_DIGITS.index(tens) if tens else 1)
    return total + (_DIGITS.index(ones) if ones else 0)


def _integer(text: str, source: str) -> int:
    try:
        return int(number_of(text))
    except ValueError:
        raise TimeRefused("number_unknown", given=source) from None


def _weekday_of(text: str) -> int:
    return 0 if text in "天日7" else int(text) if text.isdigit() else _WEEKDAYS.index(text)


def _span_of(text: str) -> Span | None:
    """Return a length of time; None if it has none."""
    pieces = []
    for match in _PIECES.finditer(text):
        number = number_of(match["number"]) if match["number"] else 0
        number += 0.5 * bool(match["half"]) + 0.5 * bool(match["and_half"]) + 0.5 * bool(match["more"])
        pieces.append((number, _UNITS[match["unit"][0]]))
    return add_spans(pieces)


def _clock_of(match: re.Match[str]) -> Clock:
    source, part = match[0].strip(), _PARTS.get(match["part"] or "", "")
    if match["midnight"]:
        return Clock(source, 0, is_exact=True, is_midnight=True)
    if match["noon"]:
        return Clock(source, 12, is_exact=True)
    if match["digits"]:
        hour, digit_second = match["digits"], int(match["second"] or 0)
        is_exact = hour.startswith("0") or int(hour) > 12
        return Clock(source, int(hour), int(match["digit_minute"]), digit_second, part=part, is_exact=is_exact)
    if match["before"]:
        minutes = _integer(match["before"], source) * (15 if match["before_unit"] == "刻" else 1)
        following = _integer(match["before_hour"], source)
        return Clock(source, (following - 2) % 12 + 1 if following <= 12 else following - 1, 60 - minutes, part=part)
    minute = 30 if match["half"] else 0
    fives = match["fives"] or match["fives_"]
    if fives:  # Cantonese counts the minutes by fives
        minute = 5 * _integer(fives, source)
    if match["quarter"]:
        minute = 15 * _integer(match["quarter"], source)
    elif match["minute"] or match["short"]:
        minute = _integer((match["minute"] or match["short"]).replace(" ", ""), source)
    said_second = match["half_second"] or match["minute_second"]
    second = _integer(said_second, source) if said_second else 0
    has_minute = fives or match["half"] or match["quarter"] or match["minute"] or match["short"]
    is_bare = not has_minute and source.endswith("点")
    hour = match["hour"]
    is_exact = hour.startswith("0") and len(hour) == 2
    return Clock(source, _integer(hour, source), minute, second, part=part, is_exact=is_exact, is_bare=is_bare)


def find_chinese_clocks(text: str, position: int) -> tuple[list[Clock], int]:
    """Find times of day, joined by 和, commas and the like; return where they end, too."""
    intro, end = _IN.match(text, position), position
    position = intro.end() if intro else position
    clocks: list[Clock] = []
    while match := _CLOCK.match(text, position):
        clocks.append(_clock_of(match))
        end = match.end()
        if (joined := _CLOCK_JOIN.match(text, end)) is None:
            break
        position = joined.end()
    return clocks, end


_DAYS: Mapping[str, int] = MappingProxyType({"今": 0, "明": 1, "听": 1, "后": 2, "大后": 3})


def _day(words: TimeWords, match: re.Match[str]) -> bool:
    if words.has_date or words.span is not None or (words.every is not None and not words.has_start):
        return False
    words.days = _DAYS[match["day"]]
    if match["part"]:
        words.part = _PARTS[match["part"]]
    return True


def _part(words: TimeWords, match: re.Match[str]) -> bool:
    if words.part or words.clocks:
        return False
    words.part = _PARTS[match["part"]]
    return True


def _weekday(words: TimeWords, match: re.Match[str]) -> bool:
    if words.weekday is not None or words.span is not None or (words.every is not None and not words.has_start):
        return False
    if words.week is not None and match["week"]:
        return False
    words.weekday = _weekday_of(match["day"])
    if match["week"]:
        words.week = _weeks_of(match["week"])
    return True


def _weeks_of(word: str) -> int:
    return word.count("下") if "下" in word else 0


def _week(words: TimeWords, match: re.Match[str]) -> bool:
    if words.has_date or words.every is not None:
        return False
    words.week = _weeks_of(match["week"])
    return True


def _weekend(words: TimeWords, match: re.Match[str]) -> bool:
    if words.has_date or words.every is not None:
        return False
    words.is_weekend = True
    if match["week"] and "下" in match["week"]:
        words.week = _weeks_of(match["week"])
    return True


def _date(words: TimeWords, match: re.Match[str]) -> bool:
    if words.day is not None or words.days is not None or words.span is not None:
        return False
    if words.every is not None and not words.has_start:
        return False
    parts, source = {name.rstrip("_"): value for name, value in match.groupdict().items() if value}, match[0]
    day = _integer(parts["day"], source)
    month = _integer(parts["month"], source) if parts.get("month") else None
    if not 1 <= day <= 31 or (month is not None and not 1 <= month <= 12):
        raise TimeRefused("date_unknown", given=source)
    words.day, words.month = day, month
    if parts.get("year"):
        year = parts["year"]
        digits = "".join(str(_DIGITS.index(char)) if char in _DIGITS else char for char in year.replace("〇", "零"))
        words.year = int(digits)
    if parts.get("year_name"):
        words.year_offset = {"今": 0, "明": 1, "后": 2}[parts["year_name"]]
    if parts.get("month_name"):
        words.month_offset = 0 if parts["month_name"] in ("这", "本", "今") else parts["month_name"].count("下")
    return True


def _counted_day(words: TimeWords, match: re.Match[str]) -> bool:
    """Read a day that is counted in one month, such as 十月第一个星期一."""
    return set_counted_day(
        words,
        *_counted_days(match),
        month=_integer(match["month"], match[0]) if match["month"] else None,
        year=int(match["year"]) if match["year"] else None,
        offset=match["offset"].count("下") if match["offset"] else None,
    )


def _counted_days(match: re.Match[str]) -> tuple[int, tuple[int, ...]]:
    """Return which of the days that count."""
    name = match["name"]
    weekdays = ALL_DAYS if name in ("天", "日") else WORKDAYS if name == "工作日" else (_weekday_of(name[-1]),)
    return -1 if match["nth"] is None else _integer(match["nth"], match[0]), weekdays


def _month_end(words: TimeWords, match: re.Match[str]) -> bool:
    if words.has_date or words.every is not None:
        return False
    words.ordinal, words.counted, name = -1, ALL_DAYS, match["month_name"] or ""
    words.month_offset = name.count("下") if name else None
    return True


def _next_unit(words: TimeWords, match: re.Match[str]) -> bool:
    if words.has_date or words.every is not None:
        return False
    if match["month"]:
        words.month_offset = 1
    else:
        words.year_offset = 1
    return True


def _span(words: TimeWords, match: re.Match[str]) -> bool:
    if words.has_date or words.span is not None or words.every is not None:
        return False
    text = match["span"] or match["bare"]
    if re.search(r"半(个?月|周|个?星期|天)", text):
        raise TimeRefused("when_vague", given=match[0])
    span = _span_of(text)
    if span is None:
        return False
    words.span = span
    return True


def _every_day(words: TimeWords, match: re.Match[str]) -> bool:
    if words.part or not set_every(words, Repetition(Span(days=1))):
        return False
    words.part = _PARTS.get(match["part"] or "", "")
    return True


def _every_workday(words: TimeWords, _match: re.Match[str]) -> bool:
    if words.every is not None and words.every.minutes and not words.every.weekdays:
        words.every = structs.replace(words.every, weekdays=WORKDAYS)
        return True
    return set_every(words, Repetition(weekdays=WORKDAYS))


def _weekdays_of(text: str) -> tuple[int, ...]:
    """Return the days of the week of 一三五, 一到五, 周一、周三 and the like."""
    found: set[int] = set()
    text = re.sub(r"个?(?:周|星期|礼拜)|每", "", text)
    for match in re.finditer(rf"({_DAY})(?:\s*(?:到|至|-|–)\s*({_DAY}))?", text):
        first = _weekday_of(match[1])
        last = _weekday_of(match[2]) if match[2] else first
        found |= {day % 7 for day in range(first, last + (8 if last < first else 1))}
    return tuple(sorted(found))


def _every_weekdays(words: TimeWords, match: re.Match[str]) -> bool:
    names = match["names"]
    weekdays = _weekdays_of(names)
    if words.every is not None:
        if words.every.weekdays or words.every.span is not None or not (words.every.month_days or words.every.minutes):
            return False
        words.every = structs.replace(words.every, weekdays=weekdays, is_open=False)
        return True
    return set_every(words, Repetition(weekdays=weekdays))


def _weekday_of_weeks(words: TimeWords, match: re.Match[str]) -> bool:
    return read_weekday_of_weeks(words, _weekdays_of(match["names"]))


def _if_weekday(words: TimeWords, match: re.Match[str]) -> bool:
    if words.every is None or not words.every.month_days or words.every.weekdays:
        return False
    words.every = structs.replace(words.every, weekdays=_weekdays_of(match["names"]), needs_both=True)
    return True


def _every_span(words: TimeWords, match: re.Match[str]) -> bool:
    span = _span_of(match["span"])
    if span is None or re.search(r"半(个?月|年|周|天)", match["span"]):
        return False
    return set_every(words, Repetition(span))


def _every_gap(words: TimeWords, match: re.Match[str]) -> bool:
    """Read 每隔两天: literally two days lie between, but many mean every second day."""
    span = _span_of(match["span"])
    if span is None:
        return False
    count = number_of(match["number"]) if match["number"] else 0
    if span.seconds or not count or match["half"]:
        return set_every(words, Repetition(span))
    longer = Span(span.months + round(span.months / count), span.days + round(span.days / count))
    others = (Repetition(span),) if count > 1 else ()
    return set_every(words, Repetition(longer, others=others))


def _every_unit(words: TimeWords, match: re.Match[str]) -> bool:
    spans = {
        "周": Span(days=7), "星期": Span(days=7), "礼拜": Span(days=7), "月": Span(months=1), "年": Span(months=12),
        "小时": Span(seconds=3600), "钟头": Span(seconds=3600), "分钟": Span(seconds=60),
        "刻钟": Span(seconds=900),
    }  # fmt: skip
    if match["unit"] in ("季度", "季"):
        return set_every(words, Repetition(month_days=(1,), months=(1, 4, 7, 10)))
    if match["unit"] == "周末":
        return set_every(words, Repetition(weekdays=(0, 6)))
    return set_every(words, Repetition(spans[match["unit"]]))


def _numbers_of(text: str, source: str) -> tuple[int, ...]:
    found: set[int] = set()
    for match in re.finditer(rf"({_N})\s*[日号]?(?:\s*(?:到|至|-)\s*({_N}))?", text):
        first = _integer(match[1], source)
        found |= set(range(first, (_integer(match[2], source) if match[2] else first) + 1))
    return tuple(sorted(found))


def _month_days(words: TimeWords, match: re.Match[str]) -> bool:
    days = _numbers_of(match["days"], match[0])
    if not days or days[0] < 1 or days[-1] > 31:
        raise TimeRefused("date_unknown", given=match[0])
    months: tuple[int, ...] = ()
    if match["month"]:
        months = (_integer(match["month"], match[0]),)
        if not 1 <= months[0] <= 12:
            raise TimeRefused("date_unknown", given=match[0])
    if words.every is not None and words.every.minutes and not words.every.month_days:
        words.every = structs.replace(words.every, month_days=days, months=words.every.months or months)
        return True
    others = (LAST_DAY_OF_MONTH,) if days == (31,) and not months else ()
    return set_every(words, Repetition(month_days=days, months=months, others=others))


def _ordinal_day(words: TimeWords, match: re.Match[str]) -> bool:
    ordinal, weekdays = _counted_days(match)
    if not (ordinal == -1 or 1 <= ordinal <= 4):
        return False
    if weekdays == ALL_DAYS and ordinal > 0:
        return set_every(words, Repetition(month_days=(ordinal,)))
    return set_every(words, Repetition(weekdays=weekdays, ordinal=ordinal))


def _last_day(words: TimeWords, _match: re.Match[str]) -> bool:
    return set_every(words, LAST_DAY_OF_MONTH)


def _months(words: TimeWords, match: re.Match[str]) -> bool:
    if words.every is None or words.every.months:
        return False
    found: set[int] = set()
    for part in re.finditer(rf"({_N})月(?:\s*(?:到|至|-)\s*({_N})月)?", match["months"]):
        first = _integer(part[1], match[0])
        last = _integer(part[2], match[0]) if part[2] else first
        found |= {(month - 1) % 12 + 1 for month in range(first, last + (13 if last < first else 1))}
    words.every = structs.replace(words.every, months=tuple(sorted(found)))
    return True


def _minutes_of_hours(words: TimeWords, match: re.Match[str]) -> bool:
    hours = _numbers_of(match["hours"], match[0]) if match["hours"] else ()
    if match["step"]:
        step = _integer(match["step"], match[0])
        if not 1 <= step <= 30 or 60 % step:
            raise TimeRefused("every_range", given=match[0])
        minutes = tuple(range(0, 60, step))
    else:
        minutes = _numbers_of(match["minutes"], match[0]) if match["minutes"] else tuple(range(60))
    if (hours and hours[-1] > 23) or minutes[-1] > 59:
        raise TimeRefused("clock_range", given=match[0])
    if words.every is None:
        return set_every(words, Repetition(minutes=minutes, hours=hours))
    if words.every.minutes or words.every.span is not None:
        return False
    words.every = structs.replace(words.every, minutes=minutes, hours=hours)
    return True


def _start_end(words: TimeWords, _match: re.Match[str]) -> bool:
    return words.has_start


def _same_weekday(words: TimeWords, match: re.Match[str]) -> bool:
    """Read the day of the week that is put after a date, in brackets."""
    if words.day is None or words.weekday is not None:
        return False
    words.weekday = _weekday_of(match["day"])
    return True


_DAYS_LIST = rf"{_N}\s*[日号]?(?:\s*(?:、|,|，|和|及|与|到|至|-)\s*{_N}\s*[日号]?)*"
_NOT_DIGITS = r"(?!(?<=\d)\d)(?!次)"
_NAME_LIST = (
    rf"{_DAY}{_NOT_DIGITS}"
    rf"(?:(?:\s*(?:、|,|，|和|及|与|到|至|-|–)\s*)?(?:每?{_WEEK})?{_DAY}{_NOT_DIGITS}(?!\s*[点时月号个天:：]))*"
)
_NAMES = rf"(?:{_WEEK})?{_NAME_LIST}"
_NOT_PLACE = r"(?![线楼门院房桌机店床馆舱])"


CHINESE_PHRASES: tuple[Phrase, ...] = (
    phrase(r"一次[,，]?", read_once),
    # How often. The longer phrases come first.
    phrase(
        rf"(?:每小时|(?P<hours>{_DAYS_LIST})\s*点)的\s*(?:每分钟|每\s*(?P<step>{_N})\s*分钟|第\s*(?P<minutes>{_DAYS_LIST})\s*分)",
        _minutes_of_hours,
    ),
    phrase(
        rf"(?:(?:(?P<year>\d{{4}})年)?(?P<month>{_N})月|(?P<offset>下+|这|本)个?月)的?\s*(?:第\s*(?P<nth>[一二三四五1-5])个?|最后一?个?|最末一?个?)\s*"
        rf"(?P<name>{_WEEK}{_DAY}|工作日|天|日)",
        _counted_day,
    ),
    phrase(
        rf"每个?月(?:的)?\s*(?:第\s*(?P<nth>[一二三四1-4])个?|最后一?个?|最末一?个?)\s*(?P<name>{_WEEK}{_DAY}|工作日|天|日)",
        _ordinal_day,
    ),
    phrase(r"每个?月(?:的)?(?:月底|月末|底|末)", _last_day),
    phrase(rf"每年(?:的)?\s*(?P<month>{_N})月\s*(?P<days>{_N})\s*[日号]", _month_days),
    phrase(rf"每个?月(?P<month>)(?:的)?\s*(?P<days>{_DAYS_LIST})(?<=[日号]){_NOT_PLACE}", _month_days),
    phrase(rf"(?:以及|和)?每逢\s*(?P<names>{_NAMES})", _every_weekdays),
    phrase(rf"且为\s*(?P<names>{_NAMES})", _if_weekday),
    phrase(
        rf"每隔\s*(?P<span>(?P<half>半)个?(?P<number>)(?:小时|钟头|天|年)|(?P<number_>{_N})\s*个?(?:小时|钟头|分钟?|刻钟|秒钟?))",
        _every_span,
    ),
    phrase(rf"每?隔\s*(?P<half>)(?P<span>(?P<number>{_N})\s*个?\s*(?:天|日|周|星期|礼拜|月|年))", _every_gap),
    phrase(r"每(?:个|一个?|1个?)?工作日(?:[（(]星期一至星期五[)）])?|工作日", _every_workday),
    phrase(r"每(?:一|1)?(?:天|日)(?P<part>)", _every_day),
    phrase(r"每(?:个|一个?)?(?P<part>早|晚)上?", _every_day),
    phrase(rf"每(?:个|一个?)?(?=周[^末]|星期|礼拜)(?P<names>{_WEEK}{_NAME_LIST})", _every_weekdays),
    phrase(rf"的?(?:每个?)?(?P<names>{_WEEK}{_NAME_LIST})", _weekday_of_weeks),
    phrase(rf"(?P<names>{_WEEK}{_DAY}\s*(?:到|至|-|–)\s*(?:{_WEEK})?{_DAY}){_NOT_DIGITS}", _every_weekdays),
    phrase(rf"每\s*(?P<span>{_SPAN})", _every_span),
    phrase(r"每(?:一|1)?个?(?P<unit>周末|周|星期|礼拜|月|年|小时|钟头|分钟|刻钟|季度|季)", _every_unit),
    phrase(rf"[（(](?P<months>{_N}月(?:\s*(?:、|和|及|到|至|-)\s*{_N}月)*)[)）]", _months),
    phrase(r"[,，]?\s*(?:从|自)", read_start),
    phrase(r"(?:算起|开始|起)", _start_end),
    # Which day.
    phrase(r"大?前天|昨[天日晚夜]|上个?(?:周|星期|礼拜|月)[一二三四五六日天]?|去年", read_over),
    phrase(rf"{_SPAN}\s*(?:之前|以前|前)", read_over),
    phrase(
        r"(?:再?过|等|待)?(?:一会儿?|会儿|一下儿?)(?:之?后|以后)?|待会儿?|晚点儿?|晚些时候|稍后|改天|改日|现在|马上|立刻"
        r"|有空的时候|不久(?:之?后)?|过?几(?:个|分钟|小时|天|周|星期|年|月)(?:小时|月|星期)?(?:之?后|以后)?",
        read_vague,
    ),
    phrase(r"(?P<day>今|明)(?P<part>早|晚)上?", _day),
    phrase(r"(?P<day>大后|后|今|明|听(?=日))[天日儿](?:的?(?P<part>早(?![上晨])|晚(?!上)))?", _day),
    phrase(r"(?P<week>下+|这|本|今)?个?周末", _weekend),
    phrase(rf"(?P<week>下+|这|本|今)?{_WEEK}(?P<day>{_DAY}){_NOT_DIGITS}", _weekday),
    phrase(rf"(?P<week>下+|这|本|今){_WEEK}", _week),
    phrase(rf"[（(]{_WEEK}(?P<day>{_DAY})[)）]", _same_weekday),
    phrase(
        rf"(?:(?:(?P<year>\d{{4}}|[零〇一二三四五六七八九]{{4}})年|(?P<year_name>[今明后])年)[\s,，]*(?P<month>{_N})月\s*(?P<day>{_N})(?:[日号]|(?![\d:点时]))"
        rf"|(?P<month_>{_N})月\s*(?P<day_>{_N})[日号])" + _NOT_PLACE,
        _date,
    ),
    phrase(rf"(?P<month_name>下+|这|本|今)个?月的?\s*(?P<day>{_N})[日号]{_NOT_PLACE}", _date),
    phrase(rf"(?P<day>{_N})[日号]{_NOT_PLACE}(?!之?[后内])", _date),
    phrase(r"(?:(?P<month_name>下+|这|本|今)个?)?月[底末]", _month_end),
    phrase(r"下个?(?P<month>月)|(?P<month_>)明年", _next_unit),
    phrase(
        rf"(?:再过|过|再等|等|再)?\s*(?P<span>{_SPAN})\s*(?:之后|以后|过后|后)(?!天)|(?:再过|过|再等)\s*(?P<bare>{_SPAN})",
        _span,
    ),
    phrase(rf"(?P<part>{_PART})", _part),
)
