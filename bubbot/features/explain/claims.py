"""Claims: the parts of a sentence that an entry can be compared with: names, numbers, dates, times, codes and quotations.

Both sides, a statement and the entries that it cites, are read by the same functions, so that `1,250`, `1 250` and `１２５０`
are one number, and `21 November`, `Nov 21st` and `11月21日` one day.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from types import MappingProxyType

from bubbot.records import dataclass

Day = tuple[int | None, int, int]
"""A year, if one is named, a month and a day."""
ClockTime = tuple[str, int]
"""How a time is written (`plain`, `am/pm`, or `bare` for the digits of an am/pm time), and its minute of the day."""

MIN_STEM = 4
"""Letters that two forms of a word share at least."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBER_WORDS: Mapping[str, int] = MappingProxyType(
    {word: number for number, word in enumerate(
        ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), 2
    )}
)  # fmt: skip
_CJK_DIGITS: Mapping[str, int] = MappingProxyType(
    {"两": 2, **{char: number for number, char in enumerate("二三四五六七八九十", 2)}}
)
_RELATIVE: Mapping[str, int] = MappingProxyType(
    {"yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1, "昨天": -1, "今天": 0, "明天": 1, "后天": 2, "前天": -2}
)
_STARTER_WORDS = (
    "a about according after afterwards again all also although always an and another any as asked at because "
    "before both but by during each earlier either every everything finally first for from he her here his how "
    "however i if in into it its last later many most my nearly neither next no nobody none nor not nothing now of "
    "on once one only or other our out over people please since so some somebody someone somewhere soon still such "
    "than that the their them then there these they this those though through thus to together under until up was "
    "we were what when where whether which while who whoever why with within without yes yet you your"
)
_STARTERS = frozenset(_STARTER_WORDS.split())
"""Words with which a sentence may begin without naming anything."""
_REPORTING_WORDS = (
    "been being bot came come could does done entry gave give given going gone have having just like made make more "
    "much must said same says should tell than they told very went will would wrote answer answered message "
    "messages"
)
_COMMON_WORDS = _STARTERS | frozenset(_REPORTING_WORDS.split())
"""Words that say nothing of an entry: any text may have them."""
_COMMON_CHARS = frozenset(
    "的一是了我不在他她它有这个上们来到时为子你说着就那和要也得里后以会可下过去能对多于么之都看没只如把还用样做将向"
    "每并别再才便等却被给让从由与或及而且但因所其此该吗呢吧啊呀嘛问答告诉回复话讲提出天今昨明年月日号点分秒午晚早中"
    "间前内外第次位名条件些什怎哪谁几请写道叫记录消息者曾已经当同样最很太先又期候原果结总共容数量表示关系需使成功失败错误求执"
    "行调工具模型选择"
)
"""Characters that say nothing of an entry."""

_ISO = re.compile(r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_DOTTED = re.compile(r"(?<![\d.])(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\d)")
_SLASHED = re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4})(?!\d)")
_DAY_MONTH = re.compile(rf"(?<!\d)(\d{{1,2}})(?:st|nd|rd|th)?\.?\s+(?:of\s+)?{_MONTH}\b\.?(?:,?\s+(\d{{4}})(?!\d))?")
_MONTH_DAY = re.compile(rf"\b{_MONTH}\b\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?(?![\d:])(?:,?\s+(\d{{4}})(?!\d))?")
_CJK_DAY = re.compile(r"(?:(\d{4})\s*年)?\s*(\d{1,2})\s*月\s*(\d{1,2})\s*[日号]?")
_CLOCK = re.compile(r"(?<![\d:])(\d{1,2}):(\d{2})(?::\d{2})?(?!\d)(?:\s*([ap])\.?m\b\.?)?")
_HOUR = re.compile(r"(?<![\d:])(\d{1,2})\s*([ap])\.?m\b\.?")
_CJK_CLOCK = re.compile(r"(上午|早上|下午|晚上|中午)?\s*(\d{1,2})\s*[点时](?:\s*(\d{1,2})\s*分?|(半))?")
_MOMENTS = (_ISO, _DOTTED, _SLASHED, _DAY_MONTH, _MONTH_DAY, _CJK_DAY, _CLOCK, _HOUR, _CJK_CLOCK)
_TOKEN = re.compile(r"(?<![^\W_])[a-z\d]+(?:[./:@_-]+[a-z\d]+)*+(?![^\W_])")
_ORDINAL = re.compile(r"(?<!\d)(\d++)(?:st|nd|rd|th)")
_UNIT = re.compile(r"(\d+(?:[.,]\d+)?)([a-z]{1,4})")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d])")
_NUMBER = re.compile(r"\d(?:[\d.,'’_\u00a0\u202f]*\d)?")
_LETTERS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_CJK = "\u3005-\u3007\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_CJK_CHAR = re.compile(f"[{_CJK}]")
_CJK_RUN = re.compile(f"([{_CJK}\u3041-\u309f]+)")
_QUOTES = re.compile(r"“([^“”]+)”|\"([^\"]+)\"|„([^„“”]+)[“”]|«([^«»]+)»|「([^「」]+)」|『([^『』]+)』|`([^`]+)`")
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])\s*")
_SAME = str.maketrans(
    {"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "–": "-", "—": "-", "−": "-", "‐": "-", "‑": "-"}
)


@dataclass(frozen=True, slots=True)
class Claims:
    """What a sentence claims.

    Attributes:
        quotes: its quotations, folded.
        days: its dates.
        times: its times of day.
        numbers: each number, as the values that its spelling may have.
        codes: words with digits, such as `lh1234`.
        names: capitalised words that do not begin a sentence, folded.
        openers: capitalised words that begin a sentence, folded: names, or any other word.
        characters: Chinese characters and Katakana that are no function words.
        words: further words that say something.
    """

    quotes: tuple[str, ...] = ()
    days: tuple[Day, ...] = ()
    times: tuple[ClockTime, ...] = ()
    numbers: tuple[frozenset[str], ...] = ()
    codes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()
    characters: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What entries say, to be compared with claims.

    Attributes:
        texts: the folded texts, each by itself: a quotation stands in one of them.
        words: their folded words.
        numbers: the values of their numbers.
        codes: their words with digits.
        days: their dates, and those of the entries.
        times: their times of day, and those of the entries.
        characters: their characters.
    """

    texts: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    codes: frozenset[str] = frozenset()
    days: frozenset[Day] = frozenset()
    times: frozenset[ClockTime] = frozenset()
    characters: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, texts: Iterable[str], *, labels: Sequence[str] = (), day: date | None = None, minute: int = -1
    ) -> Evidence:
        """Read texts as evidence.

        Args:
            texts: what the entry says.
            labels: what is known of it besides, such as its author; no quotation stands there.
            day: when it was written, for `tomorrow` in its text.
            minute: of that day; -1 if unknown.
        """
        own = [fold(text) for text in texts]
        words: set[str] = set()
        numbers: set[str] = set()
        codes: set[str] = set()
        days: set[Day] = set() if day is None else {(day.year, day.month, day.day)}
        times: set[ClockTime] = set() if minute < 0 else {("plain", minute)}
        characters: set[str] = set()
        for text in [*own, *map(fold, labels)]:
            rest = _split_scripts(text)
            days |= set(_find_days(rest))
            times |= {form for found in _find_times(rest) for form in _forms(found)}
            plain = _blank(rest, _MOMENTS)  # the day of a date is no number of anything
            codes |= set(_find_codes(plain))
            numbers |= {value for group in _find_numbers(plain) for value in group}
            numbers |= {value for part in _NUMBER.findall(plain) for value in _values(part)}
            words |= {part for word in _LETTERS.findall(rest) for part in (word, *re.split("['-]", word))}
            characters |= set(text)
            if day is not None:
                days |= {_shift(day, by) for word, by in _RELATIVE.items() if word in text}
        words |= {_WEEKDAYS[known.weekday()] for each in days if (known := _date_of(each)) is not None}
        return cls(
            tuple(own), frozenset(words), frozenset(numbers), frozenset(codes), frozenset(days), frozenset(times),
            frozenset(characters),
        )  # fmt: skip

    def __add__(self, other: Evidence) -> Evidence:
        """Return what both say together."""
        return replace(
            self,
            texts=(*self.texts, *other.texts),
            words=self.words | other.words,
            numbers=self.numbers | other.numbers,
            codes=self.codes | other.codes,
            days=self.days | other.days,
            times=self.times | other.times,
            characters=self.characters | other.characters,
        )

    def find_missing(self, claims: Claims) -> str:
        """Return the first claim that is not found here, as it was read; empty if all are."""
        for quote in claims.quotes:
            if not self._has_quote(quote):
                return f'"{quote}"'
        for day in claims.days:
            if not self._has_day(day):
                return "-".join(str(part) for part in day if part is not None)
        for time in claims.times:
            if not self._has_time(time):
                return f"{time[1] // 60:02}:{time[1] % 60:02}"
        for number in claims.numbers:
            if not self._has_number(number):
                return min(number)
        for code in claims.codes:
            if not self._has_code(code):
                return code
        missing = [word for word in claims.names if not self._has_name(word)]
        missing += [word for word in claims.openers if not (self._has_name(word) or self._has_form(word))]
        missing += [char for char in claims.characters if not self._has_character(char)]
        return missing[0] if missing else ""

    def supports(self, claims: Claims) -> bool:
        """Return true if anything of a sentence is found here. Of a sentence that says nothing, nothing is."""
        return (
            any(map(self._has_quote, claims.quotes))
            or any(map(self._has_day, claims.days))
            or any(map(self._has_time, claims.times))
            or any(map(self._has_number, claims.numbers))
            or any(map(self._has_code, claims.codes))
            or any(map(self._has_name, claims.names))
            or any(map(self._has_form, (*claims.openers, *claims.words)))
            or any(char in self.characters for char in claims.characters)
        )

    def _has_quote(self, quote: str) -> bool:
        """Return true if one text has the quotation; `…` stands for what was left out of it."""
        parts = [part.strip() for part in re.split(r"\.{3}", quote) if part.strip()]
        return any(_stand_in_order(parts, text) for text in self.texts)

    def _has_day(self, day: Day) -> bool:
        year, month, number = day
        return any((month, number) == each[1:] and (None in (year, each[0]) or year == each[0]) for each in self.days)

    def _has_time(self, time: ClockTime) -> bool:
        form, minute = time
        if form == "plain":  # without a mark it may be either
            return any(each[1] == minute for each in self.times)
        return ("plain", minute) in self.times or ("am/pm", minute) in self.times

    def _has_number(self, number: frozenset[str]) -> bool:
        return not number.isdisjoint(self.numbers)

    def _has_code(self, code: str) -> bool:
        if code in self.codes:
            return True
        unit = _UNIT.fullmatch(code)  # 10kg, and the text has 10 kg
        return unit is not None and not _values(unit[1]).isdisjoint(self.numbers)

    def _has_name(self, word: str) -> bool:
        return word in self.words or word.removesuffix("'s") in self.words

    def _has_form(self, word: str) -> bool:
        """Return true if a form of the word is there: `booked` for `booking`."""
        if self._has_name(word):
            return True
        length = max(MIN_STEM, len(word) - 3)
        return len(word) >= MIN_STEM and any(each[:length] == word[:length] for each in self.words)

    def _has_character(self, char: str) -> bool:
        return char in self.characters or str(_CJK_DIGITS.get(char, "")) in self.numbers


def fold(text: str) -> str:
    """Fold a text: width, case, quotation marks, dashes and blanks are the same in all spellings."""
    folded = unicodedata.normalize("NFKC", text).translate(_SAME).casefold()
    return " ".join(folded.split())


def read_claims(sentence: str) -> Claims:
    """Read what a sentence claims."""
    plain = " ".join(unicodedata.normalize("NFKC", sentence).split())
    quotes = [next(part for part in found if part) for found in _QUOTES.findall(plain)]
    outside = _split_scripts(_QUOTES.sub(" ", plain)).translate(_SAME)
    rest = outside.casefold()
    days, times = list(_find_days(rest)), list(_find_times(rest))
    words = _blank(rest, _MOMENTS)
    codes = list(_find_codes(words))
    numbers = list(_find_numbers(words))
    names, openers, others = _find_names(outside, words)
    return Claims(
        tuple(fold(quote).strip(" .,;:!?") for quote in quotes if fold(quote).strip(" .,;:!?")),
        tuple(days),
        tuple(times),
        tuple(numbers),
        tuple(codes),
        names,
        openers,
        tuple(dict.fromkeys(char for char in _CJK_CHAR.findall(words) if char not in _COMMON_CHARS)),
        others,
    )


def split_sentences(text: str) -> list[str]:
    """Split a text into its sentences; what stands in quotation marks ends none."""
    masked = _QUOTES.sub(lambda match: re.sub(r"[.!?。！？；]", "_", match[0]), text)
    ends = [0, *(match.end() for match in _END.finditer(masked)), len(text)]
    return [part for low, high in pairwise(ends) if (part := text[low:high].strip())]


def _find_names(outside: str, words: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the names, the capitalised words that begin sentences, and the other words that say something."""
    known = set(_LETTERS.findall(words))
    names: dict[str, None] = {}
    openers: dict[str, None] = {}
    others: dict[str, None] = {}
    for sentence in split_sentences(outside):
        is_first = True
        for word in _LETTERS.findall(sentence):
            folded = word.casefold()
            is_part = folded not in known  # of a date or a time
            if word[0].isupper() and not is_part and folded.removesuffix("'s") not in _STARTERS:
                (openers if is_first and not word.isupper() else names)[folded] = None
            elif len(folded) >= MIN_STEM and folded not in _COMMON_WORDS and not is_part:
                others[folded] = None
            is_first = False
    return tuple(names), tuple(word for word in openers if word not in names), tuple(others)


def _split_scripts(text: str) -> str:
    """Put blanks around Chinese and Japanese, which stand next to digits and letters without any."""
    return _CJK_RUN.sub(r" \1 ", text) if not text.isascii() else text


def _find_days(text: str) -> Iterator[Day]:
    for pattern, order in ((_ISO, (0, 1, 2)), (_DOTTED, (2, 1, 0)), (_CJK_DAY, (0, 1, 2))):
        for match in pattern.finditer(text):
            groups = match.groups()
            year, month, day = (groups[place] for place in order)
            yield from _day(year, int(month), int(day))
    for match in _SLASHED.finditer(text):
        yield from _day(match[3], int(match[1]), int(match[2]))
        if match[1] != match[2]:
            yield from _day(match[3], int(match[2]), int(match[1]))
    for match in _DAY_MONTH.finditer(text):
        yield from _day(match[3], _MONTHS.index(match[2][:3]) + 1, int(match[1]))
    for match in _MONTH_DAY.finditer(text):
        yield from _day(match[3], _MONTHS.index(match[1][:3]) + 1, int(match[2]))


def _day(year: str | None, month: int, day: int) -> Iterator[Day]:
    if 1 <= month <= 12 and 1 <= day <= 31:
        yield None if year is None else int(year), month, day


def _find_times(text: str) -> Iterator[ClockTime]:
    for match in _CLOCK.finditer(text):
        yield from _time(int(match[1]), int(match[2]), match[3])
    for match in _HOUR.finditer(text):
        yield from _time(int(match[1]), 0, match[2])
    for match in _CJK_CLOCK.finditer(text):
        minute = 30 if match[4] else int(match[3] or 0)
        half = {"下午": "p", "晚上": "p", "上午": "a", "早上": "a"}.get(match[1] or "")
        yield from _time(int(match[2]), minute, half if int(match[2]) <= 12 else None)


def _time(hour: int, minute: int, half: str | None) -> Iterator[ClockTime]:
    if hour > 24 or minute > 59 or (half and not 1 <= hour <= 12):
        return
    if half is None:
        yield "plain", hour % 24 * 60 + minute
    else:
        yield "am/pm", (hour % 12 + (12 if half == "p" else 0)) * 60 + minute


def _forms(time: ClockTime) -> Iterator[ClockTime]:
    """Yield a time with what else people may write for it: `6:40` for `6:40 pm`."""
    yield time
    if time[0] == "am/pm":
        yield "bare", time[1] % 720 + (720 if time[1] % 720 < 60 else 0)


def _is_code(token: str) -> bool:
    has_digit, has_letter = re.search(r"\d", token), re.search("[a-z]", token)
    return bool(has_digit and has_letter) and _ORDINAL.fullmatch(token) is None


def _find_codes(text: str) -> Iterator[str]:
    yield from filter(_is_code, _TOKEN.findall(text))


def _find_numbers(text: str) -> Iterator[frozenset[str]]:
    """Yield each number as its possible values; those of codes are theirs."""
    rest = _TOKEN.sub(lambda match: " " if _is_code(match[0]) else _ORDINAL.sub(r"\1", match[0]), text)
    for match in _GROUPED.finditer(rest):
        yield frozenset({match[0].replace(" ", "")})
    for part in _NUMBER.findall(_GROUPED.sub(" ", rest)):
        yield _values(part)
    for word in _LETTERS.findall(rest):
        if word in _NUMBER_WORDS:
            yield frozenset({str(_NUMBER_WORDS[word])})


def _values(spelling: str) -> frozenset[str]:
    """Return the values that a number may have: `1.250` is 1250 or 1.25, as people write in different countries."""
    text = re.sub(r"['’_\u00a0\u202f]", "", spelling)
    marks = [mark for mark in text if mark in ".,"]
    if not marks:
        return frozenset({_plain(text)})
    if len(set(marks)) == 2:
        last = marks[-1]
        other = "," if last == "." else "."
        return frozenset({_plain(text.replace(other, "").replace(last, "."))})
    mark = marks[0]
    is_grouped = all(len(part) == 3 for part in text.split(mark)[1:]) and text[0] != "0"
    joined = {_plain(text.replace(mark, ""))} if is_grouped else set()
    if len(marks) > 1:
        return frozenset(joined or {text})
    if mark == "," and is_grouped:
        return frozenset(joined)
    return frozenset({*joined, _plain(text.replace(mark, "."))})


def _plain(text: str) -> str:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return text
    return f"{value:f}".rstrip("0").rstrip(".") if "." in text else str(int(value)) if len(text) < 40 else text


def _blank(text: str, patterns: Sequence[re.Pattern[str]]) -> str:
    for pattern in patterns:
        text = pattern.sub(" ", text)
    return text


def _shift(day: date, by: int) -> Day:
    other = day + timedelta(days=by)
    return other.year, other.month, other.day


def _date_of(day: Day) -> date | None:
    """Return a day whose year is known; None for any other, and for one that does not exist."""
    year, month, number = day
    try:
        return None if year is None else date(year, month, number)
    except ValueError:
        return None


def _stand_in_order(parts: Sequence[str], text: str) -> bool:
    place = 0
    for part in parts:
        found = text.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return bool(parts)
