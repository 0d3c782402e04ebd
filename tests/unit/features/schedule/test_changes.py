"""Changes that people make: which job is meant, who may change what, and which facts come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any

import pytest
from msgspec.structs import replace

from bubbot.errors import ValueInvalid
from bubbot.features.schedule.changes import (
    JobChanges,
    JobRequester,
    find_quiet_hours,
    format_quiet_hours,
    parse_chat_ref,
    parse_quiet_hours,
    shortest_gap,
)
from bubbot.features.schedule.facts import Actor, ChatRef
from bubbot.features.schedule.plan import QuietHours
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import JobState, ScheduleState
from bubbot.ports.channel import Role
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.fact import Cited
from bubbot.tape.provenance import Source, source_of
from bubbot.texts import Texts
from bubbot.times.cron import parse_cron
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import find_zone, interval, one_time
from tests.schedules import fold_job, make_job, stop

REFUSED = (ValueInvalid, TimeRefused)
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
HERE, THERE = ChatRef("test", "1"), ChatRef("test", "2")
ANN, BOB = Actor("test", "1", "Ann", ("staff",)), Actor("test", "2", "Bob")
TEA = {"when": "0 * * * *", "text": "tea"}


def changes(
    state: ScheduleState | None = None,
    *,
    by: Actor = ANN,
    role: Role = Role.OWNER,
    place: ChatRef = HERE,
    now: datetime = NOW,
    ids: Iterator[str] | None = None,
    source: Source = Source.OWN,
    owns_all: bool = True,
    nested: bool = False,
    **limits: Any,
) -> JobChanges:
    new_ids = ids or repeat("abcdef0123", 9)  # an id that is drawn for ever would hang
    requester = JobRequester(by, role, place, nested=nested, owns_all=owns_all)
    return JobChanges(
        state or ScheduleState(), requester, now, lambda: next(new_ids), ScheduleSettings(**limits), "UTC", source
    )


def stored(facts: list[TapeEntry], state: ScheduleState | None = None) -> ScheduleState:
    return (state or ScheduleState()).with_facts(facts)


def made(**fields: Any) -> JobState:
    """A job of Ann's."""
    (state,) = stored(changes().add({**TEA, **fields})[1]).jobs.values()
    return state


def state_of(*jobs: JobState) -> ScheduleState:
    return ScheduleState({job.job.id: job for job in jobs})


def job_named(
    job_id: str, name: str = "", place: ChatRef = HERE, text: str = "tea", status: str = "on", reason: str = ""
) -> JobState:
    job = make_job(id=job_id, name=name, place=place, by=ANN, text=text, since=timestamp(NOW))
    return stop(fold_job(job), status, reason)


def refusal(error: pytest.ExceptionInfo[Exception]) -> str:
    assert isinstance(error.value, REFUSED)
    return error.value.code


def outcome(act: Callable[[], str]) -> str:
    """Return what comes of it, or the sentence that refuses it."""
    try:
        return act()
    except REFUSED as error:
        return error.code


class TestFind:
    JOBS = state_of(
        job_named("abc123"),
        job_named("abd456", "stand up"),
        job_named("stand", "abc123 x"),
        job_named("c77", "c7"),
        job_named("c7"),
        job_named("fff999", "far", THERE),
    )

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("abc123", "abc123"),
            (" abc ", "abc123"),
            ("stand up", "abd456"),
            ("stand", "stand"),
            ("far", "fff999"),
            ("f", "fff999"),
            ("", "job_unknown"),
            ("  ", "job_unknown"),
            ("zzz", "job_unknown"),
            ("stand u", "abd456"),
            ("up stand", "abd456"),
            ("tand", "job_unknown"),  # a word is said from its beginning
            ("ab", "job_ambiguous"),
            ("c7", "job_ambiguous"),  # the id of one, and the name of another
        ],
    )
    def test_a_job_is_found_by_id_beginning_or_name(self, query: str, found: str) -> None:
        assert outcome(lambda: changes(self.JOBS).find(query).job.id) == found

    def test_the_jobs_of_other_chats_are_found_by_who_owns_all(self) -> None:
        for query in ("fff999", "f", "far"):
            with pytest.raises(REFUSED) as raised:
                changes(self.JOBS, owns_all=False).find(query)
            assert refusal(raised) == "job_unknown"
            assert changes(self.JOBS, owns_all=False, place=THERE).find(query).job.id == "fff999"

    @pytest.mark.parametrize(
        ("words", "found", "rest"),
        [
            ("abc123", "abc123", ""),
            ("abc123 at 9:00", "abc123", "at 9:00"),
            ("abc123 x at 9:00", "stand", "at 9:00"),
            ("stand up", "abd456", ""),
            ("stand up 10am", "abd456", "10am"),
            ("stand 10am", "stand", "10am"),
            ("zzz 10am", "job_unknown", ""),
            ("", "job_unknown", ""),
        ],
    )
    def test_as_many_words_as_possible_name_the_job(self, words: str, found: str, rest: str) -> None:

        def find() -> str:
            job, left = changes(self.JOBS).find_at_start(words)
            assert left == rest
            return job.job.id

        assert outcome(find) == found


