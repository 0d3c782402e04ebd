"""Times as people type them: read phrase by phrase, to the last character. Pure.

All languages are one table: a phrase of one may follow one of another.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, tzinfo

from msgspec import Struct

from bubbot.times.chinese import CHINESE_PHRASES, find_chinese_clocks
from bubbot.times.english import ENGLISH_PHRASES, find_english_clocks
from bubbot.times.german import GERMAN_PHRASES, find_german_clocks
from bubbot.times.nearest import add_nearest
from bubbot.times.reading import ReadingContext, TimeReading, TimeWords
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import MAX_INTERVAL, When, parse_rule_text
from bubbot.times.zones import read_chinese_zone, read_zone

MAX_TIME_CHARS = 500
"""The longest text that is read as a time."""
_PHRASES = ENGLISH_PHRASES + CHINESE_PHRASES + GERMAN_PHRASES
_GAP = re.compile(r"(?:[\s,，、]|[的在于](?=\S))*")
_CLOSING = re.compile(r"[\s.。!！?？,，;；]*(?:(?:please|pls|thanks|thank you|bitte|danke|谢谢)[\s.。!！]*)?$")
_DOTTED_DATE = re.compile(r"(?<!\d)\d{1,2}\.\d{1,2}\.$")
_SIMPLIFIED = str.maketrans(
    "點週後鐘個號兩時禮這間開從過隔會等麼末內聽晝", "点周后钟个号两时礼这间开从过隔会等么末内听昼"
)


class TimeRun(Struct, frozen=True):
    """Words that were read, up to `end`."""

    words: TimeWords
    end: int


def normalize(text: str) -> str:
    """Return the text in lower case, with plain digits and signs; every character stays at its place."""
    return "".join(_plain(char) for char in text).translate(_SIMPLIFIED)


def _plain(char: str) -> str:
    plain = unicodedata.normalize("NFKC", char).lower()
    return plain if len(plain) == 1 else char


def read_run(text: str, start: int, zone: tzinfo, typed: str = "") -> TimeRun:
    """Read phrases from here on, as far as they go. `text` is `typed`, normalized. Raise `TimeRefused`."""
    words, end = TimeWords(), start
    while end < len(text):
        position = _skip_gap(text, end)
        following = _read_phrase(words, text, position, zone) or _read_zone(words, text, typed or text, position, zone)
        if following <= position:
            break
        end = following
    return TimeRun(words, end)


def _skip_gap(text: str, position: int) -> int:
    match = _GAP.match(text, position)
    return match.end() if match else position


def _read_phrase(words: TimeWords, text: str, position: int, zone: tzinfo) -> int:
    """Read one phrase; return where it ends, or 0 if there is none."""
    for phrase in _PHRASES:
        match = phrase.pattern.match(text, position)
        if match is not None and match.end() > position and phrase.read(words, match):
            return match.end()
    name = str(zone).lower()
    for opening, closing in ("()", "（）"):
        if text.startswith(f"{opening}{name}{closing}", position) and words.is_time:
            return position + len(name) + 2
    return _read_clocks(words, text, position)


def _read_zone(words: TimeWords, text: str, typed: str, position: int, own: tzinfo) -> int:
    """Read the zone of a time; return where it ends, or 0 if there is none."""
    if words.zone is not None:
        return 0
    found = read_chinese_zone(text, position)
    if found is None and (words.clocks or words.has_date):
        has_half = bool(words.clocks and words.clocks[-1].half)
        found = read_zone(text, typed, position, own, has_half=has_half)
    if found is None:
        return 0
    words.zone, end = found
    return end


def _read_clocks(words: TimeWords, text: str, position: int) -> int:
    """Read times of day in the language that reaches further; return where they end, or 0 if there are none."""
    if words.clocks:
        return 0
    may_be_year = words.month is not None and words.year is None
    english = find_english_clocks(text, position, has_anchor=words.has_anchor, may_be_year=may_be_year)
    chinese = find_chinese_clocks(text, position)
    german = find_german_clocks(text, position)
    clocks, end = max((chinese, english, german), key=lambda found: (bool(found[0]), found[1]))
    words.clocks.extend(clocks)
    return end if clocks else 0


def strip_closing(text: str) -> str:
    """Return the text without the signs and the courtesy at its end."""
    return text if _DOTTED_DATE.search(text) else _CLOSING.sub("", text)


def read_time(source: str, context: ReadingContext) -> TimeReading:
    """Read a time: a rule as it is stored, or as people type it.

    `0 9 * * 1-5`, `every 90m`, `at 5pm`, `tomorrow 9am EST`, `last friday of the month at 16:00`, 每周五下午三点, `jeden Freitag um halb neun`.

    Raises:
        TimeRefused: it is no time, or not sure; the nearest readings come with it.
    """
    try:
        return read_words(source, context)
    except TimeRefused as error:
        raise add_nearest(error, source.strip(), lambda text: read_words(text, context)) from None


def read_words(source: str, context: ReadingContext) -> TimeReading:
    """Read a time, without a look for what else could be meant. Raise `TimeRefused`."""
    given = " ".join(source.split())
    if (rule := parse_rule_text(given)) is not None:
        return TimeReading(rule)
    text = strip_closing(normalize(given))
    if not text or len(text) > MAX_TIME_CHARS:
        raise TimeRefused("when_unknown", given=f"{given[:100]}…" if len(given) > 100 else given)
    run = read_run(text, 0, context.zone, given)
    if run.end < len(text):
        if run.end and run.words.is_time:
            raise TimeRefused("when_rest", given=given, rest=given[run.end : len(text)].strip(" ,，"))
        raise TimeRefused("when_unknown", given=given)
    if not run.words.is_time:
        raise TimeRefused("when_unknown", given=given)
    return run.words.read(given, context)


def parse_when(source: str, context: ReadingContext) -> When:
    """Return the rule that a time means. Raise `TimeRefused`."""
    return read_time(source, context).when


def parse_duration(source: str) -> int:
    """Return the seconds of a length such as `90m`, `1h30m`, `half an hour` or 半小时, `eine halbe Stunde`. Raise `TimeRefused`."""
    text = strip_closing(normalize(" ".join(source.split())))
    for candidate in (f"in {text}", f"in 1 {text}", f"{text}后"):
        run = read_run(candidate, 0, UTC)
        span = run.words.span
        if run.end == len(candidate) and span is not None and not (span.months or run.words.clocks):
            seconds = span.days * 86400 + span.seconds
            if not 0 < seconds <= MAX_INTERVAL.total_seconds():
                raise TimeRefused("every_range", given=source)
            return seconds
    raise TimeRefused("duration_unknown", given=source)
