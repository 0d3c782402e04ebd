"""Times as people type them: the tables of all languages, in three zones, and what is told of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs

from bubbot.features.schedule.refusal import refusal_text
from bubbot.features.schedule.words import describe_schedule
from bubbot.texts import Texts
from bubbot.times.phrases import parse_duration, parse_when, read_time
from bubbot.times.reading import ReadingContext
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import OneTime, When, next_instants, parse_stored_when

MAX_TIME_CHARS = 500


TABLES = Path(__file__).parents[2] / "data" / "times"
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Shanghai")
LANGUAGES = {"english": "en", "chinese": "zh", "german": "de"}


@dataclass(frozen=True)
class Row:
    """A line of a table: the words, at a time of a zone, and what they mean."""

    words: str
    meaning: str
    clock: str
    zone: str

    @property
    def context(self) -> ReadingContext:
        zone = ZoneInfo(self.zone)
        return ReadingContext(datetime.fromisoformat(self.clock).replace(tzinfo=zone).astimezone(UTC), zone)


def rows(table: str) -> Iterator[Row]:
    clock: str = ""
    zones: tuple[str, ...] = ZONES
    for line in (TABLES / f"{table}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# now "):
            date, time, *named = line.removeprefix("# now ").split()
            clock, zones = f"{date} {time}", tuple(named) or ZONES
        elif "\t" in line:
            words, _, meaning = line.partition("\t")
            yield from (Row(words, meaning, clock, zone) for zone in zones)


ROWS = {table: list(rows(table)) for table in LANGUAGES}


def meaning_of(rule: When, context: ReadingContext) -> str:
    instants = next_instants(rule, context.zone, context.now, 3)
    shown = ", ".join(f"{instant.astimezone(context.zone):%Y-%m-%d %H:%M}" for instant in instants)
    return shown if isinstance(rule, OneTime) else f"each {shown}"


def context_of(row: Row, reading: Any) -> ReadingContext:
    """Return the context in which the rules of a reading count."""
    return structs.replace(row.context, zone=ZoneInfo(reading.zone)) if reading.zone else row.context


def found(row: Row) -> str:
    try:
        reading = read_time(row.words, row.context)
    except TimeRefused as error:
        return f"! {error.code}"
    context, zone = context_of(row, reading), f" @ {reading.zone}" if reading.zone else ""
    return " | ".join(meaning_of(rule, context) for rule in (reading.when, *reading.others)) + zone


@pytest.mark.parametrize("table", LANGUAGES)
class TestTables:
    def test_every_phrase_means_what_its_table_says_in_every_zone(self, table: str) -> None:
        wrong = [f"{row}: {what}" for row in ROWS[table] if (what := found(row)) != row.meaning]
        assert wrong == []

    def test_there_are_enough_of_each_kind(self, table: str) -> None:
        phrases = {row.words: row.meaning for row in ROWS[table]}
        assert len(phrases) >= 150
        assert sum(meaning.startswith("!") for meaning in phrases.values()) >= 40

    @pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.proof)])
    def test_what_is_told_means_the_same_when_it_is_typed(self, table: str, step: int) -> None:
        wrong, languages = [], [Texts(language) for language in LANGUAGES.values()]
        for row in ROWS[table][::step]:
            if row.meaning.startswith("!"):
                continue
            reading = read_time(row.words, row.context)
            context = context_of(row, reading)
            for rule in (reading.when, *reading.others):
                for texts in languages:
                    told = describe_schedule(rule, context.zone, texts)
                    again = parse_when(told, context)
                    if meaning_of(again, context) != meaning_of(rule, context):
                        wrong.append(f"{row.words}: {told}")
        assert wrong == []

    def test_what_is_stored_means_the_same(self, table: str) -> None:
        for row in ROWS[table]:
            if not row.meaning.startswith("!"):
                rule = parse_when(row.words, row.context)
                assert parse_stored_when(rule.text) == rule

    def test_a_refusal_gives_its_reason_and_an_example(self, table: str) -> None:
        refused = {row.meaning: row for row in ROWS[table] if row.meaning.startswith("!")}
        assert len(refused) > 10
        for row in refused.values():
            with pytest.raises(TimeRefused) as raised:
                read_time(row.words, row.context)
            english = refusal_text(raised.value, Texts())
            assert any(mark in english for mark in ("such as", "rite it like", "write one", "say a")), english
            chinese = refusal_text(raised.value, Texts("zh"))
            assert any(mark in chinese for mark in ("例如", "请写", "可以写")), chinese


CONTEXT = ReadingContext(datetime(2026, 11, 23, 13, 30, tzinfo=UTC), ZoneInfo("Europe/Berlin"))


class TestDefaults:
    def test_a_date_without_a_clock_takes_the_time_of_the_settings(self) -> None:
        early = ReadingContext(CONTEXT.now, CONTEXT.zone, datetime(2026, 1, 1, 7, 15).time())  # noqa: DTZ001
        assert [meaning_of(parse_when(words, early), early) for words in ("tomorrow", "周五")] == [
            "2026-11-24 07:15",
            "2026-11-27 07:15",
        ]

    def test_the_zone_in_brackets_changes_nothing_if_times_are_read_in_it(self) -> None:
        assert parse_when("tomorrow at 9am (Europe/Berlin)", CONTEXT) == parse_when("tomorrow at 9am", CONTEXT)

    def test_a_long_text_is_not_read_at_all(self) -> None:
        with pytest.raises(TimeRefused) as raised:
            parse_when("every day at 9 and " * MAX_TIME_CHARS, CONTEXT)
        assert raised.value.code == "when_unknown"


class TestChangedClock:
    @pytest.mark.parametrize(
        ("current", "words", "meaning"),
        [
            ("0 8 * * 1-5", "at 9:00", "each 2026-11-24 09:00, 2026-11-25 09:00, 2026-11-26 09:00"),
            ("@daily", "7am", "each 2026-11-24 07:00, 2026-11-25 07:00, 2026-11-26 07:00"),
            ("monthly last fri at 16:00", "10am", "each 2026-11-27 10:00, 2026-12-25 10:00, 2027-01-29 10:00"),
            (
                "every 2d from 2026-11-23T08:00:00Z",
                "下午6点",
                "each 2026-11-23 18:00, 2026-11-25 18:00, 2026-11-27 18:00",
            ),
            ("at 2026-12-24 18:00:00", "at 5pm", "2026-12-24 17:00"),
            ("at 2026-11-23 18:00:00", "at 8am", "2026-11-24 08:00"),
            ("0 8 * * 1-5", "tomorrow at 9am", "2026-11-24 09:00"),
            ("every 90m from 2026-11-23T08:00:00Z", "at 5pm", "2026-11-23 17:00"),
        ],
    )
    def test_a_mere_clock_keeps_the_days(self, current: str, words: str, meaning: str) -> None:
        context = ReadingContext(CONTEXT.now, CONTEXT.zone, current=parse_stored_when(current))
        assert meaning_of(parse_when(words, context), context) == meaning

    @pytest.mark.parametrize(
        ("current", "rule", "zone"),
        [
            ("at 2026-12-24 18:00:00", "at 2026-12-24T14:00:00Z", ""),
            ("0 8 * * 1-5", "0 9 * * 1-5", "America/New_York"),
            ("every 2d from 2026-11-23T08:00:00Z", "every 2d from 2026-11-23T14:00:00Z", "America/New_York"),
            ("monthly last fri at 16:00", "monthly last fri at 09:00", "America/New_York"),
        ],
    )
    def test_a_clock_with_a_zone_keeps_the_days_too(self, current: str, rule: str, zone: str) -> None:
        context = ReadingContext(CONTEXT.now, CONTEXT.zone, current=parse_stored_when(current))
        reading = read_time("9am EST", context)
        assert (reading.when.text, reading.zone) == (rule, zone)


class TestDurations:
    @pytest.mark.parametrize(
        ("words", "seconds"),
        [("90m", 5400), ("half an hour", 1800), ("半小时", 1800), ("两天", 172_800), ("an hour and a half", 5400), ("10分钟", 600)],
    )  # fmt: skip
    def test_lengths_are_read_by_the_same_phrases(self, words: str, seconds: int) -> None:
        assert parse_duration(words) == seconds

    @pytest.mark.parametrize("words", ["", "0m", "soon", "tomorrow", "a month", "at 5", "20 years", "9m and more"])
    def test_what_is_no_length_is_refused(self, words: str) -> None:
        with pytest.raises(TimeRefused):
            parse_duration(words)