class TestFindByWords:
    JOBS = state_of(
        job_named("a11111", text="call Ann"),
        job_named("b22222", text="call Ann about the party"),
        job_named("c33333", text="Feed the *cat*, twice"),
        job_named("d44444", text="明天给妈妈打电话"),
        job_named("e55555", text="water the plants", status="over", reason="reason_once"),
        job_named("f66666", text="water the garden"),
        job_named("ab7777", text="pay the rent", place=THERE),
        job_named("ab8888", text="pay the rent"),
    )

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("call Ann", "a11111"),  # all of the text
            ("call Ann party", "b22222"),
            ("CALL", "job_ambiguous"),
            ("cat", "c33333"),
            ("feed", "c33333"),
            ("at", "job_unknown"),
            ("feed Ann", "job_unknown"),
            ("打电话", "d44444"),
            ("water", "f66666"),  # the other one is over
            ("water plants", "e55555"),
            ("rent", "ab8888"),  # the other one is elsewhere
            ("b2", "b22222"),
        ],
    )
    def test_a_job_is_found_by_words_of_its_text(self, query: str, found: str) -> None:
        assert outcome(lambda: changes(self.JOBS).find(query).job.id) == found

    def test_of_several_it_is_asked_which_one(self) -> None:
        with pytest.raises(ValueInvalid) as raised:
            changes(self.JOBS).find("call")
        asked = "which one do you mean by 'call': call Ann (a11111), call Ann about the party (b22222)?"
        assert Texts().say(raised.value.code, **raised.value.values) == asked

    def test_nobody_finds_a_job_of_another_chat_by_its_words(self) -> None:
        assert outcome(lambda: changes(self.JOBS, owns_all=False, place=THERE).find("call Ann").job.id) == "job_unknown"

    def test_words_of_a_text_and_a_time_are_told_apart(self) -> None:
        job, rest = changes(self.JOBS).find_at_start("call Ann at 9:00")
        assert (job.job.id, rest) == ("a11111", "at 9:00")


class TestLists:
    JOBS = state_of(
        job_named("on"),
        job_named("paused", status="paused", reason="reason_asked"),
        job_named("once", status="over", reason="reason_once"),
        job_named("broken", status="over", reason="reason_broken"),
        job_named("far", place=THERE),
    )

    @pytest.mark.parametrize(
        ("owns_all", "in_all_chats", "include_ended", "found"),
        [
            (True, False, False, ["on", "paused", "broken"]),
            (True, False, True, ["on", "paused", "once", "broken"]),
            (True, True, False, ["on", "paused", "broken", "far"]),
            (False, False, False, ["on", "paused", "broken"]),
        ],
    )
    def test_which_jobs_are_listed(
        self, owns_all: bool, in_all_chats: bool, include_ended: bool, found: list[str]
    ) -> None:
        pending = changes(self.JOBS, owns_all=owns_all)
        jobs = pending.list_jobs(in_all_chats=in_all_chats, include_ended=include_ended)
        assert [job.job.id for job in jobs] == found

    def test_an_owner_in_a_group_is_told_that_other_chats_are_not_listed_here_and_others_see_their_own(self) -> None:
        with pytest.raises(REFUSED) as raised:
            changes(self.JOBS, owns_all=False).list_jobs(in_all_chats=True)
        assert refusal(raised) == "jobs_not_here"
        listed = changes(self.JOBS, owns_all=False, role=Role.ADMIN).list_jobs(in_all_chats=True)
        assert "far" not in [job.job.id for job in listed]


