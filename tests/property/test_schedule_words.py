"""Whatever schedule is told in words: the words, typed again, mean the same times."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bubbot.features.schedule.words import describe_schedule
from bubbot.texts import Texts
from bubbot.times.cron import parse_cron
from bubbot.times.instants import first_instant
from bubbot.times.phrases import parse_when
from bubbot.times.reading import ReadingContext
from bubbot.times.refusal import TimeRefused
from bubbot.times.request import split_request
from bubbot.times.rules import (
    ALL_DAYS,
    WORKDAYS,
    interval,
    next_instants,
    one_time,
    ordinal_day,
)

LANGUAGES = {tag: Texts(tag) for tag in ("en", "zh")}
NOW = datetime(2026, 3, 1, 13, 30, tzinfo=UTC)
ZONES = st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe"]).map(ZoneInfo)

CRONS = st.tuples(
    st.sampled_from(["*", "0", "30", "*/15", "*/7", "5,59", "0-10/5", "1-20"]),
    st.sampled_from(["*", "0", "7", "1,2", "*/2", "0-3", "23", "9-17", "8,9,10,20"]),
    st.sampled_from(["*", "*", "13", "1-31/2", "*/3", "25,29,1,8,4", "2-9"]),
    st.sampled_from(["*", "*", "mar-nov", "3,4,10,11", "12"]),
    st.sampled_from(["*", "*", "0", "7", "sat-sun", "1-5", "*/2", "2,4", "fri-mon"]),
).map(" ".join)
RULES = st.one_of(
    st.datetimes(datetime(2026, 3, 2), datetime(2031, 1, 1)).map(  # noqa: DTZ001
        lambda moment: one_time(moment.replace(tzinfo=UTC), "")
    ),
    st.sampled_from([datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]).map(lambda it: one_time(it, "")),
    st.builds(
        lambda minutes, seconds: interval(NOW + timedelta(seconds=seconds), seconds=60 * minutes + seconds % 60),
        st.integers(1, 5000),
        st.integers(0, 9_000_000),
    ),
    st.builds(
        lambda days, seconds: interval(NOW + timedelta(seconds=seconds), days=days),
        st.integers(1, 400),
        st.integers(0, 9_000_000),
    ),
    st.builds(
        ordinal_day,
        st.sampled_from([1, 2, 3, 4, -1]),
        st.sampled_from([(0,), (3,), (5,), WORKDAYS]),
        st.lists(st.times().map(lambda it: time(it.hour, it.minute)), min_size=1, max_size=1),
    ),
    st.just(ordinal_day(-1, ALL_DAYS, [time(9)])),
)


def same_times(rule: Any, zone: ZoneInfo, language: Texts) -> None:
    context = ReadingContext(NOW, zone)
    told = describe_schedule(rule, zone, language)
    again = parse_when(told, context)
    assert next_instants(again, zone, NOW, 8) == next_instants(rule, zone, NOW, 8), told


@pytest.mark.parametrize("language", LANGUAGES)
class TestEcho:
    @settings(max_examples=50, deadline=None)
    @given(rule=RULES, zone=ZONES)
    def test_a_rule(self, language: str, rule: Any, zone: ZoneInfo) -> None:
        same_times(rule, zone, LANGUAGES[language])

    @settings(max_examples=50, deadline=None)
    @given(text=CRONS, zone=ZONES)
    def test_a_cron_expression(self, language: str, text: str, zone: ZoneInfo) -> None:
        try:
            rule = parse_cron(text)
        except TimeRefused:
            assume(False)
        same_times(rule, zone, LANGUAGES[language])


WORDS = st.sampled_from(
    [
        "at",
        "5",
        "pm",
        "9:30",
        "tomorrow",
        "friday",
        "next",
        "every",
        "day",
        "week",
        "on",
        "the",
        "1st",
        "of",
        "month",
        "in",
        "20",
        "minutes",
        "to",
        "and",
        "or",
        "call",
        "Ann",
        "evening",
        "noon",
        "from",
        "until",
        "2026-12-24",
        "24",
        "december",
        "last",
        "EST",
        "ET",
        "utc+2",
        "Berlin",
        "time",
        "weeks",
        "after",
        "march",
        "first",
        "2030",
        "北京时间",
        "3/4",
        "half",
        "past",
        "quarter",
        "hour",
        "weekday,",
        ":",
        "每",
        "周",
        "五",
        "下",
        "午",
        "三",
        "点",
        "半",
        "小时",
        "后",
        "明天",
        "早上",
        "号",
        "月",
        "最后",
        "工作日",
        "提醒",
        "我",
        "喝水",
    ]
)


@settings(max_examples=300, deadline=None)
@given(words=st.lists(WORDS, min_size=1, max_size=12), space=st.sampled_from(["", " "]))
def test_any_words_are_read_or_refused_and_never_lost(words: list[str], space: str) -> None:
    typed, context = space.join(words), ReadingContext(NOW, ZoneInfo("Europe/Berlin"))
    with suppress(TimeRefused):
        request = split_request(typed, context)
        assert request.text in typed
        zone = ZoneInfo(request.reading.zone) if request.reading.zone else context.zone
        assert next_instants(request.reading.when, zone, NOW, 1)


WALLS = st.datetimes(datetime(2026, 3, 3), datetime(2031, 1, 1)).map(lambda it: it.replace(second=0, microsecond=0))  # noqa: DTZ001


@settings(max_examples=100, deadline=None)
@given(wall=WALLS, own=ZONES, said=ZONES)
def test_a_time_with_a_zone_is_the_instant_at_which_its_clock_shows_it(
    wall: datetime, own: ZoneInfo, said: ZoneInfo
) -> None:
    city = said.key.rpartition("/")[2].replace("_", " ")
    for words in (f"{wall:%Y-%m-%d %H:%M} {said.key}", f"{wall:%Y-%m-%d} at {wall:%H:%M} {city} time"):
        rule = parse_when(words, ReadingContext(NOW, own))
        assert next_instants(rule, own, NOW, 1) == [first_instant(wall, said)]
