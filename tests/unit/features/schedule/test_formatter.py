"""Jobs in words: every sentence that is put together, in both languages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from bubbot.command import Caller
from bubbot.errors import ValueInvalid
from bubbot.features.schedule.changes import (
    JobChanges,
    JobRequester,
    format_quiet_hours,
    parse_quiet_hours,
)
from bubbot.features.schedule.facts import Actor, ChatRef, Job
from bubbot.features.schedule.formatter import JobFormatter
from bubbot.features.schedule.records import ChatRulesResult
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import DeliveryState, ScheduleState
from bubbot.features.schedule.words import describe_schedule, format_moment
from bubbot.ports.channel import Role
from bubbot.tape.entry import TapeEntry, event
from bubbot.texts import Texts
from bubbot.texts.catalogue import list_languages
from bubbot.texts.lengths import format_length
from bubbot.times.phrases import parse_when
from bubbot.times.reading import ReadingContext
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import find_zone
from tests.schedules import stop

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
UTC_ZONE = find_zone("UTC")
LANGUAGES = list_languages("bubbot.texts")
ANN = {"channel": "test", "id": "1", "name": "Ann", "roles": []}
BOT = {"channel": "", "id": "", "name": "", "roles": []}
MARK = "2026-11-22T13:00:00Z"


def changes(role: Role = Role.OWNER, *, owns_all: bool = True) -> JobChanges:
    asker = JobRequester(Actor("test", "1", "Ann"), role, ChatRef("test", "1"), owns_all=owns_all)
    return JobChanges(ScheduleState(), asker, NOW, lambda: "abcdef", ScheduleSettings(), "UTC")


def job(**what: object) -> Job:
    return changes().add({"when": "0 * * * *", "text": "tea", **what})[0]


def facts() -> list[TapeEntry]:
    """Everything that can happen to a job."""
    ran = {"job": "abcdef", "mark": MARK, "turn": "t1", "status": "answered"}
    found = [
        event("schedule/added", {"job": "abcdef", "by": ANN}),
        event("schedule/changed", {"job": "abcdef", "by": ANN}),
        event("schedule/paused", {"job": "abcdef", "by": BOT, "reason": "reason_failing"}),
        event("schedule/resumed", {"job": "abcdef", "by": {**ANN, "id": "terminal"}, "since": MARK}),
        event("schedule/asked", {"job": "abcdef", "mark": f"{MARK}!1234", "by": ANN}),
        event("schedule/fired", {"job": "abcdef", "mark": f"{MARK}!1234"}),
        event("schedule/fired", {"job": "abcdef", "mark": MARK}),
        event("schedule/skipped", {"job": "abcdef", "first": MARK, "last": MARK, "reason": "reason_catch_up"}),
        event("schedule/ran", ran),
        event("schedule/failed", {**ran, "turn": "t2", "reason": "no\nluck", "count": 1}),
        event("schedule/ran", {**ran, "turn": "t3"}),
        event("schedule/refused", {"job": "abcdef", "mark": MARK, "reason": "reason_revoked"}),
        event("schedule/over", {"job": "abcdef", "reason": "reason_chat_gone", "detail": "blocked"}),
        event("schedule/removed", {"job": "abcdef", "by": ANN}),
    ]
    return [one.with_meta({}, "2026-11-22T13:00:01+00:00") for one in found]


DELIVERIES = {
    "t1": DeliveryState("delivered"),
    "t2": DeliveryState("undelivered", "too long"),
    "t3": DeliveryState("waiting"),
}


class TestHistory:
    def test_every_fact_has_its_line(self) -> None:
        lines = JobFormatter(Texts(), NOW, "UTC").format_history(job(), facts(), DELIVERIES).splitlines()
        assert [line.replace("2026-11-22 13:00:01 ", "") for line in lines] == [
            "added by Ann (test:1)",
            "changed by Ann (test:1)",
            "paused by me (it kept failing)",
            "resumed by the owner, from the terminal",
            "fired because Ann (test:1) asked for it",
            "fired, due 2026-11-22 13:00:00",
            "not fired: due 2026-11-22 13:00:00 to 2026-11-22 13:00:00 (missed, and not to be caught up with)",
            "ran, answered (due 2026-11-22 13:00:00, turn t1)",
            "  delivered (due 2026-11-22 13:00:00)",
            "failed: no luck (due 2026-11-22 13:00:00, turn t2)",
            "  not delivered: too long (due 2026-11-22 13:00:00)",
            "ran, answered (due 2026-11-22 13:00:00, turn t3)",
            "  delivery is under way (due 2026-11-22 13:00:00)",
            "did not run: whoever made it may no longer speak here (due 2026-11-22 13:00:00)",
            "over: its chat cannot be reached any more: blocked",
            "removed by Ann (test:1)",
        ]

    @pytest.mark.parametrize("tag", LANGUAGES)
    def test_a_language_has_them_all(self, tag: str) -> None:
        teller = JobFormatter(Texts(tag), NOW, "UTC")
        assert len(teller.format_history(job(), facts(), DELIVERIES).splitlines()) == 16
        assert teller.format_history(job(), [], {})


class TestJobs:
    @pytest.mark.parametrize("tag", LANGUAGES)
    def test_a_job_is_shown_whole(self, tag: str) -> None:
        made = changes()
        teller = JobFormatter(Texts(tag), NOW, "UTC")
        for what in ({"prompt": "what?"}, {"command": ",schedules"}, {"text": "tea"}):
            one, entries = made.add({"when": "0 * * * *", "name": "x", "until": "2026-12-01", "to": "test:2", **what})
            standing = made.state.with_facts(entries).jobs["abcdef"]
            shown = teller.format_details(replace(standing, failures=2))
            assert len(shown.splitlines()) == 8
            assert "test:2" in shown
            for status, reason in (("on", ""), ("paused", "reason_asked"), ("over", "reason_once")):
                line = teller.format_line(stop(standing, status, reason), "test:9")
                assert "x (abcdef)" in line
                assert "test:1" in line
            assert one.granted is not None

    @pytest.mark.parametrize("tag", LANGUAGES)
    def test_days_months_lengths_and_fields_have_words(self, tag: str) -> None:
        texts = Texts(tag)
        for day in range(7):
            assert format_moment(NOW + timedelta(days=day), UTC_ZONE, texts)
            assert describe_schedule(parse_when(f"5 4 * * {day}", ReadingContext(NOW, UTC_ZONE)), UTC_ZONE, texts)
        for month in range(1, 13):
            assert describe_schedule(parse_when(f"5 4 1 {month} *", ReadingContext(NOW, UTC_ZONE)), UTC_ZONE, texts)
        for seconds in (0, 5, 90, 3600, 90_000, 700_000):
            assert format_length(seconds, texts)
        for text in ("* * * * *", "1,2 * * * *", "1,7,9 1-9 * * *", "*/7 * * * *", "0 0 */2 * 1", "0 0 1 * 1"):
            assert describe_schedule(parse_when(text, ReadingContext(NOW, UTC_ZONE)), UTC_ZONE, texts)

    @pytest.mark.parametrize("tag", LANGUAGES)
    @pytest.mark.parametrize(
        "what",
        [{"when": "soon"}, {"when": "61 * * * *"}, {"when": "at 2026-01-01 10:00"}, {"prompt": ",x"}, {"command": "x"},
         {"prompt": "a", "command": ",b"}, {"text": ""}, {"zone": "Nowhere/At_All"}, {"until": "2020-01-01"}, {"runs": -1},
         {"jitter": 99_999}, {"catch_limit": 0}, {"to": "nowhere"}, {"until": "soon"}],
    )  # fmt: skip
    def test_what_is_refused_is_told_in_the_language_of_the_chat(self, what: dict[str, object], tag: str) -> None:
        given = {"when": "0 * * * *", **({"text": "tea"} if not {"prompt", "command"} & set(what) else {}), **what}
        with pytest.raises((ValueInvalid, TimeRefused)) as raised:
            changes().add(given)
        assert isinstance(raised.value, (ValueInvalid, TimeRefused))
        said = Texts(tag).say(raised.value.code, **raised.value.values)
        assert bool(re.search("[\u4e00-\u9fff]", said)) is (tag == "zh")

    @pytest.mark.parametrize(
        ("name", "least", "most"),
        [("catch_limit", 1, 100), ("jitter", 0, 3600), ("runs", 0, 1_000_000), ("budget", 0, 86_400)],
    )
    def test_the_first_and_the_last_of_the_numbers_allowed_are_taken(self, name: str, least: int, most: int) -> None:
        hourly = {"when": "0 * * * *", "text": "tea"}
        for number in (least, most):
            job, _ = changes().add({**hourly, name: number})
            assert getattr(job, "most" if name == "runs" else name) == number
        for refused in (least - 1, most + 1, True, 1.5):
            with pytest.raises((ValueInvalid, TimeRefused)):
                changes().add({**hourly, name: refused})

    def test_only_owners_may_set_what_reaches_beyond_the_chat(self) -> None:
        for what in ({"to": "test:2"}, {"nested": True}, {"urgent": True}):
            for role in (Role.ADMIN, Role.OWNER):
                with pytest.raises((ValueInvalid, TimeRefused), match="job_owner_only"):
                    changes(role, owns_all=False).add({"when": "0 * * * *", "text": "tea", **what})


class TestQuietHours:
    @pytest.mark.parametrize("tag", LANGUAGES)
    def test_the_rules_of_a_chat_are_told(self, tag: str) -> None:
        caller = Caller(texts=Texts(tag))
        told = ChatRulesResult("test:1", "UTC", None).describe(caller)
        assert "UTC" in told
        assert ("quiet hours: none" in told) is (tag == "en")
        told = ChatRulesResult("test:1", "Asia/Shanghai", (1320, 420)).describe(caller)
        assert "Asia/Shanghai" in told
        assert "22:00-07:00" in told

    @pytest.mark.parametrize(
        ("given", "kept"),
        [("22:00-07:00", "22:00-07:00"), ("9:30 to 10:00", "09:30-10:00"), ("none", None), ("OFF", None)],
    )
    def test_what_people_write(self, given: str, kept: str | None) -> None:
        found = parse_quiet_hours(given)
        assert (format_quiet_hours(found) if found else None) == kept

    @pytest.mark.parametrize("given", ["22-7", "25:00-07:00", "10:00-10:00", "10:61-11:00", "nights"])
    def test_what_is_none_is_refused(self, given: str) -> None:
        with pytest.raises((ValueInvalid, TimeRefused), match="job_quiet_form"):
            parse_quiet_hours(given)
