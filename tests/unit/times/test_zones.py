"""The names of zones that people say: each is one that there is, and an abbreviation is what its zone has in a season."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from bubbot.times.instants import first_instant
from bubbot.times.phrases import read_time
from bubbot.times.reading import ReadingContext
from bubbot.times.rules import OneTime
from bubbot.times.zones import (
    ABBREVIATIONS,
    AMBIGUOUS,
    CAPITALS,
    CHINESE_REGIONS,
    REGIONS,
    ZONE_WORDS,
)

CONTEXT = ReadingContext(datetime(2026, 11, 23, 13, 30, tzinfo=UTC), ZoneInfo("UTC"))
SEASONS = (datetime(2027, 1, 15, 12), datetime(2027, 7, 15, 12))  # noqa: DTZ001 - wall-clock times


def test_every_name_is_a_zone() -> None:
    single = (CAPITALS, ZONE_WORDS, REGIONS, CHINESE_REGIONS)
    names = {name for table in single for name in table.values()} | {name for name, _ in ABBREVIATIONS.values()}
    names |= {name for several in AMBIGUOUS.values() for name in several}
    assert all(ZoneInfo(name) for name in names)


@pytest.mark.parametrize("abbreviation", ABBREVIATIONS)
def test_an_abbreviation_is_the_clock_of_its_zone_in_both_seasons_and_by_the_letter_in_one(abbreviation: str) -> None:
    zone, hours = ABBREVIATIONS[abbreviation]
    by_letter = 0
    for wall in SEASONS:
        reading = read_time(f"{wall:%Y-%m-%d} at noon {abbreviation.upper()}", CONTEXT)
        assert isinstance(reading.when, OneTime)
        assert reading.when.due_instant(UTC) == first_instant(wall, ZoneInfo(zone))
        literal = wall.replace(tzinfo=UTC) - timedelta(hours=hours)
        by_letter += reading.when.due_instant(UTC) == literal
        others = [other.due_instant(UTC) for other in reading.others if isinstance(other, OneTime)]
        assert others == [literal][: reading.when.due_instant(UTC) != literal]
    assert by_letter >= 1


@pytest.mark.parametrize("region", REGIONS)
def test_a_region_is_said_with_the_word_time(region: str) -> None:
    wall = SEASONS[1]
    words = f"{wall:%Y-%m-%d} at noon {region} time"
    if region in ("deutsch", "mitteleuropäisch", "wien", "zürch", "zürich", "moskau", "peking", "tokiot"):
        words = f"am {wall:%d.%m.%Y} um 12 Uhr {region}er Zeit"
    rule = read_time(words, CONTEXT).when
    assert rule.next_after(CONTEXT.now, UTC) == first_instant(wall, ZoneInfo(REGIONS[region]))


@pytest.mark.parametrize("region", CHINESE_REGIONS)
def test_a_zone_stands_before_or_after_a_time_in_chinese(region: str) -> None:
    wall = SEASONS[1]
    for words in (f"{region}时间2027年7月15日中午12点", f"2027年7月15日中午12点{region}时间"):
        rule = read_time(words, CONTEXT).when
        assert rule.next_after(CONTEXT.now, UTC) == first_instant(wall, ZoneInfo(CHINESE_REGIONS[region]))