class TestAdd:
    def test_a_job_has_the_defaults_and_what_was_given(self) -> None:
        job, facts = changes().add(TEA)
        plain = make_job(id="abcdef", by=ANN, since=timestamp(NOW))
        assert job == plain
        (state,) = stored(facts).jobs.values()
        assert (state.job, state.covered) == (plain, NOW)
        given = {
            "name": " stand \n up ", "catch_up": "all", "catch_limit": 7, "jitter": 3, "runs": 4, "budget": 5, "urgent": True,
            "nested": True, "allow": ["web.get", "none", " shell.run  x ", "web.get", ""], "until": "2026-11-23 10:00",
            "zone": "Europe/Berlin", "to": "test:2:9",
        }  # fmt: skip
        job, facts = changes().add({**TEA, **given})
        assert job == replace(
            plain, name="stand up", catch_up="all", catch_limit=7, jitter=3, most=4, budget=5, urgent=True, nested=True,
            allow=("web.get", "shell.run x"), until="2026-11-23T09:00:00.000000+00:00", zone="Europe/Berlin",
            to=ChatRef("test", "2", "9"), granted=ANN,
        )  # fmt: skip
        assert [state.job for state in stored(facts).jobs.values()] == [job]

    def test_an_id_that_is_taken_is_drawn_again(self) -> None:
        ids = iter(["abc1234", "abc1235", "abc1299", "def1234"])
        first, facts = changes(ids=ids).add(TEA)
        second, _ = changes(stored(facts), ids=ids).add(TEA)
        assert (first.id, second.id) == ("abc123", "abc129")

    def test_a_name_is_cut_and_belongs_to_one_job_of_a_chat(self) -> None:
        assert len(changes().add({**TEA, "name": "x" * 99})[0].name) == 60
        taken = state_of(job_named("old", "tea"))
        with pytest.raises(REFUSED) as raised:
            changes(taken).add({**TEA, "name": "tea"})
        assert refusal(raised) == "job_name_taken"
        assert changes(taken, place=THERE).add({**TEA, "name": "tea"})[0].name == "tea"
        old = taken.jobs["old"]
        assert changes(taken).edit(old, {"name": "tea", "text": "coffee"})[0].text == "coffee"

    def test_jobs_that_are_over_do_not_count(self) -> None:
        jobs = [
            job_named("a"),
            job_named("b", status="paused"),
            job_named("c", status="over"),
            job_named("d", place=THERE),
        ]
        assert changes(state_of(*jobs), max_jobs_per_chat=3).add(TEA)
        with pytest.raises(ValueInvalid) as raised:
            changes(state_of(*jobs), max_jobs_per_chat=2).add(TEA)
        assert refusal(raised) == "job_too_many"
        assert raised.value.values["number"] == 2

    @pytest.mark.parametrize(
        ("fields", "sentence"),
        [
            ({"text": "  "}, "job_what"),
            ({"text": "a", "prompt": "b"}, "job_what"),
            ({"text": "", "command": "memory.show"}, "job_command"),
            ({"text": "", "command": ","}, "job_command"),
            ({"text": "", "prompt": ",memory.show"}, "job_prompt_comma"),
            ({"to": "test"}, "job_no_session"),
            ({"when": "at 2026-11-22 12:00"}, "at_past"),
            ({"until": "2026-11-22 12:00"}, "job_until_past"),
            ({"until": "in 0m"}, "when_zero"),
            ({"until": "every 5m"}, "when_unknown"),
            ({"until": "2026-11-22 12:59"}, "cron_never"),
        ],
    )
    def test_what_is_refused(self, fields: dict[str, Any], sentence: str) -> None:
        with pytest.raises(REFUSED) as raised:
            changes().add({**TEA, **fields})
        assert refusal(raised) == sentence

    @pytest.mark.parametrize(
        ("fields", "action"),
        [({"command": ",x"}, ("command", ",x")), ({"prompt": " hm? "}, ("prompt", "hm?")), ({"text": ",x"}, ("text", ",x"))],
    )  # fmt: skip
    def test_the_kinds_of_action(self, fields: dict[str, Any], action: tuple[str, str]) -> None:
        job, _ = changes().add({"when": "0 * * * *", **fields})
        assert (job.do, job.text) == action

    def test_the_end_may_be_a_date_whose_last_second_counts(self) -> None:
        assert changes().add({**TEA, "until": "2026-12-24"})[0].until == "2026-12-24T23:59:59.000000+00:00"
        assert changes().add({**TEA, "until": "2026-11-22 13:00"})[0].until == "2026-11-22T13:00:00.000000+00:00"

    @pytest.mark.parametrize(
        ("when", "options", "role", "is_refused"),
        [
            ("every 9m", {}, Role.MEMBER, True),
            ("every 9m", {}, Role.ADMIN, True),
            ("every 9m", {}, Role.OWNER, False),
            ("every 9m", {"runs": 5}, Role.MEMBER, False),
            ("every 9m", {"until": "tomorrow"}, Role.MEMBER, False),
            ("every 10m", {}, Role.MEMBER, False),
            ("0,9 12 * * *", {}, Role.MEMBER, True),
            ("0,10 12 * * *", {}, Role.MEMBER, False),
            ("0 0,1 * * *", {}, Role.MEMBER, False),
            ("at 13:00", {}, Role.MEMBER, False),
        ],
    )
    def test_what_fires_often_needs_an_end_unless_an_owner_makes_it(
        self, when: str, options: dict[str, Any], role: Role, is_refused: bool
    ) -> None:
        pending = changes(role=role, owns_all=False)
        if not is_refused:
            assert pending.add({"when": when, "text": "x", **options})
            return
        with pytest.raises(REFUSED) as raised:
            pending.add({"when": when, "text": "x", **options})
        assert refusal(raised) == "job_forever"

    @pytest.mark.parametrize(("given", "direct"), [("test:2", True), ("test:-2:7", False)])
    def test_a_target_is_a_chat(self, given: str, direct: bool) -> None:
        job, _ = changes().add({**TEA, "to": given})
        assert job.to is not None
        assert (job.to.session, job.to.direct, job.granted) == (given, direct, ANN)

    @pytest.mark.parametrize("here", ["here", "test:1"])
    def test_this_chat_is_no_target(self, here: str) -> None:
        job, _ = changes().add({**TEA, "to": here})
        assert (job.to, job.granted) == (None, None)


