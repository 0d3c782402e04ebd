"""When jobs are due: every form, against a clock that is read minute by minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbot.features.schedule.refusal import refusal_text
from bubbot.features.schedule.words import describe_schedule
from bubbot.texts import Texts
from bubbot.times.cron import parse_cron
from bubbot.times.instants import first_instant, wall_time
from bubbot.times.phrases import parse_duration, parse_when
from bubbot.times.reading import ReadingContext
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import (
    OneTime,
    find_zone,
    newest_instants,
    next_instants,
    parse_stored_when,
)

BERLIN, NEW_YORK, LORD_HOWE = (ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"))
CHANGES = {
    (BERLIN, "spring"): datetime(2026, 3, 29, tzinfo=UTC),
    (BERLIN, "autumn"): datetime(2026, 10, 25, tzinfo=UTC),
    (NEW_YORK, "spring"): datetime(2026, 3, 8, 6, tzinfo=UTC),
    (NEW_YORK, "autumn"): datetime(2026, 11, 1, 5, tzinfo=UTC),
    (LORD_HOWE, "spring"): datetime(2026, 10, 3, 14, tzinfo=UTC),
    (LORD_HOWE, "autumn"): datetime(2026, 4, 4, 14, tzinfo=UTC),
}
"""Within two hours before or after each of these, the clock changes; on Lord Howe by half an hour."""
NOW = datetime(2026, 11, 22, 6, 40, tzinfo=UTC)  # a Sunday
MINUTE = timedelta(minutes=1)


def matches(cron: Any, wall: datetime) -> bool:
    """Crontab's rule, written once more."""
    date, name = wall.day in cron.days, (wall.weekday() + 1) % 7 in cron.weekdays
    day = (date or name) if cron.matches_either_day else (date and name)
    return wall.minute in cron.minutes and wall.hour in cron.hours and wall.month in cron.months and day


def lived(cron: Any, zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[datetime]:
    """What happens to somebody who looks at the clock every minute, and who does at once what the clock has passed; of
    jobs for every hour only what it shows."""
    highest = shown = wall_time(start - timedelta(days=1), zone)
    moment = start - timedelta(days=1)
    while (moment := moment + MINUTE) <= end:
        shown = wall_time(moment, zone)
        since = shown - MINUTE if cron.is_every_hour else highest
        highest = max(highest, shown)
        passed, due = since, False
        while (passed := passed + MINUTE) <= shown:
            due = due or matches(cron, passed)
        if due and moment > start:
            yield moment


def found(cron: Any, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    one, instants = cron.next_after(start, zone), []
    while one is not None and one <= end:
        instants.append(one)
        one = cron.next_after(one, zone)
    return instants


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "30", "*/15", "*/7", "5,59", "0-10/5"]),
    st.sampled_from(["*", "0", "1", "2", "3", "1,2", "*/2", "0-3", "23", "2-4"]),
    st.sampled_from(["*", "*", "*", "1-31/2", "*/3", "25,29,1,8,4"]),
    st.sampled_from(["*", "*", "mar-nov", "3,4,10,11"]),
    st.sampled_from(["*", "*", "0", "7", "sun", "sat-sun", "1-5", "*/2"]),
).map(" ".join)


class TestAgainstTheClock:
    @pytest.mark.parametrize(("zone", "season"), CHANGES, ids=[f"{zone.key}-{season}" for zone, season in CHANGES])
    @pytest.mark.parametrize(
        "text",
        ["30 2 * * *", "0 2 * * *", "*/10 1-3 * * *", "*/20 * * * *", "@hourly", "@daily", "45 1 * * 0", "5 */2 * * *"],
    )
    def test_both_changes_of_the_clock(self, text: str, zone: ZoneInfo, season: str) -> None:
        cron, start = parse_cron(text), CHANGES[zone, season] - timedelta(hours=9)
        end = start + timedelta(hours=30)
        assert found(cron, zone, start, end) == list(lived(cron, zone, start, end))

    @settings(max_examples=30, deadline=None)
    @given(FIELDS, st.sampled_from(sorted(CHANGES, key=str)), st.integers(0, 12 * 60))
    def test_any_expression_at_any_change(self, text: str, change: tuple[ZoneInfo, str], early: int) -> None:
        try:
            cron = parse_cron(text)
        except TimeRefused:
            return
        start = CHANGES[change] - timedelta(minutes=early)
        end = start + timedelta(hours=15)
        assert found(cron, change[0], start, end) == list(lived(cron, change[0], start, end))

    @pytest.mark.proof
    @settings(max_examples=5000, deadline=None)
    @given(FIELDS, st.sampled_from(sorted(CHANGES, key=str)), st.integers(0, 40 * 60))
    def test_thousands_of_expressions(self, text: str, change: tuple[ZoneInfo, str], early: int) -> None:
        cron, start = parse_cron(text), CHANGES[change] - timedelta(minutes=early)
        assert found(cron, change[0], start, CHANGES[change]) == list(lived(cron, change[0], start, CHANGES[change]))


