"""Days that are over, as people type them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.times.past import find_past_days, read_past_day

BERLIN = ZoneInfo("Europe/Berlin")
SUNDAY = datetime(2026, 11, 29, 14, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("today", 29),
        ("Heute", 29),
        ("今天", 29),
        ("yesterday", 28),
        ("gestern", 28),
        ("昨天", 28),
        ("vorgestern", 27),
        ("monday", 23),
        ("Monday.", 23),
        ("last friday", 27),
        ("on tuesday", 24),
        ("am Dienstag", 24),
        ("letzten Montag", 23),
        ("星期三", 25),
        ("上周三", 25),
        ("sunday", 29),
        ("3 days ago", 26),
        ("vor 3 Tagen", 26),
        ("3天前", 26),
        ("two weeks ago", 15),
        ("an hour ago", 29),
    ],
)
def test_a_day_of_this_month(text: str, day: int) -> None:
    assert read_past_day(text, SUNDAY, BERLIN) == date(2026, 11, day)


@pytest.mark.parametrize("text", ["3 May", "may 3rd", "3. Mai", "5月3日"])
def test_a_day_of_the_year_that_is_over(text: str) -> None:
    assert read_past_day(text, SUNDAY, BERLIN) == date(2026, 5, 3)


@pytest.mark.parametrize("text", ["15 March 2024", "March 15, 2024", "15. März 2024", "2024年3月15日"])
def test_a_day_with_its_year(text: str) -> None:
    assert read_past_day(text, SUNDAY, BERLIN) == date(2024, 3, 15)
    assert read_past_day(text.replace("2024", "2027"), SUNDAY, BERLIN) is None


def test_it_is_the_day_of_the_zone() -> None:
    late = datetime(2026, 11, 28, 23, 30, tzinfo=UTC)  # a Sunday in Berlin already
    assert read_past_day("today", late, BERLIN) == date(2026, 11, 29)
    assert read_past_day("sunday", late, BERLIN) == date(2026, 11, 29)
    assert read_past_day("yesterday", late, UTC) == date(2026, 11, 27)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "every monday",
        "next month",
        "tomorrow",
        "in 3 days",
        "in 2 weeks",
        "明天",
        "下周一",
        "ago",
        "vor",
        "x ago",
    ],
)
def test_other_texts_are_no_day_that_is_over(text: str) -> None:
    assert read_past_day(text, SUNDAY, BERLIN) is None


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("What did we say yesterday?", ["11-28"]),
        ("Was habe ich vorgestern über das Auto gesagt?", ["11-27"]),
        ("昨天我们聊了什么？", ["11-28"]),
        ("我在5月4号遇到了什么麻烦？", ["05-04"]),
        ("what happened on the 4th of July, and on May 4?", ["07-04", "05-04"]),
        ("was war am 3. Mai?", ["05-03"]),
        ("what did I tell you last Monday", ["11-23"]),
        ("上周三说了什么", ["11-25"]),
        ("two weeks ago, and on 2026-11-16", ["11-15", "11-16"]),
        ("yesterday, gestern and 昨天", ["11-28"]),
        ("on Friday", ["11-27"]),
        ("on Monday", []),
        ("on December 3", []),
        ("on 2026-12-03, tomorrow or on December 3 2027", []),
        ("I may have 3 of them", []),
        ("my birthday is in March", []),
        ("the 35th of May, 2026-13-45 and 0月0日", []),
        ("", []),
    ],
)
def test_the_days_that_a_text_speaks_of(text: str, days: list[str]) -> None:
    found = find_past_days(text, SUNDAY, BERLIN)
    assert [(first, last) for first, last in found] == [
        (date.fromisoformat(f"2026-{day}"), date.fromisoformat(f"2026-{day}")) for day in days
    ]


@pytest.mark.parametrize("text", ["what did we do last week?", "letzte Woche", "上周聊了什么"])
def test_the_last_week_is_seven_days(text: str) -> None:
    assert find_past_days(text, SUNDAY, BERLIN) == [(date(2026, 11, 16), date(2026, 11, 22))]


def test_a_text_speaks_of_few_days() -> None:
    text = " and ".join(f"2026-11-{day:02}" for day in range(1, 29))
    assert len(find_past_days(text * 1000, SUNDAY, BERLIN)) == 4


WORDS = (
    "yesterday gestern 昨天 前天 last letzten 上周 monday montag 周三 week woche ago vor 天前 day days weeks tagen of the an ein ? "
    "may märz maerz feb. 5月4号 0月0日 2024 2027 0000 9999-12-31 2026-02-30 0 1 4th 31 31. 99 999"
)


@given(st.lists(st.sampled_from(WORDS.split()) | st.text(max_size=3), max_size=8), st.sampled_from(["", " "]))
def test_no_text_makes_it_fail_or_look_ahead(words: list[str], space: str) -> None:
    for first, last in find_past_days(space.join(words), SUNDAY, BERLIN):
        assert first <= last <= date(2026, 11, 29)