class TestEdit:
    def test_what_is_left_out_stays_and_the_time_counts_from_now(self) -> None:
        old = made(name="x", jitter=5, until="2027-01-01")
        job, facts = changes(state_of(old), now=LATER).edit(old, {"text": "coffee"})
        assert job == replace(old.job, text="coffee")
        changed = stored(facts, state_of(old)).jobs[job.id]
        assert (changed.job.text, changed.job.since, changed.covered) == ("coffee", timestamp(LATER), LATER)

    def test_what_was_granted_to_an_owner_ends_with_the_change_of_somebody_else(self) -> None:
        old = made(to="test:2", nested=True, urgent=True, allow=["web.get"])
        powers: dict[str, Any] = {"to": None, "granted": None, "nested": False, "urgent": False, "allow": ()}
        job, _ = changes(state_of(old), by=BOB, role=Role.MEMBER, owns_all=False).edit(old, {"text": "y"})
        assert job == replace(old.job, by=BOB, text="y", **powers)
        kept, _ = changes(state_of(old), by=BOB).edit(old, {"text": "y"})
        assert kept == replace(old.job, by=BOB, text="y")

    def test_a_change_of_nothing_is_refused_while_the_job_is_on_whoever_makes_it(self) -> None:
        old = made(name="x")
        for by in (ANN, BOB):
            for fields in ({}, {"name": "x"}, {"when": "0 * * * *"}, {"text": "tea"}):
                with pytest.raises(REFUSED) as raised:
                    changes(state_of(old), by=by, now=LATER).edit(old, fields)
                assert refusal(raised) == "job_same"
        failing = stop(old, "paused", "reason_failing")
        assert changes(state_of(failing)).edit(failing, {})

    def test_the_zone_alone_can_be_changed_and_the_days_stay_with_a_mere_clock(self) -> None:
        old = made(when="0 8 * * 1-5")
        assert changes(state_of(old)).edit(old, {"zone": "Europe/Berlin"})[0].zone == "Europe/Berlin"
        assert changes(state_of(old)).edit(old, {"when": "9:30am"})[0].when == "30 9 * * 1-5"
        with pytest.raises(REFUSED):
            changes(state_of(old)).edit(old, {"zone": "Nowhere/Here"})

    def test_a_changed_job_is_as_foreign_as_the_most_foreign_of_its_words(self) -> None:
        old = replace(made(), added=Cited(made().job, source=Source.WORLD))
        for source in (Source.OWN, Source.WORLD):
            (fact,) = changes(state_of(old), source=source).edit(old, {"text": "y"})[1]
            assert source_of(fact) is Source.WORLD
        own = made()
        (fact,) = changes(state_of(own), source=Source.PEOPLE).edit(own, {"text": "y"})[1]
        assert source_of(fact) is Source.PEOPLE

    def test_flags_and_permissions_can_be_taken_back(self) -> None:
        old = made(urgent=True, nested=True, allow=["web.get"], jitter=5, runs=9)
        fields = {"urgent": False, "nested": False, "allow": ["none"], "jitter": 0, "runs": 0}
        job, _ = changes(state_of(old)).edit(old, fields)
        assert (job.urgent, job.nested, job.allow, job.jitter, job.most) == (False, False, (), 0, 0)