def local(text: str, zone: ZoneInfo, start: datetime, count: int) -> list[str]:
    when = parse_when(text, ReadingContext(start, zone))
    return [one.astimezone(zone).strftime("%m-%d %H:%M %Z") for one in next_instants(when, zone, start, count)]


class TestClockChanges:
    @pytest.mark.parametrize(
        ("text", "start", "expected"),
        [
            # 29 March: 02:00 becomes 03:00.
            ("30 2 * * *", "2026-03-28", ["03-28 02:30 CET", "03-29 03:00 CEST", "03-30 02:30 CEST"]),
            ("15,45 2 * * *", "2026-03-29", ["03-29 03:00 CEST", "03-30 02:15 CEST"]),
            ("0 2,3 * * *", "2026-03-29", ["03-29 03:00 CEST", "03-30 02:00 CEST"]),
            ("0 * * * *", "2026-03-29", ["03-29 01:00 CET", "03-29 03:00 CEST", "03-29 04:00 CEST"]),
            ("30 * * * *", "2026-03-29", ["03-29 00:30 CET", "03-29 01:30 CET", "03-29 03:30 CEST"]),
            # 25 October: 03:00 becomes 02:00.
            ("30 2 * * *", "2026-10-24", ["10-24 02:30 CEST", "10-25 02:30 CEST", "10-26 02:30 CET"]),
            ("0 * * * *", "2026-10-25", ["10-25 01:00 CEST", "10-25 02:00 CEST", "10-25 02:00 CET", "10-25 03:00 CET"]),
            (
                "every 1d from 2026-10-24 02:30",
                "2026-10-24",
                ["10-24 02:30 CEST", "10-25 02:30 CEST", "10-26 02:30 CET"],
            ),
            (
                "every 24h from 2026-10-24 02:30",
                "2026-10-24",
                ["10-24 02:30 CEST", "10-25 02:30 CEST", "10-26 01:30 CET"],
            ),
            ("at 2026-03-29 02:30", "2026-03-01", ["03-29 03:00 CEST"]),
            ("at 2026-10-25 02:30", "2026-10-01", ["10-25 02:30 CEST"]),
        ],
    )
    def test_skipped_times_come_at_the_change_and_repeated_ones_once(
        self, text: str, start: str, expected: list[str]
    ) -> None:
        begins = datetime.fromisoformat(start).replace(tzinfo=BERLIN).astimezone(UTC)
        assert local(text, BERLIN, begins, len(expected)) == expected

    def test_a_zone_that_skips_a_whole_day(self) -> None:
        apia = ZoneInfo("Pacific/Apia")  # there was no 30 December 2011
        start = datetime(2011, 12, 29, 12, tzinfo=UTC)
        assert local("0 9 * * *", apia, start, 3) == ["12-29 09:00 -10", "12-31 00:00 +14", "12-31 09:00 +14"]

    def test_a_day_that_begins_at_one_o_clock(self) -> None:
        cairo = ZoneInfo("Africa/Cairo")
        assert local("@daily", cairo, datetime(2026, 4, 23, 12, tzinfo=UTC), 2) == [
            "04-24 01:00 EEST",
            "04-25 00:00 EEST",
        ]

    def test_comes_is_exact_to_the_second(self) -> None:
        gap = first_instant(datetime(2026, 3, 29, 2, 30), BERLIN)  # noqa: DTZ001
        assert gap == datetime(2026, 3, 29, 1, tzinfo=UTC)


