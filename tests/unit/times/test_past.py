"""Days that are over, as people type them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from bubbot.times.past import read_past_day

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