class TestControl:
    def test_a_paused_job_goes_on_from_the_present(self) -> None:
        old = made()
        paused = stored(changes(state_of(old)).pause(old), state_of(old)).jobs[old.job.id]
        assert (paused.status, paused.reason) == ("paused", "reason_asked")
        resumed = stored(changes(state_of(paused), now=LATER).resume(paused), state_of(paused)).jobs[old.job.id]
        assert resumed == replace(old, covered=LATER)

    @pytest.mark.parametrize(
        ("status", "act", "sentence"),
        [("paused", "pause", "job_is_paused"), ("over", "pause", "job_over"), ("over", "resume", "job_over"),
         ("on", "resume", "job_not_paused")],
    )  # fmt: skip
    def test_what_does_not_fit_the_state_of_a_job(self, status: str, act: str, sentence: str) -> None:
        job = job_named("a", status=status)
        with pytest.raises(REFUSED) as raised:
            getattr(changes(state_of(job)), act)(job)
        assert refusal(raised) == sentence

    def test_jobs_that_wait_for_a_clock_that_was_ahead_go_on_each_or_together(self) -> None:
        ahead = replace(made(), covered=NOW + timedelta(hours=3))
        (fact,) = changes(state_of(ahead)).resume(ahead)
        assert stored([fact], state_of(ahead)).jobs[ahead.job.id] == replace(ahead, covered=NOW)
        far = replace(job_named("far", place=THERE), covered=ahead.covered)
        every = state_of(ahead, far, job_named("present"))
        assert [fact.data["job"] for fact in changes(every).resume_waiting()] == [ahead.job.id, "far"]
        assert [fact.data["job"] for fact in changes(every, owns_all=False).resume_waiting()] == [ahead.job.id]

    def test_a_request_to_run_now_has_a_mark_of_its_own(self) -> None:
        job = made()
        pending = changes(state_of(job), by=BOB, ids=chain(["x-0001"], ["x-0002"]))
        state = stored([*pending.run(job), *pending.run(job)], state_of(job))
        requests = state.jobs[job.job.id].requests
        assert [request.fact.mark for request in requests] == ["2026-11-22T12:00:00Z!0001", "2026-11-22T12:00:00Z!0002"]
        assert [request.fact.by for request in requests] == [BOB, BOB]

    def test_a_removed_job_is_gone(self) -> None:
        job = made()
        (fact,) = changes(state_of(job)).remove(job)
        assert fact.data["by"] == {"channel": "test", "id": "1", "name": "Ann", "roles": ("staff",)}
        assert stored([fact], state_of(job)).jobs == {}

    def test_a_turn_of_a_job_may_look_and_plan_stop_or_pause_nothing(self) -> None:
        job = made()
        pending = changes(state_of(job), nested=True)
        paused = stop(job)
        for act in (
            lambda: pending.pause(job), lambda: pending.remove(job),
            lambda: pending.add(TEA), lambda: pending.edit(job, {"text": "y"}), lambda: pending.resume(paused),
            lambda: pending.run(job), lambda: pending.set_chat_rules("test:1", "UTC"),
        ):  # fmt: skip
            with pytest.raises(REFUSED) as raised:
                act()
            assert refusal(raised) == "job_from_schedule"