class TestCron:
    @pytest.mark.parametrize(
        ("text", "weekdays"),
        [("* * * * 0", (0,)), ("* * * * 7", (0,)), ("* * * * sun", (0,)), ("* * * * MON-Fri", (1, 2, 3, 4, 5)),
         ("* * * * sat-sun", (0, 6)), ("* * * * fri-mon", (0, 1, 5, 6)), ("* * * * 5-7", (0, 5, 6)),
         ("* * * * 0-7", (0, 1, 2, 3, 4, 5, 6)), ("* * * * */2", (0, 2, 4, 6)), ("* * * * 1,3", (1, 3))],
    )  # fmt: skip
    def test_days_of_the_week(self, text: str, weekdays: tuple[int, ...]) -> None:
        assert parse_cron(text).weekdays == weekdays

    def test_a_step_may_be_as_wide_as_its_field(self) -> None:
        assert parse_cron("*/60 * * * *").minutes == (0,)
        assert parse_cron("0 */24 * * *").hours == (0,)

    def test_sunday_is_sunday(self) -> None:
        for text in ("0 9 * * 0", "0 9 * * 7", "0 9 * * sun"):
            assert local(text, BERLIN, NOW - timedelta(days=3), 1) == ["11-22 09:00 CET"]

    def test_either_day_field_is_enough_where_both_are_restricted(self) -> None:
        assert local("0 0 13 * 5", BERLIN, NOW, 4) == [
            "11-27 00:00 CET",
            "12-04 00:00 CET",
            "12-11 00:00 CET",
            "12-13 00:00 CET",
        ]

    def test_a_field_that_begins_with_a_star_is_no_restriction(self) -> None:
        assert local("0 0 */2 * mon", BERLIN, NOW, 3) == ["11-23 00:00 CET", "12-07 00:00 CET", "12-21 00:00 CET"]

    def test_twenty_ninth_of_february(self) -> None:
        when = parse_when("0 9 29 2 *", ReadingContext(NOW, BERLIN))
        assert [one.year for one in next_instants(when, BERLIN, datetime(2095, 1, 1, tzinfo=UTC), 3)] == [
            2096,
            2104,
            2108,
        ]

    @pytest.mark.parametrize(
        ("nickname", "same"),
        [("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"), ("@monthly", "0 0 1 * *"), ("@weekly", "0 0 * * sun"),
         ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@Hourly", "0 * * * *")],
    )  # fmt: skip
    def test_nicknames(self, nickname: str, same: str) -> None:
        assert local(nickname, BERLIN, NOW, 5) == local(same, BERLIN, NOW, 5)

    @pytest.mark.parametrize(
        ("text", "hint"),
        [("0", "1 field and"), ("0 9 * *", "4 fields"), ("0 9 * * 1 2026", "6 fields"), ("60 * * * *", "not a minute"), ("* 24 * * *", "not an hour"),
         ("* * 0 * *", "not a day of the month"), ("* * * 13 *", "not a month"), ("* * * * 8", "not a day of the week"),
         ("* * * * mo", "not a day of the week"), ("5/15 * * * *", "5-59/15"), ("*/90 * * * *", "every 90m"),
         ("22-3 * * * *", "backwards"), ("0 0 30 2 *", "never comes"), ("0 0 31 4,6 *", "never comes"),
         ("@reboot", "@hourly"), ("*-5 * * * *", "not a minute"), ("1,,2 * * * *", "not a minute"), ("*/0 * * * *", "step"),
         ("-1 * * * *", "not a minute"), ("* * L * *", "not a day"), ("* * * * 5#2", "not a day of the week"), ("١ * * * *", "not a minute")],
    )  # fmt: skip
    def test_what_is_no_expression_is_refused_with_its_fault(self, text: str, hint: str) -> None:
        with pytest.raises(TimeRefused) as raised:
            parse_cron(text)
        assert hint in refusal_text(raised.value, Texts())


class TestEveryAndAt:
    def test_every_is_anchored_so_that_a_restart_does_not_move_it(self) -> None:
        made = parse_when("every 90m", ReadingContext(NOW, BERLIN))
        restarted = parse_stored_when(made.text)
        for later in (NOW, NOW + timedelta(minutes=89), NOW + timedelta(minutes=90), NOW + timedelta(days=40)):
            assert restarted.next_after(later, BERLIN) == made.next_after(later, BERLIN)
        assert next_instants(made, BERLIN, NOW, 2) == [NOW + timedelta(minutes=90), NOW + timedelta(minutes=180)]

    def test_every_from_a_later_time_begins_there(self) -> None:
        assert local("every 2d from 2026-12-01 09:00", BERLIN, NOW, 2) == ["12-01 09:00 CET", "12-03 09:00 CET"]

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("90m", 5400),
            ("1h30m", 5400),
            ("1 hour and 30 minutes", 5400),
            ("2d", 172800),
            ("1w", 604800),
            ("day", 86400),
        ],
    )
    def test_durations(self, text: str, seconds: int) -> None:
        assert parse_duration(text) == seconds

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("at 2026-12-24 18:00", "12-24 18:00 CET"), ("at 2026-12-24T18:00", "12-24 18:00 CET"), ("at 9:05", "11-22 09:05 CET"),
         ("at 07:00", "11-23 07:00 CET"), ("at tomorrow 07:00", "11-23 07:00 CET"), ("at today 23:00", "11-22 23:00 CET"),
         ("2026-12-24 18:00", "12-24 18:00 CET"), ("at 2026-12-24T18:00+00:00", "12-24 19:00 CET"), ("in 20m", "11-22 08:00 CET"),
         ("at +2h", "11-22 09:40 CET"), ("in 1d", "11-23 07:40 CET")],
    )  # fmt: skip
    def test_one_time(self, text: str, expected: str) -> None:
        assert local(text, BERLIN, NOW, 2) == [expected]

    def test_a_time_that_is_over_stays_one_that_is_over(self) -> None:
        when = parse_when("at 2026-11-22 06:00", ReadingContext(NOW, BERLIN))
        assert isinstance(when, OneTime)
        assert (when.next_after(NOW, BERLIN), when.due_instant(BERLIN)) == (None, datetime(2026, 11, 22, 5, tzinfo=UTC))

    @pytest.mark.parametrize(
        "text",
        ["", "soon", "every 5s", "every 0m", "every 20 years", "every", "at 25:00", "in", "in a bit",
         "at 2026-02-30 10:00", "at", "every 1m from yesterday", "in 99999999w", "in 999999w", "every 999999w"],
    )  # fmt: skip
    def test_what_is_no_schedule_is_refused(self, text: str) -> None:
        with pytest.raises(TimeRefused):
            parse_when(text, ReadingContext(NOW, BERLIN))

    def test_a_zone_that_is_none_is_refused(self) -> None:
        for name in ("Mars/Olympus", "", "../../etc/passwd"):
            with pytest.raises(TimeRefused, match="zone_unknown"):
                find_zone(name)

    @pytest.mark.parametrize(
        "text", ["0 9 * * 1-5", "*/15 * * * *", "every 90m", "every 2d", "at 18:00", "in 20m", "@daily"]
    )
    def test_what_is_kept_means_the_same_at_any_later_time(self, text: str) -> None:
        made = parse_when(text, ReadingContext(NOW, BERLIN))
        assert parse_stored_when(made.text) == made


