"""What is refused comes with the nearest readings, as they can be typed."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from bubbot.features.schedule.refusal import refusal_text
from bubbot.texts import Texts
from bubbot.times.phrases import read_time
from bubbot.times.reading import ReadingContext
from bubbot.times.refusal import TimeRefused
from bubbot.times.request import split_request

CONTEXT = ReadingContext(datetime(2026, 11, 23, 13, 30, tzinfo=UTC), ZoneInfo("Europe/Berlin"))  # a Monday


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("21.30", ["21:30"]),
        ("5 minutes", ["in 5 minutes", "every 5 minutes"]),
        ("for 2 hours", ["in 2 hours", "every 2 hours"]),
        ("within 3 days", ["in 3 days", "every 3 days"]),
        ("zwei Stunden", ["in zwei Stunden"]),
        ("innerhalb von 2 Stunden", ["in 2 Stunden"]),
        ("5分钟", ["5分钟后"]),
        ("两小时之内", ["两小时后"]),
        ("五日内", ["五日后"]),
        ("5", ["at 5"]),
        ("around 5pm", ["5pm"]),
        ("gegen 5 Uhr", ["5 Uhr"]),
        ("五点左右", ["五点"]),
        ("大概五点", ["五点"]),
        ("五点前", ["五点"]),
        ("between 9 and 10", ["at 9"]),
        ("at 9-10", ["at 9"]),
        ("at 5 or 6", ["at 5"]),
        ("before 5pm", ["at 5pm"]),
        ("every day at 9 until friday", ["every day at 9"]),
        ("6 december 8", ["6 december at 8"]),
        ("6 december 30", ["6 december 2030"]),
        ("6. Dezember 8", ["6. Dezember at 8"]),
        ("monday and thursday at 8", ["every monday and thursday at 8"]),
        ("tomorrow at midnight", ["tomorrow at 00:00", "tomorrow at 23:59"]),
        ("3/4", ["2027-03-04", "2027-04-03"]),
        ("3/4/2027 at 9am", ["2027-03-04 at 9am", "2027-04-03 at 9am"]),
        ("tomorrow 9am CST", ["tomorrow 9am America/Chicago", "tomorrow 9am Asia/Shanghai", "tomorrow 9am America/Havana"]),
        ("tomorrow 9am EAT", ["tomorrow 9am Africa/Nairobi"]),
        ("0 0 9 * * 1-5", ["0 9 * * 1-5"]),
        ("0 9 ? * 1-5", ["0 9 * * 1-5"]),
        ("0 9 * * mon#5", ["0 9 * * monL"]),
        ("yesterday", []),
        ("soon", []),
        ("in 0 minutes", []),
        ("stretch", []),
    ],
)  # fmt: skip
def test_a_time(typed: str, nearest: list[str]) -> None:
    with pytest.raises(TimeRefused) as raised:
        read_time(typed, CONTEXT)
    assert list(raised.value.values.get("nearest", ())) == nearest  # type: ignore[call-overload]
    for words in nearest:
        assert read_time(words, CONTEXT).when.next_after(CONTEXT.now, CONTEXT.zone) is not None


@pytest.mark.parametrize(
    ("typed", "nearest", "text"),
    [
        ("20 min yoga", ["in 20 min yoga", "every 20 min yoga"], "yoga"),
        ("5分钟喝水", ["5分钟后喝水"], "喝水"),
        ("tomorrow 9 call Ann", ["tomorrow at 9: call Ann"], "call Ann"),
        ("14th April 15 dentist", ["14th April at 15: dentist"], "dentist"),
        ("Anna morgen um 9 Uhr anrufen", ["morgen um 9 Uhr: Anna anrufen"], "Anna anrufen"),
        ("me tomorrow to call Ann at 5pm", ["tomorrow 5pm: call Ann", "5pm tomorrow: call Ann"], "call Ann"),
        ("around 5pm call Ann", ["5pm call Ann"], "call Ann"),
        ("五点左右喝水", ["五点喝水"], "喝水"),
        ("3/4 at 9am dentist", ["2027-03-04 at 9am dentist", "2027-04-03 at 9am dentist"], "dentist"),
        ("tomorrow 9pm IST: call", ["tomorrow 9pm Asia/Kolkata: call", "tomorrow 9pm Asia/Jerusalem: call"], "call"),
        ("at 5pm EAT call", ["at 5pm Africa/Nairobi call"], "call"),
    ],
)
def test_a_request(typed: str, nearest: list[str], text: str) -> None:
    with pytest.raises(TimeRefused) as raised:
        split_request(typed, CONTEXT)
    found = list(raised.value.values["nearest"])  # type: ignore[call-overload]
    assert found[: len(nearest)] == nearest
    assert {split_request(words, CONTEXT).text for words in nearest} == {text}


@pytest.mark.parametrize("language", ["en", "zh", "de"])
def test_the_refusal_ends_with_them_in_every_language(language: str) -> None:
    with pytest.raises(TimeRefused) as raised:
        read_time("5 minutes", CONTEXT)
    assert refusal_text(raised.value, Texts(language)).splitlines()[1:] == ["in 5 minutes", "every 5 minutes"]