class TestRules:
    def test_each_rule_of_a_chat_is_set_alone_and_the_zone_is_that_of_new_jobs(self) -> None:
        state = ScheduleState()
        for zone, quiet, expected in (
            ("Europe/Berlin", "", ("Europe/Berlin", ())),
            ("", "22:00-07:00", ("Europe/Berlin", (1320, 420))),
            ("Asia/Tokyo", "", ("Asia/Tokyo", (1320, 420))),
            ("", "none", ("Asia/Tokyo", ())),
        ):
            state = stored(changes(state).set_chat_rules("test:1", zone, quiet), state)
            rules = state.rules_of("test:1")
            assert (rules.zone, rules.quiet) == expected
        assert changes(state).add({**TEA, "when": "at 23:00"})[0].zone == "Asia/Tokyo"
        assert changes(state, place=THERE).add(TEA)[0].zone == "UTC"

    def test_quiet_hours_are_in_the_zone_of_the_chat_else_of_the_bot(self) -> None:
        state = stored(changes().set_chat_rules("test:1", "", "9:30-10:00"))
        assert find_quiet_hours(state, "test:1", "Asia/Tokyo") == QuietHours(570, 600, find_zone("Asia/Tokyo"))
        state = stored(changes(state).set_chat_rules("test:1", "Europe/Berlin"), state)
        assert find_quiet_hours(state, "test:1", "Asia/Tokyo") == QuietHours(570, 600, find_zone("Europe/Berlin"))
        assert find_quiet_hours(state, "test:2", "Asia/Tokyo") is None
        state = stored(changes(state).set_chat_rules("test:1", "", "off"), state)
        assert find_quiet_hours(state, "test:1", "Asia/Tokyo") is None

    @pytest.mark.parametrize(
        ("given", "minutes"), [("00:00-23:59", (0, 1439)), ("9:05 to 10:06", (545, 606)), (" NO ", ())]
    )
    def test_quiet_hours_are_minutes_of_the_day(self, given: str, minutes: tuple[int, ...]) -> None:
        assert parse_quiet_hours(given) == minutes
        if minutes:
            assert parse_quiet_hours(format_quiet_hours(minutes)) == minutes

    @pytest.mark.parametrize("given", ["24:00-07:00", "07:00-24:00", "10:60-11:00", "10:00-11:60", "7:00-7:00"])
    def test_other_hours_are_refused(self, given: str) -> None:
        with pytest.raises(REFUSED):
            parse_quiet_hours(given)

    @pytest.mark.parametrize("session", ["", "test", "test:", ":1", "::"])
    def test_what_names_no_chat_is_refused(self, session: str) -> None:
        with pytest.raises(REFUSED):
            parse_chat_ref(session)


class TestTimes:
    def test_the_next_times_end_after_the_runs_that_are_left(self) -> None:
        job = made(runs=3)
        times = [NOW + timedelta(hours=hour) for hour in (1, 2, 3)]
        assert changes().next_times_of(job.job) == times
        assert changes(state_of(replace(job, runs=2))).next_times_of(job.job) == times[:1]
        assert changes().next_times_of(made().job, 2) == times[:2]

    def test_a_time_is_read_in_the_zone_that_is_named_else_of_the_job_else_of_the_chat(self) -> None:
        chat = stored(changes().set_chat_rules("test:1", "Asia/Tokyo"))
        job = made(zone="Europe/Berlin").job
        due = [
            changes(chat).read_time("in 2 days at 9am", *given).when.next_after(NOW, find_zone(zone))
            for given, zone in (((), "Asia/Tokyo"), (("", job), "Europe/Berlin"), (("UTC", job), "UTC"))
        ]
        assert due == [datetime(2026, 11, 24, hour, tzinfo=UTC) for hour in (0, 8, 9)]

    def test_the_shortest_gap(self) -> None:
        zone = find_zone("UTC")
        assert shortest_gap(interval(NOW, seconds=90), zone, NOW) == timedelta(seconds=90)
        assert shortest_gap(interval(NOW, days=2), zone, NOW) == timedelta(days=2)
        assert shortest_gap(parse_cron("0,7 9 * * *"), zone, NOW) == timedelta(minutes=7)
        assert shortest_gap(one_time(LATER, ""), zone, NOW) is None