class TestMany:
    def test_the_newest_of_a_million_are_found_without_counting_them(self) -> None:
        cron, year = parse_cron("* * * * *"), NOW - timedelta(days=730)
        assert newest_instants(cron, BERLIN, year, NOW, 3) == [NOW - timedelta(minutes=back) for back in (2, 1, 0)]

    @pytest.mark.parametrize("text", ["0 9 29 2 *", "@monthly", "every 90m", "0 9 * * 1-5"])
    def test_the_newest_are_the_last_of_all(self, text: str) -> None:
        when, start = parse_when(text, ReadingContext(NOW - timedelta(days=2000), BERLIN)), NOW - timedelta(days=2000)
        every = [one for one in next_instants(when, BERLIN, start, 40_000 if "every" in text else 1500) if one <= NOW]
        assert newest_instants(when, BERLIN, start, NOW, 4) == every[-4:]
        assert newest_instants(when, BERLIN, every[-1], NOW, 4) == []


class TestWords:
    @pytest.mark.parametrize(
        ("text", "english", "chinese"),
        [
            ("0 9 * * 1-5", "every weekday at 09:00", "每个工作日（星期一至星期五） 09:00"),
            ("*/15 * * * *", "every 15 minutes of every hour", "每小时的每 15 分钟"),
            ("0 0 13 * 5", "on day 13 of every month and every Friday at 00:00", "每月 13 日以及每逢星期五 00:00"),
            (
                "0 9 1,15 jan,jul *",
                "on day 1 and 15 of every month at 09:00 in January and July",
                "每月 1和15 日 09:00（一月和七月）",
            ),
            ("*/10 9-17 * * *", "every 10 minutes of hour 9 to 17", "9至17 点的每 10 分钟"),
            ("at 2026-12-24 18:00", "once, on Thu 24 Dec 2026 at 18:00", "一次，2026年12月24日（周四） 18:00"),
            ("@hourly", "at minute 0 of every hour", "每小时的第 0 分"),
        ],
    )
    def test_a_schedule_is_told_with_its_zone(self, text: str, english: str, chinese: str) -> None:
        when = parse_when(text, ReadingContext(NOW, BERLIN))
        assert describe_schedule(when, BERLIN, Texts()) == f"{english} (Europe/Berlin)"
        assert describe_schedule(when, BERLIN, Texts("zh")) == f"{chinese}（Europe/Berlin）"
